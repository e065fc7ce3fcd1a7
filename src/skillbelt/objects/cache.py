"""A cache of folders from an object store, by digest on this machine, bounded in size.

<cache>/<digits>/<name>     the folder
<cache>/<digits>.lock       held while the folder is in use; its time is the last use
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from skillbelt.errors import ObjectError, PathEscape
from skillbelt.files.contain import check_segment
from skillbelt.files.locks import hold, release
from skillbelt.files.private import make_folder
from skillbelt.files.remove import GONE, remove_tree
from skillbelt.late import Late

if TYPE_CHECKING:
    from skillbelt.files import usage
else:  # cost: 1 ms, only to make room
    usage = Late("skillbelt.files.usage")

MAX_KEPT_BYTES = 2 * 2**30
_LOCK = ".lock"
_ATTEMPTS = 3


@contextmanager
def kept_folder(
    cache: str,
    digits: str,
    name: str,
    *,
    fetch: Callable[[str], None],
    is_whole: Callable[[str], bool],
    most: int = MAX_KEPT_BYTES,
) -> Iterator[str]:
    """Yield the folder, fetched if it is not there complete.

    It stays until the end of the block.
    """
    try:
        check_segment(name)
    except PathEscape as escape:
        raise ObjectError(f"{name[:80]!r} is not a name for a folder: {escape}") from escape
    path = os.path.join(cache, digits, name)
    lock = os.path.join(cache, f"{digits}{_LOCK}")
    make_folder(cache)
    handle = hold(lock, fcntl.LOCK_SH)
    try:
        filled = 0
        while not (os.path.isdir(path) and is_whole(path)):
            # Another process may have removed it meanwhile. A store may also have sent a folder
            # that this machine does not consider complete.
            if filled == _ATTEMPTS:
                raise ObjectError(f"{path} is not complete after it was fetched {filled} times")
            release(handle)
            handle = -1
            _fill(path, lock, fetch, is_whole)
            handle, filled = hold(lock, fcntl.LOCK_SH), filled + 1
        os.utime(lock)
        if filled:
            _clean(cache, most, keep=digits)
        yield path
    finally:
        if handle >= 0:
            release(handle)


def _fill(
    path: str, lock: str, fetch: Callable[[str], None], is_whole: Callable[[str], bool]
) -> None:
    """Fetch the folder; of many callers at once, one fetches and the others wait."""
    alone = hold(lock, fcntl.LOCK_EX)
    try:
        if not (os.path.isdir(path) and is_whole(path)):
            make_folder(os.path.dirname(path))
            remove_tree(path)
            fetch(path)
    finally:
        release(alone)


def _clean(cache: str, most: int, keep: str) -> None:
    """Evict the least recently used folders until the rest is within the bound."""
    found = []
    for name in os.listdir(cache):
        if name.startswith(GONE):  # a killed process did not finish
            remove_tree(os.path.join(cache, name))
        elif name.endswith(_LOCK):
            with suppress(FileNotFoundError):
                found.append((os.stat(os.path.join(cache, name)).st_mtime, name))
    total = 0
    for _, name in sorted(found, reverse=True):
        digits = name.removesuffix(_LOCK)
        folder = os.path.join(cache, digits)
        total += usage.measure_folder(folder, most).bytes if os.path.isdir(folder) else 0
        if total > most and digits != keep:
            _evict(folder, os.path.join(cache, name))


def _evict(folder: str, lock: str) -> None:
    with suppress(BlockingIOError):  # in use
        alone = hold(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            remove_tree(folder)
            os.unlink(lock)
        finally:
            release(alone)
