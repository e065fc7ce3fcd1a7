"""The rights of a worker: a guest that escapes the engine is still confined by the kernel."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.sandbox.linux import landlock
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import Outcome, run
from skillbelt.sandbox.wasm import engine
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import Place
from tests import needs
from tests.bounds import bounds
from tests.sandbox import guests

SOURCE = Path(engine.__file__).parents[1]
# In place of the guest, this is what runs in the worker; what it says comes back as the outcome.
_BROKEN_OUT = """
import resource, signal, socket, stat, struct, sys, time
def fails(call):
    try:
        return f"open: {call()!r}"
    except OSError:
        return "shut"
def handles():
    return [number for number in range(3, 200) if fails(lambda: os.fstat(number)) != "shut"]
def kinds():
    found = []
    for number in range(3, 200):
        try:
            found.append(stat.S_IFMT(os.fstat(number).st_mode))
        except OSError:  # there is none, or it was closed by now
            pass
    return found
def way():
    return next(n for n in handles() if stat.S_ISSOCK(os.fstat(n).st_mode))
def forge(text):
    os.write(way(), struct.pack("<II", len(text), 0) + text)
def syscall(number, *words):
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in words]
    done = libc.syscall(ctypes.c_long(number), *words)
    if done < 0:
        raise OSError(ctypes.get_errno(), "")
    return done
def run(kit, loaded, task, wasi, memory):
    try:
        said = str(eval(task["argv"][1], {**globals(), "task": task}))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return {"code": 0, "said": said, "limits": []}
"""


class Broken:
    """Runs an expression where a guest would be that has broken out."""

    def __init__(self, sandbox: WasmSandbox, place: Place, cache: str) -> None:
        self._sandbox, self.place, self.cache = sandbox, place, cache

    def outcome(self, expression: str, **fields: object) -> Outcome:
        return run(self._sandbox, guests.job(self.place, guests.hello(), expression, **fields))

    def says(self, expression: str, **fields: object) -> str:
        return self.outcome(expression, **fields).stderr.data.decode().rstrip("\n")


@pytest.fixture(scope="module")
def broken() -> Iterator[Broken]:
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    os.chmod(folder, 0o755)
    here = Path(folder, "here")
    here.mkdir()
    for name in ("inside/command.py", "wasm/worker.py", "wasm/guest.py"):
        (here / name).parent.mkdir(exist_ok=True)
        shutil.copy(SOURCE / name, here / name)
    with open(here / "wasm" / "guest.py", "a", encoding="utf-8") as guest:
        guest.write(_BROKEN_OUT)
    sandbox = WasmSandbox(Settings(cache_dir=os.path.join(folder, "cache")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_HERE", str(here))
        patch.setenv("A_TOKEN", "secret")
        place = Place(folder, current_identity())
        yield Broken(sandbox, place, os.path.join(folder, "cache", "wasm"))
    sandbox.close()
    shutil.rmtree(folder)


def test_it_is_never_root_and_gains_nothing(broken: Broken) -> None:
    uid, gid = current_identity()
    found = broken.says("[*os.getresuid(), *os.getresgid()]")
    assert json.loads(found) == [uid, uid, uid, gid, gid, gid]
    assert broken.says("ctypes.CDLL(None).prctl(39, 0, 0, 0, 0)") == "1"
    if os.getuid() == 0:
        assert broken.says("os.getgroups()") == "[]"


@needs.needs(
    landlock.version() > 0, "needs Landlock: boot a Linux of 5.13 or newer with lsm=landlock"
)
@pytest.mark.parametrize(
    "expression",
    [
        "open('/etc/passwd').read()",
        "os.listdir('/')",
        "os.listdir(task['folders'][1][1] + '/..')",
        "os.listdir('/proc')",
        "open('/proc/self/environ').read()",
        "open(f'/proc/{os.getppid()}/environ').read()",
        "os.open('/proc/1/root', os.O_RDONLY)",
        "os.mkdir('/tmp/made')",
        "os.kill(os.getppid(), 0)",
        "os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)",
    ],
)
def test_nothing_but_the_folders_of_the_run_is_there(broken: Broken, expression: str) -> None:
    assert broken.says(f"fails(lambda: {expression})") == "shut"


def test_the_folders_of_the_run_are_there(broken: Broken) -> None:
    """So that a closed door means something."""
    assert broken.says(f"open('{broken.place.folder}/x', 'w').write('x')") == "1"
    assert os.listdir(broken.place.folder) == ["x"]


@pytest.mark.parametrize(
    "expression",
    [
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "os.memfd_create('x')",
        "os.setuid(0)",
    ],
)
def test_there_are_no_processes_and_no_network(broken: Broken, expression: str) -> None:
    """Attacks 26, 33, 42, 44, 45, 47 and 48, from inside the worker itself."""
    assert broken.says(f"fails(lambda: {expression})") == "shut"


@needs.x86_64
@pytest.mark.parametrize(
    "call",
    [
        "syscall(101, 16, os.getppid(), 0, 0)",  # ptrace
        "syscall(165, b'x', b'/', b'tmpfs', 0, 0)",  # mount
        "syscall(272, 0x10000000)",  # unshare
        "syscall(425, 8, bytes(120))",  # io_uring_setup
        "syscall(321, 0, bytes(120), 120)",  # bpf
        "syscall(310, os.getppid(), bytes(16), 1, bytes(16), 1, 0)",  # process_vm_readv
    ],
)
def test_doors_into_the_kernel_are_shut(broken: Broken, call: str) -> None:
    """Attacks 24, 35, 36, 38 and 39."""
    assert broken.says(f"fails(lambda: {call})") == "shut"


@needs.needs(
    landlock.version() > 0, "needs Landlock: boot a Linux of 5.13 or newer with lsm=landlock"
)
def test_what_others_load_can_not_be_touched(broken: Broken) -> None:
    """Attack 60: not by its name; that no handle of it is left open is seen below."""
    broken.says("1")
    name = next(each for each in os.listdir(broken.cache) if ".module." in each)
    kept, new = os.path.join(broken.cache, name), os.path.join(broken.cache, "new")
    for call in (f"os.listdir({broken.cache!r})", f"open({kept!r})", f"open({kept!r}, 'r+b')",
                 f"open({new!r}, 'w')", f"os.unlink({kept!r})"):  # fmt: skip
        assert broken.says(f"fails(lambda: {call})") == "shut"


def test_no_handle_of_anybody_else_is_open(broken: Broken) -> None:
    """Attack 62: no socket of the engine process, no other run's, no file of the cache."""
    kinds = json.loads(broken.says("kinds()"))
    assert kinds.count(stat.S_IFSOCK) == 1
    assert kinds.count(stat.S_IFIFO) <= 3
    # The workspace, the guests, /tmp, / and the current folder.
    assert kinds.count(stat.S_IFDIR) == 5
    # Its machine code, and what says how much memory the worker has.
    assert kinds.count(stat.S_IFREG) == 2


def test_its_machine_code_can_not_be_written(broken: Broken) -> None:
    """Not by the handle, and not by opening that anew."""
    code = "next(n for n in handles() if os.fstat(n).st_size > 4096 and n != way())"
    assert broken.says(f"fails(lambda: os.write({code}, b'x'))") == "shut"
    assert broken.says(f"fails(lambda: os.truncate({code}, 0))") == "shut"
    again = f"os.open(f'/proc/self/fd/{{{code}}}', os.O_RDWR)"
    assert broken.says(f"fails(lambda: {again})") == "shut"


def test_limits_bind_the_worker_itself(broken: Broken) -> None:
    limits = bounds(max_open_files=50, max_written_file_bytes=2**20, max_cpu_seconds=7)
    names = "NOFILE", "FSIZE", "CPU", "CORE"
    ask = f"[list(resource.getrlimit(getattr(resource, 'RLIMIT_' + name))) for name in {names}]"
    found = json.loads(broken.says(ask, limits=limits))
    assert found == [[50, 50], [2**20, 2**20], [7, 8], [0, 0]]


def test_nothing_of_the_host_is_in_its_environment(broken: Broken) -> None:
    """Attack 61."""
    assert broken.says("set(os.environ) - {'LC_CTYPE'}") == "set()"


@pytest.mark.parametrize(
    "words",
    [
        "os.write(way(), b'x' * 100)",
        "os.write(way(), struct.pack('<II', 2**31, 0))",
        "os.write(way(), struct.pack('<II', 2, 2**20) + b'{}')",
        "forge(b'[]')",
        "forge(b'{\"a\":')",
        "forge(b'{\"result\": 1}')",
        "forge(b'{\"fetch\": {}}')",
        "forge(b'[' * 100000)",
    ],
)
def test_lies_of_a_worker_harm_only_itself(broken: Broken, words: str) -> None:
    """Attack 64: an invalid message ends the run, with an outcome like any other."""
    outcome = broken.outcome(f"({words}, time.sleep(9))")
    assert outcome.exit_code == 125
    assert outcome.stderr.data.startswith(b"the engine failed: ")
    assert outcome.stderr.data.count(b"\n") == 1
    assert broken.says("'fine'") == "fine"


def test_a_forged_result_is_that_of_an_ordinary_guest(broken: Broken) -> None:
    """No code beyond a byte, no limit it could not have hit, no codes for the terminal."""
    limits = ["max_workspaces_bytes", 5, "max_wasm_fuel"]
    forged = {"code": 10**9, "said": "\x1b[31m" * 1000, "limits": limits}
    text = json.dumps({"result": forged}).encode()
    outcome = broken.outcome(f"(forge({text!r}), os._exit(0))")
    assert outcome.exit_code == 255
    assert outcome.limits_hit == ("max_wasm_fuel",)
    assert b"\x1b" not in outcome.stderr.data
    assert len(outcome.stderr.data) < 1000


def test_a_worker_that_vanishes_is_an_outcome(broken: Broken) -> None:
    assert broken.outcome("os._exit(9)").exit_code == 9
    assert broken.outcome("os.kill(os.getpid(), signal.SIGABRT)").exit_code == 134
    assert broken.says("'fine'") == "fine"


def test_a_worker_that_stays_is_ended(broken: Broken) -> None:
    """Though it says that it is over."""
    text = json.dumps({"result": {"code": 0, "said": "", "limits": []}}).encode()
    outcome = broken.outcome(f"(forge({text!r}), time.sleep(1000))", timeout_seconds=0.5)
    assert outcome.timed_out
