"""Cache results by a digest of everything they depend on, in a folder of the user's cache.

A result is written as soon as it is known. So a run that was killed resumes where it stopped, and
nothing is paid for twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from skillbelt.files.contain import READ_FILE, read_handle
from skillbelt.files.private import make_folder
from skillbelt.untrusted_json import BadJson, read_json

_SUFFIX = ".json"
_MOST = 20_000  # results that are kept
_MOST_BYTES = 16 * 2**20  # of one result


class ResultCache:
    """A cache of results, one file for each. With `fresh`, none is read and all are written."""

    def __init__(
        self,
        folder: str,
        *,
        fresh: bool = False,
        most: int = _MOST,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._folder, self._fresh = folder, fresh
        self._most, self._most_bytes = most, most_bytes

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the result of that key; None if there is none or it is damaged."""
        if self._fresh:
            return None
        try:
            # Not through a link, and without waiting at a pipe.
            data = read_handle(os.open(self._path(key), READ_FILE), self._most_bytes)
            found = read_json(data, most=self._most_bytes)
        except (OSError, BadJson):
            return None
        return found if isinstance(found, dict) else None

    def put(self, key: str, result: Mapping[str, object]) -> None:
        """Store a result. A process that is killed meanwhile leaves the old one or the new one."""
        data = json.dumps(result, default=str).encode()
        if len(data) >= self._most_bytes:
            return
        make_folder(self._folder)
        part = os.path.join(self._folder, f"{os.urandom(8).hex()}.part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(part, self._path(key))
        except OSError:
            with suppress(OSError):
                os.unlink(part)
            raise

    def remove(self, key: str) -> None:
        """Remove the result of that key, if there is one."""
        with suppress(OSError):
            os.unlink(self._path(key))

    def keys(self, prefix: str) -> list[str]:
        """Return the keys of all results that begin so."""
        with suppress(OSError):
            names = sorted(one for one in os.listdir(self._folder) if one.startswith(prefix))
            return [one.removesuffix(_SUFFIX) for one in names if one.endswith(_SUFFIX)]
        return []

    def tidy(self) -> None:
        """Remove the oldest results beyond the bounds."""
        with suppress(OSError):
            found = sorted(os.scandir(self._folder), key=lambda one: one.stat().st_mtime_ns)
            for one in found[: max(len(found) - self._most, 0)]:
                os.unlink(one.path)

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}{_SUFFIX}")
