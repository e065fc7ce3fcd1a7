"""Connections that take their time: how long a request may take to come, how many may be open.

Anybody on the machine can connect, with a token or without. So nobody is waited for without end,
and who has not asked yet makes room for who comes.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BURST = 64  # connections that are taken at once, before any of them is looked at
_UNASKED = (h11.IDLE, h11.SEND_BODY)


def room(wanted: int) -> int:
    """How many connections there may be: no more than half the files that may be open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else max(1, min(wanted, files // 2))


def patient(seconds: float, most: int) -> type[Patient]:
    """A protocol for uvicorn that waits so long for a whole request, on so many connections."""
    return type("Patient", (Patient,), {"seconds": seconds, "most": most, "waiting": {}})


class Patient(H11Protocol):
    """A connection. The time counts from when a request is due; bytes that drip gain none."""

    seconds: ClassVar[float]
    most: ClassVar[int]
    # Those that have not sent a whole request; the one that waits longest is first.
    waiting: ClassVar[dict[Patient, asyncio.TimerHandle]]

    def connection_made(self, transport: Any) -> None:
        """Begin to wait, and make room if there is none."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            next(iter(self.waiting), self)._drop()
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._forget()

    def data_received(self, data: bytes) -> None:
        """See whether that was all of it."""
        super().data_received(data)
        self._mind()

    def on_response_complete(self) -> None:
        """Wait for the next one."""
        super().on_response_complete()
        self._mind()

    def _mind(self) -> None:
        if self.transport.is_closing() or self.conn.their_state not in _UNASKED:
            self._forget()
        elif self not in self.waiting:
            self.waiting[self] = self.loop.call_later(self.seconds, self._drop)

    def _forget(self) -> None:
        if (timer := self.waiting.pop(self, None)) is not None:
            timer.cancel()

    def _drop(self) -> None:
        self._forget()  # now, since whoever comes next would find it here once more
        self.transport.abort()
