"""That a container shows what was meant: its engine follows links, with the rights of root."""

import os
import re
from collections.abc import Iterable, Iterator

from skillbelt.errors import SandboxUnavailable
from skillbelt.paths import inside
from skillbelt.sandbox.protocol import Mount

Identities = tuple[tuple[int, int], ...]
_OCTAL = re.compile(rb"\\([0-7]{3})")
_MOUNT_TABLE = "/proc/self/mountinfo"


def identities(mounts: Iterable[Mount]) -> Identities:
    """What the mounts are, whatever their names may lead to later.

    A folder that was replaced by another of the same name is another: a container that has the old
    one can not be used. Its number can not have been given away, since the container holds it.
    """
    found = []
    for mount in mounts:
        try:
            status = os.stat(mount.source)
        except OSError as error:
            raise SandboxUnavailable(
                f"{mount.source} can not be mounted: {error.strerror}"
            ) from error
        found.append((status.st_dev, status.st_ino))
    return tuple(found)


def exposed(mounts: Iterable[Mount]) -> bool:
    """Whether a mount lies in another that can be written, so that a command could move it."""
    known = list(mounts)
    return any(
        inner is not outer and inside(inner.source, outer.source)
        for outer in known
        if outer.writable
        for inner in known
    )


def with_submounts(mounts: Iterable[Mount]) -> Iterator[Mount]:
    """The mounts, and read-only each that lies below a read-only one: engines leave it writable."""
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
        # Blanks and the like stand there as octal numbers.
        yield os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), row[4]))
