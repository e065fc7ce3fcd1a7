"""Limits of one source: time, bytes and files, enforced while it is read."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skillbelt.discovery.sources.failure import OutOfTime
from skillbelt.files.contain import create_beneath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# One download. Like the next two, the limit of other clients for the same archives.
MAX_DOWNLOAD_BYTES = 64 * 2**20
# One file of an archive.
MAX_EXTRACTED_FILE_BYTES = 64 * 2**20
# All files of an archive together.
MAX_EXTRACTED_BYTES = 256 * 2**20
# As many as the manifest of a skill may have.
MAX_ARCHIVE_FILES = 10_000
# An index of MAX_REMOTE_SKILLS entries with long descriptions fits.
MAX_REMOTE_INDEX_BYTES = 8 * 2**20
# Skills that one index may list.
MAX_REMOTE_SKILLS = 10_000
# One remote source in total, so that a slow one does not hold up a listing.
SOURCE_TIMEOUT_SECONDS = 60.0
# Age of a remote copy before the server is asked again; `refresh` asks at once.
REMOTE_REFRESH_SECONDS = 300.0


class Refusal(Exception):
    """A limit or a safety rule was broken; the text says which."""


class Deadline:
    """The time at which a source must be done."""

    def __init__(self, source: str, seconds: float) -> None:
        self._source, self._seconds = source, seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, never below zero."""
        return max(self._end - time.monotonic(), 0.0)

    def check(self) -> None:
        """Raise OutOfTime after the deadline."""
        if self.left() <= 0:
            raise self.expired()

    def expired(self) -> OutOfTime:
        """Return the exception to raise after the deadline, which no setting changes."""
        return OutOfTime(
            self._source,
            f"not done after {self._seconds:g} s",
            "check that it answers, and try again; no setting gives it more time",
        )


class PullBudget:
    """The bytes that may still be written for one source, shared by all of its files."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self._file_bytes = MAX_EXTRACTED_FILE_BYTES
        self._all_bytes = self._left = MAX_EXTRACTED_BYTES

    def spend(self, count: int) -> None:
        """Count bytes against the budget; raises Refusal when it is exceeded."""
        self.deadline.check()
        self._left -= count
        if self._left < 0:
            raise Refusal(f"more than {self._all_bytes} bytes in all")

    @contextmanager
    def file(
        self, dir_fd: int, relative: str, *, executable: bool = False
    ) -> Iterator[Callable[[bytes], None]]:
        """Create a file below the folder; yield a function that writes to it within the limits."""
        with os.fdopen(create_beneath(dir_fd, relative, executable=executable), "wb") as file:
            written = 0

            def write(data: bytes) -> None:
                nonlocal written
                written += len(data)
                if written > self._file_bytes:
                    raise Refusal(f"{relative!r} has more than {self._file_bytes} bytes")
                self.spend(len(data))
                file.write(data)

            yield write
