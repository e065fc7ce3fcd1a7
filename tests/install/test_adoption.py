"""`import` and `export`: what other tools left behind, and copies for clients."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.install.desk import InstallDesk
from tests.install.repositories import skill_text
from tests.tree import Tree

GH = """---
description: Does pdf. Use when testing.
metadata:
    github-path: skills/pdf
    github-ref: refs/tags/v1.0.0
    github-repo: https://github.com/owner/repo
    github-tree-sha: 7a5507a41b20be505102f26e6b75927edd1493fd
name: pdf
---

Hello.
"""
OPENSKILLS = {
    "source": "owner/repo",
    "sourceType": "git",
    "repoUrl": "https://github.com/owner/repo",
    "subpath": "skills/pdf",
    "installedAt": "2026-01-24T10:30:00.000Z",
}
CLAWHUB = {"version": 1, "registry": "https://clawhub.ai", "slug": "pdf", "installedVersion": "1"}
COMMIT = "7a5507a41b20be505102f26e6b75927edd1493fd"
APM = f"""lockfile_version: "1"
dependencies:
- repo_url: owner/repo
  resolved_ref: main
  resolved_commit: {COMMIT}
  virtual_path: skills/pdf
  deployed_files:
  - .github/skills/pdf
"""


def put(tree: Tree, folder: str, text: str = "", *, files: Mapping[str, object] = {}) -> Path:
    """Write a skill of the name `pdf`; values of files are JSON."""
    made = tree.project / folder
    made.mkdir(parents=True)
    (made / "SKILL.md").write_text(text or skill_text("pdf"))
    for name, value in files.items():
        path = made / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return made


def entry(tree: Tree) -> dict[str, Any]:
    found = json.loads((tree.project / "skills-lock.json").read_text())["skills"]["pdf"]
    assert isinstance(found, dict)
    return found


def test_a_skill_of_openskills_moves_and_its_client_gets_a_link(tree: Tree) -> None:
    put(tree, ".claude/skills/pdf", files={".openskills.json": OPENSKILLS})
    done = tree.run("import")
    assert (done.exit_code, done.stdout) == (0, "pdf: linked\n"), done.stderr
    assert os.readlink(tree.project / ".claude/skills/pdf") == "../../.agents/skills/pdf"
    written = entry(tree)
    assert {key: written[key] for key in ("source", "sourceType", "skillPath", "clients")} == {
        "source": "owner/repo",
        "sourceType": "github",
        "skillPath": "skills/pdf/SKILL.md",
        "clients": ["claude"],
    }
    assert tree.run("verify").exit_code == 0
    assert tree.run("import", "--json").document["changes"] == []


def test_a_local_skill_of_openskills_keeps_its_folder_as_the_source(tree: Tree) -> None:
    source = tree.project / "mine" / "pdf"
    source.mkdir(parents=True)
    (source / "SKILL.md").write_text(skill_text("pdf"))
    record = {"source": "./mine/pdf", "sourceType": "local", "localPath": str(source)}
    put(tree, ".agents/skills/pdf", files={".openskills.json": record})
    assert tree.run("import").exit_code == 0
    assert entry(tree)["source"] == "./mine/pdf"


def test_a_skill_of_clawhub_is_recorded_in_place(tree: Tree) -> None:
    put(tree, ".agents/skills/pdf", files={".clawhub/origin.json": CLAWHUB})
    done = tree.run("import")
    assert (done.exit_code, done.stdout) == (0, "pdf: recorded in the lock\n"), done.stderr
    assert (entry(tree)["source"], entry(tree)["sourceType"]) == ("pdf", "clawhub")


def test_a_skill_of_gh_has_its_source_in_the_frontmatter(tree: Tree) -> None:
    put(tree, ".github/skills/pdf", GH)
    assert tree.run("import", "--from", "gh").exit_code == 0
    written = entry(tree)
    assert (written["source"], written["ref"], written["skillPath"], written["clients"]) == (
        "owner/repo",
        "v1.0.0",
        "skills/pdf/SKILL.md",
        ["copilot"],
    )


def test_a_skill_of_apm_has_its_commit(tree: Tree) -> None:
    put(tree, ".github/skills/pdf")
    (tree.project / "apm.lock.yaml").write_text(APM)
    assert tree.run("import").exit_code == 0
    assert (entry(tree)["source"], entry(tree)["commit"]) == ("owner/repo", COMMIT)


def test_an_import_without_anything_to_record_says_so(tree: Tree) -> None:
    done = tree.run("import")
    assert done.exit_code == 0
    assert done.stderr == "no other tool installed a skill that is not in the lock yet\n"


def test_a_dry_run_changes_nothing(tree: Tree) -> None:
    folder = put(tree, ".claude/skills/pdf", files={".openskills.json": OPENSKILLS})
    done = tree.run("import", "--dry-run", "--json")
    assert [one["name"] for one in done.document["changes"]] == ["pdf"]
    assert not (tree.project / "skills-lock.json").exists()
    assert folder.is_dir()
    assert not folder.is_symlink()


def test_skills_that_no_tool_installed_are_left_alone(tree: Tree) -> None:
    put(tree, ".agents/skills/pdf")
    assert tree.run("import", "--json").document["changes"] == []
    assert tree.run("import", "pdf").exit_code == 2


@pytest.mark.parametrize(
    "record",
    [
        "{",
        "[]",
        {"sourceType": "git"},
        {**OPENSKILLS, "subpath": "../../etc"},
        {**OPENSKILLS, "repoUrl": "ext::sh -c id"},
        {**OPENSKILLS, "repoUrl": "--upload-pack=id"},
        {**OPENSKILLS, "repoUrl": "https://user:secret@example.com/owner/repo.git"},
        {**OPENSKILLS, "subpath": 7},
    ],
)
def test_a_record_that_no_source_can_be_is_refused(tree: Tree, record: object) -> None:
    folder = put(tree, ".claude/skills/pdf", files={".openskills.json": record})
    done = tree.run("import", "--json")
    assert done.exit_code in (2, 4)
    assert [one["name"] for one in done.document["refused"]] == ["pdf"]
    assert "secret@" not in done.stdout
    assert not folder.is_symlink()
    assert not (tree.project / "skills-lock.json").exists()


def test_a_record_that_is_a_link_to_a_private_file_is_not_read(tree: Tree) -> None:
    folder = put(tree, ".claude/skills/pdf")
    private = tree.root / "private.json"
    private.write_text(json.dumps(OPENSKILLS))
    (folder / ".openskills.json").symlink_to(private)
    done = tree.run("import", "--json")
    assert done.document["changes"] == []
    assert done.document["refused"]


def test_two_copies_that_differ_are_both_kept(tree: Tree) -> None:
    put(tree, ".claude/skills/pdf", files={".openskills.json": OPENSKILLS})
    put(tree, ".agents/skills/pdf", files={"other.md": "x"})
    done = tree.run("import", "--json")
    assert (done.exit_code, done.document["changes"]) == (2, [])
    assert "differ" in done.document["refused"][0]["message"]


@pytest.fixture
def desk(tree: Tree) -> InstallDesk:
    made = InstallDesk(tree)
    made.install()
    return made


def test_export_copies_skills_and_the_lock_knows_the_client(desk: InstallDesk) -> None:
    done = desk.run("export", "claude-code", "alpha", "--json")
    copy = desk.base / ".claude/skills/alpha"
    assert (done.exit_code, done.document["written"][0]["path"]) == (0, str(copy)), done.stderr
    assert not copy.is_symlink()
    assert (copy / "scripts/run.sh").read_text() == "echo one\n"
    assert desk.document()["skills"]["alpha"]["clients"] == ["claude"]
    assert desk.run("verify").exit_code == 0
    assert desk.run("export", "claude-code", "alpha").exit_code == 0


def test_export_never_overwrites_what_is_there(desk: InstallDesk) -> None:
    mine = desk.base / ".claude/skills/alpha"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text("mine")
    done = desk.run("export", "claude", "--json")
    assert done.exit_code == 3
    assert [one["name"] for one in done.document["refused"]] == ["alpha"]
    assert (mine / "SKILL.md").read_text() == "mine"


def test_export_gives_nothing_that_was_edited(desk: InstallDesk) -> None:
    desk.installed("alpha", "scripts/run.sh").write_text("echo mine\n")
    done = desk.run("export", "claude", "alpha")
    assert (done.exit_code, done.stdout) == (2, "")
    assert not (desk.base / ".claude").exists()


def test_export_of_a_dry_run_and_to_an_unknown_client(desk: InstallDesk) -> None:
    assert desk.run("export", "claude", "--dry-run").exit_code == 0
    assert not (desk.base / ".claude").exists()
    assert desk.run("export", "claud").exit_code == 2
    assert desk.run("export", "agents").exit_code == 2
