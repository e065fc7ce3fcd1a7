"""The tools that a model is offered: names, descriptions, schemas, and vendors' formats.

`handlers` has what each does. The caller's view decides which skills it may see, so that no other
name reaches a schema or an error message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.running.outputs import MAX_OUTPUT_BYTES, MAX_OUTPUT_FILES, MOST, OUTPUT_FILE_BYTES
from skillbelt.settings import Settings
from skillbelt.text import one_line
from skillbelt.tools.caller import Call
from skillbelt.tools.definitions import DEFINITIONS, NEED_REQUESTS, PROFILES, Schema
from skillbelt.values import USUAL_TIMEOUT_SECONDS

ToolFormat = Literal["openai", "responses", "anthropic", "gemini", "mcp"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FORMATS: tuple[ToolFormat, ...] = ("openai", "responses", "anthropic", "gemini", "mcp")
_NOTHING: Mapping[str, object] = MappingProxyType({})
_SETTINGS = Settings()
_RUN = "skill_run"
_ONE_COMMAND = (
    "One command with its arguments, without a shell: no pipes, redirections, variables, line "
    "breaks, ; or &."
)
# What a run gives back unless the call asks for something else.
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
    """A tool as it is offered. `kind` is its name in this library, even if `name` differs."""

    name: str
    description: str
    schema: Schema
    handler: Handler
    kind: str


def choose(allowed: Iterable[str] | None, profile: str = "full") -> tuple[str, ...]:
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


def offered_names(kinds: Iterable[str], naming: str = "skillbelt") -> dict[str, str]:
    """Return the name under which each tool is offered."""
    kinds = tuple(kinds)
    if naming == "skillbelt":
        return {kind: kind for kind in kinds}
    names = {kind: DEFINITIONS[kind].common for kind in kinds}
    if "skill" in names and "skill_load" not in names:
        names["skill"] = DEFINITIONS["skill_load"].common
    return names


def inline_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the tools that work where answers hold the texts of skills for good.

    Only one of them loads: two ways to do the same would confuse a model.
    """
    left_out = {*NEED_REQUESTS, "skill"} if "skill_load" in names else {*NEED_REQUESTS}
    return {kind: name for kind, name in names.items() if kind not in left_out}


def build(
    names: Mapping[str, str],
    skills: Collection[str],
    handlers: Mapping[str, Handler],
    *,
    max_enum: int = 256,
    listing: str = "",
    inline: bool = False,
    settings: Settings = _SETTINGS,
) -> list[Tool]:
    """Build the tools; `listing` is appended to the description of the one that loads.

    With `inline` they are described for a host whose answers hold the texts of skills. The
    `settings` say which commands may be run, and what a run may ask for at most.
    """
    enum = sorted(skills) if 0 < len(skills) <= max_enum else []
    first = next((kind for kind in ("skill", "skill_load") if kind in names), "")
    return [
        Tool(
            name=name,
            description=_describe(kind, listing if kind == first else "", inline, settings),
            schema=schema_of(kind, enum, settings),
            handler=handlers[kind],
            kind=kind,
        )
        for kind, name in names.items()
    ]


def _describe(kind: str, listing: str, inline: bool, settings: Settings) -> str:
    definition = DEFINITIONS[kind]
    text = (inline and definition.inline) or definition.description
    if kind == _RUN:
        text = " ".join(filter(None, (text, _describe_policy(settings))))
    return f"{text}\n\nThe skills that can be loaded:\n\n{listing}" if listing else text


def _describe_policy(settings: Settings) -> str:
    """Say which commands the lists of the settings leave; "" without a list."""
    allowed, denied = (
        ", ".join(map(one_line, names))
        for names in (settings.allowed_commands, settings.denied_commands)
    )
    parts = (
        f"Only these commands may be run: {allowed}." if allowed else "",
        f"These commands may not be run: {denied}." if denied else "",
    )
    said = " ".join(filter(None, parts))
    return f"{said} {_ONE_COMMAND}" if said else ""


def _run_properties(settings: Settings) -> dict[str, Schema]:
    """Return the arguments of a run that depend on the settings."""
    given, limits = DEFINITIONS[_RUN].properties, settings.limits
    longest = max(int(limits.run_timeout_seconds), 1)
    usual = min(int(USUAL_TIMEOUT_SECONDS), longest)
    said = f"The most seconds it may take: {usual} if not given, {longest} at most."
    outputs = given["outputs"]["properties"]
    assert isinstance(outputs, dict)
    bounded = {}
    for field, number in _USUAL.items():
        most: int = max(getattr(limits, MOST[field]), 1)
        what = f"{outputs[field]['description']}: {min(number, most)} if not given, {most} at most."
        bounded[field] = {**outputs[field], "maximum": most, "description": what}
    found: dict[str, Schema] = {
        "timeout": {**given["timeout"], "maximum": longest, "description": said},
        "outputs": {**given["outputs"], "properties": {**outputs, **bounded}},
    }
    if settings.allowed_commands or settings.denied_commands:
        found["command"] = {**given["command"], "description": f"The command. {_ONE_COMMAND}"}
    return found


def schema_of(kind: str, enum: Sequence[str] = (), settings: Settings = _SETTINGS) -> Schema:
    """Return the JSON Schema of a tool's arguments; `enum` are the names of skills."""
    definition = DEFINITIONS[kind]
    properties: dict[str, Schema] = {}
    given = dict(definition.properties)
    if kind == _RUN:
        given.update(_run_properties(settings))
    for key, value in given.items():
        named = key == _subject(kind) and enum
        properties[key] = {**value, "enum": list(enum)} if named else dict(value)
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": properties,
        "required": list(definition.required),
        "additionalProperties": False,
    }


def _subject(kind: str) -> str:
    """Return the argument that names a skill."""
    return "name" if kind == "skill" else "skill"


# Shapes


def render(tools: Iterable[Tool], format: ToolFormat) -> list[dict[str, object]]:
    """Return the tools in the format of a vendor's request."""
    tools = list(tools)
    match format:
        case "openai":
            return [{"type": "function", "function": _shape(t, "parameters")} for t in tools]
        case "responses":
            # Strict schemas have no optional arguments; left out, the vendor would want one.
            flat = {"type": "function", "strict": False}
            return [{**flat, **_shape(tool, "parameters")} for tool in tools]
        case "anthropic":
            return [_shape(tool, "input_schema") for tool in tools]
        case "mcp":
            return [_shape(tool, "inputSchema", drop=()) for tool in tools]
        case "gemini":
            declared = [_shape(t, "parameters", ("$schema", "additionalProperties")) for t in tools]
            return [{"functionDeclarations": declared}] if declared else []
    raise ConfigError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")


def _shape(tool: Tool, key: str, drop: Collection[str] = ("$schema",)) -> dict[str, object]:
    schema = {name: value for name, value in tool.schema.items() if name not in drop}
    if not schema["required"]:
        del schema["required"]
    return {"name": tool.name, "description": tool.description, key: schema}


# Guidance


def guidance(names: Mapping[str, str]) -> str:
    """Return how to use the tools that are offered, naming no other tool."""
    lines = [DEFINITIONS[kind].guidance.format_map(names) for kind in names]
    return "\n".join(f"- {line}" for line in lines)
