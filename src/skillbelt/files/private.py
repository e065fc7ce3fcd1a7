"""Private folders and files, independent of the umask: state, cache, settings, logs.

New folders have mode 0700 and new files 0600, as do missing parents. An existing folder must belong
to the user or to root, and no other user may be able to write to it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from skillbelt.errors import log_warning
from skillbelt.files.contain import FOLLOW_FOLDER, NEW_FILE, NEW_FILE_TO_READ


def make_folder(path: str) -> None:
    """Create the folder if it is missing, and make sure that only its owner can write to it.

    A folder of ours that others can write to is fixed, with a warning in the log. PermissionError,
    with the remedy, for a folder of another user.
    """
    try:
        info = os.stat(path)
    except FileNotFoundError:
        _create_folder(os.path.abspath(path))
        info = os.stat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder; remove it", path)
    if info.st_uid not in (os.geteuid(), 0):
        reason = f"belongs to another user (uid {info.st_uid}); remove it, or set another folder"
        raise PermissionError(errno.EPERM, reason, path)
    # With the sticky bit, as in /tmp, others cannot replace our entries.
    if info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
        _remove_write_bits(path)


def create_file(path: str) -> None:
    """Create the file with mode 0600 if it is missing."""
    with suppress(FileExistsError):
        os.close(os.open(path, NEW_FILE_TO_READ, 0o600))


def replace_file(path: str, data: bytes, *, mode: int = 0o600) -> None:
    """Put a new file in the place of the old one; the caller holds a lock.

    A process that is killed meanwhile leaves either the old file or the new one.
    """
    part = part_of(path)
    # A writer that was killed left it; the caller holds the lock, so no other writer is active.
    with suppress(FileNotFoundError):
        os.unlink(part)
    handle = os.open(part, NEW_FILE, mode)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.rename(part, path)
    except BaseException:
        os.unlink(part)
        raise


def part_of(path: str) -> str:
    """Return the path of what `replace_file` did not finish; the holder of the lock may drop it."""
    return f"{path}.part"


def is_missing(path: str) -> bool:
    """Whether nothing exists at the path; OSError when that cannot be determined."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    return False


def _create_folder(path: str) -> None:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _create_folder(parent)
    with suppress(FileExistsError):  # another process was faster
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # the umask may remove bits of ours


def _remove_write_bits(path: str) -> None:
    handle = os.open(path, FOLLOW_FOLDER)
    try:
        info = os.fstat(handle)
        if info.st_uid != os.geteuid():
            reason = "can be written by other users; remove it, or set another folder"
            raise PermissionError(errno.EPERM, reason, path)
        os.fchmod(handle, stat.S_IMODE(info.st_mode) & ~0o022)
    finally:
        os.close(handle)
    log_warning(f"{path} was writable by other users; that is fixed. Check what is in it.")
