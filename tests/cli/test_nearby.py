"""Pools nearby, by real multicast DNS on loopback: name and fingerprint are told, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.cli.nearby import Nearby, announced, find_nearby, read_announcement, told
from moregpu.errors import MissingExtra
from moregpu.wire.identity import fingerprint

HERE = ["127.0.0.1"]
WORDS = fingerprint(bytes(range(16)))


def found(*wanted: Nearby) -> list[Nearby]:
    return find_nearby(20.0, HERE, lambda found: set(wanted) <= set(found))


def test_a_pool_that_announces_itself_is_found_by_its_words_and_one_that_ended_is_not() -> None:
    mine, other = Nearby(fingerprint=WORDS, name="Zoë's lab"), Nearby(fingerprint=fingerprint(b"x" * 16), name="b")
    with announced(mine.name, mine.fingerprint, HERE), announced(other.name, other.fingerprint, HERE):
        assert set(found(mine, other)) >= {mine, other}
    assert mine not in find_nearby(0.5, HERE)


def test_an_announcement_holds_the_name_and_the_fingerprint_and_no_more() -> None:
    import zeroconf

    instance = f"{WORDS.replace(' ', '-')[:60]}._moregpu._tcp.local."
    with announced("lab", WORDS, HERE):
        network = zeroconf.Zeroconf(interfaces=HERE)
        try:
            info = zeroconf.ServiceInfo("_moregpu._tcp.local.", instance)
            assert not info.request(network, 2_000), "without an address the library calls it incomplete"
        finally:
            network.close()
    assert info.properties == {b"name": b"lab", b"fingerprint": WORDS.encode()}
    assert (info.port, info.addresses, info.server) == (0, [], instance)


def test_what_a_stranger_announces_is_cleaned_or_left_out() -> None:
    assert read_announcement({b"fingerprint": WORDS.encode(), b"name": b"\x1b[2Jmine\xff"}) is not None
    evil = read_announcement({b"fingerprint": WORDS.encode(), b"name": b"\x1b]52;c;x\x07" + b"x" * 500})
    assert evil is not None
    assert "\x1b" not in evil.name
    assert len(evil.name) <= 100
    for words in (b"", WORDS.upper().encode(), WORDS.encode() + b" able", b"a b c d e f g h", b"\xff"):
        assert read_announcement({b"fingerprint": words, b"name": b"lab"}) is None
    assert read_announcement({}) is None
    assert read_announcement({b"fingerprint": None}) is None


def test_the_list_shows_the_words_first_and_says_what_counts() -> None:
    text = told([Nearby(fingerprint=WORDS, name="lab")])
    assert text.index(WORDS) < text.index("lab\n")
    assert "invite" in text
    assert "--announce" in told([])


def test_without_zeroconf_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(MissingExtra) as caught:
        find_nearby(0.1, HERE)
    assert "moregpu[lan]" in caught.value.hint


@pytest.mark.slow
def test_a_coordinator_announces_itself_where_it_listens_and_only_when_it_is_asked_to(tmp_path: Path) -> None:
    with LoopbackPool(tmp_path / "home") as local:
        local.start_coordinator("--name", "lab here")
        with local.connect() as pool:
            mine = Nearby(fingerprint=pool.info().fingerprint, name="lab here")
        assert mine not in find_nearby(1.0, HERE)
        local.kill_coordinator()
        local.start_coordinator("--name", "lab here", "--announce")
        assert mine in found(mine)
