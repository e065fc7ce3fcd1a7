from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from skillbelt import Runtime
from skillbelt.files.remove import remove_tree
from tests.mcp.clients import Http, Place, over_http
from tests.tree import Tree, sheltered

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
    return filled(open_tree)


def filled(tree: Tree) -> Tree:
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="The body of pdf.\n", license="MIT")
    tree.write(f"{SKILLS}/pdf/guide.md", "The guide of pdf.\n")
    tree.write(f"{SKILLS}/pdf/forms/a b.md", "Form.\n")
    tree.write(f"{SKILLS}/pdf/logo.png", b"\x89PNG\r\n\x1a\n\0\1")
    script = tree.write(f"{SKILLS}/pdf/scripts/say.sh", "#!/bin/sh\necho said\n")
    script.chmod(0o755)
    tree.skill(f"{SKILLS}/notes", "Takes notes.", text="Write $ARGUMENTS down.\n")
    return tree


@pytest.fixture(scope="session")
def place() -> Iterator[Place]:
    """The same project for servers that many tests share; a few commands run unasked."""
    root = Path(mkdtemp(prefix="skillbelt-served-"))
    root.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        tree = filled(Tree(root, patch))
        tree.write(
            "home/.config/skillbelt/config.toml",
            'watch_seconds = 0.2\ntool_profile = "full"\n'
            '[permission]\nrun = { "*" = "ask", "sleep *" = "allow", "printf *" = "allow" }\n',
        )
        environ = {
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        }
    with sheltered(root):
        yield Place(tree, environ)
    remove_tree(str(root))


@pytest.fixture(scope="session")
def server(place: Place) -> Iterator[Http]:
    """One HTTP server for all tests that do not end it."""
    with over_http(place.tree, env=place.environ) as server:
        yield server


@pytest.fixture
def belt(skills: Tree) -> Iterator[Runtime]:
    with Runtime(skills.project, tool_profile="full") as belt:
        yield belt
