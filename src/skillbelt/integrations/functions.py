"""Skills as plain functions with names, types and docstrings, for any framework."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skillbelt.integrations.common import Kit, Output
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.schema import Tool

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import RuntimeSession

_TYPES: dict[object, Any] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict[str, Any],
}


def skill_functions(
    session: RuntimeSession, on_output: Callable[[Output], object] | None = None
) -> dict[str, Callable[..., str]]:
    """Return a function for each tool, by name; it takes the tool's arguments and returns text.

    `on_output` gets the output of a command as it comes, in another thread.
    """
    kit = Kit(session)
    return {tool.name: _function(kit, tool, on_output) for tool in kit.tools()}


def skill_instructions(session: RuntimeSession) -> str:
    """Return the part of the system prompt about the skills and these functions."""
    return Kit(session).instructions()


def _function(
    kit: Kit, tool: Tool, on_output: Callable[[Output], object] | None
) -> Callable[..., str]:
    def tell(stream: Stream, text: str) -> None:
        if on_output is not None:
            on_output(Output(tool.name, "", stream, text))

    def call(**arguments: Any) -> str:
        return kit.call_sync(tool.name, arguments, tell=tell if on_output else None).text

    parameters = _parameters(tool.schema)
    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = _docstring(tool)
    call.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": str}
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return call


def _parameters(schema: dict[str, Any]) -> list[inspect.Parameter]:
    made = []
    for name, value in schema["properties"].items():
        kind, required = _type(value), name in schema["required"]
        made.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if required else None,
                annotation=kind if required else kind | None,
            )
        )
    return made


def _type(schema: dict[str, Any]) -> Any:
    """Return the Python type; some providers refuse a list without an item type."""
    if schema["type"] == "array":
        return list[_type(schema["items"])]  # type: ignore[misc]
    return _TYPES[schema["type"]]


def _docstring(tool: Tool) -> str:
    properties: dict[str, Any] = tool.schema["properties"]  # type: ignore[assignment]
    lines = [f"    {name}: {value.get('description', '')}" for name, value in properties.items()]
    return "\n".join([tool.description, "", "Args:", *lines])
