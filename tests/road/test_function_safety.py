"""A function on a worker that computed others' jobs before: nothing of these is in its memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.worker.sandbox import bubblewrap

USER = "65402"
MARK = 1234.5


def values_in_shared_memory(sent: bytes, mark: float) -> tuple[int, int]:
    """How many float32 of that value lie in memory that is shared with the worker, and how much of it there is."""
    import ctypes
    import struct

    pattern, found, seen = struct.pack("<f", mark), 0, 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "memfd:moregpu" in line:
                start, stop = (int(text, 16) for text in line.split()[0].split("-"))
                held = ctypes.string_at(start, stop - start)
                found += held.count(pattern)
                seen += len(held)
    assert len(sent) > 0
    return found, seen


@pytest.mark.slow
def test_no_value_of_another_job_is_in_what_a_function_gets(tmp_path: Path) -> None:
    if bubblewrap.executable() is None:
        pytest.skip("missing: bubblewrap; mend: apt-get install bubblewrap")
    with LoopbackPool(tmp_path / "home", {"MOREGPU_FUNCTIONS_USER": USER}) as local:
        local.start_coordinator()
        local.start_worker("anna", "--allow", "functions")
        local.wait_for_workers()
        with local.connect() as pool:
            for length in (20_000 << step for step in range(9)):  # memory of every size is left behind
                marked = np.full(length, MARK, np.float32)
                pool.vector_add(marked, np.zeros_like(marked))
            found, seen = pool.submit(values_in_shared_memory, b"x" * 2_500_000, MARK).result(60)
    assert seen >= 2_500_000
    assert found == 0
