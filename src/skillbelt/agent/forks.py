"""Skills that are worked on apart: in a session of their own, of which the result alone returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from skillbelt.agent.agents import Agent
from skillbelt.agent.events import AgentEvent, Final, PermissionRequest, Usage
from skillbelt.agent.history import Place
from skillbelt.agent.models import NONE
from skillbelt.agent.stream import Listening
from skillbelt.errors import SkillbeltError
from skillbelt.events import NewEvent
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import session_id
from skillbelt.store import SessionKey
from skillbelt.tools.handlers import check_arguments
from skillbelt.tools.schema import ToolResult

# Skills with `context: fork` inside each other; deeper ones are loops.
MAX_FORK_DEPTH = 3

FORK = "fork"
_LOADING = {"skill": "name", "skill_load": "skill"}  # the tools that load, and what names the skill


class Fork(NamedTuple):
    """Where a skill is worked on: the place, and the message that begins it."""

    place: Place
    message: str


class Relay:
    """Passes on of a fork what is not its own affair: what is asked, and what it costs."""

    def __init__(self, told: Listening) -> None:
        self._told, self.usage = told, NONE
        self.final = Final("", "error", "it was ended before its result")

    async def tell(self, event: AgentEvent) -> None:
        """Take an event, when there is room for it."""
        if isinstance(event, Final):
            self.final = event
        elif isinstance(event, Usage):
            self.usage = self.usage.plus(event)
            await self._told.tell(event)

    def emit(self, event: AgentEvent) -> None:
        """Take an event from any thread, at once."""
        if isinstance(event, PermissionRequest):
            self._told.emit(event)


def forking(place: Place, kind: str, arguments: Mapping[str, object]) -> Skill | None:
    """The skill that a call would load, if it is to be worked on apart."""
    if kind not in _LOADING or check_arguments(kind, arguments).fault:
        return None
    skill = place.session.skills().get(str(arguments[_LOADING[kind]]))
    return skill if skill and forks(place, skill) else None


def forks(place: Place, skill: Skill) -> bool:
    """Whether the skill says that it wants a session of its own; not once it has one."""
    if skill.name == place.skill or place.depth >= place.agent.max_fork_depth:
        return False
    try:
        matter = skill.frontmatter
    except SkillbeltError:
        return False
    return matter.context == FORK or matter.agent in place.agent.agents


def fork(place: Place, skill: Skill, wanted: str = "") -> Fork:
    """A session for the skill, which is loaded there unless its text is what is `wanted`.

    It has the rules of the agent that works there: of the one that the skill names, if the host
    knows it, else of the same as here. A refusal raises PermissionDenied.
    """
    agent = _agent(place.agent, skill)
    name = f"{place.key.session}.{skill.name}-{os.urandom(4).hex()}"
    key = SessionKey(place.key.app, place.key.user, name)
    made = Place(agent, place.store, key, depth=place.depth + 1, skill=skill.name)
    if wanted:
        return Fork(made, wanted)
    made.session.declare([skill.name])
    about = f"Carry out the skill {skill.name} for what the user asks, and answer with the result."
    return Fork(made, f"{about}\n\n{place.asked()}")


def _agent(agent: Agent, skill: Skill) -> Agent:
    known = agent.agents.get(skill.frontmatter.agent)
    # Agents know each other by the host's word alone: a skill of one finds the same ones.
    return known._replace(agents={**agent.agents, **known.agents}) if known else agent


def returned(fork: Fork, skill: Skill, final: Final) -> tuple[ToolResult, NewEvent]:
    """What comes back of a fork, and what is written down of it where it was made."""
    name = session_id(fork.place.key)
    data: dict[str, object] = {"name": skill.name, "session": name, "reason": final.reason}
    error = "" if final.reason == "answer" else f"{skill.name} was not carried out: {final.error}"
    noted = NewEvent(FORK, "", data)
    return ToolResult(error or final.text or "(no result)", error, data), noted
