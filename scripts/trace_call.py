"""Prints what one tool call goes through: modules, functions, depth, reads of the state.

`python scripts/trace_call.py [--calls]` loads a skill and runs one of its commands in a session, as
a host does, and counts the functions of skillbelt in the calling process. The calls are warm: each
was made before, so nothing is imported or parsed for the first time. `--calls` prints every call.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import skillbelt
from skillbelt import Answer, Runtime, RuntimeSession

PACKAGE = os.path.dirname(skillbelt.__file__) + os.sep
EXAMPLES = Path(__file__).parents[1] / "examples" / "skills"
LOADED, RUN = "csv-report", "text-stats"
CALLS: dict[str, dict[str, Any]] = {
    "skill_load": {"skill": LOADED},
    "skill_run": {
        "skill": RUN,
        "command": "cat $WORK_DIR/inputs/a.md > out/a.txt",
        "inputs": [{"from": f"skill://{RUN}/SKILL.md", "to": "work/inputs/a.md"}],
        "output_files": ["out/*.txt"],
    },
}
# A file younger than this may change without a trace, so its hash is not cached.
YOUNG_SECONDS = 2.1


class Trace:
    """The functions of skillbelt that were called, in their order, with their depth."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, str]] = []
        self._depth = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note a call or a return; for sys.setprofile."""
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE):
            return
        if event == "call":
            self._depth += 1
            self.calls.append((self._depth, path[len(PACKAGE) :], frame.f_code.co_qualname))
        elif event == "return":
            self._depth -= 1

    def count(self, module: str, function: str) -> int:
        """Return how often a function was called."""
        return sum(call[1:] == (module, function) for call in self.calls)

    def __str__(self) -> str:
        modules = {module for _, module, _ in self.calls}
        functions = {call[1:] for call in self.calls}
        depth = max(depth for depth, _, _ in self.calls)
        read = self.count("conversation/state.py", "Session.state")
        walks = self.count("files/tree.py", "SkillTree.__init__")
        return (
            f"{len(modules)} modules, {len(functions)} functions, {len(self.calls)} calls, "
            f"depth {depth}; {read} reads of the state, {walks} walks of a folder"
        )


@contextmanager
def conversation() -> Iterator[RuntimeSession]:
    """Open a session in a project of its own, where every question is answered with yes."""
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as root:
        os.environ.update(HOME=root, XDG_CACHE_HOME=root, XDG_STATE_HOME=root)
        shutil.copytree(EXAMPLES, os.path.join(root, "project", ".agents", "skills"))
        project = os.path.join(root, "project")
        with Runtime(project, ask=lambda _pending: Answer("once")) as runtime:
            session = runtime.session("user", "session")
            session.request([{"role": "user", "content": "Hello."}])
            time.sleep(YOUNG_SECONDS)
            yield session


def trace(session: RuntimeSession, tool: str) -> Trace:
    """Make the call twice and trace the second one."""
    for found in (None, Trace()):
        session.unload(LOADED)
        sys.setprofile(found)
        try:
            result = session.call_sync(tool, dict(CALLS[tool]), "call")
        finally:
            sys.setprofile(None)
        if result.error:
            raise SystemExit(f"{tool}: {result.error}")
    assert found is not None
    return found


def main() -> int:
    """Print a line for each call."""
    with conversation() as session:
        for tool in CALLS:
            found = trace(session, tool)
            print(f"{tool}: {found}")
            if "--calls" in sys.argv[1:]:
                for depth, module, function in found.calls:
                    print(f"{'  ' * depth}{module}: {function}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
