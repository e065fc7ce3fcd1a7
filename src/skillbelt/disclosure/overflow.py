"""Storage for texts that were too long to give, to be read in pieces."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import suppress
from typing import NamedTuple

from skillbelt.disclosure.excerpt import head, line_count, pages
from skillbelt.errors import FileUnreadable, PathEscape
from skillbelt.files.contain import (
    READ_FILE,
    create_beneath,
    open_beneath,
    open_folder,
    read_handle,
)
from skillbelt.files.private import make_folder
from skillbelt.text import one_line
from skillbelt.values import Limits

_NAME = re.compile(r"[0-9a-f]{64}\.txt")
_MOST_BYTES = 2**30
_MOST_CHARS = Limits().max_resource_excerpt_chars


class Page(NamedTuple):
    """Some lines of a stored text. `next_line` is where to continue; 0 at the end."""

    text: str
    start_line: int
    next_line: int
    total_lines: int


class Storage:
    """A private folder of texts, each named by its hash; created for the first text."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)
        inside = os.path.join(self.folder, "")
        # How the folder may appear in a text: as it is, and escaped for one line.
        self.spellings = tuple(dict.fromkeys((inside, one_line(inside))))

    def keep(self, text: str) -> str:
        """Store a text, atomically and for this user alone; return the path of its file."""
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(data).hexdigest()
        make_folder(self.folder)
        name = f"{digest}.txt"
        folder = open_folder(self.folder)
        try:
            if not _renew(folder, name, len(data)):
                _write(folder, name, data)
        finally:
            os.close(folder)
        return os.path.join(self.folder, name)

    def read(
        self, ref: str, start_line: int = 1, lines: int | None = None, chars: int = _MOST_CHARS
    ) -> Page:
        """Return lines of a stored text, at most `chars` characters; PathEscape for other paths."""
        parent, name = os.path.split(ref)
        if parent != self.folder or not _NAME.fullmatch(name):
            raise PathEscape(ref, self.folder, "is not a stored text")
        return page_of(self._text(ref, name), start_line, lines, chars)

    def _text(self, ref: str, name: str) -> str:
        try:
            folder = open_folder(self.folder)
            try:
                data = read_handle(open_beneath(folder, name, READ_FILE), _MOST_BYTES)
            finally:
                os.close(folder)
        except OSError as error:
            raise FileUnreadable(ref, f"is not stored any more: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != name.removesuffix(".txt"):
            raise FileUnreadable(ref, "was changed since it was stored; load the skill again")
        return data.decode("utf-8", "surrogatepass")

    def expire(self, before: float) -> int:
        """Remove the texts not stored again since that Unix time; return how many."""
        gone = 0
        with suppress(FileNotFoundError), os.scandir(self.folder) as listing:
            for entry in filter(_is_ours, listing):
                # Another process may remove it first.
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        os.unlink(entry.path)
                        gone += 1
        return gone


def page_of(
    text: str, start_line: int = 1, lines: int | None = None, chars: int = _MOST_CHARS
) -> Page:
    """Return lines of a text, at most `chars` characters, and where to continue."""
    start = max(start_line, 1)
    wanted = pages(text, start, lines)
    given = head(wanted, chars)
    following = start + line_count(given)
    if len(given) < len(wanted) and not given.endswith("\n"):
        # A line that was cut is given again, unless it is too long for any page.
        following = max(following - 1, start + 1)
    total = line_count(text)
    return Page(given, start, following if following <= total else 0, total)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a text, or a part of one whose writer was killed."""
    return _NAME.match(entry.name.removeprefix(".")) is not None


def _renew(folder: int, name: str, size: int) -> bool:
    """Set the time of a stored text to now, so that it does not expire; return if it exists."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return False
        os.utime(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write(folder: int, name: str, data: bytes) -> None:
    part = f".{name}.{os.urandom(8).hex()}"
    try:
        with open(create_beneath(folder, part), "wb") as file:
            file.write(data)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        raise
