"""An installation as values: its tools, its plan, the packages to build, and its small files.

It imports little: most runs find their packages installed, and only read a record of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import Lock
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.fetched import KeptPages
from skillbelt.running.packages.index_config import IndexConfig

if TYPE_CHECKING:
    from skillbelt.running.packages.fetched import PackageIndex

Progress = Callable[[str], None]
# The timeout of one step of an installation, and of waiting for another process.
INSTALL_TIMEOUT_SECONDS = 600.0
RECORD = "environment.json"


class InstallStep(NamedTuple):
    """One command inside. `package_index` is the index it may use; None: no network.

    `folders` of this machine are mounted inside, at the same path.
    """

    argv: tuple[str, ...]
    seconds: float
    env: Mapping[str, str]
    package_index: PackageIndex | None = None
    folders: tuple[str, ...] = ()


class InstallSandbox(Protocol):
    """A sandbox with an empty folder, for one installation."""

    @property
    def inside(self) -> str:
        """Return the path of the folder inside, where commands start."""

    def put(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Write a file to the folder; an error of the iterable leaves no file."""

    def shown(self, program: str) -> str:
        """Return the path inside of a program of this machine."""

    def run(self, step: InstallStep) -> tuple[int, str]:
        """Run a command; return its exit code and output. Raises RunRefused at a limit."""

    def read(self, path: str, most: int) -> bytes:
        """Read a regular file; raises RunRefused for anything else."""

    def names(self, path: str) -> list[str]:
        """List a folder; empty when there is none."""

    def copy(self, path: str, target: str, omitted: Container[str] = ()) -> None:
        """Copy a folder out as data; raises RunRefused for special files."""


class InstallSandboxes(Protocol):
    """Opens sandboxes, each for one installation."""

    @property
    def python(self) -> str:
        """Return a Python interpreter that works inside."""

    def folders_of(self, python: str) -> tuple[str, ...]:
        """Return the folders that a Python needs inside; raises RunRefused."""

    def open(self, max_bytes: int) -> AbstractContextManager[InstallSandbox]:
        """Open a sandbox, removed afterwards; raises RunRefused when none is usable."""


class SourceBuilds(NamedTuple):
    """The packages that may be built from source: those by name, or every one.

    With `sketch` nothing is built yet: these packages are assumed to need nothing themselves, so
    that none of their code runs before the question is answered.
    """

    names: tuple[str, ...] = ()
    every: bool = False
    sketch: bool = False

    @property
    def any(self) -> bool:
        """Whether anything is built."""
        return self.every or bool(self.names)


class InstallTools(NamedTuple):
    """The tools and settings for one environment. `kept` are cached pages, for all its steps.

    `objects` is the object store through which machines share wheels, if there is one.
    """

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
    sizes: dict[str, int]  # of the downloads, by package, collected
    kept: KeptPages
    objects: str = ""


class EnvironmentPlan(NamedTuple):
    """The resolved packages, and the path of their environment."""

    needs: Needs
    lock: Lock
    path: str
    record: str
    tools: InstallTools

    @property
    def hash(self) -> str:
        """Return the hash over the needs and the resolved packages."""
        return os.path.basename(self.path)

    @property
    def size(self) -> str:
        """Return the download size, for people; "" if it is unknown for all packages."""
        sizes = [self.tools.sizes.get(one.name, 0) for one in self.lock.packages]
        if not any(sizes):
            return ""
        least = "" if all(sizes) else "at least "
        return f"{least}{max(sum(sizes) / 1e6, 0.1):,.1f} MB to fetch"

    @property
    def builds(self) -> SourceBuilds:
        """Return the packages that are built from source."""
        return self.tools.builds


# Versions of Python


def fits(version: str, wanted: str) -> bool:
    """Whether a version of Python, like `3.11.7`, is in a range like `>=3.10,<4`."""
    return all(_meets(numbers(version), one.strip()) for one in wanted.split(",") if one.strip())


def numbers(version: str) -> tuple[int, ...]:
    """Return up to three numbers of a version."""
    return tuple(int(digits[:18]) for digits in re.findall(r"\d+", version)[:3])


def _meets(have: tuple[int, ...], condition: str) -> bool:
    sign = re.match(r"[<>=!~]+", condition)
    operator = sign[0] if sign else "=="
    bound = numbers(condition)
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


def libc_version() -> str:
    """Return the C library with its version; empty if it is not glibc."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


# Files


def write_json(path: str, value: object) -> None:
    """Write a JSON file atomically."""
    handle, aside = tempfile.mkstemp(dir=os.path.dirname(path))
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(aside, path)


def remove(path: str) -> None:
    """Remove an environment that is not in use; the clean-up removes the rest."""
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


# Programs


def changed(program: str) -> int:
    """Return when a program was changed; raises RunRefused if it does not exist."""
    try:
        return os.stat(program).st_mtime_ns
    except OSError as error:
        raise RunRefused(f"{program} cannot be run: {error.strerror}") from error


def which(name: str, environ: Mapping[str, str]) -> str:
    """Find a program on the PATH, ignoring relative folders."""
    folders = [one for one in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(one)]
    return shutil.which(name, path=os.pathsep.join(folders)) or ""
