"""One skill as it was found: a frozen value, and the ways to make one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from skillbelt import parse
from skillbelt.values import SKILL_FILE, Diagnostic, Frontmatter, Limits, Origin, Scope

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = Origin()


class Skill(NamedTuple):
    """A skill's descriptor: what discovery read from the head of its SKILL.md, never the body.

    `name` is the id: safe as a path, a pattern, a shell word and a tag. `title` is the name as it
    was written. `fields` is the rest of the frontmatter as JSON; read it through `frontmatter`.
    """

    name: str
    title: str
    description: str
    location: str
    scope: Scope = "explicit"
    origin: Origin = LOCAL
    when_to_use: str = ""
    user_invocable: bool = True
    model_invocable: bool = True
    derived: bool = False
    internal: bool = False
    body_offset: int = 0
    fields: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    shadows: tuple[str, ...] = ()
