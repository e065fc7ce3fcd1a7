"""The tools: the same as everywhere, for clients that know nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from skillbelt.mcp.logs import Logs
from skillbelt.mcp.pages import only_page
from skillbelt.mcp.requests import Carrier, Context
from skillbelt.mcp.results import SCHEMAS
from skillbelt.mcp.sessions import Sessions
from skillbelt.mcp.uris import sendable
from skillbelt.running.following import Watch
from skillbelt.tools.schema import Tool as OwnTool
from skillbelt.tools.schema import ToolResult

_RUNNING = ("skill_run", "skill_poll")
_CHANGING = ("skill_load", "skill_select_docs", "skill_unload", *_RUNNING)


class Calls:
    """What answers `tools/list` and `tools/call`."""

    def __init__(
        self, sessions: Sessions, carrier: Carrier, logs: Logs, kinds: Mapping[str, str]
    ) -> None:
        """`kinds` gives what a tool is by the name it is offered under."""
        self._sessions, self._carrier, self._logs, self._kinds = sessions, carrier, logs, kinds

    async def list_all(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """All tools at once; the one that loads has the list of skills in its description."""
        only_page(params)
        session = self._sessions.of(ctx)

        def job(_watch: Watch) -> list[OwnTool]:
            session.shelf.look()
            return session.tools(listing=True)

        made = await self._carrier.plain(ctx, job)
        return ListToolsResult(tools=[_shaped(tool) for tool in made])

    async def call(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """What a call gives. Whatever a model did wrong, and a refusal, is a result too."""
        session = self._sessions.of(ctx)

        def job(watch: Watch) -> ToolResult:
            return session.call_sync(
                params.name, params.arguments, str(ctx.request_id), watch=watch, inline=True
            )

        given = await self._carrier.carry(ctx, params, job)
        if isinstance(given, InputRequiredResult):
            return given
        await self._log(ctx, params.name, given)
        return CallToolResult(
            content=[TextContent(text=sendable(given.text))],
            structured_content=self._document(params.name, given),
            is_error=bool(given.error),
        )

    async def _log(self, ctx: Context, name: str, given: ToolResult) -> None:
        """Tell whoever wants to know how the call went."""
        if given.error:
            return await self._logs.tell(ctx, "warning", [f"{name}: {given.error}"])
        hit = given.data.get("limits_hit")
        limits = [
            f"{name}: reached {one}" for one in (hit if isinstance(hit, list | tuple) else ())
        ]
        await self._logs.tell(ctx, "warning", limits)
        await self._logs.tell(ctx, "info", [f"{name}: done"])

    def _document(self, name: str, given: ToolResult) -> dict[str, object] | None:
        if self._kinds.get(name) not in SCHEMAS or not given.data:
            return None
        plain = json.dumps(dict(given.data), default=str, ensure_ascii=False)
        document: dict[str, object] = json.loads(sendable(plain))
        return document


def _shaped(tool: OwnTool) -> Tool:
    hints = ToolAnnotations(
        read_only_hint=tool.kind not in _CHANGING,
        destructive_hint=tool.kind in _RUNNING,
        open_world_hint=tool.kind in _RUNNING,
    )
    schema = {key: value for key, value in tool.schema.items() if value != []}
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema,
        output_schema=SCHEMAS.get(tool.kind),
        annotations=hints,
    )
