"""What a source gives, and which sources have to be pulled at all."""

import os
from typing import NamedTuple

from skillbelt.values import Diagnostic, Origin

_SCHEMES = ("http://", "https://", "file://")
ARCHIVE_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")


class Located(NamedTuple):
    """A local folder to be scanned for skills, and where it came from."""

    folder: str
    origin: Origin


class Pulled(NamedTuple):
    """What one source gave: no folder at all when there is neither a new nor an earlier copy."""

    located: tuple[Located, ...]
    diagnostics: tuple[Diagnostic, ...]


def is_remote(source: str) -> bool:
    """Whether the source must be pulled: a URL, or the path of an archive; not a plain folder."""
    lowered = source.strip().lower()
    if lowered.startswith(_SCHEMES):
        return True
    return lowered.endswith(ARCHIVE_ENDINGS) and not os.path.isdir(at_home(source))


def at_home(path: str) -> str:
    """The path with `~` expanded; one that no user's name can stand in is left as it is."""
    try:
        return os.path.expanduser(path)
    except ValueError:
        return path
