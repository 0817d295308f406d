"""The command line: quick to start, one line for a mistake, an exit status that tells."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from moregpu.cli.main import COMMANDS, of_this_machine


def moregpu(*arguments: str, home: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moregpu", *arguments],
        input=given,
        env=os.environ | {"MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_every_command(home: Path) -> None:
    shown = moregpu("--help", home=home)
    assert shown.returncode == 0
    for name, command in COMMANDS.items():
        assert name in shown.stdout
        assert command.help.split()[0] in shown.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(home: Path, name: str) -> None:
    shown = moregpu(name, "--help", home=home)
    assert shown.returncode == 0, shown.stderr
    assert "Usage: moregpu" in shown.stdout
    if name not in ("token", "worker", "group", "pool", "config", "kernel"):
        assert "--json" in shown.stdout


def test_a_mistyped_command_suggests_the_right_one(home: Path) -> None:
    shown = moregpu("wrokers", home=home)
    assert shown.returncode == 2
    assert "workers" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    "arguments", [["workers"], ["jobs"], ["job", "j-01"], ["cancel", "j-01"], ["invite"], ["audit"]]
)
def test_without_a_pool_each_command_says_how_to_start_one(home: Path, arguments: list[str]) -> None:
    shown = moregpu(*arguments, home=home)
    assert shown.returncode == 2
    assert "moregpu serve" in shown.stderr
    assert len(shown.stderr.splitlines()) == 2
    assert shown.stdout == ""


def test_an_error_is_one_json_object_where_json_was_asked_for(home: Path) -> None:
    shown = moregpu("workers", "--json", home=home)
    assert shown.returncode == 2
    assert json.loads(shown.stdout)["error"]["type"] == "not-configured"
    assert shown.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["token", "create", "--expires", "nan"],
        ["token", "create", "--local", "--expires", "NaN"],
        ["top", "--every", "nan", "--once"],
        ["top", "--every", "inf", "--once"],
        ["join", "--hang", "nan"],
    ],
)
def test_what_is_no_number_is_refused_and_not_heard_as_nothing(home: Path, arguments: list[str]) -> None:
    shown = moregpu(*arguments, home=home)
    assert shown.returncode == 2
    assert "Invalid value" in shown.stderr and "Traceback" not in shown.stderr


def test_submit_wants_files_or_a_size(home: Path) -> None:
    for arguments in (["matmul"], ["matmul", "a.npy", "--size", "4"], ["relu", "-o", "x.npy", "--size", "4"]):
        shown = moregpu("submit", *arguments, home=home)
        assert shown.returncode == 2
        assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["script", "a.py", "--after", "j-1"],
        ["script", "a.py", "--retries", "0"],
        ["script", "a.py", "--keep", "9"],
        ["script", "a.py", "-o", "b.npy"],
        ["script", "a.py", "b.py"],
        ["relu", "a.npy", "--requires", "numpy"],
        ["relu", "--size", "4", "--payloads", "[1]"],
        ["relu", "a.npy", "--scalar", "3"],
    ],
)
def test_what_would_not_be_heeded_is_refused(home: Path, tmp_path: Path, arguments: list[str]) -> None:
    np.save(tmp_path / "a.npy", np.ones(2, np.float32))
    (tmp_path / "a.py").write_text("result = 1")
    shown = moregpu("submit", *(str(tmp_path / one) if one[:2] == "a." else one for one in arguments), home=home)
    assert shown.returncode == 2
    assert "means nothing" in shown.stderr


def test_standard_output_takes_an_array_or_json_and_not_both(home: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(2, np.float32))
    shown = moregpu("submit", "relu", str(tmp_path / "a.npy"), "-o", "-", "--json", home=home)
    assert shown.returncode == 2
    assert "standard output" in json.loads(shown.stdout)["error"]["detail"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "--limit", "0"],
        ["jobs", "--nonsense"],
        ["job"],
        ["wrokers"],
        ["completion", "cmd"],
        ["pool", "rotate", "x"],
    ],
)
def test_what_was_typed_wrong_is_one_json_object_too(home: Path, arguments: list[str]) -> None:
    shown = moregpu(*arguments, "--json", home=home)
    assert shown.returncode == 2
    assert json.loads(shown.stdout)["error"]["type"] == "invalid-request"
    assert shown.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="where /dev/full is")
@pytest.mark.parametrize("arguments", [["version"], ["config", "show"], ["config", "show", "--json"], ["--help"]])
def test_a_full_disk_under_standard_output_is_one_line(home: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "moregpu", *arguments],
            env=os.environ | {"MOREGPU_HOME": str(home)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 9
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


_AND_LOOK = """
import sys
from moregpu.__main__ import main
try:
    main()
finally:
    sys.stdout.isatty()
"""
"""Runs the command and asks of standard output what a table asks."""


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes it")
@pytest.mark.parametrize("arguments", ["config show", "jobs", "version"])
def test_without_standard_output_a_command_does_what_it_does(home: Path, arguments: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec \"$0\" -c '{_AND_LOOK}' {arguments} >&-", sys.executable],
        env=os.environ | {"MOREGPU_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == (2 if arguments == "jobs" else 0)  # there is no pool
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_a_command_is_loaded_is_no_traceback(home: Path, tmp_path: Path) -> None:
    """What interrupts the first import stands for a finger that is quick."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-c",
         "import sys; sys.path[:0] = [sys.argv.pop(1)]; from moregpu.__main__ import main; main()",
         str(tmp_path), "version"],
        env=os.environ | {"MOREGPU_HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.slow
def test_files_that_are_no_arrays_are_refused_before_anything_is_sent(home: Path, tmp_path: Path) -> None:
    """A pickle inside an .npy is code: it is refused, not run."""
    np.save(tmp_path / "pickle.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "several.npy.npz", a=np.ones(2), b=np.ones(2))
    (tmp_path / "text.npy").write_text("not an array")
    (tmp_path / "short.npy").write_bytes((tmp_path / "pickle.npy").read_bytes()[:20])
    for name in ("pickle.npy", "several.npy.npz", "text.npy", "short.npy", "absent.npy", "."):
        shown = moregpu("submit", "relu", str(tmp_path / name), home=home)
        assert shown.returncode == 2, name
        assert "Traceback" not in shown.stderr
        assert len(shown.stderr.splitlines()) <= 2, shown.stderr


def test_an_unknown_kernel_is_refused_with_the_list_of_those_that_exist(home: Path) -> None:
    shown = moregpu("submit", "matmull", "--size", "4", home=home)
    assert shown.returncode == 2
    assert "matmul" in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "0"], ["join"], ["leave", "--yes"], ["config", "set", "worker.ceiling", "0.5"],
        ["config", "show"], ["workers"], ["login", "--forget"], ["setup"], ["token", "create", "--local"],
    ],
)  # fmt: skip
def test_a_home_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, arguments: list[str]) -> None:
    """Where home is another user's or read-only, each of them was a traceback."""
    home = tmp_path / "home"
    home.write_text("no folder")
    shown = moregpu(*arguments, home=home)
    assert shown.returncode == 9, shown.stderr
    assert "Traceback" not in shown.stderr
    assert f"{home}" in shown.stderr
    assert "→" in shown.stderr


@pytest.mark.parametrize(
    "arguments", [["join", "--invite-file"], ["pool", "restore", "file", "--passphrase-file"]], ids=["join", "restore"]
)
def test_a_folder_in_the_place_of_a_secrets_file_is_no_traceback(
    home: Path, tmp_path: Path, arguments: list[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    shown = moregpu(*arguments, str(folder), "--json", home=home)
    assert shown.returncode == 9
    assert str(folder) in json.loads(shown.stdout)["error"]["detail"]
    assert "Traceback" not in shown.stderr


def test_places_that_may_not_be_used_are_told_and_mistakes_of_ours_are_not() -> None:
    for number in (errno.EACCES, errno.EPERM, errno.EROFS):
        told = of_this_machine(OSError(number, os.strerror(number), "/there"))
        assert told is not None
        assert told.detail == f"/there cannot be used: {os.strerror(number)}"
    assert of_this_machine(ConnectionRefusedError(errno.ECONNREFUSED, "refused")) is None
    assert of_this_machine(FileNotFoundError(errno.ENOENT, "no such file", "/there")) is None
