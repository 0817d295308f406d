"""Access: invites, tokens, who was revoked, and whether the ledger verifies."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from moregpu_tui.actions import Target
from moregpu_tui.present import access as view
from moregpu_tui.present.cells import Line
from moregpu_tui.present.log import log_line
from moregpu_tui.screens.base import PoolScreen, bindings_for, loading, offered
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.state.selectors import access_lines
from moregpu_tui.widgets.bare import Down
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.line_table import LineTable
from moregpu_tui.widgets.lines_view import LinesView

RECENT = 60
"""Lines of what happened."""


class Access(PoolScreen):
    """Who may do what."""

    here: ClassVar[str] = "access"
    footer: ClassVar[tuple[str, ...]] = ("invite.new", "token.new", "access.revoke", "ledger.verify", "app.help")
    BINDINGS = bindings_for("access")

    def body(self) -> ComposeResult:
        """The pool, then two tables."""
        with Down(id="main"):
            yield Title("this pool", id="pool-title")
            yield LinesView(id="pool")
            with Down(id="tables"):
                with Down(id="left"):
                    yield Title("invites", id="invites-title")
                    yield LineTable(view.INVITE_COLUMNS, self._invite_cell, id="invites", empty=self._no_invites)
                with Down(id="right"):
                    yield Title("tokens of clients", id="tokens-title")
                    yield LineTable(view.TOKEN_COLUMNS, self._token_cell, id="tokens", empty=self._no_tokens)
            yield Title("who came, who went, what was allowed", id="recent-title")
            yield LinesView(id="recent")

    def on_mount(self) -> None:
        """Keys into the invites."""
        super().on_mount()
        self.query_one("#pool").can_focus = False
        self.query_one("#recent").can_focus = False
        self.query_one("#invites").focus()

    def home(self) -> None:
        """The invites."""
        self.query_one("#invites").focus()

    def show(self, state: PoolState, changed: Changed) -> None:
        """Rows anew: there are few."""
        if changed.everything or changed.about:
            self._draw(state)
        if changed.everything or changed.log:
            manner = console_of(self).manner
            lines = [log_line(entry, manner) for entry in access_lines(state.log)[-RECENT:]]
            self.query_one("#recent", LinesView).put(lines[::-1] or [(("nothing since this console looks", "dim"),)])

    def tick(self, state: PoolState) -> None:
        """What expires."""
        self._draw(state)

    def targets(self, kind: Target) -> list[str]:
        """The row under the cursor of the table that has the keys."""
        invites = self.query_one("#invites", LineTable)
        if kind == "invite":
            return invites.targets() if invites.has_focus else []
        if kind == "token":
            table = invites if invites.has_focus else self.query_one("#tokens", LineTable)
            return table.targets()
        return []

    def _draw(self, state: PoolState) -> None:
        app = console_of(self)
        self.query_one("#pool-title", Title).put(state.pool.version if state.pool else "")
        self.query_one("#pool", LinesView).put(view.pool_lines(state, app.manner))
        for name, rows in (("invites", state.invites or ()), ("tokens", state.tokens or ())):
            table = self.query_one(f"#{name}", LineTable)
            table.show([row.id for row in rows])
            table.touch_all()
            self.query_one(f"#{name}-title", Title).put(str(len(rows)) if rows else "")
        if self.has_class("wide") and not self.has_class("short"):
            most = max(len(state.invites or ()), len(state.tokens or ()), 4)
            self.query_one("#tables").styles.height = min(most + 4, self.size.height // 2)
        else:
            self.query_one("#tables").styles.height = "1fr"

    def _invite_cell(self, row: str, column: str) -> Line:
        app = console_of(self)
        found = next((invite for invite in app.state.invites or () if invite.id == row), None)
        return view.invite_cell(found, column, app.manner, app.wall()) if found else ()

    def _token_cell(self, row: str, column: str) -> Line:
        app = console_of(self)
        found = next((token for token in app.state.tokens or () if token.id == row), None)
        return view.token_cell(found, column, app.manner, app.wall()) if found else ()

    def _no_invites(self) -> list[Line]:
        state = console_of(self).state
        if state.invites is None:
            return self._not_ours(state)
        return [(("  No invite is open.  ", "text"), *offered(self, "invite.new", " makes one."))]

    def _no_tokens(self) -> list[Line]:
        state = console_of(self).state
        if state.tokens is None:
            return self._not_ours(state)
        return [(("  No token.  ", "text"), *offered(self, "token.new", " makes one."))]

    def _not_ours(self, state: PoolState) -> list[Line]:
        if state.role and state.role != "admin":
            return [((f"  only an admin sees these; this token is of role {state.role}", "dim"),)]
        return loading(state) or [(("  loading …", "dim"),)]
