"""A skill's files as plain data, to send it to a node without an object store."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping

from skillbelt.errors import LoadError, PathEscape, RunRefused
from skillbelt.files.contain import create_beneath, make_folders, open_folder
from skillbelt.files.manifest import LocalFiles
from skillbelt.files.tree import relative_target
from skillbelt.running.staging import MAX_STAGED_BYTES

MAX_SKILLS = 500
_UNUSED_SECONDS = 3600.0
# By path: the kind of entry, whether it is executable, and its content or target.
Pack = Mapping[str, tuple[str, bool, bytes]]


def pack_skill(folder: str, fence: str = "") -> dict[str, tuple[str, bool, bytes]]:
    """Return every entry of a skill's folder; RunRefused for one that cannot be read."""
    files, room = LocalFiles(folder, fence), MAX_STAGED_BYTES
    found: dict[str, tuple[str, bool, bytes]] = {}
    for entry in files.entries():
        if entry.kind == "link":
            target = relative_target(folder, entry.path, entry.target)
            found[entry.path] = ("link", False, os.fsencode(target))
        elif entry.kind == "file":
            try:
                with files.open(entry.path, room) as file:
                    data = file.read(room + 1)
            except (LoadError, PathEscape, OSError) as error:
                raise RunRefused(f"the skill in {folder} cannot be sent: {error}") from error
            room -= len(data)
            found[entry.path] = ("file", entry.executable, data)
        else:
            found[entry.path] = ("folder", False, b"")
    return found


class SentSkills:
    """The skills that were sent to a node, each in a folder named by its hash.

    Beyond `MAX_SKILLS`, those that were not used in the last hour are removed.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._asked: dict[str, float] = {}

    def find(self, name: str, hash: str) -> str:
        """Return the folder of that version of the skill; "" when it is not here."""
        folder = self._path_of(name, hash)
        if not os.path.isdir(folder):
            return ""
        self._asked[os.path.dirname(folder)] = time.monotonic()
        return folder

    def put(self, name: str, hash: str, pack: Pack) -> str:
        """Unpack a skill; RunRefused unless it is the version of that hash."""
        place = self._path_of(name, hash)
        if os.path.isdir(place):
            return place
        parent = os.path.dirname(place)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        aside = tempfile.mkdtemp(prefix=".new-", dir=self._folder)
        try:
            inner = os.path.join(aside, os.path.basename(place))
            os.mkdir(inner, 0o755)
            _unpack(inner, pack)
            found = LocalFiles(inner).digest()
            if found != hash:
                raise RunRefused(
                    f"skill {name!r} is not what was approved: its files have the hash {found}, "
                    f"not {hash}"
                )
            try:
                os.rename(aside, parent)
            except OSError:
                if not os.path.isdir(place):  # another run has unpacked the same
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        self._remove_unused()
        return place

    def _remove_unused(self) -> None:
        before, excess = time.monotonic() - _UNUSED_SECONDS, len(self._asked) - MAX_SKILLS
        by_age = sorted(self._asked.copy().items(), key=lambda item: item[1])
        for folder, asked in by_age[: max(0, excess)]:
            if asked < before:
                self._asked.pop(folder, None)
                shutil.rmtree(folder, ignore_errors=True)

    def _path_of(self, name: str, hash: str) -> str:
        digits = hash.rpartition(":")[2]
        if not digits.isalnum() or "/" in name or name in ("", ".", ".."):
            raise RunRefused(f"skill {name!r}: {hash!r} is not the hash of a skill")
        return os.path.join(self._folder, digits, name)


def _unpack(folder: str, pack: Pack) -> None:
    handle = open_folder(folder)
    try:
        for path, (kind, executable, data) in _in_order(pack):
            if kind == "folder":
                os.close(make_folders(handle, path))
            elif kind == "link":
                parent, _, name = path.rpartition("/")
                inner = make_folders(handle, parent) if parent else os.dup(handle)
                try:
                    os.symlink(os.fsdecode(data), name, dir_fd=inner)
                finally:
                    os.close(inner)
            else:
                with open(create_beneath(handle, path, executable=executable), "wb") as file:
                    file.write(data)
    finally:
        os.close(handle)


def _in_order(pack: Pack) -> Iterator[tuple[str, tuple[str, bool, bytes]]]:
    """Yield the links last, so that no file is written through one."""
    yield from sorted(pack.items(), key=lambda item: (item[1][0] == "link", item[0]))
