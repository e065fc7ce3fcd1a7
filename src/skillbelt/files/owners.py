"""The owner of a file and the identity of a folder, which a path alone does not give."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping

from skillbelt.files.contain import load_ctypes

_STATX_BYTES = 256
_AT_FDCWD = -100
_STATX_INO, _STATX_BTIME = 0x100, 0x800
_STATX_INO_AT, _STATX_BTIME_AT = 32, 80


def stranger(path: str, environ: Mapping[str, str]) -> str:
    """Return the name of another user who owns the path; "" if the user, root or no one does.

    Under sudo the user who called it counts as the owner too.
    """
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return ""
    return "" if owner in _own_uids(environ) else _name(owner)


def _own_uids(environ: Mapping[str, str]) -> set[int]:
    me = os.geteuid()
    before = environ.get("SUDO_UID", "") if me == 0 else ""
    return {0, me, int(before)} if before.isascii() and before.isdigit() else {0, me}


def _name(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} (uid {user})"
    except (KeyError, OverflowError):
        return f"uid {user}"


def folder_identity(path: str) -> str:
    """Return a text that tells this folder from any later one at its path; "" when it is gone.

    Uses the inode and the birth time, which cannot be set and survive a reboot. The device number
    may change on reboot, so it is used only where the birth time is unknown.
    """
    try:
        info = os.stat(path)
    except OSError:
        return ""
    born = getattr(info, "st_birthtime_ns", None) or _birth_ns(path, info.st_ino)
    if born is None:
        born = int(getattr(info, "st_birthtime", 0) * 10**9) or None
    return f"{info.st_ino}:{info.st_dev}" if born is None else f"{info.st_ino}@{born}"


def _birth_ns(path: str, inode: int) -> int | None:
    """Return the birth time in nanoseconds; None where the file system does not keep it."""
    ctypes = load_ctypes()
    statx = ctypes and getattr(ctypes.CDLL(None), "statx", None)
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
