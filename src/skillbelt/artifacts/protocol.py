"""The contract of an artifact store, and the helpers that every store needs.

`skillbelt.artifacts.conformance` tests each promise.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from skillbelt.errors import ArtifactError, log_warning
from skillbelt.store.protocol import SessionKey
from skillbelt.untrusted_json import read_json

SCHEME = "artifact://"
USER_PREFIX = "user:"
DEFAULT_MIME = "application/octet-stream"
MAX_NAME_BYTES = 1024
MAX_MIME_BYTES = 255
CHUNK = 2**20
_MAX_VERSION = 2**63 - 1
# Controls, surrogates, and the two characters that end a line without being a control.
_REFUSED = frozenset(("Cc", "Cs", "Zl", "Zp"))
_SHA256 = re.compile("[0-9a-f]{64}")
_SHOWN = 200


class Artifact(NamedTuple):
    """One version of an artifact; `sha256` is that of its bytes, `time` in Unix seconds."""

    name: str
    version: int
    size: int
    sha256: str
    mime: str
    time: float


class ArtifactStore(Protocol):
    """A store for the files of a conversation, by name, in every version.

    Versions count from 0. A version never changes, and its number is never used again, not even
    after `delete`. A name that begins with `user:` is shared by all sessions of the user in the
    app; every other name belongs to the session. Safe to use from many threads. ArtifactError for a
    name that is refused, for a missing artifact, and when storing or reading fails.
    """

    def save(
        self, key: SessionKey, name: str, data: bytes | BinaryIO, mime: str = DEFAULT_MIME
    ) -> Artifact:
        """Store the bytes, or the rest of the file, as the next version: all or nothing."""

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        """Return the entry of a version; of the newest when none is given."""

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        """Open the bytes of a version for reading. The caller closes the file."""

    def latest(self, key: SessionKey) -> list[Artifact]:
        """Return the newest version of each artifact the session sees, in order of their names."""

    def versions(self, key: SessionKey, name: str) -> list[Artifact]:
        """Return all existing versions, oldest first; none for a name that does not exist."""

    def delete(self, key: SessionKey, name: str) -> bool:
        """Delete every version of it; return whether there was one."""


def read(
    store: ArtifactStore, key: SessionKey, name: str, version: int | None = None
) -> tuple[Artifact, bytes]:
    """Return a version and all its bytes; ArtifactError when they are not those that were saved."""
    found = store.find(key, name, version)
    with store.open(key, name, found.version) as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise ArtifactError(f"{reference(name, found.version)} was damaged since it was saved")
    return found, data


class SessionArtifacts:
    """The artifacts of one session, for callers that need not know which session it is."""

    def __init__(self, store: ArtifactStore, key: SessionKey) -> None:
        self.store, self.key = store, key

    def resolve(self, name: str, version: int | None = None) -> int:
        """Return the number of the version; of the newest when none is given."""
        return self.store.find(self.key, name, version).version

    def open(self, name: str, version: int | None = None) -> BinaryIO:
        """Open the bytes of a version for reading. The caller closes the file."""
        return self.store.open(self.key, name, version)

    def save(self, name: str, data: bytes | BinaryIO, mime: str = DEFAULT_MIME) -> int:
        """Store the bytes; return the number of their version. ArtifactError if the store fails."""
        try:
            return self.store.save(self.key, name, data, mime).version
        except OSError as error:  # of a host's own store: the run that produced the file is over
            raise ArtifactError(f"the artifact store failed: {error}") from error


def parse_reference(text: str) -> tuple[str, int | None]:
    """Return the name and the version of `artifact://name[@version]`; ArtifactError otherwise.

    Only a number after the last `@` is a version; anything else belongs to the name.
    """
    if not text.startswith(SCHEME):
        raise ArtifactError(f"{text[:_SHOWN]!r} is not a reference such as {SCHEME}name@0")
    rest = text.removeprefix(SCHEME)
    name, mark, number = rest.rpartition("@")
    if not (mark and number.isascii() and number.isdigit()):
        return check_name(rest), None
    check_name(name)
    if len(number) > len(str(_MAX_VERSION)):
        raise missing(name, number[:_SHOWN])
    return name, int(number)


def reference(name: str, version: int) -> str:
    """Return the reference that `parse_reference` reads."""
    return f"{SCHEME}{name}@{version}"


def check_name(name: str) -> str:
    """Return the name if an artifact may have it; ArtifactError with the reason otherwise."""
    fault = _fault(name, MAX_NAME_BYTES)
    if not name.removeprefix(USER_PREFIX).strip():
        fault = "is empty"
    if fault:
        raise ArtifactError(f"{name[:_SHOWN]!r} cannot name an artifact: it {fault}")
    return name


def check_mime(mime: str) -> str:
    """Return the MIME type if it is valid; ArtifactError with the reason otherwise."""
    if fault := _fault(mime, MAX_MIME_BYTES):
        raise ArtifactError(f"{mime[:_SHOWN]!r} cannot be a MIME type: it {fault}")
    return mime


def _fault(text: str, most: int) -> str:
    if any(unicodedata.category(char) in _REFUSED for char in text[: most + 1]):
        return "holds a control character, or one that is not valid"
    return f"has more than {most} bytes" if len(text[: most + 1].encode()) > most else ""


def owner(key: SessionKey, name: str) -> tuple[str, ...]:
    """Return the owner of an artifact: the parts of the key that count."""
    return key[:2] if name.startswith(USER_PREFIX) else key[:]


def owners(key: SessionKey) -> tuple[tuple[str, ...], ...]:
    """Return all owners whose artifacts the session sees."""
    return key[:2], key[:]


def digest(*parts: str) -> str:
    """Return a digest of the texts, so that no text becomes part of a path."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(b"%d:" % len(data) + data)
    return hashed.hexdigest()


def chunks(data: bytes | BinaryIO) -> Iterator[bytes]:
    """Yield the bytes in pieces; a file is never read as a whole."""
    if isinstance(data, bytes):
        yield data
        return
    while chunk := _read_chunk(data):
        yield chunk


def _read_chunk(file: BinaryIO) -> bytes:
    try:
        return file.read(CHUNK)
    except OSError as error:
        raise ArtifactError(f"the data to save cannot be read: {error}") from error


def encoded(artifact: Artifact) -> bytes:
    """Return the record of a version, as it is stored."""
    return json.dumps(artifact._asdict()).encode()


def decoded(data: bytes) -> Artifact:
    """Return the artifact of a record; ArtifactError when the record is damaged."""
    try:
        found = Artifact(**read_json(data))
        # The hash becomes part of a path.
        if not _SHA256.fullmatch(found.sha256):
            raise ValueError("it holds no hash")
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"the record of an artifact was damaged: {error}") from error
    return found


def refuse_damaged(path: str, error: ArtifactError) -> None:
    """Raise ArtifactError for a damaged record, with its path and the remedy."""
    raise ArtifactError(f"{path}: {error}; remove it, or delete the artifact") from error


def log_damaged(path: str, error: ArtifactError) -> None:
    """Log a damaged record that is left out."""
    log_warning(f"{path}: {error}; it is left out")


def is_version(number: int) -> bool:
    """Whether an artifact could have a version of that number."""
    return 0 <= number <= _MAX_VERSION


def missing(name: str, version: object = None) -> ArtifactError:
    """Return the error for a missing artifact."""
    which = "" if version is None else f" in version {version}"
    return ArtifactError(f"there is no artifact {name[:_SHOWN]!r}{which}")
