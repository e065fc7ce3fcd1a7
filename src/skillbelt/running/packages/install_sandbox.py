"""Sandboxes for installers: the native sandbox, an empty folder and the package index.

Always the native one, independent of the `sandbox` setting: an installer processes untrusted data
and has network access.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from skillbelt.errors import PathEscape, RunRefused, SandboxUnavailable
from skillbelt.files.contain import (
    FOLLOW_FILE,
    FOLLOW_FOLDER,
    READ_FOLDER,
    open_beneath,
    open_folder,
)
from skillbelt.files.remove import remove_tree
from skillbelt.files.tree_copy import TreeCopy
from skillbelt.running.packages.index_proxy import open_index
from skillbelt.running.packages.installation import InstallStep
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import (
    blocking_folder,
    current_identity,
    in_system,
    interpreter,
    run_identity,
)
from skillbelt.sandbox.linux.python_files import shown_of
from skillbelt.sandbox.macos.seatbelt import SeatbeltSandbox
from skillbelt.sandbox.network.proxy import SOCKET_NAME, Egress, bridge
from skillbelt.sandbox.protocol import Job, Mount, Sandbox, run
from skillbelt.values import Capabilities, Limits

if TYPE_CHECKING:
    from skillbelt.running.packages.fetched import PackageIndex

_INSIDE, _NET, _TOOLS = "/install", "/run/net", "/run/tools"
_PREFIX = "skillbelt-install-"
_MAX_FILES = 500_000
_OUTPUT_BYTES = 64 * 2**10
_SLACK = 64 * 2**20
_MACOS = sys.platform == "darwin"
# Fallbacks for a temporary directory that is closed to the user who installs.
_PUBLIC_FOLDERS = ("/var/tmp", "/tmp")


class NativeSandboxes:
    """Sandboxes of bubblewrap, on macOS of seatbelt. An installer has the limits of runs.

    `named` is the sandbox that the settings name: seatbelt is used only if they name it.
    """

    def __init__(self, limits: Limits | None = None, named: str = "") -> None:
        self._limits = limits or Limits()
        self._sandbox: Sandbox = SeatbeltSandbox() if _MACOS else LinuxSandbox()
        self._named = not _MACOS or named == SeatbeltSandbox.name

    @property
    def python(self) -> str:
        """Return a Python interpreter that works inside."""
        found = interpreter()
        if found is None:
            raise RunRefused("no Python can be run in the sandbox: install the system's python3")
        return found.path

    def folders_of(self, python: str) -> tuple[str, ...]:
        """Return the folders that a Python needs inside; raises RunRefused."""
        real = os.path.realpath(python)
        if in_system(real):
            return ()
        closed = blocking_folder(real)
        if closed is not None:
            raise RunRefused(
                f"{python} cannot be used: packages are installed in a sandbox by uid "
                f"{current_identity().uid}, to which {closed} is closed; use the system's python3"
            )
        shown = shown_of(real, os.path.dirname(os.path.dirname(real)))
        if not shown:
            raise RunRefused(
                f"{python} cannot be used: packages are installed in a sandbox, and the files "
                "of that Python are among private files; use the system's python3"
            )
        return shown

    @contextmanager
    def open(self, max_bytes: int) -> Iterator[NativeSandbox]:
        """Open a sandbox, removed afterwards; raises RunRefused when it is unavailable."""
        if not self._named:
            raise RunRefused(
                "packages are installed inside seatbelt on macOS, which is not verified and "
                "therefore only used by its name, so nothing is installed: set sandbox to "
                f"{SeatbeltSandbox.name!r}, or use a container image that has the packages"
            )
        reason = self._sandbox.unavailable()
        if reason is not None:
            raise RunRefused(
                f"packages are installed inside {self._sandbox.name}, independent of the "
                f"setting `sandbox`, and it is unavailable here, so nothing is installed: {reason}"
            )
        folder, handle = _new_folder()
        try:
            # For downloads, unpacked files and the result; the caller checks the result's size.
            most = 3 * max_bytes + _SLACK
            limits = self._limits._replace(
                max_workspace_bytes=most,
                max_workspace_files=_MAX_FILES,
                max_written_file_bytes=most,
                max_network_bytes=max(max_bytes, self._limits.max_network_bytes),
                max_stream_bytes=_OUTPUT_BYTES,
            )
            yield NativeSandbox(folder, self._sandbox, limits, most)
        finally:
            remove_tree(folder)
            os.close(handle)


def _new_folder() -> tuple[str, int]:
    """Create a locked folder that the user who installs can reach, and that user's folder in it.

    Leftovers of killed processes are removed.
    """
    owner = run_identity()
    places = [tempfile.gettempdir(), *_PUBLIC_FOLDERS]
    for place in places:
        if os.path.isdir(place) and blocking_folder(os.path.join(place, "x")) is None:
            _remove_leftovers(place)
            folder, handle = _locked_folder(place)
            os.chmod(folder, 0o711)
            for name, theirs in (("room", True), ("tools", False)):
                path = os.path.join(folder, name)
                os.mkdir(path, 0o700 if theirs else 0o755)
                os.chmod(path, 0o700 if theirs else 0o755)
                if theirs and owner is not None:
                    os.chown(path, *owner)
            return folder, handle
    raise RunRefused(
        f"the user that packages are installed by (uid {current_identity().uid}) can reach none of "
        f"{', '.join(dict.fromkeys(places))}; set TMPDIR to a folder that it can pass through"
    )


def _locked_folder(place: str) -> tuple[str, int]:
    """Create and lock a folder; until it is locked, other processes take it for a leftover."""
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        with suppress(FileNotFoundError):
            handle = os.open(folder, FOLLOW_FOLDER)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.isdir(folder):
                return folder, handle
            os.close(handle)


def _remove_leftovers(place: str) -> None:
    for name in [one for one in os.listdir(place) if one.startswith(_PREFIX)]:
        path = os.path.join(place, name)
        with suppress(OSError):
            if os.lstat(path).st_uid != os.geteuid():
                continue
            handle = os.open(path, READ_FOLDER)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(path)
            finally:
                os.close(handle)


class NativeSandbox:
    """One sandbox: `folder` holds the folder inside, and copies of programs."""

    def __init__(self, folder: str, sandbox: Sandbox, limits: Limits, most: int) -> None:
        self._room = os.path.join(folder, "room")
        self._tools = os.path.join(folder, "tools")
        self._sandbox, self._limits, self._most = sandbox, limits, most

    @property
    def inside(self) -> str:
        """Return the path of the folder inside, where commands start."""
        return self._choose_path(_INSIDE, self._room)

    def _choose_path(self, inside: str, outside: str) -> str:
        return inside if self._sandbox.remaps else outside

    def put(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Write a file; one that a command left there is replaced, not written to.

        An error of the iterable leaves no file.
        """
        path = os.path.join(self._room, name)
        handle, aside = tempfile.mkstemp(dir=os.path.dirname(self._tools))
        with open(handle, "wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            owner = run_identity()
            if owner is not None:
                os.fchown(file.fileno(), *owner)
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        os.rename(aside, path)

    def shown(self, program: str) -> str:
        """Return the path inside of a program; outside the system folders, of a link or a copy."""
        real = os.path.realpath(program)
        if in_system(real):
            return real
        copy = os.path.join(self._tools, os.path.basename(real))
        if not os.path.exists(copy):
            try:
                _link_or_copy(real, copy)
            except OSError as error:
                raise RunRefused(f"{program} cannot be read: {error.strerror}") from error
        return os.path.join(self._choose_path(_TOOLS, self._tools), os.path.basename(real))

    def run(self, step: InstallStep) -> tuple[int, str]:
        """Run a command; return its exit code and output. Raises RunRefused at a limit."""
        with ExitStack() as stack:
            tools = Mount(self._tools, self._choose_path(_TOOLS, self._tools))
            mounts = [Mount(self._room, self.inside, True), tools]
            mounts += [Mount(path, path) for path in step.folders if not in_system(path)]
            network: tuple[str, ...] = ()
            if step.package_index is not None:
                egress = stack.enter_context(self._proxy(step.package_index))
                net = self._choose_path(_NET, egress.folder)
                mounts.append(Mount(egress.folder, net))
                network = bridge(os.path.join(net, SOCKET_NAME))
            job = Job(
                argv=step.argv,
                env=step.env,
                cwd=self.inside,
                mounts=tuple(mounts),
                workspace=self._room,
                capabilities=Capabilities(processes=True),
                limits=self._limits,
                timeout_seconds=step.seconds,
                bridge=network,
            )
            try:
                outcome = run(self._sandbox, job)
            except SandboxUnavailable as error:
                raise RunRefused(f"packages cannot be installed: {error}") from error
        said = (outcome.stdout.data + outcome.stderr.data).decode("utf-8", "replace")
        if outcome.timed_out:
            raise TimeoutError
        if outcome.limits_hit:
            raise RunRefused(f"the installer was stopped: {', '.join(outcome.limits_hit)}")
        return outcome.exit_code, said

    def _proxy(self, index: PackageIndex) -> Egress:
        owner = run_identity()
        return open_index(index, self._limits, owner and owner[0])

    def read(self, path: str, most: int) -> bytes:
        """Read a regular file; raises RunRefused for anything else."""
        try:
            with open(self._open(path, FOLLOW_FILE), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise RunRefused(f"the installer left no regular file {path}")
                data = file.read(most + 1)
        except (OSError, PathEscape) as error:
            raise RunRefused(f"the installer left no {path}: {error}") from error
        if len(data) > most:
            raise RunRefused(f"the installer left more than {most} bytes in {path}")
        return data

    def names(self, path: str) -> list[str]:
        """List a folder; empty when there is none."""
        with suppress(OSError, PathEscape):
            handle = self._open(path, FOLLOW_FOLDER)
            try:
                return sorted(os.listdir(handle))
            finally:
                os.close(handle)
        return []

    def copy(self, path: str, target: str, omitted: Container[str] = ()) -> None:
        """Copy a folder out as data; raises RunRefused for special files."""
        copying = TreeCopy("the packages", self._most, _MAX_FILES, runner=current_identity().uid)
        with copying.reading("."):
            source = self._open(path, FOLLOW_FOLDER)
            try:
                goal = os.open(target, FOLLOW_FOLDER)
                try:
                    copying.fill(source, goal, omitted=omitted)
                finally:
                    os.close(goal)
            finally:
                os.close(source)

    def _open(self, path: str, flags: int) -> int:
        top = open_folder(self._room)
        try:
            return open_beneath(top, path, flags)
        finally:
            os.close(top)


def _link_or_copy(program: str, target: str) -> None:
    """Put a program at another path. A link saves writing uv's tens of megabytes.

    Inside, the folder is read-only, so that a program can be run by that link but not changed.
    """
    found = os.lstat(program)
    if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o7055 == 0o055:
        with suppress(OSError):  # on another file system, or not ours
            os.link(program, target, follow_symlinks=False)
            return
    shutil.copyfile(program, target)
    os.chmod(target, 0o555)
