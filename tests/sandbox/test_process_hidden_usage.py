"""The memory and files of processes are found from outside, even if they hide them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.process import hidden_usage
from skillbelt.sandbox.process.hidden_usage import HiddenUsage, measure_hidden
from skillbelt.sandbox.process.limits import counted_enforced
from skillbelt.sandbox.protocol import Sandbox, run
from skillbelt.testing.sandbox_suite import PATH, Place
from skillbelt.values import Limits
from tests import needs
from tests.sandbox.ordinary import as_user

MIB = 2**20
_START = "import ctypes, mmap, os, socket, sys, threading, time\n"
_END = "\nprint('ready', flush=True)\ntime.sleep(60)\n"


@contextmanager
def holding(folder: Path, code: str) -> Iterator[int]:
    """A process that has done what the code says, and waits."""
    command = [sys.executable, "-c", _START + code + _END]
    null = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=folder, stdin=null, stdout=subprocess.PIPE, stderr=null
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def held(folder: Path, code: str) -> HiddenUsage:
    with holding(folder, code) as pid:
        return measure_hidden([pid], str(folder))


_OPEN = """
a = os.open("a", os.O_CREAT | os.O_RDWR)
os.write(a, bytes(2**20))
os.unlink("a")
"""


def test_a_named_file_is_not_for_this(tmp_path: Path) -> None:
    found = held(tmp_path, _OPEN.replace("os.unlink", ""))
    assert found._replace(buffer_bytes=0) == HiddenUsage()
    assert found.buffer_bytes < MIB


def test_a_file_without_a_name_counts_once(tmp_path: Path) -> None:
    code = _OPEN + "os.dup(a); b = mmap.mmap(a, 4096)"
    with holding(tmp_path, code) as pid:
        found = measure_hidden([pid, pid], str(tmp_path))
    assert MIB <= found.file_bytes < 2 * MIB
    assert found.files == 1
    assert not found.more_files


def test_a_file_that_never_had_a_name(tmp_path: Path) -> None:
    try:
        (tmp_path / "try").touch()
        found = held(tmp_path, 'os.write(os.open(".", os.O_TMPFILE | os.O_RDWR), bytes(2**20))')
    finally:
        (tmp_path / "try").unlink()
    assert MIB <= found.file_bytes < 2 * MIB


def test_a_folder_without_a_name(tmp_path: Path) -> None:
    found = held(tmp_path, 'os.mkdir("d"); d = os.open("d", os.O_RDONLY); os.rmdir("d")')
    assert found.files == 1


def test_a_file_that_is_only_mapped(tmp_path: Path) -> None:
    """Only root sees how large it is; other users see that there is one."""
    found = held(tmp_path, _OPEN + "m = mmap.mmap(a, 4096); os.close(a)")
    assert MIB <= found.file_bytes < 2 * MIB if not found.more_files else found.file_bytes == 0


def test_shared_memory_that_a_child_has_touched(tmp_path: Path) -> None:
    code = """
room = mmap.mmap(-1, 2**22)
if os.fork() == 0:
    room.write(bytes(2**22))
    os._exit(0)
os.wait()
room.resize(4096)
"""
    found = held(tmp_path, code)
    assert 4 * MIB <= found.shared_bytes < 5 * MIB if not found.more_shared else True
    assert found.shared_bytes or found.more_shared


def test_a_file_in_memory(tmp_path: Path) -> None:
    found = held(tmp_path, 'm = os.memfd_create("m"); os.write(m, bytes(2**22))')
    assert 4 * MIB <= found.shared_bytes < 5 * MIB


def test_what_waits_in_a_socket(tmp_path: Path) -> None:
    code = "a, b = socket.socketpair(); a.send(bytes(2**16))"
    found = held(tmp_path, code)
    assert 2**16 <= found.buffer_bytes < 2**19
    assert not found.more_handles


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
def test_what_waits_in_a_socket_whose_other_end_is_closed(tmp_path: Path, kind: str) -> None:
    code = f"a, b = socket.socketpair(1, socket.{kind}); a.send(bytes(2**16)); a.close()"
    assert held(tmp_path, code).buffer_bytes >= 2**16


def test_what_waits_in_a_pipe(tmp_path: Path) -> None:
    empty = held(tmp_path, "a, b = os.pipe()")
    full = held(tmp_path, "a, b = os.pipe(); os.write(b, bytes(10))")
    assert full.buffer_bytes - empty.buffer_bytes == pytest.approx(2**16, rel=0.1)


def test_terminals_and_mappings(tmp_path: Path) -> None:
    before = held(tmp_path, "").buffer_bytes
    terminals = held(tmp_path, "many = [os.openpty() for _ in range(20)]").buffer_bytes
    assert terminals - before > 20 * 2**17
    code = "many = [mmap.mmap(-1, 4096, prot=1 + 2 * (n % 2)) for n in range(10_000)]"
    assert held(tmp_path, code).buffer_bytes - before > 10_000 * 100


def test_handles_that_are_on_their_way(tmp_path: Path) -> None:
    code = "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [1]); a.close()"
    assert held(tmp_path, code).more_handles


def test_a_connection_that_nobody_has_accepted(tmp_path: Path) -> None:
    """Those of the whole machine are not counted, only those of a namespace of its own."""
    code = """
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.send(bytes(2**14))
client.close()
"""
    unshare = "ctypes.CDLL(None).unshare(0x10000000 | 0x40000000) and sys.exit(1)\n"
    up = """
import fcntl, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x49))
"""
    shared = held(tmp_path, code).buffer_bytes
    assert held(tmp_path, unshare + up + code).buffer_bytes > shared + 2**13


def test_a_thread_with_handles_of_its_own(tmp_path: Path) -> None:
    code = (
        """
done = threading.Event()
def hold():
    ctypes.CDLL(None).unshare(0x400)
"""
        + _OPEN.replace("\n", "\n    ")
        + """
    done.set()
    time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
done.wait()
"""
    )
    assert held(tmp_path, code).file_bytes >= MIB


def test_a_process_whose_first_thread_has_ended(tmp_path: Path) -> None:
    code = (
        "def hold():\n    time.sleep(0.1)"
        + (_OPEN + "m = mmap.mmap(a, 4096)" + _END).replace("\n", "\n    ")
        + """
threading.Thread(target=hold).start()
libc = ctypes.CDLL(None)
libc.pthread_exit.argtypes = [ctypes.c_void_p]
libc.syscall(ctypes.c_long(60 if os.uname().machine == "x86_64" else 93), 0)
"""
    )
    assert held(tmp_path, code).file_bytes >= MIB


def test_no_time_to_see_everything_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_usage, "_MOST_SECONDS", -1.0)
    assert measure_hidden([1], str(tmp_path)).more_handles
    assert measure_hidden([], str(tmp_path)) == HiddenUsage()


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert measure_hidden([2**22 + 1], str(tmp_path)) == HiddenUsage()


def test_handles_that_can_not_be_copied_are_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(hidden_usage, "_call", refused)
    found = held(tmp_path, "a, b = socket.socketpair(); c = os.pipe()")
    assert found.buffer_bytes >= 2 * hidden_usage._ORDINARY_SOCKET + hidden_usage._ORDINARY_PIPE
    assert not found.more_handles


_CLOSED = """
import subprocess
from skillbelt.sandbox.process.hidden_usage import measure_hidden
code = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(1, flush=True)"
code += "; time.sleep(60)"
child = subprocess.Popen(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
found = [measure_hidden([child.pid], "/"), usage.measure_processes([child.pid], 0)[0]]
json.dump(found, sys.stdout)
child.kill()
"""


def test_a_process_that_closes_itself_to_its_user() -> None:
    """Then it is not known what it holds, and all memory that it shows counts."""
    found = as_user(_CLOSED)
    assert isinstance(found, list)
    assert HiddenUsage(*found[0]).more_handles
    assert found[1] > 2**20


def test_who_may_look() -> None:
    """Another user's processes are closed; root sees all, if it has the right to."""
    found = as_user(
        "from skillbelt.sandbox.process.hidden_usage import can_see, user_of\n"
        "json.dump([can_see(), can_see(os.getuid()), can_see(0), user_of(1), user_of(2**22 + 1)],"
        " sys.stdout)"
    )
    assert found == [True, True, False, 0, -1]


def test_a_large_pipe_is_seen_where_its_handle_can_not_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seccomp profile of an engine denies it without CAP_SYS_PTRACE."""
    monkeypatch.setattr(hidden_usage, "can_copy", lambda: False)
    large = "import fcntl; a, b = os.pipe(); fcntl.fcntl(b, 1031, 2**20)"
    assert held(tmp_path, large).buffer_bytes < MIB
    assert held(tmp_path, f"{large}; os.write(b, bytes(10))").buffer_bytes > MIB


def test_what_can_not_be_seen_is_named() -> None:
    """With a control group it does not matter for memory."""
    blind = counted_enforced("", seen=False)
    assert blind["files without a name"].startswith("not enforced")
    assert blind["memory beside processes"].startswith("not enforced")
    assert counted_enforced("", seen=True)["memory beside processes"].startswith("watched")
    assert counted_enforced("", seen=True)["kernel memory"].startswith("not enforced")
    denied = counted_enforced("", seen=True, sockets=False)["memory beside processes"]
    assert denied.startswith("not enforced: what waits in sockets")
    grouped = counted_enforced("cgroup v2", seen=False)
    assert grouped["memory beside processes"] == grouped["kernel memory"] == "cgroup v2"


@needs.root
def test_root_without_the_right_to_look_does_not_guess(tmp_path: Path) -> None:
    """It would be wrong about every run, not only about those that hide something."""
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    code = (
        "from skillbelt.sandbox.process.hidden_usage import can_see, measure_hidden\n"
        "import subprocess\n"
        "child = subprocess.Popen(['setpriv', '--reuid=61999', '--clear-groups', 'sleep', '60'])\n"
        "while open(f'/proc/{child.pid}/comm').read() != 'sleep\\n': pass\n"
        "print(can_see(), not measure_hidden([child.pid], '/').more_handles)\n"
        "child.kill()\n"
    )
    words = [setpriv, "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", sys.executable]
    done = subprocess.run(
        [*words, "-c", code], capture_output=True, text=True, timeout=500, check=True
    )
    assert done.stdout == "False True\n"


ORDINARY = """
import mmap, multiprocessing, os, socket, tempfile, time
def add(shared):
    shared[0] = 4
if __name__ == "__main__":
    shared = mmap.mmap(-1, 2**20)
    many = [multiprocessing.Process(target=add, args=(shared,)) for _ in range(4)]
    [each.start() for each in many]
    [each.join() for each in many]
    assert shared[0] == 4
    untouched = mmap.mmap(-1, 2**31)  # reserved, as some servers do
    with tempfile.TemporaryFile() as file:
        file.write(bytes(2**22))
        file.flush()
        mapped = mmap.mmap(file.fileno(), 2**22)
        pairs = [socket.socketpair() for _ in range(20)]
        [one.send(bytes(2**12)) for one, _ in pairs]
        socket.send_fds(pairs[0][0], [b"x"], [file.fileno()])
        socket.recv_fds(pairs[0][1], 2**13, 1)  # on its way for long, others would count as well
        time.sleep(0.8)  # so that somebody looks
"""
_AS_USER = f"""
with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
    place = Place(folder, identity.current_identity())
    env = {{"PATH": conformance.PATH, "TMPDIR": place.target}}
    found = run(%s(), place.python({ORDINARY!r}, limits=Limits(), env=env))
json.dump([found.exit_code, found.limits_hit, found.stderr.data.decode()], sys.stdout)
"""


@pytest.mark.parametrize("make", [LinuxSandbox, LandlockSandbox])
def test_ordinary_programs_are_left_alone(make: type[Sandbox], place: Place) -> None:
    env = {"PATH": PATH, "TMPDIR": place.target}
    limits = Limits(max_memory_bytes=512 * MIB, max_workspace_bytes=512 * MIB)
    outcome = run(make(), place.python(ORDINARY, limits=limits, env=env))
    assert (outcome.exit_code, outcome.limits_hit) == (0, ()), outcome


@pytest.mark.parametrize("make", ["linux.LinuxSandbox", "landlock.LandlockSandbox"])
def test_ordinary_programs_of_an_ordinary_user_are_left_alone(make: str) -> None:
    assert as_user(_AS_USER % make) == [0, [], ""]


def test_a_program_without_a_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can take itself out of its own memory, and is kept nevertheless."""
    monkeypatch.setattr(hidden_usage, "_read_maps", lambda _pid: b"")
    program = shutil.copy(shutil.which("sleep") or "/bin/sleep", tmp_path / "sleep")
    with open(program, "ab") as file:
        file.write(bytes(MIB))
    null = subprocess.DEVNULL
    with subprocess.Popen(
        [program, "60"], cwd="/", stdin=null, stdout=null, stderr=null
    ) as process:
        os.unlink(program)
        found = measure_hidden([process.pid, process.pid], str(tmp_path))
        process.kill()
    assert found.files == 1
    assert MIB <= found.file_bytes < 3 * MIB


def test_a_folder_that_a_process_is_in_counts(tmp_path: Path) -> None:
    """Each of two threads may be in another; a removed folder keeps what its names took."""
    code = """
for name in ("a", "b"):
    os.mkdir(name)
def moved():
    ctypes.CDLL(None).unshare(0x200)
    os.chdir("b")
    told.set()
    time.sleep(60)
told = threading.Event()
threading.Thread(target=moved, daemon=True).start()
told.wait()
os.chdir("a")
os.rmdir("../a")
os.rmdir("../b")
"""
    assert held(tmp_path, code).files == 2
