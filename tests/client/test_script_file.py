"""A file's script, or one function of it, with the JSON of its arguments: what runs there, and what is refused here."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moregpu.client.functions.options import THIS_PYTHON
from moregpu.client.functions.script_file import completed, read_payloads, read_script
from moregpu.encoding import encode, joined
from moregpu.errors import InvalidRequest
from moregpu.worker.functions.programs import load
from moregpu.workloads.function.plan import refuse_invalid
from moregpu.workloads.function.spec import FunctionSpec

TEXT = '''\
# /// script
# requires-python = "~=3.13"
# dependencies = ["numpy"]
# ///
from __future__ import annotations

LOADED = True


def train(rate=0.5, layers=1):
    """Says what it was called with."""
    return [rate, layers, LOADED]


async def later(value):
    return value
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.py"
    path.write_text(TEXT)
    return path


def there(place: str) -> Callable[[Any], Any]:
    """What a worker's child does with the script, for one payload."""
    program = load("script", memoryview(read_script(place).text.encode()))
    return lambda payload: program.call(memoryview(joined(encode(payload))), {})


MAIN = '''\
"""Zoë's."""
ran = []
def main(): ran.append("main")
def step(): return [*ran, main.__code__.co_firstlineno]
if __name__ == "__main__": main()
if ("__main__" == __name__) :
    main()
else:
    ran.append("else")
'''


def test_what_a_file_does_when_it_is_started_is_not_done_for_a_call_of_one_function(tmp_path: Path) -> None:
    path = tmp_path / "sweep.py"
    path.write_text(MAIN, encoding="utf-8")
    assert there(f"{path}:step")(None) == ["else", 3]
    path.write_text(MAIN + "result = ran", encoding="utf-8")
    assert there(str(path))(None) == ["main", "main"], "the whole file is started itself"


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfdef name(): return 'Zo\xc3\xab'\r\n",
        b"# -*- coding: latin-1 -*-\ndef name(): return 'Zo\xeb'\n",
    ],
    ids=["with a mark in front", "in another encoding"],
)
def test_a_file_is_read_as_python_reads_it(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sweep.py"
    path.write_bytes(content)
    assert there(f"{path}:name")(None) == "Zoë"
    path.write_bytes(content + b"result = name()\n")
    assert there(str(path))(None) == "Zoë"


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ({"rate": 0.1, "layers": 3}, [0.1, 3, True]),
        ([0.2, 2], [0.2, 2, True]),
        (0.3, [0.3, 1, True]),
        (None, [0.5, 1, True]),
        ([], [0.5, 1, True]),
    ],
)
def test_a_function_of_a_file_gets_a_mapping_by_name_a_list_in_order_and_anything_else_alone(
    file: Path, payload: Any, result: Any
) -> None:
    assert there(f"{file}:train")(payload) == result


def test_a_coroutine_function_is_waited_for(file: Path) -> None:
    assert there(f"{file}:later")(7) == 7


def test_a_whole_script_finds_its_payload_and_leaves_its_result(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text("result = payload * 2\n")
    assert there(str(tmp_path / "double.py"))(21) == 42
    assert read_script(str(tmp_path / "double.py")).name == "double.py"


def test_a_module_is_its_file_under_the_present_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent.parent)
    script = read_script(f"{file.parent.name}.sweep:train")
    assert script.name == "sweep.py:train"


def test_nothing_of_a_file_runs_here(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('it ran')\n\ndef f(): pass\n")
    assert read_script(f"{tmp_path / 'trap.py'}:f").text.startswith("raise SystemExit")


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (TEXT, "a.py:trian", "defines no function 'trian'"),
        (TEXT, "b.py:train", "cannot be read"),
        ("def f(:\n", "a.py:f", "is no Python"),
        ("payload = 1\ndef f(): pass\n", "a.py:f", "a `payload` of its own"),
        ("x" * (1 << 20) + "y", "a.py", "a script may have"),
        (b"\xff\xfe", "a.py", "is no text"),
    ],
)
def test_what_cannot_run_is_refused_before_it_is_sent(tmp_path: Path, text: str | bytes, place: str, said: str) -> None:
    (tmp_path / "a.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidRequest, match=said):
        read_script(str(tmp_path / place))


def test_each_item_of_a_list_is_a_call(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text("[1, 2, 3]")
    assert read_payloads(str(tmp_path / "all.json")) == [1, 2, 3]
    assert read_payloads('[{"rate": 1}, null]') == [{"rate": 1}, None]
    assert read_payloads('{"rate": 1}') == [{"rate": 1}]
    assert read_payloads("") == read_payloads(None) == [None]


@pytest.mark.parametrize("given", ["[1, 2", "[]", "nowhere.json", "train.py", "[" * 100_000])
def test_arguments_that_are_none_say_what_they_should_be(given: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_payloads(given)
    assert "JSON" in refused.value.hint


def test_a_header_has_its_say_where_nothing_was_given(file: Path) -> None:
    draft = FunctionSpec(calls=(), inputs={}, requires=("scipy",), python="3.12", priority=3)
    made = completed(draft, f"{file}:train", "[1, 2, 3]", frozenset({"requires"}))
    refuse_invalid(made)
    assert (len(made.calls), made.priority, made.form) == (3, 3, "script")
    assert (made.requires, made.python) == (("scipy",), "3.13")
    assert made.name == made.function == "sweep.py:train"
    assert completed(draft, f"{file}:train", "", frozenset({"python"})).python == "3.12"
    (file.parent / "bare.py").write_text("result = 1\n")
    assert completed(draft, str(file.parent / "bare.py"), "", frozenset()).python == THIS_PYTHON


def test_arguments_are_utf_8_whatever_this_system_writes_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "payloads.json"
    path.write_bytes(codecs.BOM_UTF8 + '["clé"]'.encode())
    assert read_payloads(str(path)) == ["clé"]
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = (
        "from moregpu.client.functions.script_file import read_payloads; import sys; "
        "print(ascii(read_payloads(sys.argv[1])))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(path)], env={**os.environ, **plain}, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "['cl\\xe9']\n"
