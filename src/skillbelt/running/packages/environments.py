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
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.files.locks import held
from skillbelt.permission.packages import (
    FOLDER,
    HALF_MADE,
    INTERPRETER,
    LOCK,
    Environment,
    Lock,
    Package,
)
from skillbelt.running.packages.declared import Needs, describe, name_of
from skillbelt.running.packages.index_config import IndexConfig, node_indexes, python_indexes
from skillbelt.running.packages.index_fetcher import IndexFetcher, KeptPages
from skillbelt.running.packages.index_pages import (
    IndexFile,
    NodeIndex,
    PackageIndex,
    PythonIndex,
)
from skillbelt.running.packages.installers import (
    InstallerFailed,
    InstallSandbox,
    InstallSandboxes,
    Npm,
    SourceBuilds,
    Uv,
    find_npm,
    find_uv,
    is_own_program,
    which,
)
from skillbelt.running.packages.lockfiles import (
    NOWHERE,
    Platform,
    is_sure,
    read_node,
    read_python,
    refuse,
)
from skillbelt.running.packages.wheels import WheelInstaller
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

# One step of an installation, or waiting for another process that installs the same.
INSTALL_TIMEOUT_SECONDS = 600.0

Progress = Callable[[str], None]
_FORMAT = 2  # part of every hash: increase it when environments are built differently
_RECORD = "environment.json"
_RESOLVED = "resolved"
_OUTPUT_CHARS = 600
_EXPECTED = 8  # packages whose pages are fetched before uv asks for them
_MAX_DEPTH = 64  # depth of folders; deeper nesting is suspicious
_LIMITS = Limits()
# Not copied from uv's environment: recreated here, or not needed.
_NOT_COPIED = frozenset(("bin", "lib64", "pyvenv.cfg", ".gitignore", ".lock", "CACHEDIR.TAG"))


class _Tools(NamedTuple):
    """The tools and settings for one environment."""

    sandboxes: InstallSandboxes
    program: str  # uv or npm, as configured
    interpreter: str
    version: str
    environ: Mapping[str, str]
    indexes: IndexConfig
    hosts: tuple[str, ...]
    builds: SourceBuilds
    seconds: float
    most: int  # bytes
    say: Progress
    faults: list[str]  # of the index, collected
    kept: KeptPages  # between resolving and installing


class EnvironmentPlan(NamedTuple):
    """The resolved packages, and the path of their environment."""

    needs: Needs
    lock: Lock
    path: str
    record: str
    tools: _Tools

    @property
    def hash(self) -> str:
        """The hash over the needs and the resolved packages."""
        return os.path.basename(self.path)

    @property
    def builds(self) -> SourceBuilds:
        """The packages that are built from source."""
        return self.tools.builds


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
) -> EnvironmentPlan:
    """Resolve the needs: as for an existing environment, else as the index says now.

    `sandboxes` opens the sandboxes of installers. `python` is the interpreter, by default one that
    runs can use. `hosts` are further hosts that the index serves files from. With `allow_builds`,
    packages without a wheel, or those that it names, are built, in the sandbox. `locked` is what
    another machine resolved. Raises RunRefused, which says what is missing or not accepted.
    """
    given = uv_path if needs.kind == "python" else npm_path
    interpreter, version = _interpreter(needs, python or _python(needs, sandboxes), environ)
    indexes = _configured(needs, given, environ)
    builds = _builds(allow_builds)
    key = _key(needs, interpreter, version, builds, indexes)
    tools = _Tools(
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
        kept=KeptPages(),
    )
    record = os.path.join(cache_dir, _RESOLVED, f"{key}.json")
    lock = locked or _read_lock(record, needs)
    if lock is not None:
        path = _path(cache_dir, key, lock)
        if locked or _read_environment(path):
            return EnvironmentPlan(needs=needs, lock=lock, path=path, record=record, tools=tools)
    if offline:
        raise RunRefused(
            f"offline, and not installed on this machine yet: {describe(needs)}; "
            "to provide it, go online once and run the same"
        )
    lock = _resolve(needs, tools)
    return EnvironmentPlan(
        needs=needs, lock=lock, path=_path(cache_dir, key, lock), record=record, tools=tools
    )


def key_of(
    needs: Needs, *, sandboxes: InstallSandboxes, environ: Mapping[str, str], builds: bool = False
) -> str:
    """Return the hash of what is asked for on this machine, from which index; raises RunRefused."""
    interpreter, version = _interpreter(needs, _python(needs, sandboxes), environ)
    return _key(needs, interpreter, version, _builds(builds), _configured(needs, "", environ))


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
            os.chmod(path, 0o755)  # runs may have another user; do not depend on the umask
    lock = os.path.join(folder, f".{planned.hash}{LOCK}")
    seconds = planned.tools.seconds
    late = f"another process has been installing the same for {seconds:g} s: {lock}"
    with held(lock, seconds, RunRefused(late)):
        return _read_environment(planned.path) or _build(planned)


def provision(needs: Needs, cache_dir: str, **options: object) -> Environment:
    """Return the environment for these needs, by `plan` and `provide`, without asking the user."""
    return provide(plan(needs, cache_dir, **options))  # type: ignore[arg-type]


def install_node(
    lock: Lock,
    target: str,
    *,
    sandboxes: InstallSandboxes,
    environ: Mapping[str, str],
    hosts: Iterable[str] = (),
    timeout_seconds: float = INSTALL_TIMEOUT_SECONDS,
    max_bytes: int = _LIMITS.max_packages_bytes,
) -> None:
    """Install the packages of our own lock into a folder; raises InstallerFailed.

    The lock may lack packages for other platforms.
    """
    npm = find_npm("", environ)
    node = which("node", environ)
    tools = _Tools(
        sandboxes=sandboxes,
        program=npm,
        interpreter=node,
        version="",
        environ=environ,
        indexes=node_indexes(environ, npm),
        hosts=tuple(hosts),
        builds=SourceBuilds(),
        seconds=timeout_seconds,
        most=max_bytes,
        say=_silent,
        faults=[],
        kept=KeptPages(),
    )
    installer = _npm(tools)
    with sandboxes.open(max_bytes) as sandbox:
        index = NodeIndex(*_index_for(tools, installer, sandbox), only=lock)
        installer.install(sandbox, lock, index, lenient=True)
        sandbox.copy("node_modules", target)


def remove(path: str) -> None:
    """Remove an environment that is not in use; the clean-up removes what stays."""
    folders = [] if os.path.islink(path) else [path]
    with suppress(OSError):
        for folder in folders:
            os.chmod(folder, 0o700)
            with os.scandir(folder) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        os.unlink(entry.path)
        for folder in reversed(folders):
            os.rmdir(folder)


def _silent(_: str) -> None:
    pass


# Tools


def _python(needs: Needs, sandboxes: InstallSandboxes) -> str:
    return sandboxes.python if needs.kind == "python" else ""


def _configured(needs: Needs, given: str, environ: Mapping[str, str]) -> IndexConfig:
    if needs.kind == "python":
        return python_indexes(environ)
    return node_indexes(environ, given or which("npm", environ))


def _interpreter(needs: Needs, python: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the interpreter of the scripts and its version; raises RunRefused."""
    if needs.kind == "node":
        node = which("node", environ)
        if not node:
            raise RunRefused("node is not installed, and the script needs it: install Node.js")
        return node, _output(_changed(node), node, "--version")
    code = (  # as `platform` says it, which takes longer to import than Python to start
        "import sys; name = sys.implementation.name; "
        "print({'cpython': 'CPython', 'pypy': 'PyPy'}.get(name, name), sys.version.split()[0])"
    )
    version = _own_version(python) or _output(_changed(python), python, "-I", "-S", "-c", code)
    wanted = needs.requires_python
    if not fits(version.rpartition(" ")[2], wanted):
        raise RunRefused(
            f"{one_line(needs.source_path)}: needs Python {wanted}, and {python} is {version}"
        )
    return python, version


def _own_version(python: str) -> str:
    """Return the version if that is the program of this process itself; else nothing."""
    try:
        own = os.path.samestat(os.stat("/proc/self/exe"), os.stat(python))
    except OSError:
        return ""
    if not own or sys.implementation.name != "cpython":
        return ""
    return f"CPython {sys.version.split()[0]}"


def _changed(program: str) -> int:
    try:
        return os.stat(program).st_mtime_ns
    except OSError as error:
        raise RunRefused(f"{program} cannot be run: {error.strerror}") from error


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


def fits(version: str, wanted: str) -> bool:
    """Whether a version of Python, like `3.11.7`, is in a range like `>=3.10,<4`."""
    return all(_meets(_numbers(version), one.strip()) for one in wanted.split(",") if one.strip())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


def _meets(have: tuple[int, ...], condition: str) -> bool:
    sign = re.match(r"[<>=!~]+", condition)
    operator = sign[0] if sign else "=="
    bound = _numbers(condition)
    if condition.endswith("*") or operator == "~=":
        head = bound if condition.endswith("*") else bound[:-1]
        same = have[: len(head)] == head
        return not same if operator == "!=" else same and have >= bound
    width = max(len(have), len(bound))
    left, right = (one + (0,) * (width - len(one)) for one in (have, bound))
    return {
        "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right,
        "!=": left != right,
    }.get(operator, left == right)  # fmt: skip


def _builds(allowed: bool | SourceBuilds) -> SourceBuilds:
    return allowed if isinstance(allowed, SourceBuilds) else SourceBuilds(every=allowed)


def _key(
    needs: Needs, interpreter: str, version: str, builds: SourceBuilds, indexes: IndexConfig
) -> str:
    return _hash(
        _FORMAT, needs.kind, sorted(needs.requirements), version, os.path.realpath(interpreter),
        sorted(builds.names) or builds.every, sys.platform, os.uname().machine, _libc(),
        indexes.address,
    )  # fmt: skip


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _path(cache_dir: str, key: str, lock: Lock) -> str:
    return os.path.join(cache_dir, FOLDER, _hash(key, lock))


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def can_be_written(folder: str) -> bool:
    """Whether files can be created in a folder, which may not exist yet."""
    while not os.path.lexists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


# Resolving


def _resolve(needs: Needs, tools: _Tools) -> Lock:
    """Resolve with the index; raises RunRefused for packages from other places."""
    if not needs.requirements:
        return Lock(needs.kind, (), "")
    tools.say(f"resolving {describe(needs)}")
    with tools.sandboxes.open(tools.most) as sandbox, _installer_errors(needs, tools):
        find = _python_lock if needs.kind == "python" else _node_lock
        return find(needs, tools, sandbox)


def _python_lock(needs: Needs, tools: _Tools, sandbox: InstallSandbox) -> Lock:
    uv = _uv(tools)
    index = PythonIndex(*_index_for(tools, uv, sandbox))
    if not tools.indexes.links:  # of folders nothing can be fetched ahead
        for one in needs.requirements[:_EXPECTED]:
            index.expect(name_of(one), partial(_likely, tools, one))
    data = uv.resolve(sandbox, needs, index)
    builds = tools.builds
    return read_python(
        data,
        needs.requirements,
        _platform(tools),
        builds=builds.every,
        built=frozenset(builds.names),
    )


def _likely(tools: _Tools, wanted: str, files: Iterable[IndexFile]) -> IndexFile | None:
    """Return the wheel that uv will likely choose: the newest that fits. A wrong guess is harmless.

    None for a requirement that only uv understands.
    """
    here, python = _platform(tools), tools.version.rpartition(" ")[2]
    found = re.fullmatch(r"[\w.-]+\s*([<>=!~,.\d\s*]*)", wanted)
    if not found or tools.indexes.before:
        return None
    best: tuple[tuple[int, ...], IndexFile] | None = None
    for one in files:
        version = "".join(one.name.split("-")[1:2])
        if (
            re.fullmatch(r"\d+(?:\.\d+)*", version)
            and not one.yanked
            and is_sure(one.name, here)
            and fits(version, found[1])
            and fits(python, one.pythons)
            and (best is None or best[0] <= _numbers(version))
        ):
            best = (_numbers(version), one)
    return best and best[1]


def _platform(tools: _Tools) -> Platform:
    """Return the platform of the wheels that come."""
    name, _, version = _libc().partition(" ")
    libc = "glibc" if name == "glibc" else "musl" if sys.platform == "linux" else ""
    return Platform(
        minor=_numbers(tools.version)[1],
        machine=os.uname().machine,
        libc=libc,
        system=sys.platform,
        libc_version=_numbers(version)[:2],
    )


def _node_lock(needs: Needs, tools: _Tools, sandbox: InstallSandbox) -> Lock:
    npm = _npm(tools)
    index = NodeIndex(*_index_for(tools, npm, sandbox))
    try:
        lock = read_node(npm.resolve(sandbox, needs, index))
    except InstallerFailed as failed:
        for name in re.findall(rf"(\S+)@{re.escape(NOWHERE)}", str(failed)):
            for (by, version), why in index.foreign.items():
                if f" {name.strip(chr(39))} " in why:
                    raise refuse(f"{by}@{version}", why) from failed
        raise
    for one in lock.packages:
        why = index.foreign.get((one.name, one.version), "")
        if why:
            raise refuse(f"{one.name}@{one.version}", why)
    return lock


def _uv(tools: _Tools) -> Uv:
    program = find_uv(tools.program, tools.environ)
    folders = tools.sandboxes.folders_of(tools.interpreter)
    before = tools.indexes.before
    return Uv(
        program=program,
        python=tools.interpreter,
        folders=folders,
        seconds=tools.seconds,
        builds=tools.builds,
        before=before,
    )


def _npm(tools: _Tools) -> Npm:
    return Npm(find_npm(tools.program, tools.environ), tools.interpreter, tools.seconds)


def _index_for(
    tools: _Tools, installer: Uv | Npm, sandbox: InstallSandbox
) -> tuple[IndexConfig, IndexFetcher]:
    """Return the index for the installer: the user's, else the installer's default."""
    indexes = tools.indexes
    own = indexes.main is None and not indexes.closed
    if own:
        indexes = indexes.with_default(_default_index(installer, sandbox))
    fetcher = IndexFetcher(
        indexes, hosts=tools.hosts, environ=tools.environ, open_default=own, kept=tools.kept
    )
    fetcher.faults = tools.faults
    return indexes, fetcher


# By the installer: its path, and when it changed.
_DEFAULTS: dict[tuple[str, int], str] = {}


def _default_index(installer: Uv | Npm, sandbox: InstallSandbox) -> str:
    """Return the installer's own default, asked for once."""
    key = (installer.program, _changed(installer.program))
    if key not in _DEFAULTS:
        _DEFAULTS[key] = installer.default_index(sandbox)
    return _DEFAULTS[key]


@contextmanager
def _installer_errors(needs: Needs, tools: _Tools) -> Iterator[None]:
    """Turn an installer's failure into a refusal that names the packages."""
    try:
        yield
    except InstallerFailed as failed:
        said = "; ".join((*dict.fromkeys(tools.faults), str(failed)))
        reason = shorten(one_line(said), _OUTPUT_CHARS)
        remedy = "correct what is declared, or run without packages (--no-install)"
        raise RunRefused(f"installing {describe(needs)} failed: {reason}; {remedy}") from failed
    except TimeoutError as error:
        reason = f"not done after {tools.seconds:g} s"
        raise RunRefused(f"installing {describe(needs)}: {reason}") from error


# Building


def _build(planned: EnvironmentPlan) -> Environment:
    """Build in a temporary folder and rename it into place (locked)."""
    path, key, tools = planned.path, planned.hash, planned.tools
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        if name.startswith(f".{key}{HALF_MADE}"):  # left by a killed process
            remove(os.path.join(folder, name))
    stage = tempfile.mkdtemp(prefix=f".{key}{HALF_MADE}", dir=folder)
    try:
        tools.say(f"installing {describe(planned.needs)}")
        with _installer_errors(planned.needs, tools):
            _make(planned, stage)
        installed = tuple(sorted((one.name, one.version) for one in planned.lock.packages))
        environment = Environment(path, key, installed)
        write_json(os.path.join(stage, _RECORD), {"hash": key, "installed": installed})
        _check_size(_make_read_only(stage), planned)
        if os.path.lexists(path):  # left of one that was being removed
            remove(path)
        os.rename(stage, path)
    except BaseException:
        remove(stage)
        raise
    write_json(planned.record, planned.lock._asdict())
    return environment


def _check_size(size: int, planned: EnvironmentPlan) -> None:
    if size > planned.tools.most:
        raise RunRefused(
            f"{describe(planned.needs)}: {size} bytes once installed, more than "
            f"{planned.tools.most} (max_packages_bytes)"
        )


def _make(planned: EnvironmentPlan, stage: str) -> None:
    """Install in a sandbox and copy the result; what one way cannot do, the next does anew."""
    sandboxes, most = planned.tools.sandboxes, planned.tools.most
    ways = (_unpack, _install) if planned.needs.kind == "python" else (_install_modules,)
    for way in ways:
        with sandboxes.open(most) as sandbox:
            if way(planned, sandbox):
                copy = _copy_python if planned.needs.kind == "python" else _copy_modules
                copy(planned, sandbox, stage)
                return


def _unpack(planned: EnvironmentPlan, sandbox: InstallSandbox) -> bool:
    """Unpack the wheels that the lock leaves no choice of; False if it does."""
    tools = planned.tools
    if tools.builds.any or not tools.version.startswith("CPython "):
        return False
    index = PythonIndex(*_index_for(tools, _uv(tools), sandbox), only=planned.lock)
    wheels = WheelInstaller(index, _platform(tools), most=tools.most, seconds=tools.seconds)
    return wheels.install(
        sandbox,
        planned.lock,
        planned.path,
        python=tools.interpreter,
        folders=tools.sandboxes.folders_of(tools.interpreter),
    )


def _install(planned: EnvironmentPlan, sandbox: InstallSandbox) -> bool:
    tools, uv = planned.tools, _uv(planned.tools)
    index: PackageIndex | None = None
    if planned.lock.packages:
        # A build needs more packages than it installs.
        only = None if tools.builds.any else planned.lock
        index = PythonIndex(*_index_for(tools, uv, sandbox), only=only)
    uv.install(sandbox, planned.lock, index, planned.path)
    return True


def _copy_python(planned: EnvironmentPlan, sandbox: InstallSandbox, stage: str) -> None:
    """Copy the environment, with our own links to the interpreter."""
    tools = planned.tools
    programs = os.path.join(stage, "bin")
    sandbox.copy("venv", stage, omitted=_NOT_COPIED)
    os.mkdir(programs)
    own = frozenset(name for name in sandbox.names("venv/bin") if is_own_program(name))
    sandbox.copy("venv/bin", programs, omitted=own)
    python = os.path.realpath(tools.interpreter)
    version = tools.version.rpartition(" ")[2]
    os.mkdir(os.path.join(stage, INTERPRETER))
    for name in ("python", "python3", "python" + ".".join(version.split(".")[:2])):
        for folder in (programs, os.path.join(stage, INTERPRETER)):
            os.symlink(python, os.path.join(folder, name))
    with open(os.path.join(stage, "pyvenv.cfg"), "w", encoding="utf-8") as file:
        file.write(f"home = {os.path.dirname(python)}\nversion = {version}\n")
        file.write("include-system-site-packages = false\n")


def _install_modules(planned: EnvironmentPlan, sandbox: InstallSandbox) -> bool:
    npm = _npm(planned.tools)
    index = _index_for(planned.tools, npm, sandbox)
    npm.install(sandbox, planned.lock, NodeIndex(*index, only=planned.lock))
    return True


def _copy_modules(planned: EnvironmentPlan, sandbox: InstallSandbox, stage: str) -> None:
    modules = os.path.join(stage, "node_modules")
    os.mkdir(modules)
    sandbox.copy("node_modules", modules)


# Records


def write_json(path: str, value: object) -> None:
    """Write a JSON file atomically."""
    handle, aside = tempfile.mkstemp(dir=os.path.dirname(path))
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(aside, path)


def _read_environment(path: str) -> Environment | None:
    try:
        with open(os.path.join(path, _RECORD), encoding="utf-8") as file:
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


def _make_read_only(stage: str) -> int:
    """Make all files read-only for all users; return their total size.

    Links are left alone. Raises RunRefused for folders that are nested too deep.
    """
    total, folders = 0, [(stage, 0)]
    for folder, depth in folders:
        if depth > _MAX_DEPTH:
            raise RunRefused(f"the packages have folders nested {depth} deep")
        with os.scandir(folder) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth + 1))
                elif not entry.is_symlink():
                    found = entry.stat()
                    total += found.st_size
                    os.chmod(entry.path, 0o555 if found.st_mode & 0o100 else 0o444)
    for folder, _ in reversed(folders):
        os.chmod(folder, 0o555)
    return total
