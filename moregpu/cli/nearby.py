"""Pools of the local network, by multicast DNS: one says that it is there, a machine that wants to join looks.

An announcement holds a pool's name and the words of its fingerprint, and nothing else: no address, no user, no version.
It proves nothing, since anybody on the network may announce anything: only an invite lets a machine in, and it names
the pool by its key. Off unless asked for; needs the extra `lan`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from moregpu.errors import MissingExtra, Unavailable
from moregpu.wire.text import NAME_LIMIT, clean
from moregpu.wire.words import WORDS

log = logging.getLogger(__name__)

SERVICE = "_moregpu._tcp.local."
LOOK_S = 3.0
MOST = 50
"""Pools that are listed: a network that announces more is not asked on."""

_ANSWER_MS = 1000
_LEAVE_S = 3.0
_FINGERPRINT_WORDS = 8


class Nearby(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as it says of itself."""

    fingerprint: str
    name: str


@contextmanager
def announced(name: str, fingerprint: str, interfaces: Sequence[str] = ()) -> Generator[None]:
    """Say inside a block that a pool is here. `interfaces`: addresses of ours to say it on; none named: all.

    Raises `MissingExtra`, and `Unavailable` where the network takes no multicast.
    """
    zeroconf = need_zeroconf()
    info = zeroconf.ServiceInfo(
        SERVICE,
        f"{fingerprint.replace(' ', '-')[:60]}.{SERVICE}",
        port=0,
        properties={"name": _fitting(name), "fingerprint": fingerprint},
    )
    with _network(zeroconf, interfaces) as network:
        network.register_service(info, allow_name_change=True)
        try:
            yield
        finally:
            network.unregister_service(info)


@contextmanager
def announced_aside(name: str, fingerprint: str, interfaces: Sequence[str] = ()) -> Generator[None]:
    """The same on a thread of its own, for programs that run a loop; a network that takes none is logged."""
    ending = threading.Event()

    def work() -> None:
        try:
            with announced(name, fingerprint, interfaces):
                ending.wait()
        except Unavailable as error:
            log.warning("the pool is not announced: %s", error.detail)

    thread = threading.Thread(target=work, name="announcement", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(_LEAVE_S)


def find_nearby(
    seconds: float = LOOK_S,
    interfaces: Sequence[str] = (),
    enough: Callable[[list[Nearby]], bool] = lambda found: len(found) >= MOST,
) -> list[Nearby]:
    """Pools that announce themselves within so many seconds, or until there are enough; by name.

    Raises as `announced` does.
    """
    library = need_zeroconf()
    found: dict[str, Nearby] = {}
    satisfied = threading.Event()

    # By these names: the library hands them over by keyword.
    def heard(zeroconf: Any, service_type: str, name: str, state_change: Any) -> None:
        if state_change.name == "Removed" or len(found) >= MOST:
            return
        info = library.ServiceInfo(service_type, name)
        # The text mostly came along. An address never comes, which is why the library calls every answer incomplete.
        info.load_from_cache(zeroconf)
        if not info.properties:
            info.request(zeroconf, _ANSWER_MS)
        pool = read_announcement(info.properties)
        if pool is not None:
            found[pool.fingerprint] = pool
            if enough(list(found.values())):
                satisfied.set()

    with _network(library, interfaces) as network:
        browser = library.ServiceBrowser(network, SERVICE, handlers=[heard])
        satisfied.wait(seconds)
        browser.cancel()
    return sorted(found.values(), key=lambda pool: (pool.name, pool.fingerprint))


def read_announcement(properties: dict[bytes, bytes | None]) -> Nearby | None:
    """What a stranger announced, safe to show; None where it is no pool's."""
    texts = {key: (properties.get(key) or b"").decode(errors="replace") for key in (b"fingerprint", b"name")}
    words = texts[b"fingerprint"].split()
    if len(words) != _FINGERPRINT_WORDS or not set(words) <= set(WORDS):
        return None
    return Nearby(fingerprint=" ".join(words), name=clean(texts[b"name"], NAME_LIMIT))


def told(pools: Sequence[Nearby]) -> str:
    """The list as a person reads it: the words first, since only they are compared."""
    if not pools:
        return "No pool announces itself here (its admin: moregpu serve --announce). An invite works without.\n"
    lines = [f"  {pool.fingerprint}   {pool.name or '(no name)'}" for pool in pools]
    return "\n".join(
        ["Pools that announce themselves on this network (anybody may announce; the invite's words count):", *lines, ""]
    )


@contextmanager
def _network(zeroconf: Any, interfaces: Sequence[str]) -> Generator[Any]:
    where = list(interfaces) or zeroconf.InterfaceChoice.All
    try:
        network = zeroconf.Zeroconf(interfaces=where, ip_version=zeroconf.IPVersion.V4Only)
    except OSError as error:
        raise Unavailable(f"this network takes no multicast: {error}", "an invite works without") from error
    try:
        yield network
    finally:
        network.close()


def _fitting(name: str) -> str:
    """A name that fits the 255 bytes of a property."""
    return name.encode()[:200].decode(errors="ignore")


def need_zeroconf() -> Any:
    """The library; raises `MissingExtra` where it is not installed."""
    try:
        import zeroconf
    except ImportError as error:
        raise MissingExtra("pools nearby need zeroconf", 'pip install "moregpu[lan]"') from error
    return zeroconf
