"""Runs agents: a message goes in, events come out, the session remembers."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import weakref
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from functools import wraps
from typing import Concatenate, ParamSpec, Self, cast

from anyio import CancelScope

from skillbelt.agent.agents import Agent, HostTool
from skillbelt.agent.events import AgentEvent, Final
from skillbelt.agent.files import attached, message_with, rules_for
from skillbelt.agent.history import Place
from skillbelt.agent.loop import Turn
from skillbelt.agent.models import OFFLINE, Model, Provided, provided
from skillbelt.agent.stream import MAX_UNREAD_EVENTS, Channel, begun, settled
from skillbelt.agent.tool_results import Own
from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError
from skillbelt.permission.rules import Answer, Rule
from skillbelt.running.following import Watch
from skillbelt.runtime.runtime import APP
from skillbelt.store import SessionKey, Store
from skillbelt.tools.schema import Tool, ToolResult

_Given = ParamSpec("_Given")
_BUSY = "another run goes on in this session; wait for its end, or end it"
_END_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_ROOM_SECONDS = 0.01  # between looks whether somebody has taken an event
# The sessions that a run of this process writes to right now.
_ACTIVE: set[tuple[int, SessionKey]] = set()
_LOCK = threading.Lock()


def _in_thread(
    method: Callable[Concatenate[Runner, _Given], AsyncGenerator[AgentEvent, None]],
) -> Callable[Concatenate[Runner, _Given], Generator[AgentEvent, None, None]]:
    """The method for code that has no event loop: one of the runner's own runs in a thread.

    Whoever stops iterating, or is interrupted, ends the run before they go on.
    """

    @wraps(method)
    def iterate(
        self: Runner, /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> Generator[AgentEvent, None, None]:
        found: queue.SimpleQueue[AgentEvent | None] = queue.SimpleQueue()
        begins = threading.Event()
        most = max(MAX_UNREAD_EVENTS, 1)

        async def pump() -> None:
            begins.set()
            try:
                async with aclosing(method(self, *args, **kwargs)) as events:
                    async for event in events:
                        found.put(event)
                        while found.qsize() >= most:
                            await asyncio.sleep(_ROOM_SECONDS)
            finally:
                found.put(None)

        task, ended = self._loop().begin(pump()), False
        try:
            while (event := _next(found)) is not None:
                yield event
            ended = True
            task.result()
        finally:
            # Where the interpreter ends there is no thread any more that could answer.
            if not ended and not sys.is_finalizing():
                begins.wait(_END_SECONDS)
                task.cancel()
                with suppress(queue.Empty):
                    while found.get(timeout=_END_SECONDS) is not None:
                        pass

    return iterate


def _next(found: queue.SimpleQueue[AgentEvent | None]) -> AgentEvent | None:
    """The next event. An interrupt that comes just before the wait is seen soon as well."""
    while True:
        with suppress(queue.Empty):
            return found.get(timeout=_LOOK_SECONDS)


class _Loop:
    """An event loop in a thread that keeps no program from ending."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._running = self._runner.get_loop()
        self._running.set_exception_handler(_reported)
        self.thread = threading.Thread(target=self._run, name="skillbelt-runner", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with self._runner:
            self._running.run_forever()

    def begin(self, work: Coroutine[object, object, None]) -> Future[None]:
        """The work as a task there; cancelling what this gives cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._running)

    def stop(self) -> None:
        """End what still goes on, and the thread."""
        with suppress(RuntimeError):
            self._running.call_soon_threadsafe(self._running.stop)


def _reported(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Say what went wrong unheard; not of streams that a provider's client left half read."""
    if "asyncgen" not in context:
        loop.default_exception_handler(context)


class Runner:
    """Runs an agent in any number of sessions, which a store keeps; the runtime's own by default.

    With `interactive`, requests for permission that no rule decides wait until they are answered
    with `answer`; without, they are told, and whoever else may answer does.
    """

    def __init__(
        self,
        agent: Agent,
        store: Store | None = None,
        *,
        interactive: bool = False,
        app: str = APP,
    ) -> None:
        self.agent, self.interactive, self._app = agent, interactive, app
        self.store: Store = agent.runtime.store if store is None else store
        self._models: dict[object, Model] = {}
        self._own_loop: _Loop | None = None

    async def run(
        self,
        user: str,
        session: str,
        message: str,
        *,
        files: Sequence[str | os.PathLike[str]] = (),
    ) -> AsyncGenerator[AgentEvent, None]:
        """What happens until the message is answered, as it happens; a Final comes last.

        What a model does wrong never raises. ConfigError: the model can not be used at all, or a
        file is not there. Whoever stops iterating ends the run; what was whole by then is kept.
        """
        given = attached(files, self.agent.runtime.settings.limits)
        said = message_with(message, given)
        async with aclosing(self._played(user, session, said, rules_for(given))) as events:
            async for event in events:
                yield event

    async def resume(self, user: str, session: str) -> AsyncGenerator[AgentEvent, None]:
        """Go on where a run was cut off: by a crash, a limit, or a model that could not be had."""
        async with aclosing(self._played(user, session, None, ())) as events:
            async for event in events:
                yield event

    run_sync = _in_thread(run)
    resume_sync = _in_thread(resume)

    def answer(self, id: str, answer: Answer) -> bool:
        """Answer a request for permission; False when it waits no more."""
        return self.agent.runtime.gate.desk.answer(id, answer)

    async def _played(
        self, user: str, session: str, message: Message | None, rules: Iterable[Rule]
    ) -> AsyncGenerator[AgentEvent, None]:
        key = SessionKey(self._app, user, session)
        with _alone(self.store, key) as alone:
            if not alone:
                yield Final("", "error", _BUSY)
                return
            agent = self.agent._replace(rules=(*self.agent.rules, *rules))
            channel = Channel(agent.runtime.settings.limits)
            turn = Turn(
                Place(agent, self.store, key), self._outfit, channel, answered=self.interactive
            )
            # Ended through a scope of its own, so that no thread is left in the middle of a write.
            scope = CancelScope()
            task = begun(_ending(turn, message, channel, scope))
            try:
                while (event := await channel.next()) is not None:
                    yield event
            finally:
                if not task.done():
                    scope.cancel()
                    await settled([task])
            task.result()

    # Models and tools

    def _outfit(self, place: Place) -> tuple[Model, Mapping[str, tuple[Tool, Own]]]:
        """What an agent works with in a place."""
        agent = place.agent
        _check_names(agent)
        own = {tool.name: (tool.offered(), _host_tool(tool)) for tool in agent.tools}
        if agent.model == OFFLINE:
            from skillbelt.agent.offline import Offline

            model = Offline(place)
            return model, {**own, **model.tools}
        return self._model(agent), own

    def _model(self, agent: Agent) -> Model:
        """The model of an agent, made once."""
        name = agent.model if isinstance(agent.model, str) else id(agent.model)
        key = (name, id(agent.settings))
        if key not in self._models:
            wanted, limits = agent.model, agent.runtime.settings.limits
            if isinstance(wanted, str):
                self._models[key] = provided(wanted, agent.settings, limits)
            elif hasattr(wanted, "ask"):
                self._models[key] = cast(Model, wanted)
            else:
                self._models[key] = Provided(wanted, agent.settings, limits)
        return self._models[key]

    # The loop of those who have none

    def _loop(self) -> _Loop:
        if self._own_loop is None:
            self._own_loop = made = _Loop()
            weakref.finalize(self, made.stop).atexit = False
        return self._own_loop

    def close(self) -> None:
        """Let go of what runs were made with; the runtime stays open."""
        if self._own_loop is not None:
            loop, self._own_loop = self._own_loop, None
            loop.stop()
            loop.thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _ending(
    turn: Turn, message: Message | None, channel: Channel, scope: CancelScope
) -> None:
    try:
        with scope:
            await turn.play(message)
    finally:
        channel.end()


@contextmanager
def _alone(store: Store, key: SessionKey) -> Iterator[bool]:
    """Whether no other run of this process writes to the session; none does until this ends."""
    mine = (id(store), key)
    with _LOCK:
        alone = mine not in _ACTIVE
        _ACTIVE.add(mine)
    try:
        yield alone
    finally:
        if alone:
            with _LOCK:
                _ACTIVE.discard(mine)


def _check_names(agent: Agent) -> None:
    """ConfigError when two tools would have one name."""
    names = [*agent.runtime.names.values(), *(tool.name for tool in agent.tools)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"tools: there are two tools named {twice[0]!r}; name yours otherwise")


def _host_tool(tool: HostTool) -> Own:
    def call(arguments: dict[str, object], _watch: Watch) -> ToolResult:
        return ToolResult(str(tool.function(arguments)))

    return call
