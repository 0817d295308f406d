"""Client tokens: who asks, wrong ones, and those made on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moregpu.coordinator.authority import WRONG_IN_A_MINUTE, Authority, bearer_of
from moregpu.coordinator.local import LOCAL_TOKEN_S, Listening, create_local_token, local_tokens_folder, save_listening
from moregpu.coordinator.store.memory import MemoryStore
from moregpu.errors import NotConfigured, NotFound, StateRefused, TooManyRequests, Unauthorized
from moregpu.wire.invite import parse_client_line, token_id


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


def with_authority(check: Callable[[Authority, Clock], Awaitable[None]], state: Path | None = None) -> None:
    async def run() -> None:
        clock = Clock()
        store = MemoryStore(clock)
        await store.open(clock.monotonic())
        try:
            await check(Authority(store, clock, os.urandom, state), clock)
        finally:
            await store.close()

    asyncio.run(run())


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_a_token_names_its_principal_until_it_is_revoked() -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        row, token = await authority.create("viewer", "a dashboard")
        who = await authority.principal(bearer(token), "")
        assert (who.id, who.role, who.label) == (row.id, "viewer", "a dashboard")
        assert await authority.holds(who)
        await authority.revoke(row.id)
        with pytest.raises(Unauthorized):
            await authority.principal(bearer(token), "")
        assert not await authority.holds(who)
        with pytest.raises(NotFound):
            await authority.revoke("00000000")

    with_authority(check)


def test_a_token_ends_when_it_was_said_to() -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        _, token = await authority.create("admin", expires_s=60.0)
        who = await authority.principal(bearer(token), "")
        clock.seconds += 60.0
        with pytest.raises(Unauthorized):
            await authority.principal(bearer(token), "")
        assert not await authority.holds(who)

    with_authority(check)


def test_who_is_connected_by_a_token_hears_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        row, token = await authority.create("viewer")
        who = await authority.principal(bearer(token), "")
        first, second = (asyncio.ensure_future(authority.until_ended(who)) for _ in range(2))
        second.cancel()
        await asyncio.wait({second})
        assert not first.done()
        await authority.revoke(row.id)
        await first
        await authority.until_ended(who)  # who comes late hears it at once

        monkeypatch.setattr("moregpu.coordinator.authority.LOOK_S", 0.01)
        _, token = await authority.create("admin", expires_s=60.0)
        who = await authority.principal(bearer(token), "")
        waits = asyncio.ensure_future(authority.until_ended(who))
        await asyncio.wait({waits}, timeout=0.05)
        assert not waits.done()
        clock.seconds += 60.0
        await waits

    with_authority(check)


def test_the_token_itself_is_kept_nowhere() -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        row, token = await authority.create("admin")
        assert token[13:] not in repr(row)
        assert len(row.hash) == 32

    with_authority(check)


def test_every_wrong_credential_gets_the_same_answer() -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        row, token = await authority.create("admin")
        revoked, revoked_token = await authority.create("admin")
        await authority.revoke(revoked.id)
        answers: set[str] = set()
        last = "A" if token[-1] != "A" else "B"
        for wrong in ["", "Bearer", "Bearer x", "Basic abc", token, bearer(token[:-1]), bearer(token[:-1] + last),
                      bearer(f"mgt_{row.id}_" + "A" * 43), bearer("mgt_00000000_" + "A" * 43),
                      bearer(revoked_token), bearer(token + ", " + token)]:  # fmt: skip
            with pytest.raises(Unauthorized) as refused:
                await authority.principal(wrong, "")
            answers.add(str(refused.value))
        assert len(answers) == 1

    with_authority(check)


@settings(deadline=None, max_examples=60)
@given(header=st.text(max_size=80))
def test_no_header_breaks_it(header: str) -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        with pytest.raises(Unauthorized):
            await authority.principal(header, "")

    with_authority(check)


def test_wrong_credentials_are_slowed_down_by_address_and_the_right_token_always_passes() -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        _, token = await authority.create("admin")
        for _ in range(WRONG_IN_A_MINUTE):
            with pytest.raises(Unauthorized):
                await authority.principal("Bearer x", "192.0.2.1")
        with pytest.raises(TooManyRequests):
            await authority.principal("Bearer x", "192.0.2.1")
        assert (await authority.principal(bearer(token), "192.0.2.1")).role == "admin"
        with pytest.raises(Unauthorized):
            await authority.principal("Bearer x", "192.0.2.2")
        clock.seconds += 60.0
        with pytest.raises(Unauthorized):
            await authority.principal("Bearer x", "192.0.2.1")

    with_authority(check)


def test_the_last_use_is_written_down_without_undoing_a_revocation() -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        row, token = await authority.create("admin")
        clock.seconds += 5.0
        await authority.principal(bearer(token), "")
        await authority.revoke(row.id)
        await authority.keep_uses()
        (kept,) = await authority.tokens()
        assert (kept.revoked, kept.used_at) == (True, clock.seconds)

    with_authority(check)


def test_a_token_made_on_this_machine_is_taken_in_when_it_is_first_shown(tmp_path: Path) -> None:
    save_listening(tmp_path / "s", Listening(addresses=("127.0.0.1:8787",), pin=b"p" * 32, pool_name="pool"))
    line = parse_client_line(create_local_token(tmp_path / "s").line())
    assert (line.addresses, line.pin) == (("127.0.0.1:8787",), b"p" * 32)

    async def check(authority: Authority, clock: Clock) -> None:
        clock.seconds = (local_tokens_folder(tmp_path / "s") / token_id(line.token)).stat().st_mtime + 1
        with pytest.raises(Unauthorized):
            await authority.principal(bearer(f"mgt_{token_id(line.token)}_" + "A" * 43), "")
        assert (await authority.principal(bearer(line.token), "")).role == "admin"
        assert list(local_tokens_folder(tmp_path / "s").iterdir()) == []
        assert (await authority.principal(bearer(line.token), "")).role == "admin"

    with_authority(check, tmp_path / "s")


def test_a_local_token_that_nobody_showed_in_time_is_worth_nothing(tmp_path: Path) -> None:
    save_listening(tmp_path / "s", Listening(addresses=("h:1",), pin=b"", pool_name=""))
    line = create_local_token(tmp_path / "s")

    async def check(authority: Authority, clock: Clock) -> None:
        path = local_tokens_folder(tmp_path / "s") / token_id(line.token)
        clock.seconds = path.stat().st_mtime + LOCAL_TOKEN_S + 1
        with pytest.raises(Unauthorized):
            await authority.principal(bearer(line.token), "")

    with_authority(check, tmp_path / "s")


def test_a_local_token_file_that_others_could_write_is_ignored(tmp_path: Path) -> None:
    save_listening(tmp_path / "s", Listening(addresses=("h:1",), pin=b"", pool_name=""))
    line = create_local_token(tmp_path / "s")
    path = local_tokens_folder(tmp_path / "s") / token_id(line.token)
    path.chmod(0o666)

    async def check(authority: Authority, clock: Clock) -> None:
        clock.seconds = path.stat().st_mtime + 1
        with pytest.raises(Unauthorized):
            await authority.principal(bearer(line.token), "")

    with_authority(check, tmp_path / "s")


def test_a_local_token_needs_a_coordinator_that_ran_and_a_private_folder(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="moregpu serve"):
        create_local_token(tmp_path / "none")
    save_listening(tmp_path / "s", Listening(addresses=("h:1",), pin=b"", pool_name=""))
    (tmp_path / "s" / "listening.json").chmod(0o644)
    with pytest.raises(StateRefused):
        create_local_token(tmp_path / "s")


def test_the_word_bearer_may_be_in_any_case() -> None:
    assert bearer_of("bEARER  x ") == "x"
    assert bearer_of("Basic x") == bearer_of("x") == ""


def test_a_role_that_changed_ends_open_streams() -> None:
    async def check(authority: Authority, clock: Clock) -> None:
        _, token = await authority.create("admin")
        who = await authority.principal(bearer(token), "")
        assert not await authority.holds(replace(who, role="viewer"))

    with_authority(check)
