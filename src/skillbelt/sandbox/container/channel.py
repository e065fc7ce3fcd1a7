"""The connection to the first process of a container: frames over one socket.

Data from inside is not trusted: a malformed frame ends the container.
"""

import select
import socket
import time
from collections import deque

from skillbelt.sandbox.inside.container import HEADER

_CHUNK = 128 * 2**10
_MAX_FRAME = 2**20
_MAX_STDERR_BYTES = 4 * 2**10
_ENGINE_HEADER = 8  # the stream, three zeros, the length in four bytes
_STDOUT = 1

Frame = tuple[bytes, bytes]


class ContainerLost(Exception):
    """The container is gone, or sent a malformed frame."""


class ContainerChannel:
    """One socket for stdin, stdout and stderr of a container's first process."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._head, self._stream, self._left = bytearray(), 0, 0
        self._stdout, self._stderr = bytearray(), bytearray()
        self._waiting: deque[memoryview] = deque()
        self.frames: deque[Frame] = deque()

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    @property
    def sending(self) -> bool:
        """Whether data is still queued for sending."""
        return bool(self._waiting)

    @property
    def stderr_text(self) -> str:
        """Return the beginning of the process's stderr."""
        return self._stderr.decode("utf-8", "replace").strip()

    def send(self, kind: bytes, data: bytes = b"") -> None:
        """Queue a frame and send as much as possible without blocking."""
        self.send_raw(HEADER.pack(kind, len(data)) + data)

    def send_raw(self, data: bytes) -> None:
        """Queue bytes outside a frame: the program that reads the frames."""
        self._waiting.append(memoryview(data))
        self.flush()

    def flush(self) -> None:
        """Send as much as possible without blocking; raises ContainerLost."""
        try:
            while self._waiting:
                count = self._socket.send(self._waiting[0])
                rest = self._waiting.popleft()[count:]
                if rest:
                    self._waiting.appendleft(rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise ContainerLost(str(error)) from error

    def receive(self) -> None:
        """Read available data into `frames`; raises ContainerLost at EOF."""
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise ContainerLost(str(error)) from error
        if not data:
            raise ContainerLost(self.stderr_text or "the container has exited")
        self._demultiplex(memoryview(data))
        self._parse_frames()

    def expect(self, kinds: tuple[bytes, ...], seconds: float) -> Frame:
        """Wait for the next frame, which must be of one of these kinds."""
        until = time.monotonic() + seconds
        poll = select.poll()
        while not self.frames:
            poll.register(self, select.POLLIN | (select.POLLOUT if self._waiting else 0))
            left = until - time.monotonic()
            if left <= 0:
                raise ContainerLost(f"no answer from the container for {seconds:.0f} s")
            poll.poll(left * 1000)
            self.flush()
            self.receive()
        frame = self.frames.popleft()
        if frame[0] not in kinds:
            raise ContainerLost("an unexpected frame from the container")
        return frame

    def _demultiplex(self, data: memoryview) -> None:
        """Split the engine's multiplexed stream into stdout and stderr."""
        while data:
            if not self._left:
                need = _ENGINE_HEADER - len(self._head)
                self._head += data[:need]
                data = data[need:]
                if len(self._head) < _ENGINE_HEADER:
                    return
                self._stream, self._left = self._head[0], int.from_bytes(self._head[4:], "big")
                self._head.clear()
                continue
            part = data[: self._left]
            data, self._left = data[self._left :], self._left - len(part)
            if self._stream == _STDOUT:
                self._stdout += part
            elif len(self._stderr) < _MAX_STDERR_BYTES:
                self._stderr += part[: _MAX_STDERR_BYTES - len(self._stderr)]

    def _parse_frames(self) -> None:
        at, stdout = 0, self._stdout
        while len(stdout) - at >= HEADER.size:
            kind, size = HEADER.unpack_from(stdout, at)
            if size > _MAX_FRAME:
                raise ContainerLost("a frame from the container is too long")
            if len(stdout) - at < HEADER.size + size:
                break
            at += HEADER.size + size
            self.frames.append((kind, bytes(stdout[at - size : at])))
        del stdout[:at]

    def close(self) -> None:
        """Close the socket; the first process exits then, and everything with it."""
        self._socket.close()
