"""Figures, widths and colours: pure, and right for every input."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from moregpu.jobs import Evidence, JobState, TaskState
from moregpu.wire.api import JobView, TaskView
from moregpu.wire.text import clean
from moregpu_tui.present import jobs as job_view
from moregpu_tui.present.cells import Column, cut, fill, fit, length, meter, sparkline, split, widths, wrapped
from moregpu_tui.present.glyphs import ASCII, UNICODE, glyphs, plain
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.qr import qr_lines
from moregpu_tui.present.tones import ANSI_RGB, MEANINGS, NEUTRAL, PLACES, THEMES, contrast, palette
from moregpu_tui.present.units import count, seconds, short_id, size
from moregpu_tui.state.events import job_of
from moregpu_tui.state.model import LOOKS, Job, PoolState, Worker
from moregpu_tui.state.selectors import job_matches, workers

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Mn", "Me", "Co", "Cn"]), max_size=40)
LINE = st.lists(st.tuples(TEXT, st.sampled_from(["text", "dim"])), max_size=5).map(tuple)


@given(TEXT, st.integers(1, 60), st.booleans())
def test_a_fitted_text_has_exactly_its_width(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(text, width, right)) == width


@given(LINE, st.integers(1, 80), st.booleans())
def test_a_filled_line_has_exactly_its_width(line: tuple[tuple[str, str], ...], width: int, right: bool) -> None:
    assert length(fill(line, width, right)) == width
    assert length(cut(line, width)) <= width


@given(LINE, LINE, st.integers(2, 100))
def test_a_line_with_two_ends_has_exactly_its_width(
    left: tuple[tuple[str, str], ...], right: tuple[tuple[str, str], ...], width: int
) -> None:
    assert length(split(left, right, width)) == width


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=12),
       st.integers(1, 200))  # fmt: skip
def test_columns_never_take_more_than_there_is(shape: list[tuple[int, int, int]], room: int) -> None:
    columns = [Column(key=str(at), title="", width=w, grow=g, rank=r) for at, (w, g, r) in enumerate(shape)]
    found = widths(columns, room)
    assert found
    assert sum(found.values()) + 2 * (len(found) - 1) <= room


@given(TEXT, st.integers(2, 30))
def test_wrapped_lines_fit_and_keep_the_words(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split()) or any(
        cell_len(word) > width for word in text.split()
    )


@given(st.floats(allow_nan=True), st.integers(1, 20))
def test_a_meter_always_has_its_width(value: float, cells: int) -> None:
    assert length(meter(value, cells, UNICODE.bar, "busy")) == cells


@given(st.lists(st.floats(0, 1e9), max_size=50), st.integers(1, 40))
def test_a_sparkline_always_has_its_width(values: list[float], cells: int) -> None:
    assert len(sparkline(values, cells, UNICODE.rise)) == cells


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.00026, "260 µs"), (0.0123, "12.3 ms"), (1.234, "1.23 s"), (65.0, "65.0 s"), (600.0, "10 min"), (None, "–")],
)
def test_durations_have_units(value: float | None, shown: str) -> None:
    assert seconds(value) == shown


def test_sizes_and_counts_have_three_digits() -> None:
    assert size(3 << 30) == "3.00 GiB"
    assert count(123456) == "123k"
    assert count(950) == "950"
    assert short_id("w-169APPSDPX447TZ55CTF7S5GCG") == "w-169APPSD"


# ---- colours and signs


@pytest.mark.parametrize("name", THEMES)
def test_every_tone_stands_out_on_every_ground(name: str) -> None:
    """WCAG 2.2: 4.5, and 7 in the high contrast theme. `rule` is a line, not text."""
    wanted = 7.0 if name == "contrast" else 4.5
    found = palette(name)
    for tone in (*NEUTRAL, *MEANINGS):
        if tone == "rule":
            continue
        for place in PLACES:
            ground = ANSI_RGB.get(found.places[place], found.places[place])
            colour = ANSI_RGB.get(found.tones[tone], found.tones[tone])
            assert contrast(colour, ground) >= wanted, (tone, place, colour, ground)


@pytest.mark.parametrize("name", [name for name in THEMES if name != "ansi"])
def test_text_in_the_radars_beam_stands_out_too(name: str) -> None:
    found = palette(name)
    for tone in ("ready", "busy", "throttled", "offline", "dim"):
        for ground in found.beam:
            assert contrast(found.tones[tone], ground) >= 3.0


def test_the_contrast_of_black_and_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_every_sign_is_one_cell_wide(signs: object) -> None:
    for name in ("looks", "jobs", "tasks", "levels"):
        for sign in getattr(signs, name).values():
            assert cell_len(sign) == 1, sign
    for name in ("bar", "rise"):
        assert all(cell_len(sign) == 1 for sign in getattr(signs, name))
    for name in ("live", "stale", "offline", "empty", "cursor", "mark", "line", "up", "down", "dots"):
        assert cell_len(getattr(signs, name)) == 1


def test_states_differ_by_their_sign_alone() -> None:
    for signs in (UNICODE, ASCII):
        shown = [signs.looks[look] for look in LOOKS]
        assert len(set(shown)) == len(shown)


@given(st.text(max_size=60))
@example("日本語のワーカー 🎉 e\u0301 ≤ שלום")
def test_ascii_means_ascii_and_the_same_width(text: str) -> None:
    text = clean(text)
    shown = plain(text, ASCII)
    assert shown.isascii()
    assert len(shown) == cell_len(text)


@pytest.mark.parametrize(
    ("wish", "term", "encoding", "is_ascii"),
    [
        ("auto", "xterm-256color", "UTF-8", False),
        ("auto", "linux", "UTF-8", True),
        ("auto", "dumb", "UTF-8", True),
        ("auto", "xterm", "ANSI_X3.4-1968", True),
        ("unicode", "linux", "ascii", False),
        ("ascii", "xterm", "UTF-8", True),
    ],
)
def test_signs_follow_the_locale_and_the_terminal(wish: str, term: str, encoding: str, is_ascii: bool) -> None:
    assert glyphs(wish, {"TERM": term}, encoding).ascii is is_ascii


# ---- the task map


@given(st.integers(1, 5000), st.integers(1, 400), st.integers(1, 60))
def test_a_finished_job_is_a_full_map_whatever_its_size(grains: int, squares: int, step: int) -> None:
    tasks = [
        TaskView(id=str(at), number=at, state=TaskState.DONE, grains=(at, min(at + step, grains)))
        for at in range(0, grains, step)
    ]
    shown = job_view.task_map(Job(id="j-1", grains=grains), tasks, squares)
    assert len(shown) == min(grains, squares)
    assert all(square.state == "done" for square in shown)


def test_a_failed_task_is_seen_among_thousands() -> None:
    tasks = [TaskView(id="a", number=0, state=TaskState.DONE, grains=(0, 5000)),
             TaskView(id="b", number=1, state=TaskState.FAILED, grains=(2500, 2501))]  # fmt: skip
    shown = job_view.task_map(Job(id="j-1", grains=5000), tasks, 50)
    assert [square.state for square in shown].count("failed") == 1


def test_evidence_says_how_sure_it_is() -> None:
    task = TaskView(id="a", number=0, state=TaskState.DONE, grains=(0, 1),
                evidence=Evidence(kind="sampled", rows=64, probability=0.995))  # fmt: skip
    shown = "".join(text for text, _ in job_view.evidence(task, Manner()))
    assert "sampled" in shown
    assert "finds 99.50 %" in shown


def test_a_code_is_drawn_whole() -> None:
    lines = qr_lines("MGPU1-" + "A" * 250, ascii_only=False)
    widths_ = {length(line) for line in lines}
    assert len(widths_) == 1
    assert abs(widths_.pop() / 2 - len(lines)) <= 1
    assert all(ord(sign) < 128 for line in qr_lines("MGPU1-AAAA", ascii_only=True) for sign in line[0][0])


@pytest.mark.parametrize(
    ("failed", "grains", "told"), [(0, 4, "100"), (1, 1, "1 call failed"), (3, 2000, "3 of 2,000 failed")]
)
def test_a_job_that_is_done_says_how_many_of_its_calls_failed(failed: int, grains: int, told: str) -> None:
    view = JobView(
        id="j-1", kind="function", name="", state=JobState.DONE, submitter="ann", created_at=0.0, started_at=1.0,
        grains=grains, grains_done=grains, failed_calls=failed,
    )  # fmt: skip
    job = job_of(view)
    assert told in "".join(text for text, _ in job_view.cell(job, "progress", Manner(), 0.0))
    assert job_view.cell(job, "state", Manner(), 0.0)[0][1] == ("warn" if failed else "good")
    page = "".join(text for line in job_view.facts(job, Manner(), 0.0) for text, _ in line)
    assert ("failed" in page) == bool(failed)


def test_whose_a_job_is_is_read_and_found_by_the_label_of_its_token() -> None:
    view = JobView(
        id="j-1",
        kind="kernel",
        name="",
        state=JobState.DONE,
        submitter="yznycdwt",
        submitter_name="ann",
        created_at=0.0,
    )
    job = job_of(view)
    assert any("ann" in "".join(text for text, _ in line) for line in job_view.facts(job, Manner(), 0.0))
    assert "".join(text for text, _ in job_view.cell(job, "submitter", Manner(), 0.0)) == "ann"
    assert job_matches(job, "ann") and job_matches(job, "yznyc") and not job_matches(job, "ben")


def test_workers_stand_in_the_order_of_their_numbers() -> None:
    known = {id: Worker(id=id, name=name) for id, name in [("w-1", "light-0-10"), ("w-2", "light-0-2")]}
    assert [worker.name for worker in workers(PoolState(workers=known))] == ["light-0-2", "light-0-10"]
