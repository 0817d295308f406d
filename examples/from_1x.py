"""Coming from MoreGPU 1.x: what you have goes on working; what replaces it is shorter.

MOREGPU_BASE=https://127.0.0.1:8787 MOREGPU_ADMIN_TOKEN=… python examples/from_1x.py
"""

import os

import numpy as np

import moregpu
from moregpu import MoreGPU

# As before: flat lists, base64 inside, the calls of 1.x. The token may be a whole MGPUC1- line now, which pins the
# certificate; a bare token takes SSL_CERT_FILE=cert.pem as before.
base = os.environ.get("MOREGPU_BASE", "https://127.0.0.1:8787")
old = MoreGPU(base, os.environ["MOREGPU_ADMIN_TOKEN"])
print("1.x:", old.matmul([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], M=2, N=2, K=3))
print("1.x:", old.run("relu", [-1, 2, -3, 4])["output_decoded"])
print("1.x:", old.submit("matmul", 64)["verified"])

# Now: arrays of any shape and size, no base64, errors that say what to do.
with moregpu.connect() as pool:
    print("2.0:", pool.matmul(np.array([[1, 2, 3], [4, 5, 6]]), np.array([[7, 8], [9, 10], [11, 12]])).tolist())
    print("2.0:", pool.relu([-1, 2, -3, 4]).tolist())
    print("2.0:", pool.benchmark("matmul", 64).wait().checked)
