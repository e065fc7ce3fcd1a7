"""Compiled modules: read, identified by their hash, compiled once and cached as machine code.

Write access to the cache decides what runs. So the folder and every file in it must belong to the
current user and be writable by no other user; anything else is not used. Only the runtime writes: a
worker receives a descriptor of one new file to fill, and the finished file is named by the hash of
the module it was compiled from. A guest that escapes could at most corrupt its own module.

The file name also contains the hash of the contents, which is checked before use: against a damaged
disk, not against an attacker with the same rights.
"""

import fcntl
import hashlib
import json
import os
import re
import resource
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from skillbelt.files.contain import LOCK_FILE, NEW_FILE_TO_READ, READ_FILE, READ_FOLDER
from skillbelt.files.handles import is_shortage
from skillbelt.files.private import make_folder
from skillbelt.sandbox.linux.landlock import ruleset, version
from skillbelt.sandbox.process.limits import process_limits
from skillbelt.values import Limits

# Compiling takes memory in proportion to the module.
MAX_WASM_BYTES = 128 * 2**20
# Compiled modules that are cached; an interpreter takes some 100 MB.
MAX_WASM_CACHE_BYTES = 4 * 2**30
# The largest interpreter compiles in 20 s on a slow machine.
COMPILE_TIMEOUT_SECONDS = 120.0

_NAME = re.compile(r"([0-9a-f]{64})\.(module|component)\.([0-9a-f]{64})")
_PART = ".part-"
_PART_SECONDS = 24 * 3600.0
_CHUNK = 2**20
# A worker of another user reopens the descriptor it is given, so the file must be readable; the
# folder keeps all other users out.
_FILE_MODE = 0o444
_MAGIC = b"\0asm"
_MAX_OPEN = 8
_MAX_KNOWN = 256
_SETTLED_SECONDS = 0.05  # within a clock tick a changed file may look the same
_WAIT_SECONDS = 0.05
# No run uses that much fuel in its default processor time. Counting makes code a third slower, so
# above this it is switched off.
UNCOUNTED_FUEL = 10**12
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

# Send an order to a worker and return its answer; raises what ends the run.
Compile = Callable[[dict[str, object], list[int]], Mapping[str, Any]]


class MachineCode(NamedTuple):
    """The machine code of a module; the receiver owns the handle."""

    kind: str
    handle: int


class _Untrusted(Exception):
    """A cached file or the folder cannot be trusted."""


class ModuleCache:
    """A folder of compiled modules, safe for threads and for several processes."""

    def __init__(self, folder: str, max_bytes: int, report: Callable[[str], None]) -> None:
        """Take the folder, which is created on first use.

        `report` gets a line for each refused file.
        """
        self._folder, self._max_bytes, self._report = folder, max_bytes, report

    def _open(self) -> int:
        """Open the folder; raises _Untrusted."""
        try:
            make_folder(os.path.dirname(self._folder))
            with suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            handle = os.open(self._folder, READ_FOLDER)
        except OSError as error:
            raise _Untrusted(f"cannot be opened: {error.strerror}") from error
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(handle)
            raise _Untrusted("belongs to another user, or others have access to it")
        return handle

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a handle of the cache folder, or of a temporary one when it cannot be trusted."""
        try:
            handle = self._open()
        except _Untrusted as fault:
            self._report(f"{self._folder} {fault}: compiled modules are not cached")
            with tempfile.TemporaryDirectory(prefix="skillbelt-") as temporary:
                handle = os.open(temporary, READ_FOLDER)
                try:
                    yield handle
                finally:
                    os.close(handle)
            return
        try:
            yield handle
        finally:
            os.close(handle)

    def find(self, folder: int, key: str) -> MachineCode | None:
        """Return the code for the key; untrusted files are removed and reported."""
        for name in os.listdir(folder):
            match = _NAME.fullmatch(name)
            if match is not None and match[1] == key:
                try:
                    return MachineCode(match[2], _open_checked(folder, name, match[3]))
                except (_Untrusted, OSError) as fault:
                    if is_shortage(fault):
                        raise
                    self._report(f"{os.path.join(self._folder, name)} is not used: {fault}")
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
        return None

    def new_file(self, folder: int) -> tuple[str, int]:
        """Create a file to write to; return its name and handle."""
        name = f"{_PART}{os.urandom(8).hex()}"
        return name, os.open(name, NEW_FILE_TO_READ, 0o600, dir_fd=folder)

    def add(self, folder: int, part: str, key: str, kind: str) -> MachineCode:
        """Add the finished file to the cache, atomically."""
        handle = os.open(part, READ_FILE, dir_fd=folder)
        try:
            os.fchmod(handle, _FILE_MODE)
            os.fsync(handle)
            name = f"{key}.{kind}.{_digest(handle)}"
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.close(handle)
            raise
        self._make_room(folder)
        return MachineCode(kind, handle)

    def discard(self, folder: int, part: str) -> None:
        """Remove an unfinished file."""
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)

    def lock(self, folder: int, key: str) -> int | None:
        """Lock the key against other compilers; None while another process holds the lock."""
        handle = os.open(f".lock-{key[:2]}", LOCK_FILE, 0o600, dir_fd=folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def _make_room(self, folder: int) -> None:
        """Remove the least recently used files, and unfinished ones of a killed runtime."""
        kept = []
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if _NAME.fullmatch(name):
                    kept.append((found.st_mtime, found.st_blocks * 512, name))
                elif name.startswith(_PART) and found.st_mtime < time.time() - _PART_SECONDS:
                    os.unlink(name, dir_fd=folder)
        size = sum(each[1] for each in kept)
        for _, bytes_, name in sorted(kept):
            if size <= self._max_bytes:
                return
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            size -= bytes_


def _open_checked(folder: int, name: str, digest: str) -> int:
    """Open a file whose owner, mode and hash are right, and mark it as used."""
    handle = os.open(name, READ_FILE, dir_fd=folder)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise _Untrusted("it is not a regular file with one link")
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != _FILE_MODE:
            raise _Untrusted("it belongs to another user, or has the wrong mode")
        if _digest(handle) != digest:
            raise _Untrusted("its contents do not match its hash")
        os.utime(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _digest(handle: int) -> str:
    digest = hashlib.sha256()
    at = 0
    while data := os.pread(handle, _CHUNK, at):
        digest.update(data)
        at += len(data)
    return digest.hexdigest()


class ModuleRefused(Exception):
    """The module cannot be run; `limit` names the limit that it exceeds, if any."""

    def __init__(self, why: str, limit: str = "") -> None:
        self.limit = limit
        super().__init__(why)


class CompiledModule(NamedTuple):
    """A compiled module; the caller closes the handle of its code."""

    key: str
    kind: str
    fuel: bool
    handle: int


class Modules:
    """Compiles modules, and keeps recent hashes and open handles of their code."""

    def __init__(self, cache: ModuleCache, report: Callable[[str], None]) -> None:
        self._cache, self._report = cache, report
        self._lock = threading.Lock()
        self._known: dict[tuple[int, ...], str] = {}
        self._open: dict[str, MachineCode] = {}

    def get(
        self,
        file: int,
        name: str,
        *,
        limits: Limits,
        flavour: str,
        compile_: Compile,
        pause: Callable[[float], None],
    ) -> CompiledModule:
        """Return the module in the file, compiled now if necessary; raises ModuleRefused.

        Machine code depends on `flavour`. `pause` waits, and raises when the run must end.
        """
        fuel = 0 < limits.max_wasm_fuel < UNCOUNTED_FUEL
        key = _key(self._digest(file), flavour, fuel)
        code = self._find_open(key)
        if code is None:
            key, code = self._compile(
                file,
                name,
                limits=limits,
                flavour=flavour,
                fuel=fuel,
                compile_=compile_,
                pause=pause,
            )
        return CompiledModule(key, code.kind, fuel, code.handle)

    def close(self) -> None:
        """Close the handles."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1].handle)

    def _find_open(self, key: str) -> MachineCode | None:
        """Return a new handle of the code, if it is open already."""
        with self._lock:
            code = self._open.pop(key, None)
            if code is None:
                return None
            self._open[key] = code
            return code._replace(handle=os.dup(code.handle))

    def _keep_open(self, key: str, code: MachineCode) -> MachineCode:
        with self._lock:
            if key in self._open:
                os.close(self._open.pop(key).handle)
            self._open[key] = code
            for old in list(self._open)[:-_MAX_OPEN]:
                os.close(self._open.pop(old).handle)
            return code._replace(handle=os.dup(code.handle))

    def _digest(self, file: int) -> str:
        """Return the hash of the file; an unchanged file is not read again."""
        found = os.fstat(file)
        if found.st_size > MAX_WASM_BYTES:
            raise ModuleRefused(
                f"has {found.st_size:,} bytes, more than {MAX_WASM_BYTES:,} (max_wasm_bytes)",
                "max_wasm_bytes",
            )
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if state in self._known:
            return self._known[state]
        settled = found.st_ctime < time.time() - _SETTLED_SECONDS
        digest = _hash(file, None)
        if settled:
            with self._lock:
                self._known[state] = digest
                if len(self._known) > _MAX_KNOWN:
                    del self._known[next(iter(self._known))]
        return digest

    def _compile(
        self,
        file: int,
        name: str,
        *,
        limits: Limits,
        flavour: str,
        fuel: bool,
        compile_: Compile,
        pause: Callable[[float], None],
    ) -> tuple[str, MachineCode]:
        # Compile a sealed copy: the file may change after it was hashed.
        source = os.memfd_create("skillbelt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            key = _key(_hash(file, source), flavour, fuel)
            fcntl.fcntl(source, fcntl.F_ADD_SEALS, _SEALS)
            os.lseek(source, 0, os.SEEK_SET)
            if os.pread(source, len(_MAGIC), 0) != _MAGIC:
                raise ModuleRefused("is not a WASM module")
            with self._cache.opened() as folder:
                while (lock := self._cache.lock(folder, key)) is None:
                    pause(_WAIT_SECONDS)
                try:
                    code = self._cache.find(folder, key)
                    if code is None:
                        self._report(f"compiling {name}")
                        order = _compile_order(limits, fuel)
                        code = self._compile_into(folder, key, source, order, compile_)
                finally:
                    os.close(lock)
            return key, self._keep_open(key, code)
        finally:
            os.close(source)

    def _compile_into(
        self, folder: int, key: str, source: int, order: dict[str, object], compile_: Compile
    ) -> MachineCode:
        part, target = self._cache.new_file(folder)
        try:
            answer = compile_(order, [source, target])
            if "unusable" in answer:
                raise ModuleRefused(str(answer["unusable"]))
            kind = "module" if answer.get("kind") == "module" else "component"
            return self._cache.add(folder, part, key, kind)
        finally:
            os.close(target)
            self._cache.discard(folder, part)


def _compile_order(limits: Limits, fuel: bool) -> dict[str, object]:
    """Return the order for a worker, with its bounds."""
    bounds = limits._replace(max_written_file_bytes=MAX_WASM_CACHE_BYTES)
    return {
        "do": "compile",
        "fuel": fuel,
        "rlimits": worker_limits(bounds),
        "rules": ruleset(()) if version() else None,
    }


def compile_limits(limits: Limits, ours: bool) -> Limits:
    """Return the limits for compiling: its own time, and the memory of a run.

    One of `ours`, the host components, gets at least the default memory.
    """
    default = Limits()
    cpu_seconds = COMPILE_TIMEOUT_SECONDS * (os.cpu_count() or 1)
    limits = limits._replace(max_cpu_seconds=cpu_seconds)
    if not ours:
        return limits
    return limits._replace(max_memory_bytes=max(limits.max_memory_bytes, default.max_memory_bytes))


def worker_limits(limits: Limits) -> list[tuple[int, tuple[int, int]]]:
    """Return the rlimits of a worker; without a process count, as it can start none."""
    counted = process_limits(limits, 0)
    return [each for each in counted if each[0] != resource.RLIMIT_NPROC]


def _key(digest: str, flavour: str, fuel: bool) -> str:
    return hashlib.sha256(json.dumps([digest, flavour, fuel]).encode()).hexdigest()


def _hash(file: int, copy: int | None) -> str:
    """Return the hash of the file, and copy it to `copy` if given."""
    digest = hashlib.sha256()
    at = 0
    while data := os.pread(file, _CHUNK, at):
        digest.update(data)
        at += len(data)
        if at > MAX_WASM_BYTES:
            raise ModuleRefused(f"has more than {MAX_WASM_BYTES:,} bytes", "max_wasm_bytes")
        if copy is not None:
            os.write(copy, data)
    return digest.hexdigest()
