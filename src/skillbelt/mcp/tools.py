"""`tools/list` and `tools/call`: the tools of a session, and the schemas of their JSON results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from skillbelt.mcp.notifications import ClientLogs
from skillbelt.mcp.protocol import refuse_cursor, sendable
from skillbelt.mcp.requests import Context, RequestRunner
from skillbelt.mcp.sessions import ServedSessions
from skillbelt.running.following import Watch
from skillbelt.text import one_line, shorten
from skillbelt.tools.definitions import RUNNING
from skillbelt.tools.schema import DIALECT, ToolResult
from skillbelt.tools.schema import Tool as OwnTool
from skillbelt.untrusted_json import read_json

_MAX_SHOWN_CHARS = 80

# Schemas of the results whose text is JSON. A document has the same content as the text, so a
# client may show either.
_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_FILE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "ref": {"type": "string", "description": "Names the file in later calls."},
        "content": {"type": "string", "description": "Its text, if it is one and was asked for."},
        "mime_type": _TEXT,
        "size_bytes": _NUMBER,
        "truncated": {"type": "boolean", "description": "Whether content is not all of it."},
    },
    "required": ["name", "ref", "content", "mime_type", "size_bytes", "truncated"],
}
_SAVED: dict[str, Any] = {
    "type": "object",
    "properties": {"name": _TEXT, "version": _NUMBER},
    "required": ["name", "version"],
}
_HINT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": _TEXT,
        "name": _TEXT,
        "message": {"type": "string", "description": "What was missing, and what provides it."},
        "package": _TEXT,
        "install": _TEXTS,
    },
    "required": ["kind", "message"],
}
_RUN_ID: dict[str, Any] = {"type": "string", "description": "For skill_poll."}

_ENDED: dict[str, Any] = {
    "stdout": _TEXT,
    "stderr": _TEXT,
    "exit_code": _NUMBER,
    "timed_out": _FLAG,
    "cancelled": _FLAG,
    "duration_ms": _NUMBER,
    "output_files": {"type": "array", "items": _FILE},
    "primary_output": _FILE,
    "artifact_files": {"type": "array", "items": _SAVED},
    "warnings": _TEXTS,
    "errors": _TEXTS,
    "hints": {"type": "array", "items": _HINT},
    "limits_hit": _TEXTS,
    "hosts": _TEXTS,
    "sandbox": _TEXT,
    "enforced": {"type": "object", "additionalProperties": _TEXT},
}
_POLLED: dict[str, Any] = {
    **dict.fromkeys(("stdout", "stderr"), _TEXT),
    **{
        f"{stream}_{what}": _NUMBER
        for stream in ("stdout", "stderr")
        for what in ("offset", "dropped")
    },
    "more": _FLAG,
    "running": _FLAG,
    # Not as a list of types, which some clients cannot parse.
    "result": {"anyOf": [{"type": "object", "properties": _ENDED}, {"type": "null"}]},
}


_EXECUTED: dict[str, Any] = {
    "output": {"description": "The JSON that the script printed; null if it printed none."},
    **{
        name: _ENDED[name]
        for name in ("stdout", "stderr", "warnings", "errors", "limits_hit", "sandbox", "enforced")
    },
    "permissions_used": _TEXTS,
    "exit_status": {
        "type": "object",
        "properties": {"kind": _TEXT, "reason": _TEXT},
        "required": ["kind"],
    },
}  # fmt: skip


_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": _TEXT, "message": _TEXT},
    "required": ["kind", "message"],
    "description": "What went wrong. The kinds are in docs/reference/errors.md.",
}


def _object(properties: dict[str, Any], *choices: list[str]) -> dict[str, Any]:
    """Return the schema of a result: it has the properties of one of the choices, or an error."""
    required = [*choices, ["error"]]
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": {**properties, "error": _ERROR},
        "anyOf": [{"required": choice} for choice in required],
    }


SCHEMAS: Mapping[str, dict[str, Any]] = {
    "skill_list_docs": _object({"docs": _TEXTS}, ["docs"]),
    # A run has either ended, or continues in the background under an id.
    "skill_run": _object(
        {**_ENDED, "run_id": _RUN_ID, "running": _FLAG},
        ["exit_code", "stdout", "stderr"],
        ["run_id", "running"],
    ),
    "execute_skill": _object(_EXECUTED, ["exit_status"]),
    "skill_poll": _object(_POLLED, ["running"]),
}
# Without background runs as a choice, every run has ended.
_ENDED_RUN = _object(_ENDED, ["exit_code", "stdout", "stderr"])


class ToolRequests:
    """Answers `tools/list` and `tools/call`."""

    def __init__(
        self,
        sessions: ServedSessions,
        runner: RequestRunner,
        logs: ClientLogs,
        kinds: Mapping[str, str],
    ) -> None:
        """Answer requests; `kinds` maps the name of each tool that may be offered to its kind."""
        self._sessions, self._runner, self._logs, self._kinds = sessions, runner, logs, kinds

    async def list_all(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """Return all tools; the one that loads skills lists them in its description."""
        refuse_cursor(params)
        session = self._sessions.of(ctx)

        def list_tools(_watch: Watch) -> list[OwnTool]:
            session.runtime.look()
            return session.tools(listing=True, inline=True)

        tools = await self._runner.run(ctx, list_tools)
        return ListToolsResult(tools=[_convert(tool) for tool in tools])

    async def call(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. A mistake of the model and a refusal are results too.

        MCPError for a tool that was not offered.
        """
        session = self._sessions.of(ctx)
        if params.name not in self._kinds:
            shown = shorten(one_line(params.name), _MAX_SHOWN_CHARS)
            known = ", ".join(self._kinds)
            raise MCPError(INVALID_PARAMS, f"there is no tool {shown!r}; there are: {known}")

        def call_tool(watch: Watch) -> ToolResult:
            return session.call_sync(
                params.name, params.arguments, str(ctx.request_id), watch=watch, inline=True
            )

        result = await self._runner.run_interactive(ctx, params, call_tool)
        if isinstance(result, InputRequiredResult):
            return result
        await self._log(ctx, params.name, result)
        return CallToolResult(
            content=[TextContent(text=sendable(result.text))],
            structured_content=self._document(params.name, result),
            is_error=bool(result.error),
        )

    async def _log(self, ctx: Context, name: str, result: ToolResult) -> None:
        if result.error:
            return await self._logs.send(ctx, "warning", [f"{name}: {result.error}"])
        hit = result.data.get("limits_hit")
        limits = [
            f"{name}: reached {one}" for one in (hit if isinstance(hit, list | tuple) else ())
        ]
        await self._logs.send(ctx, "warning", limits)
        await self._logs.send(ctx, "info", [f"{name}: done"])

    def _document(self, name: str, result: ToolResult) -> dict[str, object] | None:
        """Return the result as JSON for the tools that have a schema for it, else the error."""
        data = dict(result.data)
        if self._kinds.get(name) not in SCHEMAS:
            data = {"error": data["error"]} if "error" in data else {}
        if not data:
            return None
        text = json.dumps(data, default=str, ensure_ascii=False)
        document: dict[str, object] = read_json(sendable(text), constants=True)
        return document


def _convert(tool: OwnTool) -> Tool:
    # All four are given: for a missing one a client assumes the worst, or refuses the tool.
    runs = tool.kind in RUNNING
    hints = ToolAnnotations(
        read_only_hint=not runs, destructive_hint=runs, idempotent_hint=not runs,
        open_world_hint=runs,
    )  # fmt: skip
    schema = {key: value for key, value in tool.schema.items() if value != []}
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema,
        output_schema=_output_schema(tool),
        annotations=hints,
    )


def _output_schema(tool: OwnTool) -> dict[str, Any] | None:
    arguments = tool.schema["properties"]
    if tool.kind == "skill_run" and isinstance(arguments, dict) and "background" not in arguments:
        return _ENDED_RUN
    return SCHEMAS.get(tool.kind)
