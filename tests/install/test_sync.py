"""`sync` and `verify`: what is installed is what the lock says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from skillbelt.install.content_store import store_folder
from tests.install.desk import InstallDesk
from tests.install.repositories import BareRepository, skill_text
from tests.tree import Tree


@pytest.fixture
def desk(tree: Tree) -> InstallDesk:
    made = InstallDesk(tree)
    made.install("claude")
    return made


def forget(desk: InstallDesk) -> None:
    """Make it another machine: nothing is installed, and nothing was fetched."""
    for folder in (".agents", ".claude"):
        shutil.rmtree(desk.base / folder)
    shutil.rmtree(store_folder(desk.settings))


def test_another_machine_gets_the_locked_version_with_links_though_the_source_went_on(
    desk: InstallDesk,
) -> None:
    lock = desk.lock.read_bytes()
    desk.write("alpha", "scripts/run.sh", "echo evil\n")
    desk.commit()
    forget(desk)
    done = desk.run("sync", "--frozen", "--yes")
    assert (done.exit_code, done.stdout) == (0, "alpha: installed\nbeta: installed\n"), done.stderr
    assert desk.installed("alpha", "scripts/run.sh").read_text() == "echo one\n"
    assert os.access(desk.installed("alpha", "scripts/run.sh"), os.X_OK)
    assert os.readlink(desk.base / ".claude/skills/alpha") == "../../.agents/skills/alpha"
    assert desk.lock.read_bytes() == lock
    assert desk.run("verify").exit_code == 0


def test_nothing_is_installed_without_permission(desk: InstallDesk) -> None:
    forget(desk)
    done = desk.run("sync", "--json")
    assert (done.exit_code, done.document["error"]["kind"]) == (4, "permission_denied")
    assert not desk.installed("alpha").exists()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(desk: InstallDesk) -> None:
    forget(desk)
    document = desk.run("sync", "--dry-run", "--json").document
    assert [(one["name"], one["action"]) for one in document["changes"]] == [
        ("alpha", "install"),
        ("beta", "install"),
    ]
    assert document["changes"][0]["commit"] == desk.document()["skills"]["alpha"]["commit"]
    assert not desk.installed("alpha").exists()


def test_a_second_sync_changes_nothing(desk: InstallDesk) -> None:
    before = desk.installed("alpha").stat()
    done = desk.run("sync")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "2 skills unchanged" in done.stderr
    assert os.path.samestat(desk.installed("alpha").stat(), before)


def test_a_commit_that_is_gone_fails_and_the_others_are_installed(desk: InstallDesk) -> None:
    desk.edit_entry("alpha", commit="1" * 40)
    forget(desk)
    done = desk.run("sync", "--frozen", "--yes", "--json")
    assert done.exit_code == 3
    assert [one["name"] for one in done.document["refused"]] == ["alpha"]
    assert not desk.installed("alpha").exists()
    assert desk.installed("beta").exists()


def test_a_source_that_brings_other_content_than_locked_is_refused(desk: InstallDesk) -> None:
    desk.edit_entry("alpha", contentDigest=f"sha256:{'0' * 64}")
    forget(desk)
    done = desk.run("sync", "--frozen", "--yes", "--json")
    assert done.exit_code == 3
    assert "other content than the lock" in done.document["refused"][0]["message"]
    assert not desk.installed("alpha").exists()


def test_local_edits_are_never_replaced(desk: InstallDesk) -> None:
    mine = desk.installed("alpha", "SKILL.md")
    mine.write_text("mine")
    done = desk.run("sync", "--yes", "--json")
    assert done.exit_code == 2
    [refused] = done.document["refused"]
    assert refused["code"] == "local-edits"
    assert refused["message"].endswith("has local edits: SKILL.md was changed")
    assert mine.read_text() == "mine"
    assert desk.run("sync", "--yes", "--force").exit_code == 0
    assert mine.read_text().endswith("hello\n")


def test_a_version_that_was_fetched_here_is_replaced(desk: InstallDesk) -> None:
    """The lock went on, as after `git pull`; what is installed is the version before."""
    old = desk.lock.read_bytes()
    desk.write("alpha", "scripts/run.sh", "echo two\n")
    desk.commit()
    desk.install("claude")
    new = desk.lock.read_bytes()
    desk.lock.write_bytes(old)
    assert desk.run("sync", "--yes").stdout == "alpha: replaced\n"
    assert desk.installed("alpha", "scripts/run.sh").read_text() == "echo one\n"
    desk.lock.write_bytes(new)
    assert desk.run("sync", "--yes").exit_code == 0
    assert desk.installed("alpha", "scripts/run.sh").read_text() == "echo two\n"


def test_a_lost_link_is_made_again_without_a_question(desk: InstallDesk) -> None:
    (desk.base / ".claude/skills/alpha").unlink()
    done = desk.run("sync", "--frozen")
    assert (done.exit_code, done.stdout) == (0, "alpha: linked\n"), done.stderr
    assert os.readlink(desk.base / ".claude/skills/alpha") == "../../.agents/skills/alpha"


def test_an_entry_that_another_tool_wrote_anew_is_noticed(desk: InstallDesk) -> None:
    desk.rewrite_as_skills("alpha")
    lock = desk.lock.read_bytes()
    done = desk.run("sync", "--frozen", "--json")
    assert done.exit_code == 2
    assert [(one["name"], one["code"]) for one in done.document["refused"]] == [
        ("alpha", "rewritten")
    ]
    checked = desk.run("sync", "--check")
    assert checked.exit_code == 2
    assert "another tool wrote this entry anew" in checked.stdout
    assert desk.lock.read_bytes() == lock


def test_it_is_noticed_too_when_no_entry_is_ours_any_more(desk: InstallDesk) -> None:
    for name in ("alpha", "beta"):
        desk.rewrite_as_skills(name)
    done = desk.run("verify", "--json")
    assert done.exit_code == 2
    assert [one["kind"] for one in done.document["drift"]] == ["rewritten", "rewritten"]


def test_an_entry_of_another_tool_is_recorded_if_its_hash_is_right(desk: InstallDesk) -> None:
    before = desk.document()["skills"]["alpha"]
    desk.rewrite_as_skills("alpha")
    assert desk.run("sync").stdout == "alpha: recorded in the lock\n"
    after = desk.document()["skills"]["alpha"]
    assert (after["contentDigest"], after["treeSha"]) == (
        before["contentDigest"],
        before["treeSha"],
    )
    assert desk.run("verify").exit_code == 0


def test_an_entry_of_another_tool_whose_source_went_on_is_not_installed(desk: InstallDesk) -> None:
    desk.rewrite_as_skills("alpha")
    desk.write("alpha", "scripts/run.sh", "echo evil\n")
    desk.commit()
    forget(desk)
    lock = desk.lock.read_bytes()
    done = desk.run("sync", "--yes", "--json")
    assert done.exit_code == 3
    assert "changed since it was locked" in done.document["refused"][0]["message"]
    assert not desk.installed("alpha").exists()
    assert desk.lock.read_bytes() == lock


def test_an_entry_of_another_tool_is_installed_and_pinned(desk: InstallDesk) -> None:
    before = desk.document()["skills"]["alpha"]
    desk.rewrite_as_skills("alpha")
    forget(desk)
    assert desk.run("sync", "--yes").exit_code == 0
    after = desk.document()["skills"]["alpha"]
    assert after["contentDigest"] == before["contentDigest"]
    assert after["commit"] == before["commit"]


@pytest.mark.parametrize("edited", [False, True])
def test_a_copy_of_skills_that_lacks_files_is_compared_with_its_source(
    tree: Tree, edited: bool
) -> None:
    """`skills` hashes metadata.json and does not install it."""
    desk = InstallDesk(tree)
    desk.write("alpha", "metadata.json", "{}\n")
    desk.commit()
    desk.install()
    desk.rewrite_as_skills("alpha")
    desk.installed("alpha", "metadata.json").unlink()
    if edited:
        desk.installed("alpha", "SKILL.md").write_text("mine")
    done = desk.run("sync", "--yes", "--json")
    assert done.exit_code == (2 if edited else 0), done.stderr
    assert desk.installed("alpha", "metadata.json").exists() != edited
    assert (desk.installed("alpha", "SKILL.md").read_text() == "mine") == edited
    assert ("contentDigest" in desk.document()["skills"]["alpha"]) != edited


def test_frozen_needs_a_lock(desk: InstallDesk) -> None:
    desk.lock.unlink()
    done = desk.run("sync", "--frozen")
    assert done.exit_code == 2
    assert "there is no" in done.stderr


def test_names_of_a_stranger_do_not_reach_the_terminal(desk: InstallDesk) -> None:
    document = desk.document()
    document["skills"]["\x1b[2Jevil"] = document["skills"]["alpha"]
    desk.lock.write_text(json.dumps(document))
    for words in (["sync", "--check"], ["verify"], ["sync"]):
        done = desk.run(*words)
        assert "evil" in done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr


def test_adopt_records_what_is_installed(desk: InstallDesk) -> None:
    desk.installed("alpha", "SKILL.md").write_text("---\nname: alpha\ndescription: mine\n---\n")
    assert desk.run("verify", "alpha").exit_code == 2
    assert desk.run("sync", "--adopt").stdout == "alpha: recorded in the lock\n"
    assert desk.run("verify").exit_code == 0
    assert "commit" not in desk.document()["skills"]["alpha"]


def test_adopt_names_a_skill_that_no_lock_has(desk: InstallDesk) -> None:
    mine = desk.installed("mine", "SKILL.md")
    mine.parent.mkdir()
    mine.write_text("---\nname: mine\ndescription: d\n---\n")
    done = desk.run("sync", "--adopt")
    assert done.exit_code == 0
    assert "mine: is not in a lock" in " ".join(done.stderr.split())
    assert "`skillbelt add SOURCE --skill mine`" in " ".join(done.stderr.split())
    drift = desk.run("sync", "--adopt", "--json").document["drift"]
    assert [(one["name"], one["kind"], one["path"]) for one in drift] == [
        ("mine", "not-locked", str(mine.parent))
    ]


def test_adopt_is_silent_about_links(desk: InstallDesk) -> None:
    own = desk.base / "own"
    own.mkdir()
    (own / "SKILL.md").write_text("---\nname: own\ndescription: d\n---\n")
    assert desk.run("link", str(own)).exit_code == 0
    assert "own" not in desk.run("sync", "--adopt").stderr


def test_prune_removes_what_was_fetched_and_keeps_what_was_written_here(desk: InstallDesk) -> None:
    mine = desk.installed("mine", "SKILL.md")
    mine.parent.mkdir()
    mine.write_text("---\nname: mine\ndescription: d\n---\n")
    document = desk.document()
    del document["skills"]["beta"]
    desk.lock.write_text(json.dumps(document))
    done = desk.run("sync", "--prune", "--json")
    assert [one["name"] for one in done.document["changes"] if one["action"] == "remove"] == [
        "beta"
    ]
    assert [(one["name"], one["code"]) for one in done.document["refused"]] == [
        ("mine", "not-ours")
    ]
    assert mine.exists()
    assert not desk.installed("beta").exists()
    assert not (desk.base / ".claude/skills/beta").is_symlink()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("changed-file", "SKILL.md"),
        ("extra-file", "more.py"),
        ("missing-file", "scripts/run.sh"),
        ("changed-mode", "scripts/run.sh"),
        ("changed-link", "scripts/run.sh"),
        ("unsafe", "leak"),
    ],
)
def test_verify_names_each_difference(desk: InstallDesk, kind: str, path: str) -> None:
    target = desk.installed("alpha", path)
    if kind in ("changed-file", "extra-file"):
        target.write_text("other\n")
    elif kind == "changed-mode":
        target.chmod(0o644)
    elif kind == "unsafe":
        target.symlink_to("/etc/hostname")
    else:
        target.unlink()
        if kind == "changed-link":
            target.symlink_to("../SKILL.md")
    done = desk.run("verify", "--json")
    assert done.exit_code == 2
    found = [(one["name"], one["kind"], one["path"]) for one in done.document["drift"]]
    assert found == [("alpha", kind, str(target))]
    assert [one["verified"] for one in done.document["skills"]] == [False, True]


def test_verify_without_the_store_still_knows_that_something_differs(desk: InstallDesk) -> None:
    shutil.rmtree(store_folder(desk.settings))
    assert desk.run("verify").exit_code == 0
    desk.installed("alpha", "scripts/run.sh").chmod(0o644)
    done = desk.run("verify")
    assert done.exit_code == 2
    assert "executable bit" in done.stdout


def test_what_an_interpreter_makes_is_no_difference(desk: InstallDesk) -> None:
    cache = desk.installed("alpha", "scripts/__pycache__")
    cache.mkdir()
    (cache / "x.pyc").write_text("x")
    assert desk.run("verify").exit_code == 0


def test_verify_finds_a_client_link_that_leads_elsewhere(desk: InstallDesk) -> None:
    link = desk.base / ".claude/skills/alpha"
    link.unlink()
    link.symlink_to("../../.agents/skills/beta")
    done = desk.run("verify", "alpha", "--json")
    assert [one["kind"] for one in done.document["drift"]] == ["client-link"]


def test_a_hostile_entry_is_refused_and_nothing_else_stops(desk: InstallDesk) -> None:
    document = desk.document()
    document["skills"]["../../evil"] = document["skills"]["alpha"]
    desk.lock.write_text(json.dumps(document))
    done = desk.run("sync", "--json")
    assert done.exit_code == 2
    assert [(one["name"], one["code"]) for one in done.document["refused"]] == [
        ("../../evil", "lock-entry")
    ]
    assert desk.run("verify").exit_code == 2


def test_remove_takes_skill_link_and_entry(desk: InstallDesk) -> None:
    assert desk.run("remove", "alpha").stdout == "alpha: removed\n"
    assert list(desk.document()["skills"]) == ["beta"]
    assert not desk.installed("alpha").exists()
    assert not (desk.base / ".claude/skills/alpha").is_symlink()
    assert desk.run("verify").exit_code == 0


def test_remove_keeps_local_edits_unless_forced(desk: InstallDesk) -> None:
    desk.installed("alpha", "notes.md").write_text("mine")
    done = desk.run("remove", "alpha")
    assert done.exit_code == 2
    assert "local edits: notes.md is not part of what was locked" in done.stderr
    assert desk.installed("alpha", "notes.md").exists()
    assert desk.run("remove", "alpha", "--force").exit_code == 0


def test_an_unknown_name_is_an_error_that_names_what_there_is(desk: InstallDesk) -> None:
    done = desk.run("remove", "gamma")
    assert done.exit_code == 2
    assert "it has alpha, beta" in done.stderr


def test_a_local_source_is_installed_again(tree: Tree) -> None:
    made = InstallDesk(tree)
    made.url = str(Path(made.work) / "skills")
    shutil.rmtree(made.work / ".git")
    made.install()
    assert made.document()["skills"]["alpha"]["source"] == "../work/skills"
    shutil.rmtree(made.base / ".agents")
    shutil.rmtree(store_folder(made.settings))
    done = made.run("sync", "--frozen", "--yes")
    assert done.exit_code == 0, done.stderr
    assert f"alpha: comes from outside the project: {made.work}/skills\n" in done.stderr
    assert made.run("verify").exit_code == 0


@pytest.fixture
def sealed(desk: InstallDesk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that nothing can be written in: its folders would have to be made in a file."""
    home = desk.base / "sealed"
    home.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return home


def test_what_only_reads_needs_no_home_to_write_in(desk: InstallDesk, sealed: Path) -> None:
    for words in (["verify"], ["sync", "--check"], ["sync", "--dry-run"]):
        done = desk.run(*words)
        assert (done.exit_code, words) == (0, words), done.stderr


def test_a_home_that_cannot_be_written_is_named_with_the_variable(
    desk: InstallDesk, sealed: Path
) -> None:
    done = desk.run("add", desk.url, "--skill", "alpha", "--yes")
    assert done.exit_code == 2
    assert f"{sealed}/cache" in done.stderr and "set XDG_CACHE_HOME" in done.stderr
    done = desk.run("remove", "alpha", "--yes")
    assert done.exit_code == 2
    assert f"{sealed}/state" in done.stderr and "set XDG_STATE_HOME" in done.stderr


def damaged(tree: Tree) -> bytes:
    """Write a lock with two entries that no command acts on."""
    entry = {"source": "x", "sourceType": "git", "skillPath": "/etc/SKILL.md"}
    document = {"version": 1, "skills": {"../evil": 3, "alpha": entry}}
    return tree.write("project/skills-lock.json", json.dumps(document, indent=2)).read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["verify", "alpha"],
        ["sync", "--yes"],
        ["outdated"],
        ["update", "--yes"],
        ["update", "alpha"],
        ["export", "windsurf"],
        ["export", "windsurf", "alpha"],
    ],
)
def test_a_damaged_entry_is_named_by_every_command(tree: Tree, words: list[str]) -> None:
    before = damaged(tree)
    done = tree.run(*words)
    assert done.exit_code in (2, 3)
    assert "`skillPath` is absolute" in done.stdout + done.stderr
    assert "`skillbelt remove alpha`" in done.stdout + done.stderr
    assert "installed yet" not in done.stderr
    assert (tree.project / "skills-lock.json").read_bytes() == before


@pytest.mark.parametrize("words", [["alpha", "../evil"], ["--all"]])
def test_a_damaged_entry_is_taken_out_and_no_file_with_it(tree: Tree, words: list[str]) -> None:
    before = damaged(tree)
    evil = tree.write("project/.agents/evil/SKILL.md", "kept")
    own = tree.write("project/.agents/skills/alpha/SKILL.md", "kept")
    assert tree.run("remove", *words, "--dry-run").exit_code == 0
    assert (tree.project / "skills-lock.json").read_bytes() == before
    done = tree.run("remove", *words)
    assert done.exit_code == 0 and "no folder is removed" in done.stderr
    assert json.loads((tree.project / "skills-lock.json").read_text())["skills"] == {}
    assert evil.read_text() == own.read_text() == "kept"


def test_damaged_entries_are_taken_out_once_and_in_the_order_of_the_lock(tree: Tree) -> None:
    names = [f"skill-{number}" for number in range(12)]
    document = {"version": 1, "skills": dict.fromkeys(names, 3)}
    tree.write("project/skills-lock.json", json.dumps(document))
    done = tree.run("remove", "--all", "--dry-run", "--json")
    assert [one["name"] for one in done.document["changes"]] == names
    done = tree.run("remove", names[0], names[0], "--json")
    assert [one["name"] for one in done.document["changes"]] == names[:1]


def test_what_differs_from_the_lock_is_said_without_private_folders(
    tree: Tree,
) -> None:
    source = BareRepository(tree.root / "source.git")
    source.commit({"alpha": {"SKILL.md": skill_text("alpha")}})
    assert tree.run("add", source.url, "--skill", "alpha", "--yes").exit_code == 0
    lock = tree.project / "skills-lock.json"
    document = json.loads(lock.read_text())
    document["skills"]["alpha"]["contentDigest"] = "sha256:" + "0" * 64
    lock.write_text(json.dumps(document))
    (tree.project / ".agents").rename(tree.root / "away")
    done = tree.run("sync", "--frozen", "--yes")
    assert done.exit_code == 2
    assert "alpha: its source: has other content than the lock" in done.stderr
    assert "incoming" not in done.stderr and "skillbelt refresh" not in done.stderr
    assert not (tree.project / ".agents/skills/alpha").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["sync"],
        ["sync", "--frozen"],
        ["update", "alpha", "--packages"],
        ["sync", "-g"],
        ["update", "-g"],
    ],
)
def test_a_refusal_for_want_of_permission_names_the_command_that_works(
    desk: InstallDesk, words: list[str]
) -> None:
    scope = [one for one in words if one == "-g"]
    assert desk.run("add", desk.url, "--all", *scope, "--yes", "-q").exit_code == 0
    if words[0] == "update":
        desk.write("alpha", "scripts/run.sh", "echo two\n")
        desk.commit()
    else:
        folder = Path(desk.settings.home) if scope else desk.base
        shutil.rmtree(folder / ".agents" / "skills" / "alpha")
    done = desk.run(*words, "--json")
    error = done.document["error"]
    assert (done.exit_code, error["kind"]) == (4, "permission_denied")
    assert error["remedy"] == f"`skillbelt {' '.join(words)} --yes` allows it"
    assert "permissions" not in done.stderr and error["remedy"] in done.stderr
    assert desk.run(*words, "--yes").exit_code == 0
    assert desk.run("verify", *scope).exit_code == 0


def test_advice_for_the_skills_of_a_home_is_about_them(desk: InstallDesk) -> None:
    assert "`skillbelt add -g SOURCE`" in desk.run("verify", "-g").stderr
    assert desk.run("add", desk.url, "--all", "-g", "--yes", "-q").exit_code == 0
    folder = Path(desk.settings.home) / ".agents" / "skills"
    shutil.rmtree(folder / "alpha")
    (folder / "beta" / "scripts" / "run.sh").write_text("mine\n")
    drift = {
        one["name"]: one["remedy"] for one in desk.run("verify", "-g", "--json").document["drift"]
    }
    assert drift["alpha"] == "`skillbelt sync -g` installs it"
    assert (
        "`skillbelt update -g`" in drift["beta"] and "`skillbelt sync -g --force`" in drift["beta"]
    )
    refused = desk.run("remove", "-g", "beta").stderr
    assert "`skillbelt remove -g --force beta`" in refused
