"""The messages of the skills extension."""

from __future__ import annotations

import pytest
from mcp_types import PaginatedRequestParams
from pydantic import ValidationError

from skillbelt.discovery.sources.mcp_client import (
    GetSkill,
    GetSkillResult,
    ListSkills,
    ListSkillsResult,
    SkillUriParams,
)


def test_a_page_is_asked_for_as_the_extension_says() -> None:
    asked = ListSkills(params=PaginatedRequestParams(cursor="x"))
    assert asked.model_dump(by_alias=True, exclude_none=True) == {
        "method": "skills/list",
        "params": {"cursor": "x"},
    }


def test_one_skill_is_asked_for_by_its_address() -> None:
    asked = GetSkill(params=SkillUriParams(uri="skill://pdf/SKILL.md"))
    assert asked.model_dump(by_alias=True, exclude_none=True) == {
        "method": "skills/get",
        "params": {"uri": "skill://pdf/SKILL.md"},
    }
    assert GetSkillResult.model_validate({"skill": 7}).skill == 7


def test_a_page_may_hold_anything_as_long_as_it_is_a_list() -> None:
    page = ListSkillsResult.model_validate({"skills": [1, None], "nextCursor": "y", "more": 1})
    assert (page.skills, page.next_cursor) == ([1, None], "y")
    with pytest.raises(ValidationError):
        ListSkillsResult.model_validate({"skills": {}})
