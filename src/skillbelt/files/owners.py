"""Whose a file is, and which folder it is: a path alone says neither."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_STATX_BYTES = 256
_AT_FDCWD = -100
_STATX_INO, _STATX_BTIME = 0x100, 0x800
_STATX_INO_AT, _STATX_BTIME_AT = 32, 80


def stranger(path: str, environ: Mapping[str, str]) -> str:
    """The other user that the file or folder belongs to; "" when it is one's own, or the system's.

    Whoever became root by sudo is still who they were. What is not there belongs to nobody else.
    """
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return ""
    return "" if owner in _own(environ) else _name(owner)


def _own(environ: Mapping[str, str]) -> set[int]:
    me = os.geteuid()
    before = environ.get("SUDO_UID", "") if me == 0 else ""
    return {0, me, int(before)} if before.isascii() and before.isdigit() else {0, me}


def _name(user: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(user).pw_name} (uid {user})"
    except (KeyError, OverflowError):
        return f"uid {user}"


def folder_identity(path: str) -> str:
    """What tells this folder from any other that is ever put in its place; "" when it is gone.

    Its inode and the time of its birth, which nobody can set and which stay when the machine starts
    anew; a device's number may change then, so it counts only where no birth is known.
    """
    try:
        info = os.stat(path)
    except OSError:
        return ""
    born = getattr(info, "st_birthtime_ns", None) or _born(path, info.st_ino)
    if born is None:
        born = int(getattr(info, "st_birthtime", 0) * 10**9) or None
    return f"{info.st_ino}:{info.st_dev}" if born is None else f"{info.st_ino}@{born}"


def _born(path: str, inode: int) -> int | None:
    """When it was made, in nanoseconds, where the kernel and the file system know."""
    import ctypes

    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    wanted = _STATX_INO | _STATX_BTIME
    if statx(_AT_FDCWD, os.fsencode(path), 0, ctypes.c_uint(wanted), found) != 0:
        return None
    mask = int.from_bytes(found.raw[:4], sys.byteorder)
    same = int.from_bytes(found.raw[_STATX_INO_AT : _STATX_INO_AT + 8], sys.byteorder) == inode
    if mask & wanted != wanted or not same:
        return None
    at = _STATX_BTIME_AT
    seconds = int.from_bytes(found.raw[at : at + 8], sys.byteorder, signed=True)
    return seconds * 10**9 + int.from_bytes(found.raw[at + 8 : at + 12], sys.byteorder)
