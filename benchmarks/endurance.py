"""Count what thousands of runs leave behind; every figure must be 0.

Each command bears a mark in its words and in its environment, by which any process that outlives it
is known. Whatever the runtime keeps for itself is compared before and after.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.format.skill import Skill
from skillbelt.running.background import Background
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.following import Watch
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.linux.cgroups import MOUNT
from skillbelt.sandbox.protocol import Running
from skillbelt.store import SessionKey

SESSIONS, THREADS = 3, 4
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run")
GONE_SECONDS = 5.0  # the kernel ends a sandbox soon after its runtime, not at once
# Two that leave their group, of which one ignores signals.
DAEMONS = "setsid sleep 300 & setsid bash -c 'trap \"\" TERM HUP INT; sleep 300; :' & "
ODD = (
    'd=work/odd-$RANDOM$RANDOM; mkdir -p $d/a/b $d/c; touch "$d/new\nline" $d/c/x;'
    " mkfifo $d/pipe; ln -s /etc/passwd $d/link; chmod 0 $d/a/b $d/a $d/c/x; chmod 4777 $d/c;"
    " mkdir -p $RUN_DIR/k/l; chmod 0 $RUN_DIR/k/l; touch /tmp/x /dev/shm/y"
)
# The tasks of a command, in turn.
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("true", {}),
    ("echo wrong >&2; exit 3", {}),
    (f"{DAEMONS} sleep 300", {"timeout_seconds": 0.05}),
    (f"{DAEMONS} echo left", {}),
    (ODD, {}),
    ("head -c 2000000 /dev/zero; head -c 200000 /dev/urandom >&2", {}),
    (f"{DAEMONS} sleep 300", {"stdin": None}),  # killed
    ("echo hi > $RUN_DIR/a.txt", {"output_files": ("$RUN_DIR/*",)}),
    ("$EDITOR $RUN_DIR/e; cat > /dev/null", {"editor_text": "text", "stdin": b"x" * 100_000}),
    ("tty; read -t 0.01 line", {"terminal": True}),
    ("true", {"inputs": [{"from": "http://nowhere"}]}),  # refused
    ("true", {"stdin": b"x" * 1_000_000}),
    ("no-such-program", {}),
    ("kill -9 $$", {}),
    ("exec 1>&- 2>&-; sleep 0.02", {}),
)


class Figure(NamedTuple):
    """A count of leftovers, and the first of them; `of` is the number of attempts."""

    name: str
    value: int
    of: int
    detail: str = ""


class Bench(NamedTuple):
    """The workbench of the runs, and the mark they bear."""

    workbench: Workbench
    skill: Skill
    folder: str
    mark: str

    def call(self, command: str, **more: Any) -> RunCall:
        return RunCall(f": {self.mark}; {command}", env={"MARK": self.mark}, **more)

    def run(self, command: str, who: Asker, delay: float | None = None, **more: Any) -> RunResult:
        """One run; with a delay it is killed so many seconds after its start."""
        timers: list[threading.Timer] = []

        def kill_later(running: Running) -> None:
            timers.append(threading.Timer(delay or 0.0, running.kill))
            timers[0].start()

        started = kill_later if delay is not None else None
        try:
            return self.workbench.run(
                self.skill, self.call(command, **more), who, Watch(started=started)
            )
        finally:
            for timer in timers:
                timer.join()


def who(number: int) -> Asker:
    return Asker(SessionKey("endurance", "me", str(number % SESSIONS)), "user")


def unshare_mounts() -> None:
    """Give this process its own copy of the mount table, so that it counts no other's mounts.

    Container engines on the same machine mount and unmount all the time. Only root can do this;
    an ordinary user counts the mounts of the machine.
    """
    if os.getuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        code = ctypes.get_errno()
        raise OSError(code, f"no mount table of our own: {os.strerror(code)}")


# --- many runs -----------------------------------------------------------------------------------


def mixed(bench: Bench, runs: int) -> list[Figure]:
    """Runs of every kind, several at a time, and what is left after all of them."""
    tempfile.tempdir = os.path.join(bench.folder, "tmp")
    os.makedirs(tempfile.tempdir, exist_ok=True)
    each_kind(bench)
    before = _state(bench)
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(_one, bench, number) for number in range(runs)]:
            done.result()
    after = _settled(bench, before)
    tempfile.tempdir = None
    left = {name: sorted(after[name] - before[name]) for name in before}
    return [Figure(name, len(one), runs, ", ".join(one[:3])) for name, one in left.items()]


def each_kind(bench: Bench, kinds: int = 2 * len(KINDS)) -> None:
    """Runs of the first kinds, or of all, so that everything is imported and made that stays."""
    for number in range(kinds):
        _one(bench, number)


def _one(bench: Bench, number: int) -> None:
    command, more = KINDS[number % len(KINDS)]
    if number % 29 == 28:
        _in_background(bench, number)
        return
    delay = random.random() * 0.05 if "stdin" in more and more["stdin"] is None else None
    try:
        bench.run(command, who(number), delay, **more)
    except RunRefused:
        assert "inputs" in more


def _in_background(bench: Bench, number: int) -> None:
    background, key = Background(bench.workbench), who(number).key
    id = background.start(bench.skill, bench.call(f"{DAEMONS} cat"), who(number))
    background.write(key, id, "hello")
    background.poll(key, id, wait_seconds=1)
    background.close()


def _state(bench: Bench) -> dict[str, set[str]]:
    """All that could be left, by what it is."""
    gc.collect()
    return {
        "descriptors": set(_descriptors()),
        "mounts": set(_lines("/proc/self/mountinfo")),
        "cgroups": set(_groups()),
        "temporary files": set(_entries(os.path.join(bench.folder, "tmp"))),
        "shared files": set(_shared()),
        "files outside the workspaces": set(_outside(bench)),
        "processes": {str(pid) for pid in marked(bench.mark)},
        "threads": {f"{one.name} {one.ident}" for one in threading.enumerate()},
    }


def _settled(bench: Bench, before: dict[str, set[str]]) -> dict[str, set[str]]:
    """The state once nothing changes to the better any more."""
    until = time.monotonic() + GONE_SECONDS
    while True:
        after = _state(bench)
        if time.monotonic() > until or all(after[name] <= before[name] for name in before):
            return after
        time.sleep(0.05)


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        try:
            # Its number is part of it: two handles of one file are two.
            yield f"{name} {os.readlink(f'/proc/self/fd/{name}').partition(':')[0]}"
        except FileNotFoundError:
            continue  # the handle of this very listing


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def _groups() -> Iterator[str]:
    """The control groups that bear the number of this process."""
    for folder, names, _ in os.walk(MOUNT):
        yield from (f"{folder}/{name}" for name in names if f"-{os.getpid()}-" in f"-{name}")


def _entries(folder: str) -> list[str]:
    return sorted(os.listdir(folder))


def _shared() -> Iterator[str]:
    """The files of this user in shared folders; root has too many."""
    for folder in SHARED:
        for entry in os.scandir(folder) if os.getuid() and os.path.isdir(folder) else ():
            # A file that another process just removed is not ours.
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    yield entry.path


def _outside(bench: Bench) -> Iterator[str]:
    """Every file but those that a run may write, and what is there for each session."""
    for folder, names, files in os.walk(bench.folder):
        if os.path.basename(os.path.dirname(folder)) == "workspaces":
            names[:] = [name for name in names if name in ("private", "skills")]
        names[:] = [name for name in names if name != ".venv"]
        # The folder of a run that left nothing is kept for the next, under the name it has.
        known = ("spare" if name.startswith("spare-") else name for name in (*names, *files))
        yield from (os.path.join(folder, name) for name in known)


def marked(mark: str) -> list[int]:
    """The processes that bear the mark, by their words or their environment."""
    found, wanted = [], mark.encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and wanted in _told(name):
            found.append(int(name))
    return found


def _told(pid: str) -> bytes:
    told = b""
    for file in ("cmdline", "environ"):
        try:
            with open(f"/proc/{pid}/{file}", "rb") as handle:
                told += handle.read()
        except OSError:
            continue
    return told


# --- ends ----------------------------------------------------------------------------------------


def ended(bench: Bench, tries: int) -> list[Figure]:
    """Processes that are alive when a run that was timed out, or killed, gives its result."""
    left: dict[str, list[int]] = {"alive after a time-out": [], "alive after a cancel": []}
    for number in range(tries):
        seconds = random.random() * 0.15
        result = bench.run(f"{DAEMONS} sleep 300", who(0), timeout_seconds=seconds + 0.01)
        assert result.timed_out
        left["alive after a time-out"] += marked(bench.mark)
        result = bench.run(f"{DAEMONS} sleep 300", who(number), delay=seconds)
        assert result.cancelled
        left["alive after a cancel"] += marked(bench.mark)
    return [Figure(name, len(pids), tries) for name, pids in left.items()]


def shot(command: list[str], mark: str, folder: str, tries: int) -> list[Figure]:
    """Processes that outlive a runtime which is ended by SIGKILL at a random moment.

    The command is one that calls `work_until_shot` with the mark, in a folder for temporary files.
    """
    left: list[int] = []
    seen = 0
    environ = {**os.environ, "TMPDIR": folder}
    for _ in range(tries):
        with subprocess.Popen([*command, mark], stdout=subprocess.PIPE, env=environ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"working\n"
            time.sleep(random.random() * 0.5)
            seen += len(marked(mark)) - 1
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, "the runtime ended by itself"
        left += _survivors(mark)
    return [Figure("alive after a kill of the runtime", len(left), tries, f"with {seen} processes")]


def _survivors(mark: str) -> list[int]:
    until = time.monotonic() + GONE_SECONDS
    while (found := marked(mark)) and time.monotonic() < until:
        time.sleep(0.01)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


def work_until_shot(bench: Bench) -> None:
    """Run one command after the other in several threads, and never come back."""
    kinds: tuple[Callable[[int], object], ...] = (
        lambda number: bench.run("true", who(number)),
        lambda number: bench.run(f"{DAEMONS} sleep 300", who(number), timeout_seconds=0.2),
        lambda number: bench.run(f"{DAEMONS} echo left", who(number)),
    )

    def work(first: int) -> None:
        try:
            for number in range(first, 10**9):
                kinds[number % len(kinds)](number)
        finally:
            os._exit(1)  # the process that kills must not take this for a success

    for first in range(len(kinds)):
        threading.Thread(target=work, args=(first,), daemon=True).start()
    print("working", flush=True)
    time.sleep(600)
    sys.exit("nobody ended this")
