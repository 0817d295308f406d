"""Places and profiles."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moregpu.errors import InvalidRequest, NotConfigured, StateRefused
from moregpu.platform import paths
from moregpu.platform.paths import Profile, delete_profile, load_profile, profile_names, profile_path, save_profile


def test_moregpu_home_moves_everything(home: Path) -> None:
    places = [
        paths.config_folder(), paths.config_file(), paths.state_folder("pool"), paths.secrets_folder(),
        paths.log_folder(), profile_path("local"),
    ]  # fmt: skip
    assert all(place.is_relative_to(home) for place in places)
    assert len(set(places)) == len(places)


def test_without_it_places_are_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOREGPU_HOME", raising=False)
    assert paths.home() is None
    assert "moregpu" in str(paths.state_folder("pool"))


def test_asking_for_a_place_makes_nothing(home: Path) -> None:
    paths.state_folder("pool")
    load_profile("local")
    assert list(home.iterdir()) == []


def test_a_profile_comes_back_as_it_was_saved(home: Path) -> None:
    profile = Profile(url="https://127.0.0.1:8787", pin="ab" * 32, token_ref="profile/local", pool_name='Büro "1"\\')
    path = save_profile("local", profile)
    assert load_profile("local") == profile
    assert profile_names() == ["local"]
    assert delete_profile("local")
    assert load_profile("local") is None
    assert not path.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(text=st.text(st.characters(exclude_categories=["Cs"])).filter(bool))
def test_any_text_survives_a_profile(home: Path, text: str) -> None:
    save_profile("any", Profile(url="https://h:1", pool_name=text))
    loaded = load_profile("any")
    assert loaded is not None
    assert loaded.pool_name == text


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_a_profile_is_for_its_owner_alone_and_refused_when_loosened(home: Path) -> None:
    path = save_profile("local", Profile(url="https://h:1"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(StateRefused, match="chmod 600"):
        load_profile("local")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 65, "ü"])
def test_a_profiles_name_is_no_path(home: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        profile_path(name)


@pytest.mark.parametrize("content", [b"url = ", b"nothing = 1", b"url = 3", b"\xff\xfe", b"url='x'\nextra='y'"])
def test_a_damaged_profile_says_which_file(home: Path, content: bytes) -> None:
    path = save_profile("local", Profile(url="https://h:1"))
    path.write_bytes(content)
    with pytest.raises(NotConfigured, match=r"local\.toml"):
        load_profile("local")
