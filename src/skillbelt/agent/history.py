"""An agent in a session: its history, its requests to the model, and what a step stores."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence

from skillbelt.agent import compaction
from skillbelt.agent.agents import Agent
from skillbelt.agent.models import NONE, Called, Prompt, Reply
from skillbelt.agent.transaction import Journal, StepWrites
from skillbelt.conversation.compaction import is_question
from skillbelt.conversation.messages import Message
from skillbelt.events import NewEvent
from skillbelt.runtime.runtime import RuntimeSession
from skillbelt.settings import Settings
from skillbelt.store import SessionKey, Store
from skillbelt.text import shorten
from skillbelt.tools.schema import Tool

KEPT = "response"  # the key of data that the provider wants back with the next request
INTERRUPTED = (
    "This call was interrupted before its result was known, so it may have run in part. Check the "
    "current state before you repeat it."
)
_MAX_ARGUMENT_CHARS = 2_000  # of arguments that are not JSON
CANCELLED = "This call was cancelled by the user."


class AgentContext:
    """One agent in one session.

    `lease` is the number of the lease on the session for the run. `depth` counts the enclosing
    forks; `skill` is the one that it was forked for.
    """

    def __init__(
        self,
        agent: Agent,
        store: Store,
        key: SessionKey,
        *,
        lease: str = "",
        depth: int = 0,
        skill: str = "",
    ) -> None:
        self.agent, self.store, self.key, self.depth, self.skill = agent, store, key, depth, skill
        self.limits = agent.limits
        self.journal = Journal(store, key, lease)
        self.writes = self.journal.new_writes()
        self.session: RuntimeSession = agent.runtime.session(
            key.user,
            key.session,
            agent=agent.name,
            app=key.app,
            visible=agent.visible,
            rules=agent.rules,
            store=self.writes,
        )
        self.history: list[Message] = []
        self._answered = False  # whether the model answered since the user's last message

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.agent.runtime.settings

    def session_for(self, writes: StepWrites) -> RuntimeSession:
        """Return the conversation with another store for its writes."""
        session = copy.copy(self.session)
        session.session = copy.copy(session.session)
        session.session.store = writes
        return session

    # Stored history

    def read(self) -> None:
        """Read the history from the store."""
        self.history, self._answered = [], False
        for event in self.journal.events():
            if event.agent != self.agent.name:
                continue
            if event.type == "message":
                self._add([dict(event.data)])
            elif event.type == compaction.EVENT:
                self.history = compaction.apply_compaction(self.history, event.data)
        self.history = repair_history(self.history)

    def commit(
        self,
        messages: Sequence[Message],
        events: Sequence[NewEvent] = (),
        parts: Sequence[StepWrites] | None = None,
    ) -> None:
        """Store the events, the messages, and the writes of the given parts of the step.

        Without `parts`, store the writes and events of the context itself.
        """
        if parts is None:
            events, parts = [*self.writes.events_written, *events], (self.writes,)
        stored = [NewEvent("message", self.agent.name, message) for message in messages]
        if self.journal.commit([*events, *stored], parts):
            self._add(messages)
            self._begin_step()

    def _add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.history.append(message)
            if is_question(message):
                self._answered = False
            elif message["role"] == "assistant":
                self._answered = True

    def drop(self) -> None:
        """Discard the writes since the last stored step."""
        self.journal.drop()
        self._begin_step()

    def _begin_step(self) -> None:
        self.writes = self.session.session.store = self.journal.new_writes()

    def compact(self, kept: int, summary: str) -> None:
        """Keep the last messages and replace the others by the summary."""
        data = {"kept": kept, "summary": summary}
        self.drop()
        event = NewEvent(compaction.EVENT, self.agent.name, data)
        if self.journal.commit([*self.writes.events_written, event], [self.writes]):
            self.history = compaction.apply_compaction(self.history, data)
            self._begin_step()

    # Requests to the model

    def prompt(self, more: Sequence[Tool] = (), restore_tokens: int | None = None) -> Prompt:
        """Build the next request, with the tools of the host beside those for skills."""
        system = self.agent.instructions
        first: list[Message] = [{"role": "system", "content": system}] if system else []
        # After an answer the turn has begun.
        sent = self.session.request(
            [*first, *self.history], new_turn=self._is_new_turn, restore_tokens=restore_tokens
        )
        return Prompt(sent, (*self._skill_tools(), *more), "/".join(self.key))

    @property
    def _is_new_turn(self) -> bool:
        # A compaction may leave nothing but the question of the current turn.
        return not self._answered and is_question(self.history[-1] if self.history else {})

    def _skill_tools(self) -> list[Tool]:
        skills = self.session.skills()
        return skills.derive(("tools of an agent", self.agent.name, self.key), self.session.tools)

    # Answers and questions

    def store_reply(self, reply: Reply) -> None:
        """Store an answer with the changes that its request made."""
        message: Message = {"role": "assistant", "content": reply.text}
        if reply.calls:
            message["tool_calls"] = [_make_storable(call) for call in reply.calls]
        if reply.kept is not None:
            message[KEPT] = dict(reply.kept)
        usage: dict[str, object] = reply.usage._asdict()
        counted = [NewEvent("usage", self.agent.name, usage)] if reply.usage != NONE else []
        self.commit([message], counted)

    def pending(self) -> list[Called]:
        """Return the calls without a result, left by an interrupted run."""
        calls = self.history[-1].get("tool_calls") if self.history else None
        return [_parse_call(call) for call in calls or ()]

    def question(self) -> Message:
        """Return the last message of the user."""
        questions = [
            one for one in self.history if one["role"] == "user" and not one.get("goes_on")
        ]
        return questions[-1] if questions else {"role": "user", "content": ""}

    def question_text(self) -> str:
        """Return the last message of the user as typed."""
        last = self.question()
        return str(last.get("said") or last.get("content") or "")


def repair_history(messages: Sequence[Message]) -> list[Message]:
    """Return the history with one result for each call, as every provider requires.

    Two programs that use one session at the same time may leave it otherwise. The calls of the last
    answer may still be open.
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
        made += [result_message(call, INTERRUPTED, INTERRUPTED) for call in waiting]
        waiting = [_parse_call(call) for call in message.get("tool_calls") or ()]
        made.append(message)
    if waiting and made[-1]["role"] == "tool":
        made += [result_message(call, INTERRUPTED, INTERRUPTED) for call in waiting]
    return made


def _make_storable(call: Called) -> dict[str, object]:
    """Return a call as JSON; arguments that are not JSON become text."""
    given = call.arguments
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        given = shorten(str(given), _MAX_ARGUMENT_CHARS)
    return {"id": call.id, "name": call.name, "arguments": given}


def _parse_call(call: Mapping[str, object]) -> Called:
    return Called(str(call["id"]), str(call["name"]), call["arguments"])


def result_message(call: Called, text: str, error: str = "") -> Message:
    """Return the message with the result of a call."""
    message: Message = {"role": "tool", "tool_call_id": call.id, "content": text}
    return message | {"error": True} if error else message
