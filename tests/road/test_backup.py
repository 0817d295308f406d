"""A pool that runs is backed up, lost, and put back: the same pool, for workers, clients and jobs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from moregpu.cli.loopback import LoopbackPool

PASSPHRASE = "correct horse battery"
A = np.arange(200_000, dtype=np.float32)


def test_a_pool_is_lost_and_comes_back(lone: LoopbackPool, tmp_path: Path) -> None:
    lone.start_worker("anna")
    lone.wait_for_workers()
    file = tmp_path / "pool.backup"
    with lone.connect() as pool:
        kept = pool.kernel("scale", A, scalar=2.0)
        kept.result()
        going_on = pool.benchmark("matmul", 1500)
        made = lone.run("pool", "backup", str(file), "--state", str(lone.state), "--json", given=PASSPHRASE + "\n")
        assert made.returncode == 0, made.stderr
        assert json.loads(made.stdout)["blobs"] >= 1
        going_on.wait(100)
        pool_id, worker = pool.info().id, pool.workers()[0].id

        lone.kill_coordinator()
        shutil.rmtree(lone.state)
        wrong = lone.run("pool", "restore", str(file), "--state", str(lone.state), given="something else\n")
        assert wrong.returncode == 3
        assert "passphrase" in wrong.stderr
        back = lone.run("pool", "restore", str(file), "--state", str(lone.state), given=PASSPHRASE + "\n")
        assert back.returncode == 0, back.stderr
        assert "moregpu serve" in back.stdout
        lone.start_coordinator()

        assert pool.info().id == pool_id  # the old token, over the old pin
        assert [found.id for found in lone.wait_for_workers()] == [worker]
        assert np.array_equal(pool.job(kept.id).result(), 2 * A)
        assert pool.job(going_on.id).wait(100).checked  # it had not ended when the copy was made: it is run again
        assert np.array_equal(pool.relu(-A), np.zeros_like(A))
        assert pool.audit().ok


def test_a_passphrase_is_long_and_never_an_argument(lone: LoopbackPool, tmp_path: Path) -> None:
    file, state = str(tmp_path / "file"), str(lone.state)
    short = lone.run("pool", "backup", file, "--state", state, given="short\n")
    assert short.returncode == 2
    assert "12 characters" in short.stderr
    open_to_all = tmp_path / "passphrase"
    open_to_all.write_text(PASSPHRASE)
    open_to_all.chmod(0o644)
    loose = lone.run("pool", "backup", file, "--state", state, "--passphrase-file", str(open_to_all))
    assert loose.returncode == 9
    assert "chmod 600" in loose.stderr
    open_to_all.chmod(0o600)
    assert lone.run("pool", "backup", file, "--state", state, "--passphrase-file", str(open_to_all)).returncode == 0
    again = lone.run("pool", "backup", file, "--state", state, "--passphrase-file", str(open_to_all))
    assert again.returncode == 1
    assert "exists" in again.stderr
    other = lone.run("pool", "restore", file, "--state", state, "--passphrase-file", str(open_to_all))
    assert other.returncode == 9
    assert "not empty" in other.stderr
