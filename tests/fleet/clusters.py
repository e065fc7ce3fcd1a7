"""A Ray cluster of the tests' own: heads and nodes as processes, each with its own folders."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

OBJECT_BYTES = 100_000_000
WAIT_SECONDS = 120.0


class TestCluster:
    """A head without runs, and nodes that `skillbelt fleet join` starts. Close it."""

    __test__ = False

    def __init__(self, root: Path | None = None, **environ: str) -> None:
        # Sockets are below it, and their paths may have about a hundred characters.
        self.root = root or Path(tempfile.mkdtemp(prefix="sbr-", dir="/tmp"))
        self.root.mkdir(exist_ok=True)
        self.root.chmod(0o755)
        self.environ = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("SKILLBELT_", "RAY_"))
            },
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            **environ,
        }
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        try:
            self.start("head", "--head", "--port", str(self.port), "--folder", str(self.root / "r"))
        except BaseException:
            self.close()
            raise

    def start(self, name: str, *options: str, **environ: str) -> None:
        """Start a node with a home of its own, and wait until it is one of the cluster."""
        where = () if "--head" in options else (self.address,)
        home = self.root / name
        home.mkdir(mode=0o755, exist_ok=True)
        (home / "up").unlink(missing_ok=True)
        self.logs[name] = log = self.root / f"{name}.log"
        with log.open("wb") as file:
            self.nodes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "skillbelt", "fleet", "join", *where, *options),
                    *("--", sys.executable, "-c", _UP, str(home / "up")),
                ],
                env={
                    **self.environ,
                    "HOME": str(home),
                    "XDG_STATE_HOME": str(home / "state"),
                    "XDG_CACHE_HOME": str(home / "cache"),
                    **environ,
                },
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait(name, home / "up")

    def _wait(self, name: str, mark: Path) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not mark.exists():
            if self.nodes[name].poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{name} did not start: {self.logs[name].read_text()[-3000:]}")
            time.sleep(0.05)

    def fleet(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run `skillbelt fleet` as an administrator on the machine of the head."""
        return subprocess.run(
            [sys.executable, "-m", "skillbelt", "fleet", "--address", self.address, *words],
            env={**self.environ, "HOME": str(self.root / "head"), **environ},
            cwd=self.root / "head",
            capture_output=True,
            text=True,
            timeout=15 * WAIT_SECONDS,
            check=False,
        )

    def kill(self, name: str) -> None:
        """Kill a node at once, as when its machine loses power: all that it started is gone."""
        process = self.nodes.pop(name)
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End every node, and what it wrote."""
        for process in reversed(list(self.nodes.values())):
            process.terminate()
        for process in self.nodes.values():
            try:
                process.wait(150)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.root, ignore_errors=True)


# What runs beside a node of the tests: it says that the node is up, and stays.
_UP = "import signal, sys; open(sys.argv[1], 'x').close(); signal.pause()"


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def python(cluster: TestCluster, code: str, arguments: Sequence[str] = (), **environ: str) -> str:
    """Run code that is connected to the cluster as `ray`; return what it prints."""
    # Ray itself sends a token only when told to; the product always does.
    environ = {"RAY_AUTH_MODE": "token", **environ}
    done = subprocess.run(
        [sys.executable, "-c", _CONNECT + code, cluster.address, *arguments],
        env={**cluster.environ, **environ},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_CONNECT = """
import sys, ray
ray.init(address=sys.argv[1], namespace="skillbelt", log_to_driver=False, logging_level="ERROR")
"""
