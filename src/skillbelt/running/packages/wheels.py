"""Install wheels without uv: fetch them by hash, unpack them in a sandbox without a network.

uv resolves the packages and names the allowed hashes. Where these leave one wheel for each package,
installing means fetching these files, comparing their hashes and unpacking them. Everything else is
left to uv: a package that is built, or wheels between which only uv can choose.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from skillbelt.permission.packages import Lock, Package, normal
from skillbelt.running.packages.fetched import BodyChunks, NotFetched
from skillbelt.running.packages.index_pages import IndexFile, PythonIndex
from skillbelt.running.packages.installation import InstallSandbox, InstallStep
from skillbelt.running.packages.installers import COMPILERS, InstallerFailed, environment_of
from skillbelt.running.packages.lockfiles import Platform, fits, is_sure, preference
from skillbelt.running.packages.shared_files import SharedFiles
from skillbelt.running.packages.unpack import UNUSUAL

_PROGRAM = "unpack.py"
_IN_MEMORY = 8 * 2**20  # of a shared wheel; a larger one is buffered in a file
_FETCHERS = 6  # threads that fetch in parallel


class WheelInstaller:
    """Fetches the wheels of one lock into a sandbox and unpacks them there."""

    def __init__(
        self,
        index: PythonIndex,
        here: Platform,
        *,
        most: int,
        seconds: float,
        shared: SharedFiles | None = None,
    ) -> None:
        """Take the bounds: `most` bytes to fetch, within `seconds`.

        `shared` are the wheels of other machines, which are tried first.
        """
        self._index, self._here, self._shared = index, here, shared
        self._left, self._until = most, time.monotonic() + seconds
        self._seconds = seconds
        self._lock = threading.Lock()

    def install(
        self,
        sandbox: InstallSandbox,
        lock: Lock,
        place: str,
        *,
        python: str,
        folders: tuple[str, ...],
    ) -> bool:
        """Create `venv` inside, for its later place; False where uv must do that.

        Raises InstallerFailed when a file cannot be fetched, has another hash or is damaged.
        """
        chosen = self._fetch_in_time(sandbox, lock)
        if len(chosen) < len(lock.packages):
            return False
        sandbox.put(_PROGRAM, _program())
        names = sorted(file.name for _, file in chosen)
        argv = (python, "-I", "-S", "-B", "-W", "ignore", _PROGRAM, place, COMPILERS, *names)
        code, said = sandbox.run(
            InstallStep(
                argv=argv, seconds=self._seconds, env=environment_of(sandbox), folders=folders
            )
        )
        if code and code != UNUSUAL:
            raise InstallerFailed(said)
        return not code

    def _fetch_in_time(
        self, sandbox: InstallSandbox, lock: Lock
    ) -> Sequence[tuple[Package, IndexFile]]:
        """Return the wheels, which are fetched if every package has one.

        Raises TimeoutError and abandons the thread when a response takes too long: a server can
        send one byte a minute.
        """
        chosen, faults = list[tuple[Package, IndexFile]](), list[Exception]()

        def work() -> None:
            try:
                found = [(one, self._choose(one)) for one in lock.packages]
                chosen.extend((one, file) for one, file in found if file is not None)
                if len(chosen) == len(found):
                    self._fetch_all(sandbox, chosen)
            except Exception as error:  # raised below, in the thread of the caller
                faults.append(error)

        thread = threading.Thread(target=work, name="skillbelt-fetch", daemon=True)
        thread.start()
        thread.join(max(0.0, self._until - time.monotonic()))
        if thread.is_alive():
            raise TimeoutError
        if faults:
            raise faults[0]
        return chosen

    def _choose(self, package: Package) -> IndexFile | None:
        """Return the preferred wheel with a listed hash; None where uv must choose."""
        if self._shared is not None:
            kept = [
                one
                for one in self._shared.find(package.hashes)
                if _belongs(one, package) and is_sure(one.name, self._here)
            ]
            if len(kept) == 1:
                return kept[0]
        return self._choose_from_index(package)

    def _choose_from_index(self, package: Package) -> IndexFile | None:
        try:
            files = self._index.files(package.name)
        except NotFetched:
            return None  # uv gives the best message about what is missing
        found = [
            (preference(one.name, self._here), one)
            for one in files
            if _belongs(one, package) and fits(one.name, self._here)
        ]
        found.sort(key=lambda one: one[0])
        if not found or not all(rank for rank, _ in found):
            return None
        return found[-1][1] if found[-1][0] not in [rank for rank, _ in found[:-1]] else None

    def _fetch_all(
        self, sandbox: InstallSandbox, chosen: Sequence[tuple[Package, IndexFile]]
    ) -> None:
        """Fetch the files, several at a time."""
        waiting, faults = list(chosen), list[Exception]()

        def work() -> None:
            try:
                while not faults:
                    with self._lock:
                        if not waiting:
                            return
                        package, file = waiting.pop()
                    sandbox.put(file.name, self._verify(package, file))
            except Exception as error:  # raised below, in the thread of the caller
                faults.append(error)

        helpers = [
            threading.Thread(target=work, name="skillbelt-fetch", daemon=True)
            for _ in range(min(_FETCHERS, len(chosen)) - 1)
        ]
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()
        if faults:
            raise faults[0]

    def _verify(self, package: Package, file: IndexFile) -> Iterator[bytes]:
        """Yield the content; raises InstallerFailed at its end unless it has a listed hash."""
        if self._shared is not None and not file.url:
            kept = self._shared.open(file, self._left)
            if kept is not None:
                with closing(BodyChunks(kept)) as pieces:
                    yield from self._limit_chunks(pieces)
                return
            listed = self._choose_from_index(package)
            if listed is None:
                raise InstallerFailed(f"no index has {file.name}, and no machine shares it")
            file = listed
        digest = hashlib.sha256()
        with SpooledTemporaryFile(_IN_MEMORY) as copy:
            try:
                fetched = self._index.fetch(file)
                with closing(fetched.pieces):
                    for piece in self._limit_chunks(fetched.pieces):
                        digest.update(piece)
                        if self._shared is not None:
                            copy.write(piece)
                        yield piece
            except NotFetched as missing:
                raise InstallerFailed(str(missing)) from missing
            if f"sha256:{digest.hexdigest()}" not in package.hashes:
                raise InstallerFailed(
                    f"Hash mismatch: {file.name} has sha256:{digest.hexdigest()}, and "
                    f"{package.name}=={package.version} was resolved with "
                    f"{', '.join(package.hashes)}"
                )
            if self._shared is not None:
                copy.seek(0)
                self._shared.add(file, digest.hexdigest(), cast(BinaryIO, copy))

    def _limit_chunks(self, pieces: BodyChunks) -> Iterator[bytes]:
        for piece in pieces:
            with self._lock:
                self._left -= len(piece)
            if self._left < 0:
                raise InstallerFailed("the files are larger than max_network_bytes allows")
            if time.monotonic() > self._until:
                raise TimeoutError
            yield piece


def _belongs(file: IndexFile, package: Package) -> bool:
    """Whether a file is a wheel of the package: by its hash, else by its version."""
    name, _, rest = file.name.partition("-")
    if not file.name.endswith(".whl") or normal("python", name) != package.name:
        return False
    if file.sha256:
        return f"sha256:{file.sha256}" in package.hashes
    return rest.partition("-")[0] == package.version


@cache
def _program() -> bytes:
    with open(os.path.join(os.path.dirname(__file__), _PROGRAM), "rb") as file:
        return file.read()
