"""The input of the embedded program; `tests/build/test_python.py` runs it in a component."""

from __future__ import annotations

import ast

from skillbelt.running.build.protocol import Source
from skillbelt.running.build.python import _embed


def test_a_source_is_data_whatever_stands_in_it() -> None:
    hostile = b"'''\"\"\"\\ {out} \xff\nimport os; os.abort()\n"
    text = _embed(Source("src/main.py", {"src/main.py": hostile, "README.md": b""}))
    main, sources = (ast.literal_eval(line.partition(b" = ")[2].decode())
                     for line in text.splitlines())  # fmt: skip
    assert main == "main"
    assert list(sources) == ["main"] and b"abort" not in text


def test_packages_and_modules_keep_their_names() -> None:
    files = {"src/main.py": b"", "src/a/__init__.py": b"", "src/a/b.py": b"", "other.py": b""}
    text = _embed(Source("src/main.py", files)).decode().splitlines()[1]
    sources = ast.literal_eval(text.partition(" = ")[2])
    assert {name: row[:2] for name, row in sources.items()} == {
        "main": ("src/main.py", False),
        "a": ("src/a/__init__.py", True),
        "a.b": ("src/a/b.py", False),
    }
