"""Faults at random moments while runs run: `python -m benchmarks.fleet_faults`.

Starts a real PostgreSQL, an object store, servers and, with `--executor ray`, a real Ray cluster of
a head and three nodes on this machine. Each run is of a skill that no machine has seen before, so
it needs the object store. Each round makes one fault at a seeded random moment among its runs,
and then checks that every run ended with a result or a clear error, that none was reported or
started twice, that no command ran on after its run was reported, that every event whose commit was
acknowledged is in the store, and that nothing is left: processes, workspaces of single runs,
mounts, cgroups. Exit code 1 when one of them does not hold.

All faults of one number share a cluster; the next number gets a new one. `--results FILE` keeps
what was found after each round, and leaves out the rounds that are in it already, so that many
rounds can be made in several goes. `--only NUMBER --faults FAULT` repeats one round with its seed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fleet.clusters import TestCluster
from tests.postgres import SMALL, Server
from tests.tree import sheltered

from benchmarks.fleet_server import APP, MARK
from skillbelt.files.locks import held
from skillbelt.running.cleanup import BELONGS
from skillbelt.running.workspace import SHELTERS
from skillbelt.store import SessionKey
from skillbelt.store.postgres.store import PostgresStore

SERVERS, PLACES, NODES = 2, 8, 3
RUN_SECONDS = (0.05, 0.6)
# Longer than what the product waits for a store or a node that stays away.
END_SECONDS = 240.0
# A command ends within a second of its run's end; the machine may be busy.
GONE_SECONDS = 10.0
LOOK_SECONDS = 0.2
DISK_BYTES = 64 * 2**20
LOCAL_FAULTS = ("none", "server", "postgres", "connection", "disk", "objects")
RAY_FAULTS = ("none", "worker", "node", *LOCAL_FAULTS[1:])


class Round(NamedTuple):
    """The findings of a round. The figures from `missing` to `left` must be 0."""

    fault: str
    results: int
    errors: int
    lost_with_server: int
    missing: int
    unclear: int
    twice: int
    ran_on: int
    lost_events: int
    left: int
    seconds: float = 0.0
    details: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether everything held; without a fault there is no error either."""
        without_reason = self.errors if self.fault == "none" else 0
        return not any((self.missing, self.unclear, self.twice, self.ran_on, self.lost_events,
                        self.left, without_reason))  # fmt: skip


class UnixProxy:
    """Passes connections on to a socket, and cuts them when told."""

    def __init__(self, path: Path, target: Path) -> None:
        self._target, self._open = target, set[socket.socket]()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o777)
        self._listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._target))
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Cut every connection that is open now."""
        while self._open:
            with contextlib.suppress(OSError), self._open.pop() as one:
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more, and cut the rest."""
        self._listener.close()
        self.cut()


class ServerProcess:
    """A server, which serves round after round, and the runs that it has now."""

    def __init__(self, folder: Path, environ: dict[str, str], on_report: Callable[[str], None]):
        self._log, self._on_report = folder / "log", on_report
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fleet_server", str(folder), str(PLACES)],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.has = set[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.has.discard(str(json.loads(line)["id"]))
            self._on_report(line)

    @property
    def ended(self) -> bool:
        """Whether it is gone, and all that it said is read."""
        return self.process.poll() is not None and not self._reader.is_alive()

    def give(self, name: str, seconds: float) -> bool:
        """Hand over a run; False when it has enough, or is gone."""
        assert self.process.stdin
        if len(self.has) >= PLACES or self.process.poll() is not None:
            return False
        self.has.add(name)
        try:
            self.process.stdin.write(f"{name} {seconds:.3f}\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self.has.discard(name)
            return False
        return True

    def last_words(self) -> str:
        """Return the last line of what it wrote to its log."""
        return self._log.read_text("utf-8", "replace").strip().rpartition("\n")[2][:300]

    def finish(self) -> None:
        """Let it end, and read all it says."""
        assert self.process.stdin
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)


class CommandWatch:
    """Looks at all processes, again and again: which run started twice, and which runs on."""

    def __init__(self, mark: str) -> None:
        self._mark, self._lock = mark, threading.Lock()
        self._reported: dict[str, float] = {}
        self._seen: dict[str, set[int]] = {}
        self.ran_on: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_always, daemon=True)
        self._thread.start()

    def note_report(self, name: str) -> None:
        """From now on no process may be there for the run."""
        with self._lock:
            self._reported[name] = time.monotonic()

    @property
    def started_twice(self) -> list[str]:
        """The runs that were seen in more than one process."""
        return sorted(name for name, pids in self._seen.items() if len(pids) > 1)

    def close(self) -> None:
        """Wait until all that was reported was looked for after its grace, or is gone."""
        while self._reported:
            time.sleep(LOOK_SECONDS)
        self._stop.set()
        self._thread.join()

    def _look_always(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            with self._lock:
                reported = dict(self._reported)
            running = self._look()
            for name, when in reported.items():
                late = name in running and time.monotonic() - when > GONE_SECONDS
                if late:
                    self.ran_on.append(name)
                if late or name not in running:
                    with self._lock:
                        del self._reported[name]

    def _look(self) -> set[str]:
        # The command that starts it has the mark in a text, the command itself as a word.
        marked = {pid: words for pid, words in _processes() if words.startswith(self._mark)}
        for pid, words in marked.items():
            # A shell that is about to start a program has the words of the one that it left.
            if _parent(pid) not in (0, *marked):
                self._seen.setdefault(_name(words), set()).add(pid)
        return {_name(words) for words in marked.values()}


class FaultBench:
    """Everything that the rounds use. Close it."""

    def __init__(self, executor: str, root: Path) -> None:
        self.executor, self.root = executor, root
        self.postgres = Server(root / "pg", *SMALL)
        self.postgres.create()
        self.postgres.start()
        (root / "proxy").mkdir()
        name = ".s.PGSQL.5432"
        self.proxy = UnixProxy(root / "proxy" / name, root / "pg" / name)
        self.objects = root / "objects"
        self.objects.mkdir(mode=0o777)
        self.disk = root / "disk"
        self.disk.mkdir(mode=0o755)
        self._mounted = _mount_small(self.disk)
        self.servers: list[ServerProcess] = []
        self._reports: list[str] = []
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SKILLBELT_")},
            "SKILLBELT_STORE": self.postgres.url("postgres").replace("/pg", "/proxy"),
            "SKILLBELT_OBJECTS": self.objects.as_uri(),
            "SKILLBELT_USER_ROOTS": "false",
            "HOME": str(root),
        }
        self.cluster = self._start_cluster() if executor == "ray" else None
        if self.cluster is not None:
            self.environ |= {
                "SKILLBELT_EXECUTOR": executor,
                "SKILLBELT_RAY_ADDRESS": self.cluster.address,
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": self.cluster.environ["RAY_AUTH_TOKEN"],
            }

    def _start_cluster(self) -> TestCluster:
        objects = self.environ["SKILLBELT_OBJECTS"]
        made = TestCluster(self.root / "c", SKILLBELT_OBJECTS=objects)
        for number in range(NODES):
            self._start_node(made, number)
        return made

    def _start_node(self, cluster: TestCluster, number: int) -> None:
        # The first node keeps its files on the small disk, which a fault fills.
        state = _folders(self.disk if number == 0 else cluster.root / f"node{number}")
        cluster.start(f"node{number}", "--processors", "2", **state)

    def close(self) -> None:
        """End everything that was started."""
        for one in self.servers:
            one.finish()
        if self.cluster is not None:
            self.cluster.close()
        self.proxy.close()
        with contextlib.suppress(Exception):
            self.postgres.stop(signal.SIGQUIT)
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)

    # Rounds

    def round(self, fault: str, runs: int, random_: random.Random) -> Round:
        """Make the runs, and the fault among them; return what was found."""
        began = time.monotonic()
        before = _leftovers(self.root)
        self._start_servers()
        servers = list(self.servers)
        self._reports = reports = list[str]()
        self._watch = watch = CommandWatch(MARK + self.root.name)
        # Other benchmarks on this machine may have the same seed.
        word = f"{self.root.name}-{random_.randrange(16**6):06x}"
        names = [f"{word}-{number}" for number in range(runs)]
        when = random_.randrange(0, max(1, 3 * runs // 4))
        ended = threading.Event()
        maker = threading.Thread(
            target=self._make_amid, args=(fault, lambda: len(reports) >= when or ended.is_set(),
                                          servers, random_)
        )  # fmt: skip
        maker.start()
        self._hand_out([(name, random_.uniform(*RUN_SECONDS)) for name in names])
        ended.set()
        maker.join()
        watch.close()
        found = self._judge(fault, names, reports, before)
        return found._replace(seconds=round(time.monotonic() - began, 1))

    def _start_servers(self) -> None:
        """Start the servers that are not there: all at first, then those that a fault ended."""
        alive = {number: one for number, one in enumerate(self.servers) if not one.ended}
        self.servers = []
        for number in range(SERVERS):
            folder = self.root / f"server{number}"
            folder.mkdir(exist_ok=True)
            server = alive.get(number)
            if server is None:
                server = ServerProcess(folder, self._server_environ(folder), self._on_report)
            self.servers.append(server)

    def _on_report(self, line: str) -> None:
        self._watch.note_report(str(json.loads(line)["id"]))
        self._reports.append(line)

    def _hand_out(self, runs: Sequence[tuple[str, float]]) -> None:
        """Give each run to a server that has room, as a balancer does, until all are reported."""
        waiting = deque(runs)
        progress, said = time.monotonic(), 0
        while waiting or any(one.has and not one.ended for one in self.servers):
            while waiting:
                ready = sorted(self.servers, key=lambda one: len(one.has))
                if not any(one.give(*waiting[0]) for one in ready):
                    break
                waiting.popleft()
            if said != len(self._reports):
                progress, said = time.monotonic(), len(self._reports)
            if time.monotonic() - progress > END_SECONDS or all(one.ended for one in self.servers):
                return
            time.sleep(0.02)

    def _server_environ(self, folder: Path) -> dict[str, str]:
        if self.executor == "local" and folder.name == "server0":
            folder = self.disk
        return {**self.environ, **_folders(folder)}

    def _judge(
        self,
        fault: str,
        names: Sequence[str],
        reports: Sequence[str],
        before: set[str],
    ) -> Round:
        parsed = [json.loads(line) for line in reports]
        told = [str(one["id"]) for one in parsed]
        ends = [(one, one.process.poll()) for one in self.servers]
        missing = set(names) - set(told)
        lost = missing & {name for one, code in ends if code == -9 for name in one.has}
        details = [f"server: {one.last_words()}" for one, code in ends if code not in (None, -9)]
        details += [f"never reported: {name}" for name in sorted(missing - lost)[:5]]
        unclear = [one for one in parsed if one["kind"] == "unclear"]
        details += [f"unclear: {one['message']}" for one in unclear[:5]]
        ran_on, again = self._watch.ran_on, self._watch.started_twice
        details += [f"ran on: {name}" for name in ran_on[:5]]
        details += [f"started twice: {name}" for name in again[:5]]
        committed = [str(one["id"]) for one in parsed if one["committed"]]
        gone = self._lost_events(committed)
        details += [f"event lost: {name}" for name in gone[:5]]
        left = _settle(lambda: _leftovers(self.root) - before)
        details += [f"left: {one}" for one in sorted(left)[:5]]
        errors = [one for one in parsed if one["end"] == "error"]
        details += sorted({f"error: {one['kind']}: {one['message'][:300]}" for one in errors})[:4]
        return Round(
            fault=fault,
            results=sum(one["end"] == "result" for one in parsed),
            errors=len(errors),
            lost_with_server=len(lost),
            missing=len(missing - lost),
            unclear=len(unclear),
            twice=len(told) - len(set(told)) + len(again),
            ran_on=len(ran_on),
            lost_events=len(gone),
            left=len(left),
            details=tuple(details),
        )

    def _lost_events(self, committed: Sequence[str]) -> list[str]:
        """Return the runs whose event is not in the store exactly once."""
        with contextlib.closing(PostgresStore(self.postgres.url("postgres"))) as store:
            lost = []
            for name in committed:
                events = store.events(SessionKey(APP, name, "one"))
                if sum(event.type == "run_reported" for event in events) != 1:
                    lost.append(name)
            return lost

    # Faults

    def _make_amid(
        self,
        fault: str,
        due: Callable[[], bool],
        servers: Sequence[ServerProcess],
        random_: random.Random,
    ) -> None:
        """Make the fault when it is due: after so many runs were reported, while others run."""
        while not due():
            time.sleep(0.01)
        self._make(fault, servers, random_)

    def _make(self, fault: str, servers: Sequence[ServerProcess], random_: random.Random) -> None:
        time.sleep(random_.uniform(0, 0.3))
        if fault == "none":
            return
        if fault == "server":
            os.kill(random_.choice(servers).process.pid, signal.SIGKILL)
        elif fault == "postgres":
            self.postgres.stop(signal.SIGQUIT)
            time.sleep(random_.uniform(0.1, 1.5))
            self.postgres.start()
        elif fault == "connection":
            for _ in range(3):
                self.proxy.cut()
                time.sleep(random_.uniform(0.05, 0.4))
        elif fault == "disk":
            with _filled(self.disk):
                time.sleep(random_.uniform(1, 2))
        elif fault == "objects":
            away = self.objects.with_name("away")
            self.objects.rename(away)
            self.objects.touch()  # a missing folder would be made again
            time.sleep(random_.uniform(0.5, 1.5))
            self.objects.unlink()
            away.rename(self.objects)
        else:
            assert self.cluster is not None
            self._make_on_node(fault, self.cluster, random_)

    def _make_on_node(self, fault: str, cluster: TestCluster, random_: random.Random) -> None:
        if fault == "worker":
            for pid in random_.sample(found := _workers(cluster), min(1, len(found))):
                os.kill(pid, signal.SIGKILL)
            return
        assert fault == "node", fault
        number = random_.randrange(NODES)
        cluster.kill(f"node{number}")
        while True:  # Ray gives a node half a minute, which a busy machine may take
            try:
                return self._start_node(cluster, number)
            except AssertionError as error:
                print(f"    again: {str(error)[:80]}", flush=True)


# What is on the machine


def _folders(place: Path) -> dict[str, str]:
    """Return the variables for files in that place.

    The user that commands run as can pass through it. Otherwise root would keep workspaces in
    `/var/lib`, out of the reach of the faults.
    """
    state, cache = place / "state", place / "cache"
    for path in (place, state, state / "skillbelt", cache, cache / "skillbelt"):
        path.mkdir(exist_ok=True)
        path.chmod(0o711)
    return {"XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(cache)}


def _processes() -> Iterator[tuple[int, str]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                yield int(entry), " ".join(word.decode("utf-8", "replace") for word in words)


def _name(words: str) -> str:
    """Return the name of a run by the words of its command."""
    return words.removeprefix(MARK).partition(" ")[0]


def _parent(pid: int) -> int:
    """Return the parent of a process; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
    return 0


def _workers(cluster: TestCluster) -> list[int]:
    """Return the Ray workers of the cluster that carry out runs: theirs is the only token."""
    token = f"RAY_AUTH_TOKEN={cluster.environ['RAY_AUTH_TOKEN']}".encode()
    found = []
    for pid, words in _processes():
        if words.startswith("ray::skillbelt"):
            with contextlib.suppress(OSError):
                if token in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
    return found


def _leftovers(root: Path) -> set[str]:
    """Return what runs could leave: marked processes, workspaces of one run, mounts, cgroups."""
    mark = MARK + root.name
    found = {f"process {pid} {words[:80]}" for pid, words in _processes() if mark in words[:200]}
    found |= {
        f"workspace {path}" for path in _find_folders(root, "once-") if "/workspaces/" in path
    }
    found |= {f"workspace {path}" for one in _shelters_of(root) for path in one.glob("once-*")}
    found |= {f"mount {line}" for line in _mounts(str(root)) if not line.endswith("/disk")}
    groups = _find_folders(Path("/sys/fs/cgroup"), "skillbelt-")
    return found | {f"cgroup {one}" for one in groups if _holds_process_of(Path(one), root)}


def _find_folders(root: Path, prefix: str) -> Iterator[str]:
    """Yield the folders below whose name begins so. Others may vanish meanwhile."""
    for folder, names, _ in os.walk(root):
        yield from (f"{folder}/{name}" for name in names if name.startswith(prefix))


def _shelters_of(root: Path) -> Iterator[Path]:
    """Yield the folders that lie elsewhere for a folder below the root."""
    for path in (path for shelter in SHELTERS for path in Path(shelter).glob(f"*/{BELONGS}")):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(os.fsencode(root) + b"/"):
                yield path.parent


def _mounts(root: str) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text("utf-8").split("\n")
    return [words[4] for line in lines if len(words := line.split()) > 4 and root in words[4]]


def _holds_process_of(group: Path, root: Path) -> bool:
    with contextlib.suppress(OSError):
        pids = (group / "cgroup.procs").read_text().split()
        words = dict(_processes())
        return any(str(root) in words.get(int(pid), "") for pid in pids)
    return False


def _settle(look: Callable[[], set[str]]) -> set[str]:
    """Look until nothing is left, or the grace is over."""
    until = time.monotonic() + 2 * GONE_SECONDS
    while (left := look()) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def _mount_small(folder: Path) -> bool:
    options = f"size={DISK_BYTES},mode=755"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@contextlib.contextmanager
def _filled(folder: Path) -> Iterator[None]:
    """Fill a small disk while the block lasts; never one that is no mount of ours."""
    path = folder / "filled"
    if os.path.ismount(folder):
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            for _ in range(2 * DISK_BYTES // 65536):
                file.write(bytes(65536))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


class Plan(NamedTuple):
    """The rounds to run: each fault once for each number."""

    executor: str
    faults: Sequence[str]
    numbers: Sequence[int]
    runs: int
    seed: int

    def seed_of(self, number: int, fault: str) -> str:
        """Return what the randomness of a round comes from, and names it."""
        return f"{self.executor} {self.runs} {self.seed} {number} {fault}"


def run_rounds(plan: Plan, done: set[str]) -> Iterator[tuple[str, Round]]:
    """Yield each round as it ends, with its seed; those that are done are left out."""
    for number in plan.numbers:
        seeds = {fault: plan.seed_of(number, fault) for fault in plan.faults}
        wanted = {fault: seed for fault, seed in seeds.items() if seed not in done}
        if wanted:
            root = Path(tempfile.mkdtemp(prefix="sbf-", dir="/tmp"))
            root.chmod(0o755)
            with sheltered(root):
                yield from _rounds_of_cluster(FaultBench(plan.executor, root), plan.runs, wanted)


def _rounds_of_cluster(
    bench: FaultBench, runs: int, wanted: dict[str, str]
) -> Iterator[tuple[str, Round]]:
    try:
        for fault, seed in wanted.items():
            yield seed, bench.round(fault, runs, random.Random(seed))
    finally:
        bench.close()
        shutil.rmtree(bench.root, ignore_errors=True)


class ResultsFile:
    """The findings so far, by seed. Without a path they are forgotten."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rounds: dict[str, dict[str, object]] = {}
        if path is not None and path.exists():
            self.rounds = json.loads(path.read_text("utf-8"))

    def add(self, seed: str, found: Round) -> None:
        """Keep a round."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        load = round(os.getloadavg()[0], 1)
        self.rounds[seed] = {**found._asdict(), "holds": found.holds, "when": when, "load": load}
        if self._path is not None:
            made = self._path.with_suffix(".new")
            made.write_text(json.dumps(self.rounds, indent=1), "utf-8")
            made.replace(self._path)

    def sum(self) -> Iterator[str]:
        """Yield a row of a table for each fault."""
        yield "| fault | rounds | runs | results | clear errors | gone with the server | held |"
        yield "| --- | --: | --: | --: | --: | --: | --: |"
        names = {(seed.split()[0], str(one["fault"])) for seed, one in self.rounds.items()}
        for executor, fault in sorted(names):
            found = [one for seed, one in self.rounds.items()
                     if (seed.split()[0], one["fault"]) == (executor, fault)]  # fmt: skip
            counts = [sum(int(str(one[name])) for one in found)
                      for name in ("results", "errors", "lost_with_server")]  # fmt: skip
            cells = [f"{executor}: {fault}", len(found), sum(counts), *counts]
            cells.append(sum(bool(one["holds"]) for one in found))
            yield f"| {' | '.join(map(str, cells))} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each round, and the sum for each fault."""
    parser = argparse.ArgumentParser(prog="benchmarks.fleet_faults", description=__doc__)
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--faults", default="", help="comma-separated (default: all)")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="the rounds of this number")
    parser.add_argument("--results", type=Path, metavar="FILE", help="continue, and keep, these")
    args = parser.parse_args(arguments)
    known = RAY_FAULTS if args.executor == "ray" else LOCAL_FAULTS
    faults = args.faults.split(",") if args.faults else known
    if unknown := set(faults).difference(known):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    numbers = range(args.times) if args.only is None else [args.only]
    plan = Plan(args.executor, faults, numbers, args.runs, args.seed)
    with _locked(args.results):
        return _make_rounds(plan, ResultsFile(args.results))


@contextlib.contextmanager
def _locked(path: Path | None) -> Iterator[None]:
    """Hold the results alone: two would write over each other's rounds."""
    if path is None:
        yield
        return
    with held(f"{path}.lock", 0, RuntimeError(f"{path} is in use by another benchmark")):
        yield


def _make_rounds(plan: Plan, results: ResultsFile) -> int:
    all_held = True
    print("results errors  gone | missing unclear twice ran-on lost-events left seconds | round")
    for seed, one in run_rounds(plan, set(results.rounds)):
        results.add(seed, one)
        all_held &= one.holds
        print(
            f"{one.results:7} {one.errors:6} {one.lost_with_server:5} | "
            f"{one.missing:7} {one.unclear:7} {one.twice:5} {one.ran_on:6} {one.lost_events:11} "
            f"{one.left:4} {one.seconds:7.1f} | {seed}",
            flush=True,
        )
        for line in one.details:
            print(f"    {line}", flush=True)
    print("\n".join(results.sum()))
    return 0 if all_held else 1


if __name__ == "__main__":
    # Both end everything that was started; the rounds that ended are kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
