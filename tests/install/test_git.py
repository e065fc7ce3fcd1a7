"""Skills out of git repositories: which commit comes, and what never does."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.install import git
from skillbelt.install.fetching import fetch_skills, open_source
from skillbelt.install.source_syntax import parse_source
from skillbelt.install.values import FetchedSkill, SourceReference
from skillbelt.settings import Settings, load_settings
from tests.install.repositories import BareRepository, Tree, skill_text
from tests.install.repositories import git as run_git

SKILL: Tree = {"SKILL.md": skill_text("alpha"), "scripts": {"run.sh": ("100755", "echo 1\n")}}
OTHER = "0" * 39 + "1"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    project = tmp_path / "project"
    project.mkdir()
    return load_settings(project=str(project), environ={"HOME": str(tmp_path)})


@pytest.fixture
def into(tmp_path: Path) -> str:
    (tmp_path / "into").mkdir()
    return str(tmp_path / "into")


@pytest.fixture
def repository(tmp_path: Path) -> BareRepository:
    return BareRepository(tmp_path / "source.git")


def source(repository: BareRepository, more: str = "") -> SourceReference:
    return parse_source(repository.url + more)


def files(skill: FetchedSkill) -> dict[str, str]:
    top = Path(skill.folder)
    return {
        str(path.relative_to(top)): path.read_text()
        for path in sorted(top.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_a_skill_comes_with_its_commit_and_the_id_of_its_tree(
    repository: BareRepository, settings: Settings, into: str
) -> None:
    commit = repository.commit({"README.md": "x", "skills": {"alpha": SKILL}})
    (skill,) = fetch_skills(source(repository), settings, into)
    assert (skill.name, skill.skill_path, skill.commit) == (
        "alpha",
        "skills/alpha/SKILL.md",
        commit,
    )
    assert skill.tree_sha == run_git(repository.folder, "rev-parse", f"{commit}:skills/alpha")
    assert files(skill) == {"SKILL.md": skill_text("alpha"), "scripts/run.sh": "echo 1\n"}
    assert os.access(os.path.join(skill.folder, "scripts/run.sh"), os.X_OK)
    assert not os.access(os.path.join(skill.folder, "SKILL.md"), os.X_OK)


def test_a_branch_counts_before_a_tag_and_a_tag_leads_to_its_commit(
    repository: BareRepository, settings: Settings, into: str
) -> None:
    first = repository.commit({"SKILL.md": skill_text("alpha", "first")})
    run_git(repository.folder, "tag", "-a", "v1", "-m", "one", first)
    second = repository.commit({"SKILL.md": skill_text("alpha", "second")}, parent=first)
    repository.commit({"SKILL.md": skill_text("alpha", "third")}, branch="v2", parent=second)
    run_git(repository.folder, "tag", "v2", first)
    for ref, wanted in (("", "second"), ("v1", "first"), ("v2", "third"), (first, "first")):
        place = os.path.join(into, ref or "default")
        os.mkdir(place)
        (skill,) = fetch_skills(source(repository)._replace(ref=ref), settings, place)
        assert wanted in files(skill)["SKILL.md"]
    assert skill.commit == first


def test_a_wanted_commit_comes_also_after_the_branch_moved_on_or_not_at_all(
    repository: BareRepository, settings: Settings, into: str
) -> None:
    first = repository.commit({"SKILL.md": skill_text("alpha", "first")})
    repository.commit({"SKILL.md": skill_text("alpha", "second")}, parent=first)
    (skill,) = fetch_skills(source(repository), settings, into, commit=first)
    assert (skill.commit, "first" in files(skill)["SKILL.md"]) == (first, True)
    os.mkdir(f"{into}/more")
    with pytest.raises(SourceFailure, match="does not serve it"):
        fetch_skills(source(repository), settings, f"{into}/more", commit=OTHER)


@pytest.mark.parametrize("ref", ["nothing", "refs/heads/nothing", OTHER])
def test_an_unknown_ref_says_what_to_give(
    repository: BareRepository, settings: Settings, into: str, ref: str
) -> None:
    repository.commit({"SKILL.md": skill_text("alpha")})
    with pytest.raises(SourceFailure) as caught:
        fetch_skills(source(repository)._replace(ref=ref), settings, into)
    assert caught.value.code == "git-ref"


def test_only_the_skill_of_a_path_is_taken(
    repository: BareRepository, settings: Settings, into: str
) -> None:
    beta = {"SKILL.md": skill_text("beta")}
    repository.commit({"skills": {"alpha": SKILL, "beta": beta}})
    (skill,) = fetch_skills(source(repository), settings, into, skill_path="skills/beta/SKILL.md")
    assert skill.name == "beta"
    os.mkdir(f"{into}/more")
    with pytest.raises(SourceFailure, match="no longer there"):
        fetch_skills(source(repository), settings, f"{into}/more", skill_path="gone/SKILL.md")


def test_a_link_inside_the_skill_stays_a_link(
    repository: BareRepository, settings: Settings, into: str
) -> None:
    tree: Tree = {**SKILL, "latest.sh": ("120000", "scripts/run.sh"), "s": ("120000", "scripts")}
    repository.commit({"skills": {"alpha": tree}})
    (skill,) = fetch_skills(source(repository), settings, into)
    assert os.readlink(f"{skill.folder}/latest.sh") == "scripts/run.sh"
    assert os.readlink(f"{skill.folder}/s") == "scripts"


HOSTILE: dict[str, tuple[Tree, str]] = {
    "absolute link": ({"leak.txt": ("120000", "/etc/passwd")}, "leak.txt"),
    "link out": ({"leak.txt": ("120000", "../../../../etc/passwd")}, "leak.txt"),
    "link to another skill": ({"leak": ("120000", "../beta/SKILL.md")}, "leak"),
    "link to nothing": ({"leak": ("120000", "gone")}, "leak"),
    "link of links": (
        {"a": ("120000", "scripts"), "b": ("120000", "a/run.sh"), "scripts": SKILL["scripts"]},
        "'b'",
    ),
    "link by way of another link": (
        {
            "a": {"b": {"c": ("120000", "../../scripts")}},
            "k": ("120000", "a/b/c/../../../scripts/run.sh"),
        },
        "'k'",
    ),
    "link with a NUL": ({"leak": ("120000", "scripts\0/x")}, "leak"),
    "submodule": ({"vendor": ("160000", OTHER)}, "vendor"),
    "parent": ({"..": {"x": "1"}}, r"\.\."),
    "dot": ({".": {"x": "1"}}, "refused"),
    "slash": ({"../../x": "1"}, "refused"),
    "absolute": ({"/nonexistent/x": "1"}, "refused"),
    "git folder": ({".git": {"config": "[core]\n\tfsmonitor = touch /tmp/x\n"}}, r"\.git"),
    "git folder in capitals": ({".GIT": {"config": "x"}}, r"\.GIT"),
    "git folder for Windows": ({"git~1": {"config": "x"}}, "history"),
    "git folder with a dot": ({".git.": {"config": "x"}}, "history"),
    "git folder for macOS": ({".g\u200cit": {"config": "x"}}, "history"),
    "case clash": ({"Notes.md": "1", "notes.md": "2"}, "meets"),
    "clash of a folder": ({"Scripts": {"x": "1"}, "scripts": {"y": "2"}}, "meets"),
    "Unicode twins": ({"caf\u00e9.md": "1", "cafe\u0301.md": "2"}, "meets"),
    "same name twice": ({"x": "1", "x\u200d": "2", "X": "3"}, "meets"),
    "control character": ({"a\x1b[2J": "1"}, "control"),
    "backslash": ({"a\\b": "1"}, "backslash"),
    "device": ({"Con.txt": "1"}, "device"),
    "folder that is a device": ({"lpt1": {"x": "1"}}, "device"),
    "dot at the end": ({"x.": "1"}, "ends in a dot"),
    "star": ({"a*": "1"}, "holds one of"),
    "drive": ({"c:": "1"}, "colon"),
    "not UTF-8": ({"a\udcff": "1"}, "refused"),
}


def test_a_hostile_tree_is_refused_by_name_and_the_other_skills_are_as_good_as_before(
    repository: BareRepository, settings: Settings, into: str, tmp_path: Path
) -> None:
    skills: dict[str, Tree] = {"good": SKILL}
    for number, (bad, _) in enumerate(HOSTILE.values()):
        text = skill_text(f"case-{number}")
        skills[f"case-{number}"] = {"SKILL.md": text, "scripts": SKILL["scripts"], **bad}
    repository.commit({"skills": skills})
    before = sorted(tmp_path.iterdir())
    opened = open_source(source(repository), settings, into)
    assert len(opened.found.skills) == len(HOSTILE) + 1
    for number, (case, (_, named)) in enumerate(HOSTILE.items()):
        (chosen,) = opened.choose([f"case-{number}"])
        with pytest.raises(SourceFailure) as caught:
            opened.take_alone(chosen)
        assert re.search(named, str(caught.value)), case
        assert caught.value.code == "source-refused", case
    assert opened.take_alone(opened.choose(["alpha"])[0]).name == "alpha"
    assert sorted(tmp_path.iterdir()) == before
    assert not os.path.lexists("/nonexistent/x")


def test_a_hostile_skill_that_is_asked_for_by_name_is_refused_by_name(
    repository: BareRepository, settings: Settings, tmp_path: Path
) -> None:
    skills: dict[str, Tree] = {}
    for number, (bad, _) in enumerate(HOSTILE.values()):
        text = skill_text(f"case-{number}")
        skills[f"case-{number}"] = {"SKILL.md": text, "scripts": SKILL["scripts"], **bad}
    repository.commit({"skills": skills})
    for number, (case, (_, named)) in enumerate(HOSTILE.items()):
        folder = tmp_path / f"into-{number}"
        folder.mkdir()
        opened = open_source(source(repository), settings, str(folder), wanted=[f"case-{number}"])
        assert len(opened.found.skills) == 1, case
        with pytest.raises(SourceFailure) as caught:
            opened.take_alone(opened.found.skills[0])
        assert re.search(named, str(caught.value)), case
        assert caught.value.code == "source-refused", case


def test_a_folder_that_has_one_name_twice_is_refused(
    repository: BareRepository, settings: Settings, into: str
) -> None:
    texts = (skill_text("alpha"), "one", "two")
    blobs = [repository.blob(text.encode()) for text in texts]
    names = (b"SKILL.md", b"x", b"x")
    raw = b"".join(
        b"100644 %s\0" % name + bytes.fromhex(blob) for name, blob in zip(names, blobs, strict=True)
    )
    words = ("hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    tree = run_git(repository.folder, *words, stdin=raw)
    above = b"40000 alpha\0" + bytes.fromhex(tree)
    for name in (b"skills", b""):
        identifier = run_git(repository.folder, *words, stdin=above)
        above = b"40000 %s\0" % name + bytes.fromhex(identifier)
    commit = run_git(repository.folder, "commit-tree", identifier, "-m", "x")
    run_git(repository.folder, "update-ref", "refs/heads/main", commit)
    opened = open_source(source(repository), settings, into, wanted=["alpha"])
    with pytest.raises(SourceFailure, match="meets"):
        opened.take_alone(opened.found.skills[0])


def test_no_program_of_a_repository_runs_and_no_filter_changes_a_file(
    repository: BareRepository, settings: Settings, into: str, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    touch = f"#!/bin/sh\ntouch {mark}\n"
    program = tmp_path / "program"
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    tree: Tree = {
        **SKILL,
        ".gitattributes": "* filter=x text eol=crlf ident export-ignore\nbig.bin filter=lfs\n",
        ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch\n',
        ".gitconfig": f"[core]\n\tfsmonitor = {program}\n",
        "big.bin": pointer,
        "id.txt": "$Id$\n",
    }
    repository.commit({"skills": {"alpha": tree}})
    for name in ("post-checkout", "post-merge", "reference-transaction", "pre-auto-gc"):
        hook = repository.folder / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(touch)
        hook.chmod(0o755)
    program.write_text(touch)
    program.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "filter.x.smudge",
        "diff.external",
        "uploadpack.packObjectsHook",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "credential.helper",
    ):
        run_git(repository.folder, "config", key, str(program))
    (skill,) = fetch_skills(source(repository), settings, into)
    assert not mark.exists()
    assert files(skill)["id.txt"] == "$Id$\n"
    assert files(skill)["big.bin"] == pointer
    assert "\r" not in files(skill)["scripts/run.sh"]


def test_the_configuration_of_the_user_cannot_lead_elsewhere(
    repository: BareRepository,
    settings: Settings,
    into: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository.commit({"SKILL.md": skill_text("alpha")})
    other = BareRepository(tmp_path / "other.git")
    other.commit({"SKILL.md": skill_text("evil")})
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "{other.url}"]\n\tinsteadOf = {repository.url}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(other.folder))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.folder / "objects"))
    (skill,) = fetch_skills(source(repository), settings, into)
    assert skill.name == "alpha"


def test_a_bomb_of_files_is_refused(
    repository: BareRepository, settings: Settings, into: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillbelt.install.source_tree.MAX_ARCHIVE_FILES", 20)
    many: Tree = {f"{number}": "x" for number in range(30)}
    repository.commit({"skills": {"alpha": {**SKILL, "many": many}}})
    with pytest.raises(SourceFailure, match="more than 20 files"):
        fetch_skills(source(repository), settings, into)


def test_a_tree_that_holds_itself_many_times_is_refused(
    repository: BareRepository, settings: Settings, into: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "_MAX_LISTING_BYTES", 2**20)
    tree: Tree = {"x": "1"}
    identifier = repository.tree(tree)
    for _ in range(8):
        raw = b"".join(b"40000 %d\0" % number + bytes.fromhex(identifier) for number in range(10))
        identifier = run_git(
            repository.folder, "hash-object", "-w", "-t", "tree", "--literally", "--stdin",
            stdin=raw,
        )  # fmt: skip
    commit = run_git(repository.folder, "commit-tree", identifier, "-m", "x")
    run_git(repository.folder, "update-ref", "refs/heads/main", commit)
    with pytest.raises(SourceFailure, match="list of its files"):
        fetch_skills(source(repository), settings, into)


@pytest.mark.parametrize("wanted", [[], ["alpha"]])
def test_a_folder_with_too_many_entries_is_refused_before_it_is_kept(
    repository: BareRepository,
    settings: Settings,
    into: str,
    monkeypatch: pytest.MonkeyPatch,
    wanted: list[str],
) -> None:
    monkeypatch.setattr(git, "MAX_TREE_ITEMS", 20)
    many: Tree = {f"{number}": "x" for number in range(30)}
    repository.commit({"skills": {"alpha": SKILL, **many}})
    with pytest.raises(SourceFailure, match="more than 20 files"):
        open_source(source(repository), settings, into, wanted=wanted)


def test_a_bomb_of_bytes_is_refused(
    repository: BareRepository, settings: Settings, into: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillbelt.discovery.sources.bounds.MAX_EXTRACTED_FILE_BYTES", 2**16)
    repository.commit({"skills": {"alpha": {**SKILL, "zeros": b"\0" * 2**20}}})
    with pytest.raises(SourceFailure, match="zeros"):
        fetch_skills(source(repository), settings, into)


def test_git_ends_at_the_deadline_and_nothing_of_it_is_left(
    repository: BareRepository, settings: Settings, into: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"SKILL.md": skill_text("alpha")})
    monkeypatch.setattr(git, "GIT_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(SourceFailure, match="not done after"):
        fetch_skills(source(repository), settings, into)


def test_of_two_skills_with_one_name_the_first_counts(
    repository: BareRepository, settings: Settings, into: str
) -> None:
    first: Tree = {"SKILL.md": skill_text("alpha", "first")}
    second: Tree = {"SKILL.md": skill_text("alpha", "second")}
    repository.commit({"skills": {"a": first, "b": second}})
    (skill,) = fetch_skills(source(repository), settings, into)
    assert "first" in files(skill)["SKILL.md"]
