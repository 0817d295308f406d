"""A small network of linear layers, whose inner layers never come back here: each job's output feeds the next.

python examples/small_mlp.py
"""

import itertools

import numpy as np

import moregpu

rng = np.random.default_rng(2)
WIDTHS = (784, 128, 64, 10)
layers = [
    (rng.standard_normal((wide, narrow), dtype=np.float32) / np.sqrt(wide, dtype=np.float32), np.zeros(narrow))
    for wide, narrow in itertools.pairwise(WIDTHS)
]
images = rng.random((256, 784), dtype=np.float32)

with moregpu.connect() as pool:
    logits = pool.mlp(images, layers, "relu")
    chances = pool.softmax(logits)

hidden = images
for number, (weight, bias) in enumerate(layers):
    hidden = (np.maximum(hidden, 0) if number else hidden) @ weight + bias
print("largest difference to NumPy:", f"{np.abs(logits - hidden).max():.1e}")
print("sums of the chances:", chances.sum(1).min().round(4), "to", chances.sum(1).max().round(4))
assert np.allclose(logits, hidden, atol=1e-3)
