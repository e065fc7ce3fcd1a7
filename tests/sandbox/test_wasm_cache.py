"""Compiled modules are kept for their owner alone, and what was tampered with is not used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillbelt.sandbox.protocol import run
from skillbelt.sandbox.wasm.modules import ModuleCache
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits
from tests import needs
from tests.sandbox import guests

KEY = "a" * 64


class Shelf:
    """A cache in a folder of its own, with what it told."""

    def __init__(self, folder: Path, max_bytes: int = 2**30) -> None:
        self.folder, self.told = folder / "wasm", list[str]()
        self.cache = ModuleCache(str(self.folder), max_bytes, self.told.append)

    def add(self, key: str = KEY, data: bytes = b"code", kind: str = "module") -> str:
        with self.cache.opened() as folder:
            part, handle = self.cache.new_file(folder)
            os.write(handle, data)
            os.close(handle)
            os.close(self.cache.add(folder, part, key, kind).handle)
        return next(name for name in os.listdir(self.folder) if name.startswith(key))

    def find(self, key: str = KEY) -> bytes | None:
        with self.cache.opened() as folder:
            code = self.cache.find(folder, key)
        if code is None:
            return None
        with open(code.handle, "rb") as file:
            return file.read()

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.folder) if not name.startswith("."))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_what_is_kept_is_found_and_private(shelf: Shelf) -> None:
    name = shelf.add()
    assert shelf.find() == b"code"
    assert shelf.find("b" * 64) is None
    assert shelf.folder.stat().st_mode & 0o777 == 0o700
    assert (shelf.folder / name).stat().st_mode & 0o777 == 0o444
    assert shelf.told == []


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o444)


def _link(path: Path) -> None:
    shutil.copy(path, path.parent / "real")
    path.unlink()
    path.symlink_to("real")


def _other_owner(path: Path) -> None:
    os.chown(path, 61_999, 61_999)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: (path.chmod(0o644), path.write_bytes(b"evil"), path.chmod(0o444)),
        lambda path: path.chmod(0o664),
        lambda path: path.chmod(0o446),
        lambda path: os.link(path, path.parent / "second"),
        lambda path: (path.unlink(), path.write_bytes(b"code")),
        lambda path: (path.unlink(), path.mkdir()),
        _pipe,
        _link,
        pytest.param(_other_owner, marks=needs.root),
    ],
)
def test_what_was_tampered_with_is_not_used(shelf: Shelf, spoil: Callable[[Path], object]) -> None:
    """Attack 60: it is reported, and compiled again."""
    spoil(shelf.folder / shelf.add())
    assert shelf.find() is None
    assert "is not used: " in shelf.told[0]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707, 0o777])
def test_a_folder_that_others_can_use_is_not_used(shelf: Shelf, mode: int) -> None:
    shelf.add()
    shelf.folder.chmod(mode)
    assert shelf.find() is None
    assert "others have access to it" in shelf.told[0]


def test_a_folder_that_is_a_link_is_not_used(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add()
    shelf.folder.rename(tmp_path / "elsewhere")
    shelf.folder.symlink_to("elsewhere")
    assert shelf.find() is None
    assert shelf.told


@needs.root
def test_a_folder_of_somebody_else_is_not_used(shelf: Shelf) -> None:
    shelf.add()
    os.chown(shelf.folder, 61_999, 61_999)
    assert shelf.find() is None
    assert "belongs to another user" in shelf.told[0]


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 3 * 8192)
    for number, key in enumerate("abc"):
        name = shelf.add(key * 64, bytes(8000))
        os.utime(shelf.folder / name, (number, number))
    assert shelf.find("a" * 64)  # now the newest
    shelf.add("d" * 64, bytes(8000))
    assert [name[0] for name in shelf.names()] == ["a", "c", "d"]


def test_what_was_half_written_is_never_seen_and_goes_in_time(shelf: Shelf) -> None:
    with shelf.cache.opened() as folder:
        part, handle = shelf.cache.new_file(folder)
        os.close(handle)
    assert shelf.find() is None
    shelf.add()
    assert (shelf.folder / part).exists()
    old = time.time() - 2 * 24 * 3600
    os.utime(shelf.folder / part, (old, old))
    shelf.add("b" * 64)
    assert not (shelf.folder / part).exists()


def test_one_compiles_at_a_time(shelf: Shelf) -> None:
    with shelf.cache.opened() as folder:
        first = shelf.cache.lock(folder, KEY)
        assert first is not None
        assert shelf.cache.lock(folder, KEY) is None
        os.close(first)
        again = shelf.cache.lock(folder, KEY)
        assert again is not None
        os.close(again)


# --- with a real engine --------------------------------------------------------------------------


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def sandbox(tmp_path: Path, told: list[str]) -> Iterator[WasmSandbox]:
    made = WasmSandbox(Settings(cache_dir=str(tmp_path)), told.append)
    yield made
    made.close()


def compiled(told: list[str]) -> int:
    return sum(line.startswith("compiling /guests/") for line in told)


def test_a_module_is_compiled_once(
    sandbox: WasmSandbox, place: Place, told: list[str], tmp_path: Path
) -> None:
    """Under any name, and in the next runtime too."""
    data = guests.hello("once")
    for name in ("a.wasm", "a.wasm", "b.wasm"):
        assert run(sandbox, guests.job(place, data, name=name)).exit_code == 0
    assert compiled(told) == 1
    other = WasmSandbox(Settings(cache_dir=str(tmp_path)), told.append)
    assert run(other, guests.job(place, data)).exit_code == 0
    other.close()
    assert compiled(told) == 1
    run(sandbox, guests.job(place, guests.hello("twice")))
    assert compiled(told) == 2


def test_code_that_was_replaced_is_not_run(
    sandbox: WasmSandbox, place: Place, told: list[str], tmp_path: Path
) -> None:
    """Not even by valid code of another module, under the name of this one."""
    good, bad = guests.hello("good"), guests.hello("bad")
    shelf = tmp_path / "wasm"
    run(sandbox, guests.job(place, good))
    [one] = [path for path in shelf.iterdir() if ".module." in path.name and _new(path, shelf)]
    run(sandbox, guests.job(place, bad))
    [two] = [path for path in shelf.iterdir() if ".module." in path.name and _new(path, shelf)]
    one.unlink()
    shutil.copy(two, one)
    one.chmod(0o444)
    other = WasmSandbox(Settings(cache_dir=str(tmp_path)), told.append)
    outcome = run(other, guests.job(place, good))
    other.close()
    assert outcome.stdout.data == b"good"
    assert any("its contents do not match its hash" in line for line in told)


def _new(path: Path, shelf: Path) -> bool:
    newest = max(shelf.glob("*.module.*"), key=lambda each: each.stat().st_mtime_ns)
    return path == newest


def test_other_settings_of_the_engine_are_another_key(
    sandbox: WasmSandbox, place: Place, told: list[str]
) -> None:
    data = guests.hello("counted")
    run(sandbox, guests.job(place, data))
    limits = Limits(max_wasm_fuel=10**6)
    assert run(sandbox, guests.job(place, data, limits=limits)).exit_code == 0
    assert compiled(told) == 2


def test_without_a_usable_folder_it_runs_all_the_same(
    sandbox: WasmSandbox, place: Place, told: list[str], tmp_path: Path
) -> None:
    (tmp_path / "wasm").mkdir()
    (tmp_path / "wasm").chmod(0o777)
    assert run(sandbox, guests.job(place, guests.hello())).exit_code == 0
    assert any("compiled modules are not cached" in line for line in told)
    assert os.listdir(tmp_path / "wasm") == []


_AT_ONCE = """
import sys
from skillbelt.sandbox.protocol import Job, Mount, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings
cache, folder, work = sys.argv[1:]
told = []
sandbox = WasmSandbox(Settings(cache_dir=cache), told.append)
mounts = (Mount(folder, "/guests"), Mount(work, work, True))
outcome = run(sandbox, Job(("/guests/guest.wasm",), {}, work, mounts, work))
sandbox.close()
print(outcome.exit_code, sum(line.startswith("compiling /guests/") for line in told))
"""


@pytest.mark.long
def test_processes_that_need_the_same_compile_it_once(place: Place, tmp_path: Path) -> None:
    guests.put(place, "guest.wasm", guests.hello("at once"))
    folder = os.path.join(os.path.dirname(place.folder), "guests")
    argv = [sys.executable, "-c", _AT_ONCE, str(tmp_path), folder, place.folder]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=500)[0].split() for process in started]
    assert [each[0] for each in said] == ["0"] * 3
    assert sum(int(each[1]) for each in said) == 1
