"""The events of a session, as values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from skillbelt.records import NamedTuple

_NOTHING: Mapping[str, object] = MappingProxyType({})


class NewEvent(NamedTuple):
    """An event before a store numbered it; `data` holds JSON values only."""

    type: str
    agent: str = ""
    data: Mapping[str, object] = _NOTHING


class Event(NamedTuple):
    """One entry of a session's log; `seq` counts from 1 without gaps, `time` is in Unix seconds."""

    seq: int
    time: float
    type: str
    agent: str
    data: Mapping[str, object]
