"""Carrying bytes between two sockets, in both directions at once and with bounded memory."""

from __future__ import annotations

import selectors
import socket
from contextlib import suppress

_BUFFER = 64 * 2**10


class Overrun(Exception):
    """More came than was announced."""


class Relay:
    """Two connected sockets whose bytes go to each other; each direction ends by itself.

    From the first of them no more than `most` bytes are taken.
    """

    def __init__(self, one: socket.socket, other: socket.socket, most: int | None = None) -> None:
        for end in (one, other):
            end.setblocking(False)
        self.ends = (one, other)
        self._most = most
        self.waiting = {one: bytearray(), other: bytearray()}  # what is to be sent to it
        self.received = {one: 0, other: 0}
        self._giving = {one: True, other: True}
        self._taking = {one: True, other: True}

    def peer(self, end: socket.socket) -> socket.socket:
        """The other end."""
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    @property
    def done(self) -> bool:
        """Whether nothing can go either way any more."""
        return not any(self._taking.values())

    def wants(self, end: socket.socket) -> int:
        """What to wait for at this end, as a mask of selectors."""
        room = len(self.waiting[self.peer(end)]) < _BUFFER
        reads = selectors.EVENT_READ if self._giving[end] and room else 0
        return reads | (selectors.EVENT_WRITE if self.waiting[end] else 0)

    def step(self, end: socket.socket, ready: int) -> None:
        """Move what can be moved without waiting; OSError when a connection is broken."""
        if ready & selectors.EVENT_READ:
            self._receive(end)
        for one in (end, self.peer(end)):
            self._send(one)

    def _receive(self, end: socket.socket) -> None:
        try:
            data = end.recv(_BUFFER)
        except (BlockingIOError, InterruptedError):
            return
        self._giving[end] = bool(data)
        self.receive(end, data)

    def receive(self, end: socket.socket, data: bytes) -> None:
        """Take bytes as if they had come from this end."""
        self.received[end] += len(data)
        if self._most is not None and self.received[self.ends[0]] > self._most:
            raise Overrun("more came than the one request that was announced")
        self.waiting[self.peer(end)] += data

    def _send(self, end: socket.socket) -> None:
        waiting = self.waiting[end]
        if waiting:
            with suppress(BlockingIOError, InterruptedError):
                del waiting[: end.send(waiting)]
        if not waiting and self._taking[end] and not self._giving[self.peer(end)]:
            self._taking[end] = False
            with suppress(OSError):
                end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both ends."""
        for end in self.ends:
            end.close()
