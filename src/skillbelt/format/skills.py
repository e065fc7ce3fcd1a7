"""Skills by name as one immutable value, which keeps what was computed from it."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from typing import Any, TypeVar

from skillbelt.format.skill import Skill

T = TypeVar("T")
_MAX_DERIVED = 64  # results kept with one mapping: as many as a busy server has agents and filters


class Skills(Mapping[str, Skill]):
    """Skills by name that never change, and what was computed from them."""

    __slots__ = ("_derived", "_skills")

    def __init__(self, skills: Mapping[str, Skill]) -> None:
        self._skills = skills
        self._derived: dict[Hashable, tuple[object, Any]] = {}

    @classmethod
    def of(cls, skills: Iterable[Skill]) -> Skills:
        """Return the skills by their names, in the order given."""
        return Skills({skill.name: skill for skill in skills})

    def derive(self, key: Hashable, make: Callable[[], T], *, basis: object = None) -> T:
        """Return what `make` gives, computed once for each key.

        The key holds everything that the result depends on besides the skills. A result that also
        depends on a `basis`, which is not hashable, is computed again for another object.
        """
        found = self._derived.get(key)
        if found is None or found[0] is not basis:
            found = basis, make()
            if len(self._derived) >= _MAX_DERIVED:
                self._derived.clear()
            self._derived[key] = found
        made: T = found[1]
        return made

    def __getitem__(self, name: str) -> Skill:
        return self._skills[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._skills)

    def __len__(self) -> int:
        return len(self._skills)

    def __contains__(self, name: object) -> bool:
        return name in self._skills

    def __eq__(self, other: object) -> bool:
        return self._skills == (other._skills if isinstance(other, Skills) else other)

    __hash__ = None  # type: ignore[assignment]

    # A dict's own views are many times faster than those that Mapping makes.
    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._skills.keys()

    def values(self) -> ValuesView[Skill]:
        """Return the skills, in the order of their names."""
        return self._skills.values()

    def items(self) -> ItemsView[str, Skill]:
        """Return names with skills."""
        return self._skills.items()
