"""The imports of Python and JavaScript sources, found without running them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.format.python_source import MAX_SOURCE_BYTES
from skillbelt.running.packages.javascript_imports import javascript_imports
from skillbelt.running.packages.python_imports import (
    MAX_IMPORTS,
    ImportedModule,
    python_imports,
)
from skillbelt.running.packages.started import started_parts
from tests.examples import examples


def modules(source: str | bytes, *, is_main: bool = True) -> list[str]:
    return [one.module for one in python_imports(source, is_main=is_main).modules]


# --- Python --------------------------------------------------------------------------------------


def test_every_form_of_an_import_counts() -> None:
    source = """
import a, b.c as d
from e import f
from . import g
from ..h import i
from google import genai
def later():
    import j
    importlib.import_module("k.l")
    __import__("m")
class C:
    async def n(self):
        with x:
            from o.p import q
"""
    assert modules(source) == [
        "a", "b.c", "e", ".g", "..h", "google.genai", "j", "k.l", "m", "o.p",
    ]  # fmt: skip


def test_what_only_a_type_checker_reads_does_not_count() -> None:
    source = "import typing\nif typing.TYPE_CHECKING:\n    import a\nelse:\n    import b\n"
    assert modules(source) == ["typing", "b"]


def test_a_module_that_is_imported_does_not_run_its_own_main() -> None:
    source = "import a\nif __name__ == '__main__':\n    import b\n"
    assert modules(source) == ["a", "b"]
    assert modules(source, is_main=False) == ["a"]


def test_a_guarded_import_is_optional_unless_the_script_ends_without_it() -> None:
    soft = "try:\n    import a\nexcept ImportError:\n    a = None\n"
    assert python_imports(soft).modules == (ImportedModule("a", optional=True),)
    for end in ("sys.exit(1)", "raise SystemExit", "exit()"):
        hard = f"try:\n    import a\nexcept ImportError:\n    print()\n    {end}\n"
        assert python_imports(hard).modules == (ImportedModule("a"),)
    needed = f"{soft}import a\n"
    assert python_imports(needed).modules == (ImportedModule("a"),)


def test_the_second_of_two_alternatives_names_the_first() -> None:
    source = "try:\n    import a\nexcept (ImportError, OSError):\n    import b\n"
    first, second = python_imports(source).modules
    assert (first.module, second) == ("a", ImportedModule("b", instead_of=("a",)))


def test_a_source_that_cannot_be_parsed_is_read_by_line() -> None:
    source = "import a, b\nfrom c.d import (\n    e)\nprint 'python 2'\n  import f as g # why\n"
    assert modules(source) == ["a", "b", "c.d", "f"]


@pytest.mark.long
@pytest.mark.parametrize(
    "source",
    ["import" + " " * 400_000 + "(", "from " + "a." * 200_000 + "(", "import a.\\\n" * 50_000 + "(",
     "import a, " * 40_000 + "(", "from a import b\n" * 30_000, "".join(
         f"from a import b{one}\n" for one in range(20_000))],
    ids=["spaces", "dots", "continued", "commas", "same", "names"],
)  # fmt: skip
def test_no_source_of_python_takes_long(source: str) -> None:
    """Each of these took minutes or hours: the test would never end."""
    assert len(python_imports(source).modules) <= 500


@pytest.mark.long
@pytest.mark.parametrize("unit", ["'\\", '"\\', "=/[", "=/\\", "`${", "/*", "require("])
def test_no_source_of_javascript_takes_long(unit: str) -> None:
    assert javascript_imports(unit * (400_000 // len(unit))) == ()


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    ["cat <<A\n" + "\n" * 190_000, "cat <<A\nx\n" * 20_000, "<<AAAA" * 30_000,
     "<<" + "a" * 190_000, "x\n" * 100_000, "python3 \0abc\0"],
    ids=["blank", "unended", "words", "word", "lines", "nul"],
)  # fmt: skip
def test_no_script_of_a_shell_takes_long(text: str) -> None:
    assert all(one.text == "abc" for one in started_parts(text))


def test_a_here_document_is_the_code_of_its_command() -> None:
    text = "python3 - <<'EOF'\nimport a\nEOF\ncat <<-X\n\tpython3 b.py\n\tX\npython3 c.py\n"
    assert [one.text for one in started_parts(text)] == ["import a", "c.py"]


def test_a_source_that_changes_the_path_says_so() -> None:
    assert python_imports("import sys\nsys.path.insert(0, 'lib')").changes_path
    assert not python_imports("import sys\nprint(sys.argv)").changes_path


@pytest.mark.parametrize(
    "source",
    [
        b"\x00import a\n" * 3,
        b"\xff\xfe\x00",
        "(" * 100_000,
        "-" * 100_000 + "1",
        "a" + ".b" * 100_000,
        "[" * 90 + "]" * 90,
        "x = " + "f(" * 5000 + ")" * 5000,
        "if 1:\n" + "".join(" " * depth + "if 1:\n" for depth in range(1, 99)),
        "try:\n  pass\n" * 1 + "import " + ",".join(f"a{one}" for one in range(5000)),
    ],
)
def test_a_hostile_source_is_read_within_bounds(source: bytes | str) -> None:
    assert len(python_imports(source).modules) <= MAX_IMPORTS


@pytest.mark.long
def test_of_a_huge_source_the_beginning_counts() -> None:
    many = b"".join(b"import m%d\n" % one for one in range(400_000))
    assert len(many) > 5_000_000
    assert len(python_imports(many).modules) == MAX_IMPORTS
    assert modules(b"#" * MAX_SOURCE_BYTES + b"\nimport a\n") == []


@settings(max_examples=examples(60))
@given(st.one_of(st.text(max_size=200), st.binary(max_size=200)))
def test_any_source_of_python_can_be_read(source: str | bytes) -> None:
    assert all(one.module.isprintable() for one in python_imports(source).modules)


@settings(max_examples=examples(40))
@given(st.lists(st.sampled_from(["os", "yaml", "a.b", "PIL"]), min_size=1, unique=True))
def test_what_is_written_is_found(names: list[str]) -> None:
    assert modules("".join(f"import {name}\n" for name in names)) == names


# --- JavaScript and TypeScript -------------------------------------------------------------------


def test_every_form_of_naming_a_module_counts() -> None:
    source = """#!/usr/bin/env node
import a from 'a'
import { b, c as d } from "b/sub"; import * as e from 'e'
import 'side'
export * from 'exp'; export { x } from 'exp2'
const f = require('f'), g = await import("g")
require.resolve('h'); import i = require('i')
const t = `no ${require('j')} and ${`${require("k")}`}`
const q = 4 / 2 / require('l')
"""
    assert javascript_imports(source) == (
        "a", "b/sub", "e", "side", "exp", "exp2", "f", "g", "h", "i", "j", "k", "l",
    )  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "// require('a')",
        "/* import 'a' */",
        "const s = \"import 'a'\"",
        "const s = `require('a')`",
        "x = /require('a')/.test(y)",
        "this.require('a')",
        "import type { A } from 'a'",
        "export const a = 'a'",
        "requires('a')",
        "from 'a'",
        "require(a)",
        "require('a\\x00b')",
    ],
)
def test_what_names_no_module_does_not_count(source: str) -> None:
    assert javascript_imports(source) == ()


@settings(max_examples=examples(80))
@given(st.text(alphabet="import from require('\"`${}/\\*)\n;ab", max_size=300))
def test_any_source_of_javascript_can_be_read(source: str) -> None:
    assert all(one.isprintable() for one in javascript_imports(source))


@pytest.mark.parametrize("text", ["`${", "/", "'", '"', "{", "/*", "import(", "\\", "/[/"])
def test_reading_javascript_takes_linear_time(text: str) -> None:
    assert len(javascript_imports(text * 100_000)) <= MAX_IMPORTS


def test_sources_are_read_by_several_threads_at_once() -> None:
    """Python 3.11 counts the depth of what it parses for all threads together."""
    text = "import alpha\n" + "x = " + "(" * 60 + "1" + ")" * 60 + "\nimport beta\n" * 200
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: python_imports(text), range(64)))
    assert {tuple(one.module for one in each.modules) for each in found} == {("alpha", "beta")}
