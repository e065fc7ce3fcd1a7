"""The job that a sandbox is given for a run: what is there, what the environment says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from skillbelt.commands import clean_environment
from skillbelt.inputs import skills_named
from skillbelt.packages import Environment
from skillbelt.paths import create_beneath
from skillbelt.run import RunCall, timeout_of
from skillbelt.sandbox.egress import Egress, bridge
from skillbelt.sandbox.identity import interpreter, trusted_program
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.staging import Staged
from skillbelt.values import Capabilities, Limits
from skillbelt.workspace import SKILLS, VENV, Workspace

INSIDE = "/workspace"
_NET = "/run/net"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_EDITOR = b'#!/bin/sh\n/bin/cat "${0%/*}/editor-text" > "$1"\n'


class Place(NamedTuple):
    """Where a run takes place: the staged skill in its workspace, and the folder of the run.

    With `remaps`, the workspace is at a place of its own inside.
    """

    workspace: Workspace
    skill: str
    staged: Staged
    run: str
    remaps: bool

    @property
    def root(self) -> str:
        """The workspace as the command sees it."""
        return INSIDE if self.remaps else self.workspace.path


def make_job(
    argv: tuple[str, ...],
    call: RunCall,
    place: Place,
    capabilities: Capabilities,
    limits: Limits,
    *,
    packages: Environment | None = None,
    egress: Egress | None = None,
    policy: bool = False,
) -> Job:
    """The job for the words of the call; `policy` says that its program was chosen by one."""
    cwd = place.workspace.resolve_cwd(call.cwd, place.skill, place.run)
    place.workspace.enter(cwd)
    way = _NET if place.remaps else egress.folder if egress else ""
    return Job(
        argv,
        environment(call, place, packages, policy=policy),
        os.path.normpath(os.path.join(place.root, cwd)),
        (*mounts(place, skills_named(call.inputs)), *_beside(place, packages, egress, way)),
        place.workspace.path,
        capabilities,
        limits,
        timeout_of(call, limits.run_timeout_seconds),
        call.stdin,
        call.terminal,
        bridge(os.path.join(way, "door")) if egress else (),
    )


def mounts(place: Place, others: Iterable[str] = ()) -> tuple[Mount, ...]:
    """The skill itself, those that inputs come from, and what a run may write; nothing else."""
    workspace = place.workspace
    named = [(f"{SKILLS}/{name}", False) for name in others]
    own = [each for each in workspace.mounts if each[0] != SKILLS]
    return tuple(
        Mount(os.path.join(workspace.path, path), os.path.join(place.root, path), may_write)
        for path, may_write in dict.fromkeys((*named, *place.staged.mounts, *own))
    )


def _beside(
    place: Place, packages: Environment | None, egress: Egress | None, way: str
) -> Iterable[Mount]:
    """What lies outside the workspace: packages, the interpreter, the way to the network."""
    if packages is not None:
        yield Mount(packages.path, packages.path)
        if place.remaps and packages.modules:
            # Where `import` looks from every skill; it does not heed NODE_PATH.
            yield Mount(packages.modules, os.path.join(place.root, "node_modules"))
    python = interpreter()
    yield from (Mount(folder, folder) for folder in (python.folders if python else ()))
    if egress is not None:
        yield Mount(egress.folder, way)


def environment(
    call: RunCall, place: Place, packages: Environment | None = None, *, policy: bool = False
) -> dict[str, str]:
    """Everything the command finds in its environment; what the call sets wins."""
    home = os.path.join(place.root, SKILLS, place.skill)
    venv = os.path.join(home, VENV)
    # What a run can write is not on it, and no program of a package stands before the system's.
    path = [packages.interpreter if packages else "", _SYSTEM_PATH, _python_folder(),
            packages.bin if packages else "", *_own_programs(place)]  # fmt: skip
    # Where nothing is mounted elsewhere, /tmp is everybody's, and closed.
    temporary = "/tmp" if place.remaps else os.path.join(place.root, place.run)
    env = {
        "PATH": ":".join(filter(None, path)),
        "VIRTUAL_ENV": packages.path if packages else venv,
        "HOME": temporary,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **place.workspace.variables(place.root, place.skill, place.run),
    }
    if packages is not None and packages.modules:
        env["NODE_PATH"] = packages.modules
    if call.editor_text is not None:
        env |= dict.fromkeys(("EDITOR", "VISUAL"), os.path.join(place.root, place.run, "editor"))
    return env | clean_environment(call.env, policy=policy)


def _own_programs(place: Place) -> Iterable[str]:
    """The skill's own `bin`, unless it is a link: that may lead to what a run can write."""
    below = os.path.join(SKILLS, place.skill, "bin")
    if not os.path.islink(os.path.join(place.workspace.path, below)):
        yield os.path.join(place.root, below)


def _python_folder() -> str:
    python = interpreter()
    return os.path.dirname(python.path) if python and python.folders else ""


def shell() -> str:
    """The bash of this machine that nobody but root can change, by the path it has everywhere."""
    found = trusted_program("bash")
    usual = os.path.realpath("/bin/bash") == found
    return "/bin/bash" if usual else found or "bash"


def write_editor(workspace: Workspace, run: str, text: str) -> None:
    """A program for `$EDITOR` that writes the text into the file it is given."""
    folder = workspace.make_folders(run)
    try:
        for name, data in (("editor", _EDITOR), ("editor-text", text.encode("utf-8", "replace"))):
            with open(create_beneath(folder, name, executable=name == "editor"), "wb") as file:
                file.write(data)
                file.flush()
                workspace.give(file.fileno())
    finally:
        os.close(folder)
