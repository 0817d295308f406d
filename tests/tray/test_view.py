"""The view: one mood for a glance, one line with the reason."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from moregpu.worker.status import Status
from moregpu_tray.view import Mood, View


def view(**status: Any) -> View:
    return View(joined=True, status=Status(**{"ceiling": 0.85, "pool_name": "attic", **status}))


@pytest.mark.parametrize(
    ("shown", "mood"),
    [
        (View(), Mood.NO_POOL),
        (View(joined=True), Mood.OFFLINE),
        (view(state="connecting"), Mood.OFFLINE),
        (view(state="pending"), Mood.WAITING),
        (view(state="starting", reason="the keyring is locked"), Mood.WAITING),
        (view(state="online", duty=0.8), Mood.IDLE),
        (view(state="online", duty=0.8, running=1), Mood.WORKING),
        (view(state="online", duty=0.15, running=1), Mood.YIELDING),
        (view(state="online", duty=0.1, running=1, ceiling=0.1), Mood.WORKING),
        (view(state="paused"), Mood.PAUSED),
        (View(joined=True, trouble="revoked"), Mood.TROUBLE),
    ],
)
def test_every_state_has_its_mood(shown: View, mood: Mood) -> None:
    assert shown.mood is mood


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (View(), "this machine belongs to no pool yet"),
        (View(trouble="The invite was used"), "The invite was used"),
        (view(state="starting", reason="the keyring is locked"), "the keyring is locked"),
        (view(state="paused", reason="paused: on battery"), "paused: on battery"),
        (view(state="paused", reason="leaving room for your programs"), "paused: leaving room for your programs"),
        (
            view(state="online", duty=0.15, running=1, reason="you are using this machine"),
            "computing with up to 15%: you are using this machine",
        ),
        (view(state="online", duty=0.85), "ready, up to 85%"),
    ],
)
def test_the_reason_is_always_shown(shown: View, line: str) -> None:
    assert shown.line == line


def test_a_pause_of_the_owners_says_when_it_ends() -> None:
    by_owner = view(state="paused", reason="paused by the owner", owner_paused=True)
    noon = time.mktime((*time.localtime()[:3], 12, 0, 0, 0, 0, -1))
    later = msgspec.structs.replace(by_owner, paused=True, paused_until=noon + 3 * 86_400)
    assert by_owner.line == "paused by the owner"
    assert msgspec.structs.replace(by_owner, paused=True, paused_until=noon).line == "paused by the owner until 12:00"
    assert later.line == time.strftime("paused by the owner until %Y-%m-%d %H:%M", time.localtime(noon + 3 * 86_400))
    restart = msgspec.structs.replace(by_owner, paused=True, until_restart=True)
    assert restart.line == "paused by the owner until it is started again"
    other = msgspec.structs.replace(later, status=Status(state="paused", reason="paused: on battery"))
    assert other.line == "paused: on battery"


def test_the_title_names_the_pool() -> None:
    assert (View().title, view().title) == ("MoreGPU", "MoreGPU — attic")
