"""Container engines of the tests' own: on their own sockets, with their own data, gone afterwards.

The first test that needs one starts them all, for every worker of the session. A process beside
pytest looks after them and ends them when the session is over, however it ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from skillbelt.files.remove import remove_tree
from skillbelt.sandbox.container.engine import LABEL
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import Outcome
from skillbelt.testing.sandbox_suite import Place
from tests.needs import not_run

NAMES = ("docker", "podman")
START_SECONDS, STOP_SECONDS = 150.0, 60.0
OTHER_RUNTIME = "another"
USER_PROCESSES, OPEN_FILES = 32_768, 1_024


class Started(NamedTuple):
    """An engine that answers at the URL, or why there is none."""

    url: str
    reason: str = ""


# Each container of Podman's takes a second of a processor, and Docker's is made the same way.
_SHORT = ["docker", pytest.param("podman", marks=pytest.mark.long)]


@pytest.fixture(scope="session", params=_SHORT)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an engine; the test is skipped where that engine cannot be started."""
    return url_of(str(request.param), tmp_path_factory)


@pytest.fixture(scope="session")
def any_engine(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the first engine there is, for what does not depend on which one it is."""
    found = started(tmp_path_factory)
    for one in found.values():
        if one.url:
            return one.url
    not_run("; ".join(f"{name}: {one.reason}" for name, one in found.items()))


def url_of(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the engine of that name, or the test is skipped with the reason."""
    found = started(tmp_path_factory)[name]
    if found.reason:
        not_run(f"{name}: {found.reason}")
    return found.url


def started(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Started]:
    """All engines, started by the first worker that needs them."""
    shared, session = tmp_path_factory.getbasetemp(), os.getpid()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared, session = shared.parent, os.getppid()
    with open(shared / "engines.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = shared / "engines.json"
        if not answer.exists():
            _begin(session, answer)
        return {name: Started(*each) for name, each in json.loads(answer.read_text()).items()}


def _begin(session: int, answer: Path) -> None:
    """Start the process that keeps the engines, and wait for its report."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.sandbox.engines", str(session), str(answer)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        child.returncode = 0  # it lives longer than this test


def containers(url: str, runtime: int | None = None) -> list[str]:
    """The containers of that runtime, this one by default, in any state."""
    from docker import APIClient

    client = APIClient(base_url=url, version="auto")
    try:
        wanted = {"label": f"{LABEL}={runtime or os.getpid()}"}
        return [one["Id"] for one in client.containers(all=True, filters=wanted)]
    finally:
        client.close()


def until(happened: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it happens before the time is over."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def said(outcome: Outcome) -> str:
    """The output of a command that succeeded."""
    assert outcome.exit_code == 0, outcome
    return outcome.stdout.data.decode()


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    """A workspace for all tests of a module, so that containers are used again."""
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    os.chmod(folder, 0o755)
    yield Place(folder, current_identity())
    shutil.rmtree(folder)


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """The same workspace, empty each time."""
    yield shared
    above = os.path.dirname(shared.folder)
    for path in [os.path.join(shared.folder, name) for name in os.listdir(shared.folder)]:
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)
    for name in set(os.listdir(above)) - {"work"}:
        remove_tree(os.path.join(above, name))


class Docker:
    """dockerd, without a bridge and without rules for packets."""

    def __init__(self, root: str) -> None:
        self.socket = f"{root}/docker.sock"
        self.log = f"{root}/docker.log"
        self.env: dict[str, str] = {}
        self.argv = [
            *("dockerd", "--host", f"unix://{self.socket}", "--data-root", f"{root}/docker"),
            *("--exec-root", f"{root}/docker-exec", "--pidfile", f"{root}/docker.pid"),
            *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            *("--ip-masq=false",),
        ]
        runc = shutil.which("runc")
        if runc is not None:
            self.argv += ["--add-runtime", f"{OTHER_RUNTIME}={runc}"]


class Podman:
    """The service of Podman, with runc, and within the limits that this machine has."""

    def __init__(self, root: str) -> None:
        self.socket = f"{root}/podman.sock"
        self.log = f"{root}/podman.log"
        self.argv = ["podman", "system", "service", "--time=0", f"unix://{self.socket}"]
        settings = Path(root, "containers.conf")
        limits = f'"nofile={OPEN_FILES}:{OPEN_FILES}", "nproc={USER_PROCESSES}:{USER_PROCESSES}"'
        settings.write_text(
            f"[containers]\ndefault_ulimits = [{limits}]\n[engine]\n"
            f'runtime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
            f'tmp_dir = "{root}/podman-tmp"\n'
        )
        storage = Path(root, "storage.conf")
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{root}/podman-graph"\n'
            f'runroot = "{root}/podman-run"\n'
        )
        self.env = {"CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage)}


def _missing(program: str) -> str:
    if os.getuid() != 0:
        return "an engine for tests is started by root alone"
    return "" if shutil.which(program) else f"{program} is not installed"


class Keeper:
    """Starts the engines and ends them with the session."""

    def __init__(self, session: int) -> None:
        self._session = os.pidfd_open(session)
        self._root = tempfile.mkdtemp(prefix="skillbelt-engines-")
        os.chmod(self._root, 0o755)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> dict[str, Started]:
        """All of them at the same time."""
        wanted: dict[str, Docker | Podman] = {
            "docker": Docker(self._root),
            "podman": Podman(self._root),
        }
        found: dict[str, Started] = {}
        begun: dict[str, tuple[Docker | Podman, subprocess.Popen[bytes]]] = {}
        for name, one in wanted.items():
            if reason := _missing(one.argv[0]):
                found[name] = Started("", reason)
            else:
                begun[name] = self._launch(one)
        for name, (one, process) in begun.items():
            found[name] = self._answering(one, process)
        return found

    def _launch(self, one: Docker | Podman) -> tuple[Docker | Podman, subprocess.Popen[bytes]]:
        with open(one.log, "wb") as log:
            process = subprocess.Popen(
                one.argv, env={**os.environ, **one.env}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
                cwd=self._root,  # where what they start leaves files of its own
            )  # fmt: skip
        self._running.append(process)
        return one, process

    def _answering(self, one: Docker | Podman, process: subprocess.Popen[bytes]) -> Started:
        until(lambda: _answers(one.socket) or process.poll() is not None, START_SECONDS)
        if _answers(one.socket):
            return Started(f"unix://{one.socket}")
        lines = Path(one.log).read_text(errors="replace").splitlines() or ["it said nothing"]
        return Started("", f"it does not start: {lines[-1]}")

    def wait(self) -> None:
        """Until the session is over."""
        import select

        poll = select.poll()
        poll.register(self._session, select.POLLIN)
        poll.poll()

    def stop(self) -> None:
        """End the engines, and what they have mounted; remove all they wrote."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            if not until(lambda each=process: each.poll() is not None, STOP_SECONDS):  # type: ignore[misc]
                process.kill()
                process.wait()
        for place in reversed(_mounted_below(self._root)):
            subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self._root, ignore_errors=True)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.settimeout(5)
            end.connect(path)
            end.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b" 200 " in end.recv(200)
        except OSError:
            return False


def _mounted_below(folder: str) -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        places = [line.split()[4] for line in lines]
    return [place for place in places if place.startswith(f"{folder}/")]


def main(session: int, answer: str) -> None:
    """Run as the process that keeps the engines of the session."""
    keeper = Keeper(session)
    try:
        found = keeper.start()
        Path(answer).write_text(json.dumps(found))
        os.write(1, b"1")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        keeper.wait()
    finally:
        keeper.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
