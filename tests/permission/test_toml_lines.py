from __future__ import annotations

import string
import time
import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.permission.rule_files import Key, key_lines

NAMES = st.text(string.ascii_letters + "-_.*# =[]{}\"'\\é\t", max_size=5)
VALUES = st.recursive(
    st.integers(-9, 9)
    | st.sampled_from([True, 1.5, "x", "a\nb", "", "]", "}", "# no", '"', "'", "a = 1", "\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


class Writer:
    """Writes TOML in one of many ways, and records the line of each key and item."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.text = draw, ""
        self.lines: dict[Key, int] = {}

    def note(self, key: Key) -> None:
        self.lines[key] = self.text.count("\n") + 1

    def table(self, at: Key, table: dict[str, object]) -> None:
        later = []
        for name, value in table.items():
            if isinstance(value, dict) and self.draw(st.booleans()):
                later.append((name, value))
                continue
            self.gap()
            self.note((*at, name))
            self.text += f"{self.quoted(name)}{self.blank()}={self.blank()}"
            self.value((*at, name), value)
            self.text += self.draw(st.sampled_from(["\n", " # x = [1]\n", "\r\n"]))
        for name, value in later:
            self.gap()
            self.note((*at, name))
            header = ".".join(self.quoted(str(part)) for part in (*at, name))
            self.text += f"[{self.blank()}{header}]\n"
            self.table((*at, name), value)

    def value(self, at: Key, value: object) -> None:
        if isinstance(value, list):
            self.array(at, value)
        elif isinstance(value, dict):
            self.inline(at, value)
        elif isinstance(value, str):
            self.text += self.draw(st.sampled_from(list(strings(value))))
        else:
            self.text += str(value).lower()

    def array(self, at: Key, items: list[object]) -> None:
        self.text += "["
        for number, item in enumerate(items):
            self.text += self.draw(st.sampled_from(["", "\n", " # ], x\n  "]))
            self.note((*at, number))
            self.value((*at, number), item)
            if number < len(items) - 1 or self.draw(st.booleans()):
                self.text += self.draw(st.sampled_from([",", "\n,"]))
        self.text += self.draw(st.sampled_from(["]", "\n]"]))

    def inline(self, at: Key, table: dict[str, object]) -> None:
        self.text += "{"
        for number, (name, value) in enumerate(table.items()):
            self.text += ", " if number else self.blank()
            self.note((*at, name))
            self.text += f"{self.quoted(name)} = "
            self.value((*at, name), value)
        self.text += "}"

    def gap(self) -> None:
        self.text += self.draw(st.sampled_from(["", "\n", "# a = '''\n", "  "]))

    def blank(self) -> str:
        return self.draw(st.sampled_from(["", " ", "\t"]))

    def quoted(self, name: str) -> str:
        ways = [text for text in strings(name) if not text.startswith(('"""', "'''"))]
        if name and set(name) <= set(string.ascii_letters + "-_"):
            ways.append(name)
        return self.draw(st.sampled_from(ways))


def strings(text: str) -> Iterator[str]:
    """The ways to write a text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    yield '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'
    yield f'"""{escaped}"""'
    if "'" not in text:
        yield f"'''{text}'''"
        if "\n" not in text:
            yield f"'{text}'"


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, object], dict[Key, int]]:
    writer = Writer(draw)
    table = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    writer.table((), table)
    return writer.text, table, writer.lines


@given(documents())
def test_every_key_has_the_line_it_was_written_in(
    document: tuple[str, dict[str, object], dict[Key, int]],
) -> None:
    text, table, lines = document
    assert tomllib.loads(text) == table
    assert key_lines(text) == {key: line for key, line in lines.items() if len(key) < 10}


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("\na.b.c = 1", ("a", "b", "c"), 2),
        ("\na.b.c = 1", ("a",), 2),
        ("[a]\nb.c = 1\nb.d = 2", ("a", "b", "d"), 3),
        ("[a]\nb.c = 1\nb.d = 2", ("a", "b"), 2),
        ("[[a]]\nb = 1\n[[a]]\nb = 2", ("a", 1, "b"), 4),
        ("[[a]]\nb = 1\n[[a]]\nb = 2", ("a", 0), 1),
        ("a = 1979-05-27T07:32:00.5Z\nb = 1.5e3\nc = 1", ("c",), 3),
        ('a = """\n\\"""b = 1\n"""\nc = 1', ("c",), 4),
        ('a = """x""""\nb = 1', ("b",), 2),
        ("a = {}\nb = [{}, {c = 1}]", ("b", 1, "c"), 2),
    ],
)
def test_ways_to_write_a_key(text: str, key: Key, line: int) -> None:
    tomllib.loads(text)
    assert key_lines(text)[key] == line


@pytest.mark.long
def test_depth_and_length_cost_no_more_than_their_share() -> None:
    deep = "[" * 100_000 + "1," * 100_000 + "]" * 100_000
    started = time.process_time()
    lines = key_lines(f"a = {deep}\nb = 1\n{'c.' * 50_000}d = 1\n")
    assert lines["b",] == 2
    assert max(map(len, lines)) < 10
    assert time.process_time() - started < 20
