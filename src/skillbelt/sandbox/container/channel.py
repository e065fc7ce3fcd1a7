"""The way to the first process of a container, as the runtime holds it: frames over one socket.

What comes is from inside and is not trusted: whatever does not fit ends the container.
"""

import select
import socket
import time
from collections import deque

from skillbelt.sandbox.inside.container import HEADER

_CHUNK = 128 * 2**10
_MAX_FRAME = 2**20
_MAX_WORDS = 4 * 2**10
_ENGINE_HEADER = 8  # the stream, three zeros, the length in four bytes
_STDOUT = 1

Frame = tuple[bytes, bytes]


class Lost(Exception):
    """The container is gone, or what it says makes no sense."""


class Channel:
    """One socket that carries the input and both outputs of a container's first process."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._head, self._stream, self._left = bytearray(), 0, 0
        self._said, self._words = bytearray(), bytearray()
        self._waiting: deque[memoryview] = deque()
        self.frames: deque[Frame] = deque()

    def fileno(self) -> int:
        """The handle to wait at."""
        return self._socket.fileno()

    @property
    def sending(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._waiting)

    @property
    def last_words(self) -> str:
        """What the process wrote to its errors, as far as that was kept."""
        return self._words.decode("utf-8", "replace").strip()

    def send(self, kind: bytes, data: bytes = b"") -> None:
        """Send a frame, as much of it as is taken now."""
        self.send_raw(HEADER.pack(kind, len(data)) + data)

    def send_raw(self, data: bytes) -> None:
        """The same for what is no frame: the program that reads them."""
        self._waiting.append(memoryview(data))
        self.flush()

    def flush(self) -> None:
        """Send what is taken now; Lost when nobody is there."""
        try:
            while self._waiting:
                count = self._socket.send(self._waiting[0])
                rest = self._waiting.popleft()[count:]
                if rest:
                    self._waiting.appendleft(rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Lost(str(error)) from error

    def receive(self) -> None:
        """Add to `frames` what has come; Lost when no more can."""
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Lost(str(error)) from error
        if not data:
            raise Lost(self.last_words or "the container has ended")
        self._take(memoryview(data))
        self._cut()

    def expect(self, kinds: tuple[bytes, ...], seconds: float) -> Frame:
        """The next frame, which must be one of these; what follows it stays for later."""
        until = time.monotonic() + seconds
        poll = select.poll()
        while not self.frames:
            poll.register(self, select.POLLIN | (select.POLLOUT if self._waiting else 0))
            left = until - time.monotonic()
            if left <= 0:
                raise Lost(f"the container has said nothing for {seconds:.0f} s")
            poll.poll(left * 1000)
            self.flush()
            self.receive()
        frame = self.frames.popleft()
        if frame[0] not in kinds:
            raise Lost("the container says what it should not")
        return frame

    def _take(self, data: memoryview) -> None:
        """Sort what the engine has put together from both outputs."""
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
                self._said += part
            elif len(self._words) < _MAX_WORDS:
                self._words += part[: _MAX_WORDS - len(self._words)]

    def _cut(self) -> None:
        at, said = 0, self._said
        while len(said) - at >= HEADER.size:
            kind, size = HEADER.unpack_from(said, at)
            if size > _MAX_FRAME:
                raise Lost("the container does not speak as it should")
            if len(said) - at < HEADER.size + size:
                break
            at += HEADER.size + size
            self.frames.append((kind, bytes(said[at - size : at])))
        del said[:at]

    def close(self) -> None:
        """Let go; the first process ends then, and everything with it."""
        self._socket.close()
