"""Plain functions: real signatures, real answers."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from skillbelt import Runtime
from skillbelt.integrations.functions import skill_functions, skill_instructions


def test_a_function_for_each_tool(belt: Runtime) -> None:
    made = skill_functions(belt.session("ada", "chat"))
    assert "mellifluous" in made["skill_load"](skill="greet")
    assert made["skill_load"].__name__ == "skill_load"


def test_it_has_the_arguments_of_the_tool(belt: Runtime) -> None:
    load = skill_functions(belt.session("ada", "chat"))["skill_load"]
    found = inspect.signature(load).parameters
    assert list(found) == ["skill", "docs", "include_all_docs"]
    assert found["skill"].default is inspect.Parameter.empty
    assert get_type_hints(load)["include_all_docs"] == bool | None
    assert "The name of the skill" in (load.__doc__ or "")


def test_what_is_wrong_is_told(belt: Runtime) -> None:
    load = skill_functions(belt.session("ada", "chat"))["skill_load"]
    assert "argument 'skill' is missing" in load()
    with pytest.raises(TypeError):
        load("greet")


def test_the_instructions(belt: Runtime) -> None:
    assert "<name>greet</name>" in skill_instructions(belt.session("ada", "chat"))
