"""A real PostgreSQL for the tests: one server for all workers, and databases of a test's own.

    from tests.postgres import *   # or name the fixtures
    def test_it(postgres_url: str) -> None: ...

`postgres_url` is a new database for one test. `own_postgres` is a server for one test alone, which
it may kill, stop and start again. Both are from Debian's packages and run as an ordinary user.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from skillbelt.store.postgres.database import _DATABASES
from tests.needs import not_run
from tests.tree import QUICK

# A test that needs no durability waits for no disk.
FAST = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
SMALL = ("-c", "shared_buffers=16MB", "-c", "max_wal_size=128MB", "-c", "max_connections=200")
_START_SECONDS = 300.0
_NUMBERS = itertools.count(1)


def find_programs() -> Path | None:
    """The folder of PostgreSQL's own programs, the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    if found:
        return found[-1].parent
    path = shutil.which("postgres")
    return Path(path).parent if path else None


def _version(program: Path) -> float:
    return float(program.parents[1].name)


class Server:
    """A PostgreSQL server in a folder, reached by a socket there."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.process: subprocess.Popen[bytes] | None = None

    def create(self, template: Path | None = None) -> None:
        """Make the cluster, or copy one that never ran, which is several times as quick."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        if (user := _server_user()) is not None:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        if template:
            subprocess.run(["cp", "-a", str(template), str(self.folder / "data")], check=True)
            return
        self._run(
            "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8",
            "--no-locale", "--no-instructions", "-D", str(self.folder / "data"),
        )  # fmt: skip

    def start(self) -> None:
        """Start the server and wait until it answers."""
        arguments = ["-D", str(self.folder / "data"), "-k", str(self.folder), *self.options]
        arguments += ["-c", "listen_addresses="]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(_programs() / "postgres"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **_as_server_user(),
            )
        until = time.monotonic() + _START_SECONDS
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres")):
                return
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.folder / "log").read_text("utf-8"))
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT at once but cleanly, SIGQUIT as in a crash."""
        assert self.process
        self.process.send_signal(how)
        self.process.wait()

    def url(self, database: str, user: str = "postgres") -> str:
        """The URL of a database."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(_programs() / program), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            **_as_server_user(),
        )


def _programs() -> Path:
    found = find_programs()
    if found is None:
        raise RuntimeError("PostgreSQL is not installed (Debian: apt install postgresql)")
    return found


def _server_user() -> pwd.struct_passwd | None:
    """Who runs the server where the tests run as root, which PostgreSQL refuses."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _as_server_user() -> dict[str, Any]:
    user = _server_user()
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def create_database(server_url: str, **options: str) -> Iterator[str]:
    """A new database in the server of the URL, dropped at the end; its URL."""
    name = f"t{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(server_url, autocommit=True) as db:
        if db.info.server_version >= 150_000:
            options = {"STRATEGY": "file_copy", **options}  # half the work, with little in it
        extra = "".join(f" {key} '{value}'" for key, value in options.items())
        db.execute(sql.SQL("CREATE DATABASE {}" + extra).format(sql.Identifier(name)))
        yield server_url.replace("/postgres?", f"/{name}?")
        for one in list(_DATABASES):
            if one.place.endswith(f"/{name}"):
                one.close()
        db.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _shared_folder(config: pytest.Config) -> Path:
    """A folder that the workers of one run of pytest have in common."""
    worker = getattr(config, "workerinput", None)
    run = worker["testrunuid"][:12] if worker else f"p{os.getpid()}"
    return Path(QUICK or tempfile.gettempdir()) / f"skillbelt-pg-{run}"


def supervise(folder: Path) -> None:
    """Run the shared server until no worker holds the lock any more, however the workers ended."""
    lock = _lock_file(folder)
    with lock.open("w") as held:
        server = Server(folder, *FAST, *SMALL)
        server.create()
        subprocess.run(["cp", "-a", str(folder / "data"), str(folder / "template")], check=True)
        server.start()
        (folder / "ready").touch()
        fcntl.flock(held, fcntl.LOCK_EX)
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink()
        _start_file(folder).unlink(missing_ok=True)


def _lock_file(folder: Path) -> Path:
    return Path(f"{folder}.lock")


def _start_file(folder: Path) -> Path:
    return Path(f"{folder}.start")


@contextmanager
def _server_in_use(folder: Path) -> Iterator[None]:
    """Keep the shared server running; the first worker starts it."""
    while True:
        with _lock_file(folder).open("w") as held, _start_file(folder).open("w") as start:
            fcntl.flock(held, fcntl.LOCK_SH)
            fcntl.flock(start, fcntl.LOCK_EX)
            if not _is_at(held.fileno(), _lock_file(folder)):
                continue  # its server ended meanwhile
            if not _answers(folder):
                shutil.rmtree(folder, ignore_errors=True)  # what a killed run left
                _start_supervisor(folder)
            fcntl.flock(start, fcntl.LOCK_UN)
            yield
            return


def _answers(folder: Path) -> bool:
    if (folder / "ready").exists():
        with suppress(psycopg.OperationalError), psycopg.connect(Server(folder).url("postgres")):
            return True
    return False


def _is_at(descriptor: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())


def _start_supervisor(folder: Path) -> None:
    """Start the server in a process of its own, which outlives this worker while others need it."""
    code = (
        "import sys; from pathlib import Path; from tests.postgres import supervise;"
        "supervise(Path(sys.argv[1]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + _START_SECONDS
    while not (folder / "ready").exists():
        assert process.poll() is None and time.monotonic() < until, "PostgreSQL does not start"
        time.sleep(0.02)
    process.returncode = 0  # nobody waits for it, which is no fault


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of the database `postgres` of a server that all workers share; do not stop it."""
    _need_postgres()
    folder = _shared_folder(pytestconfig)
    with _server_in_use(folder):
        yield Server(folder).url("postgres")


def _need_postgres() -> None:
    if find_programs() is None:
        not_run("needs PostgreSQL: apt install postgresql")


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database for one test."""
    with create_database(postgres_server) as url:
        yield url


@pytest.fixture
def own_postgres(postgres_server: str) -> Iterator[Server]:
    """A durable server for one test, which may end it and start it again."""
    template = Path(postgres_server.partition("host=")[2]) / "template"
    with tempfile.TemporaryDirectory(prefix="skillbelt-pg-", dir=QUICK) as name:
        server = Server(Path(name), *SMALL)
        server.create(template)
        server.start()
        yield server
        if server.process and server.process.poll() is None:
            server.stop()
