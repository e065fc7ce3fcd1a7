"""Hold one conversation with a model in the real loop, and collect what the checks examine.

The model gets the real overview under its budget, the real tools and the real permissions. Every
call in the conversation counts as an activation, not only the first.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, NamedTuple

from skillbelt.agent import (
    Agent,
    AgentEvent,
    Compaction,
    Final,
    PermissionRequest,
    Retry,
    Runner,
    SkillCalled,
    ToolCall,
    ToolResponse,
    Usage,
    document,
)
from skillbelt.agent.models import OFFLINE, is_deep
from skillbelt.agent.runner import model_of
from skillbelt.errors import SkillbeltError
from skillbelt.evals.answer_log import AnswerLog, BudgetedModel
from skillbelt.evals.budget import Budget, TokenPrice
from skillbelt.evals.checks import EvalEvidence
from skillbelt.running.outputs import collect, parse_output_files
from skillbelt.runtime.runtime import APP, Runtime
from skillbelt.store import SessionKey
from skillbelt.text import shorten
from skillbelt.tools.definitions import LOADERS, READERS, RUNNING
from skillbelt.untrusted_json import BadJson, read_json

USER = "eval"
_KEPT = (Compaction, Final, Retry, SkillCalled, ToolCall, ToolResponse)
_MAX_TRANSCRIPT_EVENTS = 2_000
_MAX_EVENT_CHARS = 20_000
_OUTPUTS = ("out/**",)
# Tools that give a model a skill or a part of one.
_ACTIVATING = (*LOADERS, *READERS, *RUNNING, "skill_select_docs", "skill_list_docs",
               "load_resource")  # fmt: skip


class EvalConversation(NamedTuple):
    """One conversation: how it ended, and what happened in it.

    `ended` is `answer`, `error`, `timeout` or `budget`; `stopped`: it was ended early, because the
    result was known.
    """

    ended: str
    answer: str = ""
    error: str = ""
    skills: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    refused: int = 0
    failed_calls: int = 0
    files: Mapping[str, str] = MappingProxyType({})
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    seconds: float = 0.0
    stopped: bool = False
    transcript: tuple[Mapping[str, Any], ...] = ()

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.input_tokens + self.output_tokens

    def evidence(self) -> EvalEvidence:
        """Return what the checks examine."""
        return EvalEvidence(
            text=self.answer,
            files=self.files,
            tools=self.tools,
            skills=self.skills,
            commands=self.commands,
            asked=self.asked,
            seconds=self.seconds,
            tokens=self.tokens,
        )

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {**self._asdict(), "files": dict(self.files), "transcript": list(self.transcript)}


_TEXTS = ("skills", "tools", "commands", "asked")
_COUNTS = ("refused", "failed_calls", "input_tokens", "output_tokens", "requests")


def read_conversation(kept: Mapping[str, Any]) -> EvalConversation | None:
    """Return a conversation from the cache; None if the file is damaged."""
    try:
        known = {key: kept[key] for key in EvalConversation._fields}
        known |= {key: tuple(map(str, known[key])) for key in _TEXTS}
        known |= {key: max(int(known[key]), 0) for key in _COUNTS}
        known |= {key: str(known[key]) for key in ("ended", "answer", "error")}
        known["files"] = {str(name): str(text) for name, text in known["files"].items()}
        known["seconds"] = max(float(known["seconds"]), 0.0)
        known["stopped"] = known["stopped"] is True
        known["transcript"] = tuple(dict(one) for one in known["transcript"])
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    # Only complete conversations are kept.
    return EvalConversation(**known) if known["ended"] == "answer" else None


class ConversationLimits(NamedTuple):
    """The time limit of a conversation, the budget of all of them, and the price of tokens."""

    seconds: float
    budget: Budget
    price: TokenPrice | None = None


class ConversationRunner:
    """Holds conversations with one agent."""

    def __init__(self, runner: Runner, bounds: ConversationLimits) -> None:
        self.runner, self._bounds = runner, bounds

    @property
    def runtime(self) -> Runtime:
        """The runtime of the agent."""
        return self.runner.agent.runtime

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of all tools that a conversation may have."""
        own = (one.name for one in self.runner.agent.tools)
        named = (*self.runtime.names.values(), *(one.name for one in self.runtime.tools()), *own)
        return tuple(dict.fromkeys(named))

    def price(self, usage: Usage) -> float | None:
        """Return the cost of a request; None if it is unknown."""
        given = self._bounds.price
        return given.cost(usage) if given else self.runner.price(usage)

    async def talk(
        self,
        prompt: str,
        *,
        files: Sequence[str] = (),
        fence: str = "",
        until: str = "",
        log: AnswerLog | None = None,
    ) -> EvalConversation:
        """Ask once; with `until`, end as soon as the skill of that name is used.

        Answers in the log are not asked for again. ConfigError for a file that cannot be attached,
        or a model that cannot be used.
        """
        if self._bounds.budget.spent:
            return EvalConversation("budget")
        session = f"eval-{os.urandom(8).hex()}"
        seen = _Seen(self.runtime.names, until)
        model, runner = self._make_budgeted(log)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._bounds.seconds):
                run = runner.run(USER, session, prompt, files=files, fence=fence)
                ended = await _follow(run, seen)
        except TimeoutError:
            ended = "timeout"
        except SkillbeltError as error:
            if error.exit_code == 2:
                raise
            ended, seen.error = "error", str(error)
        seconds = time.monotonic() - began
        if model is not None:
            seconds += model.logged_seconds
            if model.refused and not seen.stopped:
                ended = "budget"
        made = await asyncio.to_thread(self._collect_outputs, session, bool(seen.commands))
        return seen.talk(ended, seconds, made)

    def _make_budgeted(self, log: AnswerLog | None) -> tuple[BudgetedModel | None, Runner]:
        """Return the model of one conversation, which keeps to the budget, and its runner."""
        agent = self.runner.agent
        if agent.model == OFFLINE:
            return None, self.runner
        model = BudgetedModel(model_of(self.runner), self._bounds.budget, self.price, log)
        return model, Runner(agent._replace(model=model), self.runner.store)

    def _collect_outputs(self, session: str, ran: bool) -> dict[str, str]:
        """Return the files in `out` of the conversation, and remove its workspace."""
        if not ran:
            return {}
        key, bench = SessionKey(APP, USER, session), self.runtime.workbench
        try:
            with bench.workspace(key) as workspace:
                found = collect(
                    workspace.path,
                    parse_output_files(_OUTPUTS),
                    self.runtime.settings.limits,
                    may_be_empty=True,
                )
            return {one.name: one.content for one in found.files}
        finally:
            bench.forget(key)


async def _follow(run: AsyncGenerator[AgentEvent, None], seen: _Seen) -> str:
    """Collect the events of a conversation, and return how it ended."""
    async with aclosing(run) as events:
        async for event in events:
            seen.note(event)
            if seen.stopped:
                return "answer"
    return seen.ended


class _Seen:
    """Collects the events of a conversation."""

    def __init__(self, names: Mapping[str, str], until: str) -> None:
        self._activating = {names[kind] for kind in _ACTIVATING if kind in names}
        self._running = {names[kind] for kind in RUNNING if kind in names} | {"execute_skill"}
        self._until = until
        self._skills: dict[str, None] = {}
        self._tools: list[str] = []
        self.commands: list[str] = []
        self._asked: list[str] = []
        self._refused = self._failed = 0
        self._usage, self._requests = Usage(requests=0), 0
        self._transcript: list[Mapping[str, Any]] = []
        self.answer = self.error = self.reason = ""
        self.stopped = False

    def note(self, event: AgentEvent) -> None:
        """Record one event."""
        if isinstance(event, _KEPT) and len(self._transcript) < _MAX_TRANSCRIPT_EVENTS:
            self._transcript.append(_shorten_event(document(event)))
        match event:
            case ToolCall():
                self._note_call(event)
            case SkillCalled():
                self._use(event.skill)
            case ToolResponse():
                self._failed += bool(event.error)
                self._refused += _error_kind(event) == "permission_denied"
            case PermissionRequest():
                self._asked.append(event.pending.request.type)
            case Usage():
                self._usage = self._usage.plus(event)
                self._requests += 1
            case Final():
                self.answer, self.error, self.reason = event.text, event.error, event.reason

    @property
    def ended(self) -> str:
        """The end of a conversation that was not stopped early.

        One that used up its steps before the skill was used counts as a timeout.
        """
        if self.reason == "max_steps" and self._until:
            return "timeout"
        return "error" if self.reason == "error" else "answer"

    def _note_call(self, call: ToolCall) -> None:
        self._tools.append(call.name)
        given = _read_arguments(call.arguments)
        if call.name in self._running:
            command = given.get("command", given.get("script", call.name))
            self.commands.append(shorten(str(command), 2_000))
        if call.name in self._activating | self._running:
            for key in ("skill", "name"):
                if isinstance(given.get(key), str):
                    self._use(str(given[key]))

    def _use(self, name: str) -> None:
        self._skills[shorten(name, 128)] = None
        self.stopped = bool(self._until) and name == self._until

    def talk(self, ended: str, seconds: float, files: Mapping[str, str]) -> EvalConversation:
        """Return everything that was collected."""
        return EvalConversation(
            ended=ended,
            answer=self.answer,
            error=self.error,
            skills=tuple(self._skills),
            tools=tuple(self._tools),
            commands=tuple(self.commands),
            asked=tuple(self._asked),
            refused=self._refused,
            failed_calls=self._failed,
            files=files,
            input_tokens=self._usage.input_tokens,
            output_tokens=self._usage.output_tokens,
            requests=self._requests,
            seconds=round(seconds, 3),
            stopped=self.stopped,
            transcript=tuple(self._transcript),
        )


def _error_kind(response: ToolResponse) -> str:
    about = response.data.get("error")
    return str(about.get("kind", "")) if isinstance(about, Mapping) else ""


def _read_arguments(given: object) -> Mapping[str, object]:
    """Return the arguments that a model wrote as an object, or as JSON text."""
    if isinstance(given, str):
        try:
            given = read_json(given)
        except BadJson:
            return {}
    return given if isinstance(given, dict) and not is_deep(given) else {}


def _shorten_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event for a transcript, without long texts and without changes of the state."""
    kept = {key: value for key, value in event.items() if key not in ("data", "state_delta")}
    return {
        key: shorten(value, _MAX_EVENT_CHARS) if isinstance(value, str) else value
        for key, value in kept.items()
    }


def hide_skill(agent: Agent, name: str) -> Agent:
    """Return the agent without one skill: neither the overview nor a tool has it."""
    before = agent.visible
    return agent._replace(
        visible=lambda skill: skill.name != name and (before is None or before(skill))
    )
