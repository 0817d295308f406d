"""Where a pool can be reached: what is listened on, what is advertised, and which Host a request may name."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
import psutil

from moregpu.errors import InvalidRequest, PortInUse

MAX_ADDRESSES = 4
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What others need to know to come here."""

    addresses: tuple[str, ...]
    """"host:port", at most four, the best first: what invites and client lines carry."""
    hosts: frozenset[str]
    """Lower-case names and addresses that the Host header may name."""
    loopback_only: bool
    port: int
    """Where it listens here; what is advertised may name another."""
    tunnel: str = ""
    """"host:port" of a tunnel that ends TLS and forwards to here; the first of `addresses`, if there is one."""

    @property
    def note(self) -> str:
        """One sentence about who can come."""
        if self.tunnel:
            return f"reachable through the tunnel at {self.tunnel}; whoever runs it sees what HTTP clients send"
        if self.loopback_only:
            return "this machine only; `moregpu serve --host 0.0.0.0` lets others in"
        return "reachable at " + ", ".join(self.addresses)


def reach(
    host: str, port: int, advertise: Sequence[str] = (), allowed_hosts: Sequence[str] = (), tunnel_url: str = ""
) -> Reach:
    """What a coordinator that listens on `host` advertises. `tunnel_url`: what `--behind-tunnel` says.

    `advertise` (names, addresses, or "name:port" where a router forwards) replaces what is found by itself: the host's
    name and its addresses once `host` is wider than loopback. Raises `InvalidRequest` for more than four.
    """
    if len(advertise) > MAX_ADDRESSES:
        raise InvalidRequest(f"{len(advertise)} advertised names", f"an invite carries at most {MAX_ADDRESSES}")
    loopback = is_loopback(host)
    names = list(advertise) if advertise else ([_spelled_loopback(host)] if loopback else _found(host))
    tunnel = tunnel_address(tunnel_url) if tunnel_url else ""
    found = [_with_port(name, port) for name in names]
    if tunnel:  # a loopback address is of no use to who comes through the tunnel
        found = [tunnel, *(found if advertise or not loopback else ())]
    addresses = tuple(dict.fromkeys(found))[:MAX_ADDRESSES]
    hosts = {host_of(address) for address in addresses} | {entry.lower() for entry in allowed_hosts}
    if not _is_any(host):
        hosts.add(host.lower())
    else:
        hosts.update(name.lower() for name in _found(host))
    return Reach(
        addresses=addresses,
        hosts=frozenset(hosts | LOOPBACK_HOSTS),
        loopback_only=loopback and not advertise and not tunnel,
        port=port,
        tunnel=tunnel,
    )


def tunnel_address(url: str) -> str:
    """The "host:port" of a tunnel's public URL. Raises `InvalidRequest` for anything but https://HOST[:PORT]."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port or 443
    except ValueError:
        parts, host, port = urlsplit(""), "", 0
    bare = parts.path in ("", "/") and not parts.query and not parts.fragment and parts.username is None
    if parts.scheme != "https" or not host or not bare:
        raise InvalidRequest(
            f"{url[:80]!r} is no public address of a tunnel", "give it whole: --behind-tunnel https://pool.example.com"
        )
    return _with_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", port)


def plain_loopback_sockets(port: int) -> list[socket.socket]:
    """Bind and listen on 127.0.0.1 and, where it exists, ::1; raises `PortInUse`."""
    (first,) = listening_sockets("127.0.0.1", port, "--insecure-loopback")
    try:
        return [first, *listening_sockets("::1", int(first.getsockname()[1]))]
    except (PortInUse, InvalidRequest):  # no IPv6 here
        return [first]


def listening_sockets(host: str, port: int, option: str = "--port") -> list[socket.socket]:
    """Bind and listen, before anything is told to anybody; port 0 takes a free one. `option`: what chose the port.

    Raises `PortInUse` (also where the port needs more rights) and `InvalidRequest` for a host that is not of this
    machine.
    """
    try:
        found = socket.getaddrinfo(_spelled_loopback(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise InvalidRequest(f"{host!r} is not a host or address: {error}", "use an address of this machine") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere this would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _bind_error(error, host, port, option) from error
    return [listener]


def is_loopback(host: str) -> bool:
    """Whether only this machine can come."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def multicast_interfaces(host: str) -> list[str]:
    """Addresses of ours on which a coordinator that listens there may be announced; none named: all."""
    if is_loopback(host):
        return ["127.0.0.1"]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return []
    return [host] if address.version == 4 and not address.is_unspecified else []


def host_of(address: str) -> str:
    """The lower-case host of "host:port", "[v6]:port" or a bare host: as in a Host header."""
    text = address.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def _bind_error(error: OSError, host: str, port: int, option: str) -> PortInUse | InvalidRequest:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"another program listens on port {port} of {host}",
            f"stop it, or choose another: moregpu serve {option} {port + 1 if port < 65535 else 8787}",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return PortInUse(
            f"this user may not listen on port {port}", f"choose one from 1024 on: moregpu serve {option} 8787"
        )
    return InvalidRequest(f"cannot listen on {host}, port {port}: {error.strerror}", "use an address of this machine")


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _spelled_loopback(host: str) -> str:
    return "127.0.0.1" if host.lower() == "localhost" else host


def _found(host: str) -> list[str]:
    """The names others may know this machine by."""
    if not _is_any(host):
        return [host]
    names = [socket.gethostname()]
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            if entry.family == socket.AF_INET6 and host == "0.0.0.0":  # noqa: S104 — compared, not bound
                continue
            address = ipaddress.ip_address(entry.address.partition("%")[0])
            if not (address.is_loopback or address.is_link_local):
                names.append(str(address))
    return list(dict.fromkeys(names))


def _with_port(name: str, port: int) -> str:
    text = name.strip()
    if not text or any(character.isspace() or character in "/@?#" for character in text):
        raise InvalidRequest(f"{name[:80]!r} is no host name", "give names or addresses: --advertise NAME")
    if text.startswith("["):
        return text if "]:" in text else f"{text}:{port}"
    try:
        if ipaddress.ip_address(text).version == 6:
            return f"[{text}]:{port}"
    except ValueError:
        head, colon, tail = text.rpartition(":")
        if colon and head and tail.isdigit() and 0 < int(tail) < 65536:
            return text
        if colon:
            raise InvalidRequest(f"{name[:80]!r} is no host name", "NAME, ADDRESS, or NAME:PORT") from None
    return f"{text}:{port}"
