"""The engine process of the WASM sandbox, and the workers it forks.

One process holds the engine and forks a worker for each run (`worker.py`). It starts on first use,
and exits when idle for long or with the runtime.

A worker has two sockets: the engine process reports on one, the worker itself talks on the other. A
guest that escapes controls only the second, so its messages are trusted about nothing but itself.
"""

import json
import os
import select
import signal
import socket
import struct
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import PathFinder
from typing import Any

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.linux import seccomp, syscalls
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.process.spawn import Ends, spawn
from skillbelt.sandbox.process.supervised import launcher_python
from skillbelt.untrusted_json import read_json

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PROGRAM = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("wasm_worker", sys.argv[2] + "/wasm/worker.py")
sys.modules["wasm_worker"] = worker = module_from_spec(spec)
spec.loader.exec_module(worker)
worker.main(int(sys.argv[1]), sys.argv[2])
"""
_PACKAGE = "wasmtime"
_START_SECONDS = 60.0
_END_SECONDS = 5.0
_MESSAGE_BYTES = 64 * 2**10
_STDERR_BYTES = 4 * 2**10
_HEAD = struct.Struct("<II")
_MAX_HEAD_BYTES = 2**20
_CHUNK = 2**18
_REPORT_BYTES = 4096
_WORKER_SECONDS = 30.0


def packages() -> str:
    """Return the folder of the wasmtime package, without importing it; empty when not installed."""
    spec = PathFinder.find_spec(_PACKAGE)
    return os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else ""


def worker_filter() -> bytes:
    """Return the seccomp filter of a worker."""
    # A worker still restricts itself with Landlock after it has received its run.
    return seccomp.program(False, False, programs=False, more=tuple(syscalls.RULES))


class EngineProcess:
    """A running engine process; raises SandboxUnavailable when it does not start."""

    def __init__(self, idle_seconds: float) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A runtime that is not closed must not cause a ResourceWarning about this socket.
        weakref.finalize(self, self._control.close)
        self._ended = threading.Event()
        try:
            said, errors = os.pipe()
        except OSError as error:
            theirs.close()
            raise SandboxUnavailable(f"the engine cannot be started: {error}") from error
        try:
            self.pid = self._spawn(theirs, errors)
            self._hello = self._handshake(idle_seconds, said)
        except BaseException:
            self._control.close()
            raise
        finally:
            os.close(said)

    def _spawn(self, theirs: socket.socket, errors: int) -> int:
        handle, null = theirs.fileno(), -1
        argv = (launcher_python(), "-I", "-S", "-c", _PROGRAM, str(handle), _HERE)
        try:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            pid = spawn(argv, Ends(null, null, errors, (handle,)))
        except (OSError, ValueError) as error:
            raise SandboxUnavailable(f"the engine cannot be started: {error}") from error
        finally:
            theirs.close()
            os.close(errors)
            if null >= 0:
                os.close(null)
        threading.Thread(target=self._wait_for_exit, args=(pid,), daemon=True).start()
        return pid

    def _wait_for_exit(self, pid: int) -> None:
        # The embedding program may have reaped it.
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        self._ended.set()

    def _handshake(self, idle_seconds: float, said: int) -> dict[str, Any]:
        spec = {
            "parent": os.getpid(),
            "identity": run_identity(),
            "packages": packages(),
            "filter": worker_filter().hex(),
            "idle_seconds": idle_seconds,
        }
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        with suppress(OSError):
            self._control.send(json.dumps(spec).encode())
            if poll.poll(_START_SECONDS * 1000):
                answer = self._control.recv(_MESSAGE_BYTES)
                if answer:
                    hello: dict[str, Any] = read_json(answer)
                    return hello
        self._kill()
        words = os.read(said, _STDERR_BYTES).decode("utf-8", "replace").strip().split("\n")[-1]
        raise SandboxUnavailable(f"the engine cannot start: {words or 'no message'}")

    def _kill(self) -> None:
        if not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._ended.wait(_END_SECONDS)

    @property
    def flavour(self) -> str:
        """Return what machine code depends on.

        The engine's version and the processor's features.
        """
        return json.dumps(self._hello, sort_keys=True)

    @property
    def alive(self) -> bool:
        """Whether the process is still running."""
        return not self._ended.is_set()

    def order(self, what: dict[str, object], handles: Iterable[int]) -> None:
        """Order it to start a worker; raises OSError. The caller still owns the handles."""
        with self._lock:
            socket.send_fds(self._control, [json.dumps(what).encode()], list(handles))

    def stop(self, *, wait: bool) -> None:
        """Let it exit after all its workers; `wait` until then."""
        with self._lock:
            self._control.close()
        if wait and not self._ended.wait(_END_SECONDS):
            self._kill()


class WorkerProtocolError(Exception):
    """A worker sent a malformed message."""


class EngineGone(Exception):
    """The engine process exited before it carried out an order."""


class WorkerChannel:
    """Messages of a JSON object and bytes, of bounded size; reading never blocks."""

    def __init__(self, end: socket.socket, max_body_bytes: int) -> None:
        self._end, self._max_body = end, max_body_bytes
        self._buffer = bytearray()

    def receive(self) -> int:
        """Read what is available and return its size; 0 at EOF, -1 when nothing is available."""
        try:
            data = self._end.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return -1
        except OSError:
            return 0
        self._buffer += data
        return len(data)

    def message(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the next complete message, if any; raises WorkerProtocolError."""
        if len(self._buffer) < _HEAD.size:
            return None
        head_bytes, body_bytes = _HEAD.unpack_from(self._buffer)
        if head_bytes > _MAX_HEAD_BYTES or body_bytes > self._max_body:
            raise WorkerProtocolError("a message is too long")
        middle, end = _HEAD.size + head_bytes, _HEAD.size + head_bytes + body_bytes
        if len(self._buffer) < end:
            return None
        text, body = bytes(self._buffer[_HEAD.size : middle]), bytes(self._buffer[middle:end])
        del self._buffer[:end]
        try:
            head = read_json(text)
        except ValueError as error:
            raise WorkerProtocolError("a message is not JSON") from error
        if not isinstance(head, dict):
            raise WorkerProtocolError("a message is not an object")
        return head, body

    def send(self, head: object, body: bytes = b"") -> None:
        """Send a message and wait until it is read; raises OSError when the worker is gone."""
        text = json.dumps(head).encode()
        self._end.sendall(_HEAD.pack(len(text), len(body)) + text)
        if body:
            self._end.sendall(body)


class Worker:
    """A worker that the engine process forked; raises EngineGone when it could not."""

    def __init__(
        self,
        engine: EngineProcess,
        order: dict[str, object],
        handles: Iterable[int],
        max_body_bytes: int,
        task: object = None,
    ) -> None:
        """Fork the worker. Only the worker itself gets `task`, since it holds the environment."""
        self.pidfd = -1
        self.keeper, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.end, guest = socket.socketpair()
        except OSError:
            self.keeper.close()
            theirs.close()
            raise
        self.channel = WorkerChannel(self.end, max_body_bytes)
        self.end.settimeout(_WORKER_SECONDS)
        try:
            with theirs, guest:
                engine.order(order, [theirs.fileno(), guest.fileno(), *handles])
            if task is not None:
                # A worker that is gone already is reported like any other that exits.
                with suppress(BrokenPipeError):
                    self.channel.send(task)
            self._receive_handle()
        except OSError as error:
            self.close()
            raise EngineGone(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _receive_handle(self) -> None:
        poll = select.poll()
        poll.register(self.keeper, select.POLLIN)
        if not poll.poll(_WORKER_SECONDS * 1000):
            raise EngineGone("the engine process does not respond")
        message, handles, _, _ = socket.recv_fds(
            self.keeper, _REPORT_BYTES, 1, socket.MSG_CMSG_CLOEXEC
        )
        if not message or not handles:
            raise EngineGone("the engine process ended")
        self.pid = int(read_json(message)["pid"])
        self.pidfd = handles[0]

    def kill(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def report(self, seconds: float) -> dict[str, Any] | None:
        """Wait for the report of its exit; None when the engine process is gone first."""
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
        """Close the sockets and the handle."""
        self.keeper.close()
        self.end.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
