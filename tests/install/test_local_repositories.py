"""A repository on this disk is read where it lies; nothing in it is obeyed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.install import git as product_git
from skillbelt.install.fetching import OpenSource, open_source
from skillbelt.install.git import find_local
from skillbelt.install.source_syntax import parse_source
from skillbelt.settings import Settings, load_settings
from tests.install.repositories import BareRepository, git, skill_text
from tests.tree import Tree


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(project=str(tmp_path), environ={"HOME": str(tmp_path)})


@pytest.fixture
def repository(tmp_path: Path) -> BareRepository:
    return BareRepository(tmp_path / "source.git")


def opened(repository: BareRepository, settings: Settings, ref: str = "") -> OpenSource:
    into = os.path.join(settings.home, f"into-{os.urandom(4).hex()}")
    os.mkdir(into)
    return open_source(parse_source(repository.url)._replace(ref=ref), settings, into)


def names(repository: BareRepository, settings: Settings, ref: str = "") -> list[str]:
    return [skill.name for skill in opened(repository, settings, ref).found.skills]


def is_read_in_place(repository: BareRepository, ref: str = "") -> bool:
    return find_local(str(repository.folder), ref) is not None


@pytest.mark.parametrize("packed", [False, True])
def test_branches_and_tags_are_found_loose_and_packed(
    repository: BareRepository, settings: Settings, packed: bool
) -> None:
    first = repository.commit({"SKILL.md": skill_text("first")})
    git(repository.folder, "tag", "-a", "v1", "-m", "one", first)
    second = repository.commit({"SKILL.md": skill_text("second")}, branch="feature/two")
    if packed:
        git(repository.folder, "pack-refs", "--all")
        git(repository.folder, "repack", "-adq")
    for ref, name in (("", "first"), ("v1", "first"), ("feature/two", "second")):
        assert is_read_in_place(repository, ref)
        assert names(repository, settings, ref) == [name]
    assert opened(repository, settings, "feature/two").commit == second


def test_a_detached_head_is_the_default(repository: BareRepository, settings: Settings) -> None:
    first = repository.commit({"SKILL.md": skill_text("first")})
    repository.commit({"SKILL.md": skill_text("second")}, parent=first)
    git(repository.folder, "update-ref", "--no-deref", "HEAD", first)
    assert is_read_in_place(repository)
    assert names(repository, settings) == ["first"]


def test_a_commit_that_is_named_is_fetched_so_that_git_compares_its_id(
    repository: BareRepository, settings: Settings
) -> None:
    first = repository.commit({"SKILL.md": skill_text("first")})
    forged = repository.commit({"SKILL.md": skill_text("forged")})
    here = repository.folder / "objects"
    (here / first[:2] / first[2:]).unlink()
    os.link(here / forged[:2] / forged[2:], here / first[:2] / first[2:])
    assert not is_read_in_place(repository, first)
    with pytest.raises(SourceFailure):
        opened(repository, settings, first)


@pytest.mark.parametrize("ref", ["../../../etc/passwd", "refs/../HEAD", "heads", "a\nb", "-x"])
def test_a_name_that_is_no_ref_reads_no_other_file(repository: BareRepository, ref: str) -> None:
    repository.commit({"SKILL.md": skill_text("first")})
    assert not is_read_in_place(repository, ref)


def test_a_ref_that_is_a_link_or_leads_elsewhere_is_left_to_git(
    repository: BareRepository, tmp_path: Path
) -> None:
    commit = repository.commit({"SKILL.md": skill_text("first")})
    (tmp_path / "secret").write_text(commit)
    heads = repository.folder / "refs" / "heads"
    (heads / "link").symlink_to(tmp_path / "secret")
    (heads / "symbolic").write_text("ref: refs/heads/main\n")
    assert not is_read_in_place(repository, "link")
    assert not is_read_in_place(repository, "symbolic")


def test_a_partial_clone_says_what_to_give(
    repository: BareRepository, settings: Settings, tmp_path: Path
) -> None:
    repository.commit({"SKILL.md": skill_text("first")})
    git(repository.folder, "config", "uploadpack.allowFilter", "true")
    part = tmp_path / "part.git"
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", repository.url, str(part))
    (into := tmp_path / "into").mkdir()
    with pytest.raises(SourceFailure, match="partial clone"):
        open_source(parse_source(part.as_uri()), settings, str(into))


def test_the_configuration_and_hooks_of_the_repository_do_nothing(
    repository: BareRepository, settings: Settings, tmp_path: Path
) -> None:
    repository.commit({"SKILL.md": skill_text("first")})
    mark = tmp_path / "ran"
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "uploadpack.packObjectsHook", "core.pager"):
        git(repository.folder, "config", key, str(script))
    hooks = repository.folder / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-auto-gc", "reference-transaction", "post-index-change"):
        (hooks / name).symlink_to(script)
    assert names(repository, settings) == ["first"]
    assert not mark.exists()


@pytest.fixture
def longer(tree: Tree) -> str:
    """A repository with ids of SHA-256, which git writes itself; its address."""
    work = tree.root / "longer"
    work.mkdir()
    git(work, "init", "-q", "--object-format=sha256", "-b", "main")
    (work / "SKILL.md").write_text(skill_text("alpha"))
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "x")
    return (work / ".git").as_uri()


def test_a_repository_with_ids_of_sha256_is_read_and_fetched(tree: Tree, longer: str) -> None:
    assert tree.run("add", longer, "--yes").exit_code == 0
    lock = (tree.project / "skills-lock.json").read_text()
    shutil.rmtree(tree.project / ".agents")
    shutil.rmtree(tree.root / "home" / ".cache", ignore_errors=True)
    done = tree.run("sync", "--frozen", "--yes")  # fetches the commit by its id
    assert (done.exit_code, done.stdout) == (0, "alpha: installed\n"), done.stderr
    assert (tree.project / "skills-lock.json").read_text() == lock
    assert tree.run("outdated").exit_code == 0


def test_a_commit_with_an_id_of_sha256_is_a_ref(tree: Tree, longer: str) -> None:
    commit = git(tree.root / "longer", "rev-parse", "HEAD")
    assert len(commit) == 64
    assert tree.run("add", longer, "--ref", commit, "--yes").exit_code == 0


@pytest.mark.parametrize("place", ["object", "objects/info/alternates"])
def test_a_pipe_in_place_of_a_file_ends_at_the_deadline(
    repository: BareRepository, settings: Settings, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git opens it and waits for a writer that never comes."""
    commit = repository.commit({"skills": {"alpha": {"SKILL.md": skill_text("alpha")}}})
    folder = git(repository.folder, "rev-parse", f"{commit}:skills")
    path = repository.folder / (
        f"objects/{folder[:2]}/{folder[2:]}" if place == "object" else place
    )
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    monkeypatch.setattr(product_git, "GIT_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(SourceFailure, match="not done after"):
        opened(repository, settings)
