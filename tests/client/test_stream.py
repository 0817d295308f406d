"""One stream, read by `for` and by `async for`."""

from __future__ import annotations

import asyncio
import threading

import pytest

from moregpu.client.stream import Stream


def fed_by_a_thread(count: int, error: Exception | None = None) -> Stream[int]:
    stream = Stream[int]()

    def feed() -> None:
        for number in range(count):
            stream.put(number)
        stream.end(error)

    threading.Thread(target=feed).start()
    return stream


def test_a_loop_reads_all_in_order() -> None:
    assert list(fed_by_a_thread(1000)) == list(range(1000))


def test_a_coroutine_reads_all_in_order() -> None:
    async def read() -> list[int]:
        return [number async for number in fed_by_a_thread(1000)]

    assert asyncio.run(read()) == list(range(1000))


def test_an_error_comes_after_what_came_before_it() -> None:
    seen: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        seen.extend(fed_by_a_thread(3, ValueError("broken")))
    stream = fed_by_a_thread(3, ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        for number in stream:
            seen.append(number)
    assert seen[-3:] == [0, 1, 2]


def test_a_coroutine_that_gives_up_loses_nothing_for_the_next_reader() -> None:
    stream = Stream[int]()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)

    asyncio.run(give_up())
    stream.put(7)
    stream.end()
    assert list(stream) == [7]


def test_leaving_early_says_so() -> None:
    left: list[bool] = []
    stream = Stream[int](lambda: left.append(True))
    stream.put(1)
    assert next(stream) == 1
    stream.close()
    assert left == [True]
    assert list(stream) == []
