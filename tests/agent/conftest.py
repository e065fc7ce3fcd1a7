from __future__ import annotations

from collections.abc import Iterator

import pytest

from skillbelt import Rule, Runtime
from tests.tree import Tree

SKILLS = "project/.agents/skills"


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    """A project with two skills that are text alone."""
    tree.skill(f"{SKILLS}/greet", "Greets people by name.", text="Say `mellifluous` first.\n")
    tree.skill(f"{SKILLS}/count", "Counts sheep.", text="One, two, three.\n")
    with Runtime(tree.project, tool_profile="full") as runtime:
        yield runtime


@pytest.fixture
def running(open_tree: Tree) -> Iterator[Runtime]:
    """A project whose skill `kit` may run any command in the sandbox of this machine."""
    open_tree.skill(f"{SKILLS}/kit", "Runs what it is told to.")
    with Runtime(
        open_tree.project, tool_profile="full", rules=[Rule("run", "*", "allow")]
    ) as runtime:
        yield runtime
