"""Models of providers, through pydantic-ai: found by name, asked, and their messages converted.

Needs the `agent` extra; imported when the first model is created.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from pydantic_ai import exceptions
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelHTTPError, ModelRequestTimeout
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as ProviderModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from skillbelt.agent.events import TextDelta, ThinkingDelta, Usage
from skillbelt.agent.history import KEPT
from skillbelt.agent.models import (
    EXTRA,
    OFFLINE,
    Called,
    ModelFailure,
    Piece,
    Prompt,
    Reply,
)
from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError, MissingExtra, SkillbeltError
from skillbelt.settings import process_environment
from skillbelt.text import one_line, shorten
from skillbelt.tools.schema import Tool
from skillbelt.untrusted_json import read_json

logger = logging.getLogger(__name__)
# Models that think may be silent for minutes; beyond that the connection is dead.
MODEL_IDLE_SECONDS = 600.0
# An answer with its reasoning and calls; far beyond the limit of any model.
MAX_ANSWER_CHARS = 8_000_000
OLLAMA_URL = "http://localhost:11434/v1"
# A separate key: the one for OpenAI must not go to another server.
COMPATIBLE_KEY = "OPENAI_COMPATIBLE_API_KEY"
_OFFICIAL = "api.openai.com"
# The provider packages of the extra; for the others pydantic-ai reports what is missing.
_OURS = ("anthropic", "google", "openai")
_GROUP = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")
_MAX_SHOWN_CHARS = 300
_NOTHING: Mapping[str, object] = MappingProxyType({})
_SYSTEM = ("system", "developer")


class ProvidedModel:
    """A model of a provider. Its connections stay open while it is entered.

    The server is not trusted, so the size and time of its answers are bounded.
    """

    def __init__(
        self,
        model: ProviderModel,
        settings: Mapping[str, object] = _NOTHING,
    ) -> None:
        self._model, self._settings = model, settings
        self.name: str = model.model_id
        self.window_tokens: int = model.context_window or 0
        self._tools: tuple[Sequence[Tool], list[Any]] = ((), [])

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._model.__aexit__(None, None, None)
        except Exception as error:  # the answers are complete already
            logger.debug("cannot close the connection to the model: %r", error)

    def price(self, usage: Usage) -> float | None:
        """Return the price of a request, in dollars; None if it is not known."""
        priced = PricedUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        try:
            found = calc_price(priced, self._model.model_name, provider_id=self._model.system)
        except (LookupError, ValueError):
            return None
        return float(found.total_price)

    async def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """Stream the pieces of the answer."""
        sent = convert_messages(prompt.messages)
        parameters = ModelRequestParameters(
            function_tools=self._convert_tools(prompt.tools),
            instruction_parts=list(sent.instructions),
        )
        settings = settings_for(self._model, prompt.session, self._request_settings())
        try:
            async with model_request_stream(
                self._model,
                sent.messages,
                model_settings=settings,
                model_request_parameters=parameters,
                instrument=False,
            ) as stream:
                async for event in _BoundedEvents(stream):
                    piece = _convert_event(event)
                    if piece is not None:
                        yield piece
                response = stream.get()
        except exceptions.UserError as error:
            raise ConfigError(_shorten_error(error)) from error
        except exceptions.AgentRunError as error:
            raise _failure(error, self._model) from error
        except SkillbeltError:
            raise
        except Exception as error:  # pydantic-ai raises anything for an unexpected answer
            raise ModelFailure(_describe_unreadable(error, self._model), again=True) from error
        yield _convert_response(response, bool(self._model.base_url))

    def _request_settings(self) -> Mapping[str, object]:
        """Return the settings of the host, with the idle timeout for the first event too."""
        seconds = MODEL_IDLE_SECONDS
        return {"first_event_timeout": seconds, **self._settings} if seconds else self._settings

    def _convert_tools(self, tools: Sequence[Tool]) -> list[Any]:
        """Return the tools for pydantic-ai, cached until they change."""
        if self._tools[0] != tools:
            self._tools = (tools, [convert_tool(tool) for tool in tools])
        return self._tools[1]


class _BoundedEvents:
    """Iterates over events; ModelFailure when the answer is too long or stalls."""

    def __init__(self, stream: AsyncIterable[ModelResponseStreamEvent]) -> None:
        self._stream, self._chars = aiter(stream), 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelResponseStreamEvent:
        seconds, most = MODEL_IDLE_SECONDS, MAX_ANSWER_CHARS
        try:
            async with asyncio.timeout(seconds or None):
                event = await anext(self._stream)
        except TimeoutError as error:
            reason = f"the model sent nothing for {seconds:g} s (model_idle_seconds)"
            raise ModelFailure(reason, again=True) from error
        self._chars += _count_chars(event)
        if self._chars > most:
            raise ModelFailure(f"the answer is longer than {most} characters (max_answer_chars)")
        return event


def _convert_event(event: ModelResponseStreamEvent) -> TextDelta | ThinkingDelta | None:
    match event.event_kind:
        case "part_start" if event.part.part_kind == "text" and event.part.content:
            return TextDelta(event.part.content)
        case "part_start" if event.part.part_kind == "thinking" and event.part.content:
            return ThinkingDelta(event.part.content)
        case "part_delta" if event.delta.part_delta_kind == "text" and event.delta.content_delta:
            return TextDelta(event.delta.content_delta)
        case "part_delta" if (
            event.delta.part_delta_kind == "thinking" and event.delta.content_delta
        ):
            return ThinkingDelta(event.delta.content_delta)
    return None


def _count_chars(event: ModelResponseStreamEvent) -> int:
    """Count the characters of an event; the start of a part counts at least one."""
    match event.event_kind:
        case "part_start" if event.part.part_kind in ("text", "thinking"):
            return 1 + len(event.part.content)
        case "part_start" if event.part.part_kind == "tool-call":
            return 1 + len(event.part.tool_name) + len(str(event.part.args or ""))
        case "part_start":
            return 1
        case "part_delta" if event.delta.part_delta_kind == "tool_call":
            return len(str(event.delta.args_delta or ""))
        case "part_delta" if event.delta.part_delta_kind in ("text", "thinking"):
            return len(event.delta.content_delta or "")
        case "part_delta":
            return 1
    return 0


def _convert_response(response: ModelResponse, remote: bool) -> Reply:
    """Return the answer; ModelFailure when it broke off."""
    if response.state != "complete":
        raise ModelFailure("the answer broke off before its end", again=True)
    counted, reason = response.usage, response.finish_reason or ""
    finished = _is_finished(response, remote) and reason != "length"
    return Reply(
        text="".join(part.content for part in response.parts if part.part_kind == "text"),
        calls=tuple(
            Called(part.tool_call_id, part.tool_name, part.args)
            for part in response.parts
            if part.part_kind == "tool-call"
        ),
        usage=Usage(
            counted.input_tokens,
            counted.output_tokens,
            counted.cache_read_tokens,
            counted.cache_write_tokens,
        ),
        kept=data_to_keep(response),
        finished=finished,
        fault=_FAULTS.get(reason, "" if finished else _UNFINISHED),
    )


def _is_finished(response: ModelResponse, remote: bool) -> bool:
    """Whether the provider marked the end; a model in this process need not."""
    details = response.provider_details or {}
    # For some streams without an end mark pydantic-ai reports `stop`.
    marked = "finish_reason" in details or (bool(response.finish_reason) and not details)
    return marked or (not remote and not response.finish_reason)


_UNFINISHED = "the answer may be cut: its end was not marked"
_FAULTS = {
    "length": "the answer was cut at the output limit of the model",
    "content_filter": "the provider's content filter blocked the answer",
    "error": "the provider ended the answer with an error",
}


def _failure(error: Exception, model: ProviderModel) -> ModelFailure:
    too_long = isinstance(error, exceptions.ModelContextWindowExceededError)
    lasting = (exceptions.ModelRequestRejectedError, exceptions.ModelQuotaExceededError)
    # The provider's client has already retried a request that failed before the answer began.
    whole = isinstance(error, exceptions.ModelHTTPError) and not error.in_stream
    tried = whole and hasattr(getattr(model, "client", None), "max_retries")
    unreached = getattr(error, "phase", None) in ("pool", "connect")
    again = not (isinstance(error, lasting) or tried or unreached)
    return ModelFailure(_describe_failure(error, model), again=again, too_long=too_long)


def _describe_failure(error: Exception, model: ProviderModel) -> str:
    """Say which model and server failed, and how."""
    name = _describe_model(model)
    if isinstance(error, exceptions.ModelRequestTimeout):
        return f"{name} sent nothing for {error.timeout:g} s ({_setting(error)})"
    if isinstance(error, exceptions.ModelHTTPError):
        return shorten(
            one_line(f"{name} answered {error.status_code}: {_body(error)}"), _MAX_SHOWN_CHARS
        )
    if isinstance(error, exceptions.ModelConnectionError):
        deepest: BaseException = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        reason = str(deepest) or type(deepest).__name__
        return shorten(one_line(f"{name}: connection failed: {reason}"), _MAX_SHOWN_CHARS)
    return _describe_unreadable(error, model)


def _describe_unreadable(error: Exception, model: ProviderModel) -> str:
    """Describe an answer that does not follow the protocol."""
    reason = one_line(str(error)) or type(error).__name__
    return shorten(f"{_describe_model(model)} sent an invalid answer: {reason}", _MAX_SHOWN_CHARS)


def _describe_model(model: ProviderModel) -> str:
    host = urlsplit(model.base_url or "").netloc.rpartition("@")[2]
    return one_line(f"{model.model_id} at {host}" if host else model.model_id)


def _setting(error: ModelRequestTimeout) -> str:
    return "model_idle_seconds" if error.setting == "first_event_timeout" else error.setting


def _body(error: ModelHTTPError) -> str:
    """Return the message of a provider's error."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    text = inner.get("message") if isinstance(inner, dict) else inner
    return str(text or error)


def _shorten_error(error: Exception) -> str:
    """Return the error in one short line."""
    return shorten(one_line(str(error)), _MAX_SHOWN_CHARS) or type(error).__name__


def settings_for(
    model: ProviderModel, session: str, own: Mapping[str, object] = _NOTHING
) -> ModelSettings:
    """Return the settings of a request: cache the prefix that the next request shares.

    pydantic-ai sets cache breakpoints after the tools, the system text and the history where a
    provider needs them. Requests of one session share a cache key at OpenAI itself.
    """
    settings: dict[str, object] = {"cache": True}
    if session and model.system == "openai" and _OFFICIAL in (model.base_url or ""):
        settings["openai_prompt_cache_key"] = _cache_key(session)
    return settings | dict(own)  # type: ignore[return-value]


def _cache_key(session: str) -> str:
    """Hash the session into a cache key without names; OpenAI allows 64 characters."""
    return sha256(session.encode("utf-8", "replace")).hexdigest()[:32]


# By name


def _hint(name: str) -> str:
    """Return how a model is named, or that one needs no key."""
    if ":" in name or "@" in name:
        return f" ({OFFLINE!r} needs no key)"
    return f"; write PROVIDER:MODEL as in openai:gpt-5, MODEL@URL, or {OFFLINE!r}"


def model_by_name(name: str, settings: Mapping[str, object] = _NOTHING) -> ProvidedModel:
    """Return the model `provider:model`, or `model@URL` for an OpenAI-compatible server.

    ConfigError when there is none or its key is missing; MissingExtra without its package.
    """
    try:
        return ProvidedModel(_create(name), settings)
    except exceptions.UserError as error:
        # The rest of the message is about classes of pydantic-ai.
        reason = _shorten_error(error).partition(" or pass it via")[0]
        raise ConfigError(
            f"the model {one_line(name)!r} cannot be used: {reason}{_hint(name)}"
        ) from error
    except ImportError as error:
        group = _GROUP.search(str(error))
        if group is None or group[1] in _OURS:
            raise MissingExtra(EXTRA, f"the model {one_line(name)!r}") from error
        need = f"pip install 'pydantic-ai-slim[{group[1]}]'"
        raise ConfigError(f"the model {one_line(name)!r} needs another package: {need}") from error


def _create(name: str) -> ProviderModel:
    environ = process_environment()
    model, _, url = name.partition("@")
    if "://" in url:
        return _create_on_server(model, _check_url(url), environ.get(COMPATIBLE_KEY) or "none")
    kind, _, model = name.partition(":")
    if kind == "openai" and _OFFICIAL not in environ.get("OPENAI_BASE_URL", _OFFICIAL):
        # Other servers support the chat protocol; few support the newer one.
        return infer_model(f"openai-chat:{model}")
    if kind == "ollama" and not environ.get("OLLAMA_BASE_URL"):
        return _create_on_server(model, OLLAMA_URL)
    return infer_model(name)


def _check_url(url: str) -> str:
    """Return the URL; ConfigError when it is not the URL of a server."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{one_line(url)!r} is not the URL of a server: use http(s)://HOST/...")
    return url


def _create_on_server(model: str, url: str, key: str = "") -> ProviderModel:
    from skillbelt.agent.openai_models import create_on_server  # cost: 300 ms, not for other APIs

    return create_on_server(model, url, key)


# Messages


class ProviderMessages(NamedTuple):
    """Messages for pydantic-ai, and the system texts apart from them."""

    messages: list[ModelMessage]
    instructions: tuple[InstructionPart, ...]


def convert_messages(messages: Sequence[Message]) -> ProviderMessages:
    """Convert the messages of a session.

    The first system message never changes; later ones may, so they are not cached.
    """
    made: list[ModelMessage] = []
    system: list[InstructionPart] = []
    names: dict[str, str] = {}
    for message in messages:
        role = message["role"]
        if role in _SYSTEM:
            system.append(InstructionPart(_read_text(message), dynamic=bool(system)))
        elif role == "assistant":
            made.append(_convert_answer(message, names))
        else:
            part = (
                _convert_result(message, names)
                if role == "tool"
                else UserPromptPart(_read_text(message))
            )
            if made and isinstance(made[-1], ModelRequest):
                made[-1] = ModelRequest([*made[-1].parts, part])
            else:
                made.append(ModelRequest([part]))
    return ProviderMessages(made, tuple(system))


def _convert_answer(message: Message, names: dict[str, str]) -> ModelResponse:
    calls = [(_clean(call["id"]), _clean(call["name"]), call) for call in _calls(message)]
    names.update((id, name) for id, name, _ in calls)
    if KEPT in message:
        # Data of another version may be unreadable: then the text and calls are used.
        with suppress(ValueError):
            [response] = ModelMessagesTypeAdapter.validate_python([_clean_all(message[KEPT])])
            if isinstance(response, ModelResponse):
                return response
    text = _read_text(message)
    parts: list[TextPart | ToolCallPart] = [TextPart(text)] if text else []
    parts += [ToolCallPart(name, _sendable(call["arguments"]), id) for id, name, call in calls]
    return ModelResponse(parts or [TextPart("")])


def _calls(message: Message) -> Sequence[dict[str, Any]]:
    return message.get("tool_calls") or ()


def _sendable(arguments: Any) -> Any:
    """Return arguments that UTF-8 can encode; a lone surrogate would make every request fail."""
    if not isinstance(arguments, dict):
        return _clean(arguments) if isinstance(arguments, str) else None
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return arguments if (clean := _clean(text)) == text else read_json(clean, constants=True)


def _clean(text: str) -> str:
    """Replace lone surrogates in the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _clean_all(value: Any) -> Any:
    """Replace lone surrogates in all texts of a JSON value."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {_clean(key): _clean_all(one) for key, one in value.items()}
    return [_clean_all(one) for one in value] if isinstance(value, list) else value


def _convert_result(message: Message, names: Mapping[str, str]) -> ToolReturnPart:
    call = _clean(message["tool_call_id"])
    return ToolReturnPart(
        names.get(call, "tool"),
        _read_text(message),
        call,
        outcome="failed" if message.get("error") else "success",
    )


def _read_text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return _clean(content)
    texts = (str(part.get("text", "")) for part in content if isinstance(part, dict))
    return _clean("\n".join(texts))


def data_to_keep(response: ModelResponse) -> dict[str, object] | None:
    """Return the data of an answer to store besides text and calls; None for nothing."""
    if all(_is_plain(part) for part in response.parts):
        return None
    [dumped] = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    assert isinstance(dumped, dict)
    return dumped


def _is_plain(part: object) -> bool:
    known = isinstance(part, TextPart | ToolCallPart)
    return known and not getattr(part, "id", None) and not getattr(part, "provider_details", None)


def convert_tool(tool: Tool) -> ToolDefinition:
    """Convert a tool definition."""
    schema = {key: value for key, value in tool.schema.items() if key != "$schema"}
    # Strict mode would make a model fill in every argument.
    return ToolDefinition(
        name=tool.name,
        parameters_json_schema=schema,
        description=tool.description,
        strict=False,
    )
