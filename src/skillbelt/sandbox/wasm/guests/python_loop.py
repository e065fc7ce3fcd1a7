"""The Python host's event loop: it waits for time alone, since nothing else can wake a guest."""

import asyncio
import time
from asyncio import base_events, events, unix_events
from collections.abc import Callable
from typing import Any


class _Clock:
    """What a loop takes for a selector."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is left that could wake the event loop")
        if timeout > 0:
            time.sleep(timeout)
        return []


class Loop(base_events.BaseEventLoop):
    """An event loop without sockets, signals and threads."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Clock()

    def _process_events(self, event_list: list[Any]) -> None:
        """None ever come."""

    def _write_to_self(self) -> None:
        """There is no other thread that would wait."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        """Called at once: there are no threads."""
        done = self.create_future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


class _Policy(unix_events._DefaultEventLoopPolicy):  # type: ignore[name-defined,misc]
    _loop_factory = Loop


def install() -> None:
    """Let asyncio make such loops."""
    library: Any = events
    library._event_loop_policy = _Policy()
