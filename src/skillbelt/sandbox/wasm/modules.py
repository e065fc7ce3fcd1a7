"""Modules on their way to the engine: read, known by their hash, compiled once."""

import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from skillbelt.sandbox.linux.landlock import ruleset, version
from skillbelt.sandbox.process.limits import process_limits
from skillbelt.sandbox.wasm.cache import Cache, Code
from skillbelt.values import Limits

# Compiling takes memory in proportion to the module.
MAX_WASM_BYTES = 128 * 2**20
# Compiled modules that are kept; an interpreter takes some 100 MB.
MAX_WASM_CACHE_BYTES = 4 * 2**30
# The largest interpreter compiles in 20 s on a slow machine.
COMPILE_TIMEOUT_SECONDS = 120.0

_MAGIC = b"\0asm"
_CHUNK = 2**20
_MOST_OPEN = 8
_MOST_KNOWN = 256
_SETTLED_SECONDS = 0.05  # a file that was changed within a tick of the clock may look the same
_WAIT_SECONDS = 0.05
# From here on no run gets that far in the processor time it has by default. Counting makes code a
# third slower, so it is not done for nothing.
UNCOUNTED_FUEL = 10**12
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

# Has a worker do something; gives what it answered. Raises what ends the run meanwhile.
Compile = Callable[[dict[str, object], list[int]], Mapping[str, Any]]


class Unusable(Exception):
    """The module can not be run; `limit` is the limit that it is beyond, if it is that."""

    def __init__(self, why: str, limit: str = "") -> None:
        self.limit = limit
        super().__init__(why)


class Ready(NamedTuple):
    """A module that is compiled. The handle of the code stays ours."""

    key: str
    kind: str
    fuel: bool
    handle: int


class Modules:
    """What is known of modules, and where their machine code is kept."""

    def __init__(self, cache: Cache, tell: Callable[[str], None]) -> None:
        self._cache, self._tell = cache, tell
        self._lock = threading.Lock()
        self._known: dict[tuple[int, ...], str] = {}
        self._open: dict[str, Code] = {}

    def ready(
        self, file: int, name: str, limits: Limits, flavour: str, compile_: Compile,
        pause: Callable[[float], None],
    ) -> Ready:  # fmt: skip
        """The module in the file, compiled now when it must be; Unusable when it can not be run.

        `flavour` is what machine code depends on. `pause` waits, and raises when it need not.
        """
        fuel = 0 < limits.max_wasm_fuel < UNCOUNTED_FUEL
        key = _key(self._digest(file, limits), flavour, fuel)
        code = self._held(key)
        if code is None:
            key, code = self._compiled(file, name, limits, flavour, fuel, compile_, pause)
        return Ready(key, code.kind, fuel, code.handle)

    def close(self) -> None:
        """Let go of the handles."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1].handle)

    def _held(self, key: str) -> Code | None:
        """A handle of its own for the caller, if the code is at hand."""
        with self._lock:
            code = self._open.pop(key, None)
            if code is None:
                return None
            self._open[key] = code
            return code._replace(handle=os.dup(code.handle))

    def _hold(self, key: str, code: Code) -> Code:
        with self._lock:
            if key in self._open:
                os.close(self._open.pop(key).handle)
            self._open[key] = code
            for old in list(self._open)[:-_MOST_OPEN]:
                os.close(self._open.pop(old).handle)
            return code._replace(handle=os.dup(code.handle))

    def _digest(self, file: int, limits: Limits) -> str:
        """The hash of the file; one that did not change since is not read again."""
        found = os.fstat(file)
        if found.st_size > MAX_WASM_BYTES:
            raise Unusable(
                f"has {found.st_size:,} bytes, more than {MAX_WASM_BYTES:,} (max_wasm_bytes)",
                "max_wasm_bytes",
            )
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if state in self._known:
            return self._known[state]
        settled = found.st_ctime < time.time() - _SETTLED_SECONDS
        digest = _hash(file, None, limits)
        if settled:
            with self._lock:
                self._known[state] = digest
                if len(self._known) > _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
        return digest

    def _compiled(
        self, file: int, name: str, limits: Limits, flavour: str, fuel: bool, compile_: Compile,
        pause: Callable[[float], None],
    ) -> tuple[str, Code]:  # fmt: skip
        # What is compiled is what was hashed, whatever becomes of the file.
        source = os.memfd_create("skillbelt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            key = _key(_hash(file, source, limits), flavour, fuel)
            fcntl.fcntl(source, fcntl.F_ADD_SEALS, _SEALS)
            os.lseek(source, 0, os.SEEK_SET)
            if os.pread(source, len(_MAGIC), 0) != _MAGIC:
                raise Unusable("is not a WASM module")
            with self._cache.opened() as folder:
                while (lock := self._cache.lock(folder, key)) is None:
                    pause(_WAIT_SECONDS)
                try:
                    code = self._cache.find(folder, key)
                    if code is None:
                        self._tell(f"compiling {name}")
                        code = self._made(folder, key, source, limits, fuel, compile_)
                finally:
                    os.close(lock)
            return key, self._hold(key, code)
        finally:
            os.close(source)

    def _made(
        self, folder: int, key: str, source: int, limits: Limits, fuel: bool, compile_: Compile
    ) -> Code:
        part, target = self._cache.new_file(folder)
        bounds = limits._replace(max_written_file_bytes=MAX_WASM_CACHE_BYTES)
        order: dict[str, object] = {
            "do": "compile",
            "fuel": fuel,
            "rlimits": worker_limits(bounds),
            "rules": ruleset(()) if version() else None,
        }
        try:
            answer = compile_(order, [source, target])
            if "unusable" in answer:
                raise Unusable(str(answer["unusable"]))
            kind = "module" if answer.get("kind") == "module" else "component"
            return self._cache.add(folder, part, key, kind)
        finally:
            os.close(target)
            self._cache.discard(folder, part)


def compile_limits(limits: Limits, ours: bool) -> Limits:
    """What compiling is held to: its own time, and the memory of a run.

    A component of `ours` is as large as it is, however little a run may take.
    """
    default = Limits()
    cpu_seconds = COMPILE_TIMEOUT_SECONDS * (os.cpu_count() or 1)
    limits = limits._replace(max_cpu_seconds=cpu_seconds)
    if not ours:
        return limits
    return limits._replace(max_memory_bytes=max(limits.max_memory_bytes, default.max_memory_bytes))


def worker_limits(limits: Limits) -> list[tuple[int, tuple[int, int]]]:
    """What the kernel holds a worker to. Processes are not counted: it can start none."""
    import resource

    counted = process_limits(limits, 0)
    return [each for each in counted if each[0] != resource.RLIMIT_NPROC]


def _key(digest: str, flavour: str, fuel: bool) -> str:
    return hashlib.sha256(json.dumps([digest, flavour, fuel]).encode()).hexdigest()


def _hash(file: int, copy: int | None, limits: Limits) -> str:
    """The hash of what the file holds, which is copied if there is somewhere to copy it to."""
    digest = hashlib.sha256()
    at = 0
    while data := os.pread(file, _CHUNK, at):
        digest.update(data)
        at += len(data)
        if at > MAX_WASM_BYTES:
            raise Unusable(f"has more than {MAX_WASM_BYTES:,} bytes", "max_wasm_bytes")
        if copy is not None:
            os.write(copy, data)
    return digest.hexdigest()
