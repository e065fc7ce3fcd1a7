"""Artifacts that live as long as the process."""

import hashlib
import io
import threading
import time
from typing import BinaryIO

from skillbelt.artifacts.protocol import (
    DEFAULT_MIME,
    Artifact,
    check_mime,
    check_name,
    chunks,
    missing,
    owner,
    owners,
)
from skillbelt.store.protocol import SessionKey

_Place = tuple[tuple[str, ...], str]


class MemoryArtifacts:
    """Artifacts in memory, for tests and for files that need not outlive the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[_Place, int] = {}
        self._kept: dict[_Place, dict[int, Artifact]] = {}
        self._blobs: dict[str, bytes] = {}

    def save(
        self, key: SessionKey, name: str, data: bytes | BinaryIO, mime: str = DEFAULT_MIME
    ) -> Artifact:
        """Store the bytes, or the rest of the file, as the next version: all or nothing."""
        place = owner(key, check_name(name)), name
        check_mime(mime)
        blob = b"".join(chunks(data))
        sha256 = hashlib.sha256(blob).hexdigest()
        with self._lock:
            version = self._next.get(place, 0)
            self._next[place] = version + 1
            artifact = Artifact(
                name=name,
                version=version,
                size=len(blob),
                sha256=sha256,
                mime=mime,
                time=time.time(),
            )
            self._kept.setdefault(place, {})[version] = artifact
            self._blobs.setdefault(sha256, blob)
        return artifact

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        """Return the entry of a version; of the newest when none is given."""
        with self._lock:
            return self._find(key, name, version)

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        """Open the bytes of a version for reading. The caller closes the file."""
        with self._lock:
            return io.BytesIO(self._blobs[self._find(key, name, version).sha256])

    def latest(self, key: SessionKey) -> list[Artifact]:
        """Return the newest version of each artifact the session sees, in order of their names."""
        with self._lock:
            kept = [found for (whose, _), found in self._kept.items() if whose in owners(key)]
            return sorted(found[max(found)] for found in kept)

    def versions(self, key: SessionKey, name: str) -> list[Artifact]:
        """Return all existing versions, oldest first; none for a name that does not exist."""
        with self._lock:
            kept = self._kept.get((owner(key, check_name(name)), name), {})
            return [kept[version] for version in sorted(kept)]

    def delete(self, key: SessionKey, name: str) -> bool:
        """Delete every version of it; return whether there was one."""
        with self._lock:
            gone = self._kept.pop((owner(key, check_name(name)), name), {})
            used = {one.sha256 for kept in self._kept.values() for one in kept.values()}
            for sha256 in {one.sha256 for one in gone.values()} - used:
                del self._blobs[sha256]
        return bool(gone)

    def _find(self, key: SessionKey, name: str, version: int | None) -> Artifact:
        kept = self._kept.get((owner(key, check_name(name)), name), {})
        wanted = max(kept, default=None) if version is None else version
        if wanted not in kept:
            raise missing(name, version)
        return kept[wanted]
