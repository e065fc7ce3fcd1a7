from __future__ import annotations

import json
import signal
import subprocess
from contextlib import AbstractContextManager

import pytest

from tests.printing import PATIENCE, Printing, printing
from tests.tree import Tree

# With the watcher of the operating system, and with nothing but looking again.
MODES = {
    "watchfiles": ["-m", "skillbelt"],
    "polling": ["-c", "import sys; sys.modules['watchfiles'] = None; "
                "from skillbelt.cli import main; sys.exit(main(sys.argv[1:]))"],
}  # fmt: skip
every_mode = pytest.mark.parametrize("mode", MODES)


def watching(
    tree: Tree, mode: str = "watchfiles", *arguments: str
) -> AbstractContextManager[Printing]:
    return printing(tree, *MODES[mode], "watch", *arguments, SKILLBELT_WATCH_SECONDS="0.2")


@every_mode
def test_changes_are_printed_as_they_happen(tree: Tree, mode: str) -> None:
    folder = tree.skill("project/.agents/skills/pdf")
    with watching(tree, mode) as watch:
        assert watch.begun() == "watching 1 skill; Ctrl-C stops it\n"
        text = tree.skill("project/.agents/skills/text", description="Reads text.")
        assert watch.line() == "added text: Reads text."
        tree.skill(folder, description="Reads PDF files.")
        assert watch.line() == "changed pdf: Reads PDF files."
        (text / "SKILL.md").unlink()
        assert watch.line() == "removed text"


@every_mode
def test_json_is_a_document_a_line(tree: Tree, mode: str) -> None:
    with watching(tree, mode, "--json") as watch:
        watch.begun()
        tree.skill("project/.agents/skills/pdf")
        document = {"added": ["pdf"], "changed": [], "removed": [], "broken": [], "fixed": []}
        assert json.loads(watch.line()) == document


def test_a_file_that_breaks_and_is_fixed_is_printed_with_its_remedy(tree: Tree) -> None:
    folder = tree.skill("project/.agents/skills/pdf")
    path = folder / "SKILL.md"
    with watching(tree, "watchfiles", "--json") as watch:
        watch.begun()
        path.write_bytes(b"\xff\xfe broken")
        broken = json.loads(watch.line())
        assert broken["removed"] == ["pdf"]
        [said] = broken["broken"]
        assert (said["path"], said["code"], said["remedy"]) == (
            str(path),
            "not-utf8",
            "save it as UTF-8",
        )
        tree.skill(folder)
        fixed = json.loads(watch.line())
        assert (fixed["added"], fixed["broken"], fixed["fixed"]) == (["pdf"], [], [str(path)])


@every_mode
def test_a_folder_that_did_not_exist_is_found(tree: Tree, mode: str) -> None:
    with watching(tree, mode) as watch:
        assert watch.begun() == "watching 0 skills; Ctrl-C stops it\n"
        tree.skill("home/.claude/skills/pdf")
        assert watch.line() == "added pdf: Does a thing."


@every_mode
def test_ctrl_c_is_130_and_terminate_0(tree: Tree, mode: str) -> None:
    tree.skill("project/.agents/skills/pdf")
    with watching(tree, mode) as watch:
        watch.begun()
        assert watch.end(signal.SIGINT) == (130, "")
    with watching(tree, mode) as watch:
        watch.begun()
        assert watch.end(signal.SIGTERM) == (0, "")


def test_count_ends_it(tree: Tree) -> None:
    with watching(tree, "watchfiles", "--count", "1") as watch:
        watch.begun()
        tree.skill("project/.agents/skills/pdf")
        watch.line()
        assert watch.child.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", ["0", "-1", "some"])
def test_a_count_is_above_0(tree: Tree, number: str) -> None:
    """With 0 it would go on for ever."""
    done = tree.run("watch", f"--count={number}")
    assert done.exit_code == 2
    assert f"'{number}' is not a number above 0" in done.stderr


def test_quiet_says_nothing_but_changes(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    with watching(tree, "watchfiles", "-q", "--count", "1") as watch:
        # Without a word at the start, a change may come too early to be one; so there are more.
        changed = 0
        while watch.child.poll() is None and changed < 300:
            changed += 1
            tree.skill("project/.agents/skills/pdf", description=f"Change {changed}.")
            try:
                watch.child.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        assert watch.line().startswith("changed pdf: Change ")
        assert watch.err.read() == b""


def test_a_hostile_description_is_printed_safe(tree: Tree) -> None:
    with watching(tree) as watch:
        watch.begun()
        text = '---\nname: pdf\ndescription: "a\\e[31m\\nb\\u202e"\n---\nText.\n'
        tree.write("project/.agents/skills/pdf/SKILL.md", text)
        assert watch.line() == "added pdf: a\\x1b[31m b\\u202e"


def test_a_reader_that_went_away_ends_it(tree: Tree) -> None:
    with watching(tree) as watch:
        watch.begun()
        watch.out.close()
        tree.skill("project/.agents/skills/pdf")
        assert watch.child.wait(PATIENCE) == 0
        assert watch.err.read() == b""
