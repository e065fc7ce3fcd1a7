from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillbelt import strict
from skillbelt.values import Limits

LIMITS = Limits()


def loaded(text: str) -> strict.Loaded:
    result = strict.full(text, LIMITS)
    assert isinstance(result, strict.Loaded), result
    return result


def fields(text: str) -> dict[str, object]:
    """What both readers say; the fast one may leave the text alone."""
    result = loaded(text).fields
    quick = strict.fast(text)
    assert quick is None or repr(quick) == repr(result)
    return result


def broken(text: str, limits: Limits = LIMITS) -> strict.Broken:
    result = strict.load(text, limits)
    assert isinstance(result, strict.Broken), result
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
    assert strict.fast(text) == FAST[text]
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
    assert strict.fast(text) is None


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


@settings(max_examples=2500, deadline=None)
@given(DOCUMENTS)
@example('tags: "a\\\n  "\n')
@example("n: >\n  \n  b\n")
@example("name: | \n \n     [\n")
def test_where_the_fast_reader_answers_it_says_what_yaml_says(text: str) -> None:
    quick = strict.fast(text)
    if quick is not None:
        full = loaded(text)
        assert repr(quick) == repr(full.fields)
        assert not full.problems


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz", min_size=1), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text("abcdefxyz-", min_size=2, max_size=9), JSON, min_size=1))
def test_what_a_dumper_wrote_is_read_back(value: dict[str, object]) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    known = {key: item for key, item in value.items() if key not in strict.TEXT_KEYS}
    read = {key: item for key, item in fields(text).items() if key not in strict.TEXT_KEYS}
    assert read == known


def test_text_fields_keep_their_source() -> None:
    text = "name: 0x10\nversion: 1_0.10\ndescription: ~\nlicense: 2024-01-01\nmodel: !!int 5\n"
    assert fields(text) == {
        "name": "0x10",
        "version": "1_0.10",
        "description": "",
        "license": "2024-01-01",
        "model": "5",
    }


def test_dates_stay_text_even_when_there_is_no_such_day() -> None:
    assert fields("a: 2026-13-45\nb: 2024-01-01T10:00:00Z # x\n") == {
        "a": "2026-13-45",
        "b": "2024-01-01T10:00:00Z",
    }


def test_numbers_json_does_not_know_stay_text() -> None:
    text = f"a: .inf\nb: .NaN\nc: {'9' * 5000}\nd: 0x1F\ne: 12:30\nf: {2**70}\n"
    result = fields(text)
    json.dumps(result, allow_nan=False)
    assert (result["a"], result["b"], result["d"], result["e"]) == (".inf", ".NaN", 31, 750)
    assert (result["c"], result["f"]) == ("9" * 5000, str(2**70))


def test_a_duplicate_key_is_reported_once_and_the_last_one_counts() -> None:
    result = loaded("a: 1\nb:\n  c: 1\n  c: 2\na: 2\na: 3\n")
    assert result.fields == {"a": 3, "b": {"c": 2}}
    assert [(p.code, p.line) for p in result.problems] == [
        ("duplicate-key", 4),
        ("duplicate-key", 5),
    ]


def test_merge_keys_work_and_do_not_override() -> None:
    text = "base: &b {x: 1, y: 2}\nmore:\n  <<: [*b, {z: 4, x: 9}]\n  y: 3\n"
    assert fields(text)["more"] == {"x": 1, "z": 4, "y": 3}


def test_keys_that_are_not_text_become_text() -> None:
    text = "1: a\nyes: b\n? [c, 2]\n: d\nx: {2: e}\n"
    assert fields(text) == {"1": "a", "yes": "b", '["c", 2]': "d", "x": {"2": "e"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k: !!python/object/apply:os.system [echo]\n", ["echo"]),
        ("k: !custom {a: 1}\n", {"a": 1}),
        ("k: !!binary aGk=\n", "aGk="),
    ],
)
def test_no_object_is_built_from_a_tag(text: str, value: object) -> None:
    result = loaded(text)
    assert result.fields == {"k": value}
    assert [p.code for p in result.problems] == ["yaml-tag"]


def test_a_value_cut_at_a_hash_is_reported_for_name_and_description() -> None:
    """Case 5."""
    result = loaded("name: 日本 # a\ndescription: b #c\nother: d # e\nlicense: 'f' # g\n")
    assert result.fields["description"] == "b"
    assert [(p.code, p.line) for p in result.problems] == [("comment-cut", 1), ("comment-cut", 2)]


def test_syntax_errors_name_their_line() -> None:
    result = broken("a: b\nc: d: e\n")
    assert (result.guard, result.problem.line) == (False, 2)
    assert broken("just text\n").problem.code == "yaml-syntax"


DEEP = [
    "a: " + "[" * 60_000,
    "a: " + "[" * 3000 + "]" * 3000,
    "- " * 30_000,
    "a:\n  " + "- " * 30_000,
    "? " * 30_000,
    "{a: " * 15_000,
    "\n".join(" " * depth + "a:" for depth in range(300)),
    "\n".join("  " * depth + "- a:" for depth in range(150)),
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
@pytest.mark.timeout(20)
def test_deep_nesting_is_refused_before_it_is_composed(text: str) -> None:
    result = broken(text + "\n")
    assert (result.problem.code, result.guard) == ("yaml-depth", True)


def test_the_depth_is_a_limit() -> None:
    text = "a: [[[1]]]\n"
    assert isinstance(strict.load(text, LIMITS._replace(max_yaml_depth=4)), strict.Loaded)
    assert broken(text, LIMITS._replace(max_yaml_depth=3)).guard


def _doubling(levels: int) -> str:
    lines = [f"k{n}: &k{n} [*k{n - 1}, *k{n - 1}]" for n in range(1, levels)]
    return "\n".join(["k0: &k0 [lol, lol]", *lines]) + "\n"


BOMBS = [
    "a: &a [x]\nb: [" + ", ".join(["*a"] * 65) + "]\n",
    _doubling(30),
    "a: &a [*a]\n",
    "a: &a {? *a : b}\n",
    "a: &a\n  <<: *a\n",
    "a: &a " + "x" * 30_000 + "\n" + "".join(f"k{n}: *a\n" for n in range(60)),
]


@pytest.mark.parametrize("text", BOMBS, ids=range(len(BOMBS)))
@pytest.mark.timeout(20)
def test_alias_bombs_are_refused(text: str) -> None:
    result = broken(text)
    assert (result.problem.code, result.guard) == ("yaml-aliases", True)


def test_a_few_aliases_are_fine() -> None:
    assert fields("a: &a [x]\nb: *a\nc: *a\n") == {"a": ["x"], "b": ["x"], "c": ["x"]}


@pytest.mark.parametrize("text", ["a: 1: 2\n", *BOMBS[2:5], DEEP[1] + "\n", 'a: "\\ud800"\n'])
def test_without_libyaml_the_answers_are_of_the_same_kind(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    result = strict.load(text, LIMITS)
    if isinstance(result, strict.Loaded):
        json.dumps(result.fields, ensure_ascii=False).encode()
    else:
        assert result.guard == (text != "a: 1: 2\n")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    assert isinstance(strict.load(text, LIMITS), strict.Loaded | strict.Broken)


def test_most_files_never_import_yaml() -> None:
    code = (
        "import sys; from skillbelt import parse;"
        "p = parse.parse(b'---\\nname: a\\ndescription: b\\n---\\n', path='x', folder='a');"
        "sys.exit(p.state != 'strict' or 'yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
