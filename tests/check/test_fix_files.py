from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from skillbelt.check import fix
from skillbelt.check.fix import Fixed, diff, fix_bytes, fix_file
from skillbelt.format.frontmatter import MAX_CHECKED_BYTES
from tests.tree import Tree

BROKEN = "---\nname: pdf\ndescription: a: b\n---\nText.\n"
WHOLE = BROKEN.replace("a: b", '"a: b"')


def test_a_file_is_replaced_with_its_mode_and_nothing_is_left_behind(tree: Tree) -> None:
    file = tree.write("pdf/SKILL.md", BROKEN)
    file.chmod(0o640)
    fixed = fix_file(str(file))
    assert fixed.done == ("put values in quotes",)
    assert file.read_text() == WHOLE
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(file.parent) == ["SKILL.md"]


def test_a_good_file_is_not_written(tree: Tree) -> None:
    file = tree.write("pdf/SKILL.md", WHOLE)
    before = file.stat()
    assert fix_file(str(file)).done == ()
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_dry_run_changes_nothing(tree: Tree) -> None:
    file = tree.write("pdf/skill.md", BROKEN)
    fixed = fix_file(str(file), dry_run=True)
    assert fixed.after.decode() == WHOLE
    assert fixed.done == ("put values in quotes", "renamed skill.md to SKILL.md")
    assert file.read_text() == BROKEN
    assert os.listdir(file.parent) == ["skill.md"]


@pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD"])
def test_a_wrong_file_name_is_fixed(tree: Tree, name: str) -> None:
    file = tree.write(f"pdf/{name}", WHOLE)
    fixed = fix_file(str(file))
    assert fixed.path == str(file.with_name("SKILL.md"))
    assert os.listdir(file.parent) == ["SKILL.md"]


def test_a_file_is_never_renamed_over_another(tree: Tree) -> None:
    tree.write("pdf/SKILL.md", WHOLE)
    file = tree.write("pdf/skill.md", "other")
    fixed = fix_file(str(file))
    assert [each.code for each in fixed.diagnostics] == ["fix-dropped"]
    assert fixed.path == str(file)
    assert tree.path("pdf/SKILL.md").read_text() == WHOLE


def test_a_link_that_leads_out_is_refused(tree: Tree) -> None:
    target = tree.write("elsewhere.md", BROKEN)
    tree.path("pdf").mkdir()
    os.symlink(target, tree.path("pdf/SKILL.md"))
    fixed = fix_file(str(tree.path("pdf/SKILL.md")))
    assert [each.code for each in fixed.diagnostics] == ["fix-dropped"]
    assert target.read_text() == BROKEN


def test_a_link_inside_the_skill_is_not_written_through(tree: Tree) -> None:
    target = tree.write("pdf/text.md", BROKEN)
    os.symlink("text.md", tree.path("pdf/SKILL.md"))
    fixed = fix_file(str(tree.path("pdf/SKILL.md")))
    assert [each.code for each in fixed.diagnostics] == ["fix-dropped"]
    assert tree.path("pdf/SKILL.md").is_symlink()
    assert target.read_text() == BROKEN


def test_a_folder_behind_a_link_out_of_the_fence_is_not_written_to(tree: Tree) -> None:
    target = tree.write("elsewhere/pdf/SKILL.md", BROKEN)
    os.symlink("../elsewhere/pdf", tree.project / "pdf")
    path = str(tree.project / "pdf/SKILL.md")
    assert fix_file(path, fence=str(tree.project)).done == ()
    assert target.read_text() == BROKEN
    assert fix_file(path).done
    assert target.read_text() == WHOLE


def test_a_file_that_becomes_a_link_meanwhile_is_not_written_through(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, outside = tree.write("pdf/SKILL.md", BROKEN), tree.write("outside.md", BROKEN)

    def swapped(*given: Any, **named: Any) -> Any:
        file.unlink()
        file.symlink_to(outside)
        return fix_bytes(*given, **named)

    monkeypatch.setattr(fix, "fix_bytes", swapped)
    assert [one.code for one in fix_file(str(file)).diagnostics] == ["fix-dropped"]
    assert outside.read_text() == BROKEN
    assert os.listdir(tree.path("pdf")) == ["SKILL.md"]


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "SKILL.md")
    assert fix_file(str(tmp_path / "SKILL.md")).done == ()
    assert fix_file(str(tmp_path / "nothing" / "SKILL.md")).done == ()


def test_a_file_that_is_not_read_whole_is_not_written(tree: Tree) -> None:
    file = tree.write("pdf/SKILL.md", BROKEN + "a" * MAX_CHECKED_BYTES)
    fixed = fix_file(str(file))
    assert [each.code for each in fixed.diagnostics] == ["fix-dropped"]
    assert file.stat().st_size == len(BROKEN) + MAX_CHECKED_BYTES


def test_a_folder_that_can_not_be_written_is_reported(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the system's refusal is made by hand."""
    file = tree.write("pdf/SKILL.md", BROKEN)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    fixed = fix_file(str(file))
    assert [each.code for each in fixed.diagnostics] == ["fix-dropped"]
    assert "Permission denied" in fixed.diagnostics[0].message
    assert fixed.done == ()
    assert os.listdir(file.parent) == ["SKILL.md"]
    assert file.read_text() == BROKEN


def test_the_diff_shows_the_changed_lines() -> None:
    fixed = Fixed(
        path="/r/a/SKILL.md",
        was="/r/a/skill.md",
        before=BROKEN.encode(),
        after=WHOLE.encode(),
        done=("x",),
    )
    assert list(diff(fixed, "/r")) == [
        "rename from a/skill.md",
        "rename to a/SKILL.md",
        "--- a/a/skill.md",
        "+++ b/a/SKILL.md",
        "@@ -1,5 +1,5 @@",
        " ---",
        " name: pdf",
        "-description: a: b",
        '+description: "a: b"',
        " ---",
        " Text.",
    ]
