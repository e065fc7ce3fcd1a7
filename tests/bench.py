"""A workbench with one skill, for tests that run commands for real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skillbelt import Answer, Pending, Rule, Runtime
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.workbench import Workbench
from skillbelt.store import SessionKey
from tests.tree import Tree

KEY = SessionKey("app", "me", "one")
ME = Asker(KEY, "user", "coder")
ALLOW = (Rule("*", "*", "allow"),)
ASK_ALL = (Rule("*", "*", "ask"),)


class Bench:
    """A workbench for a project with a skill called `echo`."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.skill = tree, tree.skill("project/.agents/skills/echo")
        self.asked: list[Pending] = []
        self._open: list[Runtime] = []

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """A file of the skill."""
        self.tree.write(self.skill / path, text).chmod(mode)

    def make(
        self,
        rules: tuple[Rule, ...] = ALLOW,
        answer: Callable[[Pending], Answer | None] | None = None,
        artifacts: MemoryArtifacts | None = None,
        **settings: Any,
    ) -> Workbench:
        def ask(pending: Pending) -> Answer | None:
            self.asked.append(pending)
            return answer(pending) if answer else Answer("once")

        self.belt = Runtime(self.tree.project, rules=rules, ask=ask, **settings)
        self._open.append(self.belt)
        return Workbench(
            self.belt.settings,
            self.belt.gate,
            self.belt.get_skill,
            skills=self.belt.skills,
            artifacts=artifacts,
        )

    def run(
        self,
        command: str | tuple[str, ...],
        who: Asker = ME,
        bench: Workbench | None = None,
        **call: Any,
    ) -> RunResult:
        bench = bench or self.make()
        return bench.run(self.belt.get_skill("echo"), RunCall(command, **call), who)

    def events(self, type: str) -> list[dict[str, object]]:
        return [dict(one.data) for one in self.belt.gate.audit.read(type=type)]

    def close(self) -> None:
        for belt in self._open:
            belt.close()
