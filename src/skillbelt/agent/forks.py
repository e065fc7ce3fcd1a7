"""Forks: skills that run in a separate session; only the result comes back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from skillbelt.agent.agents import Agent
from skillbelt.agent.events import AgentEvent, Final, PermissionRequest, Usage
from skillbelt.agent.history import AgentContext
from skillbelt.agent.models import NONE
from skillbelt.agent.stream import EventSink
from skillbelt.errors import SkillbeltError
from skillbelt.events import NewEvent
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import session_id
from skillbelt.store import SessionKey
from skillbelt.tools.handlers import check_arguments
from skillbelt.tools.schema import ToolResult

FORK = "fork"
# The tools that load, and the argument that names the skill.
_LOADING = {"skill": "name", "skill_load": "skill", "claude_skill": "skill"}


class Fork(NamedTuple):
    """The context of a forked skill and its first message."""

    context: AgentContext
    message: str


class ForkSink:
    """Passes on permission requests and usage of a fork, and keeps its final event."""

    def __init__(self, sink: EventSink) -> None:
        self._sink, self.usage = sink, NONE
        self.final = Final("", "error", "it ended before its result")

    async def send(self, event: AgentEvent) -> None:
        """Take an event; wait while the stream is full."""
        if isinstance(event, Final):
            self.final = event
        elif isinstance(event, Usage):
            self.usage = self.usage.plus(event)
            await self._sink.send(event)

    def send_threadsafe(self, event: AgentEvent) -> None:
        """Take an event from any thread without waiting."""
        if isinstance(event, PermissionRequest):
            self._sink.send_threadsafe(event)


def skill_to_fork(
    context: AgentContext, kind: str, arguments: Mapping[str, object]
) -> Skill | None:
    """Return the skill that a call would load, if it must be forked."""
    if kind not in _LOADING or check_arguments(kind, arguments).fault:
        return None
    skill = context.session.skills().get(str(arguments[_LOADING[kind]]))
    return skill if skill and wants_fork(context, skill) else None


def wants_fork(context: AgentContext, skill: Skill) -> bool:
    """Whether the skill asks for a separate session, and does not run in one already."""
    if skill.name == context.skill or context.depth >= context.agent.max_fork_depth:
        return False
    try:
        matter = skill.frontmatter
    except SkillbeltError:
        return False
    return matter.context == FORK or matter.agent in context.agent.agents


def open_fork(context: AgentContext, skill: Skill, message: str = "") -> Fork:
    """Open a session for the skill; load the skill there, unless `message` has its text.

    The agent, with its rules, is the one that the skill names if the host knows it, else the same
    as here. PermissionDenied when loading is refused.
    """
    agent = _agent_for(context.agent, skill)
    name = f"{context.key.session}.{skill.name}-{os.urandom(4).hex()}"
    key = SessionKey(context.key.app, context.key.user, name)
    made = AgentContext(agent, context.store, key, depth=context.depth + 1, skill=skill.name)
    if message:
        return Fork(made, message)
    made.session.declare([skill.name])
    about = f"Follow the skill {skill.name} for the request below, and answer with the result."
    return Fork(made, f"{about}\n\n{context.question_text()}")


def _agent_for(agent: Agent, skill: Skill) -> Agent:
    known = agent.agents.get(skill.frontmatter.agent)
    # Only the host defines agents, so a fork finds the same ones.
    return known._replace(agents={**agent.agents, **known.agents}) if known else agent


def fork_result(fork: Fork, skill: Skill, final: Final) -> tuple[ToolResult, NewEvent]:
    """Return the result of a fork, and the event for the session that made it."""
    name = session_id(fork.context.key)
    data: dict[str, object] = {"name": skill.name, "session": name, "reason": final.reason}
    error = "" if final.reason == "answer" else f"{skill.name} failed: {final.error}"
    event = NewEvent(FORK, "", data)
    result = ToolResult(final.text or "(no result)", data=data)
    if error:
        about = {"kind": "fork_failed", "message": error, "reason": final.reason}
        result = ToolResult(error, error, {**data, "error": about})
    return result, event
