"""Redact the secrets of a run in its output: results, shown files, the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

from skillbelt.sandbox.protocol import Listener, Stream

_log = logging.getLogger(__name__)

# Shorter values occur in too many texts.
_LEAST_CHARS = 6
_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH)"
    r"(?:_|$)",
    re.IGNORECASE,
)


def secrets_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names mark their values as secret."""
    return {
        name: value for name, value in env.items() if len(value) >= _LEAST_CHARS and is_secret(name)
    }


def is_secret(name: str) -> bool:
    """Whether the name of a variable marks its value as secret."""
    return _SECRET.search(name) is not None


def redacted(text: str, secrets: Mapping[str, str], *, cut: bool = False) -> str:
    """Replace the value of each secret by its name.

    In a `cut` text, an end that may begin a secret is dropped too.
    """
    if not secrets or not text:
        return text
    stream = Redactor(secrets)
    shown = stream.more(_bytes(text))
    return (shown if cut else shown + stream.end()).decode("utf-8", "surrogatepass")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class Redactor:
    """Redacts a stream that comes in pieces: the possible beginning of a secret is held back."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        named = {_bytes(value): _bytes(f"[{name}]") for name, value in secrets.items()}
        # Where several secrets begin at the same place, the longest wins.
        self._names = dict(sorted(named.items(), key=lambda item: -len(item[0])))
        self._pattern = re.compile(b"|".join(map(re.escape, self._names)))
        self._held = b""

    def more(self, data: bytes) -> bytes:
        """Add a piece; return what can be shown."""
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
        """Return what was held back, at the end of the stream."""
        data, self._held = self._held, b""
        return self._pattern.sub(lambda found: self._names[found[0]], data)

    def _found(self, data: bytes) -> Iterator[re.Match[bytes]]:
        # Substring search is much faster than the pattern, and secrets are rare.
        there = any(secret in data for secret in self._names)
        return self._pattern.finditer(data) if there else iter(())

    def _open_end(self, data: bytes, at: int) -> int:
        """Return from where on the data may begin a secret."""
        return min(_open_end(data, at, secret) for secret in self._names)


def _open_end(data: bytes, at: int, secret: bytes) -> int:
    start = max(at, len(data) - len(secret) + 1)
    while (start := data.find(secret[:1], start)) >= 0:
        if secret.startswith(data[start:]):
            return start
        start += 1
    return len(data)


class RedactingListener:
    """Passes the output of a run to a listener, with its secrets redacted."""

    def __init__(self, listener: Listener, secrets: Mapping[str, str]) -> None:
        self._listener = listener
        self._streams: dict[Stream, Redactor] = {
            "stdout": Redactor(secrets),
            "stderr": Redactor(secrets),
        }

    def __call__(self, stream: Stream, data: bytes) -> None:
        """Redact more of a stream and pass it on."""
        self._pass_on(stream, self._streams[stream].more(data))

    def end(self) -> None:
        """Pass on what was held back, at the end of the run."""
        for stream, redactor in self._streams.items():
            try:
                self._pass_on(stream, redactor.end())
            except Exception:  # as for what a sandbox passes to a listener
                _log.exception("the listener for %s of a run failed", stream)

    def _pass_on(self, stream: Stream, data: bytes) -> None:
        if data:
            self._listener(stream, data)
