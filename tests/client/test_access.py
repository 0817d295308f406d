"""Which pool, and as whom: arguments, then the environment, then a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from moregpu.client.access import Access, address_of, find_access
from moregpu.errors import InvalidRequest, MoreGPUError, NotConfigured, StateRefused, Unauthorized
from moregpu.platform.paths import Profile, profile_path, save_profile
from moregpu.wire.invite import ClientLine

PIN = bytes(range(32))
TOKEN = "mgt_abcdefgh_" + "x" * 43
OTHER = "mgt_ijklmnop_" + "y" * 43


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://pool.example:8787", "pool.example:8787"),
        ("https://pool.example", "pool.example:443"),
        ("wss://pool.example:1/v1/worker", "pool.example:1"),
        ("http://127.0.0.1:8787", "127.0.0.1:8787"),
        ("pool.example", "pool.example:8787"),
        ("pool.example:99", "pool.example:99"),
        ("https://[::1]:8787", "[::1]:8787"),
        ("  https://pool.example:8787/ ", "pool.example:8787"),
    ],
)
def test_every_way_to_write_an_address_is_understood(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "https://",
        "https://host:99999",
        "",
        "https://host:port",
        "https://[::1:1",
        "https://a host",
        "https://müller:1",
        "\0",
        "https://host:0",
    ],
)
def test_what_is_no_address_is_refused_and_says_what_was_expected(url: str) -> None:
    with pytest.raises(InvalidRequest, match="expected https://host:port"):
        address_of(url)


def test_a_secret_inside_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as refused:
        address_of(f"https://admin:{TOKEN}@pool.example:8787")
    assert TOKEN not in str(refused.value)


def test_arguments_win_over_the_environment_and_that_over_profiles(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_profile("local", Profile(url="https://127.0.0.1:1", token=OTHER))
    assert find_access().addresses == ("127.0.0.1:1",)
    monkeypatch.setenv("MOREGPU_URL", "https://environment:2")
    monkeypatch.setenv("MOREGPU_ADMIN_TOKEN", TOKEN)
    assert find_access().addresses == ("environment:2",)
    assert find_access("https://argument:3").addresses == ("argument:3",)
    assert find_access(profile="local").addresses == ("127.0.0.1:1",)


@pytest.mark.parametrize("around", ['"{}"', "'{}'", "{}\r\n", "“{}”", "\ufeff{}"])
def test_quotes_that_a_file_of_variables_left_are_no_part_of_a_token(
    home: Path, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    """`docker run --env-file` hands them on, where a shell and systemd take them off."""
    monkeypatch.setenv(
        "MOREGPU_ADMIN_TOKEN", around.format(ClientLine(addresses=("pool:1",), pin=PIN, token=TOKEN).line())
    )
    assert find_access() == Access(addresses=("pool:1",), token=TOKEN, pin=PIN)
    monkeypatch.setenv("MOREGPU_ADMIN_TOKEN", around.format(TOKEN))
    monkeypatch.setenv("MOREGPU_URL", "https://pool:2")
    assert find_access().token == TOKEN


@pytest.mark.parametrize("variable", ["MOREGPU_URL", "MOREGPU_BASE", "MOREGPU_SERVER"])
def test_all_three_names_of_the_url_are_read(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "wss://pool:2")
    assert find_access(token=TOKEN) == Access(addresses=("pool:2",), token=TOKEN)


def test_a_client_line_says_everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ClientLine(addresses=("a:1", "b:2"), pin=PIN, token=TOKEN).line()
    monkeypatch.setenv("MOREGPU_ADMIN_TOKEN", line)
    assert find_access() == Access(addresses=("a:1", "b:2"), pin=PIN, token=TOKEN)


def test_a_profile_gives_url_pin_and_token(home: Path) -> None:
    save_profile("lab", Profile(url="https://lab:5", pin=PIN.hex(), token=TOKEN))
    assert find_access(profile="lab") == Access(addresses=("lab:5",), pin=PIN, token=TOKEN)
    assert find_access("https://lab:5") == Access(addresses=("lab:5",), pin=PIN, token=TOKEN)


def test_no_pool_at_all_says_how_to_start_one_and_how_to_reach_one(home: Path) -> None:
    with pytest.raises(NotConfigured, match="moregpu serve") as nothing:
        find_access()
    assert "moregpu login" in (nothing.value.hint or ""), "nor how somebody reaches the pool of another machine"
    with pytest.raises(NotConfigured, match="MOREGPU_ADMIN_TOKEN"):
        find_access("https://pool:1")
    with pytest.raises(NotConfigured, match="MOREGPU_URL"):
        find_access(token=TOKEN)


def test_a_profile_that_others_can_read_is_refused(home: Path) -> None:
    save_profile("local", Profile(url="https://lab:5", token=TOKEN))
    profile_path("local").chmod(0o644)
    with pytest.raises(StateRefused, match="chmod 600"):
        find_access()


def test_a_token_that_broke_over_lines_is_whole_again_and_one_that_is_none_is_not_repeated() -> None:
    assert find_access("https://host", "mgt_ab\r\n  cd\n").token == "mgt_abcd"
    for token in ("mgt_s3cret\x00", "mgt_s3crét", "mgt_s3cret\udcff"):
        with pytest.raises(Unauthorized) as refused:
            find_access("https://host", token)
        assert "s3cr" not in str(refused.value)


@pytest.mark.parametrize("pin", ["zz", "00", "00:11"])
def test_a_pin_that_is_none_is_refused(home: Path, pin: str) -> None:
    with pytest.raises(InvalidRequest, match="pin"):
        find_access("https://lab:5", TOKEN, pin=pin)


def test_a_damaged_client_line_is_refused_without_being_repeated(home: Path) -> None:
    line = ClientLine(addresses=("a:1",), pin=PIN, token=TOKEN).line()
    with pytest.raises(MoreGPUError) as refused:
        find_access(token=line[:-3])
    assert line[20:40] not in str(refused.value)


def test_the_token_is_not_in_the_repr() -> None:
    assert TOKEN not in repr(Access(addresses=("a:1",), token=TOKEN))
