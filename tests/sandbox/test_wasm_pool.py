"""The engine process and the turns of those who wait for a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.wasm import engine as wasm_engine
from skillbelt.sandbox.wasm import pool as wasm_pool
from skillbelt.sandbox.wasm.engine import EngineProcess
from skillbelt.sandbox.wasm.pool import WasmPool
from skillbelt.values import Limits
from tests import needs
from tests.bounds import bounds
from tests.handles import no_handle_left


def test_turns_are_taken_in_the_order_of_coming() -> None:
    pool, woken = WasmPool(bounds(max_wasm_workers=2)), []
    tickets = [pool.enter(lambda n=n: woken.append(n)) for n in range(5)]  # type: ignore[misc]
    assert [ticket.granted for ticket in tickets] == [True, True, False, False, False]
    pool.leave(tickets[3])  # gives up its place
    pool.leave(tickets[0])
    assert tickets[2].granted and not tickets[4].granted
    pool.leave(tickets[1])
    assert woken == [0, 1, 2, 4]
    for ticket in (tickets[2], tickets[4]):
        pool.leave(ticket)
    assert pool.enter(lambda: None).granted


def test_the_engine_is_started_once_and_again_when_it_died() -> None:
    pool = WasmPool(Limits())
    first = pool.engine()
    assert pool.engine() is first
    os.kill(first.pid, signal.SIGKILL)
    until = time.monotonic() + 150
    while first.alive and time.monotonic() < until:
        time.sleep(0.01)
    second = pool.engine()
    assert second is not first and second.alive
    assert pool.engine(gone=second) is not second
    pool.close()


def test_the_engine_is_never_root_and_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment, no handle but its own; it is one thread, which a fork needs."""
    monkeypatch.setenv("A_TOKEN", "secret")
    read, write = os.pipe()
    os.set_inheritable(read, True)
    engine = EngineProcess(60.0)
    try:
        status = Path(f"/proc/{engine.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == [str(current_identity().uid)] * 4
        assert (fields["NoNewPrivs"], fields["Threads"]) == ("1", "1")
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0 or os.getuid() != 0
        assert b"secret" not in Path(f"/proc/{engine.pid}/environ").read_bytes()
        assert len(os.listdir(f"/proc/{engine.pid}/fd")) <= 7
        line = Path(f"/proc/{engine.pid}/cmdline").read_bytes()
        assert b"wasm_worker" in line and b"secret" not in line
    finally:
        engine.stop(wait=True)
        os.close(read)
        os.close(write)


def test_an_engine_that_can_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm_engine, "_HERE", "/no/such/folder")
    with (
        no_handle_left(),
        pytest.raises(SandboxUnavailable, match="the engine cannot start: FileNotFoundError"),
    ):
        WasmPool(Limits()).engine()


@needs.root
def test_the_engine_may_lie_where_only_root_can_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is loaded before root is left; so the package of a private home can be used."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    packages = closed / "packages"
    packages.symlink_to(wasm_engine.packages())
    here = closed / "here"
    here.symlink_to(Path(wasm_pool.__file__).parents[1])
    monkeypatch.setattr(wasm_engine, "packages", lambda: str(packages))
    monkeypatch.setattr(wasm_engine, "_HERE", str(here))
    pool = WasmPool(Limits())
    assert pool.engine().alive
    pool.close()


def test_a_folder_for_temporary_files_belongs_to_who_runs() -> None:
    pool = WasmPool(Limits())
    path = pool.temporary()
    found = os.stat(path)
    assert (found.st_uid, found.st_mode & 0o777) == (current_identity().uid, 0o700)
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o711
    assert pool.temporary() != path
    pool.close()
    assert not os.path.exists(os.path.dirname(path))


def test_what_lies_above_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm_pool, "_MAX_TREES", 3)
    pool = WasmPool(Limits())
    tree = pool.tree(["/a/b", "/a/c", "/tmp"])
    assert pool.tree(["/tmp", "/a/c", "/a/b"]) == tree
    assert sorted(os.listdir(os.path.join(tree, "a"))) == ["b", "c"]
    others = [pool.tree([f"/{n}"]) for n in range(3)]
    assert not os.path.exists(tree) and all(map(os.path.exists, others))
    pool.close()


def test_a_folder_that_somebody_uses_is_left_alone() -> None:
    """Even by a process that cannot see its user, as in another container."""
    first, second = WasmPool(Limits()), WasmPool(Limits())
    path = first.temporary()
    second.temporary()
    assert os.path.isdir(path)
    first.close()
    second.close()


def test_a_folder_that_nobody_uses_is_removed() -> None:
    left = tempfile.mkdtemp(prefix="skillbelt-wasm-")
    os.mkdir(os.path.join(left, "inner"))
    pool = WasmPool(Limits())
    pool.root()
    assert os.path.isdir(left)  # one that is just being made has this mode
    pool.close()
    os.chmod(left, 0o711)
    pool.root()
    assert not os.path.exists(left)
    pool.close()


_FORKS = """
import os, sys
from skillbelt.sandbox.wasm.pool import WasmPool
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.handles import no_handle_left
pool = WasmPool(Limits())
engine = pool.engine()
child = os.fork()
if child == 0:
    other = pool.engine()
    fine = other.pid != engine.pid and other.alive
    pool.close()
    os._exit(0 if fine else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(code, engine.alive)
pool.close()
"""


def test_a_fork_of_the_runtime_has_an_engine_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKS], capture_output=True, text=True, timeout=500, check=True
    )
    assert done.stdout.split() == ["0", "True"], done.stderr


def test_nothing_is_below_the_engine_until_something_runs() -> None:
    engine = EngineProcess(60.0)
    assert descendants(engine.pid) == []
    engine.stop(wait=True)
