"""Doors to kernels that an admin registers."""

from __future__ import annotations

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.wire.api import KernelRequest


async def list_kernels(ask: Ask) -> Answer:
    """Every registered kernel, by name, with its text and its reference."""
    return ask.answer(ask.services.kernels.views())


async def register(ask: Ask) -> Answer:
    """Register a WGSL kernel with its reference; the same text again changes nothing."""
    wanted = await ask.decoded(KernelRequest)
    return ask.answer(await ask.services.kernels.add(wanted.source, ask.services.clock.wall()), 201)


async def drop(ask: Ask) -> Answer:
    """Remove a kernel: no new job may name it; jobs that are there go on."""
    await ask.services.kernels.drop(ask.params["id"])
    return Answer(status=204)
