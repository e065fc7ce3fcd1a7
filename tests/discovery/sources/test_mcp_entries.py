"""The entries of an MCP server are checked before they are used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.discovery.sources.bounds import (
    MAX_ARCHIVE_FILES,
    MAX_EXTRACTED_BYTES,
    MAX_EXTRACTED_FILE_BYTES,
)
from skillbelt.discovery.sources.mcp import McpSkill, parse_entries, parse_record
from skillbelt.values import Diagnostic
from tests.bounds import bounds
from tests.discovery.sources.mcp_server import TEXT, entry, listed

SOURCE = "mcp+https://skills.example/mcp"
BASE = "skill://pdf/"


def taken(*items: Any) -> tuple[list[McpSkill], tuple[Diagnostic, ...]]:
    return parse_entries(items, "docs", SOURCE)


def refusal(item: Any) -> str:
    found, problems = taken(item)
    assert found == []
    [problem] = problems
    assert (problem.code, problem.severity, problem.path) == (
        "mcp-entry-refused",
        "warning",
        SOURCE,
    )
    assert problem.remedy
    return problem.message


def with_file(**changed: Any) -> dict[str, Any]:
    made = entry()
    made["resources"].append({**listed(f"{BASE}a.md", b"x"), **changed})
    return made


def test_a_good_entry_is_held_with_the_label_of_its_server() -> None:
    [one], problems = taken(entry({"reference/a%20b.md": b"x"}, license="MIT"))
    assert problems == ()
    assert (one.id, one.name, one.uri) == ("docs.pdf", "pdf", "skill://pdf/SKILL.md")
    assert list(one.files) == ["SKILL.md", "reference/a b.md"]
    assert one.files["SKILL.md"].size == len(TEXT)
    again = parse_record(json.loads(json.dumps(one.record())))
    assert again == one._replace(id="")


@pytest.mark.parametrize(
    "path",
    [
        "../notes/SKILL.md",
        "%2e%2e/x",
        "..%2fx",
        "a//b",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "a%00b",
        "a%5cb",
        "C%3a/x",
        "x?y",
        "x#y",
        "\u00fc",
        "%ff",
        "",
        ".",
        "a/" * 500 + "b",
    ],
)
def test_a_path_that_leads_elsewhere_takes_its_skill_with_it(path: str) -> None:
    assert "one of its files" in refusal(with_file(uri=BASE + path))


@pytest.mark.parametrize(
    "changed",
    [
        {"uri": "skill://notes/a.md"},
        {"uri": "skill://pdfs/a.md"},
        {"uri": "file:///etc/passwd"},
        {"uri": 7},
        {"digest": "sha256:abc"},
        {"digest": "md5:" + "0" * 32},
        {"digest": "sha256:" + "A" * 64},
        {"digest": None},
        {"size": -1},
        {"size": "1"},
        {"size": True},
        {"size": 1.5},
        {"size": None},
        {"size": 10**12},
    ],
)
def test_a_file_that_can_not_be_verified_takes_its_skill_with_it(changed: dict[str, Any]) -> None:
    assert "one of its files" in refusal(with_file(**changed))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"resources": "dynamic"}, "cannot be verified (dynamic)"),
        ({"resources": None}, "does not list its files"),
        ({"resources": {}}, "does not list its files"),
        ({"resources": []}, "SKILL.md is not among"),
        ({"resources": [7]}, "is not an object"),
        ({"uri": None}, "an entry without a URI"),
        ({"uri": "skill://pdf/README.md"}, "not that of a SKILL.md"),
        ({"uri": "pdf/SKILL.md"}, "not that of a SKILL.md"),
        ({"uri": "skill://pdf/\x1b[2J/SKILL.md"}, "not that of a SKILL.md"),
        ({"uri": "skill://other/SKILL.md"}, "its name"),
        ({"frontmatter": None}, "no name or no description"),
        ({"frontmatter": {"name": "pdf"}}, "no name or no description"),
        ({"frontmatter": {"name": "pdf", "description": " "}}, "no name or no description"),
        ({"frontmatter": {"name": ["pdf"], "description": "x"}}, "no name or no description"),
        ({"frontmatter": {"name": "pdf", "description": "x" * 10**5}}, "too long"),
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused(changed: dict[str, Any], told: str) -> None:
    assert told in refusal({**entry(), **changed})


@pytest.mark.parametrize("name", ["PDF", "a b", "-a", "a--b", "..", "x" * 65])
def test_a_name_that_breaks_the_rules_is_refused(name: str) -> None:
    refusal(entry(name=name))


@pytest.mark.parametrize("item", [None, 7, "skill", [], {}])
def test_what_is_no_entry_is_told_and_left_out(item: object) -> None:
    found, problems = taken(entry(), item)
    assert [one.name for one in found] == ["pdf"]
    assert len(problems) == 1


def test_a_file_that_lies_in_a_file_takes_its_skill_with_it() -> None:
    assert "is inside another" in refusal(entry({"a": b"x", "a/b/c.md": b"y"}))


def test_limits_are_held() -> None:
    many = entry({f"{number}.md": b"x" for number in range(5)})
    bounds(max_archive_files=5)
    assert "max_archive_files" in refusal(many)
    bounds(max_archive_files=MAX_ARCHIVE_FILES, max_extracted_bytes=10)
    assert "max_extracted_bytes" in refusal(many)
    bounds(max_extracted_bytes=MAX_EXTRACTED_BYTES, max_extracted_file_bytes=10)
    assert "max_extracted_file_bytes" in refusal(many)
    bounds(max_extracted_file_bytes=MAX_EXTRACTED_FILE_BYTES)
    assert taken(many)[1] == ()


def test_a_skill_of_the_least_size_that_every_host_takes_is_taken() -> None:
    files = {f"{number}.bin": b"" for number in range(511)}
    made = entry(files)
    for resource in made["resources"][1:]:
        resource["size"] = (16 * 2**20 - len(TEXT)) // 511
    [one], problems = taken(made)
    assert (len(one.files), problems) == (512, ())


def test_skills_of_one_name_are_told_apart_by_their_addresses() -> None:
    found, problems = taken(
        entry(prefix="acme/billing/"), entry(prefix="acme/support/"), entry(name="notes")
    )
    assert problems == ()
    assert sorted(one.id for one in found) == [
        "docs.acme.billing.pdf",
        "docs.acme.support.pdf",
        "docs.notes",
    ]


def test_ids_are_one_each_however_odd_the_addresses() -> None:
    found, _ = taken(
        entry(prefix="a%20b/"), entry(prefix="a-b/"), entry(prefix="x" * 300 + "/"), entry()
    )
    ids = [one.id for one in found]
    assert len({*ids}) == 4
    assert all(len(one) <= 128 for one in ids)


def test_what_is_listed_twice_counts_once() -> None:
    found, [problem] = taken(entry(), entry(license="other"))
    assert len(found) == 1
    assert "listed twice" in problem.message


@pytest.mark.parametrize("record", [None, 7, {}, {"files": 7}, {"files": {"a": [1]}}])
def test_a_damaged_record_is_none(record: object) -> None:
    assert parse_record(record) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=3), JSON, JSON, JSON)
def test_nothing_that_a_server_lists_raises(
    items: list[Any], uri: Any, frontmatter: Any, resources: Any
) -> None:
    odd = [
        *items,
        {"uri": uri, "frontmatter": frontmatter, "resources": resources},
        {**entry(), "frontmatter": frontmatter},
        {**entry(), "resources": resources},
        {**entry(), "resources": [resources, {"uri": uri, "digest": frontmatter, "size": 1}]},
        {**entry(), "resources": [{**listed(f"{BASE}{uri}", b"x")}]},
    ]
    found, problems = taken(*odd)
    assert len(found) + len(problems) == len(odd)
