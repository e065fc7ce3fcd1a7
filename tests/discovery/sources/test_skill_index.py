from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.discovery.sources.skill_index import SCHEMA, SkillIndex, parse
from tests.bounds import bounds

URL = "https://example.org/a/index.json"
WELL_KNOWN = "https://example.org/.well-known/skills/index.json"
DIGEST = "sha256:" + "ab" * 32


def listing(*entries: object, schema: str | None = None, url: str = URL) -> SkillIndex:
    document = {"skills": entries, **({"$schema": schema} if schema else {})}
    return parse(json.dumps(document).encode(), url)


def published(**facts: object) -> dict[str, object]:
    return {"name": "pdf", "type": "skill-md", "url": "pdf/SKILL.md", "digest": DIGEST, **facts}


def test_the_form_with_files() -> None:
    found = listing({"name": "pdf", "files": ["SKILL.md", "a b/c#?.md"], "version": "1", "x": 1})
    [item] = found.items
    assert (found.kind, found.problems) == ("index", ())
    assert (item.name, item.kind, item.files) == ("pdf", "files", ("SKILL.md", "a b/c#?.md"))
    assert item.file_url("a b/c#?.md") == "https://example.org/a/pdf/a%20b/c%23%3F.md"
    assert listing(url=WELL_KNOWN).kind == "well-known"


def test_the_key_changes_with_the_version_and_the_files() -> None:
    def key(version: object, *files: str) -> str:
        return (
            listing({"name": "a", "files": ["SKILL.md", *files], "version": version}).items[0].key
        )

    assert key("1") == key("1") == key(1)
    assert len({key("1"), key("2"), key("1", "b")}) == 3
    assert key(None) == key("") == key([]) == key(True) == ""


@pytest.mark.parametrize(
    "name", ["../outside", "/tmp/x", "a/b", "..", ".", "", ".git", "a\\b", "C:x"]
)
def test_a_name_that_is_no_single_segment_is_refused(name: str) -> None:
    """Case 29."""
    found = listing({"name": name, "files": ["SKILL.md"]}, {"name": "fine", "files": ["SKILL.md"]})
    assert [item.name for item in found.items] == ["fine"]
    [problem] = found.problems
    assert problem.code == "remote-entry-refused"
    assert problem.message.startswith("skills[0]: ")


@pytest.mark.parametrize(
    "file", ["../x", "/tmp/x", "https://other/x", "a/../../x", "//other/x", "a\\b", "", "SKILL.MD"]
)
def test_a_file_that_leads_elsewhere_refuses_its_skill(file: str) -> None:
    """Case 29. `SKILL.MD` would meet `SKILL.md`."""
    found = listing({"name": "pdf", "files": ["SKILL.md", file]})
    assert found.items == ()
    assert [problem.code for problem in found.problems] == ["remote-entry-refused"]


@pytest.mark.parametrize(
    "entry",
    [
        None,
        1,
        [],
        {},
        {"name": 1},
        {"name": "a"},
        {"name": "a", "files": "SKILL.md"},
        {"name": "a", "files": [1]},
        {"name": "a", "files": []},
        {"name": "a", "files": ["README.md"]},
        {"name": "a", "files": ["SKILL.md"] + [f"{i}" for i in range(10_001)]},
        {"name": "a", "files": ["SKILL.md", "\ud800"]},
    ],
)
def test_an_entry_of_the_wrong_shape_is_refused_alone(entry: object) -> None:
    found = listing(entry, {"name": "fine", "files": ["SKILL.md"]})
    assert [item.name for item in found.items] == ["fine"]
    assert [problem.code for problem in found.problems] == ["remote-entry-refused"]


def test_the_first_of_two_that_meet_is_taken() -> None:
    entries = [{"name": name, "files": ["SKILL.md"]} for name in ("pdf", "PDF")]
    found = listing(*entries)
    assert [item.name for item in found.items] == ["pdf"]
    assert len(found.problems) == 1


def test_the_published_form() -> None:
    found = listing(
        published(), published(name="x", type="archive", url="//cdn/x.zip"), schema=SCHEMA
    )
    first, second = found.items
    assert (found.kind, found.problems) == ("well-known", ())
    assert (first.kind, first.url) == ("skill-md", "https://example.org/a/pdf/SKILL.md")
    assert (second.kind, second.url) == ("archive", "https://cdn/x.zip")
    assert first.digest == "ab" * 32


@pytest.mark.parametrize(
    "facts",
    [
        {"digest": None},
        {"digest": "sha256:abc"},
        {"digest": "md5:" + "ab" * 16},
        {"digest": DIGEST.upper()},
        {"url": None},
        {"url": ""},
        {"url": "file:///etc/passwd"},
        {"url": "http://[bad"},
        {"name": "../x"},
    ],
)
def test_a_published_entry_must_be_verifiable(facts: dict[str, object]) -> None:
    found = listing(published(**facts), schema=SCHEMA)
    assert found.items == ()
    assert [problem.code for problem in found.problems] == ["remote-entry-refused"]


def test_an_unknown_type_is_skipped_and_said() -> None:
    found = listing(published(type="wasm"), published(name="b"), schema=SCHEMA)
    assert [item.name for item in found.items] == ["b"]
    assert [problem.code for problem in found.problems] == ["remote-entry-type"]


def test_an_unknown_schema_is_not_processed() -> None:
    with pytest.raises(SourceFailure, match="unknown schema") as caught:
        listing(published(), schema="https://schemas.agentskills.io/discovery/9.0.0/schema.json")
    assert caught.value.code == "remote-index-schema"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"skills": {}}',
        b"\xff\xff",
        b"[" * 200_000,
        b"1" * 9999,
    ],
)
def test_what_is_no_list_is_a_failure(data: bytes) -> None:
    """Case 31."""
    with pytest.raises(SourceFailure) as caught:
        parse(data, URL)
    assert caught.value.code == "remote-index-invalid"


def test_a_list_may_not_be_endless() -> None:
    data = json.dumps({"skills": [{"name": str(i), "files": ["SKILL.md"]} for i in range(4)]})
    bounds(max_remote_skills=4)
    assert len(parse(data.encode(), URL).items) == 4
    bounds(max_remote_skills=3)
    with pytest.raises(SourceFailure, match="more than 3 skills"):
        parse(data.encode(), URL)


def nest(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    names = st.sampled_from(["name", "files", "version", "type", "url", "digest"])
    return st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)  # which are not JSON: see below
    | st.text(max_size=20)
    | st.sampled_from(["SKILL.md", ".."]),
    nest,
    max_leaves=20,
)


@given(st.lists(values, max_size=5), st.booleans())
def test_no_list_raises_and_every_address_stays_in_place(
    entries: list[object], known: bool
) -> None:
    found = listing(*entries, schema=SCHEMA if known else None)
    assert len(found.items) + len(found.problems) == len(entries)
    for item in found.items:
        for file in item.files:
            start = (
                f"https://example.org/a/{item.name}/"
                if item.name.isalnum() and item.name.isascii()
                else "https://example.org/a/"
            )
            assert item.file_url(file).startswith(start)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_does_not_have_refuses_the_list(number: float) -> None:
    with pytest.raises(SourceFailure, match="is not JSON"):
        listing({"name": "pdf", "files": ["SKILL.md"], "version": number})
