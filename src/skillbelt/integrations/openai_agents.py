"""Skills for the OpenAI Agents SDK: `skill_agent(Runtime().session(user, name), name=...)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from skillbelt.errors import MissingExtra
from skillbelt.integrations.common import Kit, Output, kit_of
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.schema import Tool

try:
    from agents import Agent, FunctionTool, RunContextWrapper
    from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData
    from agents.tool_context import ToolContext
except ImportError as error:
    raise MissingExtra("openai-agents", "using skills in the OpenAI Agents SDK") from error

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import RuntimeSession

Instructions = Callable[[RunContextWrapper[Any], Agent[Any]], str]
OnStream = Callable[[Output], Awaitable[None] | None]


def skill_agent(
    session: RuntimeSession,
    *,
    instructions: str = "",
    on_stream: OnStream | None = None,
    **options: Any,
) -> Agent[Any]:
    """Return an agent with the skills of a conversation; the options are those of `Agent`.

    The SDK's own session is enough to resume: the text of a skill is in the answer to the call that
    loaded it. `on_stream` gets the output of a command as it comes.
    """
    kit = kit_of(session)
    tools = [*options.pop("tools", ()), *skill_tools(kit, on_stream)]
    write = skill_instructions(kit, instructions)

    async def write_async(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        await kit.instructions_async()  # kept for the conversation, so that `write` scans nothing
        return write(context, agent)

    return Agent(instructions=write_async, tools=tools, **options)


def skill_instructions(kit: Kit, before: str = "") -> Instructions:
    """Return the system prompt: the text `before`, then the overview of the skills."""

    def instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        return "\n\n".join(filter(None, [before, kit.instructions()]))

    return instructions


def keep_skills(
    session: RuntimeSession, before: CallModelInputFilter | None = None
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Return a filter for `RunConfig(call_model_input_filter=...)`.

    Loaded skills whose text was compacted, trimmed or limited away are in the input again: before
    all other items, once each. Give the session that the agent was made with. `before` is another
    filter, which is applied first. This is not for a conversation that OpenAI's server keeps:
    there, an input holds only what is new.
    """
    kit = kit_of(session)

    async def restore(data: CallModelData[Any]) -> ModelInputData:
        given = data.model_data
        if before is not None:
            made = before(data)
            given = await made if isawaitable(made) else made
        text = await kit.restore(str(given.input[:1]), shown(list(given.input)))
        context: Any = [{"role": "user", "content": text}] if text else []
        return ModelInputData(input=[*context, *given.input], instructions=given.instructions)

    return restore


def skill_tools(kit: Kit, on_stream: OnStream | None = None) -> list[FunctionTool]:
    """Return the tools of one conversation."""
    return [_tool(kit, tool, on_stream) for tool in kit.tools()]


def _tool(kit: Kit, tool: Tool, on_stream: OnStream | None) -> FunctionTool:
    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema={k: v for k, v in tool.schema.items() if k != "$schema"},
        on_invoke_tool=_caller(kit, tool.name, on_stream),
        # Strict schemas have no optional arguments.
        strict_json_schema=False,
    )


def _caller(
    kit: Kit, name: str, on_stream: OnStream | None
) -> Callable[[ToolContext[Any], str], Awaitable[str]]:
    async def call(context: ToolContext[Any], arguments: str) -> str:
        tell = _make_tell(name, context.tool_call_id, on_stream)
        return (await kit.call(name, arguments, shown(context.turn_input), tell)).text

    return call


def _make_tell(
    name: str, call_id: str, on_stream: OnStream | None
) -> Callable[[Stream, str], Awaitable[None] | None] | None:
    if on_stream is None:
        return None
    return lambda stream, text: on_stream(Output(name, call_id, stream, text))


def shown(items: list[Any]) -> list[str]:
    """Return the tool results in the model's history."""
    outputs = (item for item in items if isinstance(item, dict))
    answers = [one.get("output") for one in outputs if one.get("type") == "function_call_output"]
    return [text for text in answers if isinstance(text, str)]
