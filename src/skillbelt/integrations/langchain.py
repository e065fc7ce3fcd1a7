"""Skills for LangChain and LangGraph: `create_agent(model, middleware=[SkillMiddleware(...)])`.

For a graph without an agent, `skill_tools(kit)` and `kit.instructions()` are the parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from skillbelt.errors import MissingExtra
from skillbelt.integrations.common import Kit, Kits, ToolAnswer
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.schema import Tool
from skillbelt.untrusted_json import read_json

try:
    from langchain.agents.middleware import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
    )
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain.tools import ToolRuntime
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        AnyMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
        ToolCall,
        ToolMessage,
    )
    from langchain_core.messages.tool import tool_call
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.tracers.context import register_configure_hook
    from langgraph.config import get_config
    from langgraph.types import Command
except ImportError as error:
    raise MissingExtra("langchain", "using skills in LangChain") from error

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import Runtime

Find = Callable[[Mapping[str, Any]], Kit]
_BEGAN = "skills_began"
# The `type` of output in the `custom` stream.
OUTPUT = "skill_output"
# The keys where providers put the finish reason, and the reasons for a cut answer.
_REASONS = ("finish_reason", "stop_reason", "done_reason", "stopReason", "status")
_CUT = ("length", "max_tokens", "incomplete")
# The only argument of a call whose arguments cannot be parsed: their text.
_TEXT = "arguments"
_BROKEN_OFF = ToolAnswer(
    "the call broke off, so nothing was done; make it again, in one piece", True
)


class SkillState(AgentState[Any]):
    """The state of an agent, with the id of the message that its conversation began with."""

    skills_began: NotRequired[Annotated[str, PrivateStateAttr]]


class SkillMiddleware(AgentMiddleware[Any, Any, Any]):
    """The skills of a runtime: their part of the system prompt, and the tools.

    A conversation is the graph's own, by the `thread_id` of its configuration, which a checkpointer
    needs too. Without one the id of the first message counts. The output of a command is in the
    `custom` stream while it runs.
    """

    state_schema = SkillState

    def __init__(self, belt: Runtime, *, user: str = "", **options: Any) -> None:
        """Make the middleware.

        The options are those of `Runtime.session`: `agent`, `visible`, `rules`, `app`.
        """
        super().__init__()
        self._kits, self._user = Kits(belt, **options), user
        self.tools = [_tool(tool, self._kit) for tool in self._kits.of(user, "").tools()]

    def _kit(self, state: Mapping[str, Any]) -> Kit:
        name = _thread() or state.get(_BEGAN) or _first_id(state)
        return self._kits.of(self._user, name)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Add the overview to the system message; keep tool calls as the model made them.

        Loaded skills whose text is not in the messages any more are put before them.
        """
        kit = self._kit(request.state)
        context = kit.restore_sync(_first_text(request.messages), shown(request.messages))
        made = _with_context(self._with_instructions(request, kit), context)
        with _recording() as recorder:
            response = handler(made)
        return _with_beginning(self._complete(response, request, recorder.broken()), request)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Like `wrap_model_call`, for a coroutine."""
        kit = self._kit(request.state)
        await kit.instructions_async()  # kept for the conversation
        context = await kit.restore(_first_text(request.messages), shown(request.messages))
        made = _with_context(self._with_instructions(request, kit), context)
        with _recording() as recorder:
            response = await handler(made)
        return _with_beginning(self._complete(response, request, recorder.broken()), request)

    def _with_instructions(self, request: ModelRequest[Any], kit: Kit) -> ModelRequest[Any]:
        text = kit.instructions()
        if not text:
            return request
        return request.override(system_message=_append_text(request.system_message, text))

    def _complete(
        self, response: ModelResponse[Any], request: ModelRequest[Any], broken: Mapping[str, str]
    ) -> ModelResponse[Any]:
        """Turn calls that cannot be parsed into ordinary ones.

        LangChain would end the agent silently at such a call; so a tool answers with the error.
        """
        ours = {tool.name for tool in self.tools}
        others = {tool.name for tool in request.tools if isinstance(tool, BaseTool)} - ours
        return replace(
            response, result=[_make_readable(one, others, broken) for one in response.result]
        )


def _with_beginning(
    response: ModelResponse[Any], request: ModelRequest[Any]
) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    """Record the first message of a conversation without a thread; a summary may replace it."""
    if _thread() or request.state.get(_BEGAN):
        return response
    noted: Command[Any] = Command(update={_BEGAN: _first_id(request.state)})
    return ExtendedModelResponse(model_response=response, command=noted)


def _thread() -> str:
    return str(get_config().get("configurable", {}).get("thread_id") or "")


def _first_id(state: Mapping[str, Any]) -> str:
    messages: Sequence[AnyMessage] = state["messages"]
    return str(messages[0].id or "") if messages else ""


def _first_text(messages: Sequence[AnyMessage]) -> str:
    return str(messages[0].content) if messages else ""


def _with_context(request: ModelRequest[Any], text: str) -> ModelRequest[Any]:
    """Return the request with the text as its first message, as every provider accepts it."""
    return request.override(messages=[HumanMessage(text), *request.messages]) if text else request


def _append_text(message: SystemMessage | None, text: str) -> SystemMessage:
    """Append a text to the message; its blocks keep their attributes, such as cache marks."""
    if message is None or not message.content:
        return SystemMessage(text)
    own = message.content
    added = f"{own}\n\n{text}" if isinstance(own, str) else [*own, {"type": "text", "text": text}]
    return message.model_copy(update={"content": added})


def _make_readable(
    message: BaseMessage, others: Collection[str], broken: Mapping[str, str]
) -> BaseMessage:
    """Replace incomplete arguments of calls by their text.

    Calls of tools that are not ours stay as they are.
    """
    if not isinstance(message, AIMessage) or not (message.invalid_tool_calls or broken):
        return message
    calls = [one if one["name"] in others else _original(one, broken) for one in message.tool_calls]
    taken = [one for one in message.invalid_tool_calls if one["name"] not in others]
    calls += [_as_text(one["name"] or "", one["args"] or "", one["id"]) for one in taken]
    left = [one for one in message.invalid_tool_calls if one not in taken]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": left})


def _original(call: ToolCall, broken: Mapping[str, str]) -> ToolCall:
    """Return the call with its original arguments, if LangChain completed them."""
    text = broken.get(call["id"] or "")
    return call if text is None else _as_text(call["name"], text, call["id"])


def _as_text(name: str, arguments: str, id: str | None) -> ToolCall:
    return tool_call(name=name, args={_TEXT: arguments}, id=id)


class _CallRecorder(BaseCallbackHandler):
    """Records the streamed arguments of tool calls verbatim.

    LangChain completes JSON that breaks off, so half a command would look complete.
    """

    run_inline = True  # in the thread of the stream, so that pieces stay in order

    def __init__(self) -> None:
        self._open: dict[object, str] = {}
        self._pieces: dict[str, list[str]] = {}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **about: Any) -> None:
        """Record pieces of calls; all pieces of a call have its index, only the first its id."""
        message = getattr(chunk, "message", None)
        for piece in message.tool_call_chunks if isinstance(message, AIMessageChunk) else ():
            place = (about.get("run_id"), piece["index"])
            id = self._open[place] = piece["id"] or self._open.get(place, "")
            self._pieces.setdefault(id, []).append(piece["args"] or "")

    def broken(self) -> dict[str, str]:
        """Return arguments that are not JSON, by call id; empty arguments are fine."""
        texts = {id: "".join(pieces) for id, pieces in self._pieces.items()}
        return {id: text for id, text in texts.items() if text.strip() and not _is_json(text)}


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


_listener: ContextVar[_CallRecorder | None] = ContextVar("skillbelt_langchain_heard", default=None)
register_configure_hook(_listener, inheritable=True)


@contextmanager
def _recording() -> Iterator[_CallRecorder]:
    """Record the tool calls of every model that is called in the block."""
    recorder = _CallRecorder()
    token = _listener.set(recorder)
    try:
        yield recorder
    finally:
        _listener.reset(token)


def skill_tools(kit: Kit) -> list[BaseTool]:
    """Return the tools of one conversation, for a custom graph."""
    return [_tool(tool, lambda _state: kit) for tool in kit.tools()]


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
            return _message(tool, runtime, _BROKEN_OFF)
        kit, given, tell = find(runtime.state), _read(arguments), _make_tell(tool.name, runtime)
        return _message(tool, runtime, await kit.call(tool.name, given, shown(messages), tell))

    def call_sync(runtime: ToolRuntime, **arguments: Any) -> ToolMessage:
        messages = runtime.state["messages"]
        if _broken_off(messages, runtime.tool_call_id):
            return _message(tool, runtime, _BROKEN_OFF)
        kit, given, tell = find(runtime.state), _read(arguments), _make_tell(tool.name, runtime)
        return _message(tool, runtime, kit.call_sync(tool.name, given, shown(messages), tell))

    return SkillTool(
        name=tool.name,
        description=tool.description,
        args_schema={k: v for k, v in tool.schema.items() if k != "$schema"},
        func=call_sync,
        coroutine=call,
    )


def _read(arguments: dict[str, Any]) -> object:
    """Return the arguments, or their text when they cannot be parsed; the tool reports that."""
    return arguments[_TEXT] if arguments.keys() == {_TEXT} else arguments


def _broken_off(messages: Sequence[AnyMessage], call_id: str | None) -> bool:
    """Whether the answer with this call was cut; LangChain parses half a call too."""
    made = (one for one in reversed(messages) if isinstance(one, AIMessage))
    of_call = (one for one in made if any(call["id"] == call_id for call in one.tool_calls))
    metadata = next((one.response_metadata for one in of_call), {})
    reason = next((metadata[key] for key in _REASONS if metadata.get(key)), None)
    # Other providers may have no reason; OpenAI omits it only when the stream broke off.
    return str(reason).lower() in _CUT if reason else metadata.get("model_provider") == "openai"


def _make_tell(tool: str, runtime: ToolRuntime) -> Callable[[Stream, str], None]:
    write, call_id = runtime.stream_writer, runtime.tool_call_id

    def tell(stream: Stream, text: str) -> None:
        about = {"type": OUTPUT, "tool": tool, "tool_call_id": call_id}
        write({**about, "stream": stream, "text": text})

    return tell


def _message(tool: Tool, runtime: ToolRuntime, answer: ToolAnswer) -> ToolMessage:
    """Return the answer as a message; the model does not see its facts."""
    return ToolMessage(
        answer.text,
        name=tool.name,
        tool_call_id=runtime.tool_call_id or "",
        artifact=dict(answer.data),
        status="error" if answer.failed else "success",
    )


def shown(messages: Iterable[AnyMessage]) -> list[str]:
    """Return the tool results in the model's history."""
    return [str(one.content) for one in messages if isinstance(one, ToolMessage)]
