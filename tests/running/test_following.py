"""Following a run: a queue for an event loop, and the end of what is followed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from skillbelt.running.following import Decoder, Follower
from skillbelt.running.loop_queue import LoopQueue
from skillbelt.sandbox.protocol import Outcome


class Command:
    """A command that can be killed."""

    killed = False

    def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def wait(self, timeout_seconds: float | None = None) -> Outcome | None: ...

    def kill(self) -> None:
        self.killed = True


def test_commands_are_killed_now_and_once_they_start() -> None:
    follower, commands = Follower(), [Command(), Command()]
    assert follower.watch.listener is None and follower.watch.started is not None
    follower.watch.started(commands[0])
    assert follower.kill()
    follower.watch.started(commands[1])
    assert all(one.killed for one in commands)


def test_a_callback_that_fails_ends_the_command() -> None:
    def fail(stream: str, data: bytes) -> None:
        raise KeyError(data)

    follower, command = Follower(fail), Command()
    assert follower.watch.listener is not None and follower.watch.started is not None
    follower.watch.started(command)
    follower.check()
    follower.watch.listener("stdout", b"one")
    follower.watch.listener("stdout", b"two")
    assert command.killed
    with pytest.raises(KeyError, match="one"):
        follower.check()


def test_each_stream_is_decoded_by_itself() -> None:
    texts: list[tuple[str, str]] = []
    decoder = Decoder(lambda stream, text: texts.append((stream, text)))
    decoder("stdout", b"a\xc3")
    decoder("stderr", b"\xa4")
    decoder("stdout", b"\xa4")
    decoder("stdout", b"\xc3")
    decoder.end()
    assert texts == [("stdout", "a"), ("stderr", "\ufffd"), ("stdout", "ä"), ("stdout", "\ufffd")]


def test_a_queue_keeps_the_order_of_threads_and_of_the_loop() -> None:
    async def main() -> list[int]:
        queue: LoopQueue[int] = LoopQueue(10)
        queue.put(1)
        thread = threading.Thread(target=queue.put, args=(2,))
        thread.start()
        thread.join()
        queue.put(3)
        assert (len(queue), queue.peek()) == (3, 1)
        return [await queue.next() for _ in range(3)]

    assert asyncio.run(main()) == [1, 2, 3]


def test_a_queue_drops_and_counts_output_that_nobody_reads() -> None:
    async def main() -> None:
        queue: LoopQueue[str] = LoopQueue(10)
        queue.put("larger than the limit, but nothing waits", 40)
        queue.put("dropped", 4)
        queue.put("an event without a size")
        assert len(queue) == 2
        assert (queue.take_dropped(), queue.take_dropped()) == (4, 0)
        await queue.next()
        queue.put("there is room again", 4)
        assert [await queue.next() for _ in range(2)][1] == "there is room again"

    asyncio.run(main())


def test_a_closed_loop_has_no_reader() -> None:
    async def main() -> LoopQueue[int]:
        return LoopQueue(10)

    asyncio.run(main()).put(1)
