"""The engine room as one object: `PoolDesk` is the `Desk` that the HTTP doors call, made of the parts in this folder.

    intake   → what a submitter sends becomes a planned, durable job
    dispatch → leases for workers with free slots
    hub      → workers' connections; `session` decides, `enrol` lets in
    judge    → is a result signed, over the right thing, and right
    finish   → a job's outputs from its tasks' outputs
    fleet    → who is connected, how fast, with what view for people
    events   → the one stream of what happens
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.protocol import BlobRight, Clock, EventFeed, Offload, OpenTensor, Principal, WorkerSocket
from moregpu.coordinator.store.protocol import JobRow, Store
from moregpu.jobs import Tensor
from moregpu.wire.api import JobView, PlanView, WorkerChange, WorkerView
from moregpu.wire.identity import PoolKeys
from moregpu.workloads import JobSpec


class PoolDesk:
    """The engine room of one coordinator. `store` must be open; call `start` before use and `stop` at the end."""

    def __init__(
        self,
        store: Store,
        keys: PoolKeys,
        blobs: BlobFiles,
        clock: Clock,
        offload: Offload,
        entropy: Callable[[int], bytes] = os.urandom,
        config: DeskConfig = DeskConfig(),
    ) -> None: ...
