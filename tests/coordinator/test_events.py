"""What waits for a reader of the stream: the latest of each figure, but every line that a job prints."""

from __future__ import annotations

from moregpu.coordinator.events import MAX_PRINTED, Subscriber
from moregpu.coordinator.protocol import Principal
from moregpu.wire.api import Event

ADMIN = Principal(id="k-admin", role="admin")


def printed(*lines: str, submitter: str = "k-emil") -> Event:
    return Event(type="log", id="j-1", at=1.0, data={"submitter": submitter, "worker": "w-A", "lines": [*lines]})


def read(subscriber: Subscriber) -> list[Event]:
    found: list[Event] = []
    while (event := subscriber.next_live()) is not None:
        found.append(event)
    return found


def test_of_figures_the_latest_waits_and_of_what_a_job_prints_every_line() -> None:
    reader = Subscriber(ADMIN, 0)
    for number in range(3):
        reader.wait_for_reader(Event(type="worker.live", id="w-A", at=float(number)))
        reader.wait_for_reader(printed(f"{number} a", f"{number} b"))
    assert reader.waiting == 4
    *lines, figure = read(reader)
    assert [line for event in lines for line in event.data["lines"]] == ["0 a", "0 b", "1 a", "1 b", "2 a", "2 b"]
    assert figure.at == 2.0
    assert reader.waiting == 0


def test_a_reader_that_is_too_slow_has_the_newest_lines_and_is_told_how_many_are_not_there() -> None:
    reader = Subscriber(ADMIN, 0)
    for number in range(MAX_PRINTED + 70):
        reader.wait_for_reader(printed(f"line {number}"))
    first, *rest = read(reader)
    assert first.data["left_out"] == 70
    assert first.data["lines"] == ["line 70"]
    assert len(rest) == MAX_PRINTED - 1
    assert all("left_out" not in event.data for event in rest)
    reader.wait_for_reader(printed("after"))
    assert "left_out" not in read(reader)[0].data


def test_what_somebody_elses_job_prints_takes_no_room() -> None:
    emil, wall = (
        Subscriber(Principal(id=id, role=role), 0) for id, role in (("k-emil", "submitter"), ("k-w", "viewer"))
    )
    for reader in (emil, wall):
        reader.wait_for_reader(printed("mine"))
        for number in range(MAX_PRINTED + 1):
            reader.wait_for_reader(printed(f"line {number}", submitter="k-anna"))
    assert [event.data["lines"] for event in read(emil)] == [["mine"]]
    assert read(wall) == []
