"""File locks: exclusive for one process, or shared by readers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from skillbelt.files.contain import LOCK_FILE, READ_FILE

_SHORT_SECONDS, _SHORT_PAUSE_SECONDS = 30.0, 0.002
_LONG_PAUSE_SECONDS = 0.05


def hold(path: str, operation: int) -> int:
    """Lock the file and return its handle; BlockingIOError if LOCK_NB is set and it is locked."""
    while True:
        handle = os.open(path, LOCK_FILE, 0o600)
        try:
            fcntl.flock(handle, operation)
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: str) -> bool:
    """Whether the path still names this file: the lock of a removed file excludes no process."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    return False


def release(handle: int) -> None:
    """Unlock at once, even when a child that was forked meanwhile still has the handle."""
    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


@contextmanager
def held(path: str, seconds: float, error: Exception) -> Iterator[None]:
    """Hold an exclusive lock; raise `error` when it is not free within `seconds`."""
    end = monotonic() + seconds
    while (handle := _try_hold(path)) is None:
        if monotonic() > end:
            raise error
        sleep(_LONG_PAUSE_SECONDS)
    try:
        yield
    finally:
        release(handle)


def _try_hold(path: str) -> int | None:
    with suppress(BlockingIOError):
        return hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return None


@contextmanager
def locked(path: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock among all processes and threads; OSError after 30 seconds."""
    handle = os.open(path, READ_FILE if shared else LOCK_FILE, 0o600)
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    until = monotonic() + _SHORT_SECONDS
    try:
        while not _try_lock(handle, operation):
            if monotonic() > until:
                raise TimeoutError(0, f"another process holds {path}")
            sleep(_SHORT_PAUSE_SECONDS)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int, operation: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
        return True
    return False
