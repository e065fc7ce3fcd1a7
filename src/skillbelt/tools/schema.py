"""The offered tools: names, descriptions, schemas, and vendors' formats.

`handlers` has their functions. The caller's view decides which skills it may see, so that no other
name reaches a schema or an error message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.running.outputs import MAX_OUTPUT_BYTES, MAX_OUTPUT_FILES, MOST, OUTPUT_FILE_BYTES
from skillbelt.settings import Settings
from skillbelt.text import one_line
from skillbelt.tools.caller import Call
from skillbelt.tools.definitions import (
    DEFINITIONS,
    LOADERS,
    NEED_REQUESTS,
    PROFILES,
    Definition,
    Schema,
)
from skillbelt.values import USUAL_TIMEOUT_SECONDS

ToolFormat = Literal["openai", "responses", "anthropic", "gemini", "mcp"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FORMATS: tuple[ToolFormat, ...] = ("openai", "responses", "anthropic", "gemini", "mcp")
_NOTHING: Mapping[str, object] = MappingProxyType({})
_SETTINGS = Settings()
# The names of skills in a schema, as JSON: every request carries them.
MAX_ENUM_CHARS = 4_000
_RUN = "skill_run"
# The usual fields of a run's inputs.
_MAIN_INPUTS = ("from", "to")
# The tools that take a command, and the unit of their timeout as parts of a second.
_COMMANDS = {_RUN: 1, "claude_bash": 1_000}
_ONE_COMMAND = (
    "One command with its arguments, without a shell: no pipes, redirections, variables, line "
    "breaks, ; or &."
)
# The default outputs of a run.
_USUAL = {
    "max_files": MAX_OUTPUT_FILES,
    "max_file_bytes": OUTPUT_FILE_BYTES,
    "max_total_bytes": MAX_OUTPUT_BYTES,
}


class ToolResult(NamedTuple):
    """The result of a call. `text` goes to the model; `error` is the same text if it failed."""

    text: str
    error: str = ""
    data: Mapping[str, object] = _NOTHING


Handler = Callable[[Call], ToolResult]


class Tool(NamedTuple):
    """A tool as offered to a model. `kind` is its name in this library, even if `name` differs."""

    name: str
    description: str
    schema: Schema
    handler: Handler
    kind: str


def choose(allowed: Iterable[str] | None, profile: str = "default") -> tuple[str, ...]:
    """Return the tools of an exact list, or of a profile, in the order of their definitions."""
    if allowed is None:
        return PROFILES[profile]
    wanted = [allowed] if isinstance(allowed, str) else list(allowed)
    common = {definition.common: kind for kind, definition in DEFINITIONS.items()}
    for name in wanted:
        if name not in DEFINITIONS and name not in common:
            known = ", ".join(DEFINITIONS)
            raise ConfigError(f"tools: there is no tool {name!r}; there are {known}")
    kinds = {name if name in DEFINITIONS else common[name] for name in wanted}
    return tuple(kind for kind in DEFINITIONS if kind in kinds)


def inline_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the tools for hosts whose answers keep the texts of skills.

    Only one of them loads: two ways to do the same would confuse a model.
    """
    loaders = [kind for kind in LOADERS if kind in names]
    left_out = {*NEED_REQUESTS, *loaders[1:]}
    return {kind: name for kind, name in names.items() if kind not in left_out}


def build(
    names: Mapping[str, str],
    skills: Collection[str],
    handlers: Mapping[str, Handler],
    *,
    max_enum: int = 256,
    listing: str = "",
    inline: bool = False,
    brief: bool = False,
    settings: Settings = _SETTINGS,
) -> list[Tool]:
    """Build the tools; `listing` is appended to the description of the one that loads.

    With `inline` they are described for a host whose answers keep the texts of skills. A `brief`
    schema leaves out the arguments that few calls need. The `settings` say which commands may run,
    and the limits of a run.
    """
    first = next((kind for kind in LOADERS if kind in names), "")
    enum = _enumerate(skills, max_enum)
    # Only one tool lists the names: each further list would cost as many tokens again.
    subject = first or next((kind for kind in names if _subject(kind)), "")
    return [
        Tool(
            name=name,
            description=_describe(kind, listing if kind == first else "", inline, settings),
            schema=schema_of(kind, enum if kind == subject else (), settings, brief=brief),
            handler=handlers[kind],
            kind=kind,
        )
        for kind, name in names.items()
    ]


def _enumerate(skills: Collection[str], most: int) -> list[str]:
    """Return the names for a schema; none where they are too many or too long."""
    if len(skills) > most or len(json.dumps(list(skills))) > MAX_ENUM_CHARS:
        return []
    return sorted(skills)


def _describe(kind: str, listing: str, inline: bool, settings: Settings) -> str:
    definition = DEFINITIONS[kind]
    text = (inline and definition.inline) or definition.description
    if kind in _COMMANDS:
        text = " ".join(filter(None, (text, _describe_policy(settings))))
    return f"{text}\n\nThe skills that can be loaded:\n\n{listing}" if listing else text


def _describe_policy(settings: Settings) -> str:
    """Say which commands the lists of the settings permit; "" without a list."""
    allowed, denied = (
        ", ".join(map(one_line, names))
        for names in (settings.allowed_commands, settings.denied_commands)
    )
    parts = (
        f"Only these commands may be run: {allowed}." if allowed else "",
        f"These commands may not be run: {denied}." if denied else "",
    )
    text = " ".join(filter(None, parts))
    return f"{text} {_ONE_COMMAND}" if text else ""


def _run_properties(settings: Settings) -> dict[str, Schema]:
    """Return the arguments of a run that depend on the settings."""
    given, limits = DEFINITIONS[_RUN].properties, settings.limits
    outputs = given["outputs"]["properties"]
    assert isinstance(outputs, dict)
    bounded = {}
    for field, number in _USUAL.items():
        most: int = max(getattr(limits, MOST[field]), 1)
        what = f"{outputs[field]['description']}: {min(number, most)} by default, at most {most}."
        bounded[field] = {**outputs[field], "maximum": most, "description": what}
    return {
        **_command_properties(_RUN, settings),
        "outputs": {**given["outputs"], "properties": {**outputs, **bounded}},
    }


def _command_properties(kind: str, settings: Settings) -> dict[str, Schema]:
    """Return the arguments for a command, with the bounds of the settings."""
    given, unit = DEFINITIONS[kind].properties, _COMMANDS[kind]
    longest = max(int(settings.limits.run_timeout_seconds), 1) * unit
    usual = min(int(USUAL_TIMEOUT_SECONDS) * unit, longest)
    text = f"{given['timeout']['description']} (default {usual})."
    found: dict[str, Schema] = {
        "timeout": {**given["timeout"], "maximum": longest, "description": text}
    }
    if settings.allowed_commands or settings.denied_commands:
        found["command"] = {**given["command"], "description": f"The command. {_ONE_COMMAND}"}
    return found


def schema_of(
    kind: str,
    enum: Sequence[str] = (),
    settings: Settings = _SETTINGS,
    *,
    brief: bool = False,
) -> Schema:
    """Return the JSON Schema of a tool's arguments; `enum` are the names of skills."""
    definition = DEFINITIONS[kind]
    given = dict(definition.properties)
    if kind == _RUN:
        given.update(_run_properties(settings))
    elif kind in _COMMANDS:
        given.update(_command_properties(kind, settings))
    properties: dict[str, Schema] = {}
    for key in offered_arguments(definition, brief=brief):
        one = _shorten(given[key], key) if brief else dict(given[key])
        properties[key] = {**one, "enum": list(enum)} if enum and key == _subject(kind) else one
    return {
        **({} if brief else {"$schema": DIALECT}),
        "type": "object",
        "properties": properties,
        "required": list(definition.required),
        "additionalProperties": False,
    }


def _shorten(schema: Schema, key: str) -> Schema:
    """Return the schema of an argument without the parts that a model can do without.

    A handler checks bounds itself, and reports them.
    """
    left_out = ("minimum", "maximum", *(("description",) if key == "skill" else ()))
    short = {name: value for name, value in schema.items() if name not in left_out}
    items = short.get("items")
    if isinstance(items, dict) and "properties" in items:
        fields = {name: items["properties"][name] for name in _MAIN_INPUTS}
        short["items"] = {**items, "properties": fields}
    return short


def offered_arguments(definition: Definition, *, brief: bool) -> list[str]:
    """Return the arguments that the schema of a tool has."""
    return [key for key in definition.properties if not (brief and key in definition.rare)]


def _subject(kind: str) -> str:
    """Return the argument that names a skill; "" if there is none."""
    properties = DEFINITIONS[kind].properties
    return next((key for key in ("skill", "name") if key in properties), "")


# Shapes


def render(tools: Iterable[Tool], format: ToolFormat) -> list[dict[str, object]]:
    """Return the tools in the format of a vendor's request."""
    tools = list(tools)
    match format:
        case "openai":
            return [{"type": "function", "function": _shape(t, "parameters")} for t in tools]
        case "responses":
            # Strict schemas have no optional arguments; without the field the vendor assumes a
            # strict one.
            flat = {"type": "function", "strict": False}
            return [{**flat, **_shape(tool, "parameters")} for tool in tools]
        case "anthropic":
            return [_shape(tool, "input_schema") for tool in tools]
        case "mcp":
            return [_shape(tool, "inputSchema", drop=()) for tool in tools]
        case "gemini":
            # As JSON Schema: the vendor's own subset has no object without named properties.
            left_out = ("$schema", "additionalProperties")
            declared = [_shape(tool, "parametersJsonSchema", left_out) for tool in tools]
            return [{"functionDeclarations": declared}] if declared else []
    raise ConfigError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")


def _shape(tool: Tool, key: str, drop: Collection[str] = ("$schema",)) -> dict[str, object]:
    schema = {name: value for name, value in tool.schema.items() if name not in drop}
    if not schema["required"]:
        del schema["required"]
    return {"name": tool.name, "description": tool.description, key: schema}


# Guidance


def guidance(names: Mapping[str, str]) -> str:
    """Return how to use the offered tools, naming no other tool."""
    lines = [DEFINITIONS[kind].guidance.format_map(names) for kind in names]
    return "\n".join(f"- {line}" for line in lines)
