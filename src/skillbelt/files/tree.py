"""Walk a folder."""

from __future__ import annotations

import os
from functools import lru_cache

from skillbelt.files.contain import READ_FILE
from skillbelt.files.sensitive import HEAD_BYTES, looks_secret


@lru_cache(maxsize=256)
def secret_files(folder: str, mark: str) -> tuple[str, ...]:
    """Those of the files below a folder that look so, by their paths in it, sorted.

    `mark` stands for what the folder holds: for the same one it is not looked at again.
    """
    found = []
    for top, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            path = os.path.join(top, name)
            relative = os.path.relpath(path, folder)
            if looks_secret(relative) or looks_secret(relative, _head(path)):
                found.append(relative)
    return tuple(sorted(found))


def _head(path: str) -> bytes:
    try:
        handle = os.open(path, READ_FILE)
    except OSError:
        return b""
    try:
        return os.read(handle, HEAD_BYTES)
    except OSError:
        return b""
    finally:
        os.close(handle)
