"""`update` and `outdated`: new versions, and what becomes of local edits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.install.desk import InstallDesk
from tests.tree import Tree

LINES = "".join(f"echo {number}\n" for number in range(9))


@pytest.fixture
def desk(tree: Tree) -> InstallDesk:
    """Skills of which a newer version of `alpha` exists; it changes the last line of a script."""
    made = InstallDesk(tree)
    made.write("alpha", "scripts/run.sh", LINES)
    made.commit()
    made.install("claude")
    made.write("alpha", "scripts/run.sh", LINES.replace("echo 8", "echo new"))
    made.write("alpha", "added.md", "added\n")
    made.commit()
    return made


def script(desk: InstallDesk) -> Path:
    return desk.installed("alpha", "scripts/run.sh")


def test_outdated_lists_what_has_a_newer_version(desk: InstallDesk) -> None:
    before = desk.document()["skills"]["alpha"]["commit"]
    document = desk.run("outdated", "--json").document
    [row] = document["outdated"]
    assert (row["name"], row["commit"]) == ("alpha", before)
    assert row["new_commit"] != before
    assert document["current"] == ["beta"]
    shown = desk.run("outdated")
    assert (shown.exit_code, "alpha" in shown.stdout, "beta" in shown.stdout) == (0, True, False)


def test_check_and_diff_change_nothing(desk: InstallDesk) -> None:
    lock = desk.lock.read_bytes()
    done = desk.run("update", "--check", "--diff")
    assert done.exit_code == 2
    assert "+echo new" in done.stdout
    assert "-echo 8" in done.stdout
    assert "alpha: would be replaced" in done.stdout
    assert script(desk).read_text() == LINES
    assert desk.lock.read_bytes() == lock


def test_a_look_before_shows_that_local_edits_stay(desk: InstallDesk) -> None:
    script(desk).write_text(LINES.replace("echo 0", "echo mine"))
    done = desk.run("update", "--check", "--diff")
    assert done.exit_code == 2
    assert "+echo new" in done.stdout
    assert "-echo mine" not in done.stdout
    assert done.stdout.endswith("alpha: would be updated; your edits stay in scripts/run.sh\n")


def test_a_look_before_names_what_cannot_be_merged(desk: InstallDesk) -> None:
    script(desk).write_text(LINES.replace("echo 8", "echo mine"))
    done = desk.run("update", "--dry-run", "--json")
    [conflict] = done.document["refused"]
    assert conflict["code"] == "conflict"
    assert not desk.installed("alpha", "scripts/run.sh.upstream").exists()


def test_an_update_says_that_every_skill_is_current(desk: InstallDesk) -> None:
    assert desk.run("update", "--yes").exit_code == 0
    for words in (["update"], ["update", "--check"]):
        done = desk.run(*words)
        assert done.exit_code == 0
        assert done.stderr == "every installed skill is the newest version of its source\n"


def test_an_update_needs_permission(desk: InstallDesk) -> None:
    assert desk.run("update").exit_code == 4
    assert script(desk).read_text() == LINES


def test_an_update_takes_the_new_version_and_locks_it(desk: InstallDesk) -> None:
    before = desk.document()["skills"]
    done = desk.run("update", "--yes")
    assert (done.exit_code, done.stdout) == (0, "alpha: replaced\n"), done.stderr
    assert "echo new" in script(desk).read_text()
    after = desk.document()["skills"]
    assert after["beta"] == before["beta"]
    assert after["alpha"]["commit"] != before["alpha"]["commit"]
    assert after["alpha"]["clients"] == ["claude"]
    assert desk.run("verify").exit_code == 0
    assert desk.run("update", "--check").exit_code == 0


def test_local_edits_of_other_lines_are_merged(desk: InstallDesk) -> None:
    script(desk).write_text(LINES.replace("echo 0", "echo mine"))
    desk.installed("alpha", "notes.md").write_text("mine\n")
    done = desk.run("update", "--yes")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "alpha: updated; your edits stay in notes.md, scripts/run.sh\n"
    assert "echo mine" in script(desk).read_text()
    assert "echo new" in script(desk).read_text()
    assert script(desk).stat().st_mode & 0o111
    assert desk.installed("alpha", "notes.md").read_text() == "mine\n"
    assert desk.installed("alpha", "added.md").exists()
    drift = desk.run("verify", "--json").document["drift"]
    assert [(one["kind"], Path(one["path"]).name) for one in drift] == [
        ("extra-file", "notes.md"),
        ("changed-file", "run.sh"),
    ]


def test_edits_of_the_same_line_stay_with_the_new_file_beside(desk: InstallDesk) -> None:
    mine = LINES.replace("echo 8", "echo mine")
    script(desk).write_text(mine)
    done = desk.run("update", "--yes", "--json")
    assert done.exit_code == 3
    [conflict] = done.document["refused"]
    assert (conflict["name"], conflict["code"]) == ("alpha", "conflict")
    assert "your file stays as it is" in conflict["message"]
    assert script(desk).read_text() == mine
    assert "echo new" in desk.installed("alpha", "scripts/run.sh.upstream").read_text()


def test_a_removed_file_stays_removed_and_a_file_edited_here_stays(desk: InstallDesk) -> None:
    (desk.work / "skills/alpha/scripts/run.sh").unlink()
    desk.commit()
    script(desk).write_text("mine\n")
    done = desk.run("update", "--yes", "--json")
    assert done.exit_code == 3
    assert "removed in the new version" in done.document["refused"][0]["message"]
    assert script(desk).read_text() == "mine\n"


def test_a_skill_that_is_gone_from_its_source_stays_installed(desk: InstallDesk) -> None:
    (desk.work / "skills/beta/SKILL.md").unlink()
    desk.commit()
    done = desk.run("update", "--yes", "--json")
    assert done.exit_code == 3
    assert [one["name"] for one in done.document["refused"]] == ["beta"]
    assert [one["name"] for one in done.document["changes"]] == ["alpha"]
    assert desk.installed("beta", "SKILL.md").exists()
