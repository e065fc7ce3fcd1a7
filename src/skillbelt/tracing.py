"""OpenTelemetry spans: what a run did, how long it took and what went wrong.

A host that traces has imported OpenTelemetry. So nothing is imported here, and without tracing a
span costs one lookup in a dictionary.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

from skillbelt.text import file_url

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry import trace

TRACER = "skillbelt"
SpanName = Literal[
    "workspace.create",
    "workspace.stage.files",
    "workspace.stage.dir",
    "workspace.run",
    "workspace.collect",
    "workspace.cleanup",
    "workspace.inline",
    "execute_tool",
    "serve",
]
_API = "opentelemetry.trace"
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"  # makes the library configure itself on import
_MAX_CHARS = 4096
# The headers that carry a trace; no other header of a request reaches the library.
CARRIED = ("traceparent", "tracestate")


class Span(Protocol):
    """An open span; a context manager."""

    def set(self, **attributes: object) -> None:
        """Add attributes that are known by now, such as an exit code."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None, /,
    ) -> bool | None: ...  # fmt: skip


class _Untraced:
    """A span that does nothing, for use without tracing."""

    __slots__ = ()

    def set(self, **attributes: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Traced:
    """A span of OpenTelemetry, the current one while it is open."""

    __slots__ = ("_manager", "_span")

    def __init__(self, manager: "AbstractContextManager[trace.Span]") -> None:
        self._manager = manager

    def set(self, **attributes: object) -> None:
        self._span.set_attributes(_convert(attributes))

    def __enter__(self) -> Self:
        self._span = self._manager.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None, /,
    ) -> bool | None:  # fmt: skip
        return self._manager.__exit__(kind, error, trace)


_UNTRACED = _Untraced()


def span(name: SpanName, subject: str = "", /, **attributes: object) -> Span:
    """Return a span for a block; an exception is recorded in it and propagates.

    Attributes are strings, numbers, booleans and lists of strings; None is left out. `subject`
    follows the name: one of few words, such as the name of a tool.
    """
    api = sys.modules.get(_API) or _import_if_configured()
    if api is None:
        return _UNTRACED
    tracer, whole = api.get_tracer(TRACER), f"{name} {subject}" if subject else name
    return _Traced(tracer.start_as_current_span(whole, attributes=_convert(attributes)))


def is_tracing() -> bool:
    """Whether spans are recorded, so that costly attributes are worth computing."""
    return _API in sys.modules or bool(os.environ.get(_PROVIDER))


def _import_if_configured() -> ModuleType | None:
    """Import the library if the environment asks for it and no other module has imported it."""
    return _import() and sys.modules[_API] if os.environ.get(_PROVIDER) else None


def _import() -> ModuleType | None:
    try:
        from opentelemetry import propagate  # extra: otel
    except ImportError:
        return None
    return propagate


def inject() -> dict[str, str]:
    """Return the headers that continue the current trace in another process, for `extract`.

    Empty without tracing and outside of any span.
    """
    carrier: dict[str, str] = {}
    if is_tracing() and (propagate := _import()):
        propagate.inject(carrier)
    return carrier


@contextmanager
def extract(carrier: Mapping[str, str]) -> Iterator[None]:
    """Continue the trace of another process in a block; an invalid carrier is ignored.

    `carrier` comes from `inject`, or holds the `CARRIED` headers of an HTTP request.
    """
    propagate = _import() if carrier and is_tracing() else None
    if propagate is None:
        yield
        return
    context = sys.modules["opentelemetry.context"]
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def skill_attributes(
    name: str, location: str, url: str = "", description: str = ""
) -> dict[str, str]:
    """Return the attributes that identify a skill, with its URL or else its file."""
    found = {"gen_ai.skill.name": name, "gen_ai.skill.source.uri": url or file_url(location)}
    return {**found, "gen_ai.skill.description": description} if description else found


def _convert(attributes: Mapping[str, object]) -> "Mapping[str, str | int | float | list[str]]":
    found: dict[str, str | int | float | list[str]] = {}
    for key, value in attributes.items():
        if isinstance(value, str):
            found[key] = _clean(value)
        elif isinstance(value, int | float):
            found[key] = value
        elif isinstance(value, list | tuple):
            found[key] = [_clean(str(each)) for each in value]
    return found


def _clean(text: str) -> str:
    """Return valid text of limited length: an exporter drops a batch that it cannot encode."""
    return text[:_MAX_CHARS].encode("utf-8", "replace").decode()
