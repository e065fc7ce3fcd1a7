"""A conversation whose framework cuts its own history, ten times; for tests.

Loaded skills are in every request, once each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from skillbelt import Runtime
from skillbelt.conversation.messages import HEADER
from tests.tree import Tree

BODIES = {name: f"The body of {name}, told at length." for name in ("greet", "count", "mail")}
TURNS = 12


class Sent(NamedTuple):
    """One message of a request: its text, the calls it makes, the call it answers."""

    text: str
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


# Sends a user message; the model makes these calls before it answers.
Say = Callable[[str, Sequence[str]], None]


def open_belt(open_tree: Tree) -> Runtime:
    """A project with three skills."""
    for name, body in BODIES.items():
        open_tree.skill(f"project/.agents/skills/{name}", f"Does {name}.", text=f"{body}\n")
    return Runtime(open_tree.project)


def find_summaries(request: Sequence[Sent]) -> list[str]:
    return [one.text for one in request if "Summary no. " in one.text]


def check_pairs(request: Sequence[Sent]) -> None:
    waiting: set[str] = set()
    for one in request:
        assert waiting.issuperset(one.answers)
        waiting = (waiting - {*one.answers}) | {*one.calls}
    assert not waiting


def check_conversation(say: Say, sent: list[list[Sent]], unload: Callable[[], object]) -> None:
    """Load three skills, unload one, and continue until the history was cut ten times."""
    say("Begin.", ["greet", "count", "mail"])
    unload()
    for number in range(TURNS):
        say(f"Turn {number}.", ["greet"])
    cuts = 0
    for before, after in itertools.pairwise(sent[3:]):
        check_pairs(after)
        text = "\n".join(one.text for one in after)
        assert [text.count(BODIES[name]) for name in ("greet", "count")] == [1, 1]
        if find_summaries(before) == find_summaries(after):
            assert after[: len(before)] == before
        else:
            cuts += 1
        if cuts:
            [context] = [one.text for one in after if one.text.startswith(HEADER)]
            assert BODIES["mail"] not in context
        if cuts > 2:  # the framework kept its answer until then
            assert BODIES["mail"] not in text
    assert cuts >= 10
    assert f"Turn {TURNS - 1}." in "\n".join(one.text for one in sent[-1])


def unloads(belt: Runtime, user: str, session: str) -> Callable[[], object]:
    return lambda: belt.session(user, session).unload("mail")
