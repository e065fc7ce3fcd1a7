"""An agent in a session: the conversation, its messages, and where a step writes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence

from skillbelt.agent import compaction
from skillbelt.agent.agents import Agent
from skillbelt.agent.models import NONE, Called, Prompt, Reply
from skillbelt.agent.transaction import Journal, Page
from skillbelt.conversation.messages import Message
from skillbelt.events import NewEvent
from skillbelt.format.skill import Skill
from skillbelt.runtime.runtime import RuntimeSession
from skillbelt.settings import Settings
from skillbelt.store import SessionKey, Store
from skillbelt.text import shorten
from skillbelt.tools.schema import Tool

KEPT = "response"  # where a message holds what its provider wants to see again
INTERRUPTED = (
    "This call was interrupted before its result was known, so it may have run in part. Look at "
    "what is there before you make it again."
)
_ODD = 2_000  # characters that are kept of arguments that are no JSON
CANCELLED = "This call was cancelled by the user."


class Place:
    """Whatever is asked and written here is of one agent in one session.

    `depth` counts the forks around it, and `skill` is the one that it was forked for.
    """

    def __init__(
        self, agent: Agent, store: Store, key: SessionKey, *, depth: int = 0, skill: str = ""
    ) -> None:
        self.agent, self.store, self.key, self.depth, self.skill = agent, store, key, depth, skill
        self.limits = agent.limits
        self.journal = Journal(store, key)
        self.page = self.journal.page()
        self.session: RuntimeSession = agent.runtime.session(
            key.user,
            key.session,
            agent=agent.name,
            app=key.app,
            visible=agent.visible,
            rules=agent.rules,
            store=self.page,
        )
        self.history: list[Message] = []
        self._tools: tuple[Mapping[str, Skill] | None, list[Tool]] = (None, [])

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.agent.runtime.settings

    def on(self, page: Page) -> RuntimeSession:
        """The conversation, with another part of the step to write to."""
        session = copy.copy(self.session)
        session.session = copy.copy(session.session)
        session.session.store = page
        return session

    # What is kept

    def read(self) -> None:
        """Take the history from the store."""
        self.history = []
        for event in self.journal.events():
            if event.agent != self.agent.name:
                continue
            if event.type == "message":
                self.history.append(dict(event.data))
            elif event.type == compaction.EVENT:
                self.history = compaction.shortened(self.history, event.data)
        self.history = mended(self.history)

    def commit(
        self,
        messages: Sequence[Message],
        events: Sequence[NewEvent] = (),
        parts: Sequence[Page] | None = None,
    ) -> None:
        """Keep the messages, after the events, and what the parts of the step have changed.

        Without `parts` that is all that was written on the page of the place, events too.
        """
        if parts is None:
            events, parts = [*self.page.written, *events], (self.page,)
        said = [NewEvent("message", self.agent.name, message) for message in messages]
        if self.journal.commit([*events, *said], parts):
            self.history += messages
            self._turn_page()

    def drop(self) -> None:
        """Forget what was written since the last step that was kept."""
        self.journal.drop()
        self._turn_page()

    def _turn_page(self) -> None:
        self.page = self.session.session.store = self.journal.page()

    def shorten(self, kept: int, summary: str, lost: Sequence[str] = ()) -> None:
        """Keep the last messages as they are from now on, and the rest in short.

        The `lost` skills are loaded, so that their text does not go with the rest.
        """
        data = {"kept": kept, "summary": summary}
        self.drop()
        for name in lost:
            self.session.session.load(name)
        told = NewEvent(compaction.EVENT, self.agent.name, data)
        if self.journal.commit([*self.page.written, told], [self.page]):
            self.history = compaction.shortened(self.history, data)
            self._turn_page()

    # What a model gets

    def prompt(self, more: Sequence[Tool] = ()) -> Prompt:
        """The next request, with the tools of the host beside those for skills."""
        system = self.agent.instructions
        first: list[Message] = [{"role": "system", "content": system}] if system else []
        # An answer means that the turn has begun, whatever was written since.
        sent = self.session.request([*first, *self.history], new_turn=self._begins)
        return Prompt(sent, (*self._offered(), *more), "/".join(self.key))

    @property
    def _begins(self) -> bool:
        last = self.history[-1] if self.history else {}
        return last.get("role") == "user" and not last.get("goes_on")

    def _offered(self) -> list[Tool]:
        skills = self.session.skills()
        if self._tools[0] is not skills:
            self._tools = (skills, self.session.tools())
        return self._tools[1]

    # What is said

    def answered(self, reply: Reply) -> None:
        """Keep an answer, with what the request for it changed."""
        message: Message = {"role": "assistant", "content": reply.text}
        if reply.calls:
            message["tool_calls"] = [_kept_call(call) for call in reply.calls]
        if reply.kept is not None:
            message[KEPT] = dict(reply.kept)
        usage: dict[str, object] = reply.usage._asdict()
        counted = [NewEvent("usage", self.agent.name, usage)] if reply.usage != NONE else []
        self.commit([message], counted)

    def pending(self) -> list[Called]:
        """The calls that have no answer: the run that made them was ended before."""
        calls = self.history[-1].get("tool_calls") if self.history else None
        return [_called(call) for call in calls or ()]

    def question(self) -> Message:
        """The message with what the user wants now."""
        said = [one for one in self.history if one["role"] == "user" and not one.get("goes_on")]
        return said[-1] if said else {"role": "user", "content": ""}

    def asked(self) -> str:
        """What the user wants now, in their words."""
        last = self.question()
        return str(last.get("said") or last.get("content") or "")


def mended(messages: Sequence[Message]) -> list[Message]:
    """The history with an answer to each call and none without one, as every provider wants it.

    Two programs that go on with one session at the same time may leave it otherwise. The calls of
    the last answer may still be open.
    """
    made: list[Message] = []
    waiting: list[Called] = []
    for message in messages:
        if message["role"] == "tool":
            found = [call for call in waiting if call.id == message["tool_call_id"]]
            if found:
                waiting.remove(found[0])
                made.append(message)
            continue
        made += [answer_to(call, INTERRUPTED, INTERRUPTED) for call in waiting]
        waiting = [_called(call) for call in message.get("tool_calls") or ()]
        made.append(message)
    if waiting and made[-1]["role"] == "tool":
        made += [answer_to(call, INTERRUPTED, INTERRUPTED) for call in waiting]
    return made


def _kept_call(call: Called) -> dict[str, object]:
    """A call as JSON can hold it, whatever its arguments are."""
    given = call.arguments
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        given = shorten(str(given), _ODD)
    return {"id": call.id, "name": call.name, "arguments": given}


def _called(call: Mapping[str, object]) -> Called:
    return Called(str(call["id"]), str(call["name"]), call["arguments"])


def answer_to(call: Called, text: str, error: str = "") -> Message:
    """The message with the result of a call."""
    message: Message = {"role": "tool", "tool_call_id": call.id, "content": text}
    return message | {"error": True} if error else message
