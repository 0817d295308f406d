"""`moregpu join --allow`: whose code may run here. Nobody's, unless it says so."""

from __future__ import annotations

import pytest

from moregpu.cli.join import also_allowed, whose_functions
from moregpu.errors import InvalidRequest
from moregpu.wire.invite import Invite
from moregpu.worker.config import WorkerConfig
from moregpu.worker.enrol import introduction


@pytest.mark.parametrize(
    ("allow", "whose"),
    [
        ([], ()),
        (["functions"], ("*",)),
        (["functions=alice, bob"], ("alice", "bob")),
        (["functions=alice", "functions=bob"], ("alice", "bob")),
        (["functions=alice,group:lab"], ("alice", "group:lab")),
        (["functions=alice", "functions"], ("*",)),
    ],
)
def test_allow_names_whose_functions_may_run(allow: list[str], whose: tuple[str, ...]) -> None:
    assert whose_functions(allow) == whose


@pytest.mark.parametrize("text", ["functions=", "kernels", "", "functions=,"])
def test_what_allow_cannot_mean_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--allow functions"):
        whose_functions([text])


def test_more_than_a_sandboxed_call_is_allowed_word_by_word() -> None:
    assert also_allowed(["functions"]) == {}
    assert also_allowed(["functions", "network"]) == {"functions_network": True}
    assert WorkerConfig.checked(**also_allowed(["unconfined", "interpreters"])).functions_unconfined
    assert whose_functions(["functions=alice", "network"]) == ("alice",)
    assert whose_functions(["network"]) == ()


def test_functions_are_off_until_somebody_turns_them_on() -> None:
    assert "function" not in WorkerConfig().allowed_kinds
    config = WorkerConfig(functions=("alice",))
    assert "function" in config.allowed_kinds
    assert config.consent == {"function": ["alice"]}
    assert "function" not in WorkerConfig(functions=("alice",), kinds=("kernel",)).allowed_kinds


def test_who_joins_reads_whose_functions_are_let_in_and_nothing_of_them_otherwise() -> None:
    invite = Invite(
        addresses=("127.0.0.1:8787",), pool_id=bytes(32), cs_pub=bytes(32), invite_id="i-" + "0" * 26,
        secret=bytes(16), pin=bytes(32), pool_name="attic",
    )  # fmt: skip
    assert "functions" not in introduction(invite)
    assert "Python functions of alice, group:lab are let in too" in introduction(invite, ("alice", "group:lab"))
    assert "Python functions of everybody are let in too" in introduction(invite, ("*",))
