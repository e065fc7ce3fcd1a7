"""Code shared by all frameworks: the tools of one conversation, with skill texts in their answers.

A framework keeps its own history and sends it unchanged. So the text of a skill goes into that
history, as the answer to the call that loaded it. It stays there byte for byte: a prompt cache can
serve it, and a resumed history still has it. When the framework cuts that history, the text goes
into a separate message at the beginning of each request, which no history keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from anyio import CancelScope, to_thread

from skillbelt.conversation.messages import Message
from skillbelt.running.following import Decoder, Follower, Watch
from skillbelt.running.loop_queue import LoopQueue
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.schema import Tool, ToolResult, inline_names

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import Runtime, RuntimeSession

# The most conversations kept at one time; the least recently used is dropped first.
MAX_SERVED_SESSIONS = 1_000
# Output that the framework has not taken; more is not streamed.
MAX_UNREAD_BYTES = 2**20
# How long a cancelled call waits for its command to end.
CANCEL_TIMEOUT_SECONDS = 10.0

_NOTHING: Mapping[str, object] = MappingProxyType({})
_Result = TypeVar("_Result")
# Gets the output of a call; an awaitable that it returns is awaited.
Tell = Callable[[Stream, str], Awaitable[object] | object]


class ToolAnswer(NamedTuple):
    """The result of a call: a text for the model, whether it failed, facts for programs."""

    text: str
    failed: bool = False
    data: Mapping[str, object] = _NOTHING

    @property
    def kind(self) -> str:
        """The kind of error; empty for a call that succeeded."""
        error = self.data.get("error")
        return str(error["kind"]) if self.failed and isinstance(error, Mapping) else ""


class Output(NamedTuple):
    """A piece of the output of a call's command."""

    tool: str
    call_id: str
    stream: Stream
    text: str


class Kit:
    """The tools and the instructions of one conversation, for a framework to offer."""

    def __init__(self, session: RuntimeSession) -> None:
        self.session = session
        self._instructions: str | None = None
        self._sent: list[str] | None = None  # the results in the last request

    @property
    def names(self) -> dict[str, str]:
        """The name of each offered tool, by its kind."""
        return inline_names(self.session.runtime.names)

    def tools(self) -> list[Tool]:
        """Return the tools for the skills that the conversation may see now."""
        return self.session.tools(inline=True)

    async def tools_async(self) -> list[Tool]:
        """Return the tools without blocking the event loop."""
        return await self.session.tools_async(inline=True)

    async def instructions_async(self) -> str:
        """Return the instructions without blocking the event loop during a scan."""
        if self._instructions is None:
            await to_thread.run_sync(self.instructions)
        return self.instructions()

    def instructions(self) -> str:
        """Return the part of the system prompt about skills; constant for the conversation."""
        if self._instructions is None:
            runtime = self.session.runtime
            runtime.look()
            skills = self.session.skills()
            audience = self.session.audience
            parts = [runtime._overview_of(skills, audience=audience, kinds=self.names).text]
            if parts[0] and runtime.settings.overview_format != "plain":
                parts.append(runtime._guidance_for(skills, self.names, audience))
            self._instructions = "\n\n".join(filter(None, parts))
        return self._instructions

    def restore_sync(self, first: str, results: Iterable[str]) -> str:
        """Return the text of loaded skills that a request lacks; "" for nothing.

        `first` is the first message of the request, `results` are the tool results in it. The text
        belongs before that message.
        """
        messages = self._note_sent(first, results)
        return self.session.restore(messages).context

    async def restore(self, first: str, results: Iterable[str]) -> str:
        """Like `restore_sync`, for a coroutine."""
        messages = self._note_sent(first, results)
        return (await self.session.restore_async(messages)).context

    def _note_sent(self, first: str, results: Iterable[str]) -> list[Message]:
        self._sent = list(results)
        return [
            {"role": "user", "content": first},
            *({"role": "tool", "content": text} for text in self._sent),
        ]

    def _sent_results(self, shown: Iterable[str]) -> Iterable[str]:
        """Return the results that the model has: a history may hold more than is sent."""
        return shown if self._sent is None else self._sent

    async def call(
        self, tool: str, arguments: object, shown: Iterable[str] = (), tell: Tell | None = None
    ) -> ToolAnswer:
        """Call a tool; a mistake of the model is an answer too.

        `tell` gets the output of its command as it comes. Cancelling the call kills the command.
        """
        seen = self._sent_results(shown)

        def work(watch: Watch) -> Coroutine[Any, Any, ToolResult]:
            return self.session.call(tool, arguments, watch=watch, inline=True, shown=seen)

        return _answer(await follow(work, tell))

    def call_sync(
        self, tool: str, arguments: object, shown: Iterable[str] = (), tell: Tell | None = None
    ) -> ToolAnswer:
        """Call a tool without an event loop; `tell` is called in another thread."""
        seen = self._sent_results(shown)

        def work(watch: Watch) -> ToolResult:
            return self.session.call_sync(tool, arguments, watch=watch, inline=True, shown=seen)

        return _answer(follow_sync(work, tell))


def kit_of(session: RuntimeSession) -> Kit:
    """Return the kit of a conversation, the same one for the same object."""
    return _kits.setdefault(session, Kit(session))


_kits: WeakKeyDictionary[RuntimeSession, Kit] = WeakKeyDictionary()


def _answer(result: ToolResult) -> ToolAnswer:
    return ToolAnswer(result.text, bool(result.error), result.data)


class Kits:
    """A kit for each conversation of a framework, by user and session.

    Beyond MAX_SERVED_SESSIONS, the least recently used ones are dropped; the store has the state.
    """

    def __init__(self, belt: Runtime, agent: str = "", **options: Any) -> None:
        self._belt, self._agent, self._options = belt, agent, options
        self._kits: dict[tuple[str, str], Kit] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kits)

    def of(self, user: str, session: str) -> Kit:
        """Return the kit of that conversation, the same one each time."""
        key, kits = (user, session), self._kits
        with self._lock:
            kits[key] = kit = kits.pop(key, None) or self._make_kit(user, session)
            while len(kits) > MAX_SERVED_SESSIONS:
                del kits[next(iter(kits))]
            return kit

    def _make_kit(self, user: str, session: str) -> Kit:
        return Kit(self._belt.session(user, session, agent=self._agent, **self._options))


# Following a call


def follow_sync(work: Callable[[Watch], _Result], tell: Tell | None) -> _Result:
    """Do the work; `tell` gets its output as it comes, in a thread of the sandbox."""
    decoder = Decoder(tell) if tell else None
    follower = Follower(decoder)
    result = work(follower.watch)
    follower.check()
    if decoder is not None:
        decoder.end()
    return result


async def follow(
    work: Callable[[Watch], Coroutine[Any, Any, _Result]],
    tell: Tell | None,
) -> _Result:
    """Do the work; `tell` gets its output as it comes, in this task. Cancelling ends the work.

    Frameworks stream from the task that makes the call, so a thread cannot call `tell` for them.
    """
    queue: LoopQueue[tuple[Stream, str] | None] = LoopQueue(MAX_UNREAD_BYTES)
    decoder = Decoder(lambda stream, text: queue.put((stream, text), len(text.encode())))
    follower = Follower(decoder if tell else None)

    def finish(done: asyncio.Task[_Result]) -> None:
        decoder.end()
        queue.put(None)
        if not done.cancelled():
            done.exception()  # otherwise asyncio reports it when this task was cancelled

    task = asyncio.get_running_loop().create_task(work(follower.watch))
    task.add_done_callback(finish)
    try:
        while (piece := await queue.next()) is not None:
            result = tell(*piece) if tell else None
            if isinstance(result, Awaitable):
                await result
        return await task
    except BaseException:
        if follower.kill():
            await _wait_for_end(task, CANCEL_TIMEOUT_SECONDS)
        raise


async def _wait_for_end(task: asyncio.Task[Any], seconds: float) -> None:
    """Wait for the end of the task, even when this is cancelled again meanwhile."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    with CancelScope(shield=True):  # anyio cancels again and again until its scope is left
        while not task.done() and loop.time() < end:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=end - loop.time())
