"""`add` from each kind of source: a real repository, server or file, and the entry in the lock."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from skillbelt.install.fetching import fetch_skills
from skillbelt.install.source_syntax import parse_source
from tests.discovery.sources.mcp_server import serving as mcp_serving
from tests.discovery.sources.server import Reply, running
from tests.install.git_server import serving
from tests.install.repositories import BareRepository, skill_text
from tests.install.test_fetching import (
    LAYER,
    SCHEMA,
    digest_of,
    layout,
    marketplace,
    tarred,
    write_skill,
    zipped,
)
from tests.tree import Tree

SKILLS = ".agents/skills"
FILES = {"SKILL.md": skill_text("alpha"), "a.txt": "1"}
# Notes its words and runs the command here; the absolute path of an address begins at the tree.
SSH = """#!/bin/sh
printf '%s\\n' "$@" > {log}
for last in "$@"; do :; done
cd {root} && exec sh -c "$(printf %s "$last" | sed "s,'/,',")"
"""


def add(tree: Tree, *words: str) -> dict[str, Any]:
    """Add the skill alpha; return its entry in the lock."""
    done = tree.run("add", *words, "--skill", "alpha", "--yes")
    assert done.exit_code == 0, done.stderr
    text = (tree.project / SKILLS / "alpha/SKILL.md").read_text()
    assert "name: alpha\n" in text
    entry = json.loads((tree.project / "skills-lock.json").read_text())["skills"]["alpha"]
    assert entry["contentDigest"].startswith("sha256:")
    return dict(entry)


def restore(tree: Tree) -> None:
    """Install again by the lock alone, without the store."""
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        tree.setenv(name, tree.root / "another" / name)
    (tree.project / SKILLS).rename(tree.root / "before")
    done = tree.run("sync", "--frozen", "--yes")
    assert done.exit_code == 0, done.stderr
    assert (tree.project / SKILLS / "alpha/SKILL.md").is_file()


def test_git_over_http_with_a_ref_and_a_skill(tree: Tree) -> None:
    repository = BareRepository(tree.root / "served/source.git")
    commit = repository.commit({"skills": {"alpha": FILES}}, branch="dev")
    repository.commit({"README.md": "x"})
    with serving(tree.root / "served") as server:
        entry = add(tree, f"{server.url}/source.git#dev@alpha")
        restore(tree)
    assert (entry["sourceType"], entry["commit"], entry["ref"]) == ("git", commit, "dev")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("git@host.example:team/source.git", ["git@host.example"]),
        (
            "ssh://git@host.example:2222/team/source.git",
            ["-p", "2222", "git@host.example"],
        ),
    ],
)
def test_git_over_ssh_starts_ssh_without_questions(
    tree: Tree, address: str, words: list[str]
) -> None:
    repository = BareRepository(tree.root / "team/source.git")
    commit = repository.commit({"skills": {"alpha": FILES}})
    log = tree.root / "words"
    program = SSH.format(root=shlex.quote(str(tree.root)), log=shlex.quote(str(log)))
    tree.write("bin/ssh", program).chmod(0o755)
    tree.setenv("PATH", f"{tree.root}/bin:{os.environ['PATH']}")
    entry = add(tree, address)
    assert (entry["source"], entry["commit"]) == (address, commit)
    path = "/team/source.git" if "://" in address else "team/source.git"
    assert log.read_text().splitlines() == [
        "-oBatchMode=yes", "-o", "SendEnv=GIT_PROTOCOL", *words, f"git-upload-pack '{path}'",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["alpha.skill", "alpha.zip", "alpha.tar.gz"])
def test_an_archive_of_a_server(tree: Tree, name: str) -> None:
    data = gzip.compress(tarred(FILES)) if name.endswith(".gz") else zipped(FILES)
    with running() as server:
        server.pages[f"/{name}"] = data
        entry = add(tree, f"{server.url}/{name}")
        restore(tree)
    assert entry["source"] == f"{server.url}/{name}"


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_an_archive_of_this_machine(tree: Tree, prefix: str) -> None:
    archive = tree.write("alpha.skill", zipped(FILES))
    add(tree, f"{prefix}{archive}")
    restore(tree)


def test_an_archive_in_a_project_is_found_on_another_machine(tree: Tree) -> None:
    tree.write("project/packed/alpha.zip", zipped(FILES))
    entry = add(tree, "./packed/alpha.zip")
    assert entry["source"] == "./packed/alpha.zip"
    move_to_another_machine(tree)


def move_to_another_machine(tree: Tree) -> None:
    """Restore what the lock says in a project that moved, with an empty home."""
    other = tree.project.with_name("elsewhere")
    tree.project.rename(other)
    shutil.rmtree(other / ".agents")
    shutil.rmtree(tree.home)
    tree.home.mkdir()
    done = tree.run("sync", "--frozen", "--yes", project="elsewhere")
    assert (done.exit_code, done.stdout) == (0, "alpha: installed\n"), done.stderr


def test_a_lock_with_the_whole_path_of_an_archive_stays_good(tree: Tree) -> None:
    archive = tree.write("project/alpha.zip", zipped(FILES))
    add(tree, "./alpha.zip")
    lock = tree.project / "skills-lock.json"
    lock.write_text(lock.read_text().replace('"./alpha.zip"', json.dumps(str(archive))))
    done = tree.run("add", "./alpha.zip", "--yes")
    assert done.exit_code == 0, done.stderr


def test_a_site_with_a_list_of_its_skills(tree: Tree) -> None:
    text = skill_text("alpha").encode()
    listed = {"name": "alpha", "type": "skill-md", "description": "x", "url": "alpha/SKILL.md",
              "digest": digest_of(text)}  # fmt: skip
    base = "/.well-known/agent-skills"
    with running() as server:
        index = json.dumps({"$schema": SCHEMA, "skills": [listed]}).encode()
        server.pages = {f"{base}/index.json": index, f"{base}/alpha/SKILL.md": text}
        entry = add(tree, server.url)
        restore(tree)
    assert entry["sourceType"] == "well-known"


def test_an_mcp_server(tree: Tree) -> None:
    with mcp_serving() as server:
        server.add({"guide.md": b"The guide.\n"})
        done = tree.run("add", f"{server.url}#docs", "--all", "--yes")
    assert done.exit_code == 0, done.stderr
    assert (tree.project / SKILLS / "pdf/guide.md").read_text() == "The guide.\n"


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_the_marketplace_of_a_repository(tree: Tree, kind: str) -> None:
    source: object = "./plugins/tools"
    place = ".claude-plugin"
    if kind == "codex":
        source, place = {"source": "local", "path": source}, ".agents/plugins"
    folder = tree.root / "source"
    marketplace(folder / place, source)
    write_skill(folder / "plugins/tools/skills/alpha", "alpha")
    add(tree, str(folder))


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_a_plugin_of_a_marketplace_by_its_name(tree: Tree, kind: str) -> None:
    repository = BareRepository(tree.root / "plugin.git")
    commit = repository.commit({"sub": {"skills": {"alpha": FILES}}})
    source = {"source": "git-subdir", "url": repository.url, "path": "./sub", "sha": commit}
    place = ".claude-plugin" if kind == "claude" else ".agents/plugins"
    marketplace(tree.project / place, source)
    entry = add(tree, "tools@team")
    assert (entry["commit"], entry["skillPath"]) == (commit, "sub/skills/alpha/SKILL.md")


def test_an_agent_plugin(tree: Tree) -> None:
    write_skill(tree.root / "made/alpha", "alpha")
    assert tree.run("pack", "../made/alpha", "--format", "plugin").exit_code == 0
    (packed,) = Path(tree.project).rglob("*.plugin.zip")
    add(tree, str(packed))


def test_a_registry_that_gives_a_token_to_anyone(tree: Tree) -> None:
    data = gzip.compress(tarred(FILES))
    digest = layout(tree.root / "layout", [(LAYER, data)])
    with running() as server:
        host = server.url.removeprefix("http://")
        asked = {"WWW-Authenticate": f'Bearer realm="{server.url}/token",service="r"'}

        class Registry(dict[str, Any]):
            """Pages that only a request with the token gets."""

            def get(self, path: str, default: Any = None) -> Any:
                if path.startswith("/token?"):
                    return b'{"token": "abc"}'
                if server.headers[-1].get("authorization") != "Bearer abc":
                    return Reply(status=401, headers=asked)
                return super().get(path, default)

        server.pages = Registry()
        for blob in (tree.root / "layout/blobs/sha256").iterdir():
            body = blob.read_bytes()
            kind = "manifests" if digest_of(body) == digest else "blobs"
            server.pages[f"/v2/team/{kind}/{digest_of(body)}"] = body
            if kind == "manifests":
                server.pages["/v2/team/manifests/v1"] = body
        entry = add(tree, f"oci://{host}/team:v1")
        restore(tree)
        tokens = [path for path in server.requests if path.startswith("/token")]
    assert entry["provenance"]["digest"] == digest
    assert tokens[0] == "/token?service=r&scope=repository%3Ateam%3Apull"


def test_a_layout_on_this_disk(tree: Tree) -> None:
    layout(tree.root / "layout", [(LAYER, gzip.compress(tarred(FILES)))])
    add(tree, f"oci-layout:{tree.root}/layout")
    restore(tree)


def test_a_layout_in_a_project_is_found_on_another_machine(tree: Tree) -> None:
    layout(tree.project / "packed", [(LAYER, gzip.compress(tarred(FILES)))])
    entry = add(tree, "oci-layout:packed")
    assert (entry["source"], entry["sourceUrl"]) == ("oci-layout:./packed", "oci-layout:./packed")
    move_to_another_machine(tree)


def test_the_layout_of_several_skills_says_which_names_it_has(tree: Tree) -> None:
    skills = [str(tree.skill(f"made/{name}")) for name in ("one", "two")]
    packed = tree.run("pack", *skills, "--format", "oci-layout", "-o", "packed")
    assert packed.exit_code == 0, packed.stderr
    refused = tree.run("add", "oci-layout:packed", "--yes")
    assert "has 2 manifests, and one is needed: one, two" in refused.stderr
    taken = tree.run("add", "oci-layout:packed#two", "--yes")
    assert taken.exit_code == 0, taken.stderr


def test_clawhub_is_asked_for_the_slug_and_the_version(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = zipped(FILES)
    (into := tree.root / "into").mkdir()
    with running() as server:
        monkeypatch.setattr("skillbelt.install.online.CLAWHUB_URL", f"{server.url}/download")
        server.pages["/download?slug=owner%2Falpha&version=1.2.0"] = data
        reference = parse_source("clawhub:owner/alpha@1.2.0")
        (skill,) = fetch_skills(reference, tree.settings(), str(into))
    assert skill.name == "alpha"
    assert skill.provenance == {"archiveDigest": f"sha256:{hashlib.sha256(data).hexdigest()}"}
