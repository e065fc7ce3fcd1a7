"""Files that a message mentions as `@path`: found, completed, attached. All lie in the project."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

from skillbelt.files.contain import name_fault
from skillbelt.files.tree import LEFT_OUT
from skillbelt.text import one_line

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S+)")
_AFTER = ".,;:!?)]}'\""  # characters that may follow a path in a sentence
_MAX_FILES = 5_000
_KEPT_SECONDS = 5.0


class Suggestion(NamedTuple):
    """A completion, with a few words about it."""

    text: str
    about: str = ""


def find_mentions(text: str, project: str) -> list[str]:
    """Return the files of the project that the text mentions, in order.

    A mention that is not a file is ordinary text, such as an address or a name. Whether a file may
    be read is decided when it is opened.
    """
    found: dict[str, None] = {}
    for mention in _MENTION.findall(text):
        for name in dict.fromkeys((mention, mention.rstrip(_AFTER))):
            path = os.path.join(project, name.removeprefix("./"))
            if not name_fault(name.removeprefix("./")) and _is_file(path):
                found[path] = None
                break
    return list(found)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


class ProjectFiles:
    """The names of the project's files, for completion: a bounded walk that follows no links."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._names: list[str] = []
        self._until = 0.0

    def matching(self, typed: str) -> list[str]:
        """Return the files whose path begins with or contains the typed text, the nearest first."""
        if monotonic() > self._until:
            self._names = list(self._walk())
            self._until = monotonic() + _KEPT_SECONDS
        small = typed.removeprefix("./").casefold()
        first = [name for name in self._names if name.casefold().startswith(small)]
        return first + [
            name
            for name in self._names
            if small in name.casefold() and not name.casefold().startswith(small)
        ]

    def _walk(self) -> Iterator[str]:
        """Yield paths, nearest folders first; nothing hidden, nothing that cannot be typed."""
        level, seen = [""], 0
        while level and seen < _MAX_FILES:
            deeper: list[str] = []
            for folder in level:
                for entry in self._entries(folder):
                    seen += 1
                    name = f"{folder}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        deeper.append(f"{name}/")
                    elif entry.is_file(follow_symlinks=False):
                        yield name
                    if seen >= _MAX_FILES:
                        return
            level = deeper

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(os.path.join(self._project, folder)) as entries:
                found = [one for one in entries if _can_be_typed(one.name)]
        except OSError:
            return []
        return sorted(found, key=lambda one: one.name)


def _can_be_typed(name: str) -> bool:
    plain = one_line(name) == name and " " not in name
    return plain and not (name.startswith(".") or name in LEFT_OUT or name_fault(name))
