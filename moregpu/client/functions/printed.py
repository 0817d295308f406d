"""What functions print on workers, on this terminal: each line says which function, and where."""

from __future__ import annotations

from moregpu.client.telling import tell
from moregpu.wire.link import Printed
from moregpu.wire.text import clean


def show(function: str, printed: Printed) -> None:
    """Write lines to stderr, prefixed; whoever reads this program's output gets none of them."""
    head = clean(f"{function} on {printed.worker or 'a worker'}", 200)
    tell("".join(f"[{head}] {clean(line)}\n" for line in printed.lines))
