"""The command line of the console. Textual is imported only when a screen will be drawn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

import msgspec

from moregpu.errors import InvalidRequest, MissingExtra, MoreGPUError
from moregpu_tui.leaving import leave
from moregpu_tui.options import Options

_DESCRIPTION = "The admin console of a MoreGPU pool: start it, invite machines, watch, submit, throttle, revoke."
_EPILOG = """Without options it connects to the pool of this machine (the profile `local`), or asks what to do.
A token never goes on the command line: it comes from MOREGPU_ADMIN_TOKEN or a profile, or is asked for where no pool
is known."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run it; the exit status says how it ended."""
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        status = _run(options)
    except MoreGPUError as error:
        from moregpu.wire.text import clean

        sys.stderr.write(f"moregpu-tui: {clean(error.detail, 1000)}\n")
        if error.hint:
            sys.stderr.write(f"  → {clean(error.hint, 1000)}\n")
        sys.exit(error.exit_code)
    sys.exit(status)


def parse(arguments: Sequence[str]) -> Options:
    """Flags as data."""
    parser = argparse.ArgumentParser(
        prog="moregpu-tui",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--demo", action="store_true", help="look at a simulated pool")
    parser.add_argument("--demo-workers", type=int, default=14, metavar="N", help="workers of the simulated pool")
    parser.add_argument(
        "--demo-churn", type=float, default=0.0, metavar="SHARE", help="share of them that changes five times a second"
    )
    parser.add_argument("--connect", default="", metavar="URL", help="the pool at this address")
    parser.add_argument("--profile", default="", metavar="NAME", help="the pool of a saved profile")
    parser.add_argument("--readonly", action="store_true", help="no key changes anything")
    parser.add_argument("--ascii", action="store_true", help="signs of ASCII only")
    parser.add_argument("--plain", action="store_true", help="lines instead of a screen, for screen readers and logs")
    parser.add_argument("--no-mouse", dest="mouse", action="store_false", help="leave the mouse to the terminal")
    parser.add_argument("--record", default="", metavar="FILE", help="write what comes, to be played again")
    parser.add_argument("--replay", default="", metavar="FILE", help="play a recording")
    parser.add_argument("--web", action="store_true", help="in a browser of this machine instead of this terminal")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="of --web; a free one without it")
    parser.add_argument("--no-open", dest="open", action="store_false", help="--web only says where it is")
    return msgspec.convert(vars(parser.parse_args(arguments)), Options)


def _run(options: Options) -> int:
    if options.demo and (options.connect or options.profile or options.replay):
        raise InvalidRequest("--demo is a pool of its own", "leave out --connect, --profile and --replay")
    if options.web:
        return _serve(options)
    if options.port or not options.open:
        raise InvalidRequest("--port and --no-open belong to --web", "leave them out, or add it")
    if options.plain:
        from moregpu_tui.plain import run_plain

        return run_plain(options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest("this is no terminal", "moregpu-tui --plain prints lines; moregpu has --json everywhere")
    try:
        from moregpu_tui.app import run_console
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise MissingExtra("the console needs Textual", "pip install 'moregpu[tui]'") from error
    return leave(run_console(options))


def _serve(options: Options) -> int:
    if options.plain or options.record:
        given = "--plain" if options.plain else "--record"
        raise InvalidRequest(
            f"--web runs a console for each tab, and {given} is for one in a terminal", f"leave out --web or {given}"
        )
    if not 0 <= options.port <= 65_535:
        raise InvalidRequest(f"there is no port {options.port}", "one of 1024 to 65535, or leave out --port")
    if sys.platform == "win32":
        raise InvalidRequest(
            "--web needs pseudo-terminals, which Python does not have on Windows",
            "run moregpu-tui in Windows Terminal, or --web in WSL",
        )
    if find_spec("textual") is None:
        raise MissingExtra("the console needs Textual", "pip install 'moregpu[tui]'")
    from moregpu_tui.web.serve import run_web

    return run_web(options)
