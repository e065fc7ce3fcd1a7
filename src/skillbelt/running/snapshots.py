"""Snapshots of workspaces in the object store, so that any machine can continue a conversation.

A snapshot is a tree of the folders that runs write to, with the pins of artifacts as a fact of it.
Staged copies of skills are not in it: their digests are, and the next run stages them again.

    <tenant>/names/workspaces/<name>/<number>    the digest of the tree; the highest number counts
    <workspace>/snapshot.json                    the last snapshot, and the stat of each file
    deleted/<prefix>                             mark: the conversation was deleted

Only changes are read and sent. A number can be claimed once: a machine that was thought dead cannot
replace what another one has written since.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from skillbelt.errors import ObjectDamaged, ObjectError, PathEscape
from skillbelt.files.contain import NEW_FILE, READ_FILE, READ_FOLDER, read_handle
from skillbelt.files.remove import remove_tree
from skillbelt.files.tree import SkillTree, TreeEntry, TreeRules
from skillbelt.files.tree_copy import handles, swap
from skillbelt.objects.blobs import GRACE_SECONDS, Blobs
from skillbelt.objects.pack import PACK_BYTES, SMALL_BYTES, PackRules, pack_tree, put_list
from skillbelt.objects.space import Objects
from skillbelt.objects.tree import StoredEntry, StoredTree, TreeLimits, decode_tree, paths_of
from skillbelt.objects.unpack import read_tree, unpack_tree
from skillbelt.running.cleanup import Cleaned, last_uses, retire
from skillbelt.running.workspace import (
    INPUTS,
    PREFIX_DIGITS,
    PRIVATE,
    WRITABLE,
    Pin,
    Workspace,
    name_of,
    places,
    prefix_of,
)
from skillbelt.store.protocol import SessionKey
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

_LIMITS = Limits()
_NAMES = "names/workspaces"
_STATE = "snapshot.json"
_DIGITS = 19  # so that names sort like numbers
_MAX_RECORD = 4096
# Two changes this close to each other may have the same time; such a file is read again.
_FRESH_NS = 100_000_000
_MANY_PACKS = 32
_PINS, _STAGED = "pins", "staged"


class WorkspaceSnapshot(NamedTuple):
    """A snapshot of a workspace. `digest` is that of its tree, `number` counts from 1.

    `sent` are the bytes that were not in the store yet. `left_out` are pipes, sockets and devices.
    `skills` are the digests of the skills that were staged, by name.
    """

    digest: str
    number: int
    files: int
    size: int
    sent: int = 0
    left_out: tuple[str, ...] = ()
    skills: Mapping[str, str] = {}


class _State(NamedTuple):
    """The state after the last snapshot or restoration on this machine."""

    prefix: str
    digest: str
    number: int
    tree: StoredTree
    stamps: Mapping[str, list[int]]


class _Record(NamedTuple):
    number: int
    digest: str
    by: str
    age: float = 0.0


def snapshot(
    workspace: Workspace,
    objects: Objects,
    key: SessionKey,
    *,
    project: str = "",
    limits: Limits = _LIMITS,
) -> WorkspaceSnapshot:
    """Put the files of the workspace into the store; return the snapshot to restore it from.

    Raises ObjectError when a file cannot be stored, ObjectsAway, and ObjectError when another
    machine has written a snapshot that this workspace does not derive from.
    """
    space, name = objects.tenant(key), name_of(key, None, project)
    bounds = _bounds(limits)
    last, state = _latest(space, name), _read_state(workspace, space, bounds)
    if last is None:
        state = None  # there was one, and its conversation was deleted or forgotten
    elif state is None or (state.number, state.digest) != (last.number, last.digest):
        raise _conflict(workspace)
    metadata = workspace.metadata()
    facts = {
        _PINS: {to: list(pin) for to, pin in metadata.pins.items()},
        _STAGED: {name: stage.hash for name, stage in metadata.staged.items()},
    }
    marked = workspace.mark_time()
    earlier = _drop_scattered(state.tree) if state else None
    reader = _Reader(earlier, state.stamps if state else {})
    rules = PackRules(
        what=f"the workspace {workspace.path}",
        limits=bounds,
        runner=os.geteuid() if workspace.owner is None else workspace.owner[0],
        earlier=earlier,
        reuse=reader.reuse,
        facts=facts,
    )
    with _open(workspace, bounds) as tree:
        packed = pack_tree(space, tree, rules)
    if last and packed.tree.digest() == last.digest:
        digest, number = last.digest, last.number
        if last.age > GRACE_SECONDS / 2:
            _write_record(space, name, last)  # otherwise `collect` removes it as forgotten
    else:
        digest, number = put_list(space, packed.tree), (last.number if last else 0) + 1
        _claim(workspace, space, name, _Record(number, digest, os.urandom(8).hex()))
    kept = {path: one for path, one in reader.seen.items() if one[1] < marked - _FRESH_NS}
    _write_state(
        workspace,
        _State(prefix=space.prefix, digest=digest, number=number, tree=packed.tree, stamps=kept),
    )
    made = _describe(digest, number, packed.tree)
    return made._replace(sent=packed.sent, left_out=packed.left_out)


def restore(
    workspace: Workspace,
    objects: Objects,
    key: SessionKey,
    *,
    project: str = "",
    limits: Limits = _LIMITS,
) -> WorkspaceSnapshot | None:
    """Restore the content of the last snapshot; None when there is none.

    A workspace that the last snapshot was made from stays as it is. Any other content is replaced,
    all or nothing. Raises ObjectError, also while a command runs in it.
    """
    space, name = objects.tenant(key), name_of(key, None, project)
    bounds = _bounds(limits)
    last, state = _latest(space, name), _read_state(workspace, space, bounds)
    if last is None:
        deleted = state is not None and objects.deleted.stat(prefix_of(key)) is not None
        if deleted and not workspace.has_others():
            _clear(workspace, space)
        return None
    if state and (state.number, state.digest) == (last.number, last.digest):
        return _describe(last.digest, last.number, state.tree)
    if workspace.has_others():
        raise ObjectError(f"a command runs in {workspace.path}: it cannot be restored meanwhile")
    tree = read_tree(space, last.digest, "exact", bounds)
    pins = _check_content(tree, last.digest)
    _replace_content(workspace, space, tree)
    with workspace.locked() as metadata:
        metadata.pins.clear()
        metadata.pins.update(pins)
    _write_state(
        workspace,
        _State(prefix=space.prefix, digest=last.digest, number=last.number, tree=tree, stamps={}),
    )
    return _describe(last.digest, last.number, tree)


def _clear(workspace: Workspace, space: Blobs) -> None:
    """Remove the files of a conversation that another machine deleted: this is a new one."""
    _replace_content(workspace, space, StoredTree("exact", (), ()))
    os.close(workspace.make_folders(INPUTS))
    with workspace.locked() as metadata:
        metadata.pins.clear()


def latest_snapshot(
    objects: Objects, key: SessionKey, *, project: str = ""
) -> tuple[str, int] | None:
    """Return the digest and the number of the last snapshot; None when there is none."""
    found = _latest(objects.tenant(key), name_of(key, None, project))
    return (found.digest, found.number) if found else None


def forget_snapshots(objects: Objects, key: SessionKey) -> int:
    """Remove the names of a conversation's snapshots, in all projects; return how many.

    `skillbelt.objects.collect` later removes the data that only they referred to.
    """
    space, gone = objects.tenant(key), 0
    for found in list(space.walk(_NAMES)):
        if found.path.startswith(f"{_NAMES}/{prefix_of(key)}"):
            space.delete(found.path)
            gone += 1
    if gone:
        objects.deleted.write(prefix_of(key), b"deleted")
    return gone


def clean_deleted(objects: Objects, folder: str) -> list[Cleaned]:
    """Remove the workspaces of this machine that were last used before their deletion elsewhere.

    A conversation that was started again has a later use. A workspace in use stays. Raises
    ObjectError.
    """
    now, cleaned = time.time(), []
    deleted = {one.path: now - one.age for one in objects.deleted.walk("")}
    for place in filter(os.path.isdir, places(folder) if deleted else ()):
        for used, name in [*last_uses(place)]:
            if used < deleted.get(name[:PREFIX_DIGITS], 0.0):
                left = retire(place, name)
                if left is not None:
                    cleaned.append(Cleaned(name, "deleted", 0, left))
    return cleaned


def _bounds(limits: Limits) -> TreeLimits:
    return TreeLimits(limits.max_workspace_bytes, limits.max_workspace_files)


def _describe(digest: str, number: int, tree: StoredTree) -> WorkspaceSnapshot:
    staged = tree.facts.get(_STAGED)
    skills = staged.items() if isinstance(staged, dict) else ()
    return WorkspaceSnapshot(
        digest=digest,
        number=number,
        files=sum(entry.kind == "file" for entry in tree.entries),
        size=tree.size,
        skills={str(name): str(hash) for name, hash in skills},
    )


# Names


def _latest(space: Blobs, name: str) -> _Record | None:
    """Return the record with the highest number; None when there is none."""
    folder = f"{_NAMES}/{name}"
    ages = {one.path[-_DIGITS:]: one.age for one in space.walk(folder)}
    for digits in sorted(filter(str.isdecimal, ages), reverse=True):
        data = space.read(f"{folder}/{digits}", _MAX_RECORD)
        if data is None:
            continue  # removed meanwhile: there is a newer one
        try:
            found = read_json(data)
            return _Record(int(digits), str(found["tree"]), str(found["by"]), ages[digits])
        except (ValueError, KeyError, TypeError) as error:
            raise ObjectError(
                f"{space.prefix}{folder}/{digits} is not a record: {error}"
            ) from error
    return None


def _claim(workspace: Workspace, space: Blobs, name: str, record: _Record) -> None:
    """Write the record; ObjectError when another machine has that number already."""
    folder, (path, data) = f"{_NAMES}/{name}", _encode_record(name, record)
    # A request whose answer came too late is sent again, and finds its own record.
    if not space.create(path, data) and space.read(path, _MAX_RECORD) != data:
        raise _conflict(workspace)
    for older in list(space.walk(folder)):
        if older.path[-_DIGITS:].isdecimal() and int(older.path[-_DIGITS:]) < record.number:
            space.delete(older.path)


def _write_record(space: Blobs, name: str, record: _Record) -> None:
    space.write(*_encode_record(name, record))


def _encode_record(name: str, record: _Record) -> tuple[str, bytes]:
    path = f"{_NAMES}/{name}/{record.number:0{_DIGITS}}"
    return path, json.dumps({"tree": record.digest, "by": record.by}).encode()


def _conflict(workspace: Workspace) -> ObjectError:
    return ObjectError(
        f"{workspace.path} does not come from the last snapshot of its conversation: another "
        "machine has written a newer one; restore that first"
    )


# Reading the workspace


class _Reader:
    """Decides which files are unchanged, and collects their current stat."""

    def __init__(self, earlier: StoredTree | None, stamps: Mapping[str, list[int]]) -> None:
        self.entries = paths_of(earlier.entries) if earlier else {}
        self.stamps = stamps
        self.seen: dict[str, list[int]] = {}

    def reuse(self, entry: TreeEntry) -> StoredEntry | None:
        self.seen[entry.path] = list(entry.stamp)
        if self.stamps.get(entry.path) != self.seen[entry.path]:
            return None
        known = self.entries.get(entry.path)
        return known if known and known.kind == "file" and known.size == entry.size else None


def _drop_scattered(tree: StoredTree) -> StoredTree:
    """Return the tree without its small files if they are scattered over many packs.

    They are then sent again, together: otherwise a workspace that changes a little a thousand times
    would take a thousand requests to restore.
    """
    small = [one for one in tree.entries if one.kind == "file" and 0 < one.size < SMALL_BYTES]
    packs = len({one.blob for one in small})
    if packs <= _MANY_PACKS or sum(one.size for one in small) > packs * PACK_BYTES // 4:
        return tree
    gone = {one.path for one in small}
    return tree._replace(entries=tuple(one for one in tree.entries if one.path not in gone))


def _open(workspace: Workspace, bounds: TreeLimits) -> SkillTree:
    rules = TreeRules(left_out=frozenset(), most=bounds.max_entries, only=WRITABLE, exact=True)
    try:
        return SkillTree(workspace.path, "", rules)
    except (OSError, PathEscape) as error:
        reason = getattr(error, "strerror", "") or error
        raise ObjectError(f"{workspace.path} cannot be read: {reason}") from error


# Writing the workspace


def _check_content(tree: StoredTree, digest: str) -> dict[str, Pin]:
    """Return the pins of the tree; ObjectDamaged if it is not the tree of a workspace."""
    tops = {one.path: one.kind for one in tree.entries if "/" not in one.path}
    if set(tops) - set(WRITABLE) or set(tops.values()) - {"folder"}:
        raise ObjectDamaged(digest, "a snapshot", "it is not the tree of a workspace")
    pins = tree.facts.get(_PINS)
    found = {}
    for to, pin in pins.items() if isinstance(pins, dict) else ():
        if isinstance(pin, list) and [type(one) for one in pin] == [str, int]:
            found[str(to)] = Pin(*pin)
    return found


def _replace_content(workspace: Workspace, space: Blobs, tree: StoredTree) -> None:
    aside = f"restored-{os.urandom(8).hex()}"
    try:
        with handles() as keep:
            private = keep(os.open(PRIVATE, READ_FOLDER, dir_fd=workspace.handle))
            os.mkdir(aside, 0o700, dir_fd=private)
            made = keep(os.open(aside, READ_FOLDER, dir_fd=private))
            unpack_tree(space, tree, made, workspace.give)
            # From here on a crash leaves a mixture; without a state file it is restored again.
            with suppress(FileNotFoundError):
                os.unlink(_STATE, dir_fd=workspace.handle)
            there = set(os.listdir(made))
            for name in WRITABLE:
                if name not in there:
                    os.mkdir(name, 0o700, dir_fd=made)
                    workspace.give(keep(os.open(name, READ_FOLDER, dir_fd=made)))
                swap(made, name, workspace.handle, name)
    except OSError as error:
        raise ObjectError(
            f"{workspace.path} cannot be restored: {error.strerror or error}"
        ) from error
    finally:
        remove_tree(os.path.join(workspace.path, PRIVATE, aside))


# The state on this machine


def _read_state(workspace: Workspace, space: Blobs, bounds: TreeLimits) -> _State | None:
    try:
        handle = os.open(_STATE, READ_FILE, dir_fd=workspace.handle)
        kept: Any = read_json(read_handle(handle, 4 * bounds.list_bytes))
        if kept["prefix"] != space.prefix:
            return None
        tree = decode_tree(kept["list"].encode(), bounds)
        stamps = {str(path): list(row) for path, row in kept["stamps"].items()}
        number = int(kept["number"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ObjectError):
        return None
    return _State(
        prefix=space.prefix, digest=str(kept["digest"]), number=number, tree=tree, stamps=stamps
    )


def _write_state(workspace: Workspace, state: _State) -> None:
    part = f"{PRIVATE}/{_STATE}-{os.urandom(8).hex()}"
    document = {
        "prefix": state.prefix,
        "digest": state.digest,
        "number": state.number,
        "list": state.tree.encoded().decode(),
        "stamps": state.stamps,
    }
    try:
        with open(os.open(part, NEW_FILE, 0o600, dir_fd=workspace.handle), "w") as file:
            json.dump(document, file)
        os.rename(part, _STATE, src_dir_fd=workspace.handle, dst_dir_fd=workspace.handle)
    except OSError as error:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=workspace.handle)
        raise ObjectError(
            f"{workspace.path}: {_STATE} cannot be written: {error.strerror}"
        ) from error
