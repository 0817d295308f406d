"""How a process that is a coordinator, and nothing else, sets up its interpreter and its memory.

Not for a coordinator inside another program: these settings are the whole process's.
"""

from __future__ import annotations

import os
import sys

from moregpu.platform import memory

SWITCH_S = 0.0005
"""The writer thread takes the interpreter lock once a row; at Python's 5 ms it waits for a busy loop row after row.
Measured under 16 submitters: a commit took 4.3 ms of wall time, and 1.6 so."""

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def prepare() -> None:
    """Before NumPy is imported: checks run side by side on threads of their own, so each uses one for its products.

    (Two products of two threads each on two cores wait for each other, spinning: measured 1.3 times slower.) What the
    environment says already stays.
    """
    for name in BLAS_VARIABLES:
        os.environ.setdefault(name, "1")
    memory.one_arena()  # 101 MB stay after products and bulk data were checked, where 101 to 230 did
    memory.keep_until_trimmed()  # the offload trims when it rests


def settle() -> None:
    """Once everything is imported."""
    sys.setswitchinterval(SWITCH_S)
    memory.settle()
