"""The window that asks whose Python code may run here: `python -m moregpu_tray.who`, a process of its own.

Names that are allowed already come in JSON over standard input; those that are to be go out over standard output, by
commas (exit status 0). 1: the owner does not want to; 3: no window can be opened.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from moregpu.errors import InvalidRequest
from moregpu_tray.consent import names_of

WORDS = (
    "Whose Python functions may run on this machine?\n\n"
    "Names as the pool calls them, or group:NAME, by commas; empty: nobody's. They run in a sandbox, without your "
    "files and your network, and only while this machine has something to spare. Still: name people whom you trust."
)


class Who:
    """One window with one line."""

    def __init__(self, tk: Any, names: list[str]):
        self.agreed: str | None = None
        self._root: Any = tk.Tk(className="MoreGPU")
        self._root.title("Whose functions — MoreGPU")
        self._root.minsize(520, 0)
        self._root.columnconfigure(0, weight=1)
        tk.Label(self._root, text=WORDS, justify="left", anchor="w", wraplength=560).grid(
            row=0, sticky="ew", padx=16, pady=(16, 8)
        )
        self._entry: Any = tk.Entry(self._root, width=70)
        self._entry.insert(0, ", ".join(names))
        self._entry.grid(row=1, sticky="ew", padx=16)
        self._trouble: Any = tk.Label(self._root, text="", fg="#b02020", justify="left", anchor="w", wraplength=560)
        self._trouble.grid(row=2, sticky="ew", padx=16, pady=4)
        row: Any = tk.Frame(self._root)
        row.grid(row=3, sticky="e", padx=16, pady=(8, 16))
        tk.Button(row, text="Cancel", command=self._root.destroy, width=10).pack(side="right")
        tk.Button(row, text="Allow", command=self._allow, default="active", width=10).pack(side="right", padx=8)
        self._root.bind("<Return>", self._returned)
        self._root.bind("<Escape>", self._escaped)
        self._entry.focus_set()

    def run(self) -> None:
        """Until it is closed."""
        self._root.mainloop()

    def _returned(self, _event: Any) -> None:
        self._allow()

    def _escaped(self, _event: Any) -> None:
        self._root.destroy()

    def _allow(self) -> None:
        try:
            self.agreed = ",".join(names_of([self._entry.get()]))
        except InvalidRequest as error:
            self._trouble.configure(text=str(error))
            return
        self._root.destroy()


def main() -> int:
    """Show it; returns the exit status."""
    given = msgspec.json.decode(sys.stdin.buffer.read() or b"{}", type=dict[str, list[str]])
    try:
        import tkinter

        window = Who(tkinter, given.get("names", []))
    except Exception as error:  # noqa: BLE001 — no tkinter, no display, a display that refuses
        sys.stderr.write(f"no window: {error}\n")
        return 3
    window.run()
    if window.agreed is None:
        return 1
    sys.stdout.write(window.agreed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
