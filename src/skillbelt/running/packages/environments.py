"""Environments for scripts: created once for their packages, cached by content, read-only.

uv or npm resolves and installs the packages in a sandbox, which can reach only the user's package
index; no code of a package runs outside. The result is copied out as data, built in a temporary
folder and renamed into place, so that an existing environment is always complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from types import ModuleType

from skillbelt.errors import RunRefused
from skillbelt.files.locks import held
from skillbelt.permission.packages import (
    FOLDER,
    LOCK,
    Environment,
    Lock,
    Package,
)
from skillbelt.running.packages.declared import Needs, describe
from skillbelt.running.packages.fetched import KeptPages
from skillbelt.running.packages.index_config import IndexConfig, node_indexes, python_indexes
from skillbelt.running.packages.installation import (
    INSTALL_TIMEOUT_SECONDS,
    RECORD,
    EnvironmentPlan,
    InstallSandboxes,
    InstallTools,
    Progress,
    SourceBuilds,
    changed,
    fits,
    libc_version,
    which,
    write_json,
)
from skillbelt.sandbox.linux.identity import in_system, trusted_program
from skillbelt.text import one_line
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

_FORMAT = 2  # part of every hash: increase it when environments are built differently
_OLDEST, _NEWEST = 8, 40  # minor versions of Python 3
_RESOLVED, _INTERPRETERS = "resolved", "interpreters"
_VERSION = re.compile(r"\w{1,40} \d+\.\d+[\w.+]{0,40}")
_LIMITS = Limits()


def plan(
    needs: Needs,
    cache_dir: str,
    *,
    sandboxes: InstallSandboxes,
    environ: Mapping[str, str],
    offline: bool = False,
    python: str = "",
    uv_path: str = "",
    npm_path: str = "",
    allow_builds: bool | SourceBuilds = False,
    hosts: Iterable[str] = (),
    timeout_seconds: float = INSTALL_TIMEOUT_SECONDS,
    max_bytes: int = _LIMITS.max_packages_bytes,
    progress: Progress | None = None,
    locked: Lock | None = None,
    objects: str = "",
    portable: bool = False,
) -> EnvironmentPlan:
    """Resolve the needs: as for an existing environment, else with the current index.

    `sandboxes` opens the sandboxes of installers. `objects` is the URL of the object store through
    which machines share wheels. `python` is the interpreter, by default one that runs can use.
    `hosts` are further hosts that the index serves files from. With `allow_builds`, packages
    without a wheel, or those that it names, are built, in the sandbox. `locked` is the resolution
    of another machine. With `portable` the index is asked, and the lock has the hashes of all
    platforms. Raises RunRefused, which says what is missing or not accepted.
    """
    given = uv_path if needs.kind == "python" else npm_path
    interpreter, version = _interpreter(needs, python, sandboxes, environ, cache_dir)
    indexes = _find_indexes(needs, given, environ)
    builds = _builds(allow_builds)
    key = _key(needs, interpreter, version, builds, indexes)
    tools = InstallTools(
        sandboxes=sandboxes,
        program=given,
        interpreter=interpreter,
        version=version,
        environ=environ,
        indexes=indexes,
        hosts=tuple(hosts),
        builds=builds,
        seconds=timeout_seconds,
        most=max_bytes,
        say=progress or _silent,
        faults=[],
        sizes={},
        kept=KeptPages(),
        objects=objects,
    )
    record = os.path.join(cache_dir, _RESOLVED, f"{key}.json")
    lock = locked or _read_lock(record, needs)
    if lock is not None and not portable:
        path = _path(cache_dir, key, lock)
        if locked or _read_environment(path):
            return EnvironmentPlan(needs=needs, lock=lock, path=path, record=record, tools=tools)
    lock = _resolve(needs, tools, offline, portable=portable)
    return EnvironmentPlan(
        needs=needs, lock=lock, path=_path(cache_dir, key, lock), record=record, tools=tools
    )


def _resolve(needs: Needs, tools: InstallTools, offline: bool, *, portable: bool) -> Lock:
    if offline:
        raise RunRefused(
            f"offline, and not installed on this machine yet: {describe(needs)}; "
            "to provide it, go online once and run the same"
        )
    lock: Lock = _building().resolve(needs, tools, portable=portable)
    return lock


def _building() -> ModuleType:
    from skillbelt.running.packages import building  # cost: 15 ms, few runs install

    return building


def key_of(
    needs: Needs,
    cache_dir: str,
    *,
    sandboxes: InstallSandboxes,
    environ: Mapping[str, str],
    builds: bool = False,
) -> str:
    """Return the hash of the request on this machine, with its index; raises RunRefused."""
    interpreter, version = _interpreter(needs, "", sandboxes, environ, cache_dir)
    return _key(needs, interpreter, version, _builds(builds), _find_indexes(needs, "", environ))


def provide(planned: EnvironmentPlan) -> Environment:
    """Return the environment; create it if necessary.

    It may be cleaned up at any time, unless it is in use by
    `skillbelt.running.cleanup.held_environment`.
    """
    found = _read_environment(planned.path)
    if found:
        return found
    folder = os.path.dirname(planned.path)
    for path in (folder, os.path.dirname(planned.record)):
        if not os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o755)  # runs may have another user; independent of the umask
    lock = os.path.join(folder, f".{planned.hash}{LOCK}")
    seconds = planned.tools.seconds
    late = f"another process has been installing the same for {seconds:g} s: {lock}"
    build: Callable[[EnvironmentPlan], Environment] = _building().build
    with held(lock, seconds, RunRefused(late)):
        return _read_environment(planned.path) or build(planned)


def provision(needs: Needs, cache_dir: str, **options: object) -> Environment:
    """Return the environment for these needs, by `plan` and `provide`, without asking the user."""
    return provide(plan(needs, cache_dir, **options))  # type: ignore[arg-type]


def _silent(_: str) -> None:
    pass


# Tools


def _find_indexes(needs: Needs, given: str, environ: Mapping[str, str]) -> IndexConfig:
    if needs.kind == "python":
        return python_indexes(environ)
    return node_indexes(environ, given or which("npm", environ))


def _interpreter(
    needs: Needs,
    given: str,
    sandboxes: InstallSandboxes,
    environ: Mapping[str, str],
    cache_dir: str,
) -> tuple[str, str]:
    """Return the interpreter of the scripts and its version; raises RunRefused.

    That is the given one, else that of runs, else another one of the system if the scripts need it.
    """
    if needs.kind == "node":
        node = which("node", environ)
        if not node:
            raise RunRefused("node is not installed, and the script needs it: install Node.js")
        return node, _output(changed(node), node, "--version")
    python, wanted = given or sandboxes.python, needs.requires_python
    version = _own_version(python) or _known_version(python, cache_dir)
    if fits(version.rpartition(" ")[2], wanted):
        return python, version
    for other in () if given else _other_pythons():
        found = _known_version(other, cache_dir)
        if fits(found.rpartition(" ")[2], wanted):
            return other, found
    raise RunRefused(
        f"{one_line(needs.source_path)}: needs Python {wanted}, and {python} is {version}; install "
        "one that fits, so that the system has a program like python3.12"
    )


def _other_pythons() -> Iterator[str]:
    """Yield those that only root can have installed and that every sandbox shows, oldest first."""
    for minor in range(_OLDEST, _NEWEST):
        found = trusted_program(f"python3.{minor}")
        if found and in_system(found):
            yield found


def _known_version(python: str, cache_dir: str) -> str:
    """Return the version that the interpreter printed, cached until its file changes."""
    try:
        found = os.stat(python)
    except OSError as error:
        raise RunRefused(f"{python} cannot be run: {error.strerror}") from error
    stamp = [python, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
    path = os.path.join(cache_dir, _INTERPRETERS, f"{_hash(*stamp)}.json")
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        known = read_json(file.read())
        if isinstance(known, str) and _VERSION.fullmatch(known):
            return known
    code = (  # as `platform` returns it, which takes longer to import than Python to start
        "import sys; name = sys.implementation.name; "
        "print({'cpython': 'CPython', 'pypy': 'PyPy'}.get(name, name), sys.version.split()[0])"
    )
    said = _output(found.st_mtime_ns, python, "-I", "-S", "-c", code)
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_json(path, said)
    return said


def _own_version(python: str) -> str:
    """Return the version if that is the program of this process itself; else ""."""
    try:
        own = os.path.samestat(os.stat("/proc/self/exe"), os.stat(python))
    except OSError:
        return ""
    if not own or sys.implementation.name != "cpython":
        return ""
    return f"CPython {sys.version.split()[0]}"


@lru_cache(maxsize=32)
def _output(changed: int, *command: str) -> str:
    """Return the output of a program, cached until its file changes."""
    try:
        done = subprocess.run(
            command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RunRefused(f"{command[0]} cannot be run: {error}") from error
    return done.stdout.decode("utf-8", "replace").strip()


def _builds(allowed: bool | SourceBuilds) -> SourceBuilds:
    return allowed if isinstance(allowed, SourceBuilds) else SourceBuilds(every=allowed)


def _key(
    needs: Needs, interpreter: str, version: str, builds: SourceBuilds, indexes: IndexConfig
) -> str:
    return _hash(
        _FORMAT, needs.kind, sorted(needs.requirements), version, os.path.realpath(interpreter),
        sorted(builds.names) or builds.every, sys.platform, os.uname().machine, libc_version(),
        indexes.address, *((needs.locked.packages, needs.locked.text) if needs.locked else ()),
    )  # fmt: skip


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _path(cache_dir: str, key: str, lock: Lock) -> str:
    return os.path.join(cache_dir, FOLDER, _hash(key, lock))


def can_be_written(folder: str) -> bool:
    """Whether files can be created in a folder, which may not exist yet."""
    while not os.path.lexists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


# Records


def _read_environment(path: str) -> Environment | None:
    try:
        with open(os.path.join(path, RECORD), encoding="utf-8") as file:
            kept = read_json(file.read())
        installed = tuple((name, version) for name, version in kept["installed"])
        return Environment(path, os.path.basename(path), installed)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_lock(path: str, needs: Needs) -> Lock | None:
    """Read the lock that the same needs had before."""
    try:
        with open(path, encoding="utf-8") as file:
            kept = read_json(file.read())
        packages = tuple(
            Package(needs.kind, str(name), str(version), tuple(map(str, hashes)))
            for _, name, version, hashes in kept["packages"]
        )
        return Lock(needs.kind, packages, str(kept["text"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
