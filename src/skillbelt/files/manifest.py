"""The files of a skill as one value: their sizes, hashes and MIME types, and one hash over all.

The hash covers the content of every file, the target of each link, and which files are executable.
Approvals are bound to it. A second call walks the folder but does not read the files again.
"""

from __future__ import annotations

import marshal
import os
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Protocol

from skillbelt.errors import FileTooLarge, FileTypeRefused, FileUnreadable, PathEscape
from skillbelt.files.contain import FOLLOW_FILE, below, open_beneath, open_dir, open_file
from skillbelt.files.tree import LEFT_OUT, SkillTree, TreeEntry, is_left_out, relative_target
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.values import SKILL_FILE, Diagnostic, FileEntry, Limits, Manifest

if TYPE_CHECKING:
    import mimetypes
else:
    mimetypes = Late("mimetypes")  # cost: 1 ms, only for rare endings

# Bytes hashed for one skill, about a second of work.
MAX_MANIFEST_BYTES = 256 * 2**20
# The suffix of the hash of a skill that could not be read completely.
PARTIAL = "+partial"
_MAX_CACHED = 4_096
# Two writes within one tick of the file system's clock leave the same times.
TICK_NS = 2_000_000_000
_CHUNK = 2**20
_INCOMPLETE = ("skill-too-large", "unreadable")
_LEFT_OUT = f"is not part of the skill: no file below {', '.join(sorted(LEFT_OUT))} is"
_SNIFFED = 4096
_ZIP = "application/zip"
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"\0asm", "application/wasm"),
    (b"\x7fELF", "application/x-executable"),
    (b"PK\x03\x04", _ZIP),
    (b"\x1f\x8b", "application/gzip"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
)
_KNOWN = frozenset(kind for _, kind in _MAGIC)
_OFFICE = "application/vnd.openxmlformats-officedocument."
_ZIPPED = (
    _OFFICE,
    "application/vnd.oasis.opendocument.",
    "application/epub+zip",
    "application/java-archive",
)
_TYPES = {
    ".md": "text/markdown",
    ".py": "text/x-python",
    ".sh": "application/x-sh",
    ".bash": "application/x-sh",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".ts": "text/x-typescript",
    ".docx": f"{_OFFICE}wordprocessingml.document",
    ".pptx": f"{_OFFICE}presentationml.presentation",
    ".xlsx": f"{_OFFICE}spreadsheetml.sheet",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".epub": "application/epub+zip",
}
_cache: dict[tuple[str, str], tuple[str, str]] = {}


# The files of each digest that was computed, by path. The digest covers them, so they stay true.
_contents: dict[str, dict[str, str]] = {}
_MAX_CONTENTS = 256


class SkillFiles(Protocol):
    """The files of one skill: on this disk, or listed by an MCP server."""

    def entries(self) -> Sequence[TreeEntry]:
        """Return the entries of the skill's folder, as of the first call."""
        ...

    def open(self, path: str, most: int = sys.maxsize) -> BinaryIO:
        """Open a file of at most `most` bytes; raise LoadError, PathEscape or OSError."""
        ...

    def digest(self) -> str:
        """Return the hash over the whole skill.

        It ends with PARTIAL if it does not cover everything.
        """
        ...

    def manifest(self) -> Manifest:
        """Return every file with its size, hash and MIME type."""
        ...

    def whole_folder(self) -> tuple[str, str]:
        """Return a folder on this disk with all files, and the fence around it.

        Files that a server lists are fetched; FileUnreadable if one cannot be.
        """
        ...


class LocalFiles:
    """The files of a skill on this disk. `skill_file` is the name of its SKILL.md."""

    def __init__(self, folder: str, fence: str = "", skill_file: str = SKILL_FILE) -> None:
        self.folder, self.fence, self._skill_file = folder, fence, skill_file
        self._entries: tuple[TreeEntry, ...] | None = None
        self._walked_ns = 0

    def entries(self) -> tuple[TreeEntry, ...]:
        """Return the entries of the folder, as of the first call."""
        if self._entries is None:
            self._walked_ns = time.time_ns()
            self._entries = _walk(self.folder, self.fence)
        return self._entries

    def open(self, path: str, most: int = sys.maxsize) -> BinaryIO:
        """Open a regular file of the skill.

        A link is followed as long as it stays inside; that of the SKILL.md may lead as far as the
        fence. Raises PathEscape, FileTypeRefused, FileTooLarge, FileUnreadable or OSError.
        """
        handle = self._open(path)
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                raise FileTypeRefused(path, "is not a regular file")
            if info.st_size > most:
                raise too_large(path, info.st_size, most)
        except BaseException:
            os.close(handle)
            raise
        return os.fdopen(handle, "rb", buffering=0)

    def digest(self) -> str:
        """Return the hash over all files, links and executable bits; never raises.

        Equal skills in different places have the same one.
        """
        key, stamp = (self.folder, self.fence), stamp_of(self.entries())
        known = _cache.get(key)
        if known is not None and known[0] == stamp.text:
            return known[1]
        manifest = self.manifest()
        # Cached only if everything was read and nothing can have changed unnoticed meanwhile.
        if (
            self._walked_ns - stamp.newest_ns >= TICK_NS
            and all(diagnostic.code != "unreadable" for diagnostic in manifest.diagnostics)
            and stamp_of(_walk(self.folder, self.fence)) == stamp
        ):
            if len(_cache) >= _MAX_CACHED:  # each step is atomic: threads need no lock
                _cache.clear()
            _cache[key] = stamp.text, manifest.hash
        return manifest.hash

    def manifest(self) -> Manifest:
        """Read every regular file; the diagnostics name links and entries that cannot be read."""
        entries = self.entries()
        said = [
            _diagnose(self.folder, entry)
            for entry in entries
            if entry.problem or entry.kind == "link"
        ]
        files: list[FileEntry] = []
        try:
            with SkillTree(self.folder, self.fence) as tree:
                _hash_files(tree, entries, files, said)
        except (OSError, PathEscape) as error:
            if _unreadable(self.folder, error) not in said:
                said.append(_unreadable(self.folder, error))
        files.sort()
        facts = [fact for entry in entries if (fact := fact_of(entry, self.folder))]
        missed = sorted(
            f"{one.code}\0{os.path.relpath(one.path, self.folder)}"
            for one in said
            if one.code in _INCOMPLETE
        )
        made = content_hash(((file.path, file.sha256) for file in files), (*sorted(facts), *missed))
        links = (entry.path for entry in entries if entry.kind == "link")
        hidden = any(_leads_into_left_out(self.folder, path) for path in links)
        manifest = Manifest(
            tuple(files), f"{made}{PARTIAL if missed or hidden else ''}", tuple(said)
        )
        if len(_contents) >= _MAX_CONTENTS:
            _contents.clear()
        _contents[manifest.hash] = {file.path: file.sha256 for file in files}
        return manifest

    def whole_folder(self) -> tuple[str, str]:
        """Return the folder and its fence."""
        return self.folder, self.fence

    def _open(self, path: str) -> int:
        if path == self._skill_file:
            return open_file(os.path.join(self.folder, path), self.fence)
        folder = open_dir(self.folder, self.fence)
        try:
            handle = open_beneath(folder, path, FOLLOW_FILE)
        finally:
            os.close(folder)
        if is_left_out(path) or _leads_into_left_out(self.folder, path):
            os.close(handle)
            raise FileUnreadable(path, _LEFT_OUT)
        return handle


class TextFiles:
    """The files of a skill that was made from text: none. The hash covers the text instead."""

    def __init__(self, location: str, source: str) -> None:
        self._location, self._source = location, source

    def entries(self) -> tuple[TreeEntry, ...]:
        """Return nothing."""
        return ()

    def open(self, path: str, most: int = sys.maxsize) -> BinaryIO:
        """Raise FileUnreadable."""
        raise FileUnreadable(self._location, "the skill was made from text and has no files")

    def digest(self) -> str:
        """Return the hash of the text."""
        return f"sha256:{sha256(self._source.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def manifest(self) -> Manifest:
        """Return an empty list of files."""
        return Manifest((), self.digest())

    def whole_folder(self) -> tuple[str, str]:
        """Return no folder."""
        return "", ""


class TreeStamp(NamedTuple):
    """The entries that a walk saw, as one text to compare, and the time of the newest change."""

    text: str
    newest_ns: int


def stamp_of(entries: Iterable[TreeEntry]) -> TreeStamp:
    """Return a text that changes whenever anything in the folder does; no file is read for it."""
    rows, newest = [], 0
    for entry in entries:
        rows.append((entry.path, entry.kind, entry.target, entry.problem, entry.stamp))
        if len(entry.stamp) > 1:
            newest = max(newest, *entry.stamp[:2], *entry.stamp[-6:-4])
    # Version 2 of marshal writes equal rows as equal bytes, and is fast.
    return TreeStamp(sha256(marshal.dumps(rows, 2)).hexdigest(), newest)


def build_manifest(folder: str, limits: Limits | None = None, fence: str = "") -> Manifest:
    """Return every regular file below a skill's folder, and the hash over all of it.

    Links are named in a diagnostic and not followed; only the SKILL.md may be a link, as far as the
    fence allows. `limits` no longer has any effect.
    """
    return LocalFiles(folder, fence).manifest()


def content_hash(files: Iterable[tuple[str, str]], facts: Iterable[str] = ()) -> str:
    """Return one hash over sorted paths with their SHA-256, and over `facts` beside the content."""
    digest = sha256()
    for path, hexdigest in files:
        digest.update(path.encode("utf-8", "surrogateescape") + b"\0")
        digest.update(bytes.fromhex(hexdigest))
    made, more = f"sha256:{digest.hexdigest()}", tuple(facts)
    if not more:
        return made
    text = "\0\0".join((made, *more))
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def fact_of(entry: TreeEntry, folder: str = "") -> str:
    """Return the part of an entry beside its content that the hash covers; "" for nothing.

    A link that names the skill's own `folder` by its absolute path counts as the relative link that
    a copy of the skill has, so the hash is the same in every place.
    """
    if entry.executable:
        return f"{entry.path}\0executable"
    if entry.kind == "link":
        target = relative_target(folder, entry.path, entry.target) if folder else ""
        return f"{entry.path}\0link\0{target or entry.target}"
    if entry.problem == "not-a-file":
        return f"{entry.path}\0other\0{stat.S_IFMT(entry.mode)}"
    return ""


def holds(digest: str, path: str, sha256: str) -> bool:
    """Whether the skill of that digest is known to contain the file with that content."""
    return _contents.get(digest, {}).get(path) == sha256


def is_complete(digest: str) -> bool:
    """Whether the hash covers the whole skill."""
    return not digest.endswith(PARTIAL)


def too_large(path: str, size: int, most: int) -> FileTooLarge:
    """Return the error for a file of more bytes than the limit."""
    reason = f"has {size:,} bytes; the limit is {most:,}: split it into files below reference/"
    return FileTooLarge(path, reason)


def kind_of(path: str, head: bytes) -> str:
    """Return the MIME type, by content first and by name second."""
    seen = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if seen and seen != _ZIP:
        return seen
    named = _kind_by_name(path)
    if seen == _ZIP:
        # Documents and packages are archives by content; their names say which.
        return named if named.startswith(_ZIPPED) else seen
    # A name cannot claim a format whose first bytes are known and missing.
    if named and not (head and named in _KNOWN):
        return named
    return "application/octet-stream" if b"\0" in head else "text/plain"


def _kind_by_name(path: str) -> str:
    ending = os.path.splitext(path)[1].lower()
    if ending in _TYPES:
        return _TYPES[ending]
    return mimetypes.guess_type(path, strict=False)[0] or ""


def _walk(folder: str, fence: str) -> tuple[TreeEntry, ...]:
    try:
        with SkillTree(folder, fence) as tree:
            return tuple(tree.entries())
    except (OSError, PathEscape) as error:
        return (TreeEntry("", "folder", problem="unreadable", reason=_describe_error(error)),)


def _hash_files(
    tree: SkillTree, entries: Iterable[TreeEntry], files: list[FileEntry], said: list[Diagnostic]
) -> None:
    """Add each file and its hash, until the bound on bytes is reached."""
    left = MAX_MANIFEST_BYTES
    for entry in entries:
        if entry.kind != "file":
            continue
        try:
            made = _hash_file(tree, entry, left)
        except (OSError, PathEscape) as error:
            said.append(_unreadable(os.path.join(tree.folder, entry.path), error))
            continue
        left -= made.size
        if left < 0:
            said.append(_too_large(tree.folder, f"has more than {MAX_MANIFEST_BYTES:,} bytes"))
            return
        files.append(made)


def _hash_file(tree: SkillTree, entry: TreeEntry, most: int) -> FileEntry:
    """Hash a file; stop reading a file that turns out to have more than `most` bytes."""
    with open(tree.open(entry), "rb") as file:
        head = file.read(_SNIFFED)
        digest, size = sha256(head), len(head)
        while size <= most and (chunk := file.read(_CHUNK)):
            digest.update(chunk)
            size += len(chunk)
    return FileEntry(entry.path, size, digest.hexdigest(), kind_of(entry.path, head))


def _leads_into_left_out(folder: str, path: str) -> bool:
    """Whether the path leads to a part of the skill's folder that the hash does not cover."""
    real = os.path.realpath(os.path.join(folder, path))
    return is_left_out(below(real, os.path.realpath(folder)))


def _diagnose(folder: str, entry: TreeEntry) -> Diagnostic:
    path = os.path.join(folder, entry.path) if entry.path else folder
    if entry.problem in ("too-many", "too-deep"):
        return _too_large(path, entry.reason)
    if entry.problem == "unreadable":
        return _unreadable(path, entry.reason)
    link = entry.kind == "link"
    return Diagnostic(
        code="link-skipped" if link else "not-a-file",
        severity="warning",
        path=path,
        line=None,
        message="is a link; the hash covers where it leads, not what is there"
        if link
        else f"{entry.reason}; it is not part of the skill",
        remedy="put the file itself there" if link else "remove it",
    )


def _unreadable(path: str, error: str | Exception) -> Diagnostic:
    why = error if isinstance(error, str) else _describe_error(error)
    return Diagnostic(
        code="unreadable",
        severity="error",
        path=path,
        line=None,
        message=why,
        remedy="fix its permissions",
    )


def _describe_error(error: Exception) -> str:
    return f"cannot be read: {getattr(error, 'strerror', '') or error}"


def _too_large(path: str, reason: str) -> Diagnostic:
    return Diagnostic(
        code="skill-too-large",
        severity="warning",
        path=path,
        line=None,
        message=f"{reason}; the rest was left out",
        remedy="make the skill smaller",
    )
