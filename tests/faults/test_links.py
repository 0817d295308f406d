"""Links that break in every way that TCP knows, under real workers and clients: rows 3, 13, 14, 29, 39 and 40."""

from __future__ import annotations

import numpy as np
import pytest

from moregpu.blobs.transfer import RESUMABLE_BYTES
from moregpu.jobs import AttemptState
from tests.faults.rig import SLOWED, Rig, attempts

MiB = 1 << 20
EVERYWHERE = tuple(range(1, 6000, 400))
"""Bytes of the first connections: from the TLS handshake through the first assignments."""


def test_a_worker_whose_link_is_reset_in_mid_task_goes_on(rig: Rig) -> None:
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    rig.proxy.cut()
    product.is_right_and_once()


def test_a_worker_whose_link_is_reset_again_and_again_still_gets_everything_done(rig: Rig) -> None:
    rig.proxy.down.cut_after = [60_000] * 15
    rig.start_worker("anna")
    for seed in range(3):
        rig.product(seed=seed, size=512).is_right_and_once()


def test_wherever_the_first_links_are_cut_the_same_invite_lets_the_same_worker_in(rig: Rig) -> None:
    """Row 40: the invite may be used up before the worker heard that it was."""
    rig.proxy.down.cut_after = list(EVERYWHERE)
    anna = rig.start_worker("anna")
    assert [worker.id for worker in rig.pool.workers()] == [anna]
    rig.product(size=64).is_right_and_once()


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_link_of_which_one_direction_was_closed_is_given_up_and_made_anew(rig: Rig, way: str) -> None:
    (rig.proxy.up if way == "up" else rig.proxy.down).half_close_after = 9_000
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    product.is_right_and_once()


@pytest.mark.parametrize("way", ["up", "down"])
def test_bytes_that_come_twice_end_the_link_and_nothing_else(rig: Rig, way: str) -> None:
    """Rows 3 and 39: whatever is repeated on the way, no message counts twice."""
    (rig.proxy.up if way == "up" else rig.proxy.down).repeat_at = 3_500
    rig.start_worker("anna")
    for seed in range(3):
        view = rig.product(seed=seed, size=256).is_right_and_once()
        assert AttemptState.REJECTED not in attempts(view)
    assert len(rig.pool.workers()) == 1


def test_a_worker_that_returns_while_its_old_link_seems_alive_is_one_worker_and_goes_on(rig: Rig) -> None:
    """Rows 13, 14 and 18: its machine lost its power; the coordinator's end of the old link was told nothing."""
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    rig.proxy.hold()
    rig.local.kill_worker("anna")
    assert rig.start_worker("anna") == anna
    product.is_right_and_once()
    assert [(worker.id, worker.state) for worker in rig.pool.workers()] == [(anna, "online")]


def test_an_upload_and_a_download_go_on_where_they_were_cut(rig: Rig) -> None:
    """Row 29: no connection lives long enough for half of it, so that what began anew would not end."""
    plain = np.random.default_rng(1).bytes(RESUMABLE_BYTES)
    rig.proxy.up.cut_after = [13 * MiB] * 12
    rig.proxy.down.cut_after = [13 * MiB] * 12
    with rig.client() as pool:
        blob = pool.blobs().upload_stream(memoryview(plain))
        out = bytearray(len(plain))
        pool.blobs().download_into(blob, out)
    assert out == plain
    for way in (rig.proxy.up, rig.proxy.down):
        assert len(plain) < way.passed < 1.5 * len(plain)


def test_a_client_whose_links_are_reset_again_and_again_gets_its_product(rig: Rig) -> None:
    rig.start_worker("anna")
    rig.proxy.down.cut_after = [20_000, 40_000, MiB, MiB, 2 * MiB]
    rig.proxy.up.cut_after = [2_000, 4_000, MiB, 3 * MiB, 3 * MiB]
    with rig.client() as pool:
        product = rig.product(pool)
        product.is_right_and_once()
        assert len(pool.jobs()) == 1
