"""Hashes of a skill's folder: what a lock compares, and what other tools write.

`content_digest` is that of ToolHive: it covers paths and contents, and no two folders have the same
bytes under it. `tree_sha` is the id that git gives the folder, which also covers executable bits
and links. `computed_hash` is the one of `skills` 1.7.4, over the folder in its source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cmp_to_key
from typing import Literal
from unicodedata import category

from skillbelt.errors import PathEscape, SourceError
from skillbelt.files.contain import read_handle
from skillbelt.files.manifest import MAX_MANIFEST_BYTES
from skillbelt.files.tree import SkillTree, TreeEntry, TreeRules, relative_target
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, one_line

# As ICU compares them for every locale of Western Europe: punctuation, digits, letters.
_ORDER = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
_WEIGHTS = {character: place for place, character in enumerate(_ORDER)}
_WEIGHTS |= {character.upper(): place for character, place in _WEIGHTS.items()}
# `skills` skips these two folders only; it also hashes files that we do not install.
_RULES_OF_SKILLS = TreeRules(
    left_out=frozenset(), exact=True, folders_left_out=frozenset((".git", "node_modules"))
)
_CONTROL = Lazy(rb"[\x00-\x1f\x7f]")
_FILE, _PROGRAM, _LINK, _FOLDER = b"100644", b"100755", b"120000", b"40000"


class HashedFile(NamedTuple):
    """A file or a link of a folder. `blob` is its id in git; `sha256` is that of a file's bytes."""

    path: str
    kind: Literal["file", "link"]
    executable: bool
    size: int
    sha256: str
    blob: str
    target: str = ""


class FolderHashes(NamedTuple):
    """The files of a folder, sorted by path, and the two hashes over them.

    `problems` are entries that no skill may have.
    """

    content_digest: str
    tree_sha: str
    files: tuple[HashedFile, ...]
    problems: tuple[TreeEntry, ...] = ()


def hash_folder(folder: str, *, partial: bool = False) -> FolderHashes:
    """Read every file of a skill's folder once.

    SourceError for a link that leads out, a pipe, too many files or what cannot be read; with
    `partial` such entries are left out and listed.
    """
    found: list[HashedFile] = []
    problems: list[TreeEntry] = []
    left = MAX_MANIFEST_BYTES
    try:
        with SkillTree(folder) as tree:
            for entry in tree.entries():
                if entry.problem:
                    if partial:
                        problems.append(entry)
                        continue
                    raise SourceError(folder, f"{one_line(entry.path)!r} {entry.reason}")
                if entry.kind != "folder":
                    found.append(_hash_entry(tree, entry, left))
                    left -= found[-1].size
    except (OSError, PathEscape) as error:
        raise SourceError(folder, str(error)) from error
    found.sort(key=lambda file: file.path.encode("utf-8", "surrogateescape"))
    return FolderHashes(
        content_digest=content_digest(found),
        tree_sha=git_tree_id(found),
        files=tuple(found),
        problems=tuple(problems),
    )


def _hash_entry(tree: SkillTree, entry: TreeEntry, left: int) -> HashedFile:
    if entry.kind == "link" or entry.target:
        # A link that names the folder by its absolute path is a relative one in every copy.
        target = relative_target(tree.folder, entry.path, entry.target) or entry.target
        data = os.fsencode(target)
        return HashedFile(
            path=entry.path,
            kind="link",
            executable=False,
            size=0,
            sha256="",
            blob=_git_id(b"blob", data),
            target=target,
        )
    data = read_handle(tree.open(entry), left + 1)
    if len(data) > left:
        raise SourceError(tree.folder, f"has more than {MAX_MANIFEST_BYTES:,} bytes")
    return HashedFile(
        path=entry.path,
        kind="file",
        executable=entry.executable,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        blob=_git_id(b"blob", data),
    )


def content_digest(files: Iterable[HashedFile]) -> str:
    """Return the digest that ToolHive calls `contentDigest`; links and modes are not part of it.

    SourceError for a path with a control character, which it refuses too.
    """
    digest = hashlib.sha256()
    for path, sha256 in sorted(
        (file.path.encode("utf-8", "surrogateescape"), file.sha256)
        for file in files
        if file.kind == "file"
    ):
        if _CONTROL.search(path):
            raise SourceError(
                one_line(os.fsdecode(path)), "a file's name holds a control character"
            )
        digest.update(path + b"\0" + bytes.fromhex(sha256) + b"\n")
    return f"sha256:{digest.hexdigest()}"


def git_tree_id(files: Iterable[HashedFile]) -> str:
    """Return the id that git gives a folder with these files; empty folders do not count."""
    top: dict[bytes, object] = {}
    for file in files:
        *parents, name = file.path.encode("utf-8", "surrogateescape").split(b"/")
        here = top
        for parent in parents:
            here = here.setdefault(parent, {})  # type: ignore[assignment]
        here[name] = file
    return _tree_id(top)


def _tree_id(folder: dict[bytes, object]) -> str:
    rows = []
    for name, entry in folder.items():
        if isinstance(entry, dict):
            rows.append((name + b"/", _FOLDER, name, _tree_id(entry)))
        elif isinstance(entry, HashedFile):
            mode = _LINK if entry.kind == "link" else _PROGRAM if entry.executable else _FILE
            rows.append((name, mode, name, entry.blob))
    data = b"".join(
        mode + b" " + name + b"\0" + bytes.fromhex(made) for _, mode, name, made in sorted(rows)
    )
    return _git_id(b"tree", data)


def _git_id(kind: bytes, data: bytes) -> str:
    made = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    made.update(data)
    return made.hexdigest()


def computed_hash(folder: str, shown: str = "") -> str:
    """Return the `computedHash` that `skills` 1.7.4 writes for a folder in its source.

    It sorts paths by the rules of ICU. SourceError, with the names, where those matter: for two
    paths that differ first in characters that are not ASCII. It calls the folder `shown`, if given.
    """
    shown = shown or folder
    digest = hashlib.sha256()
    left = MAX_MANIFEST_BYTES
    try:
        with SkillTree(folder, rules=_RULES_OF_SKILLS) as tree:
            for path, entry in _sort_as_skills(shown, tree.entries()):
                data = read_handle(tree.open(entry), left + 1)
                left -= len(data)
                if left < 0:
                    raise SourceError(shown, f"has more than {MAX_MANIFEST_BYTES:,} bytes")
                digest.update(path.encode())
                digest.update(data)
    except (OSError, PathEscape) as error:
        raise SourceError(shown, str(error)) from error
    return digest.hexdigest()


def _sort_as_skills(shown: str, entries: Iterable[TreeEntry]) -> list[tuple[str, TreeEntry]]:
    files = []
    for entry in entries:
        if entry.problem in ("unreadable", "too-many", "too-deep"):
            raise SourceError(shown, f"{one_line(entry.path)!r} {entry.reason}")
        if entry.kind == "file":
            files.append((entry.path.replace("\\", "/"), entry))
    for path, _ in files:
        if any(character < " " or "\x7f" <= character < "\xa0" for character in path):
            raise _refuse_unsortable(shown, path, "holds a control character")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise _refuse_unsortable(shown, path, "is not UTF-8") from None
    try:
        return sorted(files, key=cmp_to_key(_compare_rows))
    except _NotComparable as error:
        raise _refuse_unsortable(shown, error.name, "is not ASCII") from None


def _compare_rows(one: tuple[str, TreeEntry], other: tuple[str, TreeEntry]) -> int:
    return compare_names(one[0], other[0])


def _refuse_unsortable(folder: str, path: str, reason: str) -> SourceError:
    error = SourceError(
        folder, f"the name {one_line(path)!r} {reason}, so its place in the hash is not known"
    )
    error.remedy = "give the file a name in ASCII"
    return error


class _NotComparable(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def compare_names(one: str, other: str) -> int:
    """Compare two paths as `localeCompare` does: letters first, then lower case before upper case.

    Other characters than ASCII have weights that only ICU knows. Two names are compared
    nevertheless if they differ before one of those, or after the same ones.
    """
    capitals = 0
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left == right:
            continue
        if not _plain_at(one, place) or not _plain_at(other, place):
            raise _NotComparable(other if _plain_at(one, place) else one)
        weight = _WEIGHTS[left] - _WEIGHTS[right]
        if weight:
            return weight
        capitals = capitals or (-1 if left.islower() else 1)
    if len(one) != len(other):
        shorter, longer = sorted((one, other), key=len)
        if not _plain_at(longer, len(shorter)):
            raise _NotComparable(longer)
        return len(one) - len(other)
    return capitals


def _plain_at(name: str, place: int) -> bool:
    """Whether the character is ASCII, and no mark beside it can change its weight."""
    return name[place : place + 1].isascii() and all(
        beside.isascii() or category(beside).startswith("L")
        for beside in name[max(place - 1, 0) : place + 2]
    )
