"""A whole command that is killed before a change of the disk: the old state or the new one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.install.hashes import hash_folder
from tests import warm
from tests.install.desk import InstallDesk
from tests.tree import Tree

# Runs a command and ends before the change of that number, or writes how many there are.
PROGRAM = """
import os, sys
from tests.install.test_placing import CHANGES, WRITES
number, counted = int(sys.argv[1]), sys.argv[2]
sys.argv[1:] = sys.argv[3:]
seen = 0

def count(event, arguments):
    global seen
    if event in CHANGES or (event == "open" and int(arguments[2] or 0) & WRITES):
        if seen == number:
            os._exit(99)
        seen += 1

from skillbelt.cli import main
sys.addaudithook(count)
os.fsync = lambda handle: None  # only a loss of power needs it
code = main()
number = -1
with open(counted, "w") as file:
    file.write(str(seen))
sys.exit(code)
"""
MAX_KILLS = 24
Ends = tuple[dict[str, str], dict[str, str], bool]


class KillDesk(InstallDesk):
    """Two skills, commands that are killed, and the state that is left."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._counted = tree.root / "counted"

    def run_killed(self, number: int, *words: str) -> int:
        """Run a command and end it before a change of the disk; return its exit code."""
        home = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        done = warm.run(
            [sys.executable, "-c", PROGRAM, str(number), str(self._counted), *words],
            cwd=self.base,
            env={**os.environ, "PYTHONPATH": home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        assert done.returncode in (0, 99), done.stderr
        return int(done.returncode)

    def count_changes(self, *words: str) -> int:
        assert self.run_killed(-1, *words) == 0
        return int(self._counted.read_text())

    def state(self) -> Ends:
        """The digests in place and in the lock, and whether a client has its link."""
        skills = self.base / ".agents" / "skills"
        names = sorted(os.listdir(skills)) if skills.exists() else []
        placed = {name: hash_folder(str(skills / name)).content_digest for name in names}
        entries = self.document()["skills"] if self.lock.exists() else {}
        locked = {name: entry["contentDigest"] for name, entry in entries.items()}
        return placed, locked, (self.base / ".claude/skills/alpha").is_symlink()

    def litter(self) -> list[str]:
        names = [str(path.relative_to(self.base)) for path in self.base.rglob("*")]
        marks = (".skillbelt-", ".gone-", ".part")
        return sorted(name for name in names if any(mark in name for mark in marks))


def prepare(desk: KillDesk, command: str) -> tuple[str, ...]:
    """Bring the project to where the command has something to do; return its words."""
    if command == "add":
        return ("add", desk.url, "--skill", "alpha", "--to", "claude", "--yes")
    desk.install("claude")
    if command == "update":
        desk.write("alpha", "scripts/run.sh", "echo two\n")
        desk.write("alpha", "more.md", "More.\n")
        desk.commit()
        return ("update", "alpha", "--yes")
    if command == "sync":
        shutil.rmtree(desk.installed("alpha"))
        (desk.base / ".claude/skills/alpha").unlink()
        return ("sync", "--yes")
    return ("remove", "alpha")


@pytest.mark.long
@pytest.mark.parametrize("command", ["add", "update", "sync", "remove"])
def test_a_killed_command_leaves_the_old_state_or_the_new(tree: Tree, command: str) -> None:
    desk = KillDesk(tree)
    words = prepare(desk, command)
    parts = [desk.base, Path(tree.root) / "home"]
    for part in parts:
        shutil.copytree(part, tree.root / "aside" / part.name, symlinks=True)

    def restore() -> None:
        for part in parts:
            shutil.rmtree(part)
            shutil.copytree(tree.root / "aside" / part.name, part, symlinks=True)

    old = desk.state()
    total = desk.count_changes(*words)
    new = desk.state()
    assert old != new and total > 10
    every = -(-total // MAX_KILLS)
    ends = []
    for number in range(0, total, every):
        restore()
        if desk.run_killed(number, *words) != 99:
            # Of a folder that was changed a moment ago no stamp is written: fewer changes.
            assert number > total // 2
            break
        desk.run("verify")  # the next command, which finishes or drops what was begun
        ends.append(desk.state())
        assert ends[-1] in (old, new), number
        assert desk.litter() == [], number
    assert ends[0] == old
    assert ends == sorted(ends, key=lambda state: state == new)  # once it is new, it stays new
    done = desk.run(*words)  # no lock or journal of the killed one is in the way
    assert done.exit_code == 0 or command == "remove", done.stderr
    assert desk.state() == new
