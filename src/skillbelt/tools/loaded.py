"""The texts of the skills that are loaded, read for each request to the model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from skillbelt.conversation.messages import Material
from skillbelt.conversation.state import LoadedSkill, RecordedText
from skillbelt.disclosure.body import list_docs
from skillbelt.errors import LoadError, PathEscape
from skillbelt.format.skill import Skill
from skillbelt.tools.caller import BROUGHT, GRANTED, Caller, not_given

_YOUNG_SECONDS = 2.0
_PLAIN = RecordedText({})
_CHANGED = "(changed since it was allowed; load it again to ask for it as it is now)"


# The stamp of the files, the texts, and whether the body is only a reason why there is none.
_Known = tuple[object, Material, bool]


class LoadedTexts:
    """Reads the texts of loaded skills; again only when their files changed."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self.withheld: set[str] = set()  # skills for which only a reason was given

    def read(
        self,
        loaded: Iterable[LoadedSkill],
        caller: Caller,
        shown: Mapping[str, RecordedText] = MappingProxyType({}),
    ) -> list[Material]:
        """Return the text of each skill that still exists; drop the others from the cache.

        Skills in `shown` are rendered as they were shown.
        """
        before, self._known = self._known, {}
        self.withheld = set()
        return list(self._read(loaded, caller, before, shown))

    def _read(
        self,
        loaded: Iterable[LoadedSkill],
        caller: Caller,
        before: dict[str, _Known],
        shown: Mapping[str, RecordedText],
    ) -> Iterator[Material]:
        for one in loaded:
            skill = caller.catalog.snapshot.get(one.name)
            if skill is None or not caller.audience.allows(skill):
                continue
            if _is_changed(skill, caller):
                self.withheld.add(skill.name)
                yield Material(skill.name, _CHANGED)
                continue
            paths = list_docs(skill) if one.all_docs else one.docs
            how = shown.get(one.name, _PLAIN)
            stamp = (skill, how, paths, _stamp(skill, paths))
            known = before.get(skill.name)
            if known is None or known[0] != stamp:
                known = (stamp, *_material(skill, how, paths, caller))
            self._known[skill.name] = known
            if known[2]:
                self.withheld.add(skill.name)
            yield known[1]


def _is_changed(skill: Skill, caller: Caller) -> bool:
    """Whether a person approved the skill, and it has changed since."""
    keys = [kind + skill.name for kind in (BROUGHT, GRANTED)]
    seen = [caller.state[key] for key in keys if key in caller.state]
    return bool(seen) and not skill.trusted and skill.files.digest() not in seen


def _material(
    skill: Skill, how: RecordedText, paths: Sequence[str], caller: Caller
) -> tuple[Material, bool]:
    """Return the texts of a skill, and whether its body is only a reason why there is none."""
    docs = tuple((one.path, one.text) for one in caller.documents(skill, paths))
    try:
        body = caller.body(skill, how.arguments, folder=how.folder)
        return Material(skill.name, body.text, docs), False
    except (LoadError, PathEscape) as error:
        return Material(skill.name, not_given(caller.presentable(str(error))), docs), True


def _stamp(skill: Skill, paths: Sequence[str]) -> object:
    """Return a stamp of a skill's files; unequal to any other if unsure."""
    try:
        found = [os.stat(skill.location), *(os.stat(f"{skill.dir}/{path}") for path in paths)]
    except (OSError, ValueError):
        return object()
    # The stamp would miss a second change within one tick of the file system's clock.
    if max(one.st_ctime for one in found) > time.time() - _YOUNG_SECONDS:
        return object()
    return [(one.st_mtime_ns, one.st_ctime_ns, one.st_size, one.st_ino) for one in found]
