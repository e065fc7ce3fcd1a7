"""Which skills fit a question, best first, when no model chooses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from skillbelt.conversation import RuntimeSession
from skillbelt.skill import Skill

_WORD = re.compile(r"[^\W_]{3,}")
_STOP = frozenset(
    _WORD.findall(
        "about all and any are can does for from give has have here how into its make much not our "
        "please show tell than that the their them then there these they this use user uses using "
        "want was what when where which who why will with would you your"
    )
)
_NAME_WEIGHT = 3.0


class Ranked(NamedTuple):
    """A skill, and how well its words fit; higher is better."""

    skill: Skill
    score: float


def ranked(session: RuntimeSession, question: str) -> list[Ranked]:
    """The skills that fit at all, best first, by the search of the product where there is one."""
    skills = session.skills()
    search = getattr(session.shelf.catalog, "search", None)
    if search is not None:
        found = [(skills.get(hit.name), float(hit.score)) for hit in search(question)]
        return [Ranked(skill, score) for skill, score in found if skill is not None]
    return overlapping(skills.values(), question)


def overlapping(skills: Iterable[Skill], question: str) -> list[Ranked]:
    """The skills that share words with the question; a word that few of them have counts more."""
    named = [(skill, _words(skill.name), _words(_about(skill))) for skill in skills]
    spread = Counter(word for _, name, about in named for word in name | about)
    asked = _words(question)
    found = []
    for skill, name, about in named:
        score = sum(
            math.log(1 + len(named) / spread[word]) * (_NAME_WEIGHT if word in name else 1.0)
            for word in sorted(asked & (name | about))
        )
        if score > 0:
            found.append(Ranked(skill, round(score, 3)))
    return sorted(found, key=lambda one: (-one.score, one.skill.name))


def _about(skill: Skill) -> str:
    return f"{skill.description} {skill.when_to_use}"


def _words(text: str) -> set[str]:
    """The words that say something, without the endings that differ between one and many."""
    found = {word for word in _WORD.findall(text.casefold()) if word not in _STOP}
    return {word.removesuffix("s") for word in found}
