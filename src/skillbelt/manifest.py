"""The files of a skill: their sizes, hashes and kinds, and one hash over all of them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from skillbelt.values import Diagnostic, FileEntry, Limits, Manifest

SKIPPED = frozenset((".git", "node_modules", "__pycache__"))
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


def build_manifest(folder: str, limits: Limits | None = None) -> Manifest:
    """Every regular file below a skill's folder. Links are named in a diagnostic, not followed."""
    limits = limits or Limits()
    said: list[Diagnostic] = []
    files: list[FileEntry] = []
    left = limits.max_manifest_bytes
    for count, path in enumerate(_paths(folder, said)):
        over = count >= limits.max_manifest_files
        entry = _entry(folder, path, left, said) if path and not over else None
        if over or (entry and entry.size > left):
            said.append(_too_much(folder, limits))
            break
        if entry is not None:
            files.append(entry)
            left -= entry.size
    files.sort()
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


def _paths(folder: str, said: list[Diagnostic]) -> Iterator[str]:
    """Each file below the folder; "" for anything else, so that it counts towards the bound."""
    # A list and not recursion: folders may be nested deeper than calls.
    pending = [""]
    while pending:
        below = pending.pop()
        folders = []
        for entry in _listed(os.path.join(folder, below), said):
            if entry.is_symlink():
                said.append(_link(entry.path))
                yield ""
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED:
                    folders.append(f"{below}{entry.name}/")
                yield ""
            else:
                yield f"{below}{entry.name}"
        pending += reversed(folders)


def _listed(folder: str, said: list[Diagnostic]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        said.append(_unreadable(folder, error))
        return []


def _entry(folder: str, path: str, left: int, said: list[Diagnostic]) -> FileEntry | None:
    """A file and its hash; one of more than `left` bytes is read only so far that this shows."""
    full = os.path.join(folder, path)
    try:
        handle = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                message = "is neither a file nor a folder; it is not part of the skill"
                said.append(Diagnostic("not-a-file", "warning", full, None, message, "remove it"))
                return None
            head = file.read(_SNIFFED)
            digest, size = hashlib.sha256(head), len(head)
            while size <= left and (chunk := file.read(_CHUNK)):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        said.append(_unreadable(full, error))
        return None
    return FileEntry(path, size, digest.hexdigest(), kind_of(path, head))


def hash_of(files: list[FileEntry]) -> str:
    """One hash over the paths and hashes of files, which are sorted by path."""
    digest = hashlib.sha256()
    for entry in files:
        digest.update(entry.path.encode("utf-8", "surrogateescape") + b"\0")
        digest.update(bytes.fromhex(entry.sha256))
    return f"sha256:{digest.hexdigest()}"


def _unreadable(path: str, error: OSError) -> Diagnostic:
    message = f"can not be read: {error.strerror or error}"
    return Diagnostic("unreadable", "error", path, None, message, "mend its permissions")


def _link(path: str) -> Diagnostic:
    message = "is a link; links are not part of a skill"
    remedy = "put the file itself there"
    return Diagnostic("link-skipped", "warning", path, None, message, remedy)


def _too_much(folder: str, limits: Limits) -> Diagnostic:
    return Diagnostic(
        "skill-too-large",
        "warning",
        folder,
        None,
        f"has more than {limits.max_manifest_files} entries or {limits.max_manifest_bytes} bytes; "
        "the rest was left out",
        "raise max_manifest_files or max_manifest_bytes, or make the skill smaller",
    )
