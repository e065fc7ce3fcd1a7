"""Keeping secrets that a run was given out of what it says: results, files shown, the log."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
