"""Empty workspaces that single runs left unchanged, kept for the next run of the same skill.

Creating a workspace with a copy of the skill in it, and removing both, takes longer than everything
else that a server does for a command that a node carries out.
"""

from __future__ import annotations

import os
import stat
import threading

from skillbelt.running.cleanup import retire
from skillbelt.running.workspace import INPUTS, OUT, RUNS, VENV, WORK, Workspace

_MAX_EACH, _MAX_ALL = 4, 64


class SpareWorkspaces:
    """The spare workspaces of one process, by purpose. Thread-safe."""

    def __init__(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self._kept: dict[tuple[str, ...], list[Workspace]] = {}

    def take(self, purpose: tuple[str, ...]) -> Workspace | None:
        """Return an open workspace for that purpose, if there is one."""
        with self._lock:
            if self._process != os.getpid():  # those from before a fork belong to the parent
                self._process, self._kept = os.getpid(), {}
            spare = self._kept.get(purpose)
            return spare.pop() if spare else None

    def put_aside(self, workspace: Workspace, purpose: tuple[str, ...]) -> None:
        """Keep it open for the next run, if this one left it unchanged; else close and remove it.

        One that is wanted is closed and stays.
        """
        fit = not workspace.wanted and _is_untouched(workspace)
        with self._lock:
            spare = self._kept.setdefault(purpose, [])
            room = sum(map(len, self._kept.values())) < _MAX_ALL
            if fit and room and len(spare) < _MAX_EACH:
                spare.append(workspace)
                return
            if not spare:
                del self._kept[purpose]
        _drop(workspace)

    def remove(self) -> None:
        """Close and remove them all."""
        with self._lock:
            every, self._kept = [one for ones in self._kept.values() for one in ones], {}
        for workspace in every:
            _drop(workspace)


def _drop(workspace: Workspace) -> None:
    workspace.close()
    if not workspace.wanted:
        retire(os.path.dirname(workspace.path), workspace.name)


def _is_untouched(workspace: Workspace) -> bool:
    """Whether a run has left nothing in the workspace, not even a mode, and replaced no copy."""
    try:
        if workspace.has_leftovers():
            return False
        copies = [one.copy for one in workspace.metadata().staged.values()]
        venvs = [f"{copy}/{name}/{VENV}" for copy in copies for name in os.listdir(
            os.path.join(workspace.path, copy))]  # fmt: skip
        empty = {INPUTS: [], OUT: [], RUNS: [], WORK: ["inputs"], **{one: [] for one in venvs}}
        for path, names in empty.items():
            whole = os.path.join(workspace.path, path)
            if os.listdir(whole) != names or stat.S_IMODE(os.lstat(whole).st_mode) != 0o700:
                return False
    except OSError:
        return False
    return True
