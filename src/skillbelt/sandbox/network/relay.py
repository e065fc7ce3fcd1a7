"""Relay bytes between two sockets, in both directions and with bounded memory."""

from __future__ import annotations

import selectors
import socket
from contextlib import suppress

_BUFFER = 64 * 2**10


class Overrun(Exception):
    """More data arrived than was announced."""


class SocketRelay:
    """Two connected sockets; each direction ends independently.

    At most `most` bytes are read from the first one.
    """

    def __init__(self, one: socket.socket, other: socket.socket, most: int | None = None) -> None:
        for end in (one, other):
            end.setblocking(False)
        self.ends = (one, other)
        self._most = most
        self.waiting = {one: bytearray(), other: bytearray()}  # bytes to send to it
        self.received = {one: 0, other: 0}
        self._can_read = {one: True, other: True}
        self._can_write = {one: True, other: True}

    def peer(self, end: socket.socket) -> socket.socket:
        """Return the other end."""
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    @property
    def done(self) -> bool:
        """Whether both directions have ended."""
        return not any(self._can_write.values())

    def wants(self, end: socket.socket) -> int:
        """Return the selector events to wait for at this end."""
        room = len(self.waiting[self.peer(end)]) < _BUFFER
        reads = selectors.EVENT_READ if self._can_read[end] and room else 0
        return reads | (selectors.EVENT_WRITE if self.waiting[end] else 0)

    def step(self, end: socket.socket, ready: int) -> None:
        """Move as much as possible without blocking; raises OSError for a broken connection."""
        if ready & selectors.EVENT_READ:
            self._receive(end)
        for one in (end, self.peer(end)):
            self._send(one)

    def _receive(self, end: socket.socket) -> None:
        try:
            data = end.recv(_BUFFER)
        except (BlockingIOError, InterruptedError):
            return
        self._can_read[end] = bool(data)
        self.receive(end, data)

    def receive(self, end: socket.socket, data: bytes) -> None:
        """Process bytes as if they had arrived from this end."""
        self.received[end] += len(data)
        if self._most is not None and self.received[self.ends[0]] > self._most:
            raise Overrun("more data than the one request that was announced")
        self.waiting[self.peer(end)] += data

    def _send(self, end: socket.socket) -> None:
        waiting = self.waiting[end]
        if waiting:
            with suppress(BlockingIOError, InterruptedError):
                del waiting[: end.send(waiting)]
        if not waiting and self._can_write[end] and not self._can_read[self.peer(end)]:
            self._can_write[end] = False
            with suppress(OSError):
                end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both ends."""
        for end in self.ends:
            end.close()
