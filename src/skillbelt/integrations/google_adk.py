"""Skills for Google's Agent Development Kit: `LlmAgent(tools=[SkillToolset(Runtime())])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from skillbelt.errors import MissingExtra
from skillbelt.integrations.common import Kit, Kits, Output
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.schema import Tool

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types
except ImportError as error:
    raise MissingExtra("google-adk", "using skills in Google ADK") from error

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import Runtime

OnOutput = Callable[[ToolContext, Output], Awaitable[None] | None]
# The loaded skills, in the state of ADK's session, for callbacks and other agents. With a prefix
# like ADK's own, the key needs no entry in the state schema that an app may have.
LOADED = "skillbelt:loaded"
_RESULT = "result"


class SkillToolset(BaseToolset):
    """The skills of a runtime as a toolset.

    A conversation is ADK's own session, whose events hold what was loaded.
    """

    def __init__(self, belt: Runtime, *, on_output: OnOutput | None = None, **options: Any) -> None:
        """Make the toolset; `on_output` gets the output of a command, with the context of the call.

        The options are those of `Runtime.session`: `agent`, `visible`, `rules`, `app`.
        """
        super().__init__()
        self._kits, self._on_output = Kits(belt, **options), on_output

    def _kit(self, context: ReadonlyContext | None) -> Kit:
        if context is None:
            return self._kits.of("", "")
        return self._kits.of(context.user_id, context.session.id)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the tools for the skills that the conversation may see now."""
        kit = self._kit(readonly_context)
        return [SkillTool(kit, tool, self._on_output) for tool in await kit.tools_async()]

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Add the overview of the skills to the system instruction; restore what was compacted."""
        text = await self._kit(tool_context).instructions_async()
        if text:
            llm_request.append_instructions([text])
        await self.restore(tool_context, llm_request)

    async def restore(self, callback_context: ReadonlyContext, llm_request: LlmRequest) -> None:
        """Put the texts of loaded skills before the contents of a request that lacks them.

        This happens automatically. If a plugin cuts the contents later, such as ADK's
        ContextFilterPlugin, also give it to the agent as a `before_model_callback`.
        """
        kit = self._kit(callback_context)
        own = [one for one in llm_request.contents if not isinstance(one, _SkillContext)]
        first = own[0].model_dump_json(exclude_none=True) if own else ""
        parts = (part for one in own for part in one.parts or ())
        answers = (part.function_response for part in parts if part.function_response)
        text = await kit.restore(first, map(_result, answers))
        part = types.Part.from_text(text=text)
        llm_request.contents = [_SkillContext(role="user", parts=[part]), *own] if text else own


class _SkillContext(types.Content):
    """The content that puts the texts of skills back."""


class SkillTool(BaseTool):
    """One of the tools."""

    def __init__(self, kit: Kit, tool: Tool, on_output: OnOutput | None = None) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._kit, self._tool, self._on_output = kit, tool, on_output

    def _get_declaration(self) -> types.FunctionDeclaration:
        schema = {k: v for k, v in self._tool.schema.items() if k != "$schema"}
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Call the tool; a skill that it loads is in the session's state from then on."""
        before = shown(tool_context.session.events)
        answer = await self._kit.call(self.name, args, before, self._make_tell(tool_context))
        if self._tool.kind in ("skill_load", "claude_skill") and not answer.failed:
            loaded = [*tool_context.state.get(LOADED, []), str(args["skill"])]
            tool_context.state[LOADED] = list(dict.fromkeys(loaded))
        if answer.failed:
            return {"error": answer.text, "kind": answer.kind}
        return {_RESULT: answer.text}

    def _make_tell(
        self, context: ToolContext
    ) -> Callable[[Stream, str], Awaitable[None] | None] | None:
        on_output, call_id = self._on_output, context.function_call_id or ""
        if on_output is None:
            return None
        return lambda stream, text: on_output(context, Output(self.name, call_id, stream, text))


def shown(events: Iterable[Event]) -> list[str]:
    """Return the tool results in the model's history."""
    return list(_answers(events))


def _answers(events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        yield from map(_result, event.get_function_responses())


def _result(answer: types.FunctionResponse) -> str:
    text = (answer.response or {}).get(_RESULT)
    return text if isinstance(text, str) else ""
