"""Requests are passed on whole: one that breaks off concerns nobody, and none is taken up again."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing is kept to be sent again, and whoever asks for it would get no answer at all.
_UNHEARD = b"last-event-id"


class Whole:
    """Passes a request on once all of it is there; of one that is too long, what there is of it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        """`most` bytes are waited for. What stands behind must refuse more."""
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for a request. Without an end it has no answer: its client has gone."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        came: list[Message] = []
        size, more = 0, True
        while more and size <= self._most:
            came.append(await receive())
            if came[-1]["type"] != "http.request":
                return None
            size += len(came[-1].get("body", b""))
            more = came[-1].get("more_body", False)

        async def again() -> Message:
            return came.pop(0) if came else await receive()

        headers = [one for one in scope["headers"] if one[0] != _UNHEARD]
        return await self._app({**scope, "headers": headers}, again, send)
