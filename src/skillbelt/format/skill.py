"""One skill: a frozen value, and the ways to make one.

The parser is imported when a file is read: with a warm index, none is.
"""

from __future__ import annotations

import os
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
from typing import TYPE_CHECKING, Any, TypeVar

from skillbelt.records import NamedTuple
from skillbelt.text import one_line, shorten
from skillbelt.values import (
    DERIVED,
    INTERNAL,
    MODEL,
    SKILL_FILE,
    SKIPPED,
    USER,
    Diagnostic,
    Frontmatter,
    Origin,
    Requirements,
    Scope,
    Visibility,
)

if TYPE_CHECKING:
    from pathlib import Path

    from skillbelt.files.manifest import SkillFiles
    from skillbelt.format.frontmatter import Card
    from skillbelt.format.skill_head import SkillHead

LOCAL = Origin()
T = TypeVar("T")
# The most results cached with one mapping: a busy server has as many agents and filters.
_MAX_DERIVED = 64
# Factories of `Skill.files` for skills whose files are not in a folder. `discovery` adds "mcp".
FILES_BY_ORIGIN: dict[str, Callable[[Skill], SkillFiles]] = {}


class Skill(NamedTuple):
    """A skill's descriptor: the head of its SKILL.md, never the body.

    `name` is the id: safe as a path, a pattern, a shell word and a tag. `title` is the name as it
    was written. The rest of the frontmatter is read from the file on first access; `source` holds
    the text of a skill that has no file. `fence` is the folder that no link of the skill may lead
    out of: the project's, empty for the user's own folders. `visible` and `pinned` are the settings
    for the skill.
    """

    name: str
    title: str
    description: str
    location: str
    scope: Scope = "explicit"
    origin: Origin = LOCAL
    when_to_use: str = ""
    model_visible: bool = True
    user_invocable: bool = True
    hidden: bool = False
    trusted: bool = True
    derived: bool = False
    body_offset: int = 0
    mtime_ns: int = 0
    source: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    shadows: tuple[str, ...] = ()
    fence: str = ""
    ctime_ns: int = 0
    visible: Visibility = "full"
    pinned: bool = False

    @property
    def dir(self) -> str:
        """The skill's folder."""
        return os.path.dirname(self.location)

    @property
    def files(self) -> SkillFiles:
        """Its files: in its folder, or listed by the MCP server that serves the skill."""
        if self.origin.kind == "mcp":
            return FILES_BY_ORIGIN["mcp"](self)
        from skillbelt.files.manifest import LocalFiles, TextFiles  # cost: 8 ms; `list` reads none

        if not os.path.isabs(self.location):
            return TextFiles(self.location, self.source)
        return LocalFiles(self.dir, self.fence, os.path.basename(self.location))

    @property
    def path(self) -> Path:
        """The SKILL.md itself."""
        from pathlib import Path  # cost: 5 ms, only for callers of `path`

        return Path(self.location)

    @property
    def frontmatter(self) -> Frontmatter:
        """The frontmatter, typed."""
        return self._head.frontmatter

    def told(self, key: str) -> object:
        """Return the skill's value for this product: `metadata.skillbelt.KEY` or the flat key."""
        metadata = self.frontmatter.metadata
        ours = metadata.get("skillbelt")
        nested = ours.get(key) if isinstance(ours, Mapping) else None
        return metadata.get(f"skillbelt.{key}") if nested is None else nested

    @property
    def requirements(self) -> Requirements:
        """The skill's requirements of the machine."""
        return self._head.requirements

    @property
    def fields(self) -> dict[str, object]:
        """The frontmatter's keys as written, unknown ones included."""
        fields = self._head.fields
        metadata = fields.get("metadata")
        # A copy without the `AsWritten` marks, which some libraries refuse.
        if not isinstance(metadata, dict):
            return fields
        plain = {key: str(one) if isinstance(one, str) else one for key, one in metadata.items()}
        return {**fields, "metadata": plain}

    @property
    def _head(self) -> SkillHead:
        if os.path.isabs(self.location):
            return _heads().read(self.location, self.fence)
        return _heads()(self.source.encode("utf-8", "surrogatepass"), self.location, "")

    def __repr__(self) -> str:
        about = shorten(one_line(self.description), 40)
        return shorten(f"<Skill {one_line(self.name)} ({self.scope}): {about!r}>", 100)

    @classmethod
    def from_card(cls, card: Card, location: str) -> Skill:
        """Make a skill that is in no catalogue."""
        flags = card.flags
        return cls(
            card.name,
            card.title,
            card.description,
            location,
            when_to_use=card.when_to_use,
            model_visible=bool(flags & MODEL and card.description),
            user_invocable=bool(flags & USER),
            hidden=bool(flags & (INTERNAL | SKIPPED)),
            derived=bool(flags & DERIVED),
            body_offset=card.body_offset,
            diagnostics=card.diagnostics,
        )

    @classmethod
    def from_text(cls, text: str | bytes, *, folder: str = "") -> Skill:
        """Make a skill from the text of a SKILL.md; `folder` names it when the text does not."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        made = cls.from_card(_heads()(data, SKILL_FILE, folder).card, SKILL_FILE)
        return made._replace(source=data.decode("utf-8", "replace"))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Skill:
        """Make a skill from a SKILL.md; SkillNotFound if there is no such file to read."""
        location = os.path.abspath(os.fspath(path))
        return cls.from_card(_heads().read(location).card, location)

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> Skill:
        """Make a skill from the folder that holds its SKILL.md."""
        return cls.from_file(os.path.join(path, SKILL_FILE))


class Skills(Mapping[str, Skill]):
    """An immutable mapping of skills by name, with a cache of values computed from them."""

    __slots__ = ("_derived", "_skills")

    def __init__(self, skills: Mapping[str, Skill]) -> None:
        self._skills = skills
        self._derived: dict[Hashable, tuple[object, Any]] = {}

    @classmethod
    def of(cls, skills: Iterable[Skill]) -> Skills:
        """Return the skills by their names, in the order given."""
        return Skills({skill.name: skill for skill in skills})

    def derive(self, key: Hashable, make: Callable[[], T], *, basis: object = None) -> T:
        """Return the result of `make`, computed once for each key.

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


def _heads() -> type[SkillHead]:
    from skillbelt.format.skill_head import SkillHead  # cost: 5 ms, only to parse

    return SkillHead
