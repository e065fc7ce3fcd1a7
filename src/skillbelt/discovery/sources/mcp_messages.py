"""The messages of the skills extension that the official client has no names for."""

from __future__ import annotations

from typing import Any, Literal

from mcp_types import PaginatedRequestParams, Request, RequestParams, Result
from pydantic import Field

Page = PaginatedRequestParams


class ListSkills(Request[PaginatedRequestParams, Literal["skills/list"]]):
    """Asks for a page of skills."""

    method: Literal["skills/list"] = "skills/list"
    params: PaginatedRequestParams


class SkillParams(RequestParams):
    """The address of a skill's SKILL.md."""

    uri: str


class GetSkill(Request[SkillParams, Literal["skills/get"]]):
    """Asks for one skill, listed or not."""

    method: Literal["skills/get"] = "skills/get"
    params: SkillParams


class Given(Result):
    """One skill, to be checked like those of a list."""

    skill: Any


class Listing(Result):
    """A page of skills; each is checked later, one by one."""

    skills: list[Any]
    next_cursor: str | None = Field(alias="nextCursor", default=None)
