"""The way from inside a sandbox to the proxy: a port of its own that leads to a mounted socket.

Run as `python3 -I -S -c TEXT SOCKET FILTER COMMAND...` by any Python from 3.9 on; it needs nothing
else of the product. The command takes the place of this process, so signals, its terminal and its
exit code need no help. A process beside it carries the bytes, and ends when the command does.
FILTER is a program for system calls that the command gets, as hexadecimal digits; `-` is none.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from contextlib import suppress

PROXY_VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
)
MAX_CONNECTIONS = 64
_BUFFER = 64 * 2**10
_SET_SECCOMP, _FILTER_MODE = 22, 2
_UNUSABLE = 125  # what `env` and `timeout` give when they themselves fail


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


class _Forwarder:
    """Takes connections at the port and carries each to the socket, until the command ends."""

    def __init__(self, listener: socket.socket, target: str, command: int) -> None:
        self._listener, self._target, self._command = listener, target, command
        self._selector = selectors.DefaultSelector()
        self._relays: set[Relay] = set()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._handle = _process_handle(command)
        if self._handle is not None:
            self._selector.register(self._handle, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            for key, ready in self._selector.select(None if self._handle is not None else 0.5):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._handle:
                    return
                elif key.data in self._relays:
                    self._step(key.data, key.fileobj, ready)  # type: ignore[arg-type]
            if self._handle is None and not _is_alive(self._command):
                return

    def _accept(self) -> None:
        try:
            inner, _ = self._listener.accept()
        except OSError:
            return
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(self._target)
        except OSError:  # no proxy, no network
            inner.close()
            outer.close()
            return
        relay = Relay(inner, outer)
        self._relays.add(relay)
        self._watch(relay)
        self._listen()

    def _step(self, relay: Relay, end: socket.socket, ready: int) -> None:
        try:
            relay.step(end, ready)
        except OSError:
            self._drop(relay)
            return
        if relay.done:
            self._drop(relay)
        else:
            self._watch(relay)

    def _watch(self, relay: Relay) -> None:
        for end in relay.ends:
            mask, known = relay.wants(end), self._selector.get_map().get(end)
            if known:
                self._selector.unregister(end)
            if mask:
                self._selector.register(end, mask, relay)

    def _drop(self, relay: Relay) -> None:
        for end in relay.ends:
            with suppress(KeyError):
                self._selector.unregister(end)
        relay.close()
        self._relays.discard(relay)
        self._listen()

    def _listen(self) -> None:
        """Take no more connections than there may be; the others wait at the port."""
        known, room = self._selector.get_map(), len(self._relays) < MAX_CONNECTIONS
        if room and self._listener not in known:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif not room and self._listener in known:
            self._selector.unregister(self._listener)


def _process_handle(process: int) -> int | None:
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):
        return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _detach(listener: socket.socket) -> None:
    """Hold nothing of the command's: not its files, its terminal, its folder or its signals."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.closerange(3, listener.fileno())
    os.closerange(listener.fileno() + 1, os.sysconf("SC_OPEN_MAX"))


def _start_forwarder(listener: socket.socket, target: str) -> None:
    """In a grandchild, so that the command has no child that it did not start."""
    command = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        if not os.fork():
            _detach(listener)
            _Forwarder(listener, target, command).serve()
    finally:
        os._exit(0)


def _environment(port: int) -> dict[str, str]:
    proxy = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}
    environment.update(dict.fromkeys(PROXY_VARIABLES, proxy))
    return environment


def _load_filter(program: bytes) -> None:
    import ctypes

    text = ctypes.create_string_buffer(program, len(program))
    # The number of its instructions, and where they are.
    header = (len(program) // 8).to_bytes(8, sys.byteorder)
    header += ctypes.addressof(text).to_bytes(8, sys.byteorder)
    words = [ctypes.c_ulong(one) for one in (_SET_SECCOMP, _FILTER_MODE)]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*words, header, ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "the filter for system calls is not accepted")


def _become(argv: list[str], environment: dict[str, str]) -> int:
    # Python ignores these two for itself; the command must find them as any program does.
    for number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, environment)
    except (FileNotFoundError, NotADirectoryError):
        sys.stderr.write(f"{argv[0]}: command not found\n")
        return 127
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        return 126


def main(arguments: list[str]) -> int:
    """Open the port, start the carrier, become the command. Returns only when that fails."""
    if len(arguments) < 3:
        sys.stderr.write("usage: bridge.py SOCKET FILTER COMMAND...\n")
        return _UNUSABLE
    target, program, *argv = arguments
    listener = socket.socket(socket.AF_INET)
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(MAX_CONNECTIONS)
        _start_forwarder(listener, target)
        if program != "-":
            _load_filter(bytes.fromhex(program))
    except OSError as error:
        sys.stderr.write(f"skillbelt: no way to the network: {error.strerror}\n")
        return _UNUSABLE
    port = listener.getsockname()[1]
    listener.close()
    return _become(argv, _environment(port))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
