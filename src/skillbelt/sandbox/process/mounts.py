"""The mounts of a job, in order, after checking that no symbolic link redirects one."""

import os
import stat
from collections.abc import Iterator

from skillbelt.errors import RunRefused
from skillbelt.sandbox.protocol import Job, Mount


def mounts_of(job: Job) -> list[Mount]:
    """Return the mounts, outer folders first. Granted paths are mounted at their own path.

    Raises RunRefused for an invalid target, and for a path through a link that a command may have
    created: the mount would follow it with the rights of the user. Granted paths may be missing.
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
            raise RunRefused(f"{mount.target[:200]!r} cannot be a place for a mount")
    if len(mounts) > 1:
        for outer in (mount for mount in mounts if mount.writable):
            for inner in mounts:
                if inner is not outer:
                    _check_nested(outer, inner)


def _check_nested(outer: Mount, inner: Mount) -> None:
    for inside, around in ((inner.source, outer.source), (inner.target, outer.target)):
        relative = _below(inside, around)
        if relative and any(stat.S_ISLNK(mode) for mode in _modes(outer.source, relative)):
            raise RunRefused(f"{inside!r} cannot be mounted: there is a link on the way")


def _below(path: str, folder: str) -> str:
    """Return the path relative to the folder; empty when it is not inside."""
    path, folder = os.path.normpath(path), os.path.normpath(folder)
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else ""


def _modes(folder: str, relative: str) -> Iterator[int]:
    """Yield the mode of each component that exists."""
    path = folder
    for name in relative.split("/"):
        path = os.path.join(path, name)
        try:
            yield os.lstat(path).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunRefused(f"{path!r} cannot be mounted: {error.strerror}") from error
