from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.check.check import check_all, check_bytes, check_file, raw_fields
from skillbelt.check.rules import RULES
from skillbelt.format.frontmatter import MAX_CHECKED_BYTES
from skillbelt.values import Diagnostic
from tests.tree import Tree

GOOD = "---\nname: pdf\ndescription: Reads PDF files.\n---\n# PDF\n"


def found(text: str | bytes, folder: str = "pdf", *, strict: bool = False) -> list[Diagnostic]:
    data = text.encode() if isinstance(text, str) else text
    return list(check_bytes(data, f"/skills/{folder}/SKILL.md", strict=strict).diagnostics)


def codes(text: str | bytes, folder: str = "pdf", *, strict: bool = False) -> list[str]:
    return [diagnostic.code for diagnostic in found(text, folder, strict=strict)]


def errors(text: str | bytes, folder: str = "pdf") -> list[str]:
    """The codes that strict mode rejects."""
    return [each.code for each in found(text, folder, strict=True) if each.severity == "error"]


def skill(*lines: str, body: str = "# PDF\n") -> str:
    return "\n".join(["---", "name: pdf", "description: Reads PDF files.", *lines, "---", body])


def named(name: str) -> str:
    return f"---\nname: {name}\ndescription: Reads PDF files.\n---\n# PDF\n"


def described(description: str) -> str:
    return f"---\nname: pdf\ndescription: {description}\n---\n# PDF\n"


def test_a_good_skill_has_no_finding() -> None:
    assert found(GOOD, strict=True) == []


# --- name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "a" * 64, "pdf-2", "7", "a-b-c"])
def test_names_that_are_allowed(name: str) -> None:
    """Case 23."""
    assert found(named(name), name, strict=True) == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a" * 65, "name-length"),
        ("Bad_Name", "name-characters"),
        ("bad_name", "name-characters"),
        ("Bad", "name-characters"),
        ("bad name", "name-characters"),
        ("dateien-für", "name-characters"),
        ("-bad", "name-hyphens"),
        ("bad-", "name-hyphens"),
        ("bad--name", "name-hyphens"),
    ],
)
def test_names_that_strict_mode_rejects(name: str, code: str) -> None:
    """Case 23."""
    assert errors(named(name), name) == [code]


@pytest.mark.parametrize("name", ["a" * 65, "Bad_Name", "-bad", "bad--name"])
def test_a_wrong_name_loads_anyway(name: str) -> None:
    assert {each.severity for each in found(named(name), name)} == {"warning"}


def test_letters_of_other_scripts_are_wrong_only_in_strict_mode() -> None:
    assert codes(named("文件-für"), "文件-für") == []
    assert codes(named("Über"), "Über") == ["name-characters"]


def test_the_name_is_the_folders() -> None:
    [diagnostic] = found(GOOD, "other")
    assert (diagnostic.code, diagnostic.line) == ("name-folder", 2)
    assert "'pdf'" in diagnostic.message
    assert "'other'" in diagnostic.message


def test_two_spellings_of_a_letter_are_the_same_name() -> None:
    assert codes(named("fu\u0308r"), "f\u00fcr") == []


@pytest.mark.parametrize("line", ["name:", 'name: ""', "title: PDF"])
def test_a_missing_name_is_reported_once(line: str) -> None:
    said = errors(f"---\n{line}\ndescription: Reads.\n---\n# PDF\n")
    assert [code for code in said if code.startswith("name")] == ["name-missing"]


@pytest.mark.parametrize("name", ["claude-api", "my-anthropic", "nul", "com1"])
def test_reserved_names_are_warned_about(name: str) -> None:
    assert codes(named(name), name) == ["name-reserved"]
    assert errors(named(name), name) == []


def test_a_name_that_only_contains_the_letters_of_a_reserved_word_is_fine() -> None:
    assert codes(named("claudette-console"), "claudette-console") == []


def test_the_message_says_what_an_unsafe_name_is_replaced_by() -> None:
    said = found(named('"../evil\\e[31m"'))
    [wrong] = [each for each in said if each.code == "name-characters"]
    assert "the skill is called 'pdf'" in wrong.message
    assert "\x1b" not in "".join(map(str, said))


# --- description ---------------------------------------------------------------------------------


def test_description_of_1024_characters() -> None:
    """Case 24."""
    assert found(described("é" * 1024), strict=True) == []


def test_description_of_1025_characters() -> None:
    """Case 24."""
    assert errors(described("é" * 1025)) == ["description-length"]
    assert [each.severity for each in found(described("é" * 1025))] == ["warning"]


@pytest.mark.parametrize("text", ["Reads <b>PDF</b>.", "Use when x > 3.", "a <b"])
def test_description_with_angle_brackets(text: str) -> None:
    """Case 24."""
    assert errors(described(text)) == []
    for strict in (False, True):
        [said] = found(described(text), strict=strict)
        assert (said.code, said.severity) == ("description-tags", "warning")


@pytest.mark.parametrize("line", ["", 'description: "   "\n', "description: '\u3000'\n"])
def test_a_missing_or_blank_description_is_an_error_in_both_modes(line: str) -> None:
    text = f"---\nname: pdf\n{line}---\n# PDF\n"
    assert [(each.code, each.severity) for each in found(text)] == [
        ("description-missing", "error")
    ]
    assert errors(text) == ["description-missing"]


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\U000e0041", "\u2066", "a\u200db"])
def test_hidden_text_is_a_warning(hidden: str) -> None:
    [diagnostic] = found(described(f"Reads {hidden} files."))
    assert (diagnostic.code, diagnostic.line) == ("hidden-text", 3)
    assert f"U+{ord(hidden.strip('ab')):04X}" in diagnostic.message


@pytest.mark.parametrize("text", ["👩‍👩‍👧 families", "می\u200cخواهم", "naïve — “quoted”"])
def test_ordinary_writing_is_not_hidden_text(text: str) -> None:
    assert codes(described(text)) == []


# --- other fields --------------------------------------------------------------------------------


def test_all_specified_fields_pass_strict_mode() -> None:
    text = skill(
        "license: MIT", "compatibility: git", "metadata:", '  a: "1"', "allowed-tools: Read Grep"
    )
    assert found(text, strict=True) == []


def test_compatibility_of_500_and_501_characters() -> None:
    assert errors(skill(f"compatibility: {'a' * 500}")) == []
    assert errors(skill(f"compatibility: {'a' * 501}")) == ["compatibility-length"]
    assert errors(skill("compatibility:")) == ["compatibility-length"]


@pytest.mark.parametrize("field", ["compatibility", "license"])
def test_wrong_type_is_reported_once_and_with_its_line(field: str) -> None:
    [diagnostic] = found(skill(f"{field}: {{a: b}}"), strict=True)
    assert (diagnostic.code, diagnostic.line) == ("field-type", 4)


@pytest.mark.parametrize("value", ["1", "[a]", "{b: c}", "true"])
def test_metadata_values_are_text(value: str) -> None:
    text = skill("metadata:", f"  a: {value}", "  b: text")
    assert errors(text) == ["metadata-values"]
    [diagnostic] = found(text)
    assert (diagnostic.severity, diagnostic.line) == ("info", 4)
    assert "'a'" in diagnostic.message
    assert "'b'" not in diagnostic.message


@pytest.mark.parametrize("value", ["[Read, Grep]", "Read, Grep", "Read,Bash(git add:*)"])
def test_tools_that_are_not_one_string_with_blanks(value: str) -> None:
    assert errors(skill(f"allowed-tools: {value}")) == ["allowed-tools-form"]
    assert [each.severity for each in found(skill(f"allowed-tools: {value}"))] == ["info"]


@pytest.mark.parametrize("value", ["Read", "Read Bash(git add:*)", "Bash(a,b) Read"])
def test_tools_that_are_one_string_with_blanks(value: str) -> None:
    assert found(skill(f"allowed-tools: {value}"), strict=True) == []


def test_unknown_fields_are_errors_in_strict_mode_only() -> None:
    text = skill("author: me")
    assert [(each.code, each.severity, each.line) for each in found(text)] == [
        ("field-unknown", "info", 4)
    ]
    assert errors(text) == ["field-unknown"]


def test_fields_of_clients_are_unknown_in_strict_mode_only() -> None:
    text = skill("when_to_use: always", "user-invocable: false", "model: inherit")
    assert codes(text) == []
    assert errors(text) == ["field-unknown"] * 3


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("desciption: x", ""),
        ("allowed_tools: Read", "allowed-tools"),
        ("user-invokable: true", "user-invocable"),
        ("licence: MIT", "license"),
        ("compatability: git", "compatibility"),
    ],
)
def test_misspelled_fields_name_the_known_one(line: str, known: str) -> None:
    said = found(skill(line))
    if known:
        assert [(each.code, each.remedy) for each in said] == [
            ("field-misspelled", f"write `{known}` (--fix --unsafe-fixes does)")
        ]
    else:  # the right field stands there too
        assert [each.code for each in said] == ["field-unknown"]


def test_misspelled_description() -> None:
    text = "---\nname: pdf\ndesciption: Reads.\n---\n# PDF\n"
    assert sorted(codes(text)) == ["description-missing", "field-misspelled"]


# --- the file and its body -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD"])
def test_other_spellings_of_the_file_name(name: str) -> None:
    [diagnostic] = check_bytes(GOOD.encode(), f"/skills/pdf/{name}").diagnostics
    assert (diagnostic.code, diagnostic.severity) == ("file-name", "error")


def test_byte_order_mark_and_line_endings_are_notes() -> None:
    text = ("\ufeff" + GOOD).replace("\n", "\r\n")
    assert [(each.code, each.severity) for each in found(text, strict=True)] == [
        ("byte-order-mark", "info"),
        ("line-endings", "info"),
    ]


def test_what_the_parser_says_is_said_once() -> None:
    text = "---\nname: pdf\ndescription: Use when: asked\n---\n# PDF\n"
    [diagnostic] = found(text)
    assert (diagnostic.code, diagnostic.severity, diagnostic.line) == (
        "yaml-repaired",
        "warning",
        3,
    )
    assert errors(text) == ["yaml-repaired"]


def test_no_frontmatter_is_one_finding() -> None:
    assert [(each.code, each.severity) for each in found("# PDF\n\nText.\n")] == [
        ("frontmatter-missing", "warning")
    ]
    assert errors("# PDF\n\nText.\n") == ["frontmatter-missing"]


@pytest.mark.parametrize("body", ["", "\n\n  \n"])
def test_empty_body(body: str) -> None:
    assert codes(f"---\nname: pdf\ndescription: Reads.\n---\n{body}") == ["body-empty"]


def test_body_of_500_and_501_lines() -> None:
    assert codes(skill(body="a\n" * 500)) == []
    assert codes(skill(body="a\n" * 501)) == ["body-long"]


def test_body_of_5000_and_more_tokens() -> None:
    assert codes(skill(body="a" * 20_000)) == []
    [diagnostic] = found(skill(body="a" * 20_001))
    assert (diagnostic.code, diagnostic.line) == ("body-long", 5)


def test_body_that_is_not_utf8() -> None:
    [diagnostic] = found(GOOD.encode() + b"caf\xe9\n")
    assert (diagnostic.code, diagnostic.line) == ("body-encoding", 6)


def test_findings_come_in_the_order_of_lines() -> None:
    text = "---\ndescription: <b>\nmodell: x\nname: Pdf\n---\n"
    lines = [each.line for each in found(text, strict=True) if each.line]
    assert lines == sorted(lines)
    assert len(lines) > 3


# --- on disk -------------------------------------------------------------------------------------


def on_disk(folder: Path, *, strict: bool = False) -> list[tuple[str, int | None]]:
    said = check_file(str(folder / "SKILL.md"), strict=strict).diagnostics
    return [(each.code, each.line) for each in said]


def test_missing_links_and_mentions(tree: Tree) -> None:
    folder = tree.skill(
        "pdf", text="[a](references/a.md)\n[b](references/b.md#x)\n`scripts/c.py` `scripts/d.py`\n"
    )
    tree.write("pdf/references/a.md", "text")
    tree.write("pdf/scripts/c.py", "pass")
    assert on_disk(folder) == [("reference-missing", 6), ("mention-missing", 7)]


def test_links_that_lead_out(tree: Tree) -> None:
    tree.write("other/SKILL.md", "text")
    folder = tree.skill("pdf", text="[a](../other/SKILL.md)\n[b](/etc/passwd)\n")
    assert on_disk(folder) == [("reference-outside", 5), ("reference-outside", 6)]


def test_a_missing_file_is_told_of_once(tree: Tree) -> None:
    assert on_disk(tree.skill("pdf", text="[a](x.md) [b](./x.md)\n\n[c](x.md)\n")) == [
        ("reference-missing", 5)
    ]


def test_chain_of_documents(tree: Tree) -> None:
    folder = tree.skill("pdf", text="[a](references/a.md)\n[b](references/b.md)\n")
    tree.write("pdf/references/a.md", "[b](b.md)\n[c](c.md)\n[self](../SKILL.md)\n")
    tree.write("pdf/references/b.md", "[c](references/c.md)")
    tree.write("pdf/references/c.md", "text")
    said = check_file(str(folder / "SKILL.md")).diagnostics
    assert [(each.code, os.path.basename(each.path), each.line) for each in said] == [
        ("reference-chain", "a.md", 2),
        ("reference-chain", "b.md", 1),
    ]


def test_a_linked_pipe_is_not_waited_for(tree: Tree) -> None:
    folder = tree.skill("pdf", text="[a](a.md)\n")
    os.mkfifo(folder / "a.md")
    assert on_disk(folder) == [("entry-unusable", None)]


def test_only_the_beginning_of_a_large_file_is_checked(tree: Tree) -> None:
    folder = tree.skill("pdf", text="a\n" * MAX_CHECKED_BYTES)
    assert [code for code, _ in on_disk(folder)] == ["file-cut", "body-long"]


def test_a_character_at_the_end_of_what_is_read_is_not_broken(tree: Tree) -> None:
    folder = tree.skill("pdf", text="€" * MAX_CHECKED_BYTES)
    assert "body-encoding" not in [code for code, _ in on_disk(folder)]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: os.mkdir(path), "not-a-file"),
        (lambda path: os.mkfifo(path), "not-a-file"),
        (lambda path: os.symlink("/dev/zero", path), "not-a-file"),
        (lambda path: os.symlink("nowhere", path), "broken-link"),
        (lambda path: os.symlink("SKILL.md", path), "broken-link"),
        (lambda path: None, "unreadable"),
    ],
    ids=["folder", "pipe", "device", "broken", "loop", "nothing"],
)
def test_what_is_no_file_is_one_error(tmp_path: Path, make: object, code: str) -> None:
    assert callable(make)
    make(tmp_path / "SKILL.md")
    [diagnostic] = check_file(str(tmp_path / "SKILL.md")).diagnostics
    assert (diagnostic.code, diagnostic.severity) == (code, "error")


def test_the_same_name_twice_among_those_checked(tree: Tree) -> None:
    folders = [tree.skill(f"{place}/pdf") for place in "abc"] + [tree.skill("a/csv")]
    said = check_all([str(folder / "SKILL.md") for folder in folders])
    assert [(each.code, each.path) for each in said] == [
        ("name-duplicate", str(folders[1] / "SKILL.md")),
        ("name-duplicate", str(folders[2] / "SKILL.md")),
    ]
    assert str(folders[0]) in said[0].message


def test_a_link_to_a_skill_is_no_second_one(tree: Tree) -> None:
    folder = tree.skill("a/pdf")
    link = tree.root / "b/pdf"
    link.parent.mkdir()
    link.symlink_to(folder)
    assert check_all([str(folder / "SKILL.md"), str(link / "SKILL.md")]) == ()


def test_raw_fields_are_as_they_are_written() -> None:
    assert raw_fields(b"---\nallowed-tools: a, b\n---\n") == {"allowed-tools": "a, b"}
    assert raw_fields(b"---\nallowed-tools: [a]\nx: y: z\n---\n") == {
        "allowed-tools": ["a"],
        "x": "y: z",
    }
    assert raw_fields(b"no block") == {}


@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda t: t.encode("utf-8", "replace")))
def test_no_bytes_raise_and_every_finding_has_a_rule_and_a_remedy(data: bytes) -> None:
    for prefix in (b"", b"---\nname: a\n"):
        for strict in (False, True):
            for each in check_bytes(prefix + data, "/x/SKILL.md", strict=strict).diagnostics:
                assert each.code in RULES
                assert each.remedy
                assert each.line is None or each.line >= 1
