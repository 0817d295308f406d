"""A convolution as one product: the windows of the image become rows (im2col), the filters columns.

python examples/convolution.py
"""

import numpy as np

import moregpu


def convolve(pool, images, filters):
    """Take images (N, C, H, W), filters (F, C, kh, kw) → (N, F, H − kh + 1, W − kw + 1), cross-correlated."""
    count, _, kh, kw = filters.shape
    windows = np.lib.stride_tricks.sliding_window_view(images, (kh, kw), axis=(2, 3))
    number, _, high, wide = windows.shape[:4]
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(number * high * wide, -1)
    product = pool.matmul(rows, filters.reshape(count, -1).T)
    return product.reshape(number, high, wide, count).transpose(0, 3, 1, 2)


if __name__ == "__main__":
    rng = np.random.default_rng(3)
    images = rng.standard_normal((4, 3, 32, 32), dtype=np.float32)
    filters = rng.standard_normal((8, 3, 5, 5), dtype=np.float32)
    with moregpu.connect() as pool:
        found = convolve(pool, images, filters)
    windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(2, 3))
    wanted = np.einsum("nchwij,fcij->nfhw", windows, filters)
    print("shape", found.shape, "largest difference to NumPy:", f"{np.abs(found - wanted).max():.1e}")
    assert np.allclose(found, wanted, atol=1e-3)
