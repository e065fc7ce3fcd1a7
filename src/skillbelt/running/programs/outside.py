"""Programs of the user outside the system's folders: which ones runs see, and which files of them.

Only programs of the table are looked up, on the user's own PATH. Of each, only the files that it
needs are shown, and no private folder or parent of one. An unknown program is not shown: the
setting `program_folders` lets a user allow more.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from typing import NamedTuple

from skillbelt.files.contain import inside
from skillbelt.running.programs.table import LOOKED_FOR
from skillbelt.sandbox.linux.identity import blocking_folder, current_identity, in_system
from skillbelt.sandbox.linux.python_files import holds_private, private_folders

# The entries of a folder that holds only a Node.js.
_NODE = {"bin", "include", "lib", "share", "README.md", "LICENSE", "CHANGELOG.md"}
_BREWS = ("/opt/homebrew", "/home/linuxbrew/.linuxbrew", "/usr/local")
# The rest of a Homebrew holds the data and the configuration of services.
_BREW_PARTS = ("bin", "sbin", "Cellar", "Caskroom", "opt", "lib", "libexec", "share", "Frameworks",
               "etc/ca-certificates", "etc/openssl@3/cert.pem", "etc/openssl@3/certs",
               "etc/openssl@3/openssl.cnf", "etc/fonts")  # fmt: skip
_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_STORE, _OPTIONAL, _APPLICATIONS = "/nix/store", "/opt/", "/Applications/"


class Outside(NamedTuple):
    """The programs, by name and real path, and the files and folders that have to be shown."""

    links: tuple[tuple[str, str], ...] = ()
    shown: tuple[str, ...] = ()


def find_outside(path: str, project: str) -> Outside:
    """Return the programs of that PATH that are not in the system's folders.

    Programs of the project are left out, and those that the user of commands cannot read.
    """
    brought = "" if inside(os.path.expanduser("~"), project or ".") else project
    links: dict[str, str] = {}
    shown: dict[str, None] = {}
    seen: set[str] = set()
    private = private_folders()
    for folder in filter(os.path.isabs, path.split(os.pathsep)):
        try:
            names = LOOKED_FOR.intersection(os.listdir(folder)) - seen
        except OSError:
            continue
        seen |= names
        if _is_of_system(f"{folder}/") or (brought and inside(folder, brought)):
            continue
        for name in sorted(names):
            real = os.path.realpath(os.path.join(folder, name))
            theirs = brought and inside(real, brought)  # a link may lead there
            parts = () if theirs or _is_of_system(real) else _needed_paths(real)
            if not parts or not os.access(real, os.X_OK):
                continue
            if all(_may_show(part, private) for part in (real, *parts)):
                links[name] = real
                shown |= dict.fromkeys(parts)
    return Outside(tuple(sorted(links.items())), tuple(_outermost(shown)))


def folder_of_programs(path: str) -> tuple[str, str]:
    """Return the folder of the setting to show, and its part to put on the PATH.

    ValueError for a folder that cannot be shown.
    """
    real = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(real):
        raise ValueError("there is no such folder")
    if real == "/" or holds_private(real, private_folders()):
        raise ValueError("it is or holds your home folder or other private files")
    if blocking_folder(os.path.join(real, "x")) is not None:
        raise ValueError(
            f"the user that runs commands (uid {current_identity().uid}) cannot read it"
        )
    below = os.path.join(real, "bin")
    return real, below if os.path.isdir(below) else real


def _is_of_system(path: str) -> bool:
    # macOS itself has nothing in /usr/local.
    return in_system(path) and not (sys.platform == "darwin" and path.startswith("/usr/local/"))


def _needed_paths(real: str) -> tuple[str, ...]:
    """Return the folders and files that the program needs; none for an unknown program."""
    if inside(real, _STORE):
        return (_STORE,)
    for brew in _BREWS:
        if inside(real, brew) and os.path.isdir(os.path.join(brew, "Cellar")):
            parts = (os.path.join(brew, part) for part in _BREW_PARTS)
            return tuple(part for part in parts if os.path.exists(part))
    for above in (_OPTIONAL, _APPLICATIONS):
        if real.startswith(above):
            folder = above + real[len(above) :].partition("/")[0]
            return (folder,) if folder != real and _only_root_can_write(real) else ()
    prefix = _node_prefix(real)
    return (prefix,) if prefix else (real,) if _is_binary(real) else ()


def _node_prefix(real: str) -> str:
    """Return the separate folder of the Node.js that has the program; "" without one."""
    for depth in (2, 5):  # P/bin/node, P/lib/node_modules/npm/bin/npm-cli.js
        prefix = "/".join(real.split("/")[:-depth])
        try:
            if prefix and "node" in os.listdir(f"{prefix}/bin"):
                return prefix if set(os.listdir(prefix)) <= _NODE else ""
        except OSError:
            continue
    return ""


def _is_binary(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) in _MAGIC
    except OSError:
        return False


def _may_show(path: str, private: frozenset[str]) -> bool:
    """Whether no other user can change it, runs can read it, and nothing private is in it."""
    if holds_private(path, private) or blocking_folder(path) is not None:
        return False
    owners = {0, os.getuid()}
    for one in (path, *_parents_of(path)):
        found = os.stat(one)
        shared = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in owners or shared:
            return False
    return _is_readable(os.stat(path))


def _is_readable(found: os.stat_result) -> bool:
    return current_identity().uid == found.st_uid or bool(found.st_mode & stat.S_IROTH)


def _only_root_can_write(path: str) -> bool:
    return all(os.stat(one).st_uid == 0 for one in (path, *_parents_of(path)))


def _parents_of(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _outermost(paths: dict[str, None]) -> Iterator[str]:
    for path in sorted(paths):
        if not any(other != path and inside(path, other) for other in paths):
            yield path
