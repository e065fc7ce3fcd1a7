"""The definitions of tools, the shapes vendors want, and arguments as models write them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from skillbelt import ConfigError
from skillbelt.settings import Settings
from skillbelt.tools.caller import Call
from skillbelt.tools.definitions import DEFINITIONS, LOADERS, PROFILES, SEARCH, offered_names
from skillbelt.tools.handlers import check_arguments
from skillbelt.tools.schema import (
    FORMATS,
    Tool,
    ToolFormat,
    ToolResult,
    build,
    choose,
    guidance,
    render,
    schema_of,
)
from skillbelt.values import Limits
from tests.examples import examples

KINDS = tuple(DEFINITIONS)


def nothing(call: Call) -> ToolResult:
    return ToolResult(call.id)


def tools(skills: list[str], profile: str = "full", **options: Any) -> list[Tool]:
    names = offered_names(PROFILES[profile])
    return build(names, skills, dict.fromkeys(KINDS, nothing), **options)


def enum(tool: Tool) -> object:
    properties: Any = tool.schema["properties"]
    return properties["name" if tool.kind == "skill" else "skill"].get("enum")


# Which tools there are


def test_profiles_name_tools_that_exist() -> None:
    assert PROFILES["simple"] == ("skill",)
    assert ("skill", *PROFILES["full"], SEARCH, *PROFILES["claude"]) == KINDS
    assert set(PROFILES["default"]) == {
        "skill_load", "skill_list_docs", "skill_select_docs", "load_resource", "skill_search",
        "skill_run", "read_file", "execute_skill",
    }  # fmt: skip
    assert set(PROFILES["knowledge"]) < set(KINDS)
    assert set(PROFILES["trpc"]) == {
        "skill_load", "skill_list_docs", "skill_select_docs", "skill_run", "read_file",
    }  # fmt: skip
    for kinds in PROFILES.values():
        assert len(set(LOADERS).intersection(kinds)) == 1


def test_a_list_of_tools_is_taken_as_it_is_but_for_the_order() -> None:
    assert choose(["read_file", "skill"], "knowledge") == ("skill", "read_file")
    assert choose([], "full") == ()
    assert choose(None, "simple") == ("skill",)
    assert choose("skill_load") == ("skill_load",)


def test_a_tool_can_be_allowed_by_its_common_name() -> None:
    assert choose(["list_skills", "load_skill"]) == ("skill_load", "skill_list")


def test_an_unknown_tool_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ConfigError, match="there is no tool 'bash'; there are skill,"):
        choose(["skill", "bash"])


def test_common_names_are_the_ones_models_know() -> None:
    names = offered_names(PROFILES["full"], "common")
    assert names["skill_load"] == "load_skill"
    assert names["load_resource"] == "read_skill_resource"
    assert names["skill_list"] == "list_skills"
    assert names["skill_unload"] == "unload_skill"
    assert names["skill_run"] == "run_skill_script"
    assert len(set(names.values())) == len(names)
    assert "search_skills" not in names.values()


def test_the_only_tool_that_loads_has_the_common_name() -> None:
    assert offered_names(PROFILES["simple"], "common") == {"skill": "load_skill"}
    assert offered_names(PROFILES["simple"]) == {"skill": "skill"}


# Schemas


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_valid_and_closed(kind: str) -> None:
    schema = schema_of(kind, ["a"])
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    properties: Any = schema["properties"]
    assert set(schema["required"]) <= set(properties)  # type: ignore[call-overload]
    assert all(value["description"] for value in properties.values())


def run_schema(**settings: Any) -> tuple[str, dict[str, Any]]:
    """The description of `skill_run` and its arguments."""
    [tool] = [one for one in tools([], settings=Settings(**settings)) if one.kind == "skill_run"]
    properties: Any = tool.schema["properties"]
    return tool.description, properties


def test_the_schema_of_a_run_says_the_maximum_of_what_may_be_asked_for() -> None:
    limits = Limits(run_timeout_seconds=60, max_output_file_bytes=10, max_workspace_files=7)
    _, properties = run_schema(limits=limits)
    assert properties["timeout"]["maximum"] == 60
    assert properties["timeout"]["description"] == "Seconds (default 60)."
    outputs = properties["outputs"]["properties"]
    maxima = {key: value["maximum"] for key, value in outputs.items() if "maximum" in value}
    assert maxima == {
        "max_files": 7,
        "max_file_bytes": 10,
        "max_total_bytes": limits.max_workspace_bytes,
    }
    assert {"globs", "inline", "save", "name_template"} <= set(outputs)


def test_a_model_is_told_which_commands_may_be_run() -> None:
    described, properties = run_schema(allowed_commands=("cat", "python3"))
    assert "Only these commands may be run: cat, python3." in described
    assert "bash" not in properties["command"]["description"]
    assert "without a shell" in properties["command"]["description"]
    assert "These commands may not be run: rm." in run_schema(denied_commands=("rm",))[0]
    assert "bash" in run_schema()[1]["command"]["description"]


def test_the_guidance_speaks_of_the_workspace() -> None:
    text = guidance(offered_names(PROFILES["trpc"]))
    for word in ("out/", "$OUTPUT_DIR", "work/", "inputs/", "output_files"):
        assert word in text


def test_up_to_256_skills_are_an_enum_and_one_more_is_not() -> None:
    """Case 55."""
    names = [f"s{number:03}" for number in reversed(range(257))]
    for profile, loader in (
        ("full", "skill_load"),
        ("simple", "skill"),
        ("claude", "claude_skill"),
    ):
        [tool] = [one for one in tools(names[:256], profile) if one.kind == loader]
        assert enum(tool) == sorted(names[:256])
        assert "s000" not in json.dumps([one.schema for one in tools(names, profile)])
    assert enum(tools(names[:3], "simple", max_enum=2)[0]) is None


def test_no_skills_are_no_enum_rather_than_an_empty_one() -> None:
    assert '"enum": []' not in json.dumps(render(tools([]), "gemini"))
    assert enum(tools([], "simple")[0]) is None


def test_making_schemas_leaves_the_definitions_alone() -> None:
    before = json.dumps(schema_of("skill"))
    tools(["a", "b"])
    assert json.dumps(schema_of("skill")) == before


def test_a_listing_ends_the_description_of_the_tool_that_loads() -> None:
    for profile, loader in (("full", "skill_load"), ("simple", "skill")):
        made = tools(["a"], profile, listing="- **a**: does it")
        described = {tool.kind: tool.description for tool in made}
        assert described[loader].endswith("\n\n- **a**: does it")
        assert [kind for kind, text in described.items() if "does it" in text] == [loader]


# Shapes


def test_openai() -> None:
    shape: Any = render(tools(["a"], "simple"), "openai")
    assert shape[0]["type"] == "function"
    assert shape[0]["function"]["name"] == "skill"
    assert shape[0]["function"]["parameters"]["properties"]["name"]["enum"] == ["a"]
    assert set(shape[0]["function"]) == {"name", "description", "parameters"}


def test_anthropic() -> None:
    shape: Any = render(tools(["a"], "simple"), "anthropic")
    assert set(shape[0]) == {"name", "description", "input_schema"}
    assert shape[0]["input_schema"]["required"] == ["name"]


def test_mcp() -> None:
    shape: Any = render(tools(["a"], "simple"), "mcp")
    assert set(shape[0]) == {"name", "description", "inputSchema"}
    assert shape[0]["inputSchema"]["$schema"].endswith("2020-12/schema")


def test_gemini() -> None:
    shape: Any = render(tools(["a"]), "gemini")
    assert len(shape) == 1
    declared = shape[0]["functionDeclarations"]
    assert [one["name"] for one in declared] == list(PROFILES["full"])
    text = json.dumps(declared)
    assert "additionalProperties" not in text
    assert "$schema" not in text
    assert render([], "gemini") == []


@pytest.mark.parametrize("format", FORMATS)
def test_every_shape_is_json_and_has_the_order_of_the_tools(format: ToolFormat) -> None:
    text = json.dumps(render(tools(["b", "a"]), format))
    places = [text.index(f'"name": "{kind}"') for kind in PROFILES["full"]]
    assert places == sorted(places)
    assert text == json.dumps(render(tools(["a", "b"]), format))


def test_an_unknown_shape_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ConfigError, match="openai, responses, anthropic, gemini, mcp, not 'xml'"):
        render(tools([]), "xml")  # type: ignore[arg-type]


# Guidance


@pytest.mark.parametrize("naming", ["skillbelt", "common"])
@pytest.mark.parametrize("kinds", [*PROFILES.values(), *((kind,) for kind in KINDS)])
def test_guidance_names_the_tools_that_are_offered_and_no_other(
    kinds: tuple[str, ...], naming: str
) -> None:
    names = offered_names(kinds, naming)
    text = guidance(names)
    every = {*KINDS, *(definition.common for definition in DEFINITIONS.values())} - {"skill"}
    named = {word for word in re.findall(r"\w+", text) if word in every}
    assert named == set(names.values()) - {"skill"}
    assert len(text.splitlines()) == len(kinds)


def test_without_tools_there_is_no_guidance() -> None:
    assert guidance({}) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_names_no_other_tool(kind: str) -> None:
    words = set(re.findall(r"\w+", DEFINITIONS[kind].description))
    assert not words & (set(KINDS) - {"skill", kind})


# Arguments


def test_arguments_that_fit() -> None:
    given = {"skill": "a", "docs": ["x.md"], "include_all_docs": False}
    assert check_arguments("skill_load", given) == (given, "")
    assert check_arguments("skill_load", json.dumps(given)) == (given, "")


def test_null_is_not_given_and_a_whole_float_is_a_number() -> None:
    given = {"file_name": "stored:1", "start_line": 3.0, "num_lines": None}
    assert check_arguments("read_file", given).arguments == {
        "file_name": "stored:1",
        "start_line": 3,
    }
    assert check_arguments("skill", {"name": None}).fault.startswith("argument 'name' is missing")


@pytest.mark.parametrize("given", [None, "", "null", "{}", {}])
def test_no_arguments_at_all(given: object) -> None:
    assert check_arguments("skill_list", given) == ({}, "")


RUN = {"skill": "a", "command": "ls"}


@pytest.mark.parametrize(
    ("kind", "given", "fault"),
    [
        ("skill", {}, "argument 'name' is missing. It takes: name"),
        ("skill", {"name": 3}, "argument 'name' must be text"),
        ("skill", {"name": "a", "docs": []}, "unknown argument 'docs'"),
        ("skill", [], "the arguments must be an object"),
        ("skill", "pdf", "the arguments must be an object"),
        ("skill", '{"name": ', "must be an object, and these are not JSON: Expecting value"),
        ("skill", "[" * 200_000, "must be an object, and these are not JSON: "),
        ("skill_load", {"skill": "a", "docs": "x.md"}, "argument 'docs' must be a list of texts"),
        ("skill_load", {"skill": "a", "docs": [1]}, "argument 'docs' must be a list of texts"),
        ("skill_load", {"skill": "a", "include_all_docs": 1}, "must be true or false"),
        ("read_file", {"file_name": "x", "start_line": 0}, "'start_line' must be at least 1"),
        ("read_file", {"file_name": "x", "start_line": True}, "must be a whole number"),
        ("read_file", {"file_name": "x", "num_lines": 1.5}, "must be a whole number"),
        ("skill_list", {"limit": 201}, "'limit' must be at most 200. It takes: offset?, limit?"),
        ("skill_select_docs", {"skill": "a", "mode": "x"}, "one of add, replace, clear"),
        ("skill_run", {"skill": "a"}, "argument 'command' is missing"),
        ("skill_run", {"skill": "a", "command": ["ls"]}, "argument 'command' must be text"),
        ("skill_run", {**RUN, "env": [1]}, "argument 'env' must be an object"),
        ("skill_run", {**RUN, "inputs": ["a"]}, "'inputs' must be a list of objects"),
        ("skill_run", {**RUN, "inputs": {}}, "argument 'inputs' must be a list"),
        ("skill_run", {**RUN, "output_files": [{}]}, "'output_files' must be a list of texts"),
        ("skill_run", {**RUN, "timeout": 0}, "'timeout' must be at least 1"),
        ("skill_run", {**RUN, "timeout": "9"}, "'timeout' must be a whole number"),
        ("skill_poll", {}, "argument 'run_id' is missing"),
        ("skill_poll", {"run_id": "a", "wait": 61}, "'wait' must be at most 60"),
    ],
)
def test_arguments_that_do_not_fit_are_told(kind: str, given: object, fault: str) -> None:
    assert fault in check_arguments(kind, given).fault


def test_every_fault_is_told_at_once() -> None:
    fault = check_arguments("load_resource", {"skill": 1, "path": "x"}).fault
    assert "unknown argument 'path'" in fault
    assert "argument 'relative_path' is missing" in fault
    assert "argument 'skill' must be text" in fault


def test_very_many_faults_are_told_in_part() -> None:
    fault = check_arguments("skill", {f"x{number}": 1 for number in range(10_000)}).fault
    assert len(fault) < 300


def test_arguments_nested_beyond_reason_are_told() -> None:
    assert check_arguments("skill", "[" * 100_000).fault


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["name", "skill", "docs", "include_all_docs", "mode", "start_line", "limit", "command", "env",
     "timeout", "outputs", "output_files", "stdin", "run_id", "wait"]
)  # fmt: skip


@given(kind=st.sampled_from(KINDS), arguments=JSON | st.dictionaries(KEYS, JSON))
@settings(max_examples=examples(300))
def test_what_passes_is_what_the_schema_allows(kind: str, arguments: object) -> None:
    checked = check_arguments(kind, arguments)
    if not checked.fault:
        Draft202012Validator(schema_of(kind)).validate(checked.arguments)
