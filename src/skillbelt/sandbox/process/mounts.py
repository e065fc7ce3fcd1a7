"""What a job shows inside, in the order it is mounted, and that no link can lead it astray."""

import os
import stat
from collections.abc import Iterator

from skillbelt.errors import RunRefused
from skillbelt.sandbox.protocol import Job, Mount


def mounts_of(job: Job) -> list[Mount]:
    """Outer folders first. What is granted by name is at its own place, if it is there at all.

    RunRefused for a place that can not be one, and for a way that leads over a link which a command
    may have made: whoever mounts follows it, with the rights of the user.
    """
    wanted = {mount.target: mount for mount in job.mounts}
    granted = [Mount(path, path, True) for path in job.capabilities.write]
    granted += [Mount(path, path) for path in job.capabilities.read]
    for mount in granted:
        if os.path.lexists(mount.source):
            wanted.setdefault(mount.target, mount)
    found = sorted(wanted.values(), key=lambda mount: os.path.normpath(mount.target).count("/"))
    _check(found)
    return found


def _check(mounts: list[Mount]) -> None:
    for mount in mounts:
        target = os.path.normpath(mount.target)
        if not os.path.isabs(target) or target.strip("/") == "":
            raise RunRefused(f"{mount.target[:200]!r} can not be a place for a mount")
    if len(mounts) > 1:
        for outer in (mount for mount in mounts if mount.writable):
            for inner in mounts:
                if inner is not outer:
                    _check_nested(outer, inner)


def _check_nested(outer: Mount, inner: Mount) -> None:
    for inside, around in ((inner.source, outer.source), (inner.target, outer.target)):
        relative = _below(inside, around)
        if relative and any(stat.S_ISLNK(mode) for mode in _modes(outer.source, relative)):
            raise RunRefused(f"{inside!r} can not be mounted: there is a link on the way")


def _below(path: str, folder: str) -> str:
    """The way from the folder down to the path; empty when it does not lie in there."""
    path, folder = os.path.normpath(path), os.path.normpath(folder)
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else ""


def _modes(folder: str, relative: str) -> Iterator[int]:
    """The kind of everything on the way, as far as it exists."""
    path = folder
    for name in relative.split("/"):
        path = os.path.join(path, name)
        try:
            yield os.lstat(path).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunRefused(f"{path!r} can not be mounted: {error.strerror}") from error
