"""The compiled module is the hashed one, even if the file changes meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from skillbelt.sandbox.wasm.modules import (
    COMPILE_TIMEOUT_SECONDS,
    CompiledModule,
    ModuleCache,
    ModuleRefused,
    Modules,
    compile_limits,
    worker_limits,
)
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.handles import no_handle_left

MODULE = b"\0asm\1\0\0\0"


class Compiler:
    """Stands in for a worker: what it compiles comes out as it is, behind a mark."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[bytes] = []
        self.answer: Mapping[str, Any] = {"kind": "module"}
        self.during: Callable[[], object] = bool
        self.modules = Modules(ModuleCache(str(folder / "wasm"), 2**30, print), lambda _: None)

    def __call__(self, order: dict[str, object], handles: list[int]) -> Mapping[str, Any]:
        source, target = handles
        self.during()
        self.seen.append(os.read(source, 2**20))
        os.write(target, b"code of " + self.seen[-1])
        return self.answer

    def ready(self, path: Path, flavour: str = "x", **limits: int) -> CompiledModule:
        file = os.open(path, os.O_RDONLY)
        try:
            return self.modules.get(
                file,
                "name",
                limits=Limits()._replace(**limits),
                flavour=flavour,
                compile_=self,
                pause=time.sleep,
            )
        finally:
            os.close(file)


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "a.wasm"
    path.write_bytes(MODULE + b"one")
    return path


def code(ready: CompiledModule) -> bytes:
    with open(ready.handle, "rb") as file:
        return file.read()


def test_a_module_is_known_by_what_it_holds(compiler: Compiler, module: Path) -> None:
    first = compiler.ready(module)
    other = module.with_name("b.wasm")
    other.write_bytes(module.read_bytes())
    assert compiler.ready(other).key == first.key
    assert compiler.ready(module, "another engine").key != first.key
    assert compiler.ready(module, max_wasm_fuel=5).key != first.key
    assert len(compiler.seen) == 3
    assert code(first) == b"code of " + MODULE + b"one"


def test_a_file_that_changed_is_read_again(compiler: Compiler, module: Path) -> None:
    """Within one tick of the clock too, and when its length and its time stay the same."""
    for number in range(30):
        data = MODULE + b"%03d" % number
        module.write_bytes(data)
        os.utime(module, (1, 1))
        assert code(compiler.ready(module)) == b"code of " + data


def test_a_file_that_is_swapped_while_it_is_compiled_poisons_nothing(
    compiler: Compiler, module: Path
) -> None:
    """Attack 22: the compiler gets a sealed copy."""
    compiler.during = lambda: module.write_bytes(MODULE + b"evil")
    assert code(compiler.ready(module)) == b"code of " + MODULE + b"one"


def test_the_copy_can_not_be_changed(compiler: Compiler, module: Path) -> None:
    def write(order: dict[str, object], handles: list[int]) -> Mapping[str, Any]:
        with pytest.raises(OSError, match="not permitted"):
            os.write(handles[0], b"x")
        return {"unusable": "stop"}

    file = os.open(module, os.O_RDONLY)
    with pytest.raises(ModuleRefused, match="stop"):
        compiler.modules.get(
            file, "n", limits=Limits(), flavour="x", compile_=write, pause=time.sleep
        )
    os.close(file)


def test_what_failed_leaves_nothing_and_is_tried_again(
    compiler: Compiler, module: Path, tmp_path: Path
) -> None:
    compiler.answer = {"unusable": "is bad"}
    with pytest.raises(ModuleRefused, match="is bad"):
        compiler.ready(module)
    assert [name for name in os.listdir(tmp_path / "wasm") if not name.startswith(".lock")] == []
    compiler.answer = {"kind": "component"}
    assert compiler.ready(module).kind == "component"


def test_a_file_that_is_too_long_is_not_read(compiler: Compiler, module: Path) -> None:
    os.truncate(module, 2**40)
    with pytest.raises(ModuleRefused, match="max_wasm_bytes") as caught:
        compiler.ready(module)
    assert caught.value.limit == "max_wasm_bytes"
    assert compiler.seen == []


def test_handles_are_bounded_and_given_back(compiler: Compiler, module: Path) -> None:
    with no_handle_left():
        with no_handle_left(most=8):
            for number in range(20):
                module.write_bytes(MODULE + str(number).encode())
                os.close(compiler.ready(module).handle)
        compiler.modules.close()


def test_a_worker_is_held_to_the_limits() -> None:
    import resource

    found = dict(worker_limits(bounds(Limits(max_cpu_seconds=77), max_open_files=7)))
    assert found[resource.RLIMIT_NOFILE] == (7, 7)
    assert found[resource.RLIMIT_CORE] == (0, 0)
    assert resource.RLIMIT_NPROC not in found


def test_what_is_ours_is_compiled_whatever_a_run_may_take() -> None:
    few = Limits(max_memory_bytes=5, max_cpu_seconds=1)
    ours, theirs = compile_limits(few, True), compile_limits(few, False)
    assert theirs.max_memory_bytes == 5
    assert ours.max_memory_bytes == Limits().max_memory_bytes
    assert min(ours.max_cpu_seconds, theirs.max_cpu_seconds) >= COMPILE_TIMEOUT_SECONDS
