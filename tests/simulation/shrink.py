"""A failing history made short: faults and jobs are left out while it still fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.simulation.script import Script


def kind_of(problem: str) -> str:
    """What a problem says without its names and figures: two runs fail in the same way when this is the same."""
    return re.sub(r"[0-9a-f]{8,}|[jtw]-[0-9A-Z]{26}|\d+(\.\d+)?|(ann|bob)\d*", "", problem)[:60]


def shortest(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Leave out faults, then jobs, one after the other and again, as long as `fails` says that it still fails."""
    script = script.with_parts(tuple(range(len(script.faults))), tuple(range(len(script.works))))
    changed = True
    while changed:
        changed = False
        for at in reversed(range(len(script.faults))):
            shorter = script.without_fault(at)
            if fails(shorter):
                script, changed = shorter, True
        for at in reversed(range(len(script.works))):
            shorter = script.without_work(at)
            if len(script.works) > 1 and fails(shorter):
                script, changed = shorter, True
    return script
