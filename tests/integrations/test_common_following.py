"""Output from a call to its receiver, and commands that end with the call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from skillbelt.integrations.common import follow, follow_sync
from skillbelt.running.following import Follower, Watch
from skillbelt.sandbox.protocol import Outcome
from tests.bounds import bounds


class Command:
    """A command that can be ended."""

    def __init__(self) -> None:
        self.killed = threading.Event()

    def write(self, data: bytes) -> None: ...

    def close_stdin(self) -> None: ...

    def wait(self, timeout_seconds: float | None = None) -> Outcome | None:
        return None

    def kill(self) -> None:
        self.killed.set()


def printing(*pieces: bytes) -> Callable[[Watch], str]:
    def work(watch: Watch) -> str:
        for piece in pieces:
            if watch.listener is not None:
                watch.listener("stdout", piece)
        return "done"

    return work


def in_a_thread(work: Callable[[Watch], str]) -> Callable[[Watch], Coroutine[Any, Any, str]]:
    async def run(watch: Watch) -> str:
        return await anyio.to_thread.run_sync(work, watch)

    return run


def test_a_character_in_two_pieces_is_told_whole() -> None:
    told: list[str] = []
    work = printing("é".encode()[:1], "é".encode()[1:] + b"\n")
    assert follow_sync(work, lambda _stream, text: told.append(text)) == "done"
    assert told == ["é\n"]


def test_what_is_cut_off_is_told_at_the_end() -> None:
    told: list[tuple[str, str]] = []
    follow_sync(printing(b"a\xc3"), lambda stream, text: told.append((stream, text)))
    assert told == [("stdout", "a"), ("stdout", "\ufffd")]


def test_nobody_listens_where_nobody_is_told() -> None:
    assert Follower(None).watch.listener is None


def test_in_the_loop_all_is_told_in_order_before_the_result() -> None:
    told: list[str] = []

    async def tell(_stream: str, text: str) -> None:
        await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        told.append(text)

    async def main() -> str:
        result = await follow(in_a_thread(printing(b"one", b"two", b"\xc3")), tell)
        assert told == ["one", "two", "\ufffd"]
        return result

    assert anyio.run(main) == "done"


def test_what_nobody_takes_is_left_out() -> None:
    told: list[str] = []

    async def work(watch: Watch) -> None:
        assert watch.listener is not None
        for _ in range(5):
            watch.listener("stdout", b"four")

    async def main() -> None:
        bounds(max_unread_bytes=10)
        await follow(work, lambda _stream, text: told.append(text))

    anyio.run(main)
    assert told == ["four", "four"]


def test_what_the_call_raises_is_raised() -> None:
    async def work(_watch: Watch) -> None:
        raise ValueError("no")

    async def main() -> None:
        await follow(work, None)

    with pytest.raises(ValueError, match="no"):
        anyio.run(main)


def test_a_host_that_fails_to_listen_ends_the_command() -> None:
    command = Command()

    def work(watch: Watch) -> str:
        assert watch.listener is not None and watch.started is not None
        watch.started(command)
        watch.listener("stdout", b"one")
        watch.listener("stdout", b"two")
        return "done"

    def tell(_stream: str, text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError, match="one"):
        follow_sync(work, tell)
    assert command.killed.is_set()


def test_cancelling_ends_the_command_and_waits_for_it() -> None:
    command = Command()
    begun = threading.Event()
    ended: list[bool] = []

    def work(watch: Watch) -> str:
        assert watch.started is not None
        watch.started(command)
        begun.set()
        ended.append(command.killed.wait(150))
        return "done"

    async def main() -> None:
        task = asyncio.create_task(follow(in_a_thread(work), None))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    anyio.run(main)


def test_cancelling_twice_waits_all_the_same() -> None:
    begun, killed = asyncio.Event(), asyncio.Event()
    ended: list[bool] = []

    async def work(watch: Watch) -> None:
        command = Command()
        assert watch.started is not None
        watch.started(command)
        begun.set()
        while not command.killed.is_set():
            await asyncio.sleep(0.01)
        killed.set()
        await asyncio.sleep(0.1)
        ended.append(True)

    async def main() -> None:
        task = asyncio.create_task(follow(work, None))
        await begun.wait()
        task.cancel()
        await killed.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    anyio.run(main)


def test_a_command_that_starts_after_its_call_was_cancelled_is_ended() -> None:
    follower, command = Follower(None), Command()
    assert not follower.kill()
    assert follower.watch.started is not None
    follower.watch.started(command)
    assert command.killed.is_set()
