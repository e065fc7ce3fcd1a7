from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.format.skill import Skill
from skillbelt.running.build import c
from skillbelt.running.build.make import check
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.running.build.skills import built, started
from tests.sandbox.guests import hosts

MAIN = """
#include <stdio.h>
#include "twice.h"
int main(int argc, char **argv) {
  int number;
  if (scanf("%d", &number) != 1) return 4;
  printf("%d %s\\n", twice(number), argc > 1 ? argv[1] : "");
  return 3;
}
"""
FILES = {
    "src/main.c": MAIN,
    "src/twice.h": "int twice(int);\n",
    "src/twice.c": '#include "twice.h"\nint twice(int n) { return 2 * n; }\n',
}


def test_all_files_of_the_folder_become_one_module(
    sandbox: WasmSandbox, place: Place, tmp_path: Path
) -> None:
    outcome = started(sandbox, place, built(tmp_path / "one", FILES), b"21", "word")
    assert (outcome.exit_code, outcome.stdout.data) == (3, b"42 word\n"), outcome


def test_the_same_source_gives_the_same_module_wherever_it_lies(tmp_path: Path) -> None:
    one, other = (built(tmp_path / name / "one", FILES) for name in ("here", "elsewhere"))
    assert one.sha256 == other.sha256
    assert check(Skill.from_folder(tmp_path / "here" / "one"), hosts()).current


def test_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match=r"src/main\.c:2:\d+: error: .*absent"):
        built(tmp_path / "one", {"src/main.c": "int main(void) {\n  return absent;\n}\n"})


@pytest.mark.parametrize("how", ['"{}"', '"../../../../../../../..{}"'])
def test_no_file_of_the_host_can_be_included(how: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("int secret;\n")
    text = f"#include {how.format(secret)}\nint main(void) {{ return 0; }}\n"
    with pytest.raises(RunRefused, match=r"not found|No such file"):
        built(tmp_path / "one", {"src/main.c": text})


def test_without_the_compiler_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c, "_LIBRARIES", str(tmp_path))
    with pytest.raises(RunRefused, match="install clang, lld, wasi-libc"):
        built(tmp_path / "one", FILES)
