from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.check.fix import fix_bytes
from skillbelt.format import yaml
from skillbelt.format.fields import to_frontmatter
from skillbelt.format.frontmatter import parse, split
from tests.hostile import ENCODINGS_AND_YAML, OUTSIDE_THE_SPECIFICATION, UNREADABLE_TO_YAML, Shape

TEXTS = [*UNREADABLE_TO_YAML, *OUTSIDE_THE_SPECIFICATION, *ENCODINGS_AND_YAML]
every_text = pytest.mark.parametrize("shape", TEXTS, ids=[shape.name for shape in TEXTS])
BODY = "# PDF\n\nText.\n"


def fixed(text: str, folder: str = "pdf") -> str:
    return fix_bytes(text.encode(), folder=folder).data.decode()


def block(*lines: str, body: str = BODY) -> str:
    return "\n".join(["---", *lines, "---", body])


def test_a_good_file_is_left_alone() -> None:
    text = block("name: pdf", "description: Reads.", "# note", "author:   me  ")
    assert fix_bytes(text.encode(), folder="pdf") == (text.encode(), (), ())


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("description: Use when: asked", 'description: "Use when: asked"'),
        ("description: *all* files", 'description: "*all* files"'),
        ('description: Use "x": now', "description: 'Use \"x\": now'"),
        ('description: it\'s: "x"', "description: 'it''s: \"x\"'"),
        ("description: `pdf` reads", 'description: "`pdf` reads"'),
        ("description: Use C# for: #1", 'description: "Use C# for: #1"'),
        ("description: costs $1 and $&: a", 'description: "costs $1 and $&: a"'),
        ("argument-hint: [date] [hours]", 'argument-hint: "[date] [hours]"'),
    ],
)
def test_values_get_quotes_and_other_lines_stay(line: str, wanted: str) -> None:
    """Cases 6 and 8."""
    text = block("name:   pdf", "# why", line, "author: 'x'", "")
    done = fix_bytes(text.encode(), folder="pdf")
    assert done.data.decode() == text.replace(line, wanted)
    assert done.done == ("put values in quotes",)


def test_values_that_have_quotes_stay() -> None:
    """Case 7."""
    text = block("name: pdf", 'description: "Use when: asked"', "license: a: b")
    assert fixed(text) == text.replace("a: b", '"a: b"')


def test_a_value_of_several_lines_becomes_one_that_yaml_reads() -> None:
    text = block("name: pdf", "description: Reads:", "- PDF", "- text", "license: MIT")
    assert fixed(text) == block(
        "name: pdf", "description: |-", "  Reads:", "  - PDF", "  - text", "license: MIT"
    )


def test_comments_survive_a_rewritten_value() -> None:
    text = block("name: pdf", "description: a: b", "  c", "# kept", "", "license: MIT")
    assert fixed(text) == block("name: pdf", 'description: "a: b c"', "# kept", "", "license: MIT")


@pytest.mark.parametrize("line", ['metadata: {"a": 1', "tags: [a, b", "metadata: a\n  b: 1\n c: 2"])
def test_a_broken_list_or_mapping_is_not_turned_into_text(line: str) -> None:
    text = block("name: pdf", "description: Reads.", line)
    assert fixed(text) == text


@pytest.mark.parametrize("glued", ["---# PDF\n\nText.\n", "--- # PDF\n\nText.\n"])
def test_a_glued_closing_line_gets_its_own(glued: str) -> None:
    head = "---\nname: pdf\ndescription: Reads.\n"
    assert fixed(head + glued) == f"{head}---\n# PDF\n\nText.\n"


def test_a_glued_closing_line_before_a_rule_in_the_body() -> None:
    head = "---\nname: pdf\ndescription: Reads.\n"
    assert fixed(f"{head}---# PDF\n\n---\nText.\n") == f"{head}---\n# PDF\n\n---\nText.\n"


@pytest.mark.parametrize(
    ("before", "moved"),
    [
        ("\n\n", ""),
        ("  ", ""),
        ("# Title\n\n", "# Title\n\n"),
        ("<!-- by x -->\n", "<!-- by x -->\n"),
        ("<!-- by x -->", "<!-- by x -->\n"),
    ],
)
def test_misplaced_frontmatter_is_moved_to_the_top(before: str, moved: str) -> None:
    text = block("name: pdf", "description: Reads.")
    wanted = block("name: pdf", "description: Reads.", body=moved + BODY)
    assert fixed(before + text) == wanted


def test_a_fence_around_the_frontmatter_goes() -> None:
    fenced = f"```yaml\n---\nname: pdf\ndescription: Reads.\n---\n```\n{BODY}"
    assert fixed(fenced) == block("name: pdf", "description: Reads.")


def test_a_missing_opening_line_is_added() -> None:
    assert fixed(f"name: pdf\ndescription: Reads.\n---\n{BODY}") == block(
        "name: pdf", "description: Reads."
    )


def test_marks_and_control_characters_go() -> None:
    done = fix_bytes(
        "\ufeff---\nname: pdf\ndescription: Re\x08ads.\x92\n---\na\x08b\n".encode(), folder="pdf"
    )
    assert done.data.decode() == "---\nname: pdf\ndescription: Reads.\n---\na\x08b\n"
    assert done.done == ("removed the byte-order mark", "removed control characters")


def test_a_file_of_nothing_but_marks_does_not_take_long() -> None:
    assert fix_bytes(b"\xef\xbb\xbf" * 700_000, folder="pdf").data == b""


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("allowed_tools: Read", "allowed-tools: Read"),
        ("allowedTools: Read  # why", "allowed-tools: Read  # why"),
        ('"user-invokable": no', '"user-invocable": no'),
        ("Description: other", "Description: other"),
        ("desciption: other", "desciption: other"),
    ],
)
def test_names_of_fields(line: str, wanted: str) -> None:
    text = block("name: pdf", "description: Reads.", line)
    assert fixed(text) == text.replace(line, wanted)


def test_two_spellings_of_one_field_do_not_become_the_same() -> None:
    text = block("name: pdf", "description: Reads.", "allowed_tools: Read", "allowedTools: Grep")
    assert fixed(text) == text.replace("allowed_tools", "allowed-tools")


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("allowed-tools: [Read, Grep]", "allowed-tools: Read Grep"),
        ("allowed-tools: Read, Grep", "allowed-tools: Read Grep"),
        ("allowed-tools:\n  - Read\n  - Bash(git:*)", "allowed-tools: Read Bash(git:*)"),
        ("allowed-tools: [Read, 'Bash(git add *)']", None),
        ("allowed-tools: Read, Bash(git add *)", None),
        ("allowed-tools: Read Grep", None),
        ("allowed-tools: []", None),
        ("allowed-tools:\n  - Read\n  # why\n  - Grep", None),
    ],
)
def test_tools_in_one_string(lines: str, wanted: str | None) -> None:
    """Case 25."""
    text = block("name: pdf", "description: Reads.", lines, "license: MIT")
    assert fixed(text) == text.replace(lines, wanted or lines)


@pytest.mark.parametrize(
    ("folder", "line"), [("pdf", "name: pdf"), ("7", "name: 7"), ("yes", "name: yes")]
)
def test_a_missing_name_is_the_folders(folder: str, line: str) -> None:
    assert fixed(block("description: Reads."), folder) == block(line, "description: Reads.")
    assert fixed(block("description: Reads.", "name:"), folder) == block(
        "description: Reads.", line
    )


@pytest.mark.parametrize("folder", ["My Skills", "Pdf", "a--b", "-a", "a" * 65, ""])
def test_a_folder_that_is_no_name_is_not_taken(folder: str) -> None:
    assert fixed(block("description: Reads."), folder) == block("description: Reads.")


def test_no_frontmatter_is_invented() -> None:
    assert fixed("# PDF\n\nText.\n") == "# PDF\n\nText.\n"


@pytest.mark.parametrize("end", ["", "\r\n"])
def test_line_endings_and_the_end_of_the_file_stay(end: str) -> None:
    """Case 9."""
    text = block("description: a: b", "allowed_tools: Read, Grep", body=f"Text.{end}")
    done = fixed(text.replace("\n", "\r\n").replace("\r\r", "\r"))
    wanted = block("name: pdf", 'description: "a: b"', "allowed-tools: Read Grep", body="Text.")
    assert done == wanted.replace("\n", "\r\n") + end


def test_a_block_whose_lines_end_in_two_ways_is_left_alone() -> None:
    text = "---\r\nname: pdf\ndescription: a: b\r\n---\r\nText.\n"
    assert fixed(text) == text


def test_a_body_whose_lines_end_in_two_ways_stays() -> None:
    text = block("name: pdf", "description: a: b", body="a\r\nb\nc\r\n")
    assert fixed(text) == text.replace("a: b", '"a: b"')


def meaning(data: bytes, folder: str) -> tuple[object, bytes]:
    """Return name, description and all other fields, under the known spelling."""
    parsed = parse(data, path="", folder=folder)
    known = to_frontmatter({"name": folder, **parsed.fields})
    return known._replace(name=known.name or folder), data[parsed.body_offset :]


@every_text
def test_every_hostile_shape_says_the_same_and_is_fixed_once(shape: Shape, tmp_path: Path) -> None:
    shape.write(str(tmp_path))
    data = (tmp_path / "SKILL.md").read_bytes()
    first = fix_bytes(data, folder=shape.name)
    assert fix_bytes(first.data, folder=shape.name) == (first.data, (), first.dropped)
    fields, body = meaning(data, shape.name)
    after, body_after = meaning(first.data, shape.name)
    assert after == fields
    assert body_after.endswith(body.removeprefix("\ufeff".encode()))


KEYS = st.sampled_from(
    ["name", "description", "license", "metadata", "allowed-tools", "allowed_tools", "Name", "x"]
)
VALUES = st.text(alphabet="ab :#*&!|>-'\"[]{},\\\x08\t@`%", max_size=12) | st.sampled_from(
    ["[Read, Grep]", "Read, Grep", "\n  - a\n  - b", "|\n  a\n  b", "", "a\nb", "\n\ta: 1", "a # b"]
)
LINES = st.builds("{}: {}".format, KEYS, VALUES) | st.sampled_from(
    ["# note", "", "stray", "---# x", "...", "- a", "# Heading"]
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Files that are nearly right."""
    opening = draw(
        st.sampled_from(["---\n", "", "\n---\n", "# x\n\n---\n", "\ufeff---\n", "-----\n"])
    )
    closing = draw(st.sampled_from(["---\n", "---# T\n", "-----\n", "", "---", "---\n---\n"]))
    lines = draw(st.lists(LINES, max_size=5))
    text = (
        opening
        + "".join(f"{line}\n" for line in lines)
        + closing
        + draw(st.text("a#-\n ", max_size=6))
    )
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text).encode()


@given(files() | st.binary(max_size=120))
def test_fixing_twice_is_fixing_once(data: bytes) -> None:
    first = fix_bytes(data, folder="pdf")
    again = fix_bytes(first.data, folder="pdf")
    assert again.data == first.data
    assert again.done == ()


@given(files())
def test_fixing_keeps_every_field_that_is_spelled_right(data: bytes) -> None:
    def known(data: bytes) -> dict[str, object]:
        fields = parse(data, path="", folder="pdf").fields
        return {key: fields[key] for key in ("description", "license", "metadata") if key in fields}

    after = known(fix_bytes(data, folder="pdf").data)
    assert {key: after.get(key) for key in known(data)} == known(data)


@given(st.dictionaries(st.sampled_from(["description", "license", "x"]), VALUES, min_size=1))
def test_quoted_values_are_yaml(fields: dict[str, str]) -> None:
    lines = [f"{key}: {value}" for key, value in fields.items()]
    done = fix_bytes(block("name: pdf", *lines).encode(), folder="pdf")
    found = split(done.data)
    if "put values in quotes" in done.done:
        assert found
        text = done.data[found.start : found.end].decode()
        assert isinstance(yaml.load(text), yaml.LoadedYaml)
