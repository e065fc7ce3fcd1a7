"""The messages of the skills extension."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from skillbelt.discovery.sources.mcp_messages import (
    GetSkill,
    Given,
    Listing,
    ListSkills,
    Page,
    SkillParams,
)


def test_a_page_is_asked_for_as_the_extension_says() -> None:
    asked = ListSkills(params=Page(cursor="x"))
    assert asked.model_dump(by_alias=True, exclude_none=True) == {
        "method": "skills/list",
        "params": {"cursor": "x"},
    }


def test_one_skill_is_asked_for_by_its_address() -> None:
    asked = GetSkill(params=SkillParams(uri="skill://pdf/SKILL.md"))
    assert asked.model_dump(by_alias=True, exclude_none=True) == {
        "method": "skills/get",
        "params": {"uri": "skill://pdf/SKILL.md"},
    }
    assert Given.model_validate({"skill": 7}).skill == 7


def test_a_page_may_hold_anything_as_long_as_it_is_a_list() -> None:
    page = Listing.model_validate({"skills": [1, None], "nextCursor": "y", "more": 1})
    assert (page.skills, page.next_cursor) == ([1, None], "y")
    with pytest.raises(ValidationError):
        Listing.model_validate({"skills": {}})
