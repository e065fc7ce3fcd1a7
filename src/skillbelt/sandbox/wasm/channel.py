"""The two sockets of a worker: one that the engine process reports on, one that it talks on itself.

They are apart because a guest that broke out would have the second: nothing that comes over it is
believed about anybody else.
"""

import json
import os
import select
import signal
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from skillbelt.sandbox.wasm.pool import EngineProcess
from skillbelt.untrusted_json import read_json

_HEAD = struct.Struct("<II")
_MAX_HEAD_BYTES = 2**20
_CHUNK = 2**18
_REPORT_BYTES = 4096
_START_SECONDS = 30.0


class Broken(Exception):
    """The worker says what no worker would."""


class EngineGone(Exception):
    """The engine process ended before it did what it was told."""


class Channel:
    """Messages of a JSON value and bytes, of bounded size, over a socket that never blocks us."""

    def __init__(self, end: socket.socket, max_body_bytes: int) -> None:
        self._end, self._max_body = end, max_body_bytes
        self._buffer = bytearray()

    def receive(self) -> int:
        """Take what is there, and how much that was; 0 at the end, -1 when nothing is there now."""
        try:
            data = self._end.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return -1
        except OSError:
            return 0
        self._buffer += data
        return len(data)

    def message(self) -> tuple[dict[str, Any], bytes] | None:
        """The next whole message, if there is one; Broken when it can not be one."""
        if len(self._buffer) < _HEAD.size:
            return None
        head_bytes, body_bytes = _HEAD.unpack_from(self._buffer)
        if head_bytes > _MAX_HEAD_BYTES or body_bytes > self._max_body:
            raise Broken("a message that is too long")
        middle, end = _HEAD.size + head_bytes, _HEAD.size + head_bytes + body_bytes
        if len(self._buffer) < end:
            return None
        text, body = bytes(self._buffer[_HEAD.size : middle]), bytes(self._buffer[middle:end])
        del self._buffer[:end]
        try:
            head = read_json(text)
        except ValueError as error:
            raise Broken("a message that is no JSON") from error
        if not isinstance(head, dict):
            raise Broken("a message that is no object")
        return head, body

    def send(self, head: object, body: bytes = b"") -> None:
        """Send a message; waits until it is taken. OSError when nobody takes it."""
        text = json.dumps(head).encode()
        self._end.sendall(_HEAD.pack(len(text), len(body)) + text)
        if body:
            self._end.sendall(body)


class Worker:
    """A worker that the engine process was told to start. EngineGone when it was not."""

    def __init__(
        self,
        engine: EngineProcess,
        order: dict[str, object],
        handles: Iterable[int],
        max_body_bytes: int,
        task: object = None,
    ) -> None:
        """`task` is told to the worker itself: nobody else need know the environment of a run."""
        self.pidfd = -1
        self.keeper, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.end, guest = socket.socketpair()
        self.channel = Channel(self.end, max_body_bytes)
        self.end.settimeout(_START_SECONDS)
        try:
            with theirs, guest:
                engine.order(order, [theirs.fileno(), guest.fileno(), *handles])
            if task is not None:
                # One that is gone already is seen to be, like any other that ends.
                with suppress(BrokenPipeError):
                    self.channel.send(task)
            self._begin()
        except OSError as error:
            self.close()
            raise EngineGone(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        poll = select.poll()
        poll.register(self.keeper, select.POLLIN)
        if not poll.poll(_START_SECONDS * 1000):
            raise EngineGone("the engine process does not answer")
        message, handles, _, _ = socket.recv_fds(
            self.keeper, _REPORT_BYTES, 1, socket.MSG_CMSG_CLOEXEC
        )
        if not message or not handles:
            raise EngineGone("the engine process ended")
        self.pid = int(read_json(message)["pid"])
        self.pidfd = handles[0]

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def report(self, seconds: float) -> dict[str, Any] | None:
        """How it ended, once it has; None when the engine process ended first."""
        poll = select.poll()
        poll.register(self.keeper, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return None
        try:
            message = self.keeper.recv(_REPORT_BYTES)
        except OSError:
            return None
        found: dict[str, Any] | None = read_json(message) if message else None
        return found

    def close(self) -> None:
        """Let go of it; it is over, or never was."""
        self.keeper.close()
        self.end.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
