"""The addresses of skills and their files: `skill://place/path`, and nothing else.

A place is one or two segments; the first is the skill's id, the last its name as it is written.
"""

from __future__ import annotations

import os
from urllib.parse import quote, unquote_to_bytes

SCHEME = "skill://"
_MAX_CHARS = 4_096


def uri_of(place: str, path: str = "") -> str:
    """The address of a file or folder of a skill; without a path that of the skill's folder."""
    whole = f"{place}/{path}" if path else place
    return SCHEME + quote(os.fsencode(whole), safe="/-._~")


def sendable(text: str) -> str:
    """The text as a message can hold it: names of files may be no text at all."""
    return text.encode("utf-8", "replace").decode("utf-8")


def segments(uri: str) -> list[str] | None:
    """The parts of an address, each unescaped once; None for what is no address of this kind.

    No part is empty, a dot or two, or holds a slash, so that joining them leads nowhere else.
    """
    if not uri.startswith(SCHEME) or len(uri) > _MAX_CHARS or any(mark in uri for mark in "?#\\"):
        return None
    parts = [os.fsdecode(unquote_to_bytes(part)) for part in uri[len(SCHEME) :].split("/")]
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        return None
    return parts
