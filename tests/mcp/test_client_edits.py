"""One entry changes; everything else in the text stays exactly the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.mcp.client_edits import (
    CannotEdit,
    Format,
    Spot,
    drop_entry,
    find_entry,
    put_entry,
    read_settings,
)

SPOT = Spot(("servers",), "skillbelt")
ENTRY = {"command": "/bin/skillbelt", "args": ["serve", "mcp"]}
JSONC = """\
// at the top
{
  /* how it looks */
  "theme": "dark", // mine
  "servers": {
    // the first
    "other": { "command": "x", "env": { "A": "}" } } // after it
    // at the end
  }, // after all
  "last": [1, {"a": 2}],
}
"""
TOML = """\
# mine
model = "gpt" # the best

[servers.other]
command = "x" # [servers.skillbelt]
args = [
  "a", # one
]

# about the last
[last]
a = 1
"""
YAML = """\
# mine
GOOSE_MODEL: "gpt"  # the best
servers:  # all of them
  # built in
  developer:
    enabled: true

  # another
  other:
    args:
      - a
# about the last
last: 1
"""
TEXTS: list[tuple[Format, str]] = [
    ("json", JSONC),
    ("json", json.dumps({"servers": {"a": {}}, "z": 1})),
    ("json", json.dumps({"servers": {}, "z": [1]}, indent="\t")),
    ("json", json.dumps({"z": 1}, indent=4)),
    ("json", '{\r\n  "a": 1\r\n}\r\n'),
    ("json", "{ // nothing yet\n}"),
    ("json", "{}"),
    ("json", '{"servers": {} /* none */}'),
    ("json", '{"servers": {/* none */}}'),
    ("json", '{\n  "a": 1,\n}\n'),
    ("json", ""),
    ("toml", TOML),
    ("toml", "a = 1"),
    ("toml", ""),
    ("toml", "a = 1\r\n"),
    ("yaml", YAML),
    ("yaml", "a: 1"),
    ("yaml", "servers:\nb: 1\n"),
    ("yaml", "servers: {} # none\nb: 1\n"),
    ("yaml", "servers:\n    a:\n        b: 1\n"),
    ("yaml", ""),
]


def read(text: str, format: Format) -> dict[str, Any]:
    return read_settings(text, format, "file")


def lines_of(text: str) -> list[str]:
    return [line.strip().replace(",", "") for line in text.splitlines()]


@pytest.mark.parametrize(("format", "text"), TEXTS)
def test_an_entry_is_added_once_and_taken_out_again(format: Format, text: str) -> None:
    added = put_entry(text, format, SPOT, ENTRY)
    assert find_entry(read(added, format), SPOT) == ENTRY
    assert put_entry(added, format, SPOT, ENTRY) == added
    rest = drop_entry(added, format, SPOT)
    assert find_entry(read(rest, format), SPOT) is None
    before, after = read(text, format), read(rest, format)
    assert {key: value for key, value in after.items() if value} == {
        key: value for key, value in before.items() if value
    }
    assert drop_entry(rest, format, SPOT) == rest


@pytest.mark.parametrize(("format", "text"), [("json", JSONC), ("toml", TOML), ("yaml", YAML)])
def test_every_line_stays_in_its_order(format: Format, text: str) -> None:
    added = iter(lines_of(put_entry(text, format, SPOT, ENTRY)))
    for line in lines_of(text):
        assert line in added, line


@pytest.mark.parametrize(("format", "text"), [("json", JSONC), ("toml", TOML), ("yaml", YAML)])
def test_a_text_is_the_same_after_both(format: Format, text: str) -> None:
    assert drop_entry(put_entry(text, format, SPOT, ENTRY), format, SPOT) == text


@pytest.mark.parametrize(
    ("format", "text", "becomes"),
    [
        (
            "json",
            '{"servers": {\n  "skillbelt": {\n    // mine\n    "command": "old", // why\n'
            '    "env": {"A": "1"}\n  }\n}}',
            '{"servers": {\n  "skillbelt": {\n    // mine\n'
            '    "command": "/bin/skillbelt", // why\n'
            '    "env": {"A": "1"},\n    "args": ["serve", "mcp"]\n  }\n}}',
        ),
        (
            "toml",
            '[servers.skillbelt]\nargs = [\n  "old", # x\n]\ncommand = "old" # why\ntimeout = 9\n'
            "[servers.skillbelt.env]\nA = '1'\n",
            '[servers.skillbelt]\nargs = ["serve", "mcp"]\ncommand = "/bin/skillbelt" # why\n'
            "timeout = 9\n[servers.skillbelt.env]\nA = '1'\n",
        ),
        (
            "yaml",
            "servers:\n  skillbelt:\n    args:\n      - old\n    timeout: 9 # mine\n"
            "    command: old # why\n",
            'servers:\n  skillbelt:\n    args: ["serve", "mcp"]\n    timeout: 9 # mine\n'
            '    command: "/bin/skillbelt" # why\n',
        ),
    ],
)
def test_only_what_differs_is_changed(format: Format, text: str, becomes: str) -> None:
    assert put_entry(text, format, SPOT, ENTRY) == becomes


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("json", '{"servers": 1}'),
        ("json", '{"servers": {}, "servers": {"a": 1}}'),
        ("json", '{"servers": {"skillbelt": 1}}'),
        ("toml", "servers = { a = 1 }"),
        ("toml", "servers = 1"),
        ("toml", 'servers.skillbelt.command = "x"\n'),
        ("toml", '[servers]\nskillbelt = { command = "x" }\n'),
        ("yaml", "servers: {a: 1}"),
        ("yaml", "servers: [1]"),
        ("yaml", "a: 1\n...\n"),
        ("yaml", "{a: 1}"),
    ],
)
def test_what_cannot_be_changed_at_one_place_is_refused(format: Format, text: str) -> None:
    with pytest.raises(CannotEdit):
        put_entry(text, format, SPOT, ENTRY)


@pytest.mark.parametrize(
    ("format", "text", "line"),
    [
        ("json", '{\n  "a": 1\n  "b": 2\n}', "line 3"),
        ("json", '{"a": [' + "[" * 100_000, "nested"),
        ("toml", "a = 1\nb = = 2\n", "line 2"),
        ("yaml", "a: 1\nb: [\n", "line 3"),
        ("yaml", "a: " + "[" * 500 + "]" * 500, "deep"),
    ],
)
def test_a_text_that_is_not_valid_names_the_line(format: Format, text: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as raised:
        put_entry(text, format, SPOT, ENTRY)
    assert "left as it is" in str(raised.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.property
@given(
    document=st.dictionaries(st.sampled_from(["servers", "a", "ü"]), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 2, "\t"]),
    note=st.sampled_from(["", "// a\n", "/* } , */"]),
)
def test_any_document_says_the_same_after(
    document: dict[str, Any], indent: int | str | None, note: str
) -> None:
    text = note + json.dumps(document, indent=indent, ensure_ascii=False) + note
    try:
        added = put_entry(text, "json", SPOT, ENTRY)
    except CannotEdit:
        servers = document.get("servers")
        assert not isinstance(servers, dict) or "skillbelt" in servers
        return
    servers = document.get("servers") or {}
    assert read(added, "json") == {**document, "servers": {**servers, "skillbelt": ENTRY}}
    assert added.startswith(note) and added.endswith(note)
    assert drop_entry(added, "json", SPOT)
