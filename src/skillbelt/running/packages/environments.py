"""Environments for scripts: made once for what they need, kept by content, read-only afterwards.

What is needed is resolved and installed by uv or npm in a sandbox, which reaches the user's package
index and nothing else; no line of a package runs outside. What it made is copied out as data, built
aside and renamed into place, so that an environment which is there is whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.files.contain import LOCK_FILE
from skillbelt.permission.packages import (
    FOLDER,
    HALF_MADE,
    INTERPRETER,
    LOCK,
    Environment,
    Lock,
    Package,
)
from skillbelt.running.packages.declared import Needs, describe
from skillbelt.running.packages.fetching import Fetcher
from skillbelt.running.packages.indexes import Indexes, node_indexes, python_indexes
from skillbelt.running.packages.installers import (
    Failed,
    Npm,
    Room,
    Rooms,
    Uv,
    find_npm,
    find_uv,
    is_own_program,
    which,
)
from skillbelt.running.packages.lockfiles import NOWHERE, Platform, read_node, read_python, refuse
from skillbelt.running.packages.shelves import NodeShelf, PythonShelf, Shelf
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

# One step of an installation, or waiting for another process that installs the same.
INSTALL_TIMEOUT_SECONDS = 600.0

Progress = Callable[[str], None]
_FORMAT = 2  # part of every hash: raised when environments are made in another way
_RECORD = "environment.json"
_RESOLVED = "resolved"
_OUTPUT_CHARS = 600
_MOST_NESTED = 64  # folders in folders; whoever nests deeper hides something
_LIMITS = Limits()
# Of an environment that uv makes: what is ours to make, or nobody's.
_NOT_COPIED = frozenset(("bin", "lib64", "pyvenv.cfg", ".gitignore", ".lock", "CACHEDIR.TAG"))


class _Tools(NamedTuple):
    """What an environment is made with."""

    rooms: Rooms
    program: str  # uv or npm, as it was given
    interpreter: str
    version: str
    environ: Mapping[str, str]
    indexes: Indexes
    hosts: tuple[str, ...]
    builds: bool
    seconds: float
    most: int  # bytes
    say: Progress
    faults: list[str]  # of the index, as they come


class Plan(NamedTuple):
    """Everything that will come for what is needed, and where it will lie."""

    needs: Needs
    lock: Lock
    path: str
    record: str
    tools: _Tools

    @property
    def hash(self) -> str:
        """The hash over what is needed and what will come."""
        return os.path.basename(self.path)


def plan(
    needs: Needs,
    cache_dir: str,
    *,
    rooms: Rooms,
    environ: Mapping[str, str],
    offline: bool = False,
    python: str = "",
    uv_path: str = "",
    npm_path: str = "",
    allow_builds: bool = False,
    hosts: Iterable[str] = (),
    timeout_seconds: float = INSTALL_TIMEOUT_SECONDS,
    max_bytes: int = _LIMITS.max_packages_bytes,
    progress: Progress | None = None,
) -> Plan:
    """What will come for these needs: what was made for them before, else what the index says now.

    `rooms` is where the installers run. `python` is the interpreter it is for, by default one that
    runs can use. `hosts` are further ones that the index hands out files from. With `allow_builds`
    packages without a wheel are built, in the sandbox. RunRefused says what is missing, or which
    package can not be accepted.
    """
    given = uv_path if needs.kind == "python" else npm_path
    interpreter, version = _interpreter(needs, python or _python(needs, rooms), environ)
    indexes = _configured(needs, given, environ)
    key = _key(needs, interpreter, version, allow_builds, indexes)
    tools = _Tools(
        rooms=rooms,
        program=given,
        interpreter=interpreter,
        version=version,
        environ=environ,
        indexes=indexes,
        hosts=tuple(hosts),
        builds=allow_builds,
        seconds=timeout_seconds,
        most=max_bytes,
        say=progress or _silent,
        faults=[],
    )
    record = os.path.join(cache_dir, _RESOLVED, f"{key}.json")
    lock = _known_lock(record, needs)
    if lock is not None:
        path = _path(cache_dir, key, lock)
        if _recorded(path):
            return Plan(needs=needs, lock=lock, path=path, record=record, tools=tools)
    if offline:
        raise RunRefused(
            f"offline, and not installed on this machine yet: {describe(needs)}; "
            "to provide it, go online once and run the same"
        )
    lock = _resolved(needs, tools)
    return Plan(
        needs=needs, lock=lock, path=_path(cache_dir, key, lock), record=record, tools=tools
    )


def provide(planned: Plan) -> Environment:
    """The environment, made now when it is not there yet.

    It may be cleared away at any time: whoever uses it holds it, by
    `skillbelt.running.cleanup.held_environment`.
    """
    found = _recorded(planned.path)
    if found:
        return found
    folder = os.path.dirname(planned.path)
    for path in (folder, os.path.dirname(planned.record)):
        if not os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o755)  # runs may have another user, whatever the umask says
    lock = os.path.join(folder, f".{planned.hash}{LOCK}")
    with _locked(lock, planned.tools.seconds):
        return _recorded(planned.path) or _built(planned)


def provision(needs: Needs, cache_dir: str, **options: object) -> Environment:
    """The environment for these needs, as `plan` and `provide` make it, without asking anybody."""
    return provide(plan(needs, cache_dir, **options))  # type: ignore[arg-type]


def install_node(
    lock: Lock,
    target: str,
    *,
    rooms: Rooms,
    environ: Mapping[str, str],
    hosts: Iterable[str] = (),
    timeout_seconds: float = INSTALL_TIMEOUT_SECONDS,
    max_bytes: int = _LIMITS.max_packages_bytes,
) -> None:
    """Install what a lock of ours lists into a folder. Failed says what npm did.

    The lock may lack packages for other machines.
    """
    npm = find_npm("", environ)
    node = which("node", environ)
    tools = _Tools(
        rooms=rooms,
        program=npm,
        interpreter=node,
        version="",
        environ=environ,
        indexes=node_indexes(environ, npm),
        hosts=tuple(hosts),
        builds=False,
        seconds=timeout_seconds,
        most=max_bytes,
        say=_silent,
        faults=[],
    )
    installer = _npm(tools)
    with rooms.open(max_bytes) as room:
        shelf = NodeShelf(*_index(tools, installer, room), only=lock)
        installer.install(room, lock, shelf, lenient=True)
        room.copy("node_modules", target)


def remove(path: str) -> None:
    """Take an environment away; nobody may be using it. What stays is left to clean-up."""
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


# --- what it is made with ------------------------------------------------------------------------


def _python(needs: Needs, rooms: Rooms) -> str:
    return rooms.python if needs.kind == "python" else ""


def _configured(needs: Needs, given: str, environ: Mapping[str, str]) -> Indexes:
    if needs.kind == "python":
        return python_indexes(environ)
    return node_indexes(environ, given or which("npm", environ))


def _interpreter(needs: Needs, python: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The program that will run the scripts, and its version; RunRefused when it does not fit."""
    if needs.kind == "node":
        node = which("node", environ)
        if not node:
            raise RunRefused("node is not installed, and the script needs it: install Node.js")
        return node, _output(_changed(node), node, "--version")
    code = "import platform; print(platform.python_implementation(), platform.python_version())"
    version = _output(_changed(python), python, "-I", "-S", "-c", code)
    wanted = needs.requires_python
    if not fits(version.rpartition(" ")[2], wanted):
        raise RunRefused(
            f"{one_line(needs.source_path)}: needs Python {wanted}, and {python} is {version}"
        )
    return python, version


def _changed(program: str) -> int:
    try:
        return os.stat(program).st_mtime_ns
    except OSError as error:
        raise RunRefused(f"{program} can not be run: {error.strerror}") from error


@lru_cache(maxsize=32)
def _output(changed: int, *command: str) -> str:
    """What a program says; asked once, until it is another program."""
    try:
        done = subprocess.run(
            command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RunRefused(f"{command[0]} can not be run: {error}") from error
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


def _key(needs: Needs, interpreter: str, version: str, builds: bool, indexes: Indexes) -> str:
    import platform

    return _hash(
        _FORMAT, needs.kind, sorted(needs.requirements), version, os.path.realpath(interpreter),
        builds, sys.platform, platform.machine(), _libc(), indexes.address,
    )  # fmt: skip


def _hash(*parts: object) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _path(cache_dir: str, key: str, lock: Lock) -> str:
    return os.path.join(cache_dir, FOLDER, _hash(key, lock))


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def can_be_written(folder: str) -> bool:
    """Whether files can be put into a folder, which may have to be made first."""
    while not os.path.lexists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


# --- what will come ------------------------------------------------------------------------------


def _resolved(needs: Needs, tools: _Tools) -> Lock:
    """What the index says now. RunRefused names what is not of the index."""
    if not needs.requirements:
        return Lock(needs.kind, (), "")
    tools.say(f"resolving {describe(needs)}")
    with tools.rooms.open(tools.most) as room, _told(needs, tools):
        find = _python_lock if needs.kind == "python" else _node_lock
        return find(needs, tools, room)


def _python_lock(needs: Needs, tools: _Tools, room: Room) -> Lock:
    uv = _uv(tools)
    data = uv.resolve(room, needs, PythonShelf(*_index(tools, uv, room)))
    minor = re.findall(r"\d+", tools.version)[1]
    libc = "glibc" if _libc().startswith("glibc") else "musl" if sys.platform == "linux" else ""
    here = Platform(int(minor), os.uname().machine, libc, sys.platform)
    return read_python(data, needs.requirements, here, builds=tools.builds)


def _node_lock(needs: Needs, tools: _Tools, room: Room) -> Lock:
    npm = _npm(tools)
    shelf = NodeShelf(*_index(tools, npm, room))
    try:
        lock = read_node(npm.resolve(room, needs, shelf))
    except Failed as failed:
        for name in re.findall(rf"(\S+)@{re.escape(NOWHERE)}", str(failed)):
            for (by, version), why in shelf.foreign.items():
                if f" {name.strip(chr(39))} " in why:
                    raise refuse(f"{by}@{version}", why) from failed
        raise
    for one in lock.packages:
        why = shelf.foreign.get((one.name, one.version), "")
        if why:
            raise refuse(f"{one.name}@{one.version}", why)
    return lock


def _uv(tools: _Tools) -> Uv:
    program = find_uv(tools.program, tools.environ)
    folders = tools.rooms.folders_of(tools.interpreter)
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


def _index(tools: _Tools, installer: Uv | Npm, room: Room) -> tuple[Indexes, Fetcher]:
    """What the installer gets to see: the user's index, else its own default."""
    indexes = tools.indexes
    own = indexes.main is None and not indexes.closed
    if own:
        indexes = indexes.with_default(installer.default_index(room))
    fetcher = Fetcher(indexes, hosts=tools.hosts, environ=tools.environ, open_default=own)
    fetcher.faults = tools.faults
    return indexes, fetcher


@contextmanager
def _told(needs: Needs, tools: _Tools) -> Iterator[None]:
    """Turns what an installer says into a refusal that names what was needed."""
    try:
        yield
    except Failed as failed:
        said = "; ".join((*dict.fromkeys(tools.faults), str(failed)))
        reason = shorten(one_line(said), _OUTPUT_CHARS)
        raise RunRefused(f"installing {describe(needs)} failed: {reason}") from failed
    except TimeoutError as error:
        reason = f"not done after {tools.seconds:g} s"
        raise RunRefused(f"installing {describe(needs)}: {reason}") from error


# --- making one ----------------------------------------------------------------------------------


def _built(planned: Plan) -> Environment:
    """Built aside, and then in place at once. Whoever calls holds the lock for this path."""
    import tempfile

    path, key, tools = planned.path, planned.hash, planned.tools
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        if name.startswith(f".{key}{HALF_MADE}"):  # left by somebody who was killed
            remove(os.path.join(folder, name))
    stage = tempfile.mkdtemp(prefix=f".{key}{HALF_MADE}", dir=folder)
    try:
        tools.say(f"installing {describe(planned.needs)}")
        make = _make_python if planned.needs.kind == "python" else _make_node
        with tools.rooms.open(tools.most) as room, _told(planned.needs, tools):
            make(planned, room, stage)
        installed = tuple(sorted((one.name, one.version) for one in planned.lock.packages))
        environment = Environment(path, key, installed)
        _write(os.path.join(stage, _RECORD), {"hash": key, "installed": installed})
        _check_size(_make_read_only(stage), planned)
        if os.path.lexists(path):  # what is left of one that was being removed
            remove(path)
        os.rename(stage, path)
    except BaseException:
        remove(stage)
        raise
    _write(planned.record, planned.lock._asdict())
    return environment


def _check_size(size: int, planned: Plan) -> None:
    if size > planned.tools.most:
        raise RunRefused(
            f"{describe(planned.needs)}: {size} bytes once installed, more than "
            f"{planned.tools.most} (max_packages_bytes)"
        )


def _make_python(planned: Plan, room: Room, stage: str) -> None:
    """What uv installed, with links to the interpreter that are our own."""
    tools, uv = planned.tools, _uv(planned.tools)
    shelf: Shelf | None = None
    if planned.lock.packages:
        only = None if tools.builds else planned.lock  # a build needs more than it leaves
        shelf = PythonShelf(*_index(tools, uv, room), only=only)
    uv.install(room, planned.lock, shelf)
    uv.compile(room, planned.path)
    programs = os.path.join(stage, "bin")
    room.copy("venv", stage, omitted=_NOT_COPIED)
    os.mkdir(programs)
    own = frozenset(name for name in room.names("venv/bin") if is_own_program(name))
    room.copy("venv/bin", programs, omitted=own)
    python = os.path.realpath(tools.interpreter)
    version = tools.version.rpartition(" ")[2]
    os.mkdir(os.path.join(stage, INTERPRETER))
    for name in ("python", "python3", "python" + ".".join(version.split(".")[:2])):
        for folder in (programs, os.path.join(stage, INTERPRETER)):
            os.symlink(python, os.path.join(folder, name))
    with open(os.path.join(stage, "pyvenv.cfg"), "w", encoding="utf-8") as file:
        file.write(f"home = {os.path.dirname(python)}\nversion = {version}\n")
        file.write("include-system-site-packages = false\n")


def _make_node(planned: Plan, room: Room, stage: str) -> None:
    npm = _npm(planned.tools)
    index = _index(planned.tools, npm, room)
    npm.install(room, planned.lock, NodeShelf(*index, only=planned.lock))
    modules = os.path.join(stage, "node_modules")
    os.mkdir(modules)
    room.copy("node_modules", modules)


# --- keeping one ---------------------------------------------------------------------------------


def _write(path: str, value: object) -> None:
    """Written whole, or not at all."""
    import json
    import tempfile

    handle, aside = tempfile.mkstemp(dir=os.path.dirname(path))
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(aside, path)


def _recorded(path: str) -> Environment | None:

    try:
        with open(os.path.join(path, _RECORD), encoding="utf-8") as file:
            kept = read_json(file.read())
        installed = tuple((name, version) for name, version in kept["installed"])
        return Environment(path, os.path.basename(path), installed)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _known_lock(path: str, needs: Needs) -> Lock | None:
    """What came for the same needs before."""
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
    """For everybody to read and nobody to write; how many bytes there are.

    A link is left to what it points at. RunRefused for folders in folders without end.
    """
    total, folders = 0, [(stage, 0)]
    for folder, depth in folders:
        if depth > _MOST_NESTED:
            raise RunRefused(f"the packages have folders that lie {depth} deep in each other")
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


@contextmanager
def _locked(path: str, seconds: float) -> Iterator[int]:
    """One at a time makes an environment; the others wait for it, and take it then."""
    import fcntl

    end, handle = time.monotonic() + seconds, -1
    try:
        while (handle := _taken(path)) < 0:
            if time.monotonic() > end:
                raise RunRefused(
                    f"somebody else has been installing the same for {seconds:g} s: {path}"
                )
            time.sleep(0.05)
        yield handle
    finally:
        if handle >= 0:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _taken(path: str) -> int:
    """A handle of the locked file; -1 when somebody has it, or has just cleared it away."""
    import fcntl

    handle = os.open(path, LOCK_FILE, 0o600)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.lstat(path)):
            return handle
    os.close(handle)
    return -1
