"""Which skills fit a question, best first, when no model chooses."""

from __future__ import annotations

from typing import NamedTuple

from skillbelt.format.skill import Skill
from skillbelt.runtime.runtime import RuntimeSession

_MOST = 10


class Ranked(NamedTuple):
    """A skill, and how well it fits; higher is better."""

    skill: Skill
    score: float


def ranked(session: RuntimeSession, question: str) -> list[Ranked]:
    """The skills that the conversation may see and that fit at all, best first."""
    session.runtime.look()
    found = session.runtime.search_in(question, session.skills(), _MOST)
    return [Ranked(one.skill, one.score) for one in found]
