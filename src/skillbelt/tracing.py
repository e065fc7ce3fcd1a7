"""Spans for whoever traces: a name, some facts, and how long it took.

Without opentelemetry installed this costs one look-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


@contextmanager
def span(name: str, **attributes: object) -> Iterator[None]:
    """A span around the block; an exception is recorded on it and goes on."""
    tracer = _tracer()
    if tracer is None:
        yield
        return
    facts = {
        key: value for key, value in attributes.items() if isinstance(value, str | int | float)
    }
    with tracer.start_as_current_span(name, attributes=facts):
        yield


@lru_cache(maxsize=1)
def _tracer() -> Any:
    """The tracer of whoever set one up; None without the library."""
    from importlib.util import find_spec

    if find_spec("opentelemetry") is None:
        return None
    from opentelemetry import trace

    return trace.get_tracer("skillbelt")
