from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import on_terminal
from tests.tree import Tree

FOLDER = "project/.agents/skills/pdf"
BODY = "# PDF\n\nSee [forms](references/forms.md).\n"
LONG = "# T\n\n## Background\n\n" + "old\n" * 600 + "\n## Steps\n\nDo it.\n"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")
    folder = tree.skill(FOLDER, text=BODY)
    tree.write(folder / "references/forms.md", "Forms.\n")
    tree.write(folder / "notes.txt", "Notes.")
    tree.write(folder / "run.py", "print()")
    return tree


def loaded(tree: Tree, *options: str) -> dict[str, Any]:
    done = tree.run("load", "pdf", *options, "--json")
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = done.document
    return document


def test_json_has_the_promised_keys(skills: Tree) -> None:
    document = loaded(skills)
    data = skills.path(f"{FOLDER}/SKILL.md").read_bytes()
    assert document == {
        "name": "pdf",
        "text": BODY,
        "docs": [],
        "report": {
            "sha256": hashlib.sha256(data).hexdigest(),
            "excerpt_sha256": hashlib.sha256(BODY.encode()).hexdigest(),
            "bytes_read": len(data),
            "chars_returned": len(BODY),
            "truncated": False,
            "strategy": "whole",
            "references": ["references/forms.md"],
            "storage_ref": "",
        },
    }


def test_documents_come_in_the_order_they_were_asked_for(skills: Tree) -> None:
    docs = loaded(skills, "--docs", "references/forms.md, notes.txt")["docs"]
    assert [one.pop("report")["truncated"] for one in docs] == [False, False]
    assert docs == [
        {"path": "references/forms.md", "text": "Forms.\n"},
        {"path": "notes.txt", "text": "Notes."},
    ]


def test_all_documents_come_by_name_and_each_once(skills: Tree) -> None:
    paths = [doc["path"] for doc in loaded(skills, "--all-docs")["docs"]]
    assert paths == ["notes.txt", "references/forms.md"]
    both = loaded(skills, "--all-docs", "--docs", "references/forms.md")["docs"]
    assert [doc["path"] for doc in both] == ["references/forms.md", "notes.txt"]


def test_text_is_the_body_and_then_the_documents(skills: Tree) -> None:
    done = skills.run("load", "pdf", "--all-docs")
    assert done.stdout == (
        f"{BODY}\n[Doc] notes.txt\n\nNotes.\n\n[Doc] references/forms.md\n\nForms.\n"
    )
    assert done.stderr == ""


def test_one_document_that_can_not_be_given_does_not_keep_back_the_rest(skills: Tree) -> None:
    skills.write(f"{FOLDER}/bad.md", b"\0")
    done = skills.run("load", "pdf", "--all-docs", "--json")
    assert [doc["path"] for doc in done.document["docs"]] == [
        "notes.txt",
        "references/forms.md",
    ]
    assert "skipped: bad.md: its content is application/octet-stream" in done.stderr
    assert skills.run("load", "pdf", "--all-docs", "--json", "-q").stderr == ""


def test_a_name_that_is_no_document_is_answered_with_the_documents(skills: Tree) -> None:
    done = skills.run("load", "pdf", "--docs", "forms")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "forms: pdf has no such document; it has: notes.txt, references/forms.md" in done.stderr


def test_a_document_asked_for_by_name_must_be_there(skills: Tree) -> None:
    done = skills.run("load", "pdf", "--docs", "references/form.md")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "closest: references/forms.md" in done.stderr


@pytest.mark.parametrize("path", ["../pdf/SKILL.md", "/etc/hostname.md"])
def test_a_document_outside_is_denied(skills: Tree, path: str) -> None:
    assert skills.run("load", "pdf", "--docs", path).exit_code == 4


def test_an_unknown_skill(skills: Tree) -> None:
    done = skills.run("load", "pfd")
    assert done.exit_code == 3
    assert "closest: pdf" in done.stderr


def test_a_long_body_is_cut_and_stored(skills: Tree) -> None:
    skills.skill(FOLDER, text=LONG)
    report = loaded(skills)["report"]
    assert (report["truncated"], report["strategy"]) == (True, "sections")
    assert report["storage_ref"].startswith(str(skills.home / ".state" / "skillbelt"))
    assert Path(report["storage_ref"]).read_text("utf-8") == LONG
    done = skills.run("load", "pdf")
    assert "Do it." in done.stdout
    assert "SKILL.md was cut to" in done.stderr
    assert report["storage_ref"] in done.stderr


def test_the_settings_may_refuse_a_long_body(skills: Tree) -> None:
    skills.skill(FOLDER, text=LONG)
    skills.setenv("SKILLBELT_BODY_OVERFLOW", "refuse")
    done = skills.run("load", "pdf")
    assert done.exit_code == 1
    assert "reference/" in done.stderr


def test_limits_are_settings(skills: Tree) -> None:
    skills.setenv("SKILLBELT_MAX_SKILL_BODY_LINES", "2")
    assert loaded(skills)["report"]["truncated"]


def test_the_user_is_not_asked_for_trust(skills: Tree) -> None:
    skills.setenv("SKILLBELT_TRUST_PROJECT", "ask")
    assert loaded(skills)["text"] == BODY


def test_a_terminal_is_not_steered_by_the_text(skills: Tree) -> None:
    skills.skill(FOLDER, text="a\x1b[31mb\rc\u202ed\n")
    screen = on_terminal(skills, "load", "pdf")
    assert "\x1b[31m" not in screen.written
    assert screen.lines[0] == "a\\x1b[31mbc\\u202ed"
    assert skills.run("load", "pdf").stdout == "a\x1b[31mb\rc\u202ed\n"
