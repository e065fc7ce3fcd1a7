from __future__ import annotations

import pytest

from skillbelt import Rule, Runtime
from tests.tree import Tree

BODY = "# Greeting\n\nSay the word `mellifluous` first.\n"
REFERENCE = "# Words\n\nNever say `moist`.\n"


@pytest.fixture
def belt(open_tree: Tree) -> Runtime:
    """A project with one skill, whose commands may run."""
    folder = open_tree.skill("project/.agents/skills/greet", text=BODY)
    open_tree.write(folder / "references/words.md", REFERENCE)
    return Runtime(open_tree.project, rules=[Rule("run", "*", "allow")])
