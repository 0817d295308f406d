"""A whole attention block (layer norm, attention of several heads, projection, residual) on the pool's kernels.

python examples/attention_block.py      prints how far it is from NumPy
"""

import numpy as np

import moregpu

TOKENS, WIDTH, HEADS = 64, 96, 4


def block(pool, x, weights):
    """Give x + projection(attention(layernorm(x)))."""
    normal = pool.layernorm(x)
    query, key, value = (pool.linear(normal, weights[name]) for name in ("query", "key", "value"))
    wide = WIDTH // HEADS
    heads = [
        pool.attention(query[:, here], key[:, here], value[:, here], causal=True)
        for here in (slice(head * wide, (head + 1) * wide) for head in range(HEADS))
    ]
    return pool.vector_add(x, pool.linear(np.concatenate(heads, axis=1), weights["out"]))


def block_here(x, weights):
    """The same in NumPy."""
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    query, key, value = (normal @ weights[name] for name in ("query", "key", "value"))
    wide = WIDTH // HEADS
    heads = []
    for head in range(HEADS):
        here = slice(head * wide, (head + 1) * wide)
        scores = np.where(np.tri(len(x), dtype=bool), query[:, here] @ key[:, here].T / np.sqrt(wide), -np.inf)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        heads.append(shares / shares.sum(1, keepdims=True) @ value[:, here])
    return x + np.concatenate(heads, axis=1) @ weights["out"]


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    x = rng.standard_normal((TOKENS, WIDTH), dtype=np.float32)
    weights = {
        name: rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / np.sqrt(WIDTH, dtype=np.float32)
        for name in ("query", "key", "value", "out")
    }
    with moregpu.connect() as pool:
        error = np.abs(block(pool, x, weights) - block_here(x, weights)).max()
    print(f"largest difference to NumPy: {error:.1e}")
    assert error < 1e-3
