from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.terminal import on_terminal
from tests.tree import Tree

BODY = "# PDF\n\nRead it.\n"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    folder = tree.skill(
        "project/.agents/skills/pdf",
        description="Reads PDF files.",
        text=BODY,
        license="MIT",
        allowed_tools="Read Bash(git add *)",
        color="blue",
        metadata={"a": {"b": 1}},
    )
    tree.write(folder / "references/forms.md", "x" * 40)
    tree.write(folder / "notes.txt", "y" * 8)
    tree.write(folder / "scripts/run.py", "print()\n")
    tree.write(folder / "logo.png", b"\x89PNG\r\n\x1a\n\0")
    tree.skill("home/.agents/skills/pdf", description="Older.")
    return tree


def shown(tree: Tree, name: str = "pdf") -> dict[str, Any]:
    document: dict[str, Any] = tree.run("show", name, "--json").document
    return document


def test_json_has_everything_that_list_has(skills: Tree) -> None:
    (listed,) = skills.run("list", "--json").document["skills"]
    assert listed.items() <= shown(skills).items()


def test_json_has_the_promised_keys(skills: Tree) -> None:
    assert {"frontmatter", "files", "hash", "tokens", "diagnostics"} <= shown(skills).keys()


def test_frontmatter_keeps_what_is_written(skills: Tree) -> None:
    assert shown(skills)["frontmatter"] == {
        "name": "pdf",
        "description": "Reads PDF files.",
        "license": "MIT",
        "allowed-tools": ["Read", "Bash(git add *)"],
        "color": "blue",
        "metadata": {"a": {"b": 1}},
    }


def test_files_are_listed_with_size_hash_and_kind(skills: Tree) -> None:
    files = shown(skills)["files"]
    assert [(file["path"], file["kind"]) for file in files] == [
        ("SKILL.md", "text/markdown"),
        ("logo.png", "image/png"),
        ("notes.txt", "text/plain"),
        ("references/forms.md", "text/markdown"),
        ("scripts/run.py", "text/x-python"),
    ]
    forms = files[3]
    assert forms.keys() == {"path", "size", "sha256", "kind"}
    assert (forms["size"], forms["sha256"]) == (40, hashlib.sha256(b"x" * 40).hexdigest())


def test_hash_changes_with_any_file(skills: Tree) -> None:
    before = shown(skills)["hash"]
    assert before == shown(skills)["hash"]
    skills.write("project/.agents/skills/pdf/scripts/run.py", "print(1)\n")
    assert shown(skills)["hash"] != before
    assert before.startswith("sha256:")


def test_tokens_of_overview_body_and_documents(skills: Tree) -> None:
    """About four bytes each; the documents are the other Markdown and text files."""
    assert shown(skills)["tokens"] == {
        "overview": -(-len("- pdf: Reads PDF files.\n") // 4),
        "body": len(BODY) // 4,
        "documents": 48 // 4,
    }


def test_diagnostics_are_those_of_a_check(skills: Tree) -> None:
    skills.write("project/.agents/skills/pdf/SKILL.md", "---\nname: other\n---\n")
    found = {one["code"]: one for one in shown(skills, "other")["diagnostics"]}
    assert found.keys() >= {"name-folder", "description-missing", "body-empty"}
    assert found["name-folder"]["line"] == 2
    assert found["name-folder"].keys() == {
        "code",
        "severity",
        "path",
        "line",
        "message",
        "remedy",
    }


def test_a_derived_description_is_marked(tree: Tree) -> None:
    tree.write("project/.agents/skills/x/SKILL.md", "Only text.\n")
    assert shown(tree, "x")["derived"] is True
    assert "Only text. (derived from the text)" in tree.run("show", "x").stdout


def test_a_link_is_reported_and_not_followed(skills: Tree) -> None:
    link = skills.path("project/.agents/skills/pdf/passwords")
    link.symlink_to("/etc/passwd")
    document = shown(skills)
    assert "passwords" not in [file["path"] for file in document["files"]]
    assert any(found["path"] == str(link) for found in document["diagnostics"])


def test_an_unknown_name_is_answered_with_the_closest(skills: Tree) -> None:
    for more in ([], ["--json"]):
        done = skills.run("show", "pfd", *more)
        assert (done.exit_code, bool(done.stdout)) == (3, bool(more))
        assert done.stderr == "skillbelt: no skill named 'pfd'; closest: pdf\n"


def test_an_unknown_name_like_no_other_is_answered_with_the_list(skills: Tree) -> None:
    done = skills.run("show", "xyzzy")
    assert done.exit_code == 3
    assert "skillbelt list --all" in done.stderr


def test_no_name_is_wrong_usage(skills: Tree) -> None:
    done = skills.run("show")
    assert done.exit_code == 2
    assert "NAME" in done.stderr


def test_a_pipe_gets_plain_lines(skills: Tree) -> None:
    done = skills.run("show", "pdf")
    lines = done.stdout.splitlines()
    assert "name\tpdf" in lines
    assert "description\tReads PDF files." in lines
    assert f"shadows\t{skills.path('home/.agents/skills/pdf/SKILL.md')}" in lines
    assert "  license: MIT" in lines
    assert '  metadata: {"a": {"b": 1}}' in lines
    assert "  references/forms.md  40 bytes, text/markdown" in lines
    assert "\x1b" not in done.stdout


def test_a_terminal_gets_the_whole_description(tree: Tree) -> None:
    words = " ".join(f"word{n}" for n in range(100))
    tree.skill("project/.agents/skills/pdf", description=words)
    lines = on_terminal(tree, "show", "pdf", columns=60).lines
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].split() == ["name", "pdf"]
    shown_text = " ".join(line[13:].strip() for line in lines[1:40])
    assert words in " ".join(shown_text.split())


def test_hidden_skills_can_be_shown_by_name(tree: Tree) -> None:
    tree.skill("project/.agents/skills/secret", metadata={"internal": True})
    assert shown(tree, "secret")["model_visible"] is False


def test_metadata_is_shown_as_it_was_written(tree: Tree) -> None:
    text = "---\nname: pdf\ndescription: d\nmetadata:\n  version: 1.10\n  code: 010\n---\n"
    tree.write("project/.agents/skills/pdf/SKILL.md", text)
    document = tree.run("show", "pdf", "--json").document
    assert document["frontmatter"]["metadata"] == {"version": "1.10", "code": "010"}
