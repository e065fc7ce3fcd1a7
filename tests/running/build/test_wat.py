from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.running.build.skills import built, started

ENDS = """(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $end (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (call $end (i32.const 9))))"""


def test_the_module_does_what_its_text_says(
    sandbox: WasmSandbox, place: Place, tmp_path: Path
) -> None:
    made = built(tmp_path / "one", {"src/main.wat": ENDS})
    assert started(sandbox, place, made).exit_code == 9


def test_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match=r"unknown func.*absent"):
        built(tmp_path / "one", {"src/main.wat": "(module\n  (func (call $absent)))"})


def test_a_text_of_nothing_but_brackets_ends_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunRefused):
        built(tmp_path / "one", {"src/main.wat": "(" * 200_000})
