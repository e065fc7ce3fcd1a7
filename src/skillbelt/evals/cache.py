"""Keep the result of each case by a digest of all that it depends on.

A result is written as soon as it is known. So a run that was killed goes on where it was, and
nothing is paid for twice.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from skillbelt.files.private import make_folder
from skillbelt.untrusted_json import BadJson, read_json

_MOST = 20_000  # results that are kept
_MOST_BYTES = 16 * 2**20  # of one
# A part of every key: results of another form are not read.
_FORM = 1


def key_of(**parts: object) -> str:
    """Return the digest of everything that a result depends on."""
    text = json.dumps({"form": _FORM, **parts}, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class EvalCache:
    """Results in a folder, a file for each. With `fresh` none is read, and all are written."""

    def __init__(self, folder: str, *, fresh: bool = False) -> None:
        self._folder, self._fresh = folder, fresh

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the result of that key; None if there is none, or it is damaged."""
        if self._fresh:
            return None
        try:
            with open(self._path(key), "rb") as file:
                found = read_json(file.read(_MOST_BYTES), most=_MOST_BYTES)
        except (OSError, BadJson):
            return None
        return found if isinstance(found, dict) else None

    def put(self, key: str, result: Mapping[str, object]) -> None:
        """Keep a result. A process that is killed meanwhile leaves the old one or the new one."""
        data = json.dumps(result, default=str).encode()
        if len(data) >= _MOST_BYTES:
            return
        make_folder(self._folder)
        handle, part = tempfile.mkstemp(dir=self._folder, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(part, self._path(key))
        except OSError:
            with suppress(OSError):
                os.unlink(part)
            raise

    def tidy(self) -> None:
        """Remove the oldest results beyond what is kept."""
        with suppress(OSError):
            found = sorted(os.scandir(self._folder), key=lambda one: one.stat().st_mtime_ns)
            for one in found[: max(len(found) - _MOST, 0)]:
                os.unlink(one.path)

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}.json")
