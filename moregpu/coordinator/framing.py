"""WebSocket frames as nearly all of them are: one whole message each. A library reads and says the rest.

Its own way through a frame of a few hundred bytes (a generator, a dataclass, a state machine) takes several times what
the bytes do.
"""

from __future__ import annotations

from websockets.frames import apply_mask as apply_mask  # pyright: ignore[reportPrivateImportUsage] — in C where built

BINARY = 0x82
"""First byte of a frame that is one whole binary message; a client's second is `MASKED` and the length."""
TEXT = 0x81
MASKED = 0x80


def head(size: int, first: int = BINARY) -> bytes:
    """What stands before a message of `size` bytes that a server says."""
    if size < 126:
        return bytes((first, size))
    if size < 1 << 16:
        return bytes((first, 126, size >> 8, size & 255))
    return bytes((first, 127)) + size.to_bytes(8, "big")


def whole_messages(data: bytes) -> tuple[list[bytes], bytes, bool]:
    """Binary messages of a client at the beginning of `data`, what is left, and whether that is anything else.

    Else it is the beginning of another such message. None is longer than 65,535 bytes.
    """
    messages: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        if data[at] != BINARY:
            return messages, data[at:], True
        size = data[at + 1] - MASKED if end - at >= 2 else 0
        begin = at + 6
        if size == 126 and end - at >= 4:
            size, begin = data[at + 2] << 8 | data[at + 3], at + 8
        elif not 0 <= size <= 126:  # longer than any message may be, or not masked
            return messages, data[at:], True
        if end < begin + size:
            break
        messages.append(apply_mask(data[begin : begin + size], data[begin - 4 : begin]))
        at = begin + size
    return messages, data[at:], False
