"""What the command of a call prints, told while it prints it; and its end when the call is ended.

A sandbox tells of output from a thread of its own. Frameworks are told in the loop, in the task
that makes the call, where their own ways of streaming work.
"""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from skillbelt.running.following import Watch
from skillbelt.sandbox.protocol import Running, Stream
from skillbelt.values import Limits

# Output that the framework has not taken; more is not streamed.
MAX_UNREAD_BYTES = 2**20
# A cancelled call waits so long for its command to end.
CANCEL_TIMEOUT_SECONDS = 10.0

_DEFAULT = Limits()
_Result = TypeVar("_Result")


class Output(NamedTuple):
    """A piece of what the command of a call prints."""

    tool: str
    call_id: str
    stream: Stream
    text: str


Tell = Callable[[Stream, str], Awaitable[object] | object]


class Follower:
    """Follows the command of one call, from any thread. `take` is given text that is whole."""

    def __init__(self, take: Callable[[Stream, str], object] | None) -> None:
        self._take = take
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._unwanted = False
        self._error: BaseException | None = None
        self.watch = Watch(self._listen if take else None, self._started)

    def kill(self) -> bool:
        """End the command, now or once it starts; whether it was running."""
        with self._lock:
            self._unwanted, running = True, self._running
        if running is not None:
            running.kill()
        return running is not None

    def end(self) -> None:
        """Nothing more comes. Raises what whoever was told raised."""
        for stream in ("stdout", "stderr"):
            self._listen(stream, b"", final=True)
        if self._error is not None:
            raise self._error

    def _started(self, running: Running) -> None:
        with self._lock:
            self._running, unwanted = running, self._unwanted
        if unwanted:
            running.kill()

    def _listen(self, stream: Stream, data: bytes, final: bool = False) -> None:
        text = self._decoders[stream].decode(data, final)
        if not text or self._take is None or self._error is not None:
            return
        try:
            self._take(stream, text)
        except BaseException as error:  # it would end a thread of the sandbox
            self._error = error
            self.kill()


class _Pieces:
    """Output on its way from a thread to the loop.

    What is too far ahead is left out; the result has the beginning anyway.
    """

    def __init__(self, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[Stream, str] | None] = asyncio.Queue()
        self._lock, self._most, self._ahead = threading.Lock(), most, 0

    def put(self, stream: Stream, text: str) -> None:
        size = len(text.encode())
        with self._lock:
            if self._ahead + size > self._most:
                return
            self._ahead += size
        self._post((stream, text))

    def end(self) -> None:
        self._post(None)

    def _post(self, piece: tuple[Stream, str] | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    async def next(self) -> tuple[Stream, str] | None:
        piece = await self._queue.get()
        if piece is not None:
            with self._lock:
                self._ahead -= len(piece[1].encode())
        return piece


def followed_sync(work: Callable[[Watch], _Result], tell: Tell | None) -> _Result:
    """What the work gives; what it prints is told meanwhile, in a thread of the sandbox's."""
    follower = Follower(tell)
    result = work(follower.watch)
    follower.end()
    return result


async def followed(
    work: Callable[[Watch], Coroutine[Any, Any, _Result]],
    tell: Tell | None,
    limits: Limits = _DEFAULT,
) -> _Result:
    """What the work gives; what it prints is told meanwhile, here. Cancelling it ends it."""
    pieces = _Pieces(MAX_UNREAD_BYTES)
    follower = Follower(pieces.put if tell else None)
    task = asyncio.get_running_loop().create_task(work(follower.watch))
    task.add_done_callback(lambda done: _over(done, follower, pieces))
    try:
        while (piece := await pieces.next()) is not None:
            told = tell(*piece) if tell else None
            if isinstance(told, Awaitable):
                await told
        return await task
    except BaseException:
        if follower.kill():
            await _settled(task, CANCEL_TIMEOUT_SECONDS)
        raise


def _over(done: asyncio.Task[Any], follower: Follower, pieces: _Pieces) -> None:
    follower.end()
    pieces.end()
    if not done.cancelled():
        done.exception()  # whoever waits for it raises it; nobody may wait any more


async def _settled(task: asyncio.Task[Any], seconds: float) -> None:
    """Wait until it has ended, however often whoever waits is cancelled meanwhile."""
    from anyio import CancelScope

    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    with CancelScope(shield=True):  # of anyio's own scopes, which cancel all the time
        while not task.done() and loop.time() < end:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=end - loop.time())
