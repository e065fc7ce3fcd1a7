"""Workspaces of single runs that another machine carries out: the next run gets them, if clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt import Runtime
from skillbelt.running.call import RunCall, RunResult
from skillbelt.running.executors import LocalExecutor
from skillbelt.running.workbench import Workbench
from skillbelt.running.workspace import place_of
from tests.bench import ALLOW, ME
from tests.tree import Tree

ONCE = ME._replace(once="whole")


class Elsewhere(LocalExecutor):
    """An executor that says that no command runs here."""

    elsewhere = True


class Server:
    """A workbench whose commands run elsewhere."""

    def __init__(self, tree: Tree) -> None:
        self.skill = tree.skill("project/.agents/skills/echo")
        self.belt = Runtime(tree.project, rules=ALLOW)
        self.bench = Workbench(
            self.belt.settings,
            self.belt.gate,
            self.belt.get_skill,
            executor=Elsewhere(self.belt.settings),
        )

    def run(self, command: str, user: str = "me") -> RunResult:
        who = ONCE._replace(key=ME.key._replace(user=user))
        return self.bench.run(self.belt.get_skill("echo"), RunCall(command), who)

    def there(self) -> list[str]:
        """The workspaces that are left."""
        return sorted(one.name for one in self.folder.iterdir() if not one.name.startswith("."))

    @property
    def folder(self) -> Path:
        return Path(place_of(self.bench.folder, self.bench.owner))


@pytest.fixture
def server(open_tree: Tree) -> Server:
    return Server(open_tree)


def test_the_next_run_of_the_same_user_gets_the_same_workspace(server: Server) -> None:
    assert server.run("echo 1").stdout == "1\n"
    [first] = server.there()
    assert server.run("cat SKILL.md").exit_code == 0
    assert server.there() == [first]
    server.run("true", user="other")
    assert len(server.there()) == 2
    server.bench.close()
    assert server.there() == []


@pytest.mark.parametrize(
    "command",
    [
        "echo x > $WORK_DIR/a",
        "echo x > $RUN_DIR/a",
        "mkdir .venv/a",
        "chmod 755 $WORK_DIR",
    ],
)
def test_one_that_a_run_changed_is_not_used_again(server: Server, command: str) -> None:
    server.run("true")
    [before] = server.there()
    assert server.run(command).exit_code == 0
    assert before not in server.there()
    assert server.run("ls -A $WORK_DIR $RUN_DIR .venv").stdout.count("a\n") == 0
    server.bench.close()
    assert server.there() == []


def test_a_skill_that_changed_is_copied_anew(server: Server) -> None:
    (server.skill / "word.txt").write_text("old")
    assert server.run("cat word.txt").stdout == "old"
    before = server.there()
    (server.skill / "word.txt").write_text("new")
    assert server.run("cat word.txt").stdout == "new"
    assert server.there() != before
    assert server.run("cat word.txt").stdout == "new"
    [kept] = server.there()
    assert len([*(server.folder / kept).glob("skills-*")]) == 1
