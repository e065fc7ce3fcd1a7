from __future__ import annotations

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.format.fields import Named, requirements, skill_name, to_frontmatter
from skillbelt.format.frontmatter import Parsed, parse
from skillbelt.values import Frontmatter, Requirements
from tests.tree import codes

PATH = "desk/SKILL.md"


def block(text: str) -> Parsed:
    return parse(f"---\n{text}\n---\nBody\n".encode(), path=PATH, folder="desk")


# --- types ---------------------------------------------------------------------------------------


def front(text: str) -> Frontmatter:
    return to_frontmatter(block(f"name: a\ndescription: d\n{text}").fields)


@pytest.mark.parametrize(
    "value",
    [
        '\n- Bash(git add *)\n- "Read"\n- mcp__a__b',
        "Bash(git add *), Read, mcp__a__b",
        "Bash(git add *) Read mcp__a__b",
        "Bash(git add *),Read mcp__a__b,",
        "[Bash(git add *), Read, mcp__a__b]",
    ],
)
@pytest.mark.parametrize("key", ["allowed-tools", "allowed_tools"])
def test_tools_are_the_same_list_however_they_are_written(key: str, value: str) -> None:
    """Case 25."""
    assert front(f"{key}: {value}").allowed_tools == ("Bash(git add *)", "Read", "mcp__a__b")


def test_odd_parentheses_lose_nothing() -> None:
    """Case 25."""
    assert front("allowed-tools: Bash(f(x) *) Edit(a, b").allowed_tools == (
        "Bash(f(x) *)",
        "Edit(a, b",
    )


@pytest.mark.parametrize("word", ["true", "True", "yes", "ON", "1", "'true'", '"Yes"', "y es"])
def test_booleans_take_every_usual_word(word: str) -> None:
    fields = front(f"disable-model-invocation: {word}")
    assert fields.disable_model_invocation is (word != "y es")
    assert ("disable-model-invocation" in fields.extra) is (word == "y es")


@pytest.mark.parametrize("key", ["user-invocable", "user_invocable", "user-invokable"])
@pytest.mark.parametrize("word", ["false", "no", "Off", "0", "'false'"])
def test_user_invocable_is_read_in_every_spelling(key: str, word: str) -> None:
    assert front(f"{key}: {word}").user_invocable is False


def test_lists_of_names_may_be_comma_strings() -> None:
    fields = front("paths: 'src/**, *.py'\narguments: [a, 2]")
    assert (fields.paths, fields.arguments) == (("src/**", "*.py"), ("a", "2"))


def test_every_known_field_has_its_type() -> None:
    fields = front(
        "license: MIT\ncompatibility: py\nversion: 1.10\nwhen_to_use: w\nargument-hint: [file]\n"
        "model: m\neffort: high\ncontext: fork\nagent: Explore\nshell: bash\nbackground: yes\n"
        "hooks: {Stop: []}\nmetadata: {internal: true}\ndisallowed-tools: Bash\nauthor: me\n"
        "day: 2024-01-01"
    )
    assert fields == Frontmatter(
        name="a",
        description="d",
        license="MIT",
        compatibility="py",
        version="1.10",
        when_to_use="w",
        argument_hint="[file]",
        model="m",
        effort="high",
        context="fork",
        agent="Explore",
        shell="bash",
        background=True,
        hooks={"Stop": []},
        metadata={"internal": "true"},
        disallowed_tools=("Bash",),
        extra={"author": "me", "day": "2024-01-01"},
    )


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("metadata: text", "metadata"),
        ("compatibility: {a: b}", "compatibility"),
        ("user-invocable: maybe", "user-invocable"),
        ("allowed-tools: {a: b}", "allowed-tools"),
        ("paths: 7", "paths"),
        ("hooks: [a]", "hooks"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported_and_kept_aside(text: str, key: str) -> None:
    parsed = block(f"description: d\n{text}")
    assert codes(parsed) == ["field-type"]
    assert parsed.diagnostics[0].message.startswith(key)
    fields = to_frontmatter(parsed.fields)
    assert fields.extra == {key: parsed.fields[key]}
    assert fields._replace(extra={}) == Frontmatter(description="d", extra={})


def test_a_list_of_texts_becomes_a_text() -> None:
    parsed = block("description:\n- one\n- two")
    assert (parsed.fields["description"], codes(parsed)) == ("one; two", ["field-type"])


def test_nothing_written_is_nothing_wrong() -> None:
    parsed = block("description: d\nmetadata:\nallowed-tools:\nlicense:\nuser-invocable: ~")
    assert codes(parsed) == []
    assert to_frontmatter(parsed.fields) == Frontmatter(description="d", extra={})


def test_the_hyphenated_spelling_wins() -> None:
    for text in ("allowed-tools: A\nallowed_tools: B", "allowed_tools: B\nallowed-tools: A"):
        assert front(text).allowed_tools == ("A",)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pdf", "PDF_2.0", "3d-print", "机器人", "été", "a" * 128])
def test_a_safe_name_is_the_id(name: str) -> None:
    assert skill_name({"name": name}, name) == Named(name, name)


def test_a_name_that_is_not_the_folders_is_a_note() -> None:
    named = skill_name({"name": "pdf"}, "folder", PATH)
    assert (named.id, named.title) == ("pdf", "pdf")
    assert [(d.code, d.severity) for d in named.diagnostics] == [("name-folder", "info")]


@pytest.mark.parametrize(
    "name", ["My Skill", "../x", ".", "-a", "a/b", "a*", "a\nb", "x" * 129, "$(x)"]
)
def test_an_unsafe_name_gives_way_to_the_folder_and_is_kept_as_title(name: str) -> None:
    named = skill_name({"name": name}, "folder", PATH)
    assert (named.id, named.title) == ("folder", name)
    assert [(d.code, d.path) for d in named.diagnostics] == [("name-unsafe", PATH)]


@pytest.mark.parametrize(
    ("folder", "name"),
    [("my skill!", "my-skill"), ("..", "skill"), ("", "skill"), ("***", "skill"), ("-a b-", "a-b")],
)
def test_an_unsafe_folder_becomes_a_slug(folder: str, name: str) -> None:
    named = skill_name({}, folder)
    assert (named.id, named.title) == (name, folder)
    assert [d.code for d in named.diagnostics] == ["name-unsafe"]


def test_the_id_is_in_normal_form() -> None:
    named = skill_name({"name": normalize("NFD", "été")}, "x")
    assert named.id == normalize("NFC", "été")
    assert [d.code for d in named.diagnostics] == ["name-unsafe"]


def test_without_a_name_the_folder_is_the_name() -> None:
    assert skill_name({}, "desk") == Named("desk", "desk")
    assert skill_name({"name": ["a"]}, "desk").id == "desk"


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_id_is_a_safe_word(name: str, folder: str) -> None:
    found = skill_name({"name": name}, folder).id
    assert 1 <= len(found) <= 128
    assert found[0].isalnum()
    assert not set(found) & set("/\\*?[]{}$`'\"<>|&;:~! \n\0")


# --- requirements --------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["openclaw", "clawdbot", "moltbot"])
def test_what_a_skill_needs_is_read_from_its_metadata(client: str) -> None:
    text = (
        f'metadata: {{"{client}": {{"os": ["linux", "darwin"], "requires": '
        '{"bins": ["git"], "anyBins": ["uv", "pip"], "env": ["TOKEN"], "config": ["a.b"]}}}'
    )
    frontmatter = to_frontmatter(block(f"name: a\ndescription: d\n{text}").fields)
    assert requirements(frontmatter) == Requirements(
        bins=("git",),
        any_bins=("uv", "pip"),
        env=("TOKEN",),
        config=("a.b",),
        os=("linux", "darwin"),
    )


@pytest.mark.parametrize(
    "metadata", ["{}", "{openclaw: git}", "{openclaw: {requires: [git]}}", "{openclaw: {os: {}}}"]
)
def test_needs_that_are_not_lists_of_words_say_nothing(metadata: str) -> None:
    frontmatter = to_frontmatter(block(f"name: a\ndescription: d\nmetadata: {metadata}").fields)
    assert requirements(frontmatter) == Requirements()
