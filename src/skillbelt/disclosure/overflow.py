"""Storage for texts that were too long to return, to be read in pieces."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress

from skillbelt.errors import FileUnreadable, ObjectError, PathEscape, log_warning
from skillbelt.files.contain import (
    READ_FILE,
    create_beneath,
    open_beneath,
    open_folder,
    read_handle,
)
from skillbelt.files.private import make_folder
from skillbelt.objects.blobs import Blobs
from skillbelt.records import NamedTuple
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


class TextPiece(NamedTuple):
    """A part of a text. `next_line` and `next_char` say where to continue; 0 at the end.

    `total_lines` is 0 if they were not counted.
    """

    text: str
    start_line: int
    next_line: int
    next_char: int
    total_lines: int


class Storage:
    """A private folder of texts, each named by its hash; created for the first text.

    Texts are also in `shared`, a part of an object store, if that is given: another machine can
    read there what was stored here.
    """

    def __init__(self, folder: str | os.PathLike[str], *, shared: Blobs | None = None) -> None:
        self.folder, self._shared = os.path.abspath(folder), shared
        inside = os.path.join(self.folder, "")
        # How the folder may appear in a text: as it is, and escaped for one line.
        self.spellings = tuple(dict.fromkeys((inside, one_line(inside))))

    def keep(self, text: str) -> str:
        """Store a text, atomically and for this user alone; return the path of its file."""
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(data).hexdigest()
        name = f"{digest}.txt"
        self._keep(name, data)
        if self._shared is not None:
            _share(self._shared, name, data)
        return os.path.join(self.folder, name)

    def _keep(self, name: str, data: bytes) -> None:
        make_folder(self.folder)
        folder = open_folder(self.folder)
        try:
            if not _renew(folder, name, len(data)):
                _write(folder, name, data)
        finally:
            os.close(folder)

    def read(
        self, ref: str, start_line: int = 1, lines: int | None = None, chars: int = _MOST_CHARS
    ) -> Page:
        """Return lines of a stored text, at most `chars` characters; PathEscape for other paths."""
        return page_of(self.text(ref), start_line, lines, chars)

    def text(self, ref: str) -> str:
        """Return a whole stored text; PathEscape for other paths."""
        parent, name = os.path.split(ref)
        if parent != self.folder or not _NAME.fullmatch(name):
            raise PathEscape(ref, self.folder, "is not a stored text")
        return self._read_text(ref, name)

    def _read_text(self, ref: str, name: str) -> str:
        data = fetched = self._shared_text(ref, name)
        if data is None:
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
        if fetched is not None:
            self._keep(name, fetched)  # the next page is then read here
        return data.decode("utf-8", "surrogatepass")

    def _shared_text(self, ref: str, name: str) -> bytes | None:
        """Return a text that only the object store has; None if it is here or not shared."""
        if self._shared is None or os.path.exists(os.path.join(self.folder, name)):
            return None
        try:
            return self._shared.read(name, _MOST_BYTES)
        except ObjectError as error:
            raise FileUnreadable(ref, f"cannot be fetched: {error}") from error

    def remove(self) -> bool:
        """Remove all texts, also those in the object store; return whether there was one."""
        shared = list(self._shared.walk("")) if self._shared is not None else []
        for found in shared:
            if self._shared is not None:
                self._shared.delete(found.path)
        there = os.path.isdir(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        return there or bool(shared)

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
    """Return lines of a text, at most `chars` characters, and where to continue.

    The rest of a line that is too long for any page is skipped.
    """
    found = read_piece([text], start_line, lines, chars)
    passed = found.next_line + (found.next_char > 1)
    following = passed if passed <= found.total_lines else 0
    return Page(found.text, found.start_line, following, found.total_lines)


def read_piece(
    chunks: Iterable[str],
    start_line: int = 1,
    lines: int | None = None,
    chars: int = _MOST_CHARS,
    *,
    start_char: int = 1,
    count: bool = True,
) -> TextPiece:
    """Return lines of a text that comes in chunks, at most `chars` characters of it.

    A line is cut only if it is too long for any piece; `start_char` continues there. Without
    `count` it stops at the end of the piece, and the number of all lines is not known.
    """
    reader = _PieceReader(start_line, lines, chars, start_char)
    for chunk in filter(None, chunks):
        reader.take(chunk)
        if reader.following and not count:
            return reader.piece()
    return reader.piece(ended=True)


class _PieceReader:
    """Takes the chunks of a text one after the other and keeps only the piece."""

    def __init__(self, start_line: int, lines: int | None, chars: int, start_char: int) -> None:
        self._start, self._begin = max(start_line, 1), max(start_char, 1)
        self._last = None if lines is None else self._start + max(lines, 0)
        self._room, self._skip = chars, self._begin - 1
        self._line, self._open = 1, False
        self._whole: list[str] = []  # the complete lines
        self._part: list[str] = []  # the part of the last line so far
        self.following: tuple[int, int] | None = None

    def take(self, chunk: str) -> None:
        at = self._skip_lines(chunk) if self._line < self._start else 0
        while at < len(chunk) and self.following is None:
            at = self._add_line(chunk, at)
        self._line += chunk.count("\n", at)
        self._open = not chunk.endswith("\n")

    def _skip_lines(self, chunk: str) -> int:
        """Skip the lines before the piece; return where it may begin in this chunk."""
        left = self._start - self._line
        there = chunk.count("\n")
        if there < left:
            self._line += there
            return len(chunk)
        at = 0
        for _ in range(left):
            at = chunk.index("\n", at) + 1
        self._line = self._start
        return at

    def _add_line(self, chunk: str, at: int) -> int:
        """Add the rest of a line, as far as it is in this chunk; return where it ends."""
        if self._last is not None and self._line >= self._last:
            self.following = self._line, 1
            return at
        end = chunk.find("\n", at) + 1 or len(chunk)
        wanted = chunk[at + self._skip : end]
        self._skip -= min(self._skip, end - at)
        if len(wanted) > self._room:
            if self._whole:
                self._part, self.following = [], (self._line, 1)
            else:
                self._part.append(wanted[: self._room])
                given = sum(map(len, self._part))
                self.following = self._line, self._begin + given
            return at
        self._part.append(wanted)
        self._room -= len(wanted)
        if chunk[end - 1] == "\n":
            self._whole += self._part
            self._part, self._skip = [], 0
            self._line += 1
        return end

    def piece(self, *, ended: bool = False) -> TextPiece:
        line, char = self.following or (0, 0)
        return TextPiece(
            text="".join((*self._whole, *self._part)),
            start_line=self._start,
            next_line=line,
            next_char=char,
            total_lines=self._line - 1 + self._open if ended else 0,
        )


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Return whether the file is a text, or a partial one whose writer was killed."""
    return _NAME.match(entry.name.removeprefix(".")) is not None


def _share(shared: Blobs, name: str, data: bytes) -> None:
    """Put the text into the object store; a failure is only logged, because this machine has it."""
    try:
        found = shared.stat(name)
        if found is None or found.size != len(data):
            shared.write(name, data)
    except ObjectError as error:
        log_warning(f"a long text is kept on this machine only: {error}")


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
