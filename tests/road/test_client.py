"""The client against a real pool: many threads, several addresses, roles, what belongs to whom."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import find_access
from moregpu.client.pool import Pool
from moregpu.errors import Forbidden, MoreGPUError, NotFound
from moregpu.wire.api import InviteRequest, TokenRequest


def test_an_address_that_does_not_answer_is_passed_over(road: LoopbackPool) -> None:
    access = road.access()
    several = msgspec.structs.replace(access, addresses=("127.0.0.1:9", *access.addresses))
    with Pool(several) as pool:
        assert pool.me(patience_s=0).role == "admin"
        a = np.arange(100_000, dtype=np.float32)
        assert np.array_equal(pool.relu(-a), np.zeros_like(a))


def test_one_pool_serves_many_threads(pool: Pool) -> None:
    def one(number: int) -> bool:
        a = np.full(number * 1000, number, np.float32)
        return np.array_equal(pool.scale(a, 2.0), 2 * a)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(1, 25)))


def test_a_submitter_sees_its_own_jobs_only(road: LoopbackPool, pool: Pool) -> None:
    lines = [pool.create_token(TokenRequest(label=label)).line for label in ("one", "two")]
    with Pool(find_access(token=lines[0])) as one, Pool(find_access(token=lines[1])) as two:
        handle = one.kernel("relu", np.ones(10_000, np.float32))
        assert np.array_equal(handle.result(), np.ones(10_000, np.float32))
        assert [view.id for view in one.jobs()] == [handle.id]
        assert two.jobs() == []
        with pytest.raises(NotFound):
            two.job(handle.id)
        for forbidden in (one.invite, one.create_token):
            with pytest.raises(Forbidden):
                forbidden()
        assert pool.job(handle.id).id == handle.id


def test_another_submitters_data_is_not_usable(pool: Pool) -> None:
    """A blob's digest and key are not enough: it must be yours."""
    lines = [pool.create_token(TokenRequest(label=label)).line for label in ("one", "two")]
    with Pool(find_access(token=lines[0])) as one, Pool(find_access(token=lines[1])) as two:
        handle = one.kernel("relu", np.ones(100_000, np.float32))
        handle.result()
        stolen = next(iter(handle.status().result.outputs.values()))  # type: ignore[union-attr]
        from moregpu.client.arrays import receive
        from moregpu.workloads.kernel.spec import KernelSpec

        with pytest.raises(MoreGPUError):
            receive(stolen, two.blobs())
        with pytest.raises(MoreGPUError):
            two.submit_job(KernelSpec(operation="relu", inputs={"a": stolen}))


def test_a_pool_describes_itself(road: LoopbackPool, pool: Pool) -> None:
    info = pool.info()
    assert info.workers_online == 2
    assert info.addresses == [f"127.0.0.1:{road.port}"]
    assert len(info.fingerprint.split()) == 8


def test_an_invite_says_how_far_it_reaches(pool: Pool) -> None:
    made = pool.invite(InviteRequest(owner="zoe", groups=["night"], uses=2))
    assert made.line.startswith("MGPU1-")
    assert "this machine only" in made.reach
    assert (made.owner, made.groups, made.uses_left) == ("zoe", ["night"], 2)


def test_a_worker_tells_a_program_what_happens_as_json_lines(lone: LoopbackPool) -> None:
    import json

    lone.start_worker("anna", "--json")
    lone.wait_for_workers()
    told = [json.loads(line) for line in lone.log("anna").splitlines() if line.startswith("{")]
    assert [one["state"] for one in told][-1] == "online"
    assert told[-1]["name"] == "anna"
