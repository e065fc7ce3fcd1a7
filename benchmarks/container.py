"""The cost of a call in a warm container, beside `docker exec`: `python -m benchmarks.container`.

Starts an engine of its own, with nothing of yours in it. A command in a container that is kept
ready, `docker exec` of the command line and exec by the SDK take turns, in containers of the same
shape; as whatever else the machine does only ever adds, the time that one run in ten stays below is
taken. Throw-away containers are shown beside `docker run`. Exit code 1 when the bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tests.sandbox.engines import NAMES, Keeper

from benchmarks.run import interleaved
from benchmarks.sandbox import Row, as_json, table
from skillbelt.sandbox.container.engine import LABEL
from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import Job, Mount, run
from skillbelt.settings import Settings

RUNS, ROUNDS = 60, 8
BAR, NO_BAR = 1.3, 1000.0
COMMAND = ("true",)
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class Place(NamedTuple):
    """An engine, and a workspace that the run's user can write to."""

    url: str
    folder: str

    def sandbox(self, reuse: bool) -> ContainerSandbox:
        return ContainerSandbox(Settings(container_engine=self.url, container_reuse=reuse))

    def job(self) -> Job:
        mounts = (Mount(self.folder, self.folder, True),)
        return Job(
            argv=COMMAND, env=ENVIRONMENT, cwd=self.folder, mounts=mounts, workspace=self.folder
        )


class Bare:
    """The engine alone: the very container that the sandbox made, and its command line."""

    def __init__(self, place: Place) -> None:
        from docker import APIClient

        self._client = APIClient(base_url=place.url, version="auto")
        self._docker = [str(shutil.which("docker")), "--host", place.url]
        self._folder = place.folder
        identity = current_identity()
        self._user = f"{identity.uid}:{identity.gid}"
        ours = {"label": f"{LABEL}={os.getpid()}"}
        [self._id] = [one["Id"] for one in self._client.containers(filters=ours)]
        self._image = self._client.inspect_container(self._id)["Image"]

    def exec_by_command(self) -> None:
        """Run `docker exec`, as typed on a command line."""
        self._call("exec", "--user", self._user, "--workdir", self._folder, self._id, *COMMAND)

    def exec_by_library(self) -> None:
        """The same through the SDK."""
        made = self._client.exec_create(
            self._id, list(COMMAND), user=self._user, workdir=self._folder
        )
        self._client.exec_start(made["Id"])
        _checked(self._client.exec_inspect(made["Id"])["ExitCode"])

    def run_by_command(self) -> None:
        """`docker run`, with what holds the container of the sandbox."""
        limits = ("--memory=2g", "--memory-swap=2g", "--pids-limit=129", "--log-driver=none")
        places = (f"--volume={self._folder}:{self._folder}", "--volume=/usr:/usr:ro")
        held = ("--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only")
        self._call(
            "run", "--rm", "--network=none", f"--user={self._user}", *held, *limits, *places,
            "--tmpfs=/tmp", self._image, *COMMAND,
        )  # fmt: skip

    def _call(self, *words: str) -> None:
        subprocess.run([*self._docker, *words], check=True, capture_output=True)

    def close(self) -> None:
        self._client.close()


def warm(place: Place, runs: int) -> list[Row]:
    """A call in a container that is ready over `docker exec` in the same container."""
    sandbox = place.sandbox(reuse=True)
    job = place.job()
    _checked(run(sandbox, job).exit_code)
    bare = Bare(place)
    ours, command, library = interleaved(
        runs,
        lambda: _checked(run(sandbox, job).exit_code),
        bare.exec_by_command,
        bare.exec_by_library,
    )
    bare.close()
    sandbox.close()
    detail = f"{ours * 1000:.1f} ms, docker exec {command * 1000:.1f} ms"
    beside = f"{ours * 1000:.1f} ms, exec by the SDK {library * 1000:.1f} ms"
    return [
        Row("warm", ours / command, BAR, "times docker exec", detail),
        Row("warm, SDK", ours / library, BAR, "times exec by the SDK", beside),
    ]


def throw_away(place: Place, rounds: int) -> Row:
    """A container for one call alone over `docker run`; there is no bar."""
    kept, single = place.sandbox(reuse=True), place.sandbox(reuse=False)
    job = place.job()
    _checked(run(kept, job).exit_code)
    bare = Bare(place)
    ours, command = interleaved(
        rounds, lambda: _checked(run(single, job).exit_code), bare.run_by_command
    )
    bare.close()
    kept.close()
    single.close()
    detail = f"{ours * 1000:.0f} ms, docker run {command * 1000:.0f} ms"
    return Row("throw-away", ours / command, NO_BAR, "times docker run", detail)


def _checked(exit_code: int) -> None:
    assert exit_code == 0, exit_code


@contextmanager
def places(names: Sequence[str]) -> Iterator[dict[str, Place]]:
    """An engine of each name that can be started, and a folder; all gone afterwards."""
    keeper = Keeper(os.getpid())
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    os.chown(folder, *current_identity())
    try:
        started = keeper.start()
        for name in names:
            if started[name].reason:
                print(f"{name}: {started[name].reason}", file=sys.stderr)
        yield {name: Place(started[name].url, folder) for name in names if started[name].url}
    finally:
        keeper.stop()
        shutil.rmtree(folder)


def measure(found: dict[str, Place], runs: int, rounds: int) -> list[Row]:
    rows: list[Row] = []
    calls: list[Callable[[Place], list[Row]]] = [
        lambda place: warm(place, runs),
        lambda place: [throw_away(place, rounds)],
    ]
    for name, place in found.items():
        for call in calls:
            rows += [row._replace(name=f"{name}: {row.name}") for row in call(place)]
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.container", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of throw-away containers")
    parser.add_argument("--engine", choices=NAMES, action="append", help="both by default")
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    with places(options.engine or NAMES) as found:
        rows = measure(found, options.runs, options.rounds)
    print(as_json(rows) if options.json else table(rows))
    return 0 if rows and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
