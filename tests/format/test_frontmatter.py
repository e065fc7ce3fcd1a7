from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.format import fields, frontmatter, yaml_repair
from skillbelt.format import yaml as strict
from tests.bounds import bounds
from tests.examples import examples
from tests.tree import codes

PATH = "desk/SKILL.md"


def read(source: str | bytes, derive: bool = True) -> frontmatter.Parsed:
    data = source.encode() if isinstance(source, str) else source
    return frontmatter.parse(data, path=PATH, folder="desk", derive=derive)


def block(text: str) -> frontmatter.Parsed:
    return read(f"---\n{text}\n---\nBody\n")


GOOD = "---\nname: desk\ndescription: Tidies a desk\n---\n# Desk\n"


def test_a_tidy_file_says_everything_and_has_no_diagnostics() -> None:
    parsed = read(GOOD)
    assert parsed.fields == {"name": "desk", "description": "Tidies a desk"}
    assert (parsed.state, parsed.body_line, parsed.diagnostics) == ("strict", 5, ())
    assert GOOD.encode()[parsed.body_offset :] == b"# Desk\n"


@pytest.mark.parametrize(
    "data",
    [
        GOOD.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("---\n", "--- \t\n").encode(),
    ],
)
def test_marks_and_line_ends_change_nothing(data: bytes) -> None:
    """Case 9."""
    parsed = read(data)
    assert parsed.fields == read(GOOD).fields
    assert (parsed.state, codes(parsed), parsed.body_line) == ("strict", [], 5)
    assert data[parsed.body_offset :].strip() == b"# Desk"


def test_folded_text_with_crlf_is_the_same_as_with_lf() -> None:
    """Case 9."""
    text = "---\ndescription: >\n  one\n  two\n\n  three\ntags:\n- 'a\n  b'\n- c # d\n---\nB"
    assert read(text.replace("\n", "\r\n")).fields == read(text).fields


@pytest.mark.parametrize("end", ["---", "---\n", "---\r\n", "--- "])
def test_the_final_line_end_may_be_missing(end: str) -> None:
    source = "---\nname: a\ndescription: b\n" + end
    parsed = read(source)
    assert (parsed.state, parsed.fields["description"]) == ("strict", "b")
    assert parsed.body_offset == len(source)


def test_three_dashes_inside_values_and_the_body_do_not_split() -> None:
    source = (
        "---\ndescription: a --- b\nnote: |\n  ---\n  c\nx: '---'\n---\nbody\n---\nmore: y\n---\n"
    )
    parsed = read(source)
    assert parsed.fields == {"description": "a --- b", "note": "---\nc\n", "x": "---"}
    assert source[parsed.body_offset :].startswith("body\n---\nmore")


def test_keys_in_the_body_are_not_metadata() -> None:
    """Case 10."""
    assert "version" not in read(GOOD + "\nversion: 2\n---\nversion: 3\n").fields


def test_a_block_scalar_keeps_its_lines_and_drops_the_last_line_end() -> None:
    """Case 4."""
    assert block("description: |-\n  one\n  two").fields["description"] == "one\ntwo"


def test_the_offset_counts_bytes() -> None:
    source = "---\nname: 机\ndescription: 整理桌面 — é\n---\nтекст\n".encode()
    assert source[read(source).body_offset :].decode() == "текст\n"


# --- no frontmatter ------------------------------------------------------------------------------


def test_without_frontmatter_the_text_describes_the_skill() -> None:
    """Case 2."""
    source = "# Desk\n\nTidies a **desk**.\n"
    parsed = read(source)
    assert parsed.fields == {"description": "Tidies a desk."}
    assert (parsed.state, parsed.body_offset, parsed.body_line) == ("derived", 0, 1)
    assert codes(parsed) == ["frontmatter-missing"]
    assert fields.skill_name(parsed.fields, "desk").id == "desk"


@pytest.mark.parametrize(
    "source",
    ["# Desk\n", "", "---\nname: a\n", "---\n: [\n---\n", "---\n---\nText", b"\xef\xbb\xbf"],
)
def test_strict_mode_skips_what_has_no_readable_frontmatter(source: str | bytes) -> None:
    """Case 2."""
    parsed = read(source, derive=False)
    assert (parsed.state, parsed.fields) == ("skipped", {})
    assert [(d.path, d.severity) for d in parsed.diagnostics] == [(PATH, "error")]


def test_frontmatter_that_never_closes_is_body() -> None:
    """Case 3."""
    parsed = read("---\nname: desk\nlicense: MIT\n\n# Desk\n\nTidies.\n")
    assert parsed.fields == {"description": "Tidies."}
    assert (parsed.state, parsed.body_offset) == ("derived", 0)
    assert codes(parsed) == ["frontmatter-unclosed"]


@pytest.mark.parametrize("value", ["Tidies: all", "'Tidies: all'", ">\n  Tidies:\n  all"])
def test_an_open_block_lends_its_description(value: str) -> None:
    """Case 3."""
    for end in ("\n", "\r\n"):
        parsed = read(f"---\nname: desk\ndescription: {value}\n\n# Desk\n".replace("\n", end))
        assert parsed.fields == {"description": "Tidies: all"}
        assert parsed.state == "derived"


@pytest.mark.parametrize("source", [b"", b" \n\n", b"\xef\xbb\xbf", b"\r\n"])
def test_an_empty_file_has_an_empty_description(source: bytes) -> None:
    parsed = read(source)
    assert (parsed.fields, parsed.state) == ({"description": ""}, "derived")
    assert codes(parsed) == ["file-empty"]


def test_an_empty_block_is_not_part_of_the_body() -> None:
    parsed = read("---\n# nothing\n---\nText here\n")
    assert (parsed.state, parsed.fields) == ("derived", {"description": "Text here"})
    assert (parsed.body_line, codes(parsed)) == (4, ["frontmatter-missing"])


def test_a_text_between_rules_is_not_frontmatter() -> None:
    parsed = read("---\n\n# Desk\n\nTidies.\n\n---\nmore\n")
    assert (parsed.fields, parsed.state) == ({"description": "Tidies."}, "derived")
    assert (parsed.body_offset, codes(parsed)) == (0, ["yaml-unreadable"])


def test_readable_frontmatter_without_a_description_is_kept() -> None:
    parsed = block("name: desk")
    assert (parsed.state, parsed.fields, codes(parsed)) == (
        "strict",
        {"name": "desk"},
        ["description-missing"],
    )
    assert codes(block("name: desk\ndescription:")) == ["description-missing"]


def test_a_derived_description_keeps_the_limit() -> None:
    bounds(derived_description_chars=20)
    assert len(str(read("word " * 50).fields["description"])) <= 20


# --- repair --------------------------------------------------------------------------------------


def test_an_unquoted_colon_is_repaired_and_reported_with_its_line() -> None:
    """Case 6."""
    parsed = block("name: desk\ndescription: use when: x")
    assert parsed.fields == {"name": "desk", "description": "use when: x"}
    assert parsed.state == "repaired"
    assert [(d.code, d.severity, d.line) for d in parsed.diagnostics] == [
        ("yaml-repaired", "warning", 3)
    ]
    assert "mapping values" in parsed.diagnostics[0].message
    assert parsed.diagnostics[0].remedy


def test_quoted_values_are_unchanged_by_the_repair() -> None:
    """Case 7."""
    parsed = block("name: 'a: b'\ndescription: \"c: 'd'\"\nbad: e: f")
    assert (parsed.fields["name"], parsed.fields["description"]) == ("a: b", "c: 'd'")


def test_replacement_marks_are_literal() -> None:
    """Case 8."""
    parsed = block("description: $& and $1: \\1 \\g<0>")
    assert parsed.fields["description"] == "$& and $1: \\1 \\g<0>"


def test_a_hash_that_yaml_cuts_at_is_reported() -> None:
    """Case 5."""
    parsed = block("name: desk\ndescription: sorts by #tag # and more")
    assert (parsed.state, parsed.fields["description"]) == ("strict", "sorts by")
    assert [(d.code, d.line) for d in parsed.diagnostics] == [("comment-cut", 3)]
    assert block("description: a: b # c").fields["description"] == "a: b # c"


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("\n\n---\nname: a\ndescription: d\n---\nB\n", "B\n"),
        ("# H\n---\nname: a\ndescription: d: e\n---\nB\n", "B\n"),
        ("---\nname: a\ndescription: d\n---# T\nB\n", "# T\nB\n"),
        ("---\nname: a\ndescription: d\n---# T\n\nB\n\n---\nC\n", "# T\n\nB\n\n---\nC\n"),
        ("---\nname: a\ndescription: d\n------\nB\n", "B\n"),
        ("name: a\ndescription: d\n---\nB\n", "B\n"),
        ("name: a\ndescription: d", ""),
        ("--- name: a description: d ---\nB\n", "B\n"),
        ("```yaml\n---\nname: a\ndescription: d\n---\n```\nB\n", "B\n"),
        ("---\nname: a\ndescription: é: d\n\n# T\n\nB.\n\n---\nC\n", "# T\n\nB.\n\n---\nC\n"),
    ],
)
def test_a_misplaced_block_is_read_and_the_body_starts_behind_it(source: str, body: str) -> None:
    for end in ("\n", "\r\n"):
        data = source.replace("\n", end).encode()
        parsed = read(data)
        assert parsed.fields["name"] == "a"
        assert str(parsed.fields["description"]).startswith(("d", "é: d"))
        assert (parsed.state, codes(parsed)) == ("repaired", ["yaml-repaired"])
        assert data[parsed.body_offset :].decode() == body.replace("\n", end)
        assert parsed.body_line == data[: parsed.body_offset].count(b"\n") + 1


def test_lone_carriage_returns_end_lines() -> None:
    parsed = read(b"---\rname: a\rdescription: d\r---\rBody\r")
    assert parsed.fields == {"name": "a", "description": "d"}
    assert parsed.state == "repaired"


# --- guards --------------------------------------------------------------------------------------

BOMB = "a: &a [x]\nb: [" + ", ".join(["*a"] * 100) + "]"
GUARDS = {
    "frontmatter-too-large": f"---\ndescription: {'x' * 70_000}\n---\n".encode(),
    "yaml-depth": f"---\na: {'[' * 60_000}\n---\n".encode(),
    "yaml-aliases": f"---\n{BOMB}\n---\n".encode(),
}


@pytest.mark.parametrize("code", GUARDS)
def test_a_guard_gives_one_diagnostic_and_skips_the_file(code: str) -> None:
    parsed = read(GUARDS[code])
    assert (parsed.state, parsed.fields, codes(parsed)) == ("skipped", {}, [code])
    assert (parsed.diagnostics[0].severity, parsed.diagnostics[0].path) == ("error", PATH)


@pytest.mark.parametrize(
    "data",
    [
        b"---\nname: caf\xe9\n---\n",
        "---\nname: a\n---\n".encode("utf-16"),
        "---\nname: a\n---\n".encode("utf-16-be"),
        "name".encode("utf-32-le"),
        b"\xc3\x28 prose",
    ],
)
def test_what_is_not_utf8_is_skipped(data: bytes) -> None:
    parsed = read(data)
    assert (parsed.state, codes(parsed)) == ("skipped", ["not-utf8"])


def test_a_character_cut_in_two_by_the_end_of_the_head_is_no_fault() -> None:
    assert read("整理桌面".encode()[:-1]).fields == {"description": "整理桌"}


@pytest.mark.parametrize("mark", ["\0", "\x1b", "\x9d", "\x07"])
def test_control_characters_are_left_out_and_reported(mark: str) -> None:
    parsed = block(f"name: desk\ndescription: a{mark}b")
    assert (parsed.fields["description"], parsed.state) == ("ab", "repaired")
    assert [(d.code, d.line) for d in parsed.diagnostics] == [("control-characters", 3)]


def test_an_open_block_beyond_the_limit_is_too_large() -> None:
    parsed = read(b"---\n" + b"a: b\n" * 20_000)
    assert (parsed.state, codes(parsed)) == ("skipped", ["frontmatter-too-large"])


@pytest.mark.parametrize(
    ("data", "more"),
    [
        (b"---\nname: a\n", True),
        (b"\xef\xbb\xbf---\r\nname: a\r\n", True),
        (b"---\nname: a\n---", True),
        (b"---\nname: a\n---\n", False),
        (b"---\n" + b"x" * 80_000, False),
        (b"# Title\n", False),
        (b"", False),
    ],
)
def test_a_reader_is_told_when_the_head_ends_inside_the_block(data: bytes, more: bool) -> None:
    assert frontmatter.needs_more(data) is more


def test_lines_of_keys_are_counted_in_the_file() -> None:
    source = "---\nname: a\n# c\ndescription: >\n  b: c\nmetadata:\n  x: y\n---\nz: 1\n"
    assert frontmatter.key_lines(source.encode()) == {"name": 2, "description": 4, "metadata": 6}
    assert frontmatter.key_lines(b"name: a\n") == {}


# --- properties ----------------------------------------------------------------------------------

SCALARS = st.booleans() | st.integers(-(2**50), 2**50) | st.text("ab :#-'\"é\n", max_size=30)
DOCUMENTS = st.dictionaries(
    st.sampled_from(["name", "description", "license", "k", "metadata", "allowed-tools", "paths"]),
    SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text("xy"), SCALARS, max_size=3),
    min_size=1,
)


@settings(max_examples=examples(300))
@given(DOCUMENTS)
def test_printing_and_parsing_again_is_stable(document: dict[str, object]) -> None:
    first = block(yaml.safe_dump(document, allow_unicode=True))
    again = block(yaml.safe_dump(json.loads(json.dumps(first.fields)), allow_unicode=True))
    assert first.state == again.state == "strict"
    assert again.fields == first.fields
    assert fields.to_frontmatter(again.fields) == fields.to_frontmatter(first.fields)


@settings(max_examples=examples(300))
@given(DOCUMENTS)
def test_a_valid_document_is_the_same_with_and_without_the_repair(
    document: dict[str, object],
) -> None:
    text = yaml.safe_dump(document, allow_unicode=True)
    loaded = strict.load(text)
    assert isinstance(loaded, strict.LoadedYaml)
    assert yaml_repair.read(text).fields == loaded.fields
    assert block(text).state == "strict"


SOUP = st.lists(
    st.sampled_from(
        [b"---\n", b"---", b"name: a\n", b"description: ", b": ", b"- ", b"\n", b"\r\n"]
    )
    | st.sampled_from([b"\xef\xbb\xbf", b"'", b'"', b"|\n  a\n", b"```\n", b"# T\n", b"\t", b"\0"])
    | st.binary(max_size=6),
    max_size=25,
).map(b"".join)


@settings(max_examples=examples(1000))
@given(SOUP, st.booleans())
def test_no_bytes_raise(data: bytes, derive: bool) -> None:
    parsed = read(data, derive=derive)
    assert 0 <= parsed.body_offset <= len(data)
    assert parsed.diagnostics or parsed.state == "strict"
    assert derive or parsed.state != "derived"
    json.dumps(parsed.fields, allow_nan=False, ensure_ascii=False).encode()
    fields.to_frontmatter(parsed.fields)
    frontmatter.needs_more(data)
    frontmatter.key_lines(data)
    found = frontmatter.split(data)
    assert found is None or 0 < found.start <= found.end < found.body <= len(data)


def test_what_is_written_stays_as_it_is_written() -> None:
    data = b"\xef\xbb\xbf---\r\nname: a\r\nallowed-tools: Read, Bash(git *)\r\n---\r\nBody.\r\n"
    assert frontmatter.written(data) == {"name": "a", "allowed-tools": "Read, Bash(git *)"}
    for other in (b"no frontmatter", b"---\nname: \xff\n---\n", b"---\na: b: c\n---\n"):
        assert frontmatter.written(other) is None
