"""What an attacker puts into a source, tried with the command that a user types."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.discovery.sources.archives import zipped
from tests.discovery.sources.server import running
from tests.install.repositories import BareRepository, git, skill_text
from tests.install.repositories import Tree as RepositoryTree
from tests.install.test_git import HOSTILE, OTHER, SKILL
from tests.tree import Tree

SKILLS = ".agents/skills"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


@pytest.fixture
def source(tree: Tree) -> BareRepository:
    return BareRepository(tree.root / "source.git")


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_no_hostile_file_is_installed_and_the_other_skills_are(
    tree: Tree, source: BareRepository
) -> None:
    skills: dict[str, RepositoryTree] = {"alpha": SKILL}
    for number, (bad, _) in enumerate(HOSTILE.values()):
        text = skill_text(f"case-{number}")
        skills[f"case-{number}"] = {"SKILL.md": text, "scripts": SKILL["scripts"], **bad}
    source.commit({"skills": skills})
    done = tree.run("add", source.url, "--all", "--yes", "--json")
    assert done.exit_code == 3, done.stderr
    assert [one["name"] for one in done.document["changes"]] == ["alpha"]
    refused = {one["name"]: one["code"] for one in done.document["refused"]}
    assert refused == {f"case-{number}": "source-refused" for number in range(len(HOSTILE))}
    assert os.listdir(tree.project / SKILLS) == ["alpha"]
    assert list(json.loads((tree.project / "skills-lock.json").read_text())["skills"]) == ["alpha"]
    assert not os.path.lexists("/nonexistent/x")


def test_nothing_of_a_repository_runs_while_it_is_added(tree: Tree, source: BareRepository) -> None:
    mark = tree.root / "ran"
    program = tree.write("program", f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    files: RepositoryTree = {
        **SKILL,
        ".gitattributes": "* filter=x text eol=crlf ident export-ignore\nbig.bin filter=lfs\n",
        ".gitconfig": f"[core]\n\tfsmonitor = {program}\n[alias]\n\tfetch = !{program}\n",
        ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch\n',
        ".lfsconfig": f"[lfs]\n\turl = http://127.0.0.1:9\n[filter]\n\tsmudge = {program}\n",
        "big.bin": POINTER,
        "id.txt": "$Id$\n",
    }
    source.commit({"skills": {"alpha": files}})
    (source.folder / "hooks").mkdir(exist_ok=True)
    for name in ("post-checkout", "post-merge", "reference-transaction", "pre-auto-gc"):
        (source.folder / "hooks" / name).symlink_to(program)
    for key in ("core.fsmonitor", "core.sshCommand", "filter.x.smudge", "filter.lfs.process",
                "uploadpack.packObjectsHook", "core.alternateRefsCommand", "credential.helper",
                "include.path"):  # fmt: skip
        git(source.folder, "config", key, str(program))
    for words in (("--ref", "main"), ()):
        done = tree.run("add", source.url, "--all", "--yes", *words)
        assert done.exit_code == 0, done.stderr
    there = tree.project / SKILLS / "alpha"
    assert not mark.exists()
    assert ((there / "id.txt").read_text(), (there / "big.bin").read_text()) == ("$Id$\n", POINTER)
    assert b"\r" not in (there / "scripts/run.sh").read_bytes()


def test_a_submodule_beside_a_skill_is_not_fetched(tree: Tree, source: BareRepository) -> None:
    modules = '[submodule "x"]\n\tpath = skills/x\n\turl = file:///nonexistent\n'
    source.commit({".gitmodules": modules, "skills": {"alpha": SKILL, "x": ("160000", OTHER)}})
    done = tree.run("add", source.url, "--all", "--yes")
    assert (done.exit_code, os.listdir(tree.project / SKILLS)) == (0, ["alpha"]), done.stderr


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"zeros": b"\0" * (65 * 2**20)}, "zeros"),
        ({f"f{number}": b"" for number in range(10_001)}, "files"),
        ({"a/" * 600 + "x": b""}, "a/a/"),
        ({"../evil": b"x"}, "evil"),
        ({"Notes.md": b"1", "notes.md": b"2"}, "otes.md"),
    ],
    ids=["bytes", "files", "depth", "path", "case"],
)
def test_a_hostile_archive_leaves_nothing(tree: Tree, files: dict[str, bytes], named: str) -> None:
    archive = tree.write("a.zip", zipped({"SKILL.md": skill_text("alpha").encode(), **files}))
    before = everything_below(tree.root)
    done = tree.run("add", str(archive), "--yes")
    assert done.exit_code in (1, 4), done.stderr
    assert named in done.stderr and "Traceback" not in done.stderr
    left = everything_below(tree.root) - before
    assert not [name for name in left if "evil" in name or "SKILL.md" in name or "zeros" in name]
    assert not (tree.project / SKILLS).exists()


def test_a_second_skill_of_one_name_is_named_and_not_installed(
    tree: Tree, source: BareRepository
) -> None:
    texts = {name: {"SKILL.md": skill_text("alpha", name)} for name in ("first", "second")}
    source.commit({"skills": texts})
    listed = tree.run("add", source.url, "--list", "--json").document
    assert [one["path"] for one in listed["skipped"]] == ["skills/second/SKILL.md"]
    assert tree.run("add", source.url, "--all", "--yes").exit_code == 0
    assert "first" in (tree.project / SKILLS / "alpha/SKILL.md").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("ext::sh -c touch% ran",),
        ("fd::17",),
        ("--", "--upload-pack=touch ran"),
        ("--", "-oProxyCommand=touch ran"),
        ("git@-oProxyCommand=touch:o/r.git",),
        ("ssh://-oProxyCommand=touch/o/r.git",),
        ("owner/repo#--upload-pack=touch",),
        ("owner/repo", "--ref=--upload-pack=touch"),
    ],
)
def test_no_source_becomes_a_program_or_an_option_of_git(
    tree: Tree, words: tuple[str, ...]
) -> None:
    before = everything_below(tree.project)
    done = tree.run("add", "--all", "--yes", *words)
    assert done.exit_code == 1 and "Traceback" not in done.stderr
    assert everything_below(tree.project) == before


@pytest.mark.parametrize(
    "address",
    [
        "https://user:hunter2@127.0.0.1:9/r.git",
        "https://hunter2@127.0.0.1:9/r.zip",
        "ssh://git:hunter2@127.0.0.1:9/r.git",
        "oci://user:hunter2@127.0.0.1:9/team:v1",
        "http://127.0.0.1:9/r.zip?private_token=hunter2",
        "http://127.0.0.1:9/r.git?a=b&access_token=hunter2",
        "http://127.0.0.1:9/a.skill?X-Amz-Signature=hunter2",
        "http://127.0.0.1:9/a.skill?%74oken=hunter2",
        "mcp+http://127.0.0.1:9/mcp?apiKey=hunter2#work",
        "mcp+http://hunter2@127.0.0.1:9/mcp#work",
        "mcp+stdio://work?server --token=hunter2",
        "https://github.com/owner/repo?token=hunter2",
    ],
)
def test_a_secret_in_an_address_is_in_no_message_and_no_file(tree: Tree, address: str) -> None:
    done = tree.run("add", address, "--all", "--yes", "-v")
    assert done.exit_code == 1
    assert "hunter2" not in done.stdout + done.stderr
    for path in tree.root.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_an_ordinary_query_stays_in_the_address(tree: Tree) -> None:
    with running() as server:
        archive = zipped({"SKILL.md": skill_text("alpha").encode()})
        server.pages["/a.zip?version=1&keyword=x"] = archive
        done = tree.run("add", f"{server.url}/a.zip?version=1&keyword=x", "--yes")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("kind", ["mcp", "github"])
@pytest.mark.parametrize("words", ["outdated", "update --check", "sync --yes", "sync --frozen -y"])
def test_a_lock_starts_no_program(tree: Tree, kind: str, words: str) -> None:
    entry = {
        "source": "acme/skills",
        "sourceUrl": f"mcp+stdio://own?touch {tree.root}/ran",
        "sourceType": kind,
        "skillPath": "skills/alpha/SKILL.md",
        "computedHash": "0" * 64,
        "contentDigest": f"sha256:{'0' * 64}",
        "treeSha": "0" * 40,
    }
    tree.write("project/skills-lock.json", json.dumps({"version": 1, "skills": {"alpha": entry}}))
    done = tree.run(*words.split())
    assert done.exit_code in (2, 3)
    assert "a source names no command" in done.stderr
    assert not (tree.root / "ran").exists()


def test_a_marketplace_starts_no_program(tree: Tree) -> None:
    command = f"mcp+stdio://own?touch {tree.root}/ran"
    plugins = [
        {"name": f"p{number}", "source": {"source": kind, "url": command, "repo": command}}
        for number, kind in enumerate(("archive", "url", "git", "github", "git-subdir"))
    ]
    market = {"name": "market", "owner": {"name": "x"}, "plugins": plugins}
    known = tree.home / ".claude/plugins"
    tree.write(known / "market/.claude-plugin/marketplace.json", json.dumps(market))
    listed = {"market": {"installLocation": str(known / "market"), "source": {}}}
    tree.write(known / "known_marketplaces.json", json.dumps(listed))
    for number in range(len(plugins)):
        done = tree.run("add", f"p{number}@market", "--all", "--yes")
        assert done.exit_code == 1
        assert "a source names no command" in done.stderr, done.stderr
    assert not (tree.root / "ran").exists()


def test_a_marketplace_of_a_checkout_takes_no_name_that_the_user_knows(tree: Tree) -> None:
    for base, text in ((tree.project, "stranger"), (tree.home, "known")):
        write = {"name": "team", "plugins": [{"name": "tools", "source": f"./{text}"}]}
        tree.write(base / ".claude-plugin/marketplace.json", json.dumps(write))
        tree.skill(base / text / "skills" / text)
    done = tree.run("add", "tools@team", "--list")
    assert done.stdout.startswith("known\t"), done.stderr


def test_a_lock_of_another_machine_names_the_source_that_is_not_here(
    tree: Tree, source: BareRepository
) -> None:
    source.commit({"skills": {"alpha": SKILL}})
    assert tree.run("add", source.url, "--all", "--yes", "--to", "claude").exit_code == 0
    text = (tree.project / "skills-lock.json").read_text()
    tree.write("elsewhere/skills-lock.json", text.replace(str(tree.root), "/home/other"))
    tree.setenv("XDG_STATE_HOME", tree.root / "other-state")
    tree.setenv("XDG_CACHE_HOME", tree.root / "other-cache")
    done = tree.run("sync", "--frozen", "--yes", "--json", project="elsewhere")
    assert done.exit_code == 2, done.stderr
    (refused,) = done.document["refused"]
    assert refused["name"] == "alpha" and "/home/other/source.git" in refused["message"]
    assert everything_below(tree.root / "elsewhere") == {"skills-lock.json"}


def test_two_names_with_one_folder_are_not_put_over_each_other(tree: Tree, tmp_path: Path) -> None:
    for number, name in enumerate(("Cat Fact", "cat fact", "cat-fact")):
        folder = tmp_path / f"source/skills/{number}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
    done = tree.run("add", str(tmp_path / "source"), "--all", "--yes", "--json")
    assert done.exit_code == 3
    assert [one["name"] for one in done.document["changes"]] == ["Cat Fact"]
    assert {one["code"] for one in done.document["refused"]} == {"name-taken"}
    again = tree.run("add", str(tmp_path / "source"), "--skill", "cat-fact", "--yes", "--json")
    assert again.exit_code == 4
    assert "Cat Fact" in again.document["refused"][0]["message"]


def test_a_skill_is_removed_by_its_name_and_by_its_folder(tree: Tree, tmp_path: Path) -> None:
    folder = tmp_path / "source/skills/x"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: Cat Fact\ndescription: d\n---\n")
    for name in ("Cat Fact", "cat-fact"):
        assert tree.run("add", str(tmp_path / "source"), "--yes").exit_code == 0
        assert tree.run("verify", name).exit_code == 0
        assert tree.run("remove", name, "--yes").exit_code == 0
        assert tree.run("verify").exit_code == 0


def test_a_full_disk_is_named_and_leaves_the_old_state(
    tree: Tree, source: BareRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.commit({"skills": {"alpha": SKILL, "beta": {"SKILL.md": skill_text("beta")}}})
    assert tree.run("add", source.url, "--skill", "alpha", "--yes").exit_code == 0
    before = (tree.project / "skills-lock.json").read_bytes()
    files = everything_below(tree.project)
    assert tree.run("add", source.url, "--skill", "beta", "--yes", "--dry-run").exit_code == 0
    opens = os.open

    def fail(path: str, flags: int, *more: int, **named: int) -> int:
        if path == "SKILL.md" and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opens(path, flags, *more, **named)

    monkeypatch.setattr("skillbelt.running.staging.os.open", fail)
    done = tree.run("add", source.url, "--skill", "beta", "--yes", "-q")
    monkeypatch.undo()
    assert (done.exit_code, done.stdout) == (1, "")
    assert ": No space left on device; make room on its disk" in " ".join(done.stderr.split())
    assert (tree.project / "skills-lock.json").read_bytes() == before
    assert everything_below(tree.project) == files
    assert tree.run("verify").exit_code == 0


@pytest.mark.parametrize("place", ["SKILL.md.upstream", "scripts", "."])
@pytest.mark.parametrize(
    "words", [["update", "--yes"], ["sync", "--yes"], ["sync", "--yes", "--force"]]
)
def test_nothing_is_written_through_a_link_that_lies_in_a_skill(
    tree: Tree, source: BareRepository, place: str, words: list[str]
) -> None:
    source.commit({"alpha": {"SKILL.md": skill_text("alpha", "one"), "scripts": {"a.py": "1"}}})
    assert tree.run("add", source.url, "--all", "--yes").exit_code == 0
    scripts: RepositoryTree = {"a.py": "2", "b.py": "2"}
    source.commit({"alpha": {"SKILL.md": skill_text("alpha", "theirs"), "scripts": scripts}})
    outside = tree.root / "outside"
    for name in ("SKILL.md", "SKILL.md.upstream", "a.py"):
        tree.write(f"outside/{name}", "kept")
    installed = tree.root / "project" / SKILLS / "alpha"
    (installed / "SKILL.md").write_text(skill_text("alpha", "mine"))
    link = installed / place
    if link.is_dir():
        shutil.rmtree(link)
    link.symlink_to(outside / place if place.endswith(".upstream") else outside)
    done = tree.run(*words)
    assert done.exit_code == (0 if "--force" in words else 2), done.stderr
    assert {path.read_text() for path in outside.iterdir()} == {"kept"}
    assert len(list(outside.iterdir())) == 3
    if words[0] == "update":
        assert f"{os.path.normpath(link)}: cannot be merged" in " ".join(done.stderr.split())
    assert link.is_symlink() == ("--force" not in words)


@pytest.mark.parametrize("place", [".agents", ".agents/skills", ".claude"])
def test_nothing_is_written_through_a_folder_that_leads_out_of_the_project(
    tree: Tree, source: BareRepository, place: str
) -> None:
    source.commit({"alpha": SKILL})
    outside = tree.root / "outside"
    outside.mkdir()
    (tree.project / place).parent.mkdir(parents=True, exist_ok=True)
    (tree.project / place).symlink_to(outside)
    done = tree.run("add", source.url, "--all", "--yes", "--to", "claude")
    assert done.exit_code == 4 and "leads out of the project" in done.stderr
    assert everything_below(outside) <= {"skills"}
    assert not (tree.project / "skills-lock.json").exists()


def test_what_another_tool_left_is_read_as_strictly_as_an_argument(tree: Tree) -> None:
    mark = tree.root / "ran"
    left = {
        "one": ("", {"source": "x", "sourceType": "git", "repoUrl": f"ext::sh -c touch% {mark}"}),
        "two": ("", {"source": "\x1b[2J", "sourceType": "git", "repoUrl": "--upload-pack=touch x"}),
        "three": ("metadata:\n  github-repo: https://u:pa55word@127.0.0.1/x\n", {}),
        "four": ("metadata:\n  github-repo: x/y\n  github-path: ../../etc\n", {}),
    }
    for name, (metadata, record) in left.items():
        folder = f"project/.claude/skills/{name}"
        tree.write(f"{folder}/SKILL.md", f"---\nname: {name}\ndescription: x\n{metadata}---\n")
        if record:
            tree.write(f"{folder}/.openskills.json", json.dumps(record))
    tree.write(
        "project/.clawhub/lock.json", '{"version":1,"skills":{"../../evil":{"version":"1"}}}'
    )
    before = everything_below(tree.project)
    done = tree.run("import", "--yes")
    assert done.exit_code == 4, done.stdout
    assert everything_below(tree.project) == before and not mark.exists()
    said = done.stdout + done.stderr
    assert "pa55word" not in said and "\x1b" not in said and "Traceback" not in said
