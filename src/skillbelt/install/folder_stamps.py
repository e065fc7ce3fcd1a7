"""Remembers the hashes of installed folders by a stamp of everything in them.

Reading 1,000 files to learn that none was changed takes longer than all else that `sync` and
`verify` do. A stamp is made of paths, inodes, sizes, modes and both times of every entry. The
kernel sets the time of the last change of an inode, so no program can put back what it was: a file
that was written to has another stamp. What stamps do not see is a disk that loses bits, and a clock
that was set back meanwhile; `verify --full` reads every file.
"""

from __future__ import annotations

import json
import os
import time

from skillbelt.errors import PathEscape
from skillbelt.files.contain import open_file, read_handle
from skillbelt.files.manifest import TICK_NS, TreeStamp, stamp_of
from skillbelt.files.private import make_folder, replace_file
from skillbelt.files.tree import SkillTree
from skillbelt.install.content_store import StoredSkill
from skillbelt.install.hashes import FolderHashes, hash_folder
from skillbelt.install.lock_file import place_id
from skillbelt.install.values import InstallPlace
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.untrusted_json import BadJson, read_json

_MAX_BYTES = 4 * 2**20


class StampedFolder(NamedTuple):
    """A folder that was read whole: its stamp then, and the hashes."""

    stamp: str
    content_digest: str
    tree_sha: str


class FolderStamps:
    """The folders of one place. The caller holds the place while it uses them.

    With `full` nothing that is remembered counts, and what is read now is remembered.
    """

    def __init__(self, place: InstallPlace, settings: Settings, *, full: bool = False) -> None:
        self._path = os.path.join(
            settings.cache_dir, "install", "stamps", f"{place_id(place)}.json"
        )
        self._known = _read(self._path)
        self._full = full
        self._changed = False

    def hash_folder(self, folder: str, expected: StoredSkill | None) -> FolderHashes:
        """Return the hashes of a folder, without its files if it has what is expected.

        Like `hash_folder` with `partial`: SourceError for a folder that cannot be read.
        """
        started = time.time_ns()
        before = _make_stamp(folder)
        known = self._known.get(folder)
        if known and before and not self._full and known[:] == (before.text, *(expected or ())):
            return FolderHashes(
                content_digest=known.content_digest, tree_sha=known.tree_sha, files=()
            )
        hashes = hash_folder(folder, partial=True)
        settled = before and started - before.newest_ns >= TICK_NS and not hashes.problems
        # A folder that changed while it was read has another stamp now.
        if before and settled and _make_stamp(folder) == before:
            self._known[folder] = StampedFolder(
                stamp=before.text,
                content_digest=hashes.content_digest,
                tree_sha=hashes.tree_sha,
            )
            self._changed = True
        return hashes

    def save(self) -> None:
        """Write what was read, if anything was."""
        if self._changed:
            make_folder(os.path.dirname(self._path))
            rows = {name: one for name, one in self._known.items() if os.path.isdir(name)}
            replace_file(self._path, json.dumps(rows).encode())


def _make_stamp(folder: str) -> TreeStamp | None:
    try:
        with SkillTree(folder) as tree:
            return stamp_of(tree.entries())
    except (OSError, PathEscape):
        return None


def _read(path: str) -> dict[str, StampedFolder]:
    """Return the stored stamps; none if the file is missing or not valid."""
    try:
        document = read_json(read_handle(open_file(path), _MAX_BYTES))
    except (OSError, BadJson):
        return {}
    rows = document.items() if isinstance(document, dict) else ()
    return {
        name: StampedFolder(*row)
        for name, row in rows
        if isinstance(row, list) and len(row) == 3 and all(isinstance(one, str) for one in row)
    }
