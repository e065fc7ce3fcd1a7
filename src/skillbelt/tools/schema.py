"""The tools a model is offered: names, descriptions, schemas, and the shapes vendors want.

One definition each. What a tool does is in `handlers`; who may see what is decided by the view that
comes with a call, so that no name a model may not use reaches a schema or an error message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.tools.caller import Call
from skillbelt.tools.definitions import DEFINITIONS, PROFILES, Schema

ToolFormat = Literal["openai", "anthropic", "gemini", "mcp"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FORMATS: tuple[ToolFormat, ...] = ("openai", "anthropic", "gemini", "mcp")
_NOTHING: Mapping[str, object] = MappingProxyType({})


class ToolResult(NamedTuple):
    """What a call gave. `text` goes to the model; `error` is the same text when the call failed."""

    text: str
    error: str = ""
    data: Mapping[str, object] = _NOTHING


Handler = Callable[[Call], ToolResult]


class Tool(NamedTuple):
    """A tool as it is offered. `kind` is what it is called in this library, whatever its name."""

    name: str
    description: str
    schema: Schema
    handler: Handler
    kind: str


def choose(allowed: Iterable[str] | None, profile: str = "full") -> tuple[str, ...]:
    """The tools of an exact list, or of a profile, in the order they are defined in."""
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
    """What each tool is called where it is offered."""
    kinds = tuple(kinds)
    if naming == "skillbelt":
        return {kind: kind for kind in kinds}
    names = {kind: DEFINITIONS[kind].common for kind in kinds}
    if "skill" in names and "skill_load" not in names:
        names["skill"] = DEFINITIONS["skill_load"].common
    return names


def build(
    names: Mapping[str, str],
    skills: Collection[str],
    handlers: Mapping[str, Handler],
    *,
    max_enum: int = 256,
    listing: str = "",
) -> list[Tool]:
    """The tools of those names; `listing` ends the description of the one that loads a skill."""
    enum = sorted(skills) if 0 < len(skills) <= max_enum else []
    first = next((kind for kind in ("skill", "skill_load") if kind in names), "")
    return [
        Tool(
            name=name,
            description=_described(kind, listing if kind == first else ""),
            schema=schema_of(kind, enum),
            handler=handlers[kind],
            kind=kind,
        )
        for kind, name in names.items()
    ]


def _described(kind: str, listing: str) -> str:
    text = DEFINITIONS[kind].description
    return f"{text}\n\nThe skills that can be loaded:\n\n{listing}" if listing else text


def schema_of(kind: str, enum: Sequence[str] = ()) -> Schema:
    """The JSON Schema of a tool's arguments; `enum` are the names a skill may have."""
    definition = DEFINITIONS[kind]
    properties: dict[str, Schema] = {}
    for key, value in definition.properties.items():
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
    """The argument that names a skill."""
    return "name" if kind == "skill" else "skill"


# Shapes


def render(tools: Iterable[Tool], format: ToolFormat) -> list[dict[str, object]]:
    """The tools as a vendor's request takes them."""
    tools = list(tools)
    match format:
        case "openai":
            return [{"type": "function", "function": _shape(t, "parameters")} for t in tools]
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
    """How to use the tools that are offered; no other tool is named."""
    lines = [DEFINITIONS[kind].guidance.format_map(names) for kind in names]
    return "\n".join(f"- {line}" for line in lines)
