"""Skills for Pydantic AI: `Agent(model, toolsets=[SkillToolset(Runtime())])`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from skillbelt.errors import MissingExtra
from skillbelt.integrations.common import Kit, Kits
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.schema import Tool

try:
    from pydantic_ai import CustomEvent, RunContext, ToolFailed
    from pydantic_ai.capabilities.abstract import AbstractCapability, CapabilityOrdering
    from pydantic_ai.messages import (
        InstructionPart,
        ModelMessage,
        ModelRequest,
        SystemPromptPart,
        ToolReturn,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise MissingExtra("agent", "using skills in Pydantic AI") from error

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import Runtime

_EPOCH = datetime.fromtimestamp(0, UTC)  # so that the same text is the same part
# The tool itself answers an invalid call, with a message that helps the model.
_ANYTHING = SchemaValidator(
    schema=core_schema.no_info_plain_validator_function(lambda given: given or {})
)


@dataclass(kw_only=True)
class SkillOutputEvent(CustomEvent):
    """A piece of a command's output, in the agent's event stream while it runs."""

    stream: Stream
    text: str


class SkillToolset(AbstractToolset[Any]):
    """The skills of a runtime as a toolset.

    A conversation is the agent's own, by the `conversation_id` of its message history.
    """

    def __init__(
        self, belt: Runtime, *, user: str = "", id: str = "skills", **options: Any
    ) -> None:
        """Make the toolset.

        The options are those of `Runtime.session`: `agent`, `visible`, `rules`, `app`.
        """
        self._kits, self._user, self._id = Kits(belt, **options), user, id

    @property
    def id(self) -> str:
        """The id of this toolset in an agent."""
        return self._id

    def _kit(self, ctx: RunContext[Any]) -> Kit:
        return self._kits.of(self._user, ctx.conversation_id or ctx.run_id or "")

    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        """Return the overview of the skills; constant for the conversation."""
        text = await self._kit(ctx).instructions_async()
        return InstructionPart(text, on_change="append", name="skills") if text else None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools by name."""
        return {tool.name: self._make_tool(tool) for tool in await self._kit(ctx).tools_async()}

    def _make_tool(self, tool: Tool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema={k: v for k, v in tool.schema.items() if k != "$schema"},
        )
        return ToolsetTool(
            toolset=self, tool_def=definition, max_retries=1, args_validator=_ANYTHING
        )

    async def restore(self, ctx: RunContext[Any], messages: list[ModelMessage]) -> str:
        """Return the texts of loaded skills that these messages lack; "" for nothing."""
        return await self._kit(ctx).restore(_first_text(messages), shown(messages))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[str]:
        """Call the tool; facts for programs are in the metadata, which no model sees."""

        async def tell(stream: Stream, text: str) -> None:
            await ctx.emit(SkillOutputEvent(stream=stream, text=text))

        answer = await self._kit(ctx).call(name, tool_args, shown(ctx.messages), tell)
        if answer.failed and answer.data.keys() <= {"error"}:
            raise ToolFailed(answer.text)
        return ToolReturn(answer.text, metadata=dict(answer.data) or None)


@dataclass
class KeepSkills(AbstractCapability[Any]):
    """Keeps loaded skills visible to the model when the history is compacted.

    `Agent(model, toolsets=[skills], capabilities=[KeepSkills(skills)])`: texts that a history
    processor or another capability removed are in each request again, once each, before all other
    messages. They do not enter the history.
    """

    skills: SkillToolset

    def get_ordering(self) -> CapabilityOrdering:
        """Ask to be the last to see the messages."""
        return CapabilityOrdering(position="innermost")

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put back what the request lacks."""
        messages = request_context.messages
        text = await self.skills.restore(ctx, messages)
        if text:
            request_context.messages = _with_context(messages, text)
        return request_context


def _with_context(messages: Sequence[ModelMessage], text: str) -> list[ModelMessage]:
    """Return the messages with the text in front; only system prompts stay before it."""
    first = messages[0] if messages else None
    context = UserPromptPart(text, timestamp=_EPOCH)
    if not isinstance(first, ModelRequest):
        return [ModelRequest([context]), *messages]
    prompts = list(takewhile(lambda part: isinstance(part, SystemPromptPart), first.parts))
    parts = [*prompts, context, *first.parts[len(prompts) :]]
    return [replace(first, parts=parts), *messages[1:]]


def _first_text(messages: Sequence[ModelMessage]) -> str:
    parts = messages[0].parts if messages else ()
    return "\n".join(str(getattr(part, "content", "")) for part in parts)


def shown(messages: list[ModelMessage]) -> list[str]:
    """Return the tool results in the model's history."""
    parts = (part for message in messages for part in message.parts)
    answers = (part.content for part in parts if isinstance(part, ToolReturnPart))
    return [text for text in answers if isinstance(text, str)]
