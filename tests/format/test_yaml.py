from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.format import yaml as strict
from skillbelt.format import yaml_fast
from tests.bounds import bounds
from tests.examples import examples


def loaded(text: str) -> strict.LoadedYaml:
    result = strict.full(text)
    assert isinstance(result, strict.LoadedYaml), result
    return result


def fields(text: str) -> dict[str, object]:
    """Return the result of both readers; the fast one may decline the text."""
    result = loaded(text).fields
    fast = yaml_fast.read(text)
    assert fast is None or repr(fast) == repr(result)
    return result


def broken(text: str) -> strict.BrokenYaml:
    result = strict.load(text)
    assert isinstance(result, strict.BrokenYaml), result
    return result


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


@settings(max_examples=examples(300))
@given(st.dictionaries(st.text("abcdefxyz-", min_size=2, max_size=9), JSON, min_size=1))
def test_what_a_dumper_wrote_is_read_back(value: dict[str, object]) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    known = {key: item for key, item in value.items() if key not in yaml_fast.TEXT_KEYS}
    read = {key: item for key, item in fields(text).items() if key not in yaml_fast.TEXT_KEYS}
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
def test_deep_nesting_is_refused_before_it_is_composed(text: str) -> None:
    result = broken(text + "\n")
    assert (result.problem.code, result.guard) == ("yaml-depth", True)


def test_the_depth_is_a_limit() -> None:
    text = "a: [[[1]]]\n"
    bounds(max_yaml_depth=4)
    assert isinstance(strict.load(text), strict.LoadedYaml)
    bounds(max_yaml_depth=3)
    assert broken(text).guard


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
    result = strict.load(text)
    if isinstance(result, strict.LoadedYaml):
        json.dumps(result.fields, ensure_ascii=False).encode()
    else:
        assert result.guard == (text != "a: 1: 2\n")


@settings(max_examples=examples(300))
@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    assert isinstance(strict.load(text), strict.LoadedYaml | strict.BrokenYaml)


def test_most_files_never_import_yaml() -> None:
    code = (
        "import sys; from skillbelt.format import frontmatter as parse;"
        "p = parse.parse(b'---\\nname: a\\ndescription: b\\n---\\n', path='x', folder='a');"
        "sys.exit(p.state != 'strict' or 'yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "core", "older"),
    [
        ("7", 7, 7),
        ("-1.50", -1.5, -1.5),
        ("1e3", 1000.0, "1e3"),
        ("1.2.3", "1.2.3", "1.2.3"),
        ("2024-01-02", "2024-01-02", "2024-01-02"),
        ("true", True, True),
        ("yes", "yes", True),
        ("'yes'", "yes", "yes"),
        ("", None, None),
        ("~", None, None),
        ("[a, {b: null}]", ["a", {"b": None}], ["a", {"b": None}]),
        ("1_000", "1_000", 1000),
        ("99999999999999999999", 1e20, "99999999999999999999"),
    ],
)
def test_verbatim_types_every_value_as_yaml_does(text: str, core: object, older: object) -> None:
    block = f"name: {text}\n"
    for wanted, found in (
        (core, strict.verbatim(block)),
        (older, strict.verbatim(block, core=False)),
    ):
        assert found == {"name": wanted}
        assert type(found["name"]) is type(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",
        "a: 0x10\n",
        "a: .inf\n",
        "a: {<<: {b: 1}}\n",
        "a: !!python/object:os.system x\n",
        "[a]\n",
        "a: [\n",
        "",
        "a: b: c\n",
    ],
)
def test_verbatim_leaves_alone_what_readers_could_disagree_on(text: str) -> None:
    assert strict.verbatim(text) is None


@pytest.mark.parametrize("word", ["1.10", "010", "yes", "Off", "1_000", "0x1F", ".5", "1:30"])
@pytest.mark.parametrize("form", ["metadata:\n  key: {}\n", "metadata: {{key: {}}}\n"])
def test_a_value_of_metadata_is_what_was_written(word: str, form: str) -> None:
    found = strict.load(f"name: a\n{form.format(word)}")
    assert isinstance(found, strict.LoadedYaml)
    assert found.fields["metadata"] == {"key": word}


def test_other_values_of_metadata_are_what_yaml_makes_of_them() -> None:
    text = "metadata:\n  a: [1.10, yes]\n  b:\n    c: 010\n  d: ~\n  e: 2024-01-02\n"
    found = strict.load(text)
    assert isinstance(found, strict.LoadedYaml)
    want = {"a": [1.1, True], "b": {"c": 8}, "d": None, "e": "2024-01-02"}
    assert found.fields["metadata"] == want
