"""Which worker is meant by what was typed."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from moregpu.cli.doctor import states_of
from moregpu.cli.worker import LISTED, find_one
from moregpu.errors import InvalidRequest, NotFound, Unavailable
from moregpu.wire.api import WorkerView


def worker(id: str, name: str, state: Literal["online", "offline"] = "online") -> WorkerView:
    fields: dict[str, Any] = {"id": id, "name": name, "owner": "lab", "groups": [], "state": state}
    return WorkerView(**fields)


FLEET = [
    worker("w-3AWPR43H5ZH6R7", "vm"),
    worker("w-6NDN6FEHXECEQV", "vm", "offline"),
    worker("w-6PPPPPPPPPPPPP", "anna"),
]


@pytest.mark.parametrize(("typed", "found"), [("anna", 2), ("w-3A", 0), ("6N", 1), ("w-6PPPPPPPPPPPPP", 2)])
def test_a_worker_is_found_by_its_name_or_the_beginning_of_its_id(typed: str, found: int) -> None:
    assert find_one(FLEET, typed) is FLEET[found]


@pytest.mark.parametrize(
    ("typed", "ids"), [("vm", ["w-3AWPR43H (online)", "w-6NDN6FEH (offline)"]), ("w-6", ["w-6NDN6FEH", "w-6PPPPPPP"])]
)
def test_of_several_that_are_meant_the_ids_are_said_that_tell_them_apart(typed: str, ids: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="2 workers") as refused:
        find_one(FLEET, typed)
    hint = refused.value.hint or ""
    assert all(id in hint for id in ids)
    for id in ids:
        assert find_one(FLEET, id.split()[0])


def test_of_a_fleet_that_is_meant_some_are_said() -> None:
    with pytest.raises(InvalidRequest) as refused:
        find_one([worker(f"w-{number:014d}", "desk") for number in range(40)], "desk")
    assert (refused.value.hint or "").count("w-") == LISTED


@pytest.mark.parametrize("typed", ["", "w", "w-", " "])
def test_the_only_worker_is_not_meant_by_nothing(typed: str) -> None:
    """`moregpu worker remove "$WORKER" --yes`, with a variable that was never set, revoked it for good."""
    with pytest.raises(NotFound):
        find_one(FLEET[:1], typed)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(NotFound):
        find_one(FLEET, "zoe")


def test_the_doctor_names_workers_that_stand_alike_together_and_of_many_some() -> None:
    assert states_of([]) == "none has joined"
    assert states_of(FLEET) == "vm, anna online; vm offline"
    fleet = [worker(f"w-{number:014d}", f"desk{number}", "paused") for number in range(40)]
    assert states_of(fleet) == "desk0, desk1, desk2, desk3 and 36 more paused"


def test_a_fleet_of_which_nobody_is_there_is_a_finding() -> None:
    with pytest.raises(Unavailable, match="anna offline"):
        states_of([worker("w-1", "anna", "offline")])
