from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from skillbelt import Runtime
from tests.tree import Tree

SKILLS = "project/.agents/skills"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def skills(open_tree: Tree) -> Tree:
    """A project with two skills: one with documents and a script, one without."""
    tree = open_tree
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="The body of pdf.\n", license="MIT")
    tree.write(f"{SKILLS}/pdf/guide.md", "The guide of pdf.\n")
    tree.write(f"{SKILLS}/pdf/forms/a b.md", "Form.\n")
    tree.write(f"{SKILLS}/pdf/logo.png", b"\x89PNG\r\n\x1a\n\0\1")
    script = tree.write(f"{SKILLS}/pdf/scripts/say.sh", "#!/bin/sh\necho said\n")
    script.chmod(0o755)
    tree.skill(f"{SKILLS}/notes", "Takes notes.", text="Write $ARGUMENTS down.\n")
    return tree


@pytest.fixture
def belt(skills: Tree) -> Iterator[Runtime]:
    with Runtime(skills.project) as belt:
        yield belt
