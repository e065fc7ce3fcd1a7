"""Spans for whoever traces: what a run did, how long it took and what went wrong.

Tracing is OpenTelemetry, and whoever sets it up has imported it. So nothing is imported here, and
where nobody traces a span is a look at one dictionary.
"""

import os
import sys
from collections.abc import Mapping
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

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
]
_API = "opentelemetry.trace"
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"  # makes the library set itself up when it is imported
_MAX_CHARS = 4096


class Span(Protocol):
    """A span that is under way; a context."""

    def set(self, **attributes: object) -> None:
        """Add what is known by now, such as an exit code."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None, /,
    ) -> bool | None: ...  # fmt: skip


class _Untraced:
    """The span where nobody traces."""

    __slots__ = ()

    def set(self, **attributes: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Traced:
    """A span of OpenTelemetry, the current one while it lasts."""

    __slots__ = ("_manager", "_span")

    def __init__(self, manager: "AbstractContextManager[trace.Span]") -> None:
        self._manager = manager

    def set(self, **attributes: object) -> None:
        self._span.set_attributes(_accepted(attributes))

    def __enter__(self) -> Self:
        self._span = self._manager.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None, /,
    ) -> bool | None:  # fmt: skip
        return self._manager.__exit__(kind, error, trace)


_UNTRACED = _Untraced()


def span(name: SpanName, /, **attributes: object) -> Span:
    """A span around a block; an exception is recorded in it and goes on.

    Attributes are texts, numbers, truth values and lists of texts; what is None is left out.
    """
    api = sys.modules.get(_API) or _asked_for()
    if api is None:
        return _UNTRACED
    tracer = api.get_tracer(TRACER)
    return _Traced(tracer.start_as_current_span(name, attributes=_accepted(attributes)))


def _asked_for() -> ModuleType | None:
    """The library, where the environment wants it though nobody has imported it."""
    if not os.environ.get(_PROVIDER):
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


def skill_attributes(name: str, location: str, url: str = "") -> dict[str, str]:
    """The attributes that name a skill: where it came from is its URL, else its file."""
    from urllib.parse import quote

    uri = url or f"file://{quote(os.fsencode(location))}"
    return {"gen_ai.skill.name": name, "gen_ai.skill.source.uri": uri}


def _accepted(attributes: Mapping[str, object]) -> "Mapping[str, str | int | float | list[str]]":
    found: dict[str, str | int | float | list[str]] = {}
    for key, value in attributes.items():
        if isinstance(value, str):
            found[key] = _sendable(value)
        elif isinstance(value, int | float):
            found[key] = value
        elif isinstance(value, list | tuple):
            found[key] = [_sendable(str(each)) for each in value]
    return found


def _sendable(text: str) -> str:
    """Valid and not endless: what an exporter can not encode, it drops with all that is near."""
    return text[:_MAX_CHARS].encode("utf-8", "replace").decode()
