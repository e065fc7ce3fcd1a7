"""Compare the output of a run with what it really has: its programs, modules, hosts and folders."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Literal

from skillbelt.errors import PathEscape
from skillbelt.files.contain import FOLLOW_FILE, FOLLOW_FOLDER, below, open_beneath
from skillbelt.running.packages.declared import name_of
from skillbelt.running.packages.known_packages import is_known, package_for
from skillbelt.running.programs.hint import Hint
from skillbelt.running.programs.hints import HintFacts, hints_of
from skillbelt.running.programs.outside import folder_of_programs
from skillbelt.running.provide_packages import NO_SUCH_PACKAGE
from skillbelt.running.run import Run
from skillbelt.running.workspace import SKILLS
from skillbelt.sandbox.linux.identity import in_system
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.protocol import Job

_FIRST_LINE, _MAX_WORDS = 256, 100
_SHEBANG = re.compile(rb"#!\s*(/\S{1,200})(?:[ \t]+(?:-S[ \t]+)?([A-Za-z0-9._+-]{1,64}))?")
_WORDS = re.compile(r"(?<![\w./+@-])[\w./+@-]{1,200}(?![\w./+@-])")
_NO_SUCH = re.compile(rf"not provided: (.{{1,4000}}) \\(not declared\\): {NO_SUCH_PACKAGE}")
_SHOWN = re.compile(r"[~\w./@+ -]{1,200}")
_NO_SANDBOX = "none"
# Links in the skill's folder to folders that a run can write.
_LINKS = ("out", "work", "inputs")
_PARTS = ("", "scripts", "src", "lib")


def lacking(
    run: Run, stdout: str, stderr: str, *, path: str, image: str, project: str
) -> tuple[Hint, ...]:
    """Return what the ended run lacked. `path` is the user's own PATH, `image` its image."""
    outcome, egress, job = run.outcome, run.egress, run.job
    if not outcome.exit_code and not stderr:
        return ()
    refused = (one.host for one in (egress.connections if egress else ()) if not one.allowed)
    facts = HintFacts(
        skill=run.skill.name,
        exit_code=outcome.exit_code,
        has=partial(has_program, job, image=image, free=run.sandbox.name == _NO_SANDBOX),
        elsewhere=partial(_find_outside, path),
        interpreter_of=partial(_interpreter_of, run),
        package_of=_package_of,
        is_package=_is_package,
        own=partial(_is_own, run),
        closed=partial(_say_why_closed, run),
        refused_hosts=tuple(dict.fromkeys(refused)),
        online=egress is not None or run.sandbox.name == _NO_SANDBOX,
        can_be_online=run.sandbox.name != LandlockSandbox.name,
        image=image,
        files=tuple(_project_files(run, project)),
        absent=tuple(_list_absent(run)),
        needs_secret=partial(_needs_secret, run),
    )
    return hints_of(stdout, stderr, facts)


def has_program(job: Job, name: str, *, image: str = "", free: bool = False) -> bool:
    """Whether a command of the job finds a program; `free` sees everything of this machine.

    Of an image only the mounts are known: a program that a command did not find is missing.
    """
    for folder in job.env.get("PATH", "").split(":"):
        found = _host_path(job, folder, image=image, free=free)
        program = os.path.join(found, name) if found else ""
        if program and os.access(program, os.X_OK) and not os.path.isdir(program):
            real = os.path.realpath(program)
            if free or in_system(real) or any(below(real, one.source) for one in job.mounts):
                return True
    return False


def _host_path(job: Job, folder: str, *, image: str, free: bool) -> str:
    """Return the folder of this machine that a command sees at that path; "" for none."""
    for mount in sorted(job.mounts, key=lambda one: -len(one.target)):
        rest = below(posixpath.normpath(folder), mount.target)
        if rest:
            return os.path.normpath(os.path.join(mount.source, rest))
    if free:
        return folder
    return folder if in_system(f"{folder}/") and not image else ""


def _find_outside(path: str, name: str) -> str:
    """Return a folder of the user's PATH that has the program and could be shown; "" for none."""
    folders = filter(os.path.isabs, path.split(os.pathsep))
    found = shutil.which(name, path=os.pathsep.join(folders))
    if not found:
        return ""
    try:
        shown, _ = folder_of_programs(os.path.dirname(os.path.realpath(found)))
    except ValueError:
        return ""
    home = os.path.expanduser("~")
    rest = below(shown, home)
    text = f"~/{rest}" if rest else shown
    return text if _SHOWN.fullmatch(text) else ""


def _interpreter_of(run: Run, path: str) -> str:
    """Return the program that a script of the skill names in its first line; "" for none."""
    seen = posixpath.normpath(posixpath.join(run.job.cwd, path))
    rest = below(seen, run.inside(f"{SKILLS}/{run.skill.name}"))
    try:
        folder = os.open(run.staged.path, FOLLOW_FOLDER)
        try:
            with open(open_beneath(folder, rest, FOLLOW_FILE), "rb") as file:
                found = _SHEBANG.match(file.read(_FIRST_LINE))
        finally:
            os.close(folder)
    except (OSError, PathEscape):
        return ""
    if found is None:
        return ""
    program = os.path.basename(found[1]).decode("ascii", "replace")
    return found[2].decode("ascii") if program == "env" and found[2] else program


def _package_of(kind: Literal["python", "node"], module: str) -> tuple[str, bool] | None:
    found = package_for(module, kind)
    return (found.name, found.known) if found else None


def _is_package(kind: Literal["python", "node"], name: str) -> bool:
    return is_known(name_of(name) if kind == "python" else name, kind)


def _is_own(run: Run, module: str) -> bool:
    """Whether the skill has a module of that name where the command did not look."""
    folders = (os.path.join(run.staged.path, part) for part in _PARTS)
    names = (module, f"{module}.py")
    return any(os.path.lexists(os.path.join(one, name)) for one in folders for name in names)


def _project_files(run: Run, project: str) -> Iterator[str]:
    """Yield the words of the command that name a file of the project that the run cannot see."""
    here = below(run.job.cwd, run.inside(f"{SKILLS}/{run.skill.name}"))
    for word in islice(dict.fromkeys(_WORDS.findall(run.call.text)), _MAX_WORDS):
        path = posixpath.normpath(word)
        hidden = any(part.startswith(".") for part in path.split("/"))
        if (
            not hidden
            and _is_file(project, path)
            and not _is_file(run.staged.path, posixpath.join(here, path))
        ):
            yield word


def _is_file(folder: str, path: str) -> bool:
    try:
        handle = os.open(folder, FOLLOW_FOLDER)
    except OSError:
        return False
    try:
        file = open_beneath(handle, path, FOLLOW_FILE)
    except (OSError, PathEscape):
        return False
    finally:
        os.close(handle)
    try:
        return stat.S_ISREG(os.fstat(file).st_mode)
    finally:
        os.close(file)


def _list_absent(run: Run) -> Iterator[str]:
    """Yield the packages that a warning already reports as missing."""
    for text in run.warnings:
        found = _NO_SUCH.fullmatch(text)
        for one in found[1].split(", ") if found else ():
            yield one[:1] + one[1:].partition("@")[0]


def _needs_secret(run: Run, name: str) -> bool:
    """Whether the run lacks a variable that its skill does not declare.

    Declared ones have a warning.
    """
    wants = run.requirements
    return name not in run.job.env and name not in (*wants.env, *wants.optional_env)


def _say_why_closed(run: Run, path: str) -> Literal["", "read-only", "outside"]:
    """Return why commands of this run cannot write to the path; "" if they can."""
    if run.sandbox.name == _NO_SANDBOX:
        return ""
    seen = posixpath.normpath(posixpath.join(run.job.cwd, path))
    inner = below(seen, run.inside(f"{SKILLS}/{run.skill.name}"))
    if inner.partition("/")[0] in _LINKS:
        return ""
    writable = [mount.target for mount in run.job.mounts if mount.writable]
    writable += ["/tmp", "/dev"] if run.remaps else ["/dev"]
    if any(below(seen, target) for target in writable):
        return ""
    return (
        "read-only"
        if inner or any(below(seen, one.target) for one in run.job.mounts)
        else "outside"
    )
