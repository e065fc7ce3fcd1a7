"""Faults at random moments while runs run: `python -m benchmarks.fleet_faults`.

Starts a real PostgreSQL, an object store, servers and, with `--executor ray`, a real Ray cluster of
a head and two nodes on this machine. Each run is of a skill that no machine has seen before, so it
needs the object store. Each round makes one fault at a seeded random moment among its runs,
and then checks that every run ended with a result or a clear error, that none was reported twice,
that no command ran on after its run was reported, that every event whose commit was acknowledged is
in the store, and that nothing is left: processes, workspaces of single runs, mounts, cgroups. Exit
code 1 when one of them does not hold.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fleet.clusters import TestCluster
from tests.postgres import SMALL, Server
from tests.tree import sheltered

from benchmarks.fleet_server import APP, MARK
from skillbelt.running.cleanup import BELONGS
from skillbelt.running.workspace import SHELTERS
from skillbelt.store import SessionKey
from skillbelt.store.postgres.store import PostgresStore

SERVERS, PLACES, NODES = 2, 4, 2
RUN_SECONDS = (0.05, 0.6)
# Longer than what the product waits for a store or a node that stays away.
END_SECONDS = 240.0
# A command ends within a second of its run's end; the machine may be busy.
GONE_SECONDS = 10.0
DISK_BYTES = 64 * 2**20
LOCAL_FAULTS = ("none", "server", "postgres", "connection", "disk", "objects")
RAY_FAULTS = ("none", "worker", "node", *LOCAL_FAULTS[1:])


class Round(NamedTuple):
    """What a round found. Every figure but the first three must be 0."""

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
    """A server, and what it reported."""

    def __init__(self, folder: Path, environ: dict[str, str], on_report: Callable[[str], None]):
        self._log = folder / "log"
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
        self.given: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(on_report,), daemon=True)
        self._reader.start()

    def _read(self, on_report: Callable[[str], None]) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            on_report(line)

    def give(self, name: str, seconds: float) -> bool:
        """Hand over a run; False when the server is gone."""
        assert self.process.stdin
        try:
            self.process.stdin.write(f"{name} {seconds:.3f}\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return False
        self.given.append(name)
        return True

    def last_words(self) -> str:
        """Return the last line of what it wrote to its log."""
        return self._log.read_text("utf-8", "replace").strip().rpartition("\n")[2][:300]

    def finish(self) -> None:
        """Let it end what it was given, and read all it says."""
        assert self.process.stdin
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)


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
        before = _leftovers(self.root)
        reports, on_report = self._collect()
        folders = [self.root / f"server{number}" for number in range(SERVERS)]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        servers = [ServerProcess(one, self._server_environ(one), on_report) for one in folders]
        word = f"{random_.randrange(16**6):06x}"
        names = [f"{word}-{number}" for number in range(runs)]
        when = random_.randrange(0, max(1, 3 * runs // 4))
        ended = threading.Event()
        maker = threading.Thread(
            target=self._make_amid, args=(fault, lambda: len(reports) >= when or ended.is_set(),
                                          servers, random_)
        )  # fmt: skip
        maker.start()
        for name in names:
            order = random_.sample(servers, len(servers))
            any(one.give(name, random_.uniform(*RUN_SECONDS)) for one in order)
        for one in servers:
            one.finish()
        ended.set()
        maker.join()
        return self._judge(fault, names, servers, reports, before)

    def _collect(self) -> tuple[list[tuple[str, list[str]]], Callable[[str], None]]:
        """Return what is reported, each with the processes of that run which are alive then."""
        reports: list[tuple[str, list[str]]] = []

        def on_report(line: str) -> None:
            name = str(json.loads(line)["id"])
            reports.append((line, _wait_until_gone(f"{MARK}{name} ")))

        return reports, on_report

    def _server_environ(self, folder: Path) -> dict[str, str]:
        if self.executor == "local" and folder.name == "server0":
            folder = self.disk
        return {**self.environ, **_folders(folder)}

    def _judge(
        self,
        fault: str,
        names: Sequence[str],
        servers: Sequence[ServerProcess],
        reports: Sequence[tuple[str, list[str]]],
        before: set[str],
    ) -> Round:
        parsed = [(json.loads(line), alive) for line, alive in reports]
        told = [str(one["id"]) for one, _ in parsed]
        killed = {name for one in servers if one.process.returncode == -9 for name in one.given}
        missing = set(names) - set(told)
        lost = missing & killed
        details = [f"server: {one.last_words()}" for one in servers if one.process.returncode > 0]
        details += [f"never reported: {name}" for name in sorted(missing - lost)[:5]]
        unclear = [one for one, _ in parsed if one["kind"] == "unclear"]
        details += [f"unclear: {one['message']}" for one in unclear[:5]]
        ran_on = [alive for _, alive in parsed if alive]
        details += [f"ran on: {alive[0]}" for alive in ran_on[:5]]
        committed = [str(one["id"]) for one, _ in parsed if one["committed"]]
        gone = self._lost_events(committed)
        details += [f"event lost: {name}" for name in gone[:5]]
        left = _settle(lambda: _leftovers(self.root) - before)
        details += [f"left: {one}" for one in sorted(left)[:5]]
        errors = [one for one, _ in parsed if one["end"] == "error"]
        details += sorted({f"error: {one['kind']}: {one['message'][:300]}" for one in errors})[:4]
        return Round(
            fault=fault,
            results=sum(one["end"] == "result" for one, _ in parsed),
            errors=len(errors),
            lost_with_server=len(lost),
            missing=len(missing - lost),
            unclear=len(unclear),
            twice=len(told) - len(set(told)),
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
        self._start_node(cluster, number)


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


def _wait_until_gone(mark: str) -> list[str]:
    """Wait until no process bears the mark; return those that do after the grace."""
    until = time.monotonic() + GONE_SECONDS
    while True:
        # The command that starts it has the mark in a text, the command itself as a word.
        found = [words for _, words in _processes() if words.startswith(mark)]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


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
    found = {f"process {pid} {words[:80]}" for pid, words in _processes() if MARK in words[:200]}
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


def run_rounds(
    executor: str, faults: Sequence[str], times: int, runs: int, seed: int
) -> Iterator[Round]:
    """Yield each round as it ends."""
    root = Path(tempfile.mkdtemp(prefix="sbf-", dir="/tmp"))
    root.chmod(0o755)
    with sheltered(root):
        yield from _rounds(FaultBench(executor, root), faults, times, runs, seed)


def _rounds(
    bench: FaultBench, faults: Sequence[str], times: int, runs: int, seed: int
) -> Iterator[Round]:
    try:
        for number in range(times):
            for fault in faults:
                yield bench.round(fault, runs, random.Random(f"{seed} {number} {fault}"))
    finally:
        bench.close()
        shutil.rmtree(bench.root, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each round, and the sum for each fault."""
    parser = argparse.ArgumentParser(prog="benchmarks.fleet_faults", description=__doc__)
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--faults", default="", help="comma-separated (default: all)")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args(arguments)
    known = RAY_FAULTS if args.executor == "ray" else LOCAL_FAULTS
    faults = args.faults.split(",") if args.faults else known
    if unknown := set(faults).difference(known):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    held = True
    print("fault       results errors  gone | missing unclear twice ran-on lost-events left")
    for one in run_rounds(args.executor, faults, args.times, args.runs, args.seed):
        held &= one.holds
        print(
            f"{one.fault:<11} {one.results:7} {one.errors:6} {one.lost_with_server:5} | "
            f"{one.missing:7} {one.unclear:7} {one.twice:5} {one.ran_on:6} {one.lost_events:11} "
            f"{one.left:4}",
            flush=True,
        )
        for line in one.details:
            print(f"    {line}", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
