"""A project whose skill may run commands, in the sandbox of this machine, by anybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from skillbelt import Rule, Runtime
from skillbelt.running.call import RunResult
from skillbelt.sandbox.registry import sandboxes
from skillbelt.tools.schema import ToolResult
from tests import warm
from tests.needs import not_run
from tests.tree import Tree

SKILL = "kit"
FOLDER = f"project/.agents/skills/{SKILL}"
ALLOW = Rule("run", "*", "allow")
# The native sandboxes of this kind of system that hold something back.
GUARDING = ["seatbelt"] if sys.platform == "darwin" else ["bubblewrap", "landlock"]
# Not the number that commands get when root starts them, so that the two can not be mixed up.
USER = 61_999
# The interpreter may lie where only root can read: the code runs where all is imported already.
_CHILD = f"""
import gc, json, os, sys
from skillbelt import Rule, Runtime
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({USER})
    os.setuid({USER})
belt = Runtime(sys.argv[1], rules=[Rule("run", "*", "allow")])
session = belt.session("ada", "chat")
def run(command, **options):
    return belt.run_sync("{SKILL}", command, session=session, **options)
"""


class Bench:
    """A skill `kit`, a runtime in which every command is allowed, and a conversation.

    The whole tree can be reached by whoever commands run as.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        tree.skill(FOLDER)

    @property
    def skill(self) -> Path:
        """The folder of the skill, where its author keeps it."""
        return self.tree.path(FOLDER)

    def write(self, path: str, text: str | bytes = "") -> Path:
        """A file of the skill; below `bin` and `scripts` one that can be run."""
        file = self.tree.write(f"{FOLDER}/{path}", text)
        if path.startswith(("bin/", "scripts/")):
            file.chmod(0o755)
        return file

    @cached_property
    def runtime(self) -> Runtime:
        """The runtime of the tests that need no settings."""
        return self.open()

    def open(self, **options: Any) -> Runtime:
        """Another runtime of the same project."""
        return Runtime(self.tree.project, **{"rules": [ALLOW], "tool_profile": "full", **options})

    def run(self, command: str | list[str], *, chat: str = "chat", **options: Any) -> RunResult:
        """Run a command in a conversation, as the user."""
        session = self.runtime.session("ada", chat)
        return self.runtime.run_sync(SKILL, command, session=session, **options)

    def tool(self, command: str, **arguments: object) -> ToolResult:
        """What the tool `skill_run` gives to the model of that conversation."""
        return self.call("skill_run", skill=SKILL, command=command, **arguments)

    def call(self, tool: str, /, **arguments: object) -> ToolResult:
        """What any tool gives to that model."""
        return self.runtime.session("ada", "chat").call_sync(tool, arguments)

    def read(self, name: str) -> str:
        """What `read_file` gives, without the line about the lines."""
        result = self.call("read_file", file_name=name)
        assert not result.error, result.error
        return result.text.partition("\n")[2]

    def as_user(self, code: str, timeout: float = 500) -> Any:
        """What the code gives to `json.dump(..., sys.stdout)`, run by an ordinary user.

        `run(command, ...)` runs a command of the skill there.
        """
        if os.getuid() == 0:
            for folder, _, files in os.walk(self.tree.root):
                for path in (folder, *(os.path.join(folder, name) for name in files)):
                    os.chown(path, USER, USER, follow_symlinks=False)
        done = warm.run(
            [sys.executable, "-c", _CHILD + code, str(self.tree.project)],
            cwd=self.tree.project,
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)


def need(sandbox: str) -> None:
    """Skip the test where the sandbox of that name can not be used, with the reason."""
    [found] = [one for one in sandboxes() if one.name == sandbox]
    if reason := found.unavailable():
        not_run(reason)


def alive(mark: str) -> list[str]:
    """The command lines of the processes that have this word among their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(" ".join(word.decode("utf-8", "replace") for word in words))
    return found
