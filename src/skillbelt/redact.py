"""Keeping secrets that a run was given out of what it says: results, files shown, the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        name: value
        for name, value in env.items()
        if len(value) >= _LEAST_CHARS and _SECRET.search(name)
    }


def redacted(text: str, secrets: Mapping[str, str]) -> str:
    """The text with the name of each secret in place of its value."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"[{name}]")
    return text


@contextmanager
def quiet(listener: Listener | None, secrets: Mapping[str, str]) -> Iterator[Listener | None]:
    """The listener, told everything but the secrets, wherever the pieces of output end."""
    if listener is None or not secrets:
        yield listener
        return
    held: dict[Stream, bytes] = {}
    longest = max(len(value.encode("utf-8", "surrogateescape")) for value in secrets.values())

    def told(stream: Stream, data: bytes) -> None:
        text = _without(held.pop(stream, b"") + data, secrets)
        # What could be the beginning of a secret waits for what follows.
        at = max(0, len(text) - longest + 1)
        held[stream] = text[at:]
        if at:
            listener(stream, text[:at])

    try:
        yield told
    finally:
        for stream, rest in held.items():
            if rest:
                listener(stream, rest)


def _without(data: bytes, secrets: Mapping[str, str]) -> bytes:
    return redacted(data.decode("utf-8", "surrogateescape"), secrets).encode(
        "utf-8", "surrogateescape"
    )
