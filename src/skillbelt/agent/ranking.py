"""Which skills fit a question, best first, when no model chooses."""

from __future__ import annotations

from typing import NamedTuple

from skillbelt.catalog import Filters
from skillbelt.conversation import RuntimeSession
from skillbelt.skill import Skill


class Ranked(NamedTuple):
    """A skill, and how well it fits; higher is better."""

    skill: Skill
    score: float


def ranked(session: RuntimeSession, question: str) -> list[Ranked]:
    """The skills that the conversation may see and that fit at all, best first."""
    seen = session.skills()
    filters = Filters(keep=lambda one: one.name in seen)
    found = session.shelf.catalog.search(question, filters=filters)
    return [Ranked(one.skill, one.score) for one in found]
