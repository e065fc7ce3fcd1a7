from __future__ import annotations

import pytest

from skillbelt.events import Event, NewEvent


def test_a_new_event_needs_only_a_type() -> None:
    assert NewEvent("note") == ("note", "", {})


def test_the_data_that_events_share_can_not_be_changed() -> None:
    with pytest.raises(TypeError):
        NewEvent("note").data["x"] = 1  # type: ignore[index]


def test_an_event_has_the_fields_of_the_log() -> None:
    event = Event(seq=1, time=2.0, type="note", agent="root", data={"x": 1})
    assert event._fields == ("seq", "time", "type", "agent", "data")
    assert event._replace(seq=2) == (2, 2.0, "note", "root", {"x": 1})
