"""Host components: an interpreter as a WASM component, which runs a skill's script as data.

The one for JavaScript is part of the package. The one for Python is too large for that: it is built
on first use from this package's own sources, by componentize-py from the package registry. Its
inputs are pinned by hash; the result is cached with its own hash, in a folder that no other user
can write to.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.files.contain import READ_FILE
from skillbelt.files.locks import held
from skillbelt.files.private import make_folder
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten

# Building an interpreter from packages, on a slow machine with a slow network.
BUILD_TIMEOUT_SECONDS = 600.0

Kind = Literal["python", "javascript"]
Progress = Callable[[str], None]
# Installs the build tool and returns the folder of its programs; raises RunRefused. Installing is
# the work of a later room, which passes this to the sandbox.
InstallTools = Callable[[Settings, Progress], str]
GUESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guests")
PYTHON_SOURCES = ("python_host", "python_library", "python_loop", "python_network")
JAVASCRIPT_HOST = os.path.join(GUESTS, "js_host.wasm")
_FORMAT = "1"  # part of every key: increase it when components are built differently
_OUTPUT_CHARS = 600
# Files whose hash was checked, with the stat fields they had then.
_checked: dict[str, tuple[int, ...]] = {}


class _Unusable(Exception):
    """A cached component cannot be used; the text says why."""


class _CachedComponent(NamedTuple):
    """The file of a component, with its hash in a file beside it."""

    path: str

    @property
    def record(self) -> str:
        return f"{self.path}.sha256"


def host_component(
    kind: Kind,
    settings: Settings,
    *,
    install: InstallTools | None = None,
    progress: Progress | None = None,
) -> str:
    """Return the path of the component that runs scripts of this kind; build it if necessary.

    `install` installs the build tools; without it nothing is built. Raises SandboxUnavailable,
    which says what is missing and how to provide it.
    """
    if kind == "javascript":
        return _check_shipped(JAVASCRIPT_HOST)
    place = _CachedComponent(os.path.join(_folder(settings), f"python-{_key()}.wasm"))
    if _is_usable(place):
        return place.path
    say = progress or _silent
    lock = os.path.join(os.path.dirname(place.path), ".lock")
    seconds = BUILD_TIMEOUT_SECONDS
    late = f"another process has been building a host component for {seconds:g} s: {lock}"
    with held(lock, seconds, SandboxUnavailable(late)):
        if not _is_usable(place, say):
            _build_python(place, settings, install, say)
    return place.path


def is_python_built(settings: Settings) -> bool:
    """Whether scripts of Python can run without building anything first."""
    try:
        return _is_usable(
            _CachedComponent(os.path.join(_folder(settings), f"python-{_key()}.wasm"))
        )
    except SandboxUnavailable:
        return False


def _silent(_: str) -> None:
    pass


def _check_shipped(path: str) -> str:
    """Return a component of the package after checking its hash."""
    try:
        _check(_CachedComponent(path), whole=True)
    except (_Unusable, OSError) as error:
        raise SandboxUnavailable(f"{path}: {_describe(error)}; install skillbelt again") from error
    return path


# The cache


def _folder(settings: Settings) -> str:
    """Return the cache folder, which no other user can read or write."""
    folder = os.path.join(settings.cache_dir, "wasm-hosts")
    try:
        make_folder(settings.cache_dir)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
    except OSError as error:
        raise SandboxUnavailable(f"{folder}: {error.strerror}; set cache_dir") from error
    fault = _folder_fault(found)
    if fault:
        raise SandboxUnavailable(f"{folder} is refused: {fault}; remove it, and it is rebuilt")
    return folder


def _folder_fault(found: os.stat_result) -> str:
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others can write to it" if found.st_mode & 0o022 else ""


def _key() -> str:
    """Return one hash over all inputs of the component."""
    digest = hashlib.sha256(_FORMAT.encode())
    for path in _inputs():
        with open(path, "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:32]


def _inputs() -> list[str]:
    wit = os.path.join(GUESTS, "wit")
    deps = os.path.join(wit, "deps")
    listed = [os.path.join(GUESTS, f"{name}.py") for name in PYTHON_SOURCES]
    listed += [os.path.join(GUESTS, "requirements.txt"), os.path.join(wit, "world.wit")]
    return listed + [os.path.join(deps, name) for name in sorted(os.listdir(deps))]


def _is_usable(place: _CachedComponent, say: Progress = _silent) -> bool:
    try:
        _check(place)
    except FileNotFoundError:
        return False
    except (_Unusable, OSError) as error:
        say(f"rebuilding the component {place.path}: {_describe(error)}")
        return False
    return True


def _describe(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _check(place: _CachedComponent, whole: bool = False) -> None:
    """Check the owner, mode and hash of the file; with `whole` only the hash."""
    handle = os.open(place.path, READ_FILE)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        fault = "" if whole else _file_fault(found)
        if fault:
            raise _Unusable(fault)
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if _checked.get(place.path) == state:
            return
        with open(place.record, encoding="ascii", errors="replace") as record:
            wanted = record.read(100).strip()
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
            raise _Unusable("its contents do not match its hash")
        _checked[place.path] = state


def _file_fault(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        return "it is not a regular file with one link"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others can write to it" if found.st_mode & 0o022 else ""


# Building


def _build_python(
    place: _CachedComponent, settings: Settings, install: InstallTools | None, say: Progress
) -> None:
    """Build in a temporary folder, then move into place: first the hash, then the component."""
    end = time.monotonic() + BUILD_TIMEOUT_SECONDS
    program = _componentize_py(settings, install, say)
    folder = os.path.dirname(place.path)
    _remove_old(folder)
    say("building the Python host component; this is done once and takes about 20 seconds")
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as stage:
        made = os.path.join(stage, "host.wasm")
        command = [*program, "-q", "-d", os.path.join(stage, "wit"), "-w", "program",
                   "componentize", "python_host", "-p", os.path.join(stage, "app"),
                   "-o", made]  # fmt: skip
        _stage_sources(stage)
        _run(command, stage, end - time.monotonic())
        _install(made, place)


def _componentize_py(settings: Settings, install: InstallTools | None, say: Progress) -> list[str]:
    """Install the build tool from the lock file and return its command."""
    failed = "the Python host component is not built yet, and"
    if install is None:
        raise SandboxUnavailable(
            f"{failed} this sandbox was opened without a way to install packages; run a Python "
            "script in the sandbox 'wasm' with skillbelt once"
        )
    try:
        programs = install(settings, say)
    except RunRefused as error:
        raise SandboxUnavailable(f"{failed} building it failed: {error}") from error
    code = "from componentize_py import script; script()"
    return [os.path.join(programs, "python"), "-I", "-c", code]


def _stage_sources(stage: str) -> None:
    shutil.copytree(os.path.join(GUESTS, "wit"), os.path.join(stage, "wit"))
    os.mkdir(os.path.join(stage, "app"))
    os.mkdir(os.path.join(stage, "empty"))
    for name in PYTHON_SOURCES:
        shutil.copyfile(
            os.path.join(GUESTS, f"{name}.py"), os.path.join(stage, "app", f"{name}.py")
        )


def _run(command: list[str], stage: str, seconds: float) -> None:
    # An empty PATH and virtual environment keep packages of the user out.
    empty = os.path.join(stage, "empty")
    environ = {"PATH": empty, "VIRTUAL_ENV": empty, "HOME": empty, "TMPDIR": stage}
    try:
        done = subprocess.run(
            command, env=environ, cwd=stage, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(seconds, 1), check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(f"the Python host component was not built: {error}") from error
    if done.returncode:
        said = shorten(one_line(done.stdout.decode("utf-8", "replace")), _OUTPUT_CHARS)
        raise SandboxUnavailable(f"the Python host component was not built: {said}")


def _install(made: str, place: _CachedComponent) -> None:
    with open(made, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    record = f"{made}.sha256"
    with open(record, "w", encoding="ascii") as file_:
        file_.write(f"{digest}\n")
    for path in (made, record):
        os.chmod(path, 0o600)
    os.replace(record, place.record)
    os.replace(made, place.path)


def _remove_old(folder: str) -> None:
    """Remove old versions and what a killed build left (locked)."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith(".part-"):
            shutil.rmtree(path, ignore_errors=True)
        elif name.startswith("python-") and time.time() - os.lstat(path).st_mtime > 30 * 86_400:
            with suppress(OSError):
                os.unlink(path)
