"""The menu, as a pure function of what there is to show."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from moregpu.worker.config import WorkerConfig
from moregpu.worker.status import Status
from moregpu_tray.history import Ran, Sum
from moregpu_tray.menu import Contribution, Do, Item, menu_of
from moregpu_tray.view import View

JOINED = View(joined=True, status=Status(state="online", pool_name="attic", duty=0.8, ceiling=0.85))


def flat(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield item
        yield from flat(item.children)


def menu(view: View = JOINED, contribution: Contribution | None = None, **config: object) -> list[Item]:
    settings = WorkerConfig(**config)  # type: ignore[arg-type]
    return list(flat(menu_of(view, settings, ("kernel",), contribution or Contribution(), autostart=False)))


def labels(items: list[Item]) -> list[str]:
    return [item.label for item in items]


def test_it_begins_with_how_it_stands_and_ends_with_quit() -> None:
    items = menu()
    assert items[0].label == "ready, up to 80%"
    assert items[-1].do is Do.QUIT


def test_a_pause_offers_to_resume_and_nothing_else() -> None:
    assert {item.do for item in menu() if item.do and "pause" in item.do} == {
        Do.PAUSE, Do.PAUSE_HOUR, Do.PAUSE_RESTART
    }  # fmt: skip
    items = menu(View(joined=True, paused=True))
    assert Do.RESUME in {item.do for item in items}
    assert Do.PAUSE not in {item.do for item in items}


def test_the_ceiling_in_force_is_ticked_even_when_it_is_none_of_the_usual() -> None:
    for ceiling in (0.85, 0.6):
        ticked = [item.value for item in menu(ceiling=ceiling) if item.do is Do.CEILING and item.ticked]
        assert ticked == [ceiling]


def test_a_schedule_of_ones_own_is_shown_and_ticked() -> None:
    ticked = [item.label for item in menu(schedule="mon 08:00-09:00") if item.do is Do.SCHEDULE and item.ticked]
    assert ticked == ["mon 08:00-09:00"]


def test_an_admin_who_asks_for_more_than_is_allowed_is_shown_with_what_holds() -> None:
    status = Status(state="online", pool_name="attic", duty=0.5, ceiling=0.5, asked=0.9)
    assert "The pool asks for 90%; your 50% holds" in labels(menu(View(joined=True, status=status)))
    assert not any("pool asks" in label for label in labels(menu()))


def test_without_a_pool_it_offers_to_join_and_with_one_to_leave() -> None:
    assert Do.JOIN in {item.do for item in menu(View())}
    assert "Leave attic" in labels(menu())


def test_what_ran_here_is_told_by_job_and_for_whom() -> None:
    ran = Ran(job="j-1", submitter="eva", name="rays", kind="kernel", tasks=3, seconds=7384.0, watt_hours=16.4)
    total = Sum(tasks=3, seconds=7384.0, watt_hours=16.4)
    shown = labels(menu(contribution=Contribution(today=total, month=total, jobs=(ran,))))
    assert "rays for eva: 2 h 3 min" in shown
    assert "Today: 2 h 3 min, 3 tasks, about 16 Wh" in shown


@given(st.text(max_size=300))
def test_long_lines_are_cut(trouble: str) -> None:
    assert all(len(label) <= 80 for label in labels(menu(View(joined=True, trouble=trouble or "x"))))
