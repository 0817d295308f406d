"""How well the workers are connected, as the network test of MoreGPU 1.x tells it: from what moved, without a probe."""

from __future__ import annotations

from statistics import median_low
from typing import Any

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.compat.shown import figure, shown
from moregpu.coordinator.api.fleetnow import backend_of

_ANYWHERE = "jobs that compute for longer than their data travels"


async def net(ask: Ask) -> Answer:
    """Round trip and throughput of each worker that is connected, and their medians; None until something moved."""
    workers = [view for view in await ask.services.desk.workers() if view.connected_at is not None]
    links = [(worker, ask.services.traffic.view(worker)) for worker in workers]
    rows = [
        {
            "id": worker.id,
            "backend": backend_of(worker),
            "rtt_ms": _scaled(link.round_trip_s, 1e3, 2),
            "up_mbps": _scaled(link.to_worker_bytes_s, 1e-6, 1),
        }
        for worker, link in links
    ]
    return shown(
        {
            "ok": True,
            "workers": rows,
            "median_rtt_ms": _median(rows, "rtt_ms"),
            "median_up_mbps": _median(rows, "up_mbps"),
            "latency_tolerant_anywhere": [_ANYWHERE],
            "latency_bound_needs_low_rtt": sorted({link.allows for _, link in links if link.allows}),
            "note": "up_mbps are megabytes a second; GET /v1/network says more" if rows else "no workers are connected",
        }
    )


def _scaled(value: float | None, factor: float, digits: int) -> float | None:
    return None if value is None else figure(value * factor, digits)


def _median(rows: list[dict[str, Any]], name: str) -> float | None:
    known = [row[name] for row in rows if row[name] is not None]
    return median_low(known) if known else None
