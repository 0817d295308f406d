"""A tiny language model from the pool's primitives: it learns which letter follows two others, and writes.

The model is a product of counted features with a matrix of weights, trained by gradient descent; every product, forward
and backward, is a job of the pool, checked and signed like any other.

python examples/language_model.py
"""

import numpy as np

import moregpu

TEXT = "the pool holds the work and the workers hold the pool " * 6
LETTERS = sorted(set(TEXT))
STEPS, RATE = 12, 20.0


def features(pair):
    """Two letters as a row of zeros and two ones."""
    row = np.zeros(2 * len(LETTERS), np.float32)
    for place, letter in enumerate(pair):
        row[place * len(LETTERS) + LETTERS.index(letter)] = 1.0
    return row


inputs = np.stack([features(TEXT[i : i + 2]) for i in range(len(TEXT) - 2)])
targets = np.eye(len(LETTERS), dtype=np.float32)[[LETTERS.index(letter) for letter in TEXT[2:]]]
weights = np.zeros((inputs.shape[1], len(LETTERS)), np.float32)
losses = []

with moregpu.connect() as pool:
    turned = pool.put("language-model/inputs", np.ascontiguousarray(inputs.T))  # used in every step: sent once
    for _ in range(STEPS):
        chances = pool.softmax(pool.matmul(inputs, weights))
        losses.append(float(-np.log((chances * targets).sum(1) + 1e-9).mean()))
        gradient = pool.matmul(turned, (chances - targets) / np.float32(len(inputs)))
        weights = pool.saxpy(-RATE, gradient, weights)
    pool.drop("language-model/inputs")
    written = "th"
    for _ in range(20):
        written += LETTERS[int(pool.matmul(features(written[-2:])[None], weights).argmax())]

print("loss", " → ".join(f"{loss:.2f}" for loss in (losses[0], losses[-1])))
print("it writes:", written)
assert losses[-1] < losses[0] / 2
