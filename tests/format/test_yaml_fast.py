from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillbelt.format import yaml, yaml_fast
from tests.examples import examples


def loaded(text: str) -> yaml.LoadedYaml:
    result = yaml.full(text)
    assert isinstance(result, yaml.LoadedYaml), result
    return result


FAST = {
    "name: pdf\n": {"name": "pdf"},
    "description: C# and a:b#1\n": {"description": "C# and a:b#1"},
    "description: one\n  two\n\n  three\nname: x\n": {"description": "one two\nthree", "name": "x"},
    "description: 'it''s\n  here.\n\n  Then.\n\n  '\n": {"description": "it's here.\nThen.\n"},
    'description: "a: b #c"\n': {"description": "a: b #c"},
    'd: "a \\u2014 \\"b\\" \\\n  \\ c\\n"\n': {"d": 'a — "b"  c\n'},
    "description: |-\n  one\n   two\n\n  three\n": {"description": "one\n two\n\nthree"},
    "description: >\n  one\n  two\n\n  three\n": {"description": "one two\nthree\n"},
    "description:\n  below the\n  key\n": {"description": "below the key"},
    "description:\nname: x\n": {"description": "", "name": "x"},
    "version: 1.10\nname: 123\n": {"version": "1.10", "name": "123"},
    "name: yes\nmodel: null\n": {"name": "yes", "model": ""},
    "k: yes\nl: 'yes'\nm: off\nn: Null\no:\n": {
        "k": True,
        "l": "yes",
        "m": False,
        "n": None,
        "o": None,
    },
    "k: 12\nl: 1.50\nm: 1.0.0\nn: 2024-05-06\no: 3D prints\n": {
        "k": 12,
        "l": 1.5,
        "m": "1.0.0",
        "n": "2024-05-06",
        "o": "3D prints",
    },
    "tags:\n- a b\n- c\nname: x\n": {"tags": ["a b", "c"], "name": "x"},
    "tags:\n  - 'a'\n  - 7\n  - no\n": {"tags": ["a", 7, False]},
    'tags: [a, "b, c", Bash(git *)]\n': {"tags": ["a", "b, c", "Bash(git *)"]},
    'metadata: {"a": "b", "c": "1"}\n': {"metadata": {"a": "b", "c": "1"}},
    "metadata:\n  version: 1.10\n  flag: yes\n  none:\n": {
        "metadata": {"version": "1.10", "flag": "yes", "none": None}
    },
    "metadata:\n  author: me\n  deep:\n    list:\n    - x\n    n: 1\n": {
        "metadata": {"author": "me", "deep": {"list": ["x"], "n": 1}}
    },
    "hooks:\n  Stop:\n    - matcher: a\n      once: true\n    - matcher: b\n": {
        "hooks": {"Stop": [{"matcher": "a", "once": True}, {"matcher": "b"}]}
    },
    "argument-hint: [file]\n": {"argument-hint": "[file]"},
    "argument-hint: <a or b>\n": {"argument-hint": "<a or b>"},
}


@pytest.mark.parametrize("text", FAST)
def test_the_shapes_most_files_have_take_the_fast_reader(text: str) -> None:
    """Case 4."""
    assert yaml_fast.read(text) == FAST[text]
    assert loaded(text).fields == FAST[text]


LEFT = [
    "a: b: c\n",
    "a: b #c\n",
    "a: b:\n",
    "a:\n  b: c #d\n",
    "a:\n  b: c: d\n",
    "a:\n  - b #c\n",
    "a:\n  - 'b' #c\n",
    "a: [b #c]\n",
    "a: *b\n",
    "a: &b c\n",
    "a: !t c\n",
    "a: 0x1F\n",
    "a: 1_000\n",
    "a: 12:30\n",
    "a: -1\n",
    "a: ~\n",
    "a: .inf\n",
    "a: b\na: c\n",
    "a:\n  b: 1\n  b: 2\n",
    "a:\tb\n",
    "a: b\x85c\n",
    "a: b\u2028c\n",
    "a: \ufeffb\n",
    "a: '\n---\n'\n",
    "a: |\n\n  b\n",
    "a: |\n  \n    b\n",
    "a: >\n  b\n    c\n",
    "a: |+\n  b\n\n",
    'a: "\\ud800"\n',
    'a: "b\\\n\n  c"\n',
    "a: [b, ]\n",
    "a: [b: c]\n",
    "a: 'b' c\n",
    "a\n",
    "- a\n",
    " a: b\n",
    "? a\n",
    "a:\n  - b\n - c\n",
    "a:\n    b: c\n  d: e\n",
    "a: '" + " " * 70 + "\n  b'\n",
]


@pytest.mark.parametrize("text", LEFT)
def test_the_fast_reader_leaves_alone_what_it_can_not_prove(text: str) -> None:
    assert yaml_fast.read(text) is None


# fmt: off
WORDS = st.sampled_from([
    "a", "foo", "Yes", "no", "null", "on", "1", "1.0", "1.0.0", "0", "007", "0x1F", "1_0", "1e3",
    "1.5e+3", "12:30", "2024-01-01", "-", "- ", "#", " #c", ":", ": ", "x:", "'", "''", '"', "\\",
    "\\n", '\\"', "\\u00e9", "\\ud800", "\\ ", "\\\n  ", "[", "]", "{", "}", ",", ", ", "&a", "*a",
    "!", "!!str", "|", ">", "%", "@", "`", "?", "? ", "~", "=", "<<", "<a>", "é", "日本", "...",
    "---", " ", "  ", "   ", "\n", "\n ", "\n  ", "\n    ", "\n\n", "\n\n  ", "\n- ", "\n  - ",
    "\n  k: ", "\n    k2: v", "key: v", "$1", "(x)", "+1", "-1", ".5", ".inf", "1.", "802.1x",
    "3D p", "_", "\t",
])
# fmt: on
PIECE = st.lists(WORDS, max_size=5).map("".join)
LINES = st.lists(st.tuples(st.sampled_from(["  ", "  ", "   ", " ", ""]), PIECE), max_size=4)
KEYS = st.sampled_from(
    ["name", "description", "tags", "metadata", "argument-hint", "version", "yes"]
)
VALUE = st.one_of(
    PIECE,
    PIECE.map("'{}'".format),
    PIECE.map('"{}"'.format),
    st.lists(PIECE, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    st.lists(WORDS, max_size=4).map(lambda items: "".join(f"\n- {item}" for item in items)),
    st.lists(st.tuples(KEYS, WORDS), max_size=4).map(
        lambda pairs: "".join(f"\n  {key}: {word}" for key, word in pairs)
    ),
    st.lists(st.tuples(KEYS, WORDS, KEYS), max_size=3).map(
        lambda rows: "".join(f"\n  - {a}: {b}\n    {c}: {b}" for a, b, c in rows)
    ),
    st.tuples(st.sampled_from(["|", ">", "|-", ">-", "|+", ">2"]), LINES).map(
        lambda block: block[0] + "".join(f"\n{indent}{line}" for indent, line in block[1])
    ),
)
ENDS = st.sampled_from(["\n", "\n", " \n", "\n\n"])
DOCUMENTS = st.lists(st.tuples(KEYS, VALUE, ENDS), min_size=1, max_size=4).map(
    lambda entries: "".join(f"{key}: {value}{end}" for key, value, end in entries)
)


@settings(max_examples=examples(2500))
@given(DOCUMENTS)
@example('tags: "a\\\n  "\n')
@example("n: >\n  \n  b\n")
@example("name: | \n \n     [\n")
def test_where_the_fast_reader_answers_it_says_what_yaml_says(text: str) -> None:
    fast = yaml_fast.read(text)
    if fast is not None:
        full = loaded(text)
        assert repr(fast) == repr(full.fields)
        assert not full.problems


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(-9, 9) | PIECE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PIECE, inner, max_size=3),
    max_leaves=9,
)


@settings(max_examples=examples(600))
@given(KEYS, st.dictionaries(PIECE, JSON, min_size=1), st.sampled_from([(",", ":"), (", ", ": ")]))
@example("metadata", {"a": {"b": ["c"], "<<": {}}}, (",", ":"))
@example("description", {"a": {"b": 1}}, (",", ":"))
def test_json_is_read_as_yaml_reads_it(
    key: str, value: dict[str, object], separators: tuple[str, str]
) -> None:
    text = f"{key}: {json.dumps(value, ensure_ascii=False, separators=separators)}\n"
    fast = yaml_fast.read(text)
    if fast is not None:
        assert repr(fast) == repr(loaded(text).fields)


@pytest.mark.parametrize(
    "text",
    [
        'metadata: {"openclaw":{"emoji":"📦","requires":{"bins":["git"]},"always":true}}\n',
        'metadata: {"a": {"b": [1, null, "x: y #z"]}}\n',
        "description:\n  'Reads a file: all of it.'\n",
        'description:\n  "Reads a file,\n  and another."\n',
    ],
)
def test_inline_json_and_text_on_the_next_line_take_the_fast_reader(text: str) -> None:
    assert yaml_fast.read(text) == loaded(text).fields


@pytest.mark.parametrize(
    "text",
    [
        'metadata: {"a": {"b": 1}, "a": {}}\n',
        'metadata: {"a": {"b": "\\u0041"}}\n',
        'metadata: {"a": {"b": 1.5}}\n',
        'metadata: {"a": {"b": 1},}\n',
        'metadata: {"a": ' + "[" * 30 + "]" * 30 + "}\n",
    ],
)
def test_json_that_yaml_may_read_otherwise_is_left_alone(text: str) -> None:
    assert yaml_fast.read(text) is None
