"""Skills for LangChain and LangGraph: `create_agent(model, middleware=[SkillMiddleware(...)])`.

Without an agent of LangChain's, `skill_tools(kit)` and `kit.instructions()` give the parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skillbelt.errors import MissingExtra
from skillbelt.integrations.common import Answer, Kit, Kits
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.schema import Tool
from skillbelt.untrusted_json import read_json

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.tools import ToolRuntime
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        AnyMessage,
        BaseMessage,
        SystemMessage,
        ToolCall,
        ToolMessage,
    )
    from langchain_core.messages.tool import tool_call
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.tracers.context import register_configure_hook
    from langgraph.config import get_config
except ImportError as error:
    raise MissingExtra("langchain", "using skills in LangChain") from error

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import Runtime

Find = Callable[[Sequence[AnyMessage]], Kit]
# What `type` says in what is written to the `custom` stream.
OUTPUT = "skill_output"
# Where providers say how an answer ended, and what they say when it was cut.
_REASONS = ("finish_reason", "stop_reason", "done_reason", "stopReason", "status")
_CUT = ("length", "max_tokens", "incomplete")
# The one argument of a call whose arguments can not be read: their text.
_TEXT = "arguments"
_BROKEN_OFF = Answer("the call broke off, so nothing was done; make it again, in one piece", True)


class SkillMiddleware(AgentMiddleware[Any, Any, Any]):
    """The skills of a runtime: what the system prompt says of them, and the tools.

    A conversation is the graph's own: the `thread_id` of its configuration, which its checkpointer
    goes on with. Without one it is known by the first message. What a command prints is in the
    `custom` stream while it runs.
    """

    def __init__(self, belt: Runtime, *, user: str = "", **options: Any) -> None:
        """The options are those of `Runtime.session`: `agent`, `visible`, `rules`, `app`."""
        super().__init__()
        self._kits, self._user = Kits(belt, **options), user
        self.tools = [_tool(tool, self._kit) for tool in self._kits.of(user, "").tools()]

    def _kit(self, messages: Sequence[AnyMessage]) -> Kit:
        thread = get_config().get("configurable", {}).get("thread_id")
        first = messages[0].id if messages else None
        return self._kits.of(self._user, str(thread or first or ""))

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Add what there is to the system message, and see that no call is lost or made up."""
        with _listening() as heard:
            response = handler(self._told(request))
        return self._complete(response, request, heard.broken())

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The same, in a coroutine."""
        with _listening() as heard:
            response = await handler(self._told(request))
        return self._complete(response, request, heard.broken())

    def _told(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        text = self._kit(request.state["messages"]).instructions()
        if not text:
            return request
        return request.override(system_message=_with(request.system_message, text))

    def _complete(
        self, response: ModelResponse[Any], request: ModelRequest[Any], broken: Mapping[str, str]
    ) -> ModelResponse[Any]:
        """The response with calls that can not be read among the others.

        An agent ends without a word at such a call; so it is answered with what is wrong.
        """
        ours = {tool.name for tool in self.tools}
        others = {tool.name for tool in request.tools if isinstance(tool, BaseTool)} - ours
        return replace(response, result=[_readable(one, others, broken) for one in response.result])


def _with(message: SystemMessage | None, text: str) -> SystemMessage:
    """The message with a text after its own; its blocks keep their marks, as those of a cache."""
    if message is None or not message.content:
        return SystemMessage(text)
    own = message.content
    added = f"{own}\n\n{text}" if isinstance(own, str) else [*own, {"type": "text", "text": text}]
    return message.model_copy(update={"content": added})


def _readable(
    message: BaseMessage, others: Collection[str], broken: Mapping[str, str]
) -> BaseMessage:
    """The message, in which calls without whole arguments have their text in place of them.

    Those of other tools are left to whoever has these.
    """
    if not isinstance(message, AIMessage) or not (message.invalid_tool_calls or broken):
        return message
    calls = [one if one["name"] in others else _true(one, broken) for one in message.tool_calls]
    taken = [one for one in message.invalid_tool_calls if one["name"] not in others]
    calls += [_as_text(one["name"] or "", one["args"] or "", one["id"]) for one in taken]
    left = [one for one in message.invalid_tool_calls if one not in taken]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": left})


def _true(call: ToolCall, broken: Mapping[str, str]) -> ToolCall:
    """The call as the model made it, if LangChain completed its arguments."""
    text = broken.get(call["id"] or "")
    return call if text is None else _as_text(call["name"], text, call["id"])


def _as_text(name: str, arguments: str, id: str | None) -> ToolCall:
    return tool_call(name=name, args={_TEXT: arguments}, id=id)


class _Heard(BaseCallbackHandler):
    """What a model streams as the arguments of its calls, to the letter.

    LangChain completes JSON that breaks off, and half of a command would look like a whole one.
    """

    run_inline = True  # where the stream is read, so that pieces stay in order

    def __init__(self) -> None:
        self._open: dict[object, str] = {}
        self._pieces: dict[str, list[str]] = {}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **about: Any) -> None:
        """Note the pieces of calls; those of one call have its place, only the first its id."""
        message = getattr(chunk, "message", None)
        for piece in message.tool_call_chunks if isinstance(message, AIMessageChunk) else ():
            place = (about.get("run_id"), piece["index"])
            id = self._open[place] = piece["id"] or self._open.get(place, "")
            self._pieces.setdefault(id, []).append(piece["args"] or "")

    def broken(self) -> dict[str, str]:
        """The arguments that are no JSON, by the ids of their calls; none at all are fine."""
        said = {id: "".join(pieces) for id, pieces in self._pieces.items()}
        return {id: text for id, text in said.items() if text.strip() and not _is_json(text)}


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


_listener: ContextVar[_Heard | None] = ContextVar("skillbelt_langchain_heard", default=None)
register_configure_hook(_listener, inheritable=True)


@contextmanager
def _listening() -> Iterator[_Heard]:
    """Whatever model is called meanwhile is heard."""
    heard = _Heard()
    token = _listener.set(heard)
    try:
        yield heard
    finally:
        _listener.reset(token)


def skill_tools(kit: Kit) -> list[BaseTool]:
    """The tools of one conversation, for a graph of one's own."""
    return [_tool(tool, lambda _messages: kit) for tool in kit.tools()]


class SkillTool(StructuredTool):
    """One of the tools. A model may give its arguments any name, `self` and `config` too."""

    def _run(self, /, *_: Any, **arguments: Any) -> Any:
        assert self.func is not None
        return self.func(**arguments)

    async def _arun(self, /, *_: Any, **arguments: Any) -> Any:
        assert self.coroutine is not None
        return await self.coroutine(**arguments)


def _tool(tool: Tool, find: Find) -> BaseTool:
    async def call(runtime: ToolRuntime, **arguments: Any) -> ToolMessage:
        messages = runtime.state["messages"]
        if _broken_off(messages, runtime.tool_call_id):
            return _given(tool, runtime, _BROKEN_OFF)
        kit, given, tell = find(messages), _read(arguments), _teller(tool.name, runtime)
        return _given(tool, runtime, await kit.call(tool.name, given, shown(messages), tell))

    def call_sync(runtime: ToolRuntime, **arguments: Any) -> ToolMessage:
        messages = runtime.state["messages"]
        if _broken_off(messages, runtime.tool_call_id):
            return _given(tool, runtime, _BROKEN_OFF)
        kit, given, tell = find(messages), _read(arguments), _teller(tool.name, runtime)
        return _given(tool, runtime, kit.call_sync(tool.name, given, shown(messages), tell))

    return SkillTool(
        name=tool.name,
        description=tool.description,
        args_schema={k: v for k, v in tool.schema.items() if k != "$schema"},
        func=call_sync,
        coroutine=call,
    )


def _read(arguments: dict[str, Any]) -> object:
    """The arguments, or the text of those that can not be read, which the tool says then."""
    return arguments[_TEXT] if arguments.keys() == {_TEXT} else arguments


def _broken_off(messages: Sequence[AnyMessage], call_id: str | None) -> bool:
    """Whether the answer with this call is not whole; LangChain reads half a call too."""
    made = (one for one in reversed(messages) if isinstance(one, AIMessage))
    of_call = (one for one in made if any(call["id"] == call_id for call in one.tool_calls))
    told = next((one.response_metadata for one in of_call), {})
    reason = next((told[key] for key in _REASONS if told.get(key)), None)
    # Others may have no word for it; here one is missing if the stream just ended.
    return str(reason).lower() in _CUT if reason else told.get("model_provider") == "openai"


def _teller(tool: str, runtime: ToolRuntime) -> Callable[[Stream, str], None]:
    write, call_id = runtime.stream_writer, runtime.tool_call_id

    def tell(stream: Stream, text: str) -> None:
        about = {"type": OUTPUT, "tool": tool, "tool_call_id": call_id}
        write({**about, "stream": stream, "text": text})

    return tell


def _given(tool: Tool, runtime: ToolRuntime, answer: Answer) -> ToolMessage:
    """A text for the model, and the facts, which it does not see."""
    return ToolMessage(
        answer.text,
        name=tool.name,
        tool_call_id=runtime.tool_call_id or "",
        artifact=dict(answer.data),
        status="error" if answer.failed else "success",
    )


def shown(messages: Iterable[AnyMessage]) -> list[str]:
    """The answers of tools that a model has before it."""
    return [str(one.content) for one in messages if isinstance(one, ToolMessage)]
