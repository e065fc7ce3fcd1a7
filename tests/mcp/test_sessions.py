"""The conversation of a request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mcp_types import Implementation

from skillbelt import Runtime
from skillbelt.mcp.sessions import META_KEY, ServedSessions

OLD, NEW = "2025-11-25", "2026-07-28"


def request(
    version: str, headers: dict[str, str] | None = None, client: str = "", **meta: object
) -> Any:
    """A request with the parts that matter; without headers it came over standard input."""
    info = SimpleNamespace(client_info=Implementation(name=client, version="1"))
    return SimpleNamespace(
        protocol_version=version,
        meta=meta,
        request=None if headers is None else SimpleNamespace(headers=headers),
        session=SimpleNamespace(client_params=info if client else None),
    )


def test_one_process_on_pipes_is_one_conversation(belt: Runtime) -> None:
    sessions = ServedSessions(belt)
    assert sessions.name(request(OLD)) == sessions.name(request(NEW, client="a"))
    assert sessions.name(request(OLD)) != ServedSessions(belt).name(request(OLD))


def test_each_connection_over_http_is_one(belt: Runtime) -> None:
    sessions = ServedSessions(belt)
    names = [sessions.name(request(OLD, {"mcp-session-id": id})) for id in ("a", "b", "a")]
    assert names[0] == names[2] != names[1]


def test_without_connections_it_is_the_client_that_counts(belt: Runtime) -> None:
    sessions = ServedSessions(belt)
    names = [sessions.name(request(NEW, {}, client)) for client in ("a", "b", "a", "")]
    assert names[0] == names[2]
    assert len({*names}) == 3
    assert names[0] != ServedSessions(belt).name(request(NEW, {}, "a"))


def test_a_client_can_name_its_own_conversation(belt: Runtime) -> None:
    sessions = ServedSessions(belt)
    long = "../../etc " * 1_000
    named = sessions.of(request(NEW, {}, "a", **{META_KEY: long}))
    assert named.session.key.session == sessions.name(request(NEW, {}, "b", **{META_KEY: long}))
    assert len(named.session.key.session) < 64
    assert sessions.name(request(NEW, {}, "a", **{META_KEY: 7})) == sessions.name(
        request(NEW, {}, "a")
    )
