"""Python processes without their start-up.

A server process imports the product once and forks for each call. The child is a process of its
own, with its own folder, environment, streams, signals and end, but has nothing left to import.
Tests of the start itself use an ordinary process.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import socket
import subprocess
import sys
import termios
import threading
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, AnyStr, NoReturn

_MAX_REQUEST_BYTES = 180_000
_RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
# Frameworks, mcp and Ray take seconds to import; guests are for another Python.
_APART = {
    "__main__", "agent", "fleet", "guests", "integrations", "mcp", "serving", "signature_sigstore"
}  # fmt: skip
# Imported in functions, from where an unprivileged child may not be able to read.
_ALSO = """
concurrent.futures.thread ctypes difflib encodings.ascii encodings.idna encodings.utf_8_sig fcntl
logging mimetypes pty random resource shlex shutil sqlite3 tempfile tomllib traceback uuid yaml zlib
"""
# What else is imported before the first fork whose arguments hold the word.
_HEAVY = {
    "serve": "mcp skillbelt.mcp.stdio skillbelt.mcp.http skillbelt.serving.api uvicorn",
    "chat": "skillbelt.cli.editor skillbelt.cli.live_answer",
    "--model": "pydantic_ai.direct skillbelt.agent.provider tests.made_model",
}


class Popen(subprocess.Popen[AnyStr]):
    """A process for `[sys.executable, ...]`, forked where everything is imported.

    With `terminal` its standard input becomes the terminal that its keys come from.
    """

    def __init__(self, args: Sequence[str], *, terminal: bool = False, **options: Any) -> None:
        self._terminal = terminal
        super().__init__(args, **options)

    def _execute_child(
        self,
        args: Sequence[str],
        executable: object,
        preexec: object,
        close: object,
        pass_fds: object,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        startup: object,
        flags: object,
        shell: object,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        *others: object,
    ) -> None:
        python, *arguments = args
        assert python == sys.executable
        given = dict(os.environ if env is None else env)
        job = {
            "arguments": arguments,
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": given,
            "terminal": self._terminal,
            "group": os.environ.get("MEASURED_GROUP"),
        }
        ends = enumerate((p2cread, c2pwrite, errwrite))
        streams: list[int] = [number if end < 0 else end for number, end in ends]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._report: socket.socket = ours
        with theirs:
            handles = array.array("i", [theirs.fileno(), *streams])
            _server(_start(given)).sendmsg([json.dumps(job).encode()], [(*_RIGHTS, handles)])
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
        self._child_created = True
        self.pid = int(self._report.recv(100) or "0")
        assert self.pid, "the process that forks has ended"

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if flags & os.WNOHANG and not select.select([self._report], [], [], 0)[0]:
            return 0, 0
        status = int(self._report.recv(100))
        self._report.close()
        return self.pid, status

    def _internal_poll(self, *others: object, **named: object) -> int | None:
        lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(False):
            try:
                process, status = self._try_wait(os.WNOHANG)
                if process:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                lock.release()
        return self.returncode


if not hasattr(os, "pidfd_open"):
    Popen = subprocess.Popen  # type: ignore[assignment,misc]


def run(
    args: Sequence[str],
    *,
    input: AnyStr | None = None,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Do what `subprocess.run` does."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen[AnyStr](args, **options) as process:
        try:
            outputs = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, *outputs)
    if check:
        done.check_returncode()
    return done


# A fork copies the table of all pages, which is most of its cost: large pages make it half of that.
# Only memory of malloc can lie in them. What is forked has the environment of its call instead.
_LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}
# What is decided when Python starts: each choice of these has a server of its own.
_AT_START = ("LC_ALL", "PYTHONUTF8")


def _start(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what a process with this environment starts with; UTF-8 unless that is refused."""
    if env.get("PYTHONUTF8") != "0":
        return (("PYTHONUTF8", "1"),)
    return tuple((name, env[name]) for name in _AT_START if name in env)


def begin() -> None:
    """Start the usual server now: the workers that are forked later share it."""
    if hasattr(os, "pidfd_open"):
        _server(_start({}))


@cache
def _server(start: tuple[tuple[str, str], ...]) -> socket.socket:
    """Start a server, which ends with this process; return where it takes jobs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MAX_REQUEST_BYTES)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    with theirs:
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
            env={**env, **_LARGE_PAGES, **dict(start)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        ).returncode = 0  # it is not waited for
    atexit.register(ours.close)
    return ours


_PROGRAM = f"""
import sys
sys.path.insert(0, {os.path.dirname(os.path.dirname(os.path.abspath(__file__)))!r})
from tests.warm import become, serve
del sys.path[0]
job = serve(int(sys.argv[1]))
if job is not None:
    become(job)
"""


def serve(handle: int) -> dict[str, Any] | None:
    """Fork a child for each job: return the job in the child, and None in the server at its end."""
    _import_product()
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
                job = dict(json.loads(request))
                report, *streams = array.array("i", rights[0][2])
                _prepare(job["arguments"])
                process = os.fork()
                if process == 0:
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                    for other in (report, *streams, *children, *_reports(children)):
                        os.close(other)
                    return job
                os.write(report, str(process).encode())
                for stream in streams:
                    os.close(stream)
                pidfd = os.pidfd_open(process)
                children[pidfd] = (process, report)
                waiting.register(pidfd, selectors.EVENT_READ)


def _reports(children: dict[int, tuple[int, int]]) -> list[int]:
    return [report for _, report in children.values()]


def _report_end(pidfd: int, process: int, report: int) -> None:
    status = os.waitpid(process, 0)[1]
    with contextlib.suppress(BrokenPipeError):  # the caller does not wait any more
        os.write(report, str(status).encode())
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


def _prepare(arguments: list[str]) -> None:
    for word in _HEAVY.keys() & set(arguments):
        for name in _HEAVY[word].split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1
    gc.freeze()


def become(job: dict[str, Any]) -> NoReturn:
    """Do what a new process does with `python -m MODULE ...` or `python -c CODE ...`, and end."""
    code = 0
    try:
        _begin(**job)
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


def _begin(
    arguments: list[str], cwd: str, env: dict[str, str], terminal: bool, group: str | None
) -> None:
    if group:  # it counts for the test that wants it (scripts/measure_tests.py)
        with open(f"{group}/cgroup.procs", "w") as processes:
            processes.write("0")
    arguments, cwd = [_native(one) for one in arguments], _native(cwd)
    env = {_native(name): _native(value) for name, value in env.items()}
    os.setsid()  # what is sent to the group of a command reaches no other
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    time.tzset()
    if "PYTHONWARNINGS" in env:
        warnings.simplefilter(env["PYTHONWARNINGS"])  # type: ignore[arg-type]
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        _open_stream(name, mode)
    _execute(*arguments)


def _native(text: str) -> str:
    """Return the text as this process has what is not in its encoding."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def _open_stream(name: str, mode: str) -> None:
    before = getattr(sys, name)
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    if name == "stderr":
        errors = "backslashreplace"
    stream = open(  # noqa: SIM115
        before.fileno(),
        mode,
        1 if name == "stderr" or "PYTHONUNBUFFERED" in os.environ else -1,
        encoding=encoding or before.encoding,
        errors=errors or ("strict" if encoding else before.errors),
        closefd=False,
    )
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _execute(kind: str, *arguments: str) -> None:
    sys.orig_argv[:] = [sys.executable, kind, *arguments]
    if kind == "-W":
        warnings.simplefilter(arguments[0])  # type: ignore[arg-type]
        _execute(*arguments[1:])
    elif kind == "-m":
        sys.path[0] = os.getcwd()
        sys.argv[:] = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[:] = ["-c", *arguments[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[0], "<string>", "exec"), main.__dict__)
    else:
        assert not kind.startswith("-"), f"start a process of its own for {kind}"
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        sys.argv[:] = [kind, *arguments]
        runpy.run_path(kind, run_name="__main__")


def _exit_code(given: object) -> int:
    if given is None or isinstance(given, int):
        return (given or 0) & 0xFF
    print(given, file=sys.stderr)
    return 1
