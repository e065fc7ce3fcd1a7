"""Methods as coroutines: files and the store are used in a thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from skillbelt.settings import Settings

if TYPE_CHECKING:
    from anyio import CapacityLimiter
    from anyio.lowlevel import RunVar

# Tool calls that run or wait for permission; each takes a thread.
MAX_PARALLEL_CALLS = 1_000

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


def _anyio() -> Any:
    import anyio.lowlevel  # cost: 40 ms with asyncio, only for coroutines

    return anyio


def _limiter(most: int) -> CapacityLimiter:
    """Return the limiter of this event loop, for our calls alone: some wait for a person."""
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
