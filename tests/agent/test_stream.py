"""Events from a run to its receiver."""

from __future__ import annotations

import asyncio
import threading

from skillbelt.agent import RunOutput, TextDelta
from skillbelt.agent.stream import EventStream, start_task, wait_shielded


def test_events_come_in_their_order_and_end() -> None:
    async def main() -> list[object]:
        stream = EventStream()
        for text in "abc":
            await stream.send(TextDelta(text))
        stream.end()
        return [await stream.next() for _ in range(4)]

    assert asyncio.run(main()) == [TextDelta("a"), TextDelta("b"), TextDelta("c"), None]


def test_whoever_tells_waits_for_whoever_listens() -> None:
    async def main() -> int:
        stream = EventStream()
        told = 0

        async def teller() -> None:
            nonlocal told
            for _ in range(1_000):
                await stream.send(TextDelta("x"))
                told += 1

        task = start_task(teller())
        for _ in range(50):
            await asyncio.sleep(0)
        waiting = told
        for _ in range(1_000):
            await stream.next()
        await task
        return waiting

    assert asyncio.run(main()) == 256


def test_threads_can_tell_too() -> None:
    async def main() -> object:
        stream = EventStream()
        threading.Thread(target=stream.send_threadsafe, args=(TextDelta("x"),)).start()
        return await asyncio.wait_for(stream.next(), 30)

    assert asyncio.run(main()) == TextDelta("x")


def test_output_that_nobody_takes_is_bounded() -> None:
    async def main() -> int:
        stream = EventStream()
        for _ in range(5):
            stream.send_threadsafe(RunOutput("c", "stdout", b"x" * 2**19))
        await asyncio.sleep(0)
        stream.end()
        count = 0
        while await stream.next() is not None:
            count += 1
        stream.send_threadsafe(RunOutput("c", "stdout", b"y" * 2**20))  # there is room again
        return count + (await stream.next() is not None)

    assert asyncio.run(main()) == 3


def test_nobody_is_told_when_the_loop_is_closed() -> None:
    async def main() -> EventStream:
        return EventStream()

    asyncio.run(main()).send_threadsafe(TextDelta("x"))


def test_who_waits_for_an_end_is_not_cancelled_meanwhile() -> None:
    async def main() -> bool:
        ended = asyncio.Event()

        async def slow() -> None:
            await asyncio.sleep(0.05)
            ended.set()

        work = start_task(slow())
        waiter = start_task(wait_shielded([work]))
        await asyncio.sleep(0)
        import anyio

        with anyio.move_on_after(0):
            await wait_shielded([work])
        await waiter
        return ended.is_set()

    assert asyncio.run(main())
