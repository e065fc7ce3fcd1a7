from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.format import yaml as strict
from skillbelt.format import yaml_repair
from tests.examples import examples


def read(text: str) -> dict[str, object]:
    return yaml_repair.read(text).fields


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("use when: x", "use when: x"),
        ("a: b # c: d", "a: b # c: d"),
        ("**Bold** words", "**Bold** words"),
        ("@user does it", "@user does it"),
        ("`tool` does it", "`tool` does it"),
        (", cut off", ", cut off"),
        ("%d items", "%d items"),
        ('"First." Second', "First. Second"),
        ('"tool" is good', '"tool" is good'),
        ('"Use "x" for y"', 'Use "x" for y'),
        ("'it's good'", "it's good"),
        ('"never closed', "never closed"),
        ('"a \\"b\\": \\d"', 'a "b": \\d'),
        ("[date] [length]", "[date] [length]"),
        ('{"a": {"b": 1}', '{"a": {"b": 1}'),
        ("| text after: the bar", "text after: the bar"),
        ("> folded: text\n  and more", "folded: text and more"),
        ("one\ntwo: three four five six", "one"),
        ("one:\n- a\n- b", "one:\n- a\n- b"),
        ("one: x\nstray line", "one: x stray line"),
        ("replace $& with $1: \\1", "replace $& with $1: \\1"),
        ("|\n\tone\n\ttwo", "one\ntwo\n"),
    ],
)
def test_a_value_yaml_refuses_is_kept_as_it_was_meant(line: str, value: str) -> None:
    """Case 6. Case 8."""
    text = f"name: x\ndescription: {line}\nlicense: MIT\n"
    fields = read(text)
    assert fields["description"] == value
    assert (fields["name"], fields["license"]) == ("x", "MIT")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("name:foo\ndescription:bar: baz\n", {"name": "foo", "description": "bar: baz"}),
        ("name: x\ndescription:bar\n", {"name": "x", "description": "bar"}),
        ("name: x\nstray line\ndescription: d\n", {"name": "x", "description": "d"}),
        ("description: see\nhttp://e.test\n", {"description": "see http://e.test"}),
    ],
)
def test_a_known_key_needs_no_blank_and_a_name_has_one_line(
    text: str, fields: dict[str, object]
) -> None:
    assert read(text) == fields


def test_what_yaml_can_read_alone_is_read_by_yaml() -> None:
    """Case 7."""
    text = (
        "name: 'a: b'\n"
        'description: "c: d\\n"\n'
        "bad: e: f\n"
        "tags: [x, 'y: z']\n"
        "n: 7\n"
        "text: |-\n  one\n\n  two\n"
        "metadata:\n  a: {b: [1, true]}\n"
    )
    assert read(text) == {
        "name": "a: b",
        "description": "c: d\n",
        "bad": "e: f",
        "tags": ["x", "y: z"],
        "n": 7,
        "text": "one\n\ntwo",
        "metadata": {"a": {"b": [1, True]}},
    }


def test_a_broken_value_inside_a_mapping_leaves_the_mapping() -> None:
    text = (
        "metadata:\n  author: me: you\n  deep:\n    when: a: b\n    n: 1\nlist:\n  - 'x' y\n  - z\n"
    )
    assert read(text) == {
        "metadata": {"author": "me: you", "deep": {"when": "a: b", "n": 1}},
        "list": ["'x' y", "z"],
    }


def test_tabs_count_as_indentation() -> None:
    assert read("metadata:\n\tauthor: me\n\tn: 1\n") == {"metadata": {"author": "me", "n": "1"}}


def test_comments_and_document_marks_are_not_values() -> None:
    assert read("# note\nname: a\n# other\n...\ndescription: b: c\n") == {
        "name": "a",
        "description": "b: c",
    }


def test_a_cut_value_is_still_reported() -> None:
    mended = yaml_repair.read("x: a: b\nname: c # d\n")
    assert [(p.code, p.line) for p in mended.problems] == [("comment-cut", 2)]


def test_a_block_on_one_line_is_cut_before_known_keys() -> None:
    fields = yaml_repair.one_line("name: a description: does this: that, version: 1.10").fields
    assert fields == {"name": "a", "description": "does this: that", "version": "1.10"}


@pytest.mark.parametrize(
    ("text", "block", "body"),
    [
        ("\n\n---\nname: a\n---\nB", "name: a\n", "B"),
        ("<!-- c -->\n---\nname: a\n---\nB", "name: a\n", "B"),
        ("# H\n\n---\nname: a\n---\nB", "name: a\n", "B"),
        ("----\nname: a\n-----\nB", "name: a\n", "B"),
        ("---\nname: a\n---# T\nB", "name: a\n", "# T\nB"),
        ("```yaml\n---\nname: a\n---\n```\nB", "name: a\n", "B"),
        ("```\nname: a\n```\nB", "name: a\n", "B"),
        ("```\n---\nname: a\n---\nB\n```\n", "name: a\n", "B\n```\n"),
        ("name: a\ndescription: b\n---\nB", "name: a\ndescription: b\n", "B"),
        ("description: b\n\nB", "description: b\n", "\nB"),
        ("--- name: a ---\nB", "name: a", "B"),
    ],
)
def test_a_misplaced_block_is_found(text: str, block: str, body: str) -> None:
    found = yaml_repair.find(text)
    assert found
    assert (text[found.start : found.end], text[found.body :]) == (block, body)


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\nname: a\ndescription: b\n",
        "Some prose\n\n---\n\nmore prose\n\n---\n",
        "line\n" * 20 + "---\nname: a\n---\n",
        "---\nname: a\n\n| a | b |\n---|---\n",
        "Note: this is prose\n",
        "```python\nname = 1\n```\n",
        "",
    ],
)
def test_a_body_is_not_taken_for_a_block(text: str) -> None:
    """Case 10."""
    assert yaml_repair.find(text) is None


def test_a_block_that_swallowed_its_body_ends_at_the_heading() -> None:
    text = "name: a\n# about: b\nk: v\n\n# Title\n\nText\n"
    end, body = yaml_repair.inner_end(text) or (0, 0)
    assert (text[:end], text[body:]) == ("name: a\n# about: b\nk: v\n\n", "# Title\n\nText\n")
    assert yaml_repair.inner_end("name: a\n# only a comment\n") is None


@pytest.mark.parametrize(
    ("body", "description"),
    [
        ("# Title\n\nFirst *line*\nand `more`.\n\nSecond.\n", "First line and more."),
        ("# Only a heading #\n", "Only a heading"),
        ("Title\n=====\n\nText.\n", "Text."),
        ("[![b](i)](l)\n\n<p align=x>Hi <b>you</b></p>\n", "Hi you"),
        ("See [the docs](http://x/a_(b)) and ![pic](y) now", "See the docs and now"),
        ("```\ncode\n```\n\n> Quoted **text**\n", "Quoted text"),
        ("- one\n- two\n", "one two"),
        ("***\n\n<!-- hidden\n\ntext -->\nsnake_case and __strong__\n", "snake_case and strong"),
        ("# A\nText below.\n## B\nOther\n", "Text below."),
        ("```\nonly code\n", "only code"),
        ("\n \n", ""),
        ("", ""),
    ],
)
def test_a_description_is_the_first_paragraph_in_plain_words(body: str, description: str) -> None:
    assert yaml_repair.derive(body, 300) == description
    assert yaml_repair.derive(body.replace("\n", "\r\n"), 300) == description


def test_a_derived_description_is_cut_at_a_word() -> None:
    derived = yaml_repair.derive("word " * 200, 300)
    assert len(derived) <= 300
    assert derived.endswith("word…")


def test_a_paragraph_far_down_is_found() -> None:
    assert yaml_repair.derive("# h\n\n" * 2000 + "Here.", 300) == "Here."


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.text("ab c:#'\"-[]{}é\n", max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("klm", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(["name", "description", "tags", "metadata", "k", "user-invocable"])


@settings(max_examples=examples(400))
@given(st.dictionaries(KEYS, VALUES, min_size=1))
def test_a_valid_document_reads_the_same_line_by_line(value: dict[str, object]) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    whole = strict.load(text)
    assert isinstance(whole, strict.LoadedYaml)
    assert read(text) == whole.fields


@settings(max_examples=examples(400))
@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    for offered in (text, f"---\n{text}", f"name: a\n{text}", f"```\nname: {text}"):
        yaml_repair.read(offered)
        yaml_repair.inner_end(offered)
        yaml_repair.open_description(offered)
        yaml_repair.one_line(offered)
        assert len(yaml_repair.derive(offered, 300)) <= 300
        found = yaml_repair.find(offered)
        assert found is None or 0 <= found.start <= found.end <= found.body <= len(offered)


HOSTILE = {
    "hashes": "# " + "#" * 60_000 + "x",
    "brackets": "[" * 60_000,
    "links": "[a](" * 15_000,
    "tags": "<a " * 20_000,
    "comments": "<!--" * 15_000,
    "ticks": "`" * 60_000,
    "stars": "*" * 60_000 + "a",
    "underscores": "_" * 60_000 + "a",
    "one line": "--- name: a" + " " * 60_000 + "x",
    "separators": "--- name: a" + " ,;" * 20_000 + "x",
    "headings": "k: a: b\n" + "# #\n" * 15_000 + "x",
    "quotes": 'k: "a. ' * 10_000,
    "keys": "a: *b\n" * 10_000,
    "items": "x:\n  - 'a' b\n" + "    c\n" * 10_000,
    "rules": "a\n-\n" * 15_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_takes_time_in_the_square_of_its_length(text: str) -> None:
    yaml_repair.find(text)
    yaml_repair.inner_end(text)
    yaml_repair.read(text)
    yaml_repair.one_line(text)
    assert len(yaml_repair.derive(text, 300)) <= 300
