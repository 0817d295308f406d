"""`from moregpu import MoreGPU`, as programs of MoreGPU 1.x use it: the names they ask for, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moregpu import KERNELS, MoreGPU
from moregpu.errors import InvalidRequest, NotFound, Unavailable
from moregpu.wire import tls

from .conftest import OldPool

NINE = {"matmul", "vector_add", "vector_mul", "saxpy", "relu", "gelu", "scale", "softmax", "layernorm"}


@pytest.fixture
def pool(live: OldPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[MoreGPU]:
    """A program of its own: what the system trusts is read once in each, and other tests ran in this one."""
    monkeypatch.setenv("SSL_CERT_FILE", str(live.certificate))
    tls.system_context.cache_clear()
    yield MoreGPU(live.base + "/", live.admin)
    tls.system_context.cache_clear()


def test_it_knows_the_nine_kernels_and_refuses_others_itself(pool: MoreGPU) -> None:
    assert set(KERNELS) == NINE and len(KERNELS) == 9
    for unknown in ("fft", "formula", "custom"):
        with pytest.raises(ValueError, match="unknown kernel"):
            pool.submit(unknown, 100)
    assert {record["status"] for record in pool.submit_batch([(kernel, 64) for kernel in KERNELS])} == {"done"}


def test_a_program_may_ask_whether_a_call_of_models_is_there(pool: MoreGPU) -> None:
    for name in (
        "generate",
        "train_step",
        "shard_wait",
        "vision_infer",
        "data_push",
        "push_safetensors",
        "worker_caps",
    ):
        assert hasattr(pool, name)
        with pytest.raises(Unavailable, match=f"{name} comes with the model tier"):
            getattr(pool, name)("anything", id="x")
    assert not hasattr(pool, "fly")


def test_composed_calls_give_what_they_gave(pool: MoreGPU) -> None:
    assert pool.matmul([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], M=2, N=2, K=3) == [58.0, 64.0, 139.0, 154.0]
    assert pool.linear([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], [1, 2], M=2, K=3, N=2) == [59.0, 66.0, 140.0, 156.0]
    assert pool.mlp([1, 2], [([1, 2, 3, 4], None, 2), ([1, 1], [3], 1)], M=1, K=2) == [20.0]
    assert [pool.sum([1, 2, 3]), pool.mean([1, 2, 3]), pool.dot([1, 2], [3, 4]), pool.norm([3, 4])] == [6, 2, 11, 5]
    head = pool.attention([1.0, 0, 0, 1], [1.0, 1, 0, 1], [2.0, 0, 0, 3], seq=2, d=2)
    assert head == pytest.approx([1.339523, 0.990715, 1.0, 1.5], rel=1e-5)


def test_the_network_and_what_is_not_there(pool: MoreGPU) -> None:
    assert len(pool.net()["workers"]) == 2
    with pytest.raises(NotFound, match="not found"):
        pool.job("job-12")
    with pytest.raises(InvalidRequest, match="row"):
        pool.run("softmax", [1, 2, 3])
