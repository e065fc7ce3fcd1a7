"""Plain functions: real signatures, real answers."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest
from google.genai.types import FunctionDeclaration, Type

from skillbelt import Runtime
from skillbelt.integrations.functions import skill_functions, skill_instructions


def test_a_function_for_each_tool(belt: Runtime) -> None:
    made = skill_functions(belt.session("ada", "chat"))
    assert "mellifluous" in made["skill_load"](skill="greet")
    assert made["skill_load"].__name__ == "skill_load"


def test_it_has_the_arguments_of_the_tool(belt: Runtime) -> None:
    made = skill_functions(belt.session("ada", "chat"))
    load, read = made["skill_load"], made["read_file"]
    found = inspect.signature(load).parameters
    assert list(found) == ["skill", "docs"]
    assert found["skill"].default is inspect.Parameter.empty
    assert get_type_hints(load)["docs"] == list[str] | None
    assert get_type_hints(read)["start_line"] == int | None
    assert "docs: Its documents to load" in (load.__doc__ or "")


def test_a_list_says_of_what(belt: Runtime) -> None:
    """Gemini refuses one that does not."""
    made = skill_functions(belt.session("ada", "chat"))
    declared = [
        FunctionDeclaration.from_callable_with_api_option(callable=one, use_json_schema=False)
        for one in made.values()
    ]
    found = [
        value
        for one in declared
        for value in ((one.parameters and one.parameters.properties) or {}).values()
        if value.type == Type.ARRAY
    ]
    assert found
    assert all(value.items and value.items.type for value in found)


def test_what_is_wrong_is_told(belt: Runtime) -> None:
    load = skill_functions(belt.session("ada", "chat"))["skill_load"]
    assert "argument 'skill' is missing" in load()
    with pytest.raises(TypeError):
        load("greet")


def test_the_instructions(belt: Runtime) -> None:
    assert "<name>greet</name>" in skill_instructions(belt.session("ada", "chat"))
