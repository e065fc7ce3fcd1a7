from __future__ import annotations

from tests.discovery.sources.archives import SKILL, zipped
from tests.discovery.sources.server import running
from tests.tree import Tree


def test_says_what_is_new_changed_and_gone(tree: Tree) -> None:
    gone = tree.skill("project/.agents/skills/gone")
    tree.skill("project/.agents/skills/same")
    assert tree.run("refresh").stdout == (
        "2 skills; 2 files new or changed, 0 gone since the last scan\n"
    )
    tree.skill("project/.agents/skills/new")
    (gone / "SKILL.md").unlink()
    assert tree.run("refresh").stdout == (
        "2 skills; 1 file new or changed, 1 gone since the last scan\n"
    )


def test_json(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    tree.skill("home/.agents/skills/pdf")
    document = tree.run("refresh", "--json").document
    (said,) = document.pop("diagnostics")
    assert said["code"] == "shadowed"
    assert document == {"skills": 1, "files_read": 2, "files_changed": 2, "files_gone": 0}


def test_problems_go_to_stderr_with_remedies_when_asked(tree: Tree) -> None:
    file = tree.write("project/.agents/skills/bad/SKILL.md", b"\xff")
    done = tree.run("refresh")
    assert done.exit_code == 0
    assert done.stderr == f"{file}:1: error not-utf8: the file is not UTF-8\n"
    assert "save it as UTF-8" in tree.run("refresh", "-v").stderr
    assert tree.run("refresh", "-q").stderr == ""


def test_remote_sources_are_asked_again(tree: Tree) -> None:
    with running() as server:
        server.pages["/s.zip"] = zipped({"pdf/SKILL.md": SKILL})
        tree.setenv("SKILLS_ROOT", f"{server.url}/s.zip")
        tree.run("list")
        tree.run("list")
        assert len(server.requests) == 1
        server.pages["/s.zip"] = zipped({"pdf/SKILL.md": SKILL.replace(b"Reads", b"Eats")})
        assert tree.run("refresh").exit_code == 0
        assert len(server.requests) == 2
        assert "Eats PDF files." in tree.run("list").stdout


def test_a_dead_server_is_told_and_its_copy_kept(tree: Tree) -> None:
    with running() as server:
        server.pages["/s.zip"] = zipped({"pdf/SKILL.md": SKILL})
        tree.setenv("SKILLS_ROOT", f"{server.url}/s.zip")
        tree.run("list")
    done = tree.run("refresh")
    assert done.exit_code == 0
    assert done.stdout.startswith("1 skill;")
    assert "the last good copy is in use" in done.stderr
