"""Python processes without their start-up.

A server process imports the product once and forks for each call. The child is a process of its
own, with its own folder, environment, streams, signals and end, but has nothing left to import.
Tests of the start itself, of terminals and of signals use an ordinary process.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Sequence
from functools import cache
from typing import IO, Any, NoReturn

_MAX_REQUEST_BYTES = 180_000
_RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
# Frameworks and mcp take seconds to import; guests are for another Python.
_APART = {"__main__", "agent", "guests", "integrations", "mcp"}
# Imported in functions, from where an unprivileged child may not be able to read.
_ALSO = """
concurrent.futures.thread ctypes difflib encodings.ascii encodings.idna encodings.utf_8_sig fcntl
logging mimetypes pty random resource shlex shutil sqlite3 tempfile tomllib traceback uuid yaml zlib
"""


class _Server:
    """A server that forks a process for each call; it ends with the process it serves."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MAX_REQUEST_BYTES)
        with theirs:
            subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            ).returncode = 0  # it is not waited for: it ends when this process does
        self._socket = ours

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: str | os.PathLike[str],
        env: dict[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """Fork a child for the arguments, and wait for its outputs and its end."""
        job = {"arguments": arguments, "cwd": os.fspath(cwd), "env": env}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        with ours, open(out, "rb") as stdout, open(err, "rb") as stderr:
            with theirs, open(out_end, "wb"), open(err_end, "wb"):
                handles = array.array("i", [theirs.fileno(), out_end, err_end])
                self._socket.sendmsg([json.dumps(job).encode()], [(*_RIGHTS, handles)])
            child = int(ours.recv(100))
            try:
                outputs = _read_all([stdout, stderr], timeout)
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            code = int(ours.recv(100))
        return subprocess.CompletedProcess(list(arguments), code, *outputs)


def _read_all(streams: list[IO[bytes]], timeout: float) -> list[bytes]:
    """Read several streams to their ends."""
    read = {stream: bytearray() for stream in streams}
    end = time.monotonic() + timeout
    with selectors.DefaultSelector() as waiting:
        for stream in streams:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                read[key.fileobj].extend(data)  # type: ignore[index]
                if not data:
                    waiting.unregister(key.fileobj)
    return [bytes(data) for data in read.values()]


@cache
def _server() -> _Server:
    """Return the server of this process, started at its first use."""
    return _Server()


def run_python(
    arguments: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: dict[str, str],
    timeout: float,
) -> subprocess.CompletedProcess[bytes]:
    """Do what `subprocess.run` does for `python -m MODULE ...` or `python -c CODE ...`.

    There is no input; both outputs are captured.
    """
    if hasattr(os, "pidfd_open"):
        return _server().run(arguments, cwd=cwd, env=env, timeout=timeout)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


_PROGRAM = """
import sys
sys.path.insert(0, ROOT)
from tests.warm import serve
del sys.path[0]
job = serve(int(sys.argv[1]))
if job is not None:
    from tests.warm import become
    become(job)
""".replace("ROOT", repr(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def serve(handle: int) -> dict[str, Any] | None:
    """Fork a child for each job: return the job in the child, and None in the server at its end."""
    _import_product()
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()
    children: dict[int, tuple[int, int]] = {}  # by its handle: the process, and where to report
    with socket.socket(fileno=handle) as requests, selectors.DefaultSelector() as waiting:
        waiting.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd in children:
                    waiting.unregister(key.fd)
                    _report_end(key.fd, *children.pop(key.fd))
                    continue
                request, rights, _, _ = requests.recvmsg(_MAX_REQUEST_BYTES, 1000)
                if not request:
                    return None
                report, out, err = array.array("i", rights[0][2])
                process = os.fork()
                if process == 0:
                    os.dup2(out, 1)
                    os.dup2(err, 2)
                    for other in (report, out, err, *children, *_reports(children)):
                        os.close(other)
                    return dict(json.loads(request))
                os.write(report, str(process).encode())
                os.close(out)
                os.close(err)
                pidfd = os.pidfd_open(process)
                children[pidfd] = (process, report)
                waiting.register(pidfd, selectors.EVENT_READ)


def _reports(children: dict[int, tuple[int, int]]) -> list[int]:
    return [report for _, report in children.values()]


def _report_end(pidfd: int, process: int, report: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # the caller had no more time
        os.write(report, str(code).encode())
    os.close(report)
    os.close(pidfd)


def _import_product() -> None:
    import skillbelt

    for name in _ALSO.split():
        importlib.import_module(name)
    for module in pkgutil.walk_packages(skillbelt.__path__, "skillbelt."):
        if not _APART & set(module.name.split(".")) and ".mcp" not in module.name:
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    skillbelt.Skill.from_text("---\na: [\n---\n").frontmatter  # noqa: B018


def become(job: dict[str, Any]) -> NoReturn:
    """Do what a new process does with `python -m MODULE ...` or `python -c CODE ...`, and end."""
    code = 0
    try:
        _begin(job["cwd"], job["env"])
        _execute(*job["arguments"])
    except SystemExit as stop:
        code = _exit_code(stop.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    # As at the end of the interpreter, without taking apart what was imported.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what was not closed says so
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _begin(cwd: str, env: dict[str, str]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        before = getattr(sys, name)
        stream = open(  # noqa: SIM115
            before.fileno(),
            mode,
            1 if name == "stderr" else -1,
            errors=before.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _execute(kind: str, what: str, *arguments: str) -> None:
    sys.orig_argv[:] = [sys.executable, kind, what, *arguments]
    sys.argv[:] = [kind, *arguments]
    if kind == "-m":
        sys.path[0] = os.getcwd()
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    assert kind == "-c"
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(what, "<string>", "exec"), main.__dict__)


def _exit_code(given: object) -> int:
    if given is None or isinstance(given, int):
        return (given or 0) & 0xFF
    print(given, file=sys.stderr)
    return 1
