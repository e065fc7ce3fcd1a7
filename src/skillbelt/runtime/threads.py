"""Methods as coroutines: files and the store are used in a worker thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from skillbelt.running.following import Follower, Watch
from skillbelt.sandbox.protocol import Running
from skillbelt.settings import Settings

if TYPE_CHECKING:
    from anyio import CapacityLimiter
    from anyio.lowlevel import RunVar

# Concurrent tool calls that run or wait for permission; each takes a thread.
MAX_PARALLEL_CALLS = 1_000
# How long a cancelled call waits for its commands to end.
CANCEL_TIMEOUT_SECONDS = 10.0

_FOLLOWER: ContextVar[Follower | None] = ContextVar("skillbelt_follower", default=None)

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class _Bounded(Protocol):
    @property
    def settings(self) -> Settings: ...


_Self = TypeVar("_Self", bound=_Bounded)


def in_thread(
    method: Callable[Concatenate[_Self, _Given], _Result],
) -> Callable[Concatenate[_Self, _Given], Coroutine[Any, Any, _Result]]:
    """Return the method as a coroutine that runs it in a thread."""

    @wraps(method)
    async def call(self: _Self, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        limiter = _limiter(MAX_PARALLEL_CALLS)
        work = partial(method, self, *args, **kwargs)
        done: _Result = await _anyio().to_thread.run_sync(work, limiter=limiter)
        return done

    return call


def cancelling(
    method: Callable[Concatenate[_Self, _Given], _Result],
) -> Callable[Concatenate[_Self, _Given], Coroutine[Any, Any, _Result]]:
    """Return the method as a coroutine; cancelling it kills the commands that it runs.

    The method passes its watch through `followed`. A cancelled call waits for the end of its
    commands, at most CANCEL_TIMEOUT_SECONDS; commands that have not started do not start.
    """

    @wraps(method)
    async def call(self: _Self, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        anyio, follower = _anyio(), Follower()
        ended, done = anyio.Event(), threading.Event()

        def work() -> _Result:
            _FOLLOWER.set(follower)  # in this call's own copy of the context
            try:
                return method(self, *args, **kwargs)
            finally:
                done.set()
                if follower.killed:
                    with suppress(RuntimeError):  # the loop has ended
                        anyio.from_thread.run_sync(ended.set)

        limiter, run = _limiter(MAX_PARALLEL_CALLS), anyio.to_thread.run_sync
        try:
            result: _Result = await run(work, limiter=limiter, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            if follower.kill() and not done.is_set():
                with anyio.move_on_after(CANCEL_TIMEOUT_SECONDS, shield=True):
                    await ended.wait()
            raise
        return result

    return call


def followed(watch: Watch) -> Watch:
    """Return the watch of a call; cancelling a coroutine of `cancelling` also ends its run."""
    follower = _FOLLOWER.get()
    if follower is None:
        return watch

    def note_start(running: Running) -> None:
        if follower.watch.started:
            follower.watch.started(running)
        if watch.started:
            watch.started(running)

    return watch._replace(started=note_start, is_over=lambda: follower.killed)


def _anyio() -> Any:
    import anyio.lowlevel  # cost: 40 ms with asyncio, only for coroutines

    return anyio


def _limiter(most: int) -> CapacityLimiter:
    """Return this event loop's own limiter for our calls: some wait for a person."""
    held = _limiter_variable()
    try:
        return held.get()
    except LookupError:
        held.set(_anyio().CapacityLimiter(most))
        return held.get()


@lru_cache(maxsize=1)
def _limiter_variable() -> RunVar[CapacityLimiter]:
    held: RunVar[CapacityLimiter] = _anyio().lowlevel.RunVar("skillbelt_calls")
    return held
