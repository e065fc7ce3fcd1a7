"""Modules that are imported, and values that are made, when they are first used.

    if TYPE_CHECKING:
        import tarfile
    else:
        tarfile = Late("tarfile")  # cost: 3 ms, only for archives

For modules that few runs of a command need. Unlike an import inside a function it is written with
the other imports, and serves the whole module.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, Self, TypeVar, overload

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


class made_once(Generic[_Made]):
    """A property whose value is made once, also if several threads ask for it at a time.

    `cached_property` has no lock since Python 3.12, and one lock for all owners before: a container
    engine that does not answer would keep those of other projects waiting.
    """

    def __init__(self, make: Callable[[Any], _Made]) -> None:
        self._make, self._name = make, make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type[Any] | None = None) -> _Made: ...

    def __get__(self, owner: object | None, kind: type[Any] | None = None) -> Self | _Made:
        """Return the value; once it is made, Python finds it with the owner."""
        if owner is None:
            return self
        kept, name = vars(owner), self._name
        with kept.setdefault(f"_making {name}", RLock()):
            if name not in kept:
                kept[name] = self._make(owner)
            kept.pop(f"_making {name}", None)
            found: _Made = kept[name]
            return found
