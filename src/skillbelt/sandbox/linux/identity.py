"""The user that a sandbox runs as (never root), and the Python that it can use."""

import os
import stat
import sys
from functools import lru_cache
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.linux.python_files import shown_of

# Unused by default: it needs no entry in a passwd file, and should have none.
RUN_ID = 62_000
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
_TRUSTED_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin")


class Identity(NamedTuple):
    """The user and the group that a command runs as."""

    uid: int
    gid: int


class Python(NamedTuple):
    """A Python that can be run inside, and the paths it needs there, the same as outside.

    `folders` are folders, and single files of folders that hold more than a Python.
    """

    path: str
    folders: tuple[str, ...] = ()


def run_identity() -> Identity | None:
    """Return the user to become before a command runs; None when we are an ordinary user.

    SandboxUnavailable for root in a user namespace without such a user.
    """
    if 0 not in (os.getuid(), os.geteuid()):
        return None
    if not _known_here(RUN_ID):
        raise SandboxUnavailable(
            f"commands are never run as root, and this root is one of a user namespace in which "
            f"there is no uid {RUN_ID} to become; start as an ordinary user, or map that uid"
        )
    return Identity(RUN_ID, RUN_ID)


@lru_cache(maxsize=1)
def _known_here(number: int) -> bool:
    """Whether the user namespace maps this user and group."""
    return all(_is_mapped(f"/proc/self/{kind}_map", number) for kind in ("uid", "gid"))


def _is_mapped(path: str, number: int) -> bool:
    try:
        with open(path, encoding="ascii") as file:
            rows = [[int(word) for word in line.split()] for line in file]
    except OSError:
        return True  # a system without user namespaces
    return any(first <= number < first + count for first, _, count in rows)


def current_identity() -> Identity:
    """Return the user of a command, as seen inside."""
    return run_identity() or Identity(os.getuid(), os.getgid())


@lru_cache(maxsize=32)
def trusted_program(name: str) -> str | None:
    """Return the absolute path of a system program that only root can have installed."""
    for folder in _TRUSTED_FOLDERS:
        path = os.path.realpath(os.path.join(folder, name))
        if os.path.isfile(path) and os.access(path, os.X_OK) and _only_root_writes(path):
            return path
    return None


def _only_root_writes(path: str) -> bool:
    while True:
        found = os.stat(path)
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def blocking_folder(path: str, identity: Identity | None = None) -> str | None:
    """Return the first folder above the path that the identity cannot search; None if none."""
    identity = identity or current_identity()
    parts = os.path.abspath(path).split("/")[1:]
    for count in range(len(parts)):
        folder = "/" + "/".join(parts[:count])
        try:
            if not _may(os.stat(folder), identity, stat.S_IXOTH):
                return folder
        except OSError:
            return folder
    return None


def _may(found: os.stat_result, identity: Identity, bit: int) -> bool:
    if found.st_uid == identity.uid:
        return bool(found.st_mode & (bit << 6))
    if found.st_gid == identity.gid:
        return bool(found.st_mode & (bit << 3))
    return bool(found.st_mode & bit)


@lru_cache(maxsize=4)
def interpreter(identity: Identity | None = None) -> Python | None:
    """Return the Python for commands: ours if the identity can read it, else the system's; or None.

    Ours means the base of a virtual environment: the packages of the runtime are not for skills.
    Ours is not used where mounting it would expose private files: see `shown_of`.
    """
    identity = identity or current_identity()
    ours = os.path.realpath(sys.executable) if sys.executable else ""
    if in_system(ours):
        return Python(ours)
    if ours and _is_readable(ours, identity) and _is_readable(sys.base_prefix, identity):
        shown = shown_of(ours, sys.base_prefix)
        if shown and all(_is_readable(path, identity) for path in shown):
            return Python(ours, shown)
    system = trusted_program("python3")
    return Python(system) if system else None


def in_system(path: str) -> bool:
    """Whether the path is in a folder that every sandbox shows."""
    return path.startswith(tuple(f"{folder}/" for folder in SYSTEM_FOLDERS))


def _is_readable(path: str, identity: Identity) -> bool:
    if blocking_folder(path, identity) is not None:
        return False
    found = os.stat(path)
    library = stat.S_ISREG(found.st_mode) and ".so" in os.path.basename(path)
    bits = (stat.S_IROTH,) if library else (stat.S_IROTH, stat.S_IXOTH)
    return all(_may(found, identity, bit) for bit in bits)
