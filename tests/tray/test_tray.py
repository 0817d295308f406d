"""`moregpu-tray` for real: a real pool, a real X server, a panel on a real bus, and what a person does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.wire.api import InviteRequest
from moregpu.wire.identity import PoolKeys
from moregpu.wire.invite import parse_invite
from moregpu.worker.throttle.controller import ACTIVE_DUTY
from moregpu.workloads import KernelSpec
from tests.displays import need
from tests.tray.desktop import Desktop, Tray, compute_processes, desktop, plain_environment, spent, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def attic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackPool]:
    with LoopbackPool(tmp_path_factory.mktemp("attic") / "home") as local:
        local.start_coordinator()
        yield local


@pytest.fixture(scope="module")
def pool(attic: LoopbackPool) -> Iterator[Pool]:
    with attic.connect() as connected:
        yield connected


def invite(pool: Pool) -> str:
    return pool.invite(InviteRequest(owner="eva")).line


@pytest.fixture
def steady(tmp_path: Path) -> Iterator[Desktop]:
    """A desktop whose tray does not step back: other tests load this machine."""
    with desktop(tmp_path, MOREGPU_YIELD="off") as found:
        yield found


def joined(place: Desktop | Tray, pool: Pool) -> subprocess.Popen[str]:
    tray = place.tray if isinstance(place, Desktop) else place
    process = tray.start("join", "--yes", given=invite(pool))
    tray.until(lambda report: report["view"]["status"]["state"] == "online" and report["view"]["status"]["worker"])
    return process


def measured(tray: Tray, pool: Pool) -> None:
    """Wait until the pool gives it work."""
    worker = tray.status()["view"]["status"]["worker"]

    def ready() -> bool:
        return any(
            one.id == worker and one.state == "online" and one.reason != "being measured" for one in pool.workers()
        )

    until(ready)


# ---- a day with it ----


def test_it_joins_computes_pauses_by_a_click_and_tells_what_ran(steady: Desktop, pool: Pool) -> None:
    process = joined(steady, pool)
    panel, tray = steady.panel, steady.tray
    assert panel.property("Id") == "moregpu"
    until(lambda: panel.property("ToolTip")[3].startswith("ready"))
    assert len(panel.property("IconPixmap")) == 4
    until(lambda: any("has joined" in text for _, text in panel.notified))
    measured(tray, pool)

    job = pool.submit_job(KernelSpec(operation="matmul", size=4000, seed=1, name="rays", check="none"))
    until(lambda: tray.status()["view"]["status"]["running"])
    children = compute_processes(process.pid)
    until(lambda: spent(children) > 0.5)

    panel.click("Pause")
    tray.until(lambda report: report["mood"] == "paused" and "owner" in report["line"])
    until(lambda: "Resume" in panel.menu())

    def rests() -> bool:
        before = spent(children)
        time.sleep(0.5)
        return spent(children) == before

    until(rests)
    assert job.status().state == "running", "nothing is lost"

    panel.click("Resume")
    job.result(timeout_s=100)
    report = tray.until(lambda report: any(one["name"] == "rays" for one in report["jobs"]))
    (ran,) = [one for one in report["jobs"] if one["name"] == "rays"]
    assert ran["seconds"] > 0.1
    assert ran["watt_hours"] > 0
    assert ran["submitter"]

    panel.click("Quit")
    assert process.wait(20) == 0
    assert not any(child.is_running() for child in children)


def test_while_it_idles_it_is_one_process_and_keeps_no_memory_of_tasks(steady: Desktop, pool: Pool) -> None:
    settings = steady.tray.home / "config"
    settings.mkdir(mode=0o700, parents=True)
    (settings / "config.toml").write_text("[worker]\nunload_s = 2\n")
    steady.tray.home.chmod(0o700)
    process = psutil.Process(joined(steady, pool).pid)
    measured(steady.tray, pool)

    def idles() -> bool:
        shared = [each.path for each in process.memory_maps() if "memfd:moregpu" in each.path]
        return process.children(recursive=True) == [] and shared == []

    for seed in (1, 2):
        job = pool.submit_job(KernelSpec(operation="matmul", size=1200, seed=seed, check="none"))
        job.result(timeout_s=100)
        until(idles)


def test_input_makes_it_step_back_and_the_reason_is_shown(tmp_path: Path, pool: Pool) -> None:
    with desktop(tmp_path) as place:
        place.tray.start("join", "--yes", given=invite(pool))
        place.tray.until(lambda report: report["view"]["status"]["worker"])
        place.screen.move_mouse()
        report = place.tray.until(
            lambda report: "you are using this machine" in report["line"] or not place.screen.move_mouse()
        )
        report = place.tray.until(lambda report: "you are using this machine" in report["line"])
        assert report["view"]["status"]["duty"] <= ACTIVE_DUTY
        place.screen.hang()
        place.tray.until(lambda report: "cannot tell" in report["line"] or "your programs" in report["line"])
        place.screen.go_on()


def test_a_second_launch_shows_how_the_first_one_stands(steady: Desktop, pool: Pool) -> None:
    joined(steady, pool)
    second = steady.tray.say()
    assert second.returncode == 0
    assert second.stdout.startswith("It runs already.\n")
    assert len(steady.panel.items) == 1
    until(lambda: any(" up to 85%" in text for _, text in steady.panel.notified))


def test_it_comes_back_with_the_coordinator_and_needs_no_invite_again(tmp_path: Path) -> None:
    with LoopbackPool(tmp_path / "pool") as local, desktop(tmp_path / "desk", MOREGPU_YIELD="off") as place:
        local.start_coordinator()
        with local.connect() as own:
            process = joined(place, own)
        local.kill_coordinator()
        place.tray.until(lambda report: report["mood"] == "offline")
        local.start_coordinator()
        place.tray.until(lambda report: report["mood"] == "idle")
        place.tray.say("quit")
        assert process.wait(20) == 0
        place.tray.start()
        place.tray.until(lambda report: report["mood"] == "idle")


def test_killed_it_leaves_no_process_and_no_icon_behind(steady: Desktop, pool: Pool) -> None:
    process = joined(steady, pool)
    children = until(lambda: compute_processes(process.pid))
    process.kill()
    process.wait()
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))
    steady.panel.items.clear()
    steady.tray.start()
    steady.panel.icon()
    assert len(steady.panel.items) == 1


def test_leaving_the_pool_deletes_its_keys(steady: Desktop, pool: Pool) -> None:
    joined(steady, pool)
    state = steady.tray.home / "state" / "worker"
    assert list((state / "secrets").iterdir())
    steady.panel.click(next(label for label in steady.panel.menu() if label.startswith("Leave ")))
    steady.tray.until(lambda report: report["mood"] == "no pool")
    assert not list((state / "secrets").iterdir())
    assert not (state / "enrolment.json").exists()
    assert "Join a pool…" in until(lambda: steady.panel.menu() if "Join a pool…" in steady.panel.menu() else None)


def test_what_the_owner_chose_holds_after_a_restart(steady: Desktop, pool: Pool) -> None:
    process = joined(steady, pool)
    steady.panel.click("50%")
    steady.panel.click("Nights, 22:00 to 07:00")
    steady.tray.until(lambda report: (report["ceiling"], report["schedule"]) == (0.5, "22:00-07:00"))
    until(lambda: "22:00" in (steady.tray.home / "config" / "config.toml").read_text())
    steady.tray.say("quit")
    process.wait(20)
    steady.tray.start()
    report = steady.tray.until(lambda report: report["view"]["status"]["ceiling"] == 0.5)
    assert report["schedule"] == "22:00-07:00"


def test_whose_functions_may_run_is_chosen_by_click_and_command_and_told_to_the_pool(
    steady: Desktop, pool: Pool
) -> None:
    joined(steady, pool)
    tray, panel = steady.tray, steady.panel
    assert tray.status()["functions"] == []
    done = tray.say("allow", "alice, bob")
    assert done.stdout == "Python functions that may run here: alice's and bob's\n"
    tray.until(lambda report: report["functions"] == ["alice", "bob"])

    def told() -> bool:
        """The pool knows; or no sandbox holds here, and the owner is told so."""
        status = tray.status()["view"]["status"]
        known = [worker.consent for worker in pool.workers() if worker.id == status["worker"]]
        return known == [{"function": ["alice", "bob"]}] or status["functions_off"].startswith("functions stay off")

    until(told)
    until(lambda: "bob" in panel.menu())
    panel.click("bob")
    tray.until(lambda report: report["functions"] == ["alice"])
    panel.click("Nobody's")
    tray.until(lambda report: report["functions"] == [])
    assert "functions" not in (tray.home / "config" / "config.toml").read_text()
    assert tray.say("allow", "nobody", "alice").returncode == 2
    assert "functions:    nobody's" in tray.say("status").stdout


# ---- desktops that are not as one wishes ----


def test_a_panel_that_comes_late_or_again_gets_the_icon(tmp_path: Path) -> None:
    with desktop(tmp_path, watching=False) as place:
        place.tray.start()
        place.tray.until(lambda report: report["mood"] == "no pool")
        assert not place.panel.items
        place.panel.appear()
        place.panel.icon()
        place.panel.vanish()
        place.panel.appear()
        place.panel.icon()


def test_a_desktop_without_icons_is_no_reason_to_end(tmp_path: Path) -> None:
    with desktop(tmp_path, watching=False) as place:
        process = place.tray.start()
        place.tray.until(lambda report: report["mood"] == "no pool")
        assert process.poll() is None
        assert place.tray.say("quit").returncode == 0
        assert process.wait(20) == 0


@pytest.mark.parametrize("arguments", [(), ("--headless",)])
def test_without_bus_and_display_it_works_all_the_same(tmp_path: Path, pool: Pool, arguments: tuple[str, ...]) -> None:
    tray = Tray(tmp_path / "tray", {**plain_environment(), "MOREGPU_YIELD": "off"})
    try:
        process = tray.start(*arguments, "join", "--yes", given=invite(pool))
        tray.until(lambda report: report["mood"] in ("idle", "working"))
        assert re.fullmatch(r"paused by the owner until .*\d\d:\d\d\n", tray.say("pause", "--for", "1h").stdout)
        assert tray.say("resume").returncode == 0
        process.terminate()
        assert process.wait(20) == 0
        assert "Traceback" not in tray.output() + tray.log()
    finally:
        tray.end()


def test_a_display_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    tray = Tray(tmp_path / "tray", {**plain_environment(), "DISPLAY": ":4711"})
    try:
        tray.start()
        tray.until(lambda report: report["mood"] == "no pool")
        assert "Traceback" not in tray.output() + tray.log()
    finally:
        tray.end()


# ---- keyrings ----


@contextmanager
def keyring(place: Desktop, *, unlocked: bool) -> Generator[None]:
    """GNOME's keyring on the desktop's bus, with a password of its own."""
    need("gnome-keyring-daemon", "gnome-keyring")
    command = ["gnome-keyring-daemon", "--foreground", "--components=secrets", "--unlock" if unlocked else "--start"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=place.tray.environment,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("a password" if unlocked else "")
    process.stdin.close()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_keys_are_kept_in_the_keyring_and_one_that_is_locked_is_waited_for(steady: Desktop, pool: Pool) -> None:
    tray = steady.tray
    del tray.environment["MOREGPU_SECRETS"]
    home = tray.home.parent / "user"
    (home / ".cache").mkdir(parents=True)
    tray.environment |= {"HOME": str(home)}
    with keyring(steady, unlocked=True):
        process = joined(steady, pool)
        assert tray.status()["view"]["secrets"] == "secrets are in this system's keyring"
        worker = tray.status()["view"]["status"]["worker"]
        assert not (tray.home / "state" / "worker" / "secrets").exists()
        tray.say("quit")
        process.wait(20)
    with keyring(steady, unlocked=False):
        tray.start()
        tray.until(lambda report: report["mood"] == "waiting" and "keyring" in report["line"])
    with keyring(steady, unlocked=True):
        report = tray.until(lambda report: report["view"]["status"]["state"] == "online")
        assert report["view"]["status"]["worker"] == worker, "the same keys, never new ones"


# ---- mistakes ----


@pytest.mark.parametrize("mistake", ["mistyped", "used", "argument", "expired", "of another pool's key"])
def test_an_invite_that_does_not_do_says_why(steady: Desktop, pool: Pool, mistake: str) -> None:
    line = invite(pool)
    tray = steady.tray
    if mistake in ("expired", "of another pool's key"):
        if mistake == "expired":
            line = pool.invite(InviteRequest(owner="eva", expires_s=0.01)).line
        else:  # as one that was changed on its way, or a coordinator in the middle
            line = msgspec.structs.replace(parse_invite(line), cs_pub=PoolKeys.generate().cs_pub).line()
        tray.start("join", "--yes", given=line)
        report = tray.until(lambda report: report["mood"] == "trouble")
        assert ("invite" if mistake == "expired" else "could not prove that it is this pool") in report["line"]
        assert "Traceback" not in tray.output() + tray.log()
        return
    if mistake == "mistyped":
        done = tray.say("join", "--yes", given=line[:-4] + "AAAA")
        assert (done.returncode, done.stdout) == (8, "")
        assert done.stderr.startswith("moregpu-tray: ")
    elif mistake == "argument":
        done = tray.say("join", line)
        assert done.returncode == 8
        assert line not in done.stderr
    else:
        other = Tray(steady.tray.home.parent / "other", {**steady.tray.environment})
        try:
            other.start("join", "--yes", given=line)
            other.until(lambda report: report["view"]["status"]["worker"])
            tray.start("join", "--yes", given=line)
            report = tray.until(lambda report: report["mood"] == "trouble")
            assert "invite" in report["line"]
            until(lambda: any(title == "MoreGPU needs you" for title, _ in steady.panel.notified))
        finally:
            other.end()
    assert "Traceback" not in tray.output()


def test_two_trays_of_one_user_in_one_folder_are_told_apart(steady: Desktop, pool: Pool) -> None:
    joined(steady, pool)
    state = steady.tray.home / "state" / "worker"
    other = Tray(steady.tray.home.parent / "other", {**steady.tray.environment})
    try:
        other.start("--state", str(state))
        report = other.until(lambda report: report["mood"] == "trouble")
        assert "another worker runs" in report["line"]
    finally:
        other.end()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can walk through; pytest's own are closed, and closed again by each run beside us."""
    with tempfile.TemporaryDirectory(prefix="two-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="missing: root, to be two people")
def test_two_people_of_one_machine_each_have_a_tray_of_their_own(open_folder: Path, pool: Pool) -> None:
    nobody = 65534
    home, runtime = open_folder / "theirs", open_folder / "run"
    for folder in (home, home / "tray"):
        folder.mkdir(mode=0o700)
        os.chown(folder, nobody, nobody)
    runtime.mkdir()
    runtime.chmod(0o777)
    shared = {**plain_environment(), "MOREGPU_YIELD": "off", "XDG_RUNTIME_DIR": str(runtime), "HOME": str(home)}
    as_nobody = [need("setpriv", "util-linux"), f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
    theirs = Tray(home / "tray", shared, [*as_nobody, sys.executable, "-m", "moregpu_tray"])
    if subprocess.run([*as_nobody, sys.executable, "-c", "import moregpu_tray"], env=shared, check=False).returncode:
        pytest.skip("missing: an interpreter that another user may run")
    ours = Tray(open_folder / "ours", shared)
    try:
        for tray in (ours, theirs):
            tray.start("join", "--yes", given=invite(pool))
        mine, other = (tray.until(lambda report: report["view"]["status"]["worker"]) for tray in (ours, theirs))
        assert mine["view"]["status"]["worker"] != other["view"]["status"]["worker"]
        assert mine["pid"] != other["pid"]
        assert ours.say("pause").returncode == 0
        assert theirs.status()["mood"] != "paused"
        theirs.environment["MOREGPU_HOME"] = str(ours.home)  # they try the door of ours
        stranger = theirs.say("resume")
        assert stranger.returncode != 0 and "Traceback" not in stranger.stderr
        assert ours.status()["mood"] == "paused"
    finally:
        ours.end()
        theirs.end()
