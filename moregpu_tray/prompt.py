"""The window that asks for an invite: `python -m moregpu_tray.prompt`, a process of its own.

Limits come in JSON over standard input; the invite that was agreed to goes out over standard output (exit status 0).
1: the owner does not want to; 3: no window can be opened.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from moregpu.errors import InviteRefused
from moregpu.wire.invite import INVITE_PREFIX, Invite, parse_invite, pasted
from moregpu_tray.first_run import promise


class Prompt:
    """One window: first the invite, then what it means."""

    def __init__(self, tk: Any, limits: dict[str, Any]):
        self._limits = limits
        self.agreed = ""
        self._invite: Invite | None = None
        self._root: Any = tk.Tk(className="MoreGPU")
        self._root.title("Join a pool — MoreGPU")
        self._root.minsize(520, 0)
        self._root.columnconfigure(0, weight=1)
        self._words: Any = tk.Label(
            self._root,
            text="Paste the invite that the pool's admin gave you.",
            justify="left",
            anchor="w",
            wraplength=560,
        )
        self._words.grid(row=0, sticky="ew", padx=16, pady=(16, 8))
        self._entry: Any = tk.Entry(self._root, width=70)
        self._entry.grid(row=1, sticky="ew", padx=16)
        self._trouble: Any = tk.Label(self._root, text="", fg="#b02020", justify="left", anchor="w", wraplength=560)
        self._trouble.grid(row=2, sticky="ew", padx=16, pady=4)
        row: Any = tk.Frame(self._root)
        row.grid(row=3, sticky="e", padx=16, pady=(8, 16))
        self._go: Any = tk.Button(row, text="Next", command=self._next, default="active", width=10)
        tk.Button(row, text="Cancel", command=self._root.destroy, width=10).pack(side="right")
        self._go.pack(side="right", padx=8)
        self._root.bind("<Return>", self._returned)
        self._root.bind("<Escape>", self._escaped)
        self._offer(tk)
        self._entry.focus_set()

    def run(self) -> None:
        """Until it is closed."""
        self._root.mainloop()

    def _returned(self, _event: Any) -> None:
        self._next()

    def _escaped(self, _event: Any) -> None:
        self._root.destroy()

    def _offer(self, tk: Any) -> None:
        """What lies in the clipboard, when it is an invite."""
        try:
            text = str(self._root.clipboard_get()).strip()
        except tk.TclError:
            return
        if pasted(text).upper().startswith(INVITE_PREFIX):
            self._entry.insert(0, text)

    def _next(self) -> None:
        if self._invite is not None:
            self.agreed = self._invite.line()
            self._root.destroy()
            return
        try:
            self._invite = parse_invite(self._entry.get())
        except InviteRefused as error:
            self._trouble.configure(text=str(error))
            return
        self._trouble.configure(text="")
        self._entry.grid_remove()
        limits = self._limits
        self._words.configure(
            text=promise(self._invite, limits["ceiling"], limits["schedule"], limits.get("functions", ()))
        )
        self._go.configure(text="Join")


def main() -> int:
    """Show it; returns the exit status."""
    limits = msgspec.json.decode(sys.stdin.buffer.read() or b"{}", type=dict[str, Any])
    try:
        import tkinter

        prompt = Prompt(tkinter, {"ceiling": 0.85, "schedule": "always"} | limits)
    except Exception as error:  # noqa: BLE001 — no tkinter, no display, a display that refuses
        sys.stderr.write(f"no window: {error}\n")
        return 3
    prompt.run()
    if not prompt.agreed:
        return 1
    sys.stdout.write(prompt.agreed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
