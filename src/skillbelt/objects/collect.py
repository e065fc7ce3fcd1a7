"""Garbage collection in an object store, while other machines write to it.

A tree is kept while a name refers to it or it is young; a blob is kept while a tree refers to it or
it is young. Young is less than GRACE_SECONDS old. A writer that needs an object which is half as
old and not referred to writes another copy of it, under a new name. So an object that a
machine is about to refer to is never removed, and no machine needs a lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from skillbelt.errors import ObjectError, log_warning
from skillbelt.objects.blobs import (
    GRACE_SECONDS,
    SKILL_SECONDS,
    Blobs,
    ListedObject,
    blob_path,
    digits_of,
)
from skillbelt.objects.space import Objects
from skillbelt.objects.tree import TreeLimits, decode_tree
from skillbelt.untrusted_json import read_json

# Names not renewed for this long: of conversations that are gone without being deleted.
NAME_SECONDS = 30 * 24 * 3600.0
_ANY = TreeLimits(max_bytes=2**62, max_entries=2_000_000)
_MAX_RECORD = 4096


class CollectedObjects(NamedTuple):
    """The totals of a collection: removed names and texts, trees and blobs, and their bytes."""

    names: int = 0
    trees: int = 0
    blobs: int = 0
    size: int = 0


def collect(
    objects: Objects, *, name_seconds: float = NAME_SECONDS, skill_seconds: float = SKILL_SECONDS
) -> CollectedObjects:
    """Remove old names and texts, then the trees and blobs that nothing refers to.

    Return what was removed. Raises ObjectsAway; the rest is removed by the next collection.
    """
    total = CollectedObjects()
    for space in objects.spaces():
        skills = space.prefix == objects.skills.prefix
        keep = max(skill_seconds, GRACE_SECONDS) if skills else GRACE_SECONDS
        found = _collect(space, name_seconds, keep)
        total = CollectedObjects(*map(sum, zip(total, found, strict=True)))
    packages = objects.packages
    for one in [*packages.walk("wheels"), *packages.walk("archives")]:
        # A machine that misses one fetches it from its index, and stores it here again.
        if one.age > skill_seconds and _remove(packages, one.path, skill_seconds):
            total = total._replace(blobs=total.blobs + 1, size=total.size + one.size)
    for one in list(objects.deleted.walk("")):
        if one.age > name_seconds and _remove(objects.deleted, one.path, name_seconds):
            total = total._replace(names=total.names + 1, size=total.size + one.size)
    return total


def _collect(space: Blobs, name_seconds: float, tree_seconds: float) -> CollectedObjects:
    # Names before trees, and trees before blobs, the reverse of the order of writing: the tree of a
    # name that was seen is in the list of trees, and what is written later is young.
    listed = [*space.walk("names"), *space.walk("texts")]
    old = [one for one in listed if one.age > name_seconds]
    names = [one for one in listed if one.age <= name_seconds and one.path.startswith("names")]
    named = {_tree_of(space, name) for name in names}
    trees = {one.path: one for one in sorted(space.walk("trees"), key=lambda one: -one.age)}
    newest = {path.rpartition("/")[0]: path for path in trees}
    kept = {newest.get(folder) for folder in named}
    unused = [one for path, one in trees.items() if path not in kept and one.age > tree_seconds]
    for tree in unused:
        del trees[tree.path]
    used = {blob for path in trees for blob in _blobs_of(space, path)}
    gone = [one for one in space.walk("blobs") if one.path not in used and one.age > GRACE_SECONDS]
    # Trees before blobs, so that no tree is left without its blobs.
    done = [
        [one for one in ones if _remove(space, one.path, seconds)]
        for ones, seconds in ((old, name_seconds), (unused, tree_seconds), (gone, GRACE_SECONDS))
    ]
    size = sum(one.size for ones in done for one in ones)
    return CollectedObjects(len(done[0]), len(done[1]), len(done[2]), size)


def _remove(space: Blobs, path: str, seconds: float) -> bool:
    """Remove an object if it is still as old: a name may have been renewed meanwhile."""
    found = space.stat(path)
    if found is None or found.age <= seconds:
        return False
    space.delete(path)
    return True


def _tree_of(space: Blobs, name: ListedObject) -> str:
    """Return the folder of the tree that a name refers to; "" if it refers to none."""
    try:
        data = space.read(name.path, _MAX_RECORD)
        digits = digits_of(str(read_json(data or b"{}").get("tree", "")))
    except (ValueError, AttributeError, ObjectError) as error:
        _raise_unless_damaged(error)
        return ""
    return f"trees/{digits[:2]}/{digits[2:]}"


def _blobs_of(space: Blobs, path: str) -> Iterator[str]:
    """Yield the paths of the blobs of a tree. A tree that cannot be read refers to none."""
    try:
        tree = decode_tree(space.read(path, _ANY.list_bytes) or b"", _ANY)
    except ObjectError as error:
        _raise_unless_damaged(error)
        log_warning(f"{space.prefix}{path} is not the list of a tree, and keeps nothing: {error}")
        return
    yield from map(blob_path, tree.blobs)


def _raise_unless_damaged(error: Exception) -> None:
    """Re-raise the error of a store that is away: no answer is not a reason to remove anything."""
    if isinstance(error, ObjectError) and type(error) is not ObjectError:
        raise error
