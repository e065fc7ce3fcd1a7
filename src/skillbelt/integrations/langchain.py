"""Skills for LangChain and LangGraph: `create_agent(model, middleware=[SkillMiddleware(...)])`.

Without an agent of LangChain's, `skill_tools` and `skill_instructions` give the parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import ToolRuntime
from langchain_core.messages import AnyMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_config

from skillbelt.integrations.kit import Answer, Kit, Kits
from skillbelt.tools import Tool

if TYPE_CHECKING:
    from skillbelt.runtime import Runtime

Find = Callable[[], Kit]


class SkillMiddleware(AgentMiddleware[Any, Any, Any]):
    """The skills of a runtime: what the system prompt says of them, and the tools.

    A conversation is the graph's own: the `thread_id` of its configuration, which its checkpointer
    goes on with.
    """

    def __init__(self, belt: Runtime, *, user: str = "", **options: Any) -> None:
        """The options are those of `Runtime.session`: `agent`, `visible`, `rules`, `app`."""
        super().__init__()
        self._kits, self._user = Kits(belt, **options), user
        self.tools = [_tool(tool, self._kit) for tool in self._kits.of(user, "").tools()]

    def _kit(self) -> Kit:
        configured = get_config().get("configurable", {})
        return self._kits.of(self._user, str(configured.get("thread_id", "")))

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Add what there is to the system message."""
        return handler(self._told(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Add what there is to the system message."""
        return await handler(self._told(request))

    def _told(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        text = self._kit().instructions()
        if not text:
            return request
        before = request.system_message.text if request.system_message else ""
        whole = f"{before}\n\n{text}" if before else text
        return request.override(system_message=SystemMessage(whole))


def skill_tools(kit: Kit) -> list[BaseTool]:
    """The tools of one conversation, for a graph of one's own."""
    return [_tool(tool, lambda: kit) for tool in kit.tools()]


def _tool(tool: Tool, find: Find) -> BaseTool:
    async def call(runtime: ToolRuntime, **arguments: Any) -> tuple[str, dict[str, object]]:
        return _given(await find().call(tool.name, arguments, shown(runtime.state["messages"])))

    def call_sync(runtime: ToolRuntime, **arguments: Any) -> tuple[str, dict[str, object]]:
        return _given(find().call_sync(tool.name, arguments, shown(runtime.state["messages"])))

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema={k: v for k, v in tool.schema.items() if k != "$schema"},
        func=call_sync,
        coroutine=call,
        response_format="content_and_artifact",
    )


def _given(answer: Answer) -> tuple[str, dict[str, object]]:
    """A text for the model, and the facts, which it does not see."""
    return answer.text, dict(answer.data)


def shown(messages: Iterable[AnyMessage]) -> list[str]:
    """The answers of tools that a model has before it."""
    return [str(one.content) for one in messages if isinstance(one, ToolMessage)]
