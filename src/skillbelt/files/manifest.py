"""The files of a skill: their sizes, hashes and kinds, and one hash over all of them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from skillbelt.errors import PathEscape
from skillbelt.files.contain import READ_FILE, READ_FOLDER, open_beneath, open_dir, open_file
from skillbelt.values import SKILL_FILE, Diagnostic, FileEntry, Limits, Manifest

# Entries of one skill's folder; hashing more would hold up every run.
MAX_MANIFEST_FILES = 10_000
# Bytes hashed for one skill, about a second of work.
MAX_MANIFEST_BYTES = 256 * 2**20
# Folders below a skill; deeper trees are traps or dependencies.
MAX_ENTRY_DEPTH = 32

SKIPPED = frozenset((".git", "node_modules", "__pycache__"))
_SKILL_FILE = SKILL_FILE.upper()
_CHUNK = 2**20
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


def build_manifest(folder: str, limits: Limits | None = None, fence: str = "") -> Manifest:
    """Every regular file below a skill's folder. Links are named in a diagnostic, not followed.

    The SKILL.md alone may be a link, as far as the fence goes.
    """
    limits = limits or Limits()
    said: list[Diagnostic] = []
    try:
        top = open_dir(folder, fence)
    except (OSError, PathEscape) as error:
        return Manifest((), hash_of([]), (_unreadable(folder, error),))
    try:
        files = _Tree(folder, top, fence, said).files(limits)
    finally:
        os.close(top)
    return Manifest(tuple(files), hash_of(files), tuple(said))


def kind_of(path: str, head: bytes) -> str:
    """The MIME type, by content first and name second."""
    seen = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if seen and seen != _ZIP:
        return seen
    named = _named(path)
    if seen == _ZIP:
        # Documents and packages are archives by content, more than that by name.
        return named if named.startswith(_ZIPPED) else seen
    # A name can not claim a format whose first bytes are known and missing.
    if named and not (head and named in _KNOWN):
        return named
    return "application/octet-stream" if b"\0" in head else "text/plain"


def _named(path: str) -> str:
    ending = os.path.splitext(path)[1].lower()
    if ending in _TYPES:
        return _TYPES[ending]
    import mimetypes

    return mimetypes.guess_type(path, strict=False)[0] or ""


class _Tree:
    """The folder of one skill, by a handle of it, and what there is to say of it."""

    def __init__(self, folder: str, top: int, fence: str, said: list[Diagnostic]) -> None:
        self._folder, self._top, self._fence, self._said = folder, top, fence, said

    def files(self, limits: Limits) -> list[FileEntry]:
        """Every file, sorted, as far as the limits go."""
        found: list[FileEntry] = []
        left = MAX_MANIFEST_BYTES
        for count, path in enumerate(self._paths()):
            over = count >= MAX_MANIFEST_FILES
            entry = self._entry(path, left) if path and not over else None
            if over or (entry and entry.size > left):
                self._said.append(_too_much(self._folder, limits))
                break
            if entry is not None:
                found.append(entry)
                left -= entry.size
        return sorted(found)

    def _paths(self) -> Iterator[str]:
        """Each file; "" for anything else, so that it counts towards the bound."""
        # A list and not recursion: folders may be nested deeper than calls.
        pending = [""]
        while pending:
            below = pending.pop()
            folders = []
            for name, kind in self._listed(below):
                if kind == "link" and not is_skill_file(f"{below}{name}"):
                    self._said.append(_link(os.path.join(self._folder, below, name)))
                    yield ""
                elif kind == "folder":
                    if name not in SKIPPED:
                        folders.append(f"{below}{name}/")
                    yield ""
                else:
                    yield f"{below}{name}"
            pending += reversed(folders)

    def _listed(self, below: str) -> list[tuple[str, str]]:
        """The names in a folder, sorted, and what each is."""
        try:
            handle = open_beneath(self._top, below.rstrip("/") or ".", READ_FOLDER)
            try:
                with os.scandir(handle) as listing:
                    return sorted((entry.name, _kind(entry)) for entry in listing)
            finally:
                os.close(handle)
        except (OSError, PathEscape) as error:
            self._said.append(_unreadable(os.path.join(self._folder, below), error))
            return []

    def _entry(self, path: str, left: int) -> FileEntry | None:
        """A file and its hash; one of more than `left` bytes is read only until this shows."""
        full = os.path.join(self._folder, path)
        try:
            handle = self._open(path, full)
            with open(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    self._said.append(_not_a_file(full))
                    return None
                head = file.read(_SNIFFED)
                digest, size = hashlib.sha256(head), len(head)
                while size <= left and (chunk := file.read(_CHUNK)):
                    digest.update(chunk)
                    size += len(chunk)
        except (OSError, PathEscape) as error:
            self._said.append(_unreadable(full, error))
            return None
        return FileEntry(path, size, digest.hexdigest(), kind_of(path, head))

    def _open(self, path: str, full: str) -> int:
        if is_skill_file(path) and os.path.islink(full):
            return open_file(full, self._fence)
        return open_beneath(self._top, path, READ_FILE)


def is_skill_file(path: str) -> bool:
    """Whether the path below a skill's folder is that of its SKILL.md, however it is spelled."""
    return path.upper() == _SKILL_FILE


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"


def _not_a_file(path: str) -> Diagnostic:
    message = "is neither a file nor a folder; it is not part of the skill"
    return Diagnostic(
        code="not-a-file",
        severity="warning",
        path=path,
        line=None,
        message=message,
        remedy="remove it",
    )


def hash_of(files: list[FileEntry]) -> str:
    """One hash over the paths and hashes of files, which are sorted by path."""
    digest = hashlib.sha256()
    for entry in files:
        digest.update(entry.path.encode("utf-8", "surrogateescape") + b"\0")
        digest.update(bytes.fromhex(entry.sha256))
    return f"sha256:{digest.hexdigest()}"


def _unreadable(path: str, error: OSError | PathEscape) -> Diagnostic:
    message = f"can not be read: {getattr(error, 'strerror', '') or error}"
    return Diagnostic(
        code="unreadable",
        severity="error",
        path=path,
        line=None,
        message=message,
        remedy="mend its permissions",
    )


def _link(path: str) -> Diagnostic:
    message = "is a link; links are not part of a skill"
    remedy = "put the file itself there"
    return Diagnostic(
        code="link-skipped",
        severity="warning",
        path=path,
        line=None,
        message=message,
        remedy=remedy,
    )


def _too_much(folder: str, limits: Limits) -> Diagnostic:
    return Diagnostic(
        code="skill-too-large",
        severity="warning",
        path=folder,
        line=None,
        message=f"has more than {MAX_MANIFEST_FILES} entries or {MAX_MANIFEST_BYTES} "
        f"bytes; "
        "the rest was left out",
        remedy="make the skill smaller",
    )
