"""Responses of the HTTP servers: JSON documents, one shape for errors, server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.types import Send

from skillbelt.errors import SkillbeltError

# The status of each kind of error; any other kind is a 422.
STATUS: Mapping[str, int] = {
    "config": 400,
    "usage": 400,
    "wrong_arguments": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "over_quota": 403,
    "path_escape": 403,
    "permission_denied": 403,
    "skill_not_found": 404,
    "skill_disabled": 404,
    "not_found": 404,
    "unknown_tool": 404,
    "artifact": 404,
    "section_not_found": 404,
    "method_not_allowed": 405,
    "gone": 410,
    "file_too_large": 413,
    "too_large": 413,
    "wrong_host": 421,
    "busy": 429,
    "failed": 500,
    "internal": 500,
    "missing_extra": 501,
    "sandbox_unavailable": 503,
    "shutting_down": 503,
    "not_ready": 503,
}
UNPROCESSABLE = 422


class HttpRefusal(SkillbeltError):
    """A request that is answered with an error; `kind` decides the status.

    `closes` ends the connection too.
    """

    def __init__(self, kind: str, message: str, *, closes: bool = False) -> None:
        self.kind, self.closes = kind, closes
        super().__init__(message)


def status_of(kind: str) -> int:
    """Return the HTTP status for a kind of error."""
    return STATUS.get(kind, UNPROCESSABLE)


def error_document(kind: str, message: str, facts: Mapping[str, object] = {}) -> dict[str, object]:
    """Return the document of an error: its kind and its message."""
    return {"error": {**facts, "kind": kind, "message": message}}


def describe(error: BaseException) -> tuple[int, dict[str, object]]:
    """Return the status and the document for an error; an unexpected one is not described."""
    if isinstance(error, SkillbeltError):
        return status_of(error.kind), error_document(error.kind, str(error), error.fields())
    return 500, error_document("internal", "internal error; see the log of the server")


def to_json(document: object) -> bytes:
    """Return a document as JSON that any client can read; invalid text becomes valid."""
    text = json.dumps(document, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace")


class HttpAnswer:
    """Sends one response: a document, bytes, or events while the work goes on."""

    def __init__(self, send: Send) -> None:
        self._send, self._lock = send, asyncio.Lock()
        self.status = 0

    async def document(
        self, document: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a JSON document, which completes the response."""
        data = to_json(document)
        await self.start(
            status, "application/json", {**(headers or {}), "content-length": str(len(data))}
        )
        await self.piece(data, last=True)

    async def error(self, error: BaseException) -> None:
        """Send an error; as an event when events were sent before."""
        status, document = describe(error)
        if self.status:
            await self.event("error", document)
            return await self.piece(b"", last=True)
        headers = {"retry-after": "1"} if status == 429 else {}
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        if isinstance(error, HttpRefusal) and error.closes:
            headers["connection"] = "close"
        return await self.document(document, status, headers)

    async def start(self, status: int, mime: str, headers: Mapping[str, str]) -> None:
        """Send the head of the response."""
        self.status = status
        given = {
            "content-type": mime,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }
        pairs = [
            (name.encode(), value.encode("latin-1", "replace"))
            for name, value in {**given, **headers}.items()
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def piece(self, data: bytes, *, last: bool = False) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def start_events(self) -> None:
        """Start a response of server-sent events that no proxy buffers."""
        await self.start(200, "text/event-stream", {"x-accel-buffering": "no"})

    async def event(self, name: str, document: object) -> None:
        """Send one event; safe to call from several tasks."""
        async with self._lock:
            await self.piece(b"event: " + name.encode() + b"\ndata: " + to_json(document) + b"\n\n")

    async def keep_alive(self, seconds: float) -> None:
        """Send a comment now and then, so that no proxy closes the connection of a silent run."""
        while True:
            await asyncio.sleep(seconds)
            async with self._lock:
                await self.piece(b": still here\n\n")


def document_of(value: Any) -> dict[str, object]:
    """Return a named tuple as a document."""
    return dict(value._asdict())
