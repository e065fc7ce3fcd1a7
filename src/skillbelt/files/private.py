"""Folders and files that are the user's alone, whatever the umask: state, cache, settings, logs.

What is made here is 0700 or 0600, and so is every folder above it that has to be made. A folder
that was there before must be the user's (or root's), and no other user may put things into it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from skillbelt.files.contain import FOLLOW_FOLDER, NEW_FILE_TO_READ


def make_folder(path: str) -> None:
    """See that the folder is there, and that only its owner can write to it.

    One of ours that others may write to is mended, which is said once. PermissionError, with what
    to do, for a folder of another user.
    """
    path = os.path.abspath(path)
    try:
        info = os.stat(path)
    except FileNotFoundError:
        _make(path)
        info = os.stat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder; remove it", path)
    if info.st_uid not in (os.geteuid(), 0):
        reason = f"belongs to another user (uid {info.st_uid}); remove it, or set another folder"
        raise PermissionError(errno.EPERM, reason, path)
    # Where only owners may rename, as in /tmp, what is ours stays ours.
    if info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
        _mend(path)


def create_file(path: str) -> None:
    """See that there is a file, which nobody else can read if it is made now."""
    with suppress(FileExistsError):
        os.close(os.open(path, NEW_FILE_TO_READ, 0o600))


def _make(path: str) -> None:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _make(parent)
    with suppress(FileExistsError):  # another was quicker
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # a umask may also take too much


def _mend(path: str) -> None:
    handle = os.open(path, FOLLOW_FOLDER)
    try:
        info = os.fstat(handle)
        if info.st_uid != os.geteuid():
            reason = "can be written by other users; remove it, or set another folder"
            raise PermissionError(errno.EPERM, reason, path)
        os.fchmod(handle, stat.S_IMODE(info.st_mode) & ~0o022)
    finally:
        os.close(handle)
    import logging

    logging.getLogger("skillbelt").warning(
        "%s could be written by other users; now it can not. Look at what is in it.", path
    )
