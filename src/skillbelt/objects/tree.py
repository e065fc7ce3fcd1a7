"""A folder as a value: its entries, and where the bytes of each file are.

The list of a tree is one JSON document per line: a head, then each entry. So the entries are
counted before they are parsed, and a hostile list takes no more memory than a good one. Files are
in blobs: a large one alone, small ones together in a pack, since a request for each would take
longer than its bytes.

The digest of a tree covers the content of the folder and not where it is stored, so a tree that is
packed in another way is the same tree. For a skill it is the digest that approvals are bound to.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, NoReturn

from skillbelt.errors import ObjectError
from skillbelt.files.contain import MAX_PATH_PARTS, entry_fault
from skillbelt.files.manifest import MAX_MANIFEST_BYTES, content_hash, fact_of
from skillbelt.files.tree import MAX_MANIFEST_FILES, RUN_FOLDERS, TreeEntry, relative_target
from skillbelt.untrusted_json import read_json

TreeKind = Literal["skill", "exact"]

_FORMAT = 1
_MAX_TARGET = 4096
# A path and a target have at most 20 KiB, six times as much when they are escaped.
_MAX_LINE = 256 * 2**10
_MAX_NUMBER = 2**62
_DIGITS = frozenset("0123456789abcdef")
_SKILL_MODES = (0o755, 0o644)
_NOWHERE = -1  # the blob number of an empty file


class TreeLimits(NamedTuple):
    """The bounds of a tree; all of them are checked before anything is written."""

    max_bytes: int = MAX_MANIFEST_BYTES
    max_entries: int = MAX_MANIFEST_FILES
    max_depth: int = MAX_PATH_PARTS

    @property
    def list_bytes(self) -> int:
        """Return the most bytes that the list of a tree may have."""
        return 4096 + self.max_entries * 1024


class StoredEntry(NamedTuple):
    """An entry of a tree. `blob` is the number of the blob with the file's bytes, at `offset`.

    `mode` has the permission bits. `changed_ns` is the time of the last change, 0 if it is not part
    of the tree.
    """

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int = 0
    size: int = 0
    sha256: str = ""
    target: str = ""
    changed_ns: int = 0
    blob: int = _NOWHERE
    offset: int = 0


class StoredTree(NamedTuple):
    """A tree. `blobs` are copies of blobs, `facts` are further values that the digest covers."""

    kind: TreeKind
    blobs: tuple[str, ...]
    entries: tuple[StoredEntry, ...]
    facts: Mapping[str, Any] = {}

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(entry.size for entry in self.entries)

    def digest(self) -> str:
        """Return the digest of the tree's content."""
        files = sorted((one.path, one.sha256) for one in self.entries if one.kind == "file")
        if self.kind == "skill":
            return content_hash(files, sorted(filter(None, map(_skill_fact, self.entries))))
        said = json.dumps(self.facts, sort_keys=True)
        return content_hash(files, (f"exact\0{said}", *sorted(map(_exact_fact, self.entries))))

    def encoded(self) -> bytes:
        """Return the list as it is stored; equal trees give equal bytes."""
        head = {
            "format": _FORMAT,
            "kind": self.kind,
            "blobs": self.blobs,
            "facts": self.facts,
        }
        lines = (head, *(_row(entry) for entry in sorted(self.entries)))
        encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
        return "\n".join(map(encode, lines)).encode()


def decode_tree(data: bytes, limits: TreeLimits) -> StoredTree:
    """Return the tree of an untrusted list; ObjectError if it breaks a rule.

    Afterwards every path stays inside, the parent of each entry is a folder of the tree, and
    the limits hold.
    """
    try:
        if len(data) > limits.list_bytes or data.count(b"\n") > limits.max_entries:
            _refuse(f"it has more than {limits.max_entries:,} files and folders")
        first, *lines = data.split(b"\n")
        head = read_json(first, most=_MAX_LINE + 100 * limits.max_entries)
        if head["format"] != _FORMAT:
            _refuse(f"it has format {head['format']!r}; this version reads {_FORMAT}")
        kind, facts = head["kind"], head["facts"]
        if kind not in ("skill", "exact") or not isinstance(facts, dict):
            _refuse("it is not the list of a tree")
        blobs = tuple(_check_blob(one) for one in head["blobs"])
        rows = (decode_entry(read_json(line, most=_MAX_LINE)) for line in lines)
        entries = tuple(rows) if kind == "exact" else tuple(map(_normalize_entry, rows))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ObjectError(f"it is not the list of a tree: {str(error)[:200]}") from error
    tree = StoredTree(kind, blobs, entries, facts)
    check_tree(tree, limits)
    return tree


def _normalize_entry(entry: StoredEntry) -> StoredEntry:
    """Return an entry of a skill with the mode that `pack_tree` gives it, and without a time.

    The digest covers no other mode bits: a file that its owner may not read would never be
    complete.
    """
    if entry.kind == "link":
        return entry
    mode = mode_of("skill", entry.mode) if entry.kind == "file" else 0o755
    return entry._replace(mode=mode, changed_ns=0)


def check_tree(tree: StoredTree, limits: TreeLimits) -> None:
    """Raise ObjectError unless the tree can be written below a folder, within the limits."""
    if tree.size > limits.max_bytes:
        _refuse(f"its files have {tree.size:,} bytes; the limit is {limits.max_bytes:,}")
    kinds: dict[str, str] = {}
    for entry in tree.entries:
        fault = entry_fault(entry.path)
        if not fault and entry.path.count("/") >= limits.max_depth:
            fault = f"is nested deeper than {limits.max_depth} folders"
        if not fault and entry.path in kinds:
            fault = "is there twice"
        if not fault and entry.kind == "link":
            fault = _link_fault(tree.kind, entry)
        if not fault and entry.kind == "file":
            fault = _file_fault(entry, len(tree.blobs))
        if fault:
            _refuse(f"{entry.path[:200]!r} {fault}")
        kinds[entry.path] = entry.kind
    for path in kinds:
        parent = path.rpartition("/")[0]
        # So no link is ever followed while the tree is written.
        if parent and kinds.get(parent) != "folder":
            _refuse(f"{path[:200]!r} is not in a folder of the tree")


def _link_fault(kind: TreeKind, entry: StoredEntry) -> str:
    try:
        size = len(entry.target.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= _MAX_TARGET or "\0" in entry.target:
        return "is a link to something that is not a path"
    if kind == "exact" or entry.path.partition("/")[0] in RUN_FOLDERS:
        return ""  # a run creates its own entry there, so a skill's link is never followed
    inside = relative_target("", entry.path, entry.target)
    return "" if inside else "is a link that leads out of the folder"


def _file_fault(entry: StoredEntry, blobs: int) -> str:
    if not all(0 <= one <= _MAX_NUMBER for one in (entry.size, entry.offset, entry.changed_ns)):
        return "has an impossible size, place or time"
    if entry.size and not 0 <= entry.blob < blobs:
        return "is not in a blob of the tree"
    return ""


def _skill_fact(entry: StoredEntry) -> str:
    mode = entry.mode if entry.kind == "file" else 0
    return fact_of(TreeEntry(entry.path, entry.kind, mode=mode, target=entry.target))


def _exact_fact(entry: StoredEntry) -> str:
    return "\0".join(
        (entry.path, entry.kind, f"{entry.mode:o}", str(entry.changed_ns), entry.target)
    )


# Rows


def _row(entry: StoredEntry) -> list[object]:
    if entry.kind == "folder":
        return ["d", entry.path, entry.mode]
    if entry.kind == "link":
        return ["l", entry.path, entry.target]
    return [
        "f", entry.path, entry.mode, entry.size, entry.sha256, entry.blob, entry.offset,
        entry.changed_ns,
    ]  # fmt: skip


def decode_entry(row: Any) -> StoredEntry:
    """Return the entry of a row, with fields of the right types; ObjectError otherwise."""
    kind, path = row[0], _check(row[1], str)
    if kind == "d" and len(row) == 3:
        return StoredEntry(path, "folder", mode=_check_mode(row[2]))
    if kind == "l" and len(row) == 3:
        return StoredEntry(path, "link", target=_check(row[2], str))
    if kind != "f" or len(row) != 8:
        _refuse("it has an entry of an unknown kind")
    return StoredEntry(
        path,
        "file",
        mode=_check_mode(row[2]),
        size=_check(row[3], int),
        sha256=_check_digits(row[4]),
        blob=_check(row[5], int),
        offset=_check(row[6], int),
        changed_ns=_check(row[7], int),
    )


def _check(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        _refuse(f"it has {str(value)[:50]!r} in place of a {kind.__name__}")
    return value


def _check_mode(value: Any) -> int:
    return int(_check(value, int)) & 0o777  # a set-user-ID bit in a store is dropped


def _check_digits(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 64 or not _DIGITS.issuperset(value):
        _refuse(f"{str(value)[:80]!r} is not a SHA-256")
    return value


def _check_blob(value: Any) -> str:
    digits, _, copy = str(value).partition("/")
    if len(copy) != 16 or not _DIGITS.issuperset(copy):
        _refuse(f"{str(value)[:100]!r} is not a blob")
    return f"{_check_digits(digits)}/{copy}"


def _refuse(reason: str) -> NoReturn:
    raise ObjectError(reason)


def mode_of(kind: TreeKind, mode: int) -> int:
    """Return the permission bits that a tree keeps of a file: only executability for a skill's."""
    if kind == "exact":
        return stat.S_IMODE(mode) & 0o777
    return _SKILL_MODES[not mode & 0o111]


def paths_of(entries: Iterable[StoredEntry]) -> dict[str, StoredEntry]:
    """Return the entries by path."""
    return {entry.path: entry for entry in entries}
