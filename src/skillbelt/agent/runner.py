"""Run agents: take a message, yield events, store the session."""

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
from functools import partial, wraps
from typing import Concatenate, ParamSpec, Self, cast

from anyio import CancelScope

from skillbelt.agent.agents import Agent, HostTool
from skillbelt.agent.events import AgentEvent, Final, Usage
from skillbelt.agent.files import attach_files, message_with, rules_for
from skillbelt.agent.history import AgentContext
from skillbelt.agent.leases import BUSY, TurnLease
from skillbelt.agent.loop import Turn
from skillbelt.agent.models import EXTRA, OFFLINE, Model
from skillbelt.agent.offline import Offline
from skillbelt.agent.stream import MAX_UNREAD_EVENTS, EventStream, start_task, wait_shielded
from skillbelt.agent.tool_calls import HostHandler
from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError, LeaseLost, MissingExtra
from skillbelt.permission.rules import Answer, Rule
from skillbelt.running.following import Watch
from skillbelt.runtime.runtime import APP
from skillbelt.store import SessionKey, Store
from skillbelt.text import one_line
from skillbelt.tools.schema import Tool, ToolResult

_Given = ParamSpec("_Given")
_END_SECONDS = 30.0
_POLL_SECONDS = 0.5
_FULL_POLL_SECONDS = 0.01  # while the queue of unread events is full
# The sessions with an active run in this process.
_ACTIVE: set[tuple[int, SessionKey]] = set()
_LOCK = threading.Lock()


def _in_thread(
    method: Callable[Concatenate[Runner, _Given], AsyncGenerator[AgentEvent, None]],
) -> Callable[Concatenate[Runner, _Given], Generator[AgentEvent, None, None]]:
    """Turn the method into a generator for code without an event loop: it runs in a thread.

    Closing the generator, or an interrupt, cancels the run and waits for its end.
    """

    @wraps(method)
    def iterate(
        self: Runner, /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> Generator[AgentEvent, None, None]:
        found: queue.SimpleQueue[AgentEvent | None] = queue.SimpleQueue()
        started = threading.Event()
        most = max(MAX_UNREAD_EVENTS, 1)

        async def pump() -> None:
            started.set()
            try:
                async with aclosing(method(self, *args, **kwargs)) as events:
                    async for event in events:
                        found.put(event)
                        while found.qsize() >= most:
                            await asyncio.sleep(_FULL_POLL_SECONDS)
            finally:
                found.put(None)

        task, ended = self._loop().start(pump()), False
        try:
            while (event := _poll_event(found)) is not None:
                yield event
            ended = True
            task.result()
        finally:
            # At interpreter shutdown the thread is gone and would not answer.
            if not ended and not sys.is_finalizing():
                started.wait(_END_SECONDS)
                task.cancel()
                with suppress(queue.Empty):
                    while found.get(timeout=_END_SECONDS) is not None:
                        pass

    return iterate


def _poll_event(found: queue.SimpleQueue[AgentEvent | None]) -> AgentEvent | None:
    """Return the next event; poll, so that an interrupt just before the wait is seen."""
    while True:
        with suppress(queue.Empty):
            return found.get(timeout=_POLL_SECONDS)


class _LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._running = self._runner.get_loop()
        self._running.set_exception_handler(_report)
        self.thread = threading.Thread(target=self._run, name="skillbelt-runner", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with self._runner:
            self._running.run_forever()

    def start(self, work: Coroutine[object, object, None]) -> Future[None]:
        """Start a task in the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._running)

    def stop(self) -> None:
        """Cancel what runs, and end the thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._running.call_soon_threadsafe(self._running.stop)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Report unhandled errors, except for streams that a provider's client did not close."""
    if "asyncgen" not in context:
        loop.default_exception_handler(context)


class Runner:
    """Runs an agent in any number of sessions of a store, by default that of the runtime.

    With `interactive`, permission requests that no rule decides wait for `answer`; without, they
    are only reported as events, and other listeners may answer them.
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
        self._own_loop: _LoopThread | None = None

    async def run(
        self,
        user: str,
        session: str,
        message: str,
        *,
        files: Sequence[str | os.PathLike[str]] = (),
        fence: str = "",
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer the message and yield the events; the last one is a Final.

        The files are attached to the message; with a `fence` they must lie in that folder.
        Mistakes of a model never raise. ConfigError: the model cannot be used, or a file is
        missing. Closing the generator cancels the run; complete steps stay stored.
        """
        attached = attach_files(files, self.agent.runtime.settings.limits, fence)
        content = message_with(message, attached)
        async with aclosing(self._run_turn(user, session, content, rules_for(attached))) as events:
            async for event in events:
                yield event

    async def resume(self, user: str, session: str) -> AsyncGenerator[AgentEvent, None]:
        """Resume a run that was interrupted by a crash, a limit or a model failure."""
        async with aclosing(self._run_turn(user, session, None, ())) as events:
            async for event in events:
                yield event

    async def compact(self, user: str, session: str) -> AsyncGenerator[AgentEvent, None]:
        """Replace the older part of a conversation by a summary, which the model writes."""
        work = self._run_turn(user, session, None, (), compact=True)
        async with aclosing(work) as events:
            async for event in events:
                yield event

    run_sync = _in_thread(run)
    resume_sync = _in_thread(resume)
    compact_sync = _in_thread(compact)

    def prepare(self) -> None:
        """Create the model now, so that the first message need not wait for its packages.

        ConfigError: the model cannot be used.
        """
        if self.agent.model != OFFLINE:
            self._model(self.agent)

    def price(self, usage: Usage) -> float | None:
        """Return the price of a request with that usage, in dollars; None if it is not known."""
        if self.agent.model == OFFLINE:
            return 0.0
        price = getattr(self._model(self.agent), "price", None)
        found = price(usage) if callable(price) else None
        return found if isinstance(found, float) else None

    def answer(self, id: str, answer: Answer) -> bool:
        """Answer a permission request; return False when it is not pending any more."""
        return self.agent.runtime.gate.desk.answer(id, answer)

    async def _run_turn(
        self,
        user: str,
        session: str,
        message: Message | None,
        rules: Iterable[Rule],
        *,
        compact: bool = False,
    ) -> AsyncGenerator[AgentEvent, None]:
        key = SessionKey(self._app, user, session)
        lease = TurnLease(self.store, key)
        with _lock_session(self.store, key) as locked:
            if not locked:
                yield Final("", "error", BUSY.format(where=""))
                return
            try:
                if refused := await lease.take():
                    yield Final("", "error", refused)
                    return
                agent = self.agent._replace(rules=(*self.agent.rules, *rules))
                start = Turn.run_compaction if compact else partial(Turn.run, message=message)
                async with aclosing(self._run_leased(agent, key, lease, start)) as events:
                    async for event in events:
                        yield event
            finally:
                await lease.release()

    async def _run_leased(
        self,
        agent: Agent,
        key: SessionKey,
        lease: TurnLease,
        start: Callable[[Turn], Coroutine[object, object, None]],
    ) -> AsyncGenerator[AgentEvent, None]:
        stream = EventStream()
        context = AgentContext(agent, self.store, key, lease=lease.number)
        turn = Turn(context, self._equip, stream, answered=self.interactive)
        # Cancelled through its own scope, so that no thread is left in the middle of a write.
        scope = CancelScope()
        keeping = start_task(lease.keep(scope.cancel))
        task = start_task(_run_in_scope(start(turn), stream, scope))
        ended = False
        try:
            while (event := await stream.next()) is not None:
                ended = isinstance(event, Final)
                yield event
        finally:
            keeping.cancel()
            if not task.done():
                scope.cancel()
                await wait_shielded([task])
        task.result()
        if lease.lost and not ended:
            yield Final("", "error", str(LeaseLost()))

    # Models and tools

    def _equip(self, context: AgentContext) -> tuple[Model, Mapping[str, tuple[Tool, HostHandler]]]:
        """Return the model and the host tools of an agent."""
        agent = context.agent
        _check_names(agent)
        own = {tool.name: (tool.offered(), _host_tool(tool)) for tool in agent.tools}
        if agent.model == OFFLINE:
            offline = Offline(context)
            return offline, {**own, **offline.tools}
        return self._model(agent), own

    def _model(self, agent: Agent) -> Model:
        """Return the model of an agent, created once."""
        name = agent.model if isinstance(agent.model, str) else id(agent.model)
        key = (name, id(agent.settings))
        if key not in self._models:
            self._models[key] = _create_model(agent)
        return self._models[key]

    # The loop for the synchronous methods

    def _loop(self) -> _LoopThread:
        if self._own_loop is None:
            self._own_loop = made = _LoopThread()
            weakref.finalize(self, made.stop).atexit = False
        return self._own_loop

    def close(self) -> None:
        """Stop the thread of the synchronous methods; the runtime stays open."""
        if self._own_loop is not None:
            loop, self._own_loop = self._own_loop, None
            loop.stop()
            loop.thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _run_in_scope(
    work: Coroutine[object, object, None], stream: EventStream, scope: CancelScope
) -> None:
    try:
        with scope:
            await work
    finally:
        stream.end()


@contextmanager
def _lock_session(store: Store, key: SessionKey) -> Iterator[bool]:
    """Lock the session for a run of this process; yield False when another run has it."""
    mine = (id(store), key)
    with _LOCK:
        locked = mine not in _ACTIVE
        _ACTIVE.add(mine)
    try:
        yield locked
    finally:
        if locked:
            with _LOCK:
                _ACTIVE.discard(mine)


def model_of(runner: Runner) -> Model:
    """Return the model of a runner's agent, created once; ConfigError if it cannot be used."""
    return runner._model(runner.agent)


def _create_model(agent: Agent) -> Model:
    wanted = agent.model
    if hasattr(wanted, "ask"):
        return cast(Model, wanted)
    try:
        from skillbelt.agent.provider import ProvidedModel, model_by_name  # extra: agent
    except ImportError as error:
        name = one_line(wanted) if isinstance(wanted, str) else type(wanted).__name__
        raise MissingExtra(EXTRA, f"the model {name!r}") from error
    if isinstance(wanted, str):
        return model_by_name(wanted, agent.settings)
    return ProvidedModel(wanted, agent.settings)


def _check_names(agent: Agent) -> None:
    """Raise ConfigError when two tools have the same name."""
    names = [*agent.runtime.names.values(), *(tool.name for tool in agent.tools)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"tools: there are two tools named {twice[0]!r}; rename yours")


def _host_tool(tool: HostTool) -> HostHandler:
    def call(arguments: dict[str, object], _watch: Watch) -> ToolResult:
        return ToolResult(str(tool.function(arguments)))

    return call
