"""Check the mounts of a container: the engine follows links, with the rights of root."""

import os
import re
from collections.abc import Iterable, Iterator

from skillbelt.errors import PathEscape, RunRefused, SandboxUnavailable
from skillbelt.files.contain import FOLLOW_PATH, inside, open_beneath, open_folder
from skillbelt.sandbox.protocol import Mount

Identities = tuple[tuple[int, int], ...]
_OCTAL = re.compile(rb"\\([0-7]{3})")
_MOUNT_TABLE = "/proc/self/mountinfo"


def identities(mounts: Iterable[Mount]) -> Identities:
    """Return device and inode of each mount.

    A container whose folder was replaced by another of the same name cannot be reused. The inode
    number is not reused either, because the container still holds the old folder.
    """
    known = list(mounts)
    return tuple(_identity(mount, _writable_parent(mount, known)) for mount in known)


def _writable_parent(mount: Mount, known: list[Mount]) -> str:
    """Return the outermost writable mount around it; empty without one."""
    path = os.path.normpath(mount.source)
    folders = [os.path.normpath(other.source) for other in known if other.writable]
    return min((folder for folder in folders if path.startswith(f"{folder}/")), default="", key=len)


def _identity(mount: Mount, around: str) -> tuple[int, int]:
    try:
        if not around:
            found = os.stat(mount.source)
        else:
            found = _stat_beneath(around, os.path.normpath(mount.source)[len(around) + 1 :])
    except PathEscape as error:
        raise RunRefused(f"{mount.source!r} cannot be mounted: it is behind a link") from error
    except OSError as error:
        raise SandboxUnavailable(f"{mount.source} cannot be mounted: {error.strerror}") from error
    return found.st_dev, found.st_ino


def _stat_beneath(folder: str, relative: str) -> os.stat_result:
    """Stat a path below the folder, without following links that a command could have made."""
    above = open_folder(folder)
    try:
        handle = open_beneath(above, relative, FOLLOW_PATH)
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)
    finally:
        os.close(above)


def exposed(mounts: Iterable[Mount]) -> bool:
    """Whether a mount is inside a writable one, so that a command could replace it."""
    known = list(mounts)
    return any(
        inner is not outer and inside(inner.source, outer.source)
        for outer in known
        if outer.writable
        for inner in known
    )


def with_submounts(mounts: Iterable[Mount]) -> Iterator[Mount]:
    """Add a read-only mount for each mount point below a read-only mount: engines skip those."""
    known = list(mounts)
    places = {os.path.normpath(mount.target) for mount in known}
    yield from known
    below = list(_mount_points())
    for mount in (one for one in known if not one.writable):
        source = os.path.realpath(mount.source)
        for point in below:
            target = os.path.normpath(mount.target + point[len(source) :])
            if point.startswith(f"{source}/") and target not in places:
                yield Mount(point, target)


def _mount_points() -> Iterator[str]:
    try:
        with open(_MOUNT_TABLE, "rb") as lines:
            rows = [line.split() for line in lines]
    except OSError:
        return
    for row in rows:
        # Blanks are escaped as octal numbers.
        yield os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), row[4]))
