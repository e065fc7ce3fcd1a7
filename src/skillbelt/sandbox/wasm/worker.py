"""The engine process of the WASM sandbox, and the workers it forks: one for each run.

Started as `python3 -I -S -c TEXT CONTROL HERE`, with a socket that the runtime tells it on what to
do. The process itself never touches a module. It loads the engine once; each run, and each module
that is compiled, has a worker of its own, forked from it, that gives up everything but what the run
was granted, and ends with it. So a run starts as fast as the engine allows, leaves nothing behind,
and can be ended at any moment without the next one having to wait.
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
_MOST_HANDLES = 8
_MOST_OPEN = 4096  # what the engine process itself may have open
_MOST_KEPT = 4  # modules whose machine code is held on to
_MOST_SPARES = 2
_FAILED = 125
_SHOWN = 300
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _RESTRICT_SELF = 1, 38, 446
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Spare(NamedTuple):
    """A worker that waits for its run, and the socket it is told on."""

    pid: int
    way: socket.socket


class _Kept(NamedTuple):
    """The machine code of a module that was run lately."""

    kind: str
    fuel: bool
    handle: int


def frame(head: object, body: bytes = b"") -> bytes:
    """A message: a JSON value and bytes."""
    text = json.dumps(head).encode()
    return _HEAD.pack(len(text), len(body)) + text + body


def read_frame(way: socket.socket) -> tuple[Any, bytes]:
    """The next message; EOFError when none comes any more."""
    sizes = _HEAD.unpack(_exactly(way, _HEAD.size))
    text, body = (_exactly(way, size) for size in sizes)
    return json.loads(text), body


def _exactly(way: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = way.recv(min(size - len(data), 2**20))
        if not piece:
            raise EOFError("the runtime is gone")
        data += piece
    return bytes(data)


class Engine:
    """The process that holds the engine and forks workers."""

    def __init__(self, control: socket.socket, spec: dict[str, Any], guest: Any, command: Any):
        self._control, self._spec, self._guest, self._command = control, spec, guest, command
        self._kit = guest.Kit()
        self._kept: dict[str, _Kept] = {}
        self._spares: dict[str, _Spare] = {}
        self._runs: dict[int, tuple[socket.socket, str]] = {}
        self._ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def serve(self) -> None:
        """Do what the runtime says, until it is gone or has had nothing to do for long."""
        self._attend()
        for spare in self._spares.values():
            os.kill(spare.pid, signal.SIGKILL)
            os.waitpid(spare.pid, 0)

    def _attend(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        told = True
        while told or self._runs:
            idle = None if self._runs else self._spec["idle_seconds"] * 1000
            events = dict(poll.poll(idle))
            if not events:
                return
            if self._ended in events:
                self._reap()
            if self._control.fileno() in events and not self._obey():
                poll.unregister(self._control)
                told = False

    def _obey(self) -> bool:
        message, handles, _, _ = socket.recv_fds(
            self._control, _MESSAGE_BYTES, _MOST_HANDLES, socket.MSG_CMSG_CLOEXEC
        )
        if not message:
            return False
        try:
            self._start(json.loads(message), handles)
        except OSError:
            pass  # no more processes or handles: who asked sees that nothing came of it
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
            pid = self._begin(order, others)
        self._report(socket.socket(fileno=os.dup(keeper)), pid, order.get("key", ""))

    def _report(self, keeper: socket.socket, pid: int, key: str) -> None:
        """Hand out a handle of the worker, so that it can be ended without asking us."""
        self._runs[pid] = (keeper, key)
        try:
            process = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # nobody could end it
            raise
        with suppress(OSError):
            socket.send_fds(keeper, [json.dumps({"pid": pid}).encode()], [process])
        os.close(process)

    def _begin(self, order: dict[str, Any], handles: list[int]) -> int:
        """Give the run to a worker that waits for this module, or to a new one."""
        *given, code = handles
        key = order["key"]
        kept = self._kept.pop(key, None)
        self._kept[key] = kept or _Kept(order["kind"], order["fuel"], os.dup(code))
        for old in list(self._kept)[:-_MOST_KEPT]:
            os.close(self._kept.pop(old).handle)
            self._drop(old)
        spare = self._spares.pop(key, None)
        if spare is not None:
            # It may have been ended from outside while it waited.
            with suppress(OSError), spare.way:
                socket.send_fds(spare.way, [b"1"], given)
                return spare.pid
        spare = self._spare(key)
        with spare.way:
            socket.send_fds(spare.way, [b"1"], given)
        return spare.pid

    def _drop(self, key: str) -> None:
        """A worker that waits ends when its socket does."""
        spare = self._spares.pop(key, None)
        if spare is not None:
            spare.way.close()

    def _spare(self, key: str) -> _Spare:
        ours, theirs = socket.socketpair()
        kept = self._kept[key]
        keep = (theirs.fileno(), kept.handle)
        with theirs:
            pid = self._fork(keep, lambda: self._wait(theirs, kept))
        return _Spare(pid, ours)

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
            ended = self._tell(pid, status, used.ru_utime + used.ru_stime) or ended
        if ended in self._kept and ended not in self._spares:
            for old in list(self._spares)[: 1 - _MOST_SPARES or None]:
                self._drop(old)
            with suppress(OSError):
                self._spares[ended] = self._spare(ended)

    def _tell(self, pid: int, status: int, cpu_seconds: float) -> str:
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
            # Whatever happened, a worker never goes on as if it were the engine.
            os._exit(_FAILED)

    def _wait(self, way: socket.socket, kept: _Kept) -> NoReturn:
        """Load the module, wait for the run, and carry it out."""
        kit = self._guest.Kit(fuel=True) if kept.fuel else self._kit
        loaded = self._guest.load(kit, kept.kind, kept.handle)
        self._guest.warm_up(kit)
        message, handles, _, _ = socket.recv_fds(way, 1, _MOST_HANDLES, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        way.close()
        os.close(kept.handle)
        guest, *others = handles
        _answer(guest, lambda to: self._run(kit, loaded, to, *others))

    def _run(self, kit: Any, loaded: Any, way: socket.socket, *streams: int) -> object:
        task, _ = read_frame(way)
        memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        folders = _opened(task["folders"])
        wasi = self._guest.wasi_for(task, streams, folders)
        # The engine has its own handles of all that.
        for handle in (*streams[1:], *(folder[0] for folder in folders)):
            os.close(handle)
        if task["network"]:
            kit.ask = lambda head, body: _asked(way, head, body)
        self._confine(task)
        self._guest.give_input(wasi, task, streams[0])
        os.close(streams[0])
        return self._guest.run(kit, loaded, task, wasi, memory)

    def _compile(self, order: dict[str, Any], guest: int, source: int, target: int) -> NoReturn:
        def work(_: socket.socket) -> object:
            kit = self._guest.Kit(fuel=True) if order["fuel"] else self._kit
            with open(source, "rb") as file:
                data = file.read()
            self._confine(order)
            try:
                kind, code = self._guest.compiled(kit, data)
            except self._guest.Unusable as error:
                return {"unusable": str(error)}
            with open(target, "wb") as file:
                file.write(code)
            return {"kind": kind}

        _answer(guest, work)

    def _confine(self, task: dict[str, Any]) -> None:
        """Give up what the run was not granted. The filter for system calls is there already."""
        if len(os.listdir("/proc/self/task")) != 1:
            raise RuntimeError("another thread would keep its rights")
        rules = self._command.make_ruleset(**task["rules"]) if task["rules"] else None
        for kind, values in task["rlimits"]:
            resource.setrlimit(kind, tuple(values))
        if rules is not None:
            self._command.call("syscall", _RESTRICT_SELF, rules, 0)
            os.close(rules)


def _answer(handle: int, work: Callable[[socket.socket], object]) -> NoReturn:
    """Do the work, tell the runtime what came of it, and end."""
    way = socket.socket(fileno=handle)
    try:
        answer = {"result": work(way)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:_SHOWN]}
    way.sendall(frame(answer))
    os._exit(0)


def _close_all_but(keep: tuple[int, ...]) -> None:
    first = 3
    for handle in sorted(keep):
        os.closerange(first, handle)
        first = handle + 1
    os.closerange(first, _MOST_OPEN)


def _opened(folders: list[Any]) -> list[tuple[int, str, bool]]:
    """Handles of the folders that the guest gets; what lies in one and is none is left out."""
    found = []
    for path, source, below, writable in folders:
        try:
            found.append((_folder(source, below), path, writable))
        except OSError:
            if not below:
                raise
    return found


def _folder(source: str, below: list[str]) -> int:
    """What lies in a folder that a guest may write to is reached through no link."""
    handle = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in below:
        try:
            deeper = os.open(name, _FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
        handle = deeper
    return handle


def _asked(way: socket.socket, head: object, body: bytes) -> tuple[Any, bytes]:
    way.sendall(frame({"fetch": head}, body))
    return read_frame(way)


def _sibling(here: str, name: str) -> Any:
    """A module of the product, by its path: the package around it is not loaded."""
    spec = spec_from_file_location(os.path.basename(name), os.path.join(here, f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _step_down(spec: dict[str, Any], command: Any) -> None:
    """Be the user of the run, end with the runtime, and never gain a right again."""
    command.change_user(spec["identity"])
    command.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != spec["parent"]:
        os._exit(_FAILED)
    command.prctl(_NO_NEW_PRIVILEGES, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, _MOST_OPEN), hard))
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _version(packages: str, file: str) -> list[object]:
    """Which engine it is: what was installed, and the sizes of its libraries."""
    found: list[object] = [name for name in os.listdir(packages) if name.startswith("wasmtime-")]
    for folder, _, names in os.walk(os.path.dirname(file)):
        libraries = [name for name in sorted(names) if ".so" in name]
        found += [os.path.getsize(os.path.join(folder, name)) for name in libraries]
    return found


def _processor() -> str:
    """What the processor can do, as the kernel names it; machine code may use all of it."""
    found = {os.uname().machine}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                found |= set(value.split())
                break
    return " ".join(sorted(found))


def main(control_handle: int, here: str) -> None:
    """Load the engine, step down, and serve."""
    control = socket.socket(fileno=control_handle)
    spec = json.loads(control.recv(_MESSAGE_BYTES))
    sys.path.insert(0, spec["packages"])
    command, guest = _sibling(here, "inside/command"), _sibling(here, "wasm/guest")
    hello = {
        "version": _version(spec["packages"], guest.wasmtime.__file__),
        "layout": guest.LAYOUT,
        "processor": _processor(),
    }
    engine = Engine(control, spec, guest, command)
    _step_down(spec, command)
    # What is there now is shared with every worker; the collector must not write to it.
    gc.collect()
    gc.freeze()
    gc.disable()
    control.send(json.dumps(hello).encode())
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    engine.serve()
