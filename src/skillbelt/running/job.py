"""The job that a sandbox is given for a run: what is there, what the environment says."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from skillbelt.files.contain import create_beneath, inside
from skillbelt.permission.command_policy import clean_environment
from skillbelt.permission.packages import Environment
from skillbelt.running.call import RunCall, script_of, scripts_named, timeout_of
from skillbelt.running.staging import Staged
from skillbelt.running.workspace import SKILLS, VENV, Workspace, placed
from skillbelt.sandbox.linux.identity import interpreter, trusted_program
from skillbelt.sandbox.network.proxy import Egress, bridge
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.values import Capabilities, Limits

INSIDE = "/workspace"
_NET = "/run/net"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_EDITOR = b'#!/bin/sh\n/bin/cat "${0%/*}/editor-text" > "$1"\n'


class Place(NamedTuple):
    """Where a run takes place: the staged skill in its workspace, and the folder of the run.

    With `remaps`, the workspace is at a place of its own inside, and each skill in `skills/` there.
    `others` are the copies of skills that inputs come from, by name.
    """

    workspace: Workspace
    skill: str
    staged: Staged
    run: str
    remaps: bool
    others: Mapping[str, str] = MappingProxyType({})

    @property
    def root(self) -> str:
        """The workspace as the command sees it."""
        return INSIDE if self.remaps else self.workspace.path

    @property
    def homes(self) -> dict[str, str]:
        """The copies that the run sees, by name, its own as the last: paths in the workspace."""
        others = {name: home for name, home in self.others.items() if name != self.skill}
        return {**others, self.skill: self.staged.home}

    @property
    def skills(self) -> str:
        """The folder that the skill is in, below the root that the command sees."""
        return SKILLS if self.remaps else posixpath.dirname(self.staged.home)

    def inside(self, path: str) -> str:
        """Where the command sees a path of the workspace."""
        seen = path if self.remaps else placed(path, self.homes)
        return os.path.normpath(os.path.join(self.root, seen))


def own_script(place: Place, call: RunCall, parts: tuple[str, ...]) -> str:
    """The file of the skill itself that the command runs, relative to the skill; "" if none.

    What a run can write is not the skill's own, though links in its folder lead there.
    """
    home, cwd = place.staged.path, _start(place, call)

    def is_own(path: str) -> bool:
        path = os.path.join(cwd, path)
        own = inside(path, home) and not inside(path, os.path.join(home, VENV))
        return own and os.path.isfile(path)

    script = script_of(call.text, parts, is_own)
    found = os.path.realpath(os.path.join(cwd, script))
    return os.path.relpath(found, os.path.realpath(home)) if script else ""


def script_named(place: Place, call: RunCall) -> str:
    """The first script of the skill that a longer command line names; "" if none.

    It only says whose packages are needed, and those are asked for by themselves.
    """
    home = os.path.realpath(place.staged.path)
    folders = (_start(place, call), home, os.path.join(home, "scripts"))
    for word in scripts_named(call.text):
        for folder in folders:
            path = os.path.join(folder, word)
            if os.path.isfile(path) and inside(path, home):
                return os.path.relpath(os.path.realpath(path), home)
    return ""


def _start(place: Place, call: RunCall) -> str:
    """Where the command starts, on disk."""
    cwd = place.workspace.resolve_cwd(call.cwd, place.skill)
    return os.path.join(place.workspace.path, placed(cwd, place.homes))


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
    place.workspace.enter(cwd, place.homes)
    way = _NET if place.remaps else egress.folder if egress else ""
    return Job(
        argv=argv,
        env=environment(call, place, packages, policy=policy),
        cwd=place.inside(cwd),
        mounts=(*mounts(place), *_beside(place, packages, egress, way)),
        workspace=place.workspace.path,
        capabilities=capabilities,
        limits=limits,
        timeout_seconds=timeout_of(call, limits.run_timeout_seconds),
        stdin=call.stdin,
        terminal=call.terminal,
        bridge=bridge(os.path.join(way, "door")) if egress else (),
    )


def mounts(place: Place) -> tuple[Mount, ...]:
    """The skill itself, those that inputs come from, and what a run may write; nothing else."""
    workspace, homes = place.workspace, place.homes
    skills = [(f"{SKILLS}/{name}", False) for name in homes]
    own = ((f"{SKILLS}/{place.skill}/{VENV}", True), *workspace.mounts(place.run))
    return tuple(
        Mount(os.path.join(workspace.path, placed(path, homes)), place.inside(path), may_write)
        for path, may_write in (*skills, *own)
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
    venv = place.inside(f"{SKILLS}/{place.skill}/{VENV}")
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
        **place.workspace.variables(place.root, place.skill, place.run, place.skills),
    }
    if not place.remaps:
        # Files of the system that are closed, not missing: git gives up at those of its own.
        env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}
    if packages is not None and packages.modules:
        env["NODE_PATH"] = packages.modules
    if call.editor_text is not None:
        env |= dict.fromkeys(("EDITOR", "VISUAL"), os.path.join(place.root, place.run, "editor"))
    return env | clean_environment(call.env, policy=policy)


def _own_programs(place: Place) -> Iterable[str]:
    """The skill's own `bin`, unless it is a link: that may lead to what a run can write."""
    if not os.path.islink(os.path.join(place.staged.path, "bin")):
        yield place.inside(f"{SKILLS}/{place.skill}/bin")


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
