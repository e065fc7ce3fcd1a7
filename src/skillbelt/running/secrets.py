"""Keeping secrets that a run was given out of what it says: results, files shown, the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from skillbelt.sandbox.protocol import Listener, Stream

# Shorter values stand in too many texts to be recognised as one.
_LEAST_CHARS = 6
_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH)"
    r"(?:_|$)",
    re.IGNORECASE,
)


def secrets_of(env: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names say that their values are secret."""
    return {
        name: value for name, value in env.items() if len(value) >= _LEAST_CHARS and is_secret(name)
    }


def is_secret(name: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    return _SECRET.search(name) is not None


def redacted(text: str, secrets: Mapping[str, str], *, cut: bool = False) -> str:
    """The text with the name of each secret in place of its value.

    Where the text was `cut`, an end that may be the beginning of a secret goes as well.
    """
    if not secrets or not text:
        return text
    stream = Redactor(secrets)
    shown = stream.more(_bytes(text))
    return (shown if cut else shown + stream.end()).decode("utf-8", "surrogatepass")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class Redactor:
    """A stream that comes in pieces, without the secrets: what may begin one waits for the rest."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        named = {_bytes(value): _bytes(f"[{name}]") for name, value in secrets.items()}
        # Where several begin at the same place, it is the longest that is meant.
        self._names = dict(sorted(named.items(), key=lambda item: -len(item[0])))
        self._pattern = re.compile(b"|".join(map(re.escape, self._names)))
        self._held = b""

    def more(self, data: bytes) -> bytes:
        """What can be shown once this piece is there."""
        data, at = self._held + data, 0
        end = self._open_end(data, 0)
        shown: list[bytes] = []
        for found in self._found(data):
            if found.start() >= end:
                break
            shown += (data[at : found.start()], self._names[found[0]])
            at = found.end()
            end = end if at <= end else self._open_end(data, at)
        self._held = data[end:]
        return b"".join((*shown, data[at:end]))

    def end(self) -> bytes:
        """What was still held back, as nothing more comes."""
        data, self._held = self._held, b""
        return self._pattern.sub(lambda found: self._names[found[0]], data)

    def _found(self, data: bytes) -> Iterator[re.Match[bytes]]:
        # To look for each alone is much quicker than for all, and there seldom is any.
        there = any(secret in data for secret in self._names)
        return self._pattern.finditer(data) if there else iter(())

    def _open_end(self, data: bytes, at: int) -> int:
        """From where on the data may begin a secret, of which the rest is still to come."""
        return min(_open_end(data, at, secret) for secret in self._names)


def _open_end(data: bytes, at: int, secret: bytes) -> int:
    start = max(at, len(data) - len(secret) + 1)
    while (start := data.find(secret[:1], start)) >= 0:
        if secret.startswith(data[start:]):
            return start
        start += 1
    return len(data)


class RedactingListener:
    """Passes a run on to a listener, without the secrets that the run was given."""

    def __init__(self, listener: Listener, secrets: Mapping[str, str]) -> None:
        self._listener = listener
        self._streams: dict[Stream, Redactor] = {
            "stdout": Redactor(secrets),
            "stderr": Redactor(secrets),
        }

    def __call__(self, stream: Stream, data: bytes) -> None:
        """More of a stream."""
        self._pass_on(stream, self._streams[stream].more(data))

    def end(self) -> None:
        """The run is over; what was held back is passed on."""
        for stream, redactor in self._streams.items():
            with suppress(Exception):  # as for all that a listener throws
                self._pass_on(stream, redactor.end())

    def _pass_on(self, stream: Stream, data: bytes) -> None:
        if data:
            self._listener(stream, data)
