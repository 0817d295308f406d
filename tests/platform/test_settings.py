"""`config.toml`: what one program writes leaves what others wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moregpu.errors import NotConfigured
from moregpu.platform import paths
from moregpu.platform.private import write_private
from moregpu.platform.settings import read_section, write_section


def write(text: str) -> None:
    write_private(paths.config_file(), text.encode())


def test_no_file_is_no_settings(home: Path) -> None:
    assert read_section("worker") == {}


def test_a_section_is_replaced_and_the_rest_stays_to_the_letter(home: Path) -> None:
    write('# mine\n[pool]\nport = 1  # why\n\n[worker]\nceiling = 0.5\nold = "x"\n\n[console]\ntheme = "dark"\n')
    write_section("worker", {"ceiling": 0.25, "paused": True, "kinds": ["kernel"]})
    text = paths.config_file().read_text()
    assert text == (
        '# mine\n[pool]\nport = 1  # why\n\n[worker]\nceiling = 0.25\npaused = true\nkinds = ["kernel"]\n\n'
        '[console]\ntheme = "dark"\n'
    )
    assert read_section("worker") == {"ceiling": 0.25, "paused": True, "kinds": ["kernel"]}


def test_a_new_section_comes_last(home: Path) -> None:
    write("[pool]\nport = 1\n")
    write_section("worker", {"name": "anna"})
    assert tomllib.loads(paths.config_file().read_text()) == {"pool": {"port": 1}, "worker": {"name": "anna"}}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(text=st.text(st.characters(exclude_categories=["Cs"])), number=st.floats(0, 1), flag=st.booleans())
def test_whatever_is_written_is_read_again(home: Path, text: str, number: float, flag: bool) -> None:
    write_section("worker", {"text": text, "number": number, "flag": flag})
    assert read_section("worker") == {"text": text, "number": number, "flag": flag}


@pytest.mark.parametrize("text", ["[worker\n", "worker = 1\n", "\x00"])
def test_a_file_that_is_no_toml_is_named_and_not_overwritten(home: Path, text: str) -> None:
    write(text)
    with pytest.raises(NotConfigured, match=r"config\.toml"):
        write_section("worker", {"ceiling": 0.5})
    assert paths.config_file().read_text() == text
