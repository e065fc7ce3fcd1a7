from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.install.fetching import fetch_skills
from skillbelt.install.hashes import hash_folder
from skillbelt.install.pack import gzip_stored
from skillbelt.install.source_syntax import parse_source
from tests.discovery.sources.server import running
from tests.install.repositories import skill_text
from tests.tree import Tree

# Of the skill below: the bytes may never change, on no machine and with no version of Python.
GOLDEN = {
    "skill": "16850d1b",
    "plugin": "be3a1254",
    "well-known": "ab56d595",
    "oci-layout": "d0e2b89f",
}


@pytest.fixture
def skill(tree: Tree) -> Path:
    folder = tree.project / "skills/alpha"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill_text("alpha"))
    (folder / "scripts/run.sh").write_text("#!/bin/sh\necho 1\n")
    (folder / "scripts/run.sh").chmod(0o755)
    (folder / "ä.md").write_text("x\n")
    return folder


def written(tree: Tree, form: str) -> dict[str, bytes]:
    done = tree.run("pack", "skills/alpha", "--format", form, "-o", f"out-{form}", "--json")
    assert done.exit_code == 0, done.stderr
    folder = tree.project / f"out-{form}"
    files = {
        str(one["path"]): (folder / one["path"]).read_bytes() for one in done.document["written"]
    }
    for one in done.document["written"]:
        assert one["digest"] == f"sha256:{hashlib.sha256(files[one['path']]).hexdigest()}"
    return files


@pytest.mark.parametrize("form", GOLDEN)
def test_the_same_files_give_the_same_bytes(tree: Tree, skill: Path, form: str) -> None:
    first = written(tree, form)
    os.utime(skill / "SKILL.md", (1, 1))
    (skill / "scripts/run.sh").rename(skill / "scripts/other.sh")
    (skill / "scripts/other.sh").rename(skill / "scripts/run.sh")
    (skill / "SKILL.md").chmod(0o600)
    again = tree.run("pack", "skills/alpha", "--format", form, "-o", "again", "--json")
    assert {one["path"]: (tree.project / "again" / one["path"]).read_bytes()
            for one in again.document["written"]} == first  # fmt: skip
    everything = b"".join(first[path] for path in sorted(first))
    assert hashlib.sha256(everything).hexdigest()[:8] == GOLDEN[form]


def test_what_is_packed_is_what_is_installed(tree: Tree, skill: Path) -> None:
    digest = hash_folder(str(skill)).content_digest
    written(tree, "skill"), written(tree, "plugin"), written(tree, "oci-layout")
    site = written(tree, "well-known")
    for number, source in enumerate(
        ("./out-skill/alpha.skill", "./out-plugin/alpha.plugin.zip", "oci-layout:out-oci-layout")
    ):
        into = tree.root / f"into-{number}"
        into.mkdir()
        reference = parse_source(source, folder=str(tree.project))
        (fetched,) = fetch_skills(reference, tree.settings(), str(into))
        assert hash_folder(fetched.folder).content_digest == digest, source
        assert os.access(f"{fetched.folder}/scripts/run.sh", os.X_OK)
    with running() as server:
        server.pages = {f"/{path}": data for path, data in site.items()}
        (tree.root / "into-site").mkdir()
        (fetched,) = fetch_skills(
            parse_source(server.url), tree.settings(), str(tree.root / "into-site")
        )
    assert hash_folder(fetched.folder).content_digest == digest


def test_nothing_is_written_over_unless_forced(tree: Tree, skill: Path) -> None:
    assert tree.run("pack", "skills/alpha").exit_code == 0
    done = tree.run("pack", "skills/alpha")
    assert done.exit_code == 2 and "--force" in done.stderr
    assert tree.run("pack", "skills/alpha", "--force").exit_code == 0


def test_a_link_or_a_fault_is_named_and_nothing_is_packed(tree: Tree, skill: Path) -> None:
    (skill / "more.md").symlink_to("SKILL.md")
    done = tree.run("pack", "skills/alpha")
    assert done.exit_code == 2 and "'more.md' is a link" in done.stderr
    (skill / "more.md").unlink()
    (skill / "SKILL.md").write_text("---\nname: alpha\n---\n")
    done = tree.run("pack", "skills/alpha")
    assert done.exit_code == 2 and "skillbelt check" in done.stderr
    assert not (tree.project / "alpha.skill").exists()


@given(st.binary(max_size=300) | st.integers(0, 3).map(lambda n: b"x" * (65_535 * n + n)))
def test_stored_gzip_is_gzip(data: bytes) -> None:
    assert gzip.decompress(gzip_stored(data)) == data
    assert zlib.decompress(gzip_stored(data), wbits=31) == data


def test_the_name_of_an_installed_skill_leads_to_its_folder(tree: Tree) -> None:
    assert tree.run("init", "my-skill").exit_code == 0
    for command in ("pack", "new-version"):
        done = tree.run(command, "my-skill")
        assert done.exit_code == 2
        assert "did you mean .agents/skills/my-skill?" in done.stderr


@pytest.mark.parametrize("name", ["notes.MD", "con.txt", "what?", "a\\b", "git~1"])
def test_what_add_refuses_by_a_name_is_not_packed(tree: Tree, name: str) -> None:
    folder = tree.skill("odd")
    tree.write(folder / "notes.md", "1")
    tree.write(folder / name, "2")
    done = tree.run("pack", str(folder))
    assert done.exit_code == 2
    assert "rename it" in done.stderr
    assert not list(tree.project.glob("*.skill"))
