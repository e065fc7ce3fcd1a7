"""The head of a SKILL.md: its frontmatter, in each form that a skill offers."""

from __future__ import annotations

import errno
import os
import stat
from functools import lru_cache

from skillbelt.errors import PathEscape, SkillNotFound
from skillbelt.files.contain import Fence
from skillbelt.format.fields import requirements, to_frontmatter
from skillbelt.format.frontmatter import Card, parse, read_card, read_head
from skillbelt.records import NamedTuple
from skillbelt.values import Frontmatter, Requirements


class SkillHead(NamedTuple):
    """The first bytes of a SKILL.md, its location, and the folder that names it if it does not."""

    data: bytes
    location: str
    folder: str

    @classmethod
    def read(cls, location: str, fence: str = "") -> SkillHead:
        """Read the head of a file; SkillNotFound when there is no regular file to read."""
        try:
            if not stat.S_ISREG(os.stat(location).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", location)
            with Fence(fence) as opener:
                data = read_head(location, fence=opener)
        except (OSError, PathEscape) as error:
            raise SkillNotFound(location, ()) from error
        return cls(data, location, os.path.basename(os.path.dirname(location)))

    @property
    def card(self) -> Card:
        """The card for a catalogue."""
        return read_card(self.data, self.location, self.folder)

    @property
    def fields(self) -> dict[str, object]:
        """The frontmatter's keys as written; none if it has no frontmatter."""
        parsed = parse(self.data, path=self.location, folder=self.folder)
        return {} if parsed.state == "derived" else parsed.fields

    @property
    def frontmatter(self) -> Frontmatter:
        """The frontmatter, typed."""
        return _to_frontmatter(self)

    @property
    def requirements(self) -> Requirements:
        """The skill's requirements of the machine."""
        return requirements(self.frontmatter)


@lru_cache(maxsize=64)
def _to_frontmatter(head: SkillHead) -> Frontmatter:
    """Parse the same head once: a run needs it at several steps."""
    return to_frontmatter(head.fields)
