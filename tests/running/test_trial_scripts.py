"""The files of a skill that are scripts, and the command that starts each."""

from __future__ import annotations

import pytest

from skillbelt import Skill
from skillbelt.running.trial.scripts import Example, Script, read_script, scripts_of
from tests.tree import Tree

MAIN = "import sys\n\nif __name__ == '__main__':\n    sys.exit(0)\n"


def read(path: str, text: str, *others: str) -> Script:
    script = read_script(path, text.encode(), {path, *others})
    assert script is not None
    return script


def test_scripts_are_told_from_the_other_files(tree: Tree) -> None:
    folder = tree.skill("made")
    scripts = ("run.py", "scripts/a.py", "scripts/b.mjs", "lib/c.sh", "tools/d.ts", "tools/e")
    others = (
        "scripts/__init__.py", "scripts/test_a.py", "tests/helper.py", "assets/page.js",
        "templates/start.py", "types/api.d.ts", "vite.config.js", "lib/x.min.js", "notes.md",
        "scripts/empty.py", "conftest.py",
    )  # fmt: skip
    for path in scripts + others:
        text = "" if path.endswith("empty.py") else "#!/usr/bin/env python3\nprint(1)\n"
        tree.write(folder / path, text).chmod(0o755)
    tree.write(folder / "tools/plain", "#!/bin/sh\n").chmod(0o644)
    found = {one.path: one.language for one in scripts_of(Skill.from_folder(folder))}
    assert sorted(found) == sorted(scripts)
    assert (found["tools/e"], found["lib/c.sh"]) == ("python", "shell")


@pytest.mark.parametrize(
    ("path", "text", "command"),
    [
        ("a.py", MAIN, ("python3", "a.py")),
        ("s/a.js", "console.log(1)", ("node", "s/a.js")),
        ("a.ts", "console.log(1)", ("npx", "tsx", "a.ts")),
        ("a.ts", "#!/usr/bin/env -S deno run\n", ("deno", "run", "a.ts")),
        ("a.sh", "echo hi", ("bash", "a.sh")),
        ("a.py", "this is not python", ("python3", "a.py")),
    ],
)
def test_each_language_is_started_its_own_way(
    path: str, text: str, command: tuple[str, ...]
) -> None:
    assert read(path, text).command == command


def test_a_script_that_imports_relatively_is_started_as_a_module() -> None:
    script = read("scripts/tool/a.py", "from .b import x\n" + MAIN, "scripts/tool/b.py")
    assert (script.command, script.cwd) == (("python3", "-m", "tool.a"), "scripts")


def test_a_script_that_imports_its_own_folder_by_name_is_started_above_it() -> None:
    script = read("scripts/a.py", "from scripts.b import x\n" + MAIN, "scripts/b.py")
    assert (script.command, script.cwd) == (("python3", "-m", "scripts.a"), "")


def test_a_folder_that_is_called_like_a_package_does_not_hide_it() -> None:
    text = "from openpyxl import Workbook\n" + MAIN
    script = read("examples/openpyxl/a.py", text, "examples/openpyxl/b.py")
    assert (script.command, script.cwd) == (("python3", "examples/openpyxl/a.py"), "")


def test_a_script_that_imports_its_neighbour_is_started_as_a_file() -> None:
    script = read("scripts/a.py", "import b\n" + MAIN, "scripts/b.py")
    assert (script.command, script.cwd) == (("python3", "scripts/a.py"), "")


@pytest.mark.parametrize(
    ("path", "text", "library"),
    [
        ("a.py", "import os\nX = 1\n\ndef f():\n    print(1)\n", True),
        ("a.py", "try:\n    import x\nexcept ImportError:\n    x = None\n", True),
        ("a.py", "import sys\nsys.path.insert(0, 'x')\nimport b\n", True),
        ("a.py", "def f(): ...\n\nf()\n", False),
        ("a.py", MAIN, False),
        ("a.js", "module.exports = { a: 1 }\n", True),
        ("a.mjs", "import x from './x.js'\nexport function f() {}\n", True),
        ("a.js", "module.exports = f\nif (require.main === module) f()\n", False),
        ("a.js", "export const x = 1\nmain()\n", False),
        ("a.sh", "helper() {\n  echo hi\n}\nX=1\n", True),
        ("a.sh", "#!/bin/bash\nhelper() {\n  echo hi\n}\n", False),
        ("a.sh", "helper() {\n  echo hi\n}\nhelper\n", False),
    ],
)
def test_a_file_that_only_defines_things_is_a_library(path: str, text: str, library: bool) -> None:
    assert read(path, text).library is library


@pytest.mark.parametrize(
    ("path", "mark"), [("a.py", "#"), ("a.sh", "#"), ("a.js", "//"), ("a.ts", "//")]
)
def test_an_example_stands_in_a_block_of_the_script(path: str, mark: str) -> None:
    lines = ("/// try", 'arguments = ["examples/in.csv", "--top", "3"]', 'stdin = "x\\n"', "///")
    text = "".join(f"{mark} {line}\n" for line in lines)
    found = read(path, f"{text}\nmain()\n").example
    assert found == Example(("examples/in.csv", "--top", "3"), "x\n")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("arguments = [", "not valid TOML"),
        ("arguments = [1]", "a list of texts"),
        ("shell = 'rm'", "unknown key: shell"),
    ],
)
def test_a_broken_example_says_what_is_wrong(line: str, fault: str) -> None:
    found = read("a.py", f"# /// try\n# {line}\n# ///\nmain()\n").example
    assert found is not None and fault in found.fault
