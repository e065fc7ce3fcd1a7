"""The job of a run for its sandbox: mounts, environment, working folder and programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from skillbelt.files.contain import create_beneath, inside
from skillbelt.permission.command_policy import clean_environment
from skillbelt.running.call import script_of, timeout_of
from skillbelt.running.programs.folder import MODULES, PROGRAMS, TSX, provide_programs
from skillbelt.running.programs.outside import folder_of_programs
from skillbelt.running.run import Run
from skillbelt.running.workspace import NODE_MODULES, SKILLS, VENV, placed
from skillbelt.sandbox.linux.identity import interpreter, trusted_program
from skillbelt.sandbox.network.proxy import SOCKET_NAME, bridge
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.sandbox.registry import CONTAINER, WASM
from skillbelt.settings import Settings, process_environment
from skillbelt.text import one_line

_NET, _PROGRAMS = "/run/net", "/run/programs"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_EDITOR = b'#!/bin/sh\n/bin/cat "${0%/*}/editor-text" > "$1"\n'


def own_script(run: Run) -> str:
    """Return the file of the skill itself that the command runs, relative to it; "" if none.

    A file that a run can write is not the skill's own, though links in its folder lead there.
    """
    home, cwd = run.staged.path, start_folder(run)

    def is_own(path: str) -> bool:
        path = os.path.join(cwd, path)
        own = inside(path, home) and not inside(path, os.path.join(home, VENV))
        return own and os.path.isfile(path)

    script = script_of(run.call.text, run.line.commands, is_own)
    found = os.path.realpath(os.path.join(cwd, script))
    return os.path.relpath(found, os.path.realpath(home)) if script else ""


def start_folder(run: Run) -> str:
    """Return the folder that the command starts in, on the host."""
    cwd = run.workspace.resolve_cwd(run.call.cwd, run.skill.name)
    return os.path.join(run.workspace.path, placed(cwd, {run.skill.name: run.staged.home}))


def make_job(run: Run) -> Job:
    """Return the job for the sandbox, after everything that it needs is granted and present."""
    call, egress = run.call, run.egress
    cwd = run.workspace.resolve_cwd(call.cwd, run.skill.name, run.folder)
    run.workspace.enter(cwd, run.homes)
    net = _NET if run.remaps else egress.folder if egress else ""
    return Job(
        argv=run.argv,
        env=environment(run),
        cwd=run.inside(cwd),
        mounts=(*mounts(run), *_outer_mounts(run, net)),
        workspace=run.workspace.path,
        capabilities=run.capabilities,
        limits=run.limits,
        timeout_seconds=timeout_of(call, run.limits.run_timeout_seconds),
        stdin=call.stdin,
        terminal=call.terminal,
        bridge=bridge(os.path.join(net, SOCKET_NAME)) if egress else (),
    )


def mounts(run: Run) -> tuple[Mount, ...]:
    """Return the mounts: the skill, the skills that inputs come from, and the writable folders."""
    workspace, homes = run.workspace, run.homes
    skills = [(f"{SKILLS}/{name}", False) for name in homes]
    own = ((f"{SKILLS}/{run.skill.name}/{VENV}", True), *workspace.mounts(run.folder))
    return tuple(
        Mount(os.path.join(workspace.path, placed(path, homes)), run.inside(path), may_write)
        for path, may_write in (*skills, *own)
    )


def _outer_mounts(run: Run, net: str) -> Iterable[Mount]:
    """Yield the mounts from outside the workspace: packages, the interpreter, the network proxy."""
    packages = run.packages
    if packages is not None:
        yield Mount(packages.path, packages.path)
        if run.remaps and packages.modules:
            # `import` ignores NODE_PATH; this folder is a parent of every skill.
            yield Mount(packages.modules, os.path.join(run.root, NODE_MODULES))
    python, programs = interpreter(), run.programs
    if programs:
        yield Mount(programs.folder, _place_of_programs(run))
    shown = programs.shown if programs else ()
    shown += tuple(folder for folder, _ in run.program_folders)
    for folder in dict.fromkeys((*(python.folders if python else ()), *shown)):
        yield Mount(folder, folder)
    if run.egress is not None:
        yield Mount(run.egress.folder, net)


def environment(run: Run) -> dict[str, str]:
    """Return the whole environment of the command; the variables of the call win."""
    packages, name = run.packages, run.skill.name
    venv = run.inside(f"{SKILLS}/{name}/{VENV}")
    programs = run.programs
    ours = _place_of_programs(run)
    first = bool(programs and programs.first)
    # No folder that a run can write is on it, and no program of a package comes before the
    # system's.
    path = [packages.interpreter if packages else "", ours if first else "", _SYSTEM_PATH,
            _python_folder(), *_package_programs(run), "" if first else ours,
            *(folder for _, folder in run.program_folders), *_own_programs(run)]  # fmt: skip
    # Without its own mounts, a run would share /tmp with all users; it is closed there.
    temporary = "/tmp" if run.remaps else os.path.join(run.root, run.folder)
    env = {
        "PATH": ":".join(filter(None, path)),
        "VIRTUAL_ENV": packages.path if packages else venv,
        "HOME": temporary,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **run.workspace.variables(run.root, name, run.folder, run.skills),
    }
    if not run.remaps:
        # git fails when it cannot read its system file; a missing file is fine.
        env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}
    if packages is not None and packages.modules:
        env["NODE_PATH"] = packages.modules
        if first and not run.remaps:
            path_of_modules = json.dumps(os.path.join(ours, MODULES), ensure_ascii=False)
            env["NODE_OPTIONS"] = f"--require {path_of_modules}"
    if run.call.editor_text is not None:
        env |= dict.fromkeys(("EDITOR", "VISUAL"), os.path.join(run.root, run.folder, "editor"))
    return env | clean_environment(run.call.env, policy=run.policy) | dict(run.secrets)


def _place_of_programs(run: Run) -> str:
    """Return the path of our programs inside: it does not show the path of the user's state."""
    if run.programs is None:
        return ""
    return _PROGRAMS if run.remaps else run.programs.folder


def _package_programs(run: Run) -> Iterable[str]:
    """Yield the folder of the packages' programs, after ours for those that must not listen."""
    if run.packages is None:
        return
    confined = run.egress is not None or not run.remaps
    has_tsx = confined and os.path.lexists(os.path.join(run.packages.bin, "tsx"))
    if has_tsx and run.programs and run.programs.first:
        yield os.path.join(_place_of_programs(run), TSX)
    yield run.packages.bin


def _own_programs(run: Run) -> Iterable[str]:
    """Yield the skill's own `bin`, unless it is a link: a run may be able to write its target."""
    if not os.path.islink(os.path.join(run.staged.path, "bin")):
        yield run.inside(f"{SKILLS}/{run.skill.name}/bin")


def _python_folder() -> str:
    python = interpreter()
    return os.path.dirname(python.path) if python and python.folders else ""


def shell() -> str:
    """Return the bash of this machine that only root can change, as /bin/bash if it is the same."""
    found = trusted_program("bash")
    usual = os.path.realpath("/bin/bash") == found
    return "/bin/bash" if usual else found or "bash"


def write_editor(run: Run, text: str) -> None:
    """Write a program for `$EDITOR` that replaces the content of its file by the text."""
    folder = run.workspace.make_folders(run.folder)
    try:
        for name, data in (("editor", _EDITOR), ("editor-text", text.encode("utf-8", "replace"))):
            with open(create_beneath(folder, name, executable=name == "editor"), "wb") as file:
                file.write(data)
                file.flush()
                run.workspace.give(file.fileno())
    finally:
        os.close(folder)


def show_programs(run: Run, settings: Settings) -> None:
    """Set the folders of programs beside the system's; a module needs none."""
    if run.sandbox.name == WASM:
        return
    run.programs = provide_programs(
        os.path.join(os.path.dirname(run.workspace.path), PROGRAMS),
        path=process_environment().get("PATH", ""),
        project=settings.project,
        foreign=run.sandbox.name == CONTAINER and bool(settings.container_image),
    )
    for path in settings.program_folders:
        try:
            run.program_folders += (folder_of_programs(path),)
        except ValueError as error:
            run.warnings += (f"program_folders: {one_line(path)} is not shown: {error}",)
