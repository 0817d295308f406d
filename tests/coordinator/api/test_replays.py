"""One idempotency key, one job: what is sent again finds it, at every door, and another spec under it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu.client.access import Access
from moregpu.client.arrays import send
from moregpu.client.link import NoLink
from moregpu.client.pool import Pool as Client
from moregpu.coordinator.server import ServeConfig
from moregpu.errors import KeyReused, from_code
from moregpu.jobs import Tensor
from moregpu.wire.link import Accepted, Ended, Refused
from moregpu.workloads import JobSpec
from moregpu.workloads.kernel.spec import KernelSpec

from .conftest import Pool, Running
from .test_link import link

UPLOADS = ThreadPoolExecutor(1)
Submit = Callable[[Pool, str, KernelSpec, str], str]


def tensor(*values: float) -> Tensor:
    return Tensor(dtype="float32", shape=(len(values),), data=np.array(values, np.float32).tobytes())


SPEC = KernelSpec(operation="saxpy", name="first", scalar=2.0, inputs={"a": tensor(1, 2), "b": tensor(3, 4)})


def by_http(pool: Pool, token: str, spec: KernelSpec, key: str) -> str:
    answer = pool.ask("POST", "/v1/jobs", token, msgspec.to_builtins(spec), {"Idempotency-Key": key})
    if answer.status >= 400:
        said = answer.json()
        assert said["status"] == answer.status == 422
        raise from_code(answer.code, said["detail"], said["hint"])
    return answer.json()["id"]


def by_link(pool: Pool, token: str, spec: KernelSpec, key: str, *, packed: bool) -> str:
    with link(pool, token, packed) as line:
        line.submit(1, msgspec.to_builtins(spec, builtin_types=(bytes,) if packed else ()), idempotency_key=key)
        answer = line.receive()
        if isinstance(answer, Refused):
            problem = answer.problem
            raise from_code(problem.type.removeprefix("about:moregpu/"), problem.detail, problem.hint)
        assert isinstance(answer, Accepted | Ended)
        return answer.job.id


def by_sdk(pool: Pool, token: str, spec: KernelSpec, key: str) -> str:
    with client_of(pool, token) as client:
        return client.submit_job(spec, idempotency_key=key).id


def by_sdk_without_link(pool: Pool, token: str, spec: KernelSpec, key: str) -> str:
    with client_of(pool, token) as client:

        def none() -> Any:
            raise NoLink("a proxy in between")

        client.link = none
        return client.submit_job(spec, idempotency_key=key).id


def client_of(pool: Pool, token: str) -> Client:
    return Client(Access(addresses=(pool.address,), token=token, pin=pool.pin))


DOORS: dict[str, Submit] = {
    "http": by_http,
    "link": lambda pool, token, spec, key: by_link(pool, token, spec, key, packed=True),
    "link in JSON": lambda pool, token, spec, key: by_link(pool, token, spec, key, packed=False),
    "sdk": by_sdk,
    "sdk without the link": by_sdk_without_link,
}


@pytest.fixture(params=DOORS)
def submit(request: pytest.FixtureRequest) -> Submit:
    return DOORS[request.param]


@pytest.fixture(scope="module")
def token(pool: Pool) -> str:
    return pool.token("submitter")


@pytest.fixture
def client(pool: Pool, token: str) -> Iterator[Client]:
    with client_of(pool, token) as connected:
        yield connected


def test_another_spec_under_a_used_key_is_refused_and_says_what_to_do(
    pool: Pool, token: str, submit: Submit, request: pytest.FixtureRequest
) -> None:
    key = request.node.name
    job = submit(pool, token, SPEC, key)
    others: list[dict[str, Any]] = [
        {"scalar": 3.0},
        {"name": "second"},
        {"operation": "vector_add"},
        {"inputs": {"a": tensor(1, 2), "b": tensor(3, 5)}},
        {"inputs": {"a": tensor(1, 2, 3), "b": tensor(3, 4, 5)}},
    ]
    for other in others:
        with pytest.raises(KeyReused, match=job) as refused:
            submit(pool, token, msgspec.structs.replace(SPEC, **other), key)
        assert "new key" in refused.value.hint
    assert submit(pool, token, SPEC, key) == job
    assert len([one for one in pool.ask("GET", "/v1/jobs?limit=500", token).json()["items"] if one["id"] == job]) == 1


def test_every_door_means_the_same_by_the_same_key(pool: Pool, token: str) -> None:
    assert len({submit(pool, token, SPEC, "all doors") for submit in DOORS.values()}) == 1


def test_the_key_of_somebody_else_is_another_key(pool: Pool, token: str) -> None:
    job = by_http(pool, token, SPEC, "ours")
    other = msgspec.structs.replace(SPEC, scalar=9.0)
    assert by_http(pool, pool.token("submitter"), other, "ours") != job


def test_a_job_that_was_changed_since_is_still_found_by_what_was_sent(pool: Pool, token: str) -> None:
    job = by_http(pool, token, SPEC, "changed")
    pool.ask("PATCH", f"/v1/jobs/{job}", token, {"name": "renamed", "priority": 3})
    assert by_http(pool, token, SPEC, "changed") == job
    with pytest.raises(KeyReused):
        by_http(pool, token, msgspec.structs.replace(SPEC, name="renamed", priority=3), "changed")


def test_the_same_values_uploaded_anew_are_the_same_job_and_other_values_are_not(client: Client) -> None:
    large = np.arange(50_000, dtype=np.float32)

    def spec(array: np.ndarray[Any, Any]) -> KernelSpec:
        return KernelSpec(operation="relu", inputs=send({"a": array}, client.blobs(), UPLOADS))

    job = client.submit_job(spec(large), idempotency_key="uploaded").id
    assert client.submit_job(spec(large.copy()), idempotency_key="uploaded").id == job
    with pytest.raises(KeyReused):
        client.submit_job(spec(large + 1), idempotency_key="uploaded")


def test_what_the_coordinator_sealed_itself_is_compared_by_its_values(pool: Pool, token: str) -> None:
    def spec(last: float) -> KernelSpec:
        values = np.zeros(40_000, np.float32)
        values[-1] = last
        return KernelSpec(
            operation="relu", inputs={"a": Tensor(dtype="float32", shape=(40_000,), data=values.tobytes())}
        )

    job = by_http(pool, token, spec(1.0), "sealed here")
    assert by_http(pool, token, spec(1.0), "sealed here") == job
    with pytest.raises(KeyReused):
        by_http(pool, token, spec(2.0), "sealed here")


def test_it_holds_after_a_restart_and_after_the_end_and_for_a_job_whose_data_is_forgotten(config: ServeConfig) -> None:
    other = msgspec.structs.replace(SPEC, scalar=7.0)
    with Running(config) as pool:
        token = pool.token("submitter")
        job = by_http(pool, token, SPEC, "kept")
        ended = by_http(pool, token, msgspec.structs.replace(SPEC, name="ended"), "ended")
        pool.ask("DELETE", f"/v1/jobs/{ended}", token)
        pool.ask("DELETE", f"/v1/jobs/{ended}?purge=1", token)
    with Running(config, known=pool) as again:
        assert by_http(again, token, SPEC, "kept") == job
        assert by_http(again, token, msgspec.structs.replace(SPEC, name="ended"), "ended") == ended
        for key in ("kept", "ended"):
            with pytest.raises(KeyReused):
                by_http(again, token, other, key)


def test_what_is_sent_again_is_found_though_its_inputs_went_with_the_job(client: Client) -> None:
    large = np.arange(50_000, dtype=np.float32)
    spec: JobSpec = KernelSpec(operation="relu", inputs=send({"a": large}, client.blobs(), UPLOADS))
    handle = client.submit_job(spec, idempotency_key="gone")
    handle.cancel()
    handle.purge()
    assert client.submit_job(spec, idempotency_key="gone").id == handle.id


def test_a_job_is_run_again_once_though_the_answer_was_lost(
    pool: Pool, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.submit_job(SPEC)
    job.cancel()
    before = {one["id"] for one in pool.ask("GET", "/v1/jobs?limit=500", pool.admin).json()["items"]}
    send_it = client.doors._send  # pyright: ignore[reportPrivateUsage]
    lost: list[str] = []

    def broken(*request: Any) -> Any:
        answer = send_it(*request)
        if not lost:
            lost.append(answer.headers["location"])
            raise ConnectionResetError("the answer went astray")
        return answer

    monkeypatch.setattr(client.doors, "_send", broken)
    again = client.retry(job.id)
    assert lost == [f"/v1/jobs/{again.id}"]
    after = {one["id"] for one in pool.ask("GET", "/v1/jobs?limit=500", pool.admin).json()["items"]}
    assert after - before == {again.id}
