"""The store of fetched skills, keyed by content, in a folder that is never searched for skills.

A folder is hashed again on each use, and discarded if it changed. When the store
is full, the least recently used goes first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from skillbelt.errors import PathEscape, RunRefused, SkillbeltError, SourceError
from skillbelt.files.contain import READ_FOLDER, open_folder
from skillbelt.files.manifest import MAX_MANIFEST_BYTES
from skillbelt.files.private import make_folder
from skillbelt.files.remove import remove_tree
from skillbelt.files.tree import MAX_MANIFEST_FILES, SkillTree, is_skill_file
from skillbelt.files.tree_copy import TreeCopy
from skillbelt.install.hashes import FolderHashes, hash_folder
from skillbelt.install.lock_file import NotWritable
from skillbelt.objects.cache import kept_folder
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.text import Lazy

MAX_STORE_BYTES = 2**30
_SKILL = "skill"
_YOUNG_SECONDS = 600.0
_REFRESH = Lazy(r"(?:, then| with) `skillbelt refresh`")
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS))


class StoredSkill(NamedTuple):
    """The key of a skill in the store: its content, with modes and links."""

    content_digest: str
    tree_sha: str

    @property
    def digits(self) -> str:
        """The name of its folder."""
        return f"{self.content_digest.removeprefix('sha256:')}-{self.tree_sha}"


def store_folder(settings: Settings) -> str:
    """Return the folder of the store."""
    return os.path.join(settings.cache_dir, "install", "skills")


@contextmanager
def incoming(settings: Settings) -> Iterator[str]:
    """Yield a new private folder to fetch into, which is removed at the end of the block.

    Those that killed processes left are removed first.
    """
    above = os.path.join(settings.cache_dir, "install", "incoming")
    folder = os.path.join(above, os.urandom(8).hex())
    try:
        make_folder(above)
        _remove_abandoned(above)
        os.mkdir(folder, 0o700)
        handle = os.open(folder, READ_FOLDER)
    except OSError as error:
        raise NotWritable(above, error, "XDG_CACHE_HOME") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # the process that fetches into it lives
        yield folder
    finally:
        remove_tree(folder)
        os.close(handle)


def _remove_abandoned(above: str) -> None:
    """Remove folders that no process holds; a young one may be about to be held."""
    for name in os.listdir(above):
        path = os.path.join(above, name)
        with suppress(FileNotFoundError, NotADirectoryError, BlockingIOError):
            handle = os.open(path, READ_FOLDER)
            try:
                if time.time() - os.fstat(handle).st_mtime > _YOUNG_SECONDS:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(path)
            finally:
                os.close(handle)


def keep_skill(folder: str, settings: Settings, source: str = "") -> StoredSkill:
    """Copy a skill's folder into the store; SourceError for one that cannot be installed.

    `source` is what the error names in place of the folder.
    """
    try:
        hashes = hash_folder(folder)
        check_installable(folder, hashes)
    except SourceError as error:
        raise SourceError(source or folder, error.reason) from error
    stored = StoredSkill(hashes.content_digest, hashes.tree_sha)
    with stored_skill(stored, settings, lambda: folder):
        return stored


def check_installable(folder: str, hashes: FolderHashes) -> None:
    """Raise SourceError for a folder that has no SKILL.md."""
    found = [file for file in hashes.files if is_skill_file(file.path)]
    if not found:
        raise SourceError(folder, "has no SKILL.md")
    if any(file.kind == "link" for file in found):
        raise SourceError(folder, "its SKILL.md is a link")


@contextmanager
def stored_skill(
    stored: StoredSkill,
    settings: Settings,
    fetch: Callable[[], str],
    *,
    most: int = MAX_STORE_BYTES,
    name: str = _SKILL,
) -> Iterator[str]:
    """Yield the folder of a stored skill, which stays until the end of the block.

    `fetch` returns a folder to copy it from if the store lacks it. SourceError if that holds
    something else. `name` is the folder's name, for readers that take the skill's name from it.
    """

    def fill(path: str) -> None:
        source = fetch()
        copy_skill(source, path)
        if not _is_whole(path, stored):
            remove_tree(path)
            raise SourceError(
                "its source", f"has other content than the lock, {stored.content_digest}"
            )

    with kept_folder(
        store_folder(settings),
        stored.digits,
        name,
        fetch=fill,
        is_whole=lambda path: _is_whole(path, stored),
        most=most,
    ) as path:
        yield path


def has_skill(stored: StoredSkill, settings: Settings) -> bool:
    """Whether the store has the complete skill."""
    return _is_whole(os.path.join(store_folder(settings), stored.digits, _SKILL), stored)


def _is_whole(path: str, stored: StoredSkill) -> bool:
    try:
        hashes = hash_folder(path)
    except SourceError:
        return False
    return (hashes.content_digest, hashes.tree_sha) == stored


def remedy_of(error: SkillbeltError) -> str:
    """Return what to do about an error of an installation.

    The advice of every SourceError is about the sources of the catalogue, and so is `refresh`.
    """
    return "" if error.remedy == SourceError.remedy else _REFRESH.sub("", error.remedy)


def explain_system(error: OSError, folder: str = "") -> tuple[str, str]:
    """Return the message of an operating-system error, with its path, and a remedy."""
    named = error.filename or folder
    where = f"{named}: " if named else ""
    remedy = "make room on its disk" if error.errno in _NO_ROOM else "check the path"
    return f"{where}{error.strerror or error}", f"{remedy}, then run the command again"


def copy_skill(source: str, target: str) -> None:
    """Copy a skill's folder to a new one; SourceError for what may not be copied.

    Only the contents, the links inside and the executable bits are taken over.
    """
    os.mkdir(target, 0o755)
    copy = TreeCopy(
        what=source,
        most_bytes=MAX_MANIFEST_BYTES,
        most_entries=MAX_MANIFEST_FILES,
        root=source,
        give=lambda handle: None,
    )
    handle = open_folder(target)
    try:
        os.fchmod(handle, 0o755)
        with SkillTree(source, source) as tree:
            copy.fill_from(tree, handle, shadowed=())
    except (RunRefused, PathEscape) as error:
        number = getattr(error.__cause__, "errno", 0)
        if number in _NO_ROOM:
            raise OSError(number, os.strerror(number), target) from error
        raise SourceError(source, str(error)) from error
    finally:
        os.close(handle)
