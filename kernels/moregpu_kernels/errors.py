"""What can go wrong in the kernel library: what happened, and what to do next.

The library knows nothing of the pool, so it has errors of its own; a worker's engine turns them into the pool's.
"""

from __future__ import annotations


class KernelError(Exception):
    """Base of all errors that this library raises on purpose. `str(error)` is readable, with the hint."""

    def __init__(self, detail: str, hint: str = ""):
        super().__init__(detail, hint)
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.detail
        # A detail that shows a line of source ends with it; the hint goes below.
        return f"{self.detail}\n{self.hint}" if "\n" in self.detail else f"{self.detail}. {self.hint}"


class NoAdapter(KernelError):
    """No GPU adapter, hardware or software, answers to that name; or the graphics library cannot be loaded."""


class ProbeFailed(NoAdapter):
    """The process that lists the adapters crashed, hung or answered nonsense; `output` is the end of what it said."""

    def __init__(self, detail: str, hint: str = "", output: str = ""):
        super().__init__(detail, hint)
        self.output = output


class DeviceLost(KernelError):
    """The device went away (driver reset, unplugged, sleep), and building it again did not help."""


class WrongThread(KernelError):
    """A device was used from a thread that does not own it."""


class BudgetExceeded(KernelError):
    """A buffer would take the device over its byte budget; nothing was allocated."""

    def __init__(self, needed_bytes: int, held_bytes: int, budget_bytes: int):
        super().__init__(
            f"{needed_bytes:,} bytes are needed on the device, and {held_bytes:,} of the budget of {budget_bytes:,} "
            "are in use",
            "Run a smaller piece, release resident tensors, or raise the device's memory budget",
        )
        self.needed_bytes = needed_bytes
        self.held_bytes = held_bytes
        self.budget_bytes = budget_bytes


class BadKernel(KernelError):
    """A kernel's text is wrong: its front matter, its template directives or its WGSL.

    `file` and `line` name the line as it was written, `source_line` is its text as the compiler saw it.
    """

    def __init__(self, detail: str, *, file: str = "", line: int = 0, source_line: str = "", hint: str = ""):
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        shown = f"\n    {source_line.strip()}" if source_line.strip() else ""
        super().__init__(f"{place}{detail}{shown}", hint)
        self.file = file
        self.line = line
        self.source_line = source_line


class BadBinding(KernelError):
    """A kernel was given tensors that it does not declare, too few, of another type, or too small."""


class BadShape(KernelError):
    """The shapes, types or parameters do not fit the operation."""


class TooLargeToBind(BadShape):
    """Even the smallest slice of a tensor is more than the device binds at once; cutting it on the host may help."""


class BadFormula(KernelError):
    """A formula cannot be understood. `position` counts characters from 0."""

    def __init__(self, detail: str, text: str = "", position: int = 0, hint: str = ""):
        window = max(0, position - 60)
        shown = text[window : position + 60].replace("\n", " ")
        caret = f"\n    {shown}\n    {' ' * (position - window)}^" if text else ""
        super().__init__(f"{detail} at character {position + 1}{caret}" if text else detail, hint)
        self.position = position
