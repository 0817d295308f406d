"""A device for the tests: whatever adapter there is, software too. Where there is none, tests say what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moregpu_kernels.device import Device, open_device
from moregpu_kernels.errors import NoAdapter
from moregpu_kernels.executor import Executor


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    try:
        opened = open_device(budget_bytes=1 << 30)
    except NoAdapter as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def executor(device: Device) -> Executor:
    return Executor(device)
