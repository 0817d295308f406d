"""Access: invites, tokens, the pool's key and its own settings, the ledger."""

from __future__ import annotations

from moregpu.wire.api import InviteRequest, PoolChange, RotateRequest, TokenRequest
from moregpu_tui.commands.meant import Meant
from moregpu_tui.modals.dialog import Confirm, TypeToConfirm
from moregpu_tui.modals.form_dialog import FormDialog
from moregpu_tui.modals.made import Made
from moregpu_tui.present.cells import Line
from moregpu_tui.present.time import until
from moregpu_tui.present.units import plural, short_id


class AccessCommands(Meant):
    """What is done to who may do what."""

    async def _invite_new(self, argument: str) -> None:
        request = await self._app.ask(FormDialog("invite a worker", InviteRequest, "make it", {"owner": argument}))
        if request is None:
            return
        made = await self._app.source.invite(request)
        about: list[Line] = [
            (("On the machine that joins: ", "text"), ("moregpu join", "strong"), (", then paste this line.", "text")),
            ((f"Good for {plural(made.uses_left, 'machine')}, ends {until(made.expires_at, self._app.wall())}. "
              "It is a secret.", "dim"),),
        ]  # fmt: skip
        if made.reach:
            about.append(((made.reach, "warn"),))
        await self._app.ask(Made("invite", made.line, about))

    async def _token_new(self, argument: str) -> None:
        request = await self._app.ask(FormDialog("a token for a client", TokenRequest, "make it", {"label": argument}))
        if request is None:
            return
        made = await self._app.source.create_token(request)
        about: list[Line] = [
            (("For a client, as ", "text"), ("MOREGPU_ADMIN_TOKEN", "strong"), (f". Role: {made.role}.", "text")),
            (("It is a secret, and shown this once.", "dim"),),
        ]
        await self._app.ask(Made("token", made.line, about))

    async def _access_revoke(self, _argument: str) -> None:
        for id in self._targets("token"):
            is_invite = id.startswith("i-")
            lines: list[Line] = [
                (("Workers that used it stay." if is_invite else "Whoever uses it is out at once.", "text"),)
            ]
            what = f"{'withdraw invite' if is_invite else 'revoke token'} {short_id(id)}?"
            if await self._app.ask(Confirm(what, lines, "Withdraw" if is_invite else "Revoke")):
                if is_invite:
                    await self._app.source.withdraw_invite(id)
                else:
                    await self._app.source.revoke_token(id)
                self._app.tell(f"{short_id(id)} is no longer good")

    async def _pool_rotate(self, _argument: str) -> None:
        pool = self._app.state.pool
        finishing = pool is not None and pool.rotating
        online = sum(worker.connected for worker in self._app.state.workers.values())
        total = sum(not worker.revoked for worker in self._app.state.workers.values())
        lines: list[Line] = (
            [
                (("The old session key goes, for good.", "text"),),
                (
                    (
                        f"{plural(total - online, 'worker')} not online now: those that did not hear of the next key",
                        "warn",
                    ),
                ),
                (("need a new invite.", "warn"),),
            ]
            if finishing
            else [
                (("A next session key is announced; workers learn it when they next connect.", "text"),),
                (
                    (
                        f"{plural(total, 'worker')} will use it. "
                        f"Give them a day, then {self._app.manner.key('pool.rotate')} again finishes.",
                        "text",
                    ),
                ),
            ]
        )
        word = "finish" if finishing else "rotate"
        if await self._app.ask(TypeToConfirm(f"{word} the change of the pool's key?", lines, word)):
            await self._app.source.rotate(RotateRequest(action="finish" if finishing else "begin"))
            self._app.tell("the old key is gone" if finishing else "the next key is announced")

    async def _pool_change(self, _argument: str) -> None:
        pool = self._app.state.pool
        values = {"name": pool.name, "description": pool.description} if pool is not None else {}
        change = await self._app.ask(FormDialog("this pool", PoolChange, "keep it", values))
        if change is not None:
            await self._app.source.change_pool(change)
            self._app.tell("the pool took it")

    async def _ledger_verify(self, _argument: str) -> None:
        self._app.tell("walking the ledger …", timeout=3)
        await self._app.source.verify_ledger()
        audit = self._app.state.audit
        if audit is not None and not audit.ok:
            self._app.warn("the ledger does not verify")
