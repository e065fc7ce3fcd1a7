"""Responses of a package index, and the pages that an installer is given instead of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from typing import NamedTuple, Protocol

# The reserved host name at which an installer sees its index.
HOST = "packages.invalid"
_CHUNK = 256 * 2**10
_KEPT_BYTES, _KEPT_FILE_BYTES = 64 * 2**20, 8 * 2**20


class NotFetched(Exception):
    """A URL could not be fetched; `status` is the HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Readable(Protocol):
    def read(self, most: int, /) -> bytes: ...

    def close(self) -> object: ...


class BodyChunks:
    """The chunks of a response body; the consumer closes it."""

    def __init__(self, source: _Readable) -> None:
        self._source = source

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = self._source.read(_CHUNK)
        except OSError as error:
            raise NotFetched(502, f"the connection broke: {error}") from error
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Close the file or connection."""
        self._source.close()


class Fetched(NamedTuple):
    """A response: the final URL, the type, the size (None: unknown) and the body."""

    url: str
    type: str
    size: int | None
    pieces: BodyChunks

    def whole(self, most: int) -> bytes:
        """Read the whole body; raises NotFetched when it is too large."""
        data = bytearray()
        with closing(self.pieces):
            for piece in self.pieces:
                data += piece
                if len(data) > most:
                    raise NotFetched(502, f"{self.url} has more than {most} bytes")
        return bytes(data)


class KeptPages:
    """Small pages and files that were fetched while resolving: installing needs them again."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[str, str, bytes]] = {}
        self._left = _KEPT_BYTES
        self._lock = threading.Lock()
        self._turns: dict[tuple[str, str], threading.Lock] = {}

    def turn(self, url: str, accept: str) -> threading.Lock:
        """Return the lock to hold while fetching, so that nothing is fetched twice at a time."""
        with self._lock:
            return self._turns.setdefault((url, accept), threading.Lock())

    def size(self, url: str) -> int:
        """Return the size of a file that was fetched; 0 for any other."""
        with self._lock:
            return next((len(one[2]) for key, one in self._found.items() if key[0] == url), 0)

    def find(self, url: str, accept: str) -> Fetched | None:
        """Return the earlier response of that URL."""
        with self._lock:
            found = self._found.get((url, accept))
        return found and Fetched(found[0], found[1], len(found[2]), BodyChunks(BytesIO(found[2])))

    def add(self, url: str, accept: str, fetched: Fetched) -> Fetched:
        """Cache a small response that is not from this machine; return the same."""
        size = fetched.size
        if size is None or size > _KEPT_FILE_BYTES or fetched.url.startswith("file:"):
            return fetched
        data = fetched.whole(_KEPT_FILE_BYTES)
        with self._lock:
            if len(data) == size and size <= self._left:
                self._left -= size
                self._found[url, accept] = (fetched.url, fetched.type, data)
        return Fetched(fetched.url, fetched.type, size, BodyChunks(BytesIO(data)))


class IndexPage(NamedTuple):
    """One response to an installer. Without a `size` it ends with the connection."""

    status: int
    type: str
    size: int | None
    pieces: BodyChunks


class PackageIndex(Protocol):
    """Answers requests for pages and files."""

    def page(self, path: str) -> IndexPage:
        """Return the page at that path; raises NotFetched."""


def page_of(status: int, type: str, data: bytes) -> IndexPage:
    """Return a page with these bytes."""
    return IndexPage(status, type, len(data), BodyChunks(BytesIO(data)))
