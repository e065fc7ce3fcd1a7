"""Requests are passed on whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from skillbelt.serving.listening import CompleteRequests

SCOPE = {"type": "http", "headers": [(b"host", b"here"), (b"last-event-id", b"7")]}
GONE = {"type": "http.disconnect"}


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class App:
    """Takes all that it is given, and remembers it."""

    def __init__(self) -> None:
        self.scopes, self.came = list[Any](), list[Any]()

    async def __call__(self, scope: Any, receive: Any, _send: Any) -> None:
        self.scopes.append(scope)
        while True:
            self.came.append(await receive())
            if not self.came[-1].get("more_body"):
                return


def passed(*messages: dict[str, Any], most: int = 10, scope: Any = None) -> App:
    """The request that an app gets, when it arrives in these parts."""
    coming: Iterator[Any] = iter(messages)
    app = App()

    async def receive() -> Any:
        return next(coming)

    async def send(_message: Any) -> None:
        raise AssertionError("nobody is there to be answered")

    anyio.run(CompleteRequests(app, most), scope or SCOPE, receive, send)
    return app


def test_all_of_it_is_passed_on() -> None:
    parts = [part(b"on"), part(b""), part(b"e", more=False)]
    assert passed(*parts).came == parts


@pytest.mark.parametrize("parts", [[], [part(b"half")]])
def test_what_breaks_off_is_not(parts: list[dict[str, Any]]) -> None:
    assert passed(*parts, GONE).scopes == []


def test_what_is_too_long_is_not_waited_for() -> None:
    app = passed(part(b"x" * 11), part(b"more", more=False))
    assert [len(one["body"]) for one in app.came] == [11, 4]


def test_nothing_is_taken_up_again() -> None:
    [scope] = passed(part(b"", more=False)).scopes
    assert scope["headers"] == [(b"host", b"here")]


def test_what_is_no_request_is_left_alone() -> None:
    lifespan = {"type": "lifespan"}
    assert passed(GONE, scope=lifespan).scopes == [lifespan]
