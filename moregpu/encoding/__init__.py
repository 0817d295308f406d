"""How arguments and results of functions travel: msgpack with typed extensions, arrays as raw bytes beside it.

`encode(value)` gives buffers (arrays are not copied), `decode(buffer)` gives the value back: tuples stay tuples, int
keys stay ints, arrays stay arrays. Nothing in here runs anything that the bytes name: bytes of a stranger give data, or
`Malformed`. `records` delimits the results of several calls, `failures` carries what a call raised.
"""

from __future__ import annotations

from moregpu.encoding.layout import MAX_DEPTH, Malformed, Unencodable, Unknown
from moregpu.encoding.reading import decode
from moregpu.encoding.writing import Buffers, encode, joined

__all__ = ["MAX_DEPTH", "Buffers", "Malformed", "Unencodable", "Unknown", "decode", "encode", "joined"]
