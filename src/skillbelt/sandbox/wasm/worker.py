"""The engine process of the WASM sandbox, and the workers it forks: one for each run.

Started as `python3 -I -S -c PROGRAM CONTROL HERE`, with a socket for orders of the runtime. The
process itself never touches a module. It loads the engine once; each run and each compilation has
its own worker, forked from it, which drops all rights but those of the run and exits with it. So a
run starts fast, leaves nothing behind, and can be killed at any time.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, NamedTuple, NoReturn

_HEAD = struct.Struct("<II")
_MESSAGE_BYTES = 64 * 2**10
_MAX_HANDLES = 8
_MAX_OPEN = 4096  # descriptors that the engine process may have open
_MAX_KEPT = 4  # modules whose machine code stays open
_MAX_SPARES = 2
_FAILED = 125
_SHOWN = 300
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _RESTRICT_SELF = 1, 38, 446
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _SpareWorker(NamedTuple):
    """A worker that waits for a run, and the socket for its order."""

    pid: int
    channel: socket.socket


class _CachedCode(NamedTuple):
    """The machine code of a module that was run recently."""

    kind: str
    fuel: bool
    handle: int


def frame(head: object, body: bytes = b"") -> bytes:
    """Return a message: a JSON value and bytes."""
    text = json.dumps(head).encode()
    return _HEAD.pack(len(text), len(body)) + text + body


def read_frame(channel: socket.socket) -> tuple[Any, bytes]:
    """Read the next message; raises EOFError at the end."""
    sizes = _HEAD.unpack(_read_exactly(channel, _HEAD.size))
    text, body = (_read_exactly(channel, size) for size in sizes)
    return json.loads(text), body


def _read_exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(min(size - len(data), 2**20))
        if not piece:
            raise EOFError("the runtime is gone")
        data += piece
    return bytes(data)


class EngineServer:
    """The process that holds the engine and forks workers."""

    def __init__(self, control: socket.socket, spec: dict[str, Any], guest: Any, command: Any):
        self._control, self._spec, self._guest, self._command = control, spec, guest, command
        self._wasm = guest.WasmEngine()
        self._kept: dict[str, _CachedCode] = {}
        self._spares: dict[str, _SpareWorker] = {}
        self._runs: dict[int, tuple[socket.socket, str]] = {}
        self._ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def serve(self) -> None:
        """Carry out orders until the runtime is gone or idle for long."""
        self._loop()
        for spare in self._spares.values():
            os.kill(spare.pid, signal.SIGKILL)
            os.waitpid(spare.pid, 0)

    def _loop(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        connected = True
        while connected or self._runs:
            idle = None if self._runs else self._spec["idle_seconds"] * 1000
            events = dict(poll.poll(idle))
            if not events:
                return
            if self._ended in events:
                self._reap()
            if self._control.fileno() in events and not self._take_order():
                poll.unregister(self._control)
                connected = False

    def _take_order(self) -> bool:
        message, handles, _, _ = socket.recv_fds(
            self._control, _MESSAGE_BYTES, _MAX_HANDLES, socket.MSG_CMSG_CLOEXEC
        )
        if not message:
            return False
        try:
            self._start(json.loads(message), handles)
        except OSError:
            pass  # no more processes or handles: the runtime sees that its sockets close
        finally:
            for handle in handles:
                os.close(handle)
        return True

    def _start(self, order: dict[str, Any], handles: list[int]) -> None:
        if not handles:
            raise OSError("there was no room for the handles")
        keeper, *others = handles
        if order["do"] == "compile":
            pid = self._fork(tuple(others), lambda: self._compile(order, *others))
        else:
            pid = self._start_run(order, others)
        self._send_handle(socket.socket(fileno=os.dup(keeper)), pid, order.get("key", ""))

    def _send_handle(self, keeper: socket.socket, pid: int, key: str) -> None:
        """Send a pidfd of the worker, so that the runtime can kill it without us."""
        self._runs[pid] = (keeper, key)
        try:
            process = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # the runtime could not kill it
            raise
        with suppress(OSError):
            socket.send_fds(keeper, [json.dumps({"pid": pid}).encode()], [process])
        os.close(process)

    def _start_run(self, order: dict[str, Any], handles: list[int]) -> int:
        """Give the run to a spare worker of this module, or to a new one."""
        *passed, code = handles
        key = order["key"]
        kept = self._kept.pop(key, None)
        self._kept[key] = kept or _CachedCode(order["kind"], order["fuel"], os.dup(code))
        for old in list(self._kept)[:-_MAX_KEPT]:
            os.close(self._kept.pop(old).handle)
            self._drop(old)
        spare = self._spares.pop(key, None)
        if spare is not None:
            # It may have been killed while it waited.
            with suppress(OSError), spare.channel:
                socket.send_fds(spare.channel, [b"1"], passed)
                return spare.pid
        spare = self._fork_spare(key)
        with spare.channel:
            socket.send_fds(spare.channel, [b"1"], passed)
        return spare.pid

    def _drop(self, key: str) -> None:
        """Close the socket of a spare worker, which makes it exit."""
        spare = self._spares.pop(key, None)
        if spare is not None:
            spare.channel.close()

    def _fork_spare(self, key: str) -> _SpareWorker:
        ours, theirs = socket.socketpair()
        kept = self._kept[key]
        keep = (theirs.fileno(), kept.handle)
        with theirs:
            pid = self._fork(keep, lambda: self._wait_for_run(theirs, kept))
        return _SpareWorker(pid, ours)

    def _reap(self) -> None:
        os.read(self._ended, 512)
        ended = ""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            ended = self._report_exit(pid, status, used.ru_utime + used.ru_stime) or ended
        if ended in self._kept and ended not in self._spares:
            for old in list(self._spares)[: 1 - _MAX_SPARES or None]:
                self._drop(old)
            with suppress(OSError):
                self._spares[ended] = self._fork_spare(ended)

    def _report_exit(self, pid: int, status: int, cpu_seconds: float) -> str:
        keeper, key = self._runs.pop(pid, (None, ""))
        if keeper is not None:
            code = os.waitstatus_to_exitcode(status)
            with keeper, suppress(OSError):
                keeper.send(json.dumps({"code": code, "cpu_seconds": cpu_seconds}).encode())
        for lost in [each for each, spare in self._spares.items() if spare.pid == pid]:
            self._drop(lost)
        return key

    # In a worker

    def _fork(self, keep: tuple[int, ...], work: Callable[[], None]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._command.prctl(_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() == parent:
                _close_all_but(keep)
                self._command.load_filter(bytes.fromhex(self._spec["filter"]))
                work()
        finally:
            # A worker must never continue as the engine process, even after an exception.
            os._exit(_FAILED)

    def _wait_for_run(self, channel: socket.socket, kept: _CachedCode) -> NoReturn:
        """Load the module, wait for the order to run it, and run it."""
        wasm = self._guest.WasmEngine(fuel=True) if kept.fuel else self._wasm
        loaded = self._guest.load(wasm, kept.kind, kept.handle)
        self._guest.warm_up(wasm)
        message, handles, _, _ = socket.recv_fds(channel, 1, _MAX_HANDLES, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        channel.close()
        os.close(kept.handle)
        guest, *others = handles
        _run_and_exit(guest, lambda to: self._run(wasm, loaded, to, *others))

    def _run(self, wasm: Any, loaded: Any, channel: socket.socket, *streams: int) -> object:
        task, _ = read_frame(channel)
        memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        folders = _open_folders(task["folders"])
        wasi = self._guest.wasi_for(task, streams, folders)
        # The engine has opened its own handles of them.
        for handle in (*streams[1:], *(folder[0] for folder in folders)):
            os.close(handle)
        if task["network"]:
            wasm.ask = lambda head, body: _fetch(channel, head, body)
        self._confine(task)
        self._guest.give_input(wasi, task, streams[0])
        os.close(streams[0])
        return self._guest.run(wasm, loaded, task, wasi, memory)

    def _compile(self, order: dict[str, Any], guest: int, source: int, target: int) -> NoReturn:
        def work(_: socket.socket) -> object:
            wasm = self._guest.WasmEngine(fuel=True) if order["fuel"] else self._wasm
            with open(source, "rb") as file:
                data = file.read()
            self._confine(order)
            try:
                kind, code = self._guest.compile_module(wasm, data)
            except self._guest.InvalidModule as error:
                return {"unusable": str(error)}
            with open(target, "wb") as file:
                file.write(code)
            return {"kind": kind}

        _run_and_exit(guest, work)

    def _confine(self, task: dict[str, Any]) -> None:
        """Drop all rights that the run does not have. The seccomp filter is already loaded."""
        if len(os.listdir("/proc/self/task")) != 1:
            raise RuntimeError("another thread would not be confined")
        rules = self._command.make_ruleset(**task["rules"]) if task["rules"] else None
        for kind, values in task["rlimits"]:
            resource.setrlimit(kind, tuple(values))
        if rules is not None:
            self._command.call("syscall", _RESTRICT_SELF, rules, 0)
            os.close(rules)


def _run_and_exit(handle: int, work: Callable[[socket.socket], object]) -> NoReturn:
    """Do the work, send its result to the runtime, and exit."""
    channel = socket.socket(fileno=handle)
    try:
        answer = {"result": work(channel)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:_SHOWN]}
    channel.sendall(frame(answer))
    os._exit(0)


def _close_all_but(keep: tuple[int, ...]) -> None:
    first = 3
    for handle in sorted(keep):
        os.closerange(first, handle)
        first = handle + 1
    os.closerange(first, _MAX_OPEN)


def _open_folders(folders: list[Any]) -> list[tuple[int, str, bool]]:
    """Open the folders of the guest; a missing one below another is left out."""
    found = []
    for path, source, below, writable in folders:
        try:
            found.append((_open_folder(source, below), path, writable))
        except OSError:
            if not below:
                raise
    return found


def _open_folder(source: str, below: list[str]) -> int:
    """Open a folder without following links below `source`, which the guest may write to."""
    handle = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in below:
        try:
            deeper = os.open(name, _FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
        handle = deeper
    return handle


def _fetch(channel: socket.socket, head: object, body: bytes) -> tuple[Any, bytes]:
    channel.sendall(frame({"fetch": head}, body))
    return read_frame(channel)


def _sibling(here: str, name: str) -> Any:
    """Load a module of skillbelt by its path, without importing the package."""
    spec = spec_from_file_location(os.path.basename(name), os.path.join(here, f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _drop_privileges(spec: dict[str, Any], command: Any) -> None:
    """Become the user of the run, die with the runtime, and never gain privileges."""
    command.change_user(spec["identity"])
    command.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != spec["parent"]:
        os._exit(_FAILED)
    command.prctl(_NO_NEW_PRIVILEGES, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, _MAX_OPEN), hard))
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _version(packages: str, file: str) -> list[object]:
    """Identify the engine by the installed version and the sizes of its libraries."""
    found: list[object] = [name for name in os.listdir(packages) if name.startswith("wasmtime-")]
    for folder, _, names in os.walk(os.path.dirname(file)):
        libraries = [name for name in sorted(names) if ".so" in name]
        found += [os.path.getsize(os.path.join(folder, name)) for name in libraries]
    return found


def _processor() -> str:
    """Return the processor features that machine code may use."""
    found = {os.uname().machine}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                found |= set(value.split())
                break
    return " ".join(sorted(found))


def main(control_handle: int, here: str) -> None:
    """Load the engine, drop privileges, and serve."""
    control = socket.socket(fileno=control_handle)
    spec = json.loads(control.recv(_MESSAGE_BYTES))
    sys.path.insert(0, spec["packages"])
    command, guest = _sibling(here, "inside/command"), _sibling(here, "wasm/guest")
    hello = {
        "version": _version(spec["packages"], guest.wasmtime.__file__),
        "layout": guest.LAYOUT,
        "processor": _processor(),
    }
    engine = EngineServer(control, spec, guest, command)
    _drop_privileges(spec, command)
    # Memory is shared with every worker; the garbage collector must not write to it.
    gc.collect()
    gc.freeze()
    gc.disable()
    control.send(json.dumps(hello).encode())
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    engine.serve()
