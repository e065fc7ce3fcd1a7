"""Archives and single SKILL.md files on this machine."""

from __future__ import annotations

import os
import stat
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from skillbelt.discovery.sources.bounds import MAX_DOWNLOAD_BYTES, Budget, Refusal
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.discovery.sources.transfer import Update, too_large, unpack_into
from skillbelt.discovery.sources.web import adopt_archive, skill_name
from skillbelt.files.contain import open_folder
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt.discovery.sources.cache import Ready, Stage
    from skillbelt.values import Limits

_CHUNK = 64 * 2**10


def path_of(url: str) -> str:
    """The path of a file URL; raises SourceFailure for what is not on this machine."""
    parts = urlsplit(url)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.netloc not in ("", "localhost") or not path or "\0" in path:
        reason = "is not the address of a file on this machine"
        raise _failure(url, reason, "write it as file:///absolute/path")
    return path


def update(url: str, old: Ready | None, stage: Stage, limits: Limits, budget: Budget) -> Update:
    """Bring the stage up to date with the file; it is new when its size, time or inode changed."""
    path = path_of(url)
    single = path.lower().endswith(".md")
    with _opened(url, path) as file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_DOWNLOAD_BYTES:
            raise too_large(url, Refusal(f"has more than {MAX_DOWNLOAD_BYTES} bytes"))
        mark = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
        found = Update("url" if single else "archive", True, url, mark)
        if old and old.etag == mark:
            return found._replace(changed=False)
        part = stage.part()
        if single:
            _copy(file, part, budget)
            stage.adopt(part, skill_name(url))
        else:
            unpack_into(part, file, url, limits, budget)
            adopt_archive(stage, part, url)
    return found


def _opened(url: str, path: str) -> IO[bytes]:
    """The file, if it is a regular one; a FIFO or a device would block or never end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = f"can not be opened: {error.strerror}"
        raise _failure(url, reason, "check the path") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _failure(url, "is not a regular file", "give an archive, a SKILL.md or a folder")
    return os.fdopen(fd, "rb")


def _copy(file: IO[bytes], part: str, budget: Budget) -> None:
    folder = open_folder(part)
    try:
        with budget.file(folder, SKILL_FILE) as write:
            while chunk := file.read(_CHUNK):
                write(chunk)
    finally:
        os.close(folder)


def _failure(url: str, reason: str, remedy: str) -> SourceFailure:
    return SourceFailure(url, reason, code="source-unreadable", remedy=remedy)
