"""A whole coordinator: state, store, engine room and doors, from opening its folder to letting go of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from moregpu.blobs.local import BlobFiles
from moregpu.blobs.nearby import announce
from moregpu.coordinator.api.app import build_app
from moregpu.coordinator.api.invites import make_invite
from moregpu.coordinator.api.load import PoolLoad
from moregpu.coordinator.api.pool import Auditor
from moregpu.coordinator.api.services import PoolInfo, Services
from moregpu.coordinator.api.workers_door import RequestsOfWorkers
from moregpu.coordinator.authority import Authority
from moregpu.coordinator.certificate import Certificate, brought_certificate, own_certificate, server_context
from moregpu.coordinator.desk import PoolDesk
from moregpu.coordinator.housekeeping import Housekeeping
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.listen import Doorway
from moregpu.coordinator.local import Listening, save_listening
from moregpu.coordinator.measures import Measures
from moregpu.coordinator.reach import Reach, host_of, listening_sockets, plain_loopback_sockets, reach
from moregpu.coordinator.residents import Residents
from moregpu.coordinator.rotation import Rotation
from moregpu.coordinator.settings import NAME_SETTING, PoolSettings
from moregpu.coordinator.shelf import KernelShelf
from moregpu.coordinator.shell import SystemClock, SystemEntropy, ThreadOffload
from moregpu.coordinator.state import StateFolder, open_state
from moregpu.coordinator.store.protocol import Store
from moregpu.coordinator.store.sqlite import SqliteStore
from moregpu.errors import InvalidRequest
from moregpu.platform import paths
from moregpu.platform.logs import facts
from moregpu.platform.private import private_folder
from moregpu.platform.secrets import TokenStore
from moregpu.platform.signals import ending_signals
from moregpu.wire.api import InviteRequest, PoolChange
from moregpu.wire.identity import fingerprint
from moregpu.wire.invite import token_id

log = logging.getLogger(__name__)

DEFAULT_PORT = 8787


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a coordinator is set up: section `[pool]` of `config.toml`, and options of `moregpu serve`."""

    host: Annotated[str, Meta(title="Host", description="Address to listen on; 0.0.0.0 lets others in")] = "127.0.0.1"
    port: Annotated[int, Meta(title="Port", ge=0, le=65535)] = DEFAULT_PORT
    advertise: Annotated[tuple[str, ...], Meta(title="Advertise", description="Names that invites carry")] = ()
    allowed_hosts: Annotated[tuple[str, ...], Meta(title="Allowed hosts", description="Other names in Host")] = ()
    state: Annotated[str, Meta(title="State folder", description="Empty: the usual place")] = ""
    name: Annotated[str, Meta(title="Pool name", description="Empty: the machine's name", max_length=100)] = ""
    tls_cert: Annotated[str, Meta(title="Certificate", description="PEM chain; empty: its own")] = ""
    tls_key: Annotated[str, Meta(title="Key", description="PEM key of that certificate")] = ""
    profile: Annotated[str, Meta(title="Profile", description="Saved for this user; empty: none")] = paths.LOCAL_PROFILE
    keep_bytes: (
        Annotated[int, Meta(title="Keep", description="Bytes of outputs that are kept; 0: no limit", ge=0)] | None
    ) = None
    submitter_jobs: (
        Annotated[int, Meta(title="Jobs a submitter", description="Most that have not ended", ge=1)] | None
    ) = None
    submitter_bytes: (
        Annotated[int, Meta(title="Bytes a submitter", description="Most that are kept; 0: no limit", ge=0)] | None
    ) = None
    behind_tunnel: Annotated[str, Meta(title="Tunnel", description="Public https URL that forwards here")] = ""
    insecure_loopback: Annotated[
        int | None, Meta(title="Port without TLS", description="For programs of MoreGPU 1.x on this machine alone")
    ] = None
    worker_invite: Annotated[bool, Meta(title="Invite for a worker of this machine")] = False

    @classmethod
    def checked(cls, **fields: Any) -> ServeConfig:
        """From what a person typed; raises `InvalidRequest` for a value that cannot be."""
        try:
            config = msgspec.convert(fields, cls)
            config.name.encode()
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"a setting of the pool is wrong: {error}", "see `moregpu serve --help`") from error
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                "the pool's name is no text: this terminal or script writes another encoding", "write it in UTF-8"
            ) from error
        return config


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to tell once a coordinator listens. Lines are secrets: shown once, never logged."""

    url: str
    addresses: tuple[str, ...]
    note: str
    """Who can reach it."""
    pool_id: str
    """In hex."""
    pool_name: str
    fingerprint: str
    pin: bytes
    state: Path
    secrets_in: str
    """Where the state's wrapping key lies: "keyring" or "file"."""
    first: bool
    admin_line: str = ""
    """First run only: the admin's `MGPUC1-` line."""
    invite_line: str = ""
    """First run only: an invite for one worker, good for an hour."""
    plain_url: str = ""
    """With `insecure_loopback`: where programs of this machine come without TLS."""
    worker_line: str = ""
    """With `worker_invite`: an invite for the worker of this machine."""
    profile: str = ""
    """Name of the profile that was saved, if one was."""


async def serve(
    config: ServeConfig,
    ready: Callable[[Opening], None],
    *,
    stop: asyncio.Event | None = None,
    leaving: Callable[[], None] | None = None,
) -> None:
    """Run a coordinator until `stop` is set, or, without it, until a signal asks for it.

    `ready` is called once, when the port listens and everything that came from before is recovered; `leaving` once,
    on a thread, when it is to stop and still serves. Raises the errors of `open_state`, `PortInUse`, `InvalidRequest`
    (names, certificate), and those of the store.
    """
    ending = stop if stop is not None else asyncio.Event()
    with _private_umask(), _signals(ending) if stop is None else contextlib.nullcontext():
        async with coordinator(config) as made:
            ready(made.opening)
            try:
                await _first_of(ending, *made.running)
            finally:
                if leaving is not None:
                    await asyncio.to_thread(leaving)


class Coordinator(NamedTuple):
    """A coordinator that runs."""

    opening: Opening
    services: Services
    running: tuple[asyncio.Task[None], ...]
    """Its parts; one that ends by itself is broken, and holds the error."""


@asynccontextmanager
async def coordinator(config: ServeConfig) -> AsyncGenerator[Coordinator]:
    """Run a coordinator inside a block; raises like `serve`."""
    async with _parts(config) as (doorways, services, opening):
        housekeeping = Housekeeping(services)
        serving = [asyncio.create_task(doorway.run_doors()) for doorway in doorways]
        keeping = asyncio.create_task(housekeeping.run())
        measuring = asyncio.create_task(services.measures.run())
        try:
            log.info("the coordinator listens", extra=facts(addresses=opening.addresses, pool=opening.pool_name))
            yield Coordinator(opening, services, (*serving, keeping, measuring))
        finally:
            for beside in (keeping, measuring):
                beside.cancel()
            await asyncio.gather(keeping, measuring, return_exceptions=True)
            for doorway in doorways:
                doorway.close_listeners()
            await services.desk.stop()
            for doorway in doorways:
                doorway.end()
            await asyncio.gather(*serving)
            await services.authority.keep_uses()
            await housekeeping.sign_head()
            log.info("the coordinator stopped")


@asynccontextmanager
async def _parts(config: ServeConfig) -> AsyncGenerator[tuple[list[Doorway], Services, Opening]]:
    """All parts of a coordinator, started; what was opened is closed in reverse."""
    async with contextlib.AsyncExitStack() as stack:
        state = open_state(Path(config.state) if config.state else paths.state_folder("pool"))
        stack.callback(state.close)
        listeners = listening_sockets(config.host, config.port)
        for listener in listeners:
            stack.callback(listener.close)
        place = reach(config.host, _port(listeners), config.advertise, config.allowed_hosts, config.behind_tunnel)
        plain = [] if config.insecure_loopback is None else plain_loopback_sockets(config.insecure_loopback)
        for listener in plain:
            stack.callback(listener.close)
        certificate = _certificate(config, state, place)
        context = server_context(certificate)
        clock, offload, entropy = SystemClock(), ThreadOffload(), SystemEntropy()
        stack.callback(offload.close)
        store = SqliteStore(state.database, state.row_key, clock, entropy)
        await store.open(clock.monotonic())
        stack.push_async_callback(store.close)
        name = await _pool_name(config, store)
        blobs = BlobFiles(private_folder(state.blobs))
        desk = PoolDesk(
            store, state.keys, blobs, clock, offload, entropy,
            DeskConfig(pool_name=name, leaves=(certificate.leaf_sha256,)),
        )  # fmt: skip
        settings = await PoolSettings.load(store, name)
        await settings.change(
            PoolChange(
                keep_bytes=config.keep_bytes,
                submitter_jobs=config.submitter_jobs,
                submitter_bytes=config.submitter_bytes,
            )
        )
        desk.quotas = settings.limits.quotas
        residents = Residents(store, state.setting_key, os.urandom)
        await residents.load()
        kernels = KernelShelf(store)
        await kernels.load()
        desk.complete_jobs(kernels.completed)
        measures = Measures(store, clock)
        desk.observe_results(measures.judged)
        services = Services(
            desk=desk,
            authority=Authority(store, clock, os.urandom, state.path),
            blobs=blobs,
            keys=state.keys,
            pool=PoolInfo(
                id=state.keys.pool_id,
                fingerprint=fingerprint(state.keys.pool_id),
                version=version("moregpu"),
                reach=place,
                pin=certificate.pin,
                started_at=clock.wall(),
            ),
            clock=clock,
            offload=offload,
            load=PoolLoad(desk, clock),
            auditor=Auditor(),
            settings=settings,
            residents=residents,
            kernels=kernels,
            rotation=Rotation(state.keys, state.save_keys),
            measures=measures,
            certificate_sha256=certificate.leaf_sha256,
            certificate_pem=certificate.certificate.read_bytes(),
        )
        await desk.start()
        stack.push_async_callback(desk.stop)  # again at the end, harmlessly; alone when something here fails
        stack.callback(announce(certificate.leaf_sha256, _port(listeners), state.blobs))
        own = not place.tunnel
        addresses, pin = (place.addresses, certificate.pin) if own else ((place.tunnel,), b"")
        save_listening(state.path, Listening(addresses=addresses, pin=pin, pool_name=name))
        opening = await _opening(config, state, services, plain)
        doorways = [Doorway(build_app(services), context, listeners, RequestsOfWorkers(services))]
        if plain:
            log.warning("a port without TLS is open on loopback", extra=facts(url=opening.plain_url))
            doorways.append(Doorway(build_app(services, plain=True), None, plain))
        yield doorways, services, opening


def _port(listeners: list[socket.socket]) -> int:
    return int(listeners[0].getsockname()[1])


def _certificate(config: ServeConfig, state: StateFolder, place: Reach) -> Certificate:
    if bool(config.tls_cert) != bool(config.tls_key):
        raise InvalidRequest("a certificate needs its key, and a key its certificate", "give --tls-cert and --tls-key")
    if config.tls_cert:
        return brought_certificate(Path(config.tls_cert), Path(config.tls_key))
    return own_certificate(state.path, state.tls_password, sorted({host_of(a) for a in place.addresses} | place.hosts))


async def _pool_name(config: ServeConfig, store: Store) -> str:
    """The name that was given now, or before, or the machine's."""
    known = await store.setting(NAME_SETTING)
    name = config.name or known or socket.gethostname() or "pool"
    if name != known:
        await store.set_setting(NAME_SETTING, name)
    return name


# ---- the first run, and what is told ---------------------------------------------------------------------------------


async def _opening(config: ServeConfig, state: StateFolder, services: Services, plain: list[socket.socket]) -> Opening:
    pool = services.pool
    first = not await services.desk.store.tokens()
    token = invite_line = worker_line = ""
    if first:
        _, token = await services.authority.create("admin", "first admin")
        invite_line = (await make_invite(services, InviteRequest(), created_by="")).line
    if config.worker_invite:
        # Not by what is advertised: a tunnel that is not up yet, or a name that only others resolve.
        here = (_local_address(pool.reach, config.host),)
        request = InviteRequest(expires_s=600.0)
        worker_line = (await make_invite(services, request, created_by="", addresses=here)).line
    return Opening(
        url=f"https://{pool.reach.addresses[0]}",
        addresses=pool.reach.addresses,
        note=pool.reach.note,
        pool_id=pool.id.hex(),
        pool_name=services.settings.name,
        fingerprint=pool.fingerprint,
        pin=pool.pin,
        state=state.path,
        secrets_in=state.secrets_in,
        first=first,
        admin_line=pool.client_line(token) if first else "",
        invite_line=invite_line,
        plain_url=f"http://127.0.0.1:{_port(plain)}" if plain else "",
        worker_line=worker_line,
        profile=await _save_profile(config, services, token),
    )


async def _save_profile(config: ServeConfig, services: Services, token: str) -> str:
    """Save the profile, so that commands on this machine just work; a later run keeps its address and pin right."""
    if not config.profile:
        return ""
    reference, kept = paths.profile_token_ref(config.profile), TokenStore()
    if token:
        kept.put(reference, token)
    else:
        known = paths.load_profile(config.profile)
        if known is None or not known.token_ref:
            return ""
        mine = kept.get(known.token_ref)
        if mine is None or await services.desk.store.token(token_id(mine)) is None:
            return ""  # another pool's
        reference = known.token_ref
    pool = services.pool
    paths.save_profile(
        config.profile,
        paths.Profile(
            url=f"https://{_local_address(pool.reach, config.host)}",
            pin=pool.pin.hex(),
            token_ref=reference,
            pool_name=services.settings.name,
        ),
    )
    return config.profile


def _local_address(place: Reach, host: str) -> str:
    """How this machine reaches its own coordinator: by loopback, unless it listens on one other address only."""
    port = place.port
    if host in ("0.0.0.0", "", "localhost", "127.0.0.1"):  # noqa: S104 — compared, not bound
        return f"127.0.0.1:{port}"
    return f"[{host}]:{port}".replace("[::]", "[::1]") if ":" in host else f"{host}:{port}"


# ---- living and ending -----------------------------------------------------------------------------------------------


async def _first_of(ending: asyncio.Event, *running: asyncio.Task[None]) -> None:
    """Wait for the end, or for a part that broke; its error is raised."""
    waiting = asyncio.create_task(ending.wait())
    try:
        done, _ = await asyncio.wait({waiting, *running}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@contextlib.contextmanager
def _private_umask() -> Generator[None]:
    """Files that libraries make (SQLite's) are their owner's alone, too."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def _signals(ending: asyncio.Event) -> Generator[None]:
    """A signal that asks for it ends the coordinator in order; a second one ends it as the system does.

    Not a second SIGHUP: of a terminal that is closed, the system and its shell tell one after the other.
    """
    loop = asyncio.get_running_loop()
    numbers = ending_signals()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in numbers}

    def told(number: int, _frame: object) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, previous[signal.Signals(number)])
        loop.call_soon_threadsafe(ending.set)

    for number in numbers:
        signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
