"""What an agent asks of a model, and the models of providers behind one layer, by name.

Every provider is reached through pydantic-ai, which is imported when the first model is made.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from skillbelt.agent.events import TextDelta, ThinkingDelta, Usage
from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError, MissingExtra, SkillbeltError
from skillbelt.settings import process_environment
from skillbelt.text import one_line, shorten
from skillbelt.tools.schema import Tool
from skillbelt.values import Limits

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelHTTPError, ModelRequestTimeout
    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import Model as ProviderModel
    from pydantic_ai.settings import ModelSettings

# Models that think may be silent for minutes; beyond that the connection is dead.
MODEL_IDLE_SECONDS = 600.0
# An answer with its reasoning and calls; far beyond any model's own limit.
MAX_ANSWER_CHARS = 8_000_000

OFFLINE = "offline"
EXTRA = "agent"
OLLAMA_URL = "http://localhost:11434/v1"
# A key of its own: the one for OpenAI is not for whoever answers at another address.
COMPATIBLE_KEY = "OPENAI_COMPATIBLE_API_KEY"
NONE = Usage(requests=0)  # of what was answered without a request
_OFFICIAL = "api.openai.com"
# The packages of providers that the extra brings; for another one its layer says what is missing.
_OURS = ("anthropic", "google", "openai")
_GROUP = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")
_SHOWN = 300
_NOTHING: Mapping[str, object] = MappingProxyType({})
_LIMITS = Limits()
_DEEP = 100  # levels of arguments; what reads and writes them fails at some hundred
_TOO_DEEP = "(arguments that were nested too deeply)"


class Prompt(NamedTuple):
    """One request: all messages, the tools that may be called, and a key that is the session's."""

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    session: str = ""


class Called(NamedTuple):
    """A call as the model wrote it; `arguments` are an object, or its JSON text."""

    id: str
    name: str
    arguments: object


class Reply(NamedTuple):
    """A whole answer. `kept` is what its provider wants to see again, None for nothing special.

    Not `finished` means that the provider did not say that this is the end; `fault` is what it
    says of a cut.
    """

    text: str = ""
    calls: tuple[Called, ...] = ()
    usage: Usage = Usage()
    kept: Mapping[str, object] | None = None
    finished: bool = True
    fault: str = ""


Piece = TextDelta | ThinkingDelta | Reply


class ModelFailure(SkillbeltError):
    """The model gave no whole answer. `again` says whether asking once more may help.

    `too_long` says that the request was more than the model takes.
    """

    def __init__(self, reason: str, *, again: bool = False, too_long: bool = False) -> None:
        self.again, self.too_long = again, too_long
        super().__init__(reason)


class Model(Protocol):
    """Something that answers prompts. A Reply is the last piece; ModelFailure when there is none.

    `window_tokens` is how much it takes at once, 0 when that is not known. One that is an
    asynchronous context too is entered for as long as a run lasts.
    """

    name: str
    window_tokens: int

    def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """The pieces of the answer, as they come."""


@asynccontextmanager
async def asking(model: Model, prompt: Prompt) -> AsyncGenerator[AsyncIterator[Piece], None]:
    """The pieces of an answer. Whoever goes before its end has hung up by then."""
    pieces = model.ask(prompt)
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


class Provided:
    """A model of a provider. Its connections last as long as it is entered.

    Whoever answers may be no model at all, so what they say is bounded.
    """

    def __init__(
        self,
        model: ProviderModel,
        settings: Mapping[str, object] = _NOTHING,
        limits: Limits = _LIMITS,
    ) -> None:
        self._model, self._settings, self._limits = model, settings, limits
        self.name: str = model.model_id
        self.window_tokens: int = model.context_window or 0
        self._tools: tuple[Sequence[Tool], list[Any]] = ((), [])

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(Exception):  # what was answered is not lost for a connection
            await self._model.__aexit__(None, None, None)

    async def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """The pieces of the answer, as they come."""
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.exceptions import AgentRunError, UserError
        from pydantic_ai.models import ModelRequestParameters

        from skillbelt.agent.provider import history

        sent = history(prompt.messages)
        parameters = ModelRequestParameters(
            function_tools=self._defined(prompt.tools), instruction_parts=list(sent.instructions)
        )
        settings = settings_for(self._model, prompt.session, self._own_settings())
        try:
            async with model_request_stream(
                self._model,
                sent.messages,
                model_settings=settings,
                model_request_parameters=parameters,
                instrument=False,
            ) as stream:
                async for event in _Bounded(stream, self._limits):
                    piece = _piece(event)
                    if piece is not None:
                        yield piece
                response = stream.get()
        except UserError as error:
            raise ConfigError(_told(error)) from error
        except AgentRunError as error:
            raise _failure(error, self._model) from error
        except SkillbeltError:
            raise
        except Exception as error:  # whatever the layer makes of an answer it does not expect
            raise ModelFailure(_odd(error, self._model), again=True) from error
        yield _reply(response, bool(self._model.base_url))

    def _own_settings(self) -> Mapping[str, object]:
        """The host's settings; how long a model may be silent holds before its first word too."""
        seconds = MODEL_IDLE_SECONDS
        return {"first_event_timeout": seconds, **self._settings} if seconds else self._settings

    def _defined(self, tools: Sequence[Tool]) -> list[Any]:
        """The tools as the layer takes them, made once for as long as they last."""
        from skillbelt.agent.provider import definition

        if self._tools[0] != tools:
            self._tools = (tools, [definition(tool) for tool in tools])
        return self._tools[1]


class _Bounded:
    """Events as they come; ModelFailure when they are too much, or there is none for too long."""

    def __init__(self, stream: AsyncIterable[ModelResponseStreamEvent], limits: Limits) -> None:
        self._stream, self._limits, self._chars = aiter(stream), limits, 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelResponseStreamEvent:
        seconds, most = MODEL_IDLE_SECONDS, MAX_ANSWER_CHARS
        try:
            async with asyncio.timeout(seconds or None):
                event = await anext(self._stream)
        except TimeoutError as error:
            quiet = f"the model gave nothing for {seconds:g} s (model_idle_seconds)"
            raise ModelFailure(quiet, again=True) from error
        self._chars += _size(event)
        if self._chars > most:
            raise ModelFailure(f"the answer is longer than {most} characters (max_answer_chars)")
        return event


def _piece(event: ModelResponseStreamEvent) -> TextDelta | ThinkingDelta | None:
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


def _size(event: ModelResponseStreamEvent) -> int:
    """How many characters an event brings; a part that begins counts as one in any case."""
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


def _reply(response: ModelResponse, remote: bool) -> Reply:
    """The answer as it was given; ModelFailure for one that broke off."""
    from skillbelt.agent.provider import kept

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
        kept=kept(response),
        finished=finished,
        fault=_FAULTS.get(reason, "" if finished else _UNFINISHED),
    )


def _is_finished(response: ModelResponse, remote: bool) -> bool:
    """Whether the provider said that this is the end; a model within this process need not."""
    details = response.provider_details or {}
    # Of some streams that end without a word of their end the layer says `stop`.
    told = "finish_reason" in details or (bool(response.finish_reason) and not details)
    return told or (not remote and not response.finish_reason)


_UNFINISHED = "the answer may be cut: it ended without a word of its end"
_FAULTS = {
    "length": "the answer was cut: the model may not write more tokens at once",
    "content_filter": "the provider's filter kept the answer back",
    "error": "the provider ended the answer with an error",
}


def _failure(error: Exception, model: ProviderModel) -> ModelFailure:
    from pydantic_ai import exceptions

    too_long = isinstance(error, exceptions.ModelContextWindowExceededError)
    lasting = (exceptions.ModelRequestRejectedError, exceptions.ModelQuotaExceededError)
    # What fails before an answer begins was tried again already, where the client does that.
    whole = isinstance(error, exceptions.ModelHTTPError) and not error.in_stream
    tried = whole and hasattr(getattr(model, "client", None), "max_retries")
    unreached = getattr(error, "phase", None) in ("pool", "connect")
    again = not (isinstance(error, lasting) or tried or unreached)
    return ModelFailure(_why(error, model), again=again, too_long=too_long)


def _why(error: Exception, model: ProviderModel) -> str:
    """Who failed in what, for whoever has to mend it."""
    from pydantic_ai import exceptions

    who = _who(model)
    if isinstance(error, exceptions.ModelRequestTimeout):
        return f"{who} gave nothing for {error.timeout:g} s ({_setting(error)})"
    if isinstance(error, exceptions.ModelHTTPError):
        return shorten(one_line(f"{who} answered {error.status_code}: {_body(error)}"), _SHOWN)
    if isinstance(error, exceptions.ModelConnectionError):
        deepest: BaseException = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        reason = str(deepest) or type(deepest).__name__
        return shorten(one_line(f"{who}: connection failed: {reason}"), _SHOWN)
    return _odd(error, model)


def _odd(error: Exception, model: ProviderModel) -> str:
    """What is said of an answer that is none of the protocol's."""
    reason = one_line(str(error)) or type(error).__name__
    return shorten(f"{_who(model)} gave no answer that can be read: {reason}", _SHOWN)


def _who(model: ProviderModel) -> str:
    host = urlsplit(model.base_url or "").netloc.rpartition("@")[2]
    return one_line(f"{model.model_id} at {host}" if host else model.model_id)


def _setting(error: ModelRequestTimeout) -> str:
    return "model_idle_seconds" if error.setting == "first_event_timeout" else error.setting


def _body(error: ModelHTTPError) -> str:
    """What an error of a provider says, where it says it in the usual place."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    said = inner.get("message") if isinstance(inner, dict) else inner
    return str(said or error)


def _told(error: Exception) -> str:
    """What a provider says of a failure, in one line of a bounded length."""
    return shorten(one_line(str(error)), _SHOWN) or type(error).__name__


def settings_for(
    model: ProviderModel, session: str, own: Mapping[str, object] = _NOTHING
) -> ModelSettings:
    """What a request asks of the provider: to cache all that the next one begins with.

    Where breakpoints are taken they are set behind the tools, the system text and the history; what
    caches by itself needs none. Requests of one session share a key at OpenAI itself.
    """
    settings: dict[str, object] = {"cache": True}
    if session and model.system == "openai" and _OFFICIAL in (model.base_url or ""):
        settings["openai_prompt_cache_key"] = _cache_key(session)
    return settings | dict(own)  # type: ignore[return-value]


def _cache_key(session: str) -> str:
    """The same for the same session, and nobody's name; OpenAI takes 64 characters."""
    from hashlib import sha256

    return sha256(session.encode("utf-8", "replace")).hexdigest()[:32]


def keepable(reply: Reply) -> Reply:
    """The answer as it can be kept, whatever a server made of it."""
    calls = tuple(
        call._replace(arguments=_TOO_DEEP) if is_deep(call.arguments) else call
        for call in reply.calls
    )
    return named_apart(reply if calls == reply.calls else reply._replace(calls=calls, kept=None))


def is_deep(value: object) -> bool:
    """Whether arguments are nested deeper than can be read and written everywhere."""
    level = [value]
    for _ in range(_DEEP):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def named_apart(reply: Reply) -> Reply:
    """The answer with a name for each call that no other of it has; some servers repeat one."""
    if len({call.id for call in reply.calls if call.id}) == len(reply.calls):
        return reply
    calls = tuple(
        call._replace(id=f"{call.id or 'call'}-{number}")
        for number, call in enumerate(reply.calls, 1)
    )
    return reply._replace(calls=calls, kept=None)


# By name


def provided(
    name: str, settings: Mapping[str, object] = _NOTHING, limits: Limits = _LIMITS
) -> Provided:
    """The model of a name: `provider:model`, or `model@URL` for a server that speaks as OpenAI's.

    ConfigError when there is none, or its key is missing; MissingExtra when its package is.
    """
    try:
        from pydantic_ai.exceptions import UserError
    except ImportError as error:
        raise MissingExtra(EXTRA, f"the model {one_line(name)!r}") from error
    try:
        return Provided(_inferred(name), settings, limits)
    except UserError as error:
        # What follows is about that layer's own classes.
        reason = _told(error).partition(" or pass it via")[0]
        raise ConfigError(
            f"the model {one_line(name)!r} can not be used: {reason} ({OFFLINE!r} needs no key)"
        ) from error
    except ImportError as error:
        group = _GROUP.search(str(error))
        if group is None or group[1] in _OURS:
            raise MissingExtra(EXTRA, f"the model {one_line(name)!r}") from error
        need = f"pip install 'pydantic-ai-slim[{group[1]}]'"
        raise ConfigError(f"the model {one_line(name)!r} needs one more package: {need}") from error


def _inferred(name: str) -> ProviderModel:
    from pydantic_ai.models import infer_model

    environ = process_environment()
    model, _, url = name.partition("@")
    if "://" in url:
        return _compatible(model, _checked(url), environ.get(COMPATIBLE_KEY) or "none")
    kind, _, model = name.partition(":")
    if kind == "openai" and _OFFICIAL not in environ.get("OPENAI_BASE_URL", _OFFICIAL):
        # Other servers speak the chat protocol, few of them the newer one.
        return infer_model(f"openai-chat:{model}")
    if kind == "ollama" and not environ.get("OLLAMA_BASE_URL"):
        from pydantic_ai.models.ollama import OllamaModel
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaModel(model, provider=OllamaProvider(base_url=OLLAMA_URL))
    return infer_model(name)


def _checked(url: str) -> str:
    """The address; ConfigError when there can be no server at it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{one_line(url)!r} is no address of a server: use http(s)://HOST/...")
    return url


def _compatible(model: str, url: str, key: str) -> ProviderModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    provider = OpenAICompatibleProvider("compatible", base_url=url, api_key=key)
    return OpenAIChatModel(model, provider=provider)
