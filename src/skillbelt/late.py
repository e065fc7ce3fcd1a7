"""Modules that are imported, and values that are made, when they are first used.

    if TYPE_CHECKING:
        import tarfile
    else:
        tarfile = Late("tarfile")  # cost: 3 ms, only for archives

For modules that few runs of a command need. Unlike an import inside a function it stands with the
other imports, and serves the whole module.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from functools import cached_property, wraps
from importlib import import_module
from typing import Any, TypeVar

_Made = TypeVar("_Made")


class Late:
    """Stands for a module; the first attribute that is read imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the module."""
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)
        return found


def made_once(make: Callable[[Any], _Made]) -> cached_property[_Made]:
    """Make a property whose value is made once, also if several threads ask for it at a time.

    `cached_property` alone has no lock since Python 3.12, and two threads would get two values.
    """
    lock = RLock()

    @wraps(make)
    def find_or_make(owner: Any) -> _Made:
        with lock:
            kept = vars(owner)
            if make.__name__ not in kept:
                kept[make.__name__] = make(owner)
            found: _Made = kept[make.__name__]
            return found

    return cached_property(find_or_make)
