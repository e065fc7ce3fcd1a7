"""A failed call has the kind of its error in its data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import skillbelt.errors
from skillbelt import Rule, Runtime
from skillbelt.errors import SkillbeltError
from skillbelt.store.memory import MemoryStore
from skillbelt.tools.definitions import DEFINITIONS
from tests.bounds import bounds
from tests.tree import Tree

PAGE = Path(__file__, "../../../docs/reference/errors.md").resolve().read_text()


@pytest.fixture
def belt(tree: Tree) -> Runtime:
    folder = tree.skill("project/.agents/skills/pdf", "Reads PDF files.")
    tree.write(folder / "reference/guide.md", "# Guide\n")
    tree.write(folder / "long.md", "x" * 3000)
    tree.write(folder / "tool.bin", b"\0\1")
    tree.skill("project/.agents/skills/secret")
    bounds(max_resource_file_bytes=2000)
    return Runtime(
        tree.project,
        store=MemoryStore(),
        rules=[Rule("skill", "secret", "ask")],
        tools=[kind for kind in DEFINITIONS if kind != "skill_search"],
        sandbox="none",
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("nothing", {}, {"kind": "unknown_tool", "tool": "nothing"}),
        ("skill_load", {"name": "pdf"}, {"kind": "wrong_arguments", "tool": "skill_load"}),
        ("skill_load", "{", {"kind": "wrong_arguments", "tool": "skill_load"}),
        ("skill_load", {"skill": "nope"}, {"kind": "skill_not_found", "name": "nope"}),
        ("skill", {"name": "nope"}, {"kind": "skill_not_found", "name": "nope"}),
        ("skill_load", {"skill": "secret"}, {"kind": "permission_denied", "subject": "secret"}),
        (
            "skill_load",
            {"skill": "pdf", "docs": ["x.md"]},
            {"kind": "document_not_found", "skill": "pdf", "docs": ["x.md"]},
        ),
        ("skill_unload", {"skill": "pdf"}, {"kind": "not_loaded", "skill": "pdf"}),
        (
            "load_resource",
            {"skill": "pdf", "relative_path": "../x"},
            {"kind": "path_escape", "path": "../x", "reason": "leads out of the folder"},
        ),
        (
            "load_resource",
            {"skill": "pdf", "relative_path": "x.md"},
            {"kind": "file_unreadable", "path": "x.md"},
        ),
        (
            "load_resource",
            {"skill": "pdf", "relative_path": "tool.bin"},
            {"kind": "file_type_refused", "path": "tool.bin"},
        ),
        (
            "load_resource",
            {"skill": "pdf", "relative_path": "long.md", "full": True},
            {"kind": "file_too_large", "path": "long.md"},
        ),
        ("read_file", {"file_name": "/etc/passwd"}, {"kind": "wrong_arguments"}),
        ("read_file", {"file_name": "artifact://nope"}, {"kind": "artifact"}),
        ("skill_run", {"skill": "pdf", "command": " "}, {"kind": "run_refused"}),
        (
            "skill_run",
            {"skill": "pdf", "command": "true"},
            {"kind": "permission_denied", "subject": "pdf"},
        ),
        ("skill_poll", {"run_id": "nope"}, {"kind": "run_refused"}),
    ],
)
def test_each_failure_has_its_kind_and_facts(
    belt: Runtime, tool: str, arguments: object, error: dict[str, Any]
) -> None:
    result = belt.session("u", "c").call_sync(tool, arguments)
    found = result.data["error"]
    assert isinstance(found, dict)
    assert found["message"] == result.error
    assert {key: found.get(key) for key in error} == error
    assert f"`{found['kind']}`" in PAGE


def test_a_run_that_left_out_what_was_requested_is_incomplete(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    allowed = [Rule("run", "*", "allow")]
    belt = Runtime(tree.project, store=MemoryStore(), rules=allowed, sandbox="none")
    wanted = {"skill": "pdf", "command": "true", "outputs": {"globs": ["out/*"], "save": True}}
    result = belt.dispatch("skill_run", {**wanted, "save_as_artifacts": True})
    assert result.data["exit_code"] == 0
    assert ("error" in result.data) == bool(result.error)


def test_a_call_that_succeeds_has_no_error(belt: Runtime) -> None:
    result = belt.session("u", "c").call_sync("skill_list_docs", {"skill": "pdf"})
    assert not result.error
    assert "error" not in result.data


def test_no_path_of_the_machine_is_in_the_facts(belt: Runtime, tree: Tree) -> None:
    (tree.project / ".agents/skills/pdf/SKILL.md").unlink()
    result = belt.dispatch("skill_load", {"skill": "pdf"})
    assert result.error
    assert str(tree.root) not in str(result.data)


def test_every_kind_is_its_own_and_in_the_docs() -> None:
    classes = [
        one
        for one in vars(skillbelt.errors).values()
        if isinstance(one, type) and issubclass(one, SkillbeltError)
    ]
    kinds = [one.kind for one in classes]
    assert len(set(kinds)) == len(classes)
    for kind, code in ((one.kind, one.exit_code) for one in classes):
        assert re.search(rf"^- `{kind}` \(`\w+`, {code}\): ", PAGE, re.M), kind
