"""`moregpu-tray`: lends this machine to a pool, from the system tray."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from moregpu.errors import MoreGPUError

NAME = "tray"
"""Of the single instance."""

START_IT = "Start it: moregpu-tray (without a screen: moregpu-tray --headless)"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; no error shows a traceback: a defect's goes to the log."""
    given = _parser().parse_args(arguments)
    try:
        status = given.run(given)
    except MoreGPUError as error:
        sys.stderr.write(f"moregpu-tray: {_clean(error.detail)}\n")
        if error.hint:
            sys.stderr.write(f"  → {_clean(error.hint)}\n")
        status = error.exit_code
    except (KeyboardInterrupt, BrokenPipeError):
        status = 130
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"moregpu-tray: {_clean(f'{error.strerror or error}{where}')}\n")
        status = 1
    except Exception:  # noqa: BLE001 — a defect
        status = _defect()
    _leave(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="moregpu-tray", description="Lends this machine's idle time to a pool, and steps back when you use it."
    )
    parser.add_argument("--headless", action="store_true", help="no icon: for machines without a screen")
    parser.add_argument("--state", default="", help="state folder, one for each worker on this machine")
    parser.add_argument("--no-yield", action="store_true", help="keep to ceiling and schedule alone; nobody sits here")
    parser.add_argument("--version", action="store_true", help="say the version and end")
    parser.set_defaults(run=_run)
    commands = parser.add_subparsers(metavar="COMMAND")

    join = commands.add_parser("join", help="join a pool; the invite is asked for, or read from standard input")
    join.add_argument("given", nargs="?", default="", help=argparse.SUPPRESS)
    join.add_argument("--invite-file", default="", help="file (0600) that holds the invite")
    join.add_argument("--yes", "-y", action="store_true", help="join without asking once more")
    join.add_argument("--exit", action="store_true", help="only note the invite; the tray is started later")
    join.set_defaults(run=_join)

    status = commands.add_parser("status", help="how it stands, and what ran here")
    status.add_argument("--json", action="store_true", help="one object, for programs")
    status.set_defaults(run=_status)

    pause = commands.add_parser("pause", help="compute nothing until resumed")
    pause.add_argument("--for", dest="for_s", type=_seconds, default=None, metavar="TIME", help="30min, 1h, 90s")
    pause.set_defaults(run=_pause)
    for name, what in (("resume", "go on"), ("leave", "leave the pool: nothing of it stays here"), ("quit", "end it")):
        commands.add_parser(name, help=what).set_defaults(run=_order, order=name)

    allow = commands.add_parser("allow", help="whose Python functions may run here: nobody, everybody, or names")
    allow.add_argument("who", nargs="+", metavar="WHO", help="nobody, everybody, or names as the pool knows them")
    allow.set_defaults(run=_allow)

    start = commands.add_parser("autostart", help="start at login: on, off, or as a service without a desktop")
    start.add_argument("what", choices=("on", "off", "service", "show"))
    start.set_defaults(run=_autostart)

    record = commands.add_parser("record-load", help="record input and load (no names), to tune the throttle with")
    record.add_argument("--seconds", type=float, default=600.0)
    record.add_argument("--group", default="", help="only what one control group uses: /sys/fs/cgroup/user.slice")
    record.add_argument("file", help="where to write it")
    record.set_defaults(run=_record)
    return parser


# ---- commands --------------------------------------------------------------------------------------------------------


def _run(given: argparse.Namespace) -> int:
    """Be the tray, or show how the one that runs stands."""
    if given.version:
        from moregpu.worker.devices import version

        _say(f"moregpu-tray {version()}")
        return 0
    import threading

    from moregpu.platform.instance import Instance

    instance = Instance.claim(NAME)
    if instance is None:
        return _show_the_other()
    from moregpu.platform.memory import one_arena

    one_arena()
    from moregpu.platform import logs, paths
    from moregpu.worker.home import worker_folder
    from moregpu_tray.app import App
    from moregpu_tray.icon.choose import choose

    config = _config(given)
    log = paths.log_folder() / "tray.log"
    logs.set_up(path=log)
    threading.excepthook = logs.thread_ended
    backend = choose(headless=given.headless)
    app = App(config, worker_folder(config.state), backend, instance, log)
    if sys.stdout is not None and sys.stdout.isatty():
        _say("moregpu-tray runs. How it stands: moregpu-tray status. To end it: Ctrl-C, or Quit in its menu.")
        if backend.name == "none" and not given.headless:
            _say("This desktop shows no icons; use moregpu-tray join, status, pause, resume, quit.")
    app.run()
    return 0


def _defect() -> int:
    """Log the error in hand, and say where."""
    import logging

    from moregpu.platform import logs, paths

    log = paths.log_folder() / "tray.log"
    try:
        if not logging.getLogger().handlers:
            logs.set_up(path=log)
        logging.getLogger(__name__).exception("the tray ended")
    except (MoreGPUError, OSError):
        pass  # then nobody can read it anyway
    sys.stderr.write(f"moregpu-tray: an error of its own; details are in {log}\n")
    return 1


def _show_the_other() -> int:
    from moregpu.platform.instance import ask

    report = ask(NAME, {"do": "show"})
    if report is None:
        sys.stderr.write("moregpu-tray: it runs already, but does not answer; see its log\n")
        return 1
    _say("It runs already.")
    _print(report)
    return 0


def _join(given: argparse.Namespace) -> int:
    import textwrap
    from pathlib import Path

    from moregpu.errors import InviteRefused, NotConfigured
    from moregpu.platform.instance import ask
    from moregpu.wire.invite import lacks_its_end, parse_invite
    from moregpu.worker.enrol import enrol, find_invite, refuse_argument
    from moregpu.worker.home import worker_folder
    from moregpu_tray.first_run import promise

    refuse_argument(given.given)
    config = _config(given)
    invite = find_invite(Path(given.invite_file) if given.invite_file else None)
    typed = sys.stdin if sys.stdin is not None and sys.stdin.isatty() else None
    if invite is None and typed is not None:
        from moregpu.platform.asking import ask_for_line

        invite = parse_invite(ask_for_line("Invite (one line, from `moregpu invite`)", lacks_its_end))
    if invite is None:
        raise NotConfigured("no invite was given", "paste it when asked, or pipe it in: moregpu-tray join < invite.txt")
    for line in promise(invite, config.ceiling, config.schedule, config.functions).split("\n"):
        _say(textwrap.fill(line, 100, subsequent_indent="  "))
    if typed is not None and not given.yes:
        sys.stdout.write("Join this pool? [Y/n] ")
        sys.stdout.flush()
        if typed.readline().strip().lower() not in ("", "y", "yes"):
            raise InviteRefused("this machine did not join", "run `moregpu-tray join` again when you want to")
    report = ask(NAME, {"do": "join", "invite": invite.line()}, 15.0)
    if report is not None:
        return _answered(report)
    enrol(worker_folder(config.state), invite)
    return 0 if given.exit else _run(given)


def _status(given: argparse.Namespace) -> int:
    from moregpu.platform.instance import ask

    report = ask(NAME, {"do": "status"})
    if given.json:
        import msgspec

        _say(msgspec.json.encode(report if report is not None else {"mood": "not running"}).decode())
    elif report is not None:
        _print(report)
    else:
        _say(f"moregpu-tray does not run. {START_IT}")
    return 0 if report is not None else 1


def _pause(given: argparse.Namespace) -> int:
    return _ordered({"do": "pause", "for_s": given.for_s})


def _order(given: argparse.Namespace) -> int:
    if given.order == "leave":
        from moregpu.platform.instance import ask

        report = ask(NAME, {"do": "leave"}, 15.0)
        if report is None:
            return _leave_pool(given)
        return _answered(report)
    ends = given.order == "quit"  # the state that it is in is no answer then
    return _ordered({"do": given.order}, "it ends; what is under way goes back to the pool" if ends else "")


def _allow(given: argparse.Namespace) -> int:
    import msgspec

    from moregpu.platform.instance import ask
    from moregpu_tray.chosen import save
    from moregpu_tray.consent import names_of, told

    whose = names_of(given.who)
    report = ask(NAME, {"do": "allow", "functions": whose or ["nobody"]})
    if report is not None and "error" in report:
        return _answered(report)
    if report is None:  # it does not run: it reads this when it starts
        save(msgspec.structs.replace(_config(given), functions=whose))
    _say(f"Python functions that may run here: {told(whose)}")
    return 0


def _leave_pool(given: argparse.Namespace) -> int:
    from moregpu.worker.home import WorkerHome, worker_folder

    home = WorkerHome.existing(worker_folder(given.state))
    try:
        home.leave()
    finally:
        home.close()
    _say("This machine belongs to no pool any more; its keys are deleted.")
    return 0


def _autostart(given: argparse.Namespace) -> int:
    from moregpu.platform import autostart, services

    if given.what == "on":
        autostart.enable()
    elif given.what == "off":
        autostart.disable()
        services.disable()
    elif given.what == "service":
        said = services.enable()
        if said:
            _say(said)
    if autostart.is_enabled():
        _say("it starts at login")
    elif services.is_enabled():
        _say("it starts as a service, without an icon")
    else:
        _say("it starts when you start it")
    return 0


def _record(given: argparse.Namespace) -> int:
    from pathlib import Path

    import msgspec
    import psutil

    from moregpu.worker.devices import system_text
    from moregpu.worker.probes.record import record

    _say(f"recording input and load for {given.seconds:.0f} s; pause the worker meanwhile")
    group = Path(given.group) if given.group else None
    recording = record(given.seconds, system_text(), psutil.cpu_count() or 1, group=group)
    Path(given.file).write_bytes(msgspec.json.encode(recording))
    _say(f"{len(recording.samples)} samples are in {given.file}")
    return 0


# ---- between them ----------------------------------------------------------------------------------------------------


def _config(given: argparse.Namespace) -> Any:
    """Settings of `[worker]`, and of the command line before them. Raises `InvalidRequest`, `NotConfigured`."""
    from moregpu.platform.settings import read_section
    from moregpu.worker.config import WorkerConfig

    fields = read_section("worker")
    if given.state:
        fields["state"] = given.state
    if given.no_yield:
        fields["yields"] = False
    return WorkerConfig.checked(**fields)


def _ordered(request: dict[str, Any], said: str = "") -> int:
    """Have the tray that runs do something; say its answer, or `said` where it did."""
    from moregpu.platform.instance import ask

    report = ask(NAME, request)
    if report is None:
        sys.stderr.write(f"moregpu-tray: it does not run. {START_IT}\n")
        return 1
    return _answered({**report, "line": said} if said else report)


def _answered(report: dict[str, Any]) -> int:
    if "error" in report:
        sys.stderr.write(f"moregpu-tray: {_clean(str(report['error']))}\n")
        return int(report.get("status", 1))
    _say(_clean(str(report["line"])))
    return 0


def _print(report: dict[str, Any]) -> None:
    from moregpu_tray.report import lines

    for line in lines(report):
        _say(line)


def _seconds(text: str) -> float:
    units = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
    number = text.rstrip("smindh")
    try:
        seconds = float(number) * units[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 30min, 1h, 90s") from None
    if not 0.0 < seconds <= 365 * 86_400.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time to pause for")
    return seconds


def _clean(text: str) -> str:
    from moregpu.wire.text import clean

    return clean(text, 1000)


def _say(text: str) -> None:
    if sys.stdout is not None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _leave(status: int) -> None:
    """End without waiting for threads that hang in a probe or a transfer; everything that matters is closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                pass
    os._exit(status)


if __name__ == "__main__":
    main()
