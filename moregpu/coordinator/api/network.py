"""The door to the network: round trips and throughput per worker, with what they allow."""

from __future__ import annotations

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.wire.api import NetworkView


async def show(ask: Ask) -> Answer:
    """Every worker that is connected, slowest link last."""
    workers = [view for view in await ask.services.desk.workers() if view.connected_at is not None]
    links = [ask.services.traffic.view(worker) for worker in workers]
    return ask.answer(NetworkView(links=sorted(links, key=lambda link: (link.round_trip_s or 0.0, link.name))))
