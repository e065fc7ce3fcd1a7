"""The descriptions of the tools that a model reads."""

from __future__ import annotations

import re

import pytest

from skillbelt.running.call import RunCall
from skillbelt.tools.definitions import DEFINITIONS, PROFILES

KINDS = list(DEFINITIONS)
SIMPLE = {"string", "boolean", "integer", "array", "object"}


@pytest.mark.parametrize("kind", KINDS)
def test_names_can_be_those_of_a_function_for_every_vendor(kind: str) -> None:
    for name in (kind, DEFINITIONS[kind].common):
        assert re.fullmatch(r"[A-Za-z][a-z_]{0,63}", name)


def test_no_two_tools_share_a_name() -> None:
    commons = [definition.common for definition in DEFINITIONS.values()]
    assert len(set(commons)) == len(commons)


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_has_a_type_and_a_description(kind: str) -> None:
    for name, schema in DEFINITIONS[kind].properties.items():
        assert schema["type"] in SIMPLE, name
        text = schema["description"]
        assert isinstance(text, str)
        assert text


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_required_is_an_argument(kind: str) -> None:
    definition = DEFINITIONS[kind]
    assert set(definition.required) <= set(definition.properties)


@pytest.mark.parametrize("kind", KINDS)
def test_the_guidance_names_tools_by_the_names_they_have_where_they_are_offered(kind: str) -> None:
    named = set(re.findall(r"\{(\w+)\}", DEFINITIONS[kind].guidance))
    assert named == {kind}


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_says_what_a_tool_is_for_in_few_words(kind: str) -> None:
    text = DEFINITIONS[kind].description
    assert 20 < len(text) < 500
    assert text.endswith(".")


def test_profiles_are_made_of_tools_that_exist() -> None:
    for kinds in PROFILES.values():
        assert list(kinds) == [kind for kind in KINDS if kind in kinds]


def test_the_profiles_that_run_commands() -> None:
    running = [name for name, kinds in PROFILES.items() if "skill_run" in kinds]
    assert running == ["default", "trpc", "full"]
    assert "claude_bash" in PROFILES["claude"]


def test_a_run_can_be_asked_for_with_everything_it_takes() -> None:
    # A model never names a folder of the host, installed packages, or the user's secrets.
    left_out = {"output_dir", "all_outputs", "packages", "install", "secrets"}
    fields = {*RunCall._fields} - left_out
    wanted = {field.removesuffix("_seconds") for field in fields}
    assert set(DEFINITIONS["skill_run"].properties) - {"skill", "background"} == wanted
