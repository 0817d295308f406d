"""Weights that stay on the pool: uploaded once, used by name, found by each worker in its own cache.

python examples/resident_weights.py      on a pool with two workers both sign
"""

import numpy as np

import moregpu

rng = np.random.default_rng(5)
weight = rng.standard_normal((1024, 1024), dtype=np.float32)

with moregpu.connect() as pool:
    kept = pool.upload_weight("demo/weight", weight)
    print(f"{kept.name}: {kept.shape}, {kept.size_bytes / 2**20:.0f} MiB, sealed on the pool")
    for _ in range(3):
        x = rng.standard_normal((512, 1024), dtype=np.float32)
        assert np.allclose(pool.matmul_resident(x, "demo/weight"), x @ weight, atol=1e-2)
    job = pool.kernel("matmul", rng.standard_normal((2048, 1024), dtype=np.float32), kept)
    job.result()
    print("signed by", *sorted({signed.worker_name for signed in job.statements()}))
    pool.drop("demo/weight")
