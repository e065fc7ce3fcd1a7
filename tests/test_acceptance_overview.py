"""The overview as a model gets it; one test or more for each case."""

from __future__ import annotations

from fnmatch import fnmatchcase
from xml.etree import ElementTree

import pytest

from skillbelt import Catalog, Skill
from skillbelt.disclosure.overview import Format, Overview, compact, merge, overview, visible
from tests.tree import Tree

SKILLS = "project/.agents/skills"
HEADERS: dict[Format, str] = {
    "xml": "<available_skills>",
    "markdown": "## Available Skills",
    "plain": "Available skills:",
}
FORMATS: tuple[Format, ...] = ("xml", "markdown", "plain", "json")


def permitted(tree: Tree, *rules: tuple[str, bool]) -> list[Skill]:
    """What an agent with these rules may see; the last one that matches a name decides."""

    def permit(_agent: str | None, skill: Skill) -> bool:
        return [allow for glob, allow in rules if fnmatchcase(skill.name, glob)][-1]

    return visible(Catalog(tree.project, permit=permit).available("writer"))


def read(made: Overview) -> ElementTree.Element:
    return ElementTree.fromstring(made.text[made.text.index("<") :])


def shown(made: Overview) -> list[str]:
    return [element.text or "" for element in read(made).iterfind("skill/name")]


@pytest.fixture
def two(tree: Tree) -> Tree:
    tree.skill(f"{SKILLS}/a", description="Does the first thing.")
    tree.skill(f"{SKILLS}/b", description="Does the second thing.")
    return tree


@pytest.mark.parametrize("format", HEADERS)
def test_applied_twice_it_is_there_once(two: Tree, format: Format) -> None:
    """Case 32."""
    made = overview(two.catalog().available(), format=format)
    text = merge(merge("You are helpful.", made), made)
    assert text.startswith("You are helpful.\n\n")
    assert text.count(HEADERS[format]) == 1
    assert text.count("Does the first thing.") == text.count("Does the second thing.") == 1


def test_one_line_for_each_skill(two: Tree) -> None:
    """Case 32."""
    made = overview(two.catalog().available(), format="plain", guidance="")
    assert made.text.splitlines() == [
        "Available skills:",
        "- a: Does the first thing.",
        "- b: Does the second thing.",
    ]


@pytest.mark.parametrize("format", HEADERS)
def test_a_host_that_mentions_the_header_still_gets_the_overview_once(
    two: Tree, format: Format
) -> None:
    """Case 33."""
    host = f"Below you find a list that starts with {HEADERS[format]} and names skills."
    made = overview(two.catalog().available(), format=format)
    text = merge(merge(host, made), made)
    assert text == f"{host}\n\n{made.text}"


@pytest.mark.parametrize("host", HEADERS.values())
def test_a_host_with_the_bare_header_on_a_line_still_gets_the_overview(
    two: Tree, host: str
) -> None:
    """Case 33."""
    made = overview(two.catalog().available(), format="plain")
    assert merge(host, made) == f"{host}\n\n{made.text}"


@pytest.mark.parametrize("format", FORMATS)
def test_no_skills_no_section(tree: Tree, format: Format) -> None:
    """Case 34."""
    made = overview(tree.catalog().available(), format=format)
    assert made.text == ""
    assert merge("You are helpful.", made) == "You are helpful."
    assert compact(tree.catalog().available()) == ""


@pytest.mark.parametrize("format", FORMATS)
def test_beyond_the_cap_names_are_left(tree: Tree, format: Format) -> None:
    """Case 35."""
    names = ["ape", "bat", "cat", "dog", "elk"]
    for name in names:
        tree.skill(f"{SKILLS}/{name}", description=f"Speaks like the {name.upper()}.")
    made = overview(tree.catalog().available(), format=format, most_full=2)
    assert [name for name in names if f"like the {name.upper()}." in made.text] == names[:2]
    assert "showing 2 of 5" in made.text
    assert all(name in made.text for name in names)
    assert (made.shown, made.names_only, made.omitted) == (2, 3, 0)


def test_rules_decide_what_is_shown(two: Tree) -> None:
    """Case 36."""
    everything, only_a = ("*", False), ("a", True)
    assert overview(permitted(two, everything)).text == ""
    assert shown(overview(permitted(two, everything, only_a))) == ["a"]
    assert overview(permitted(two, everything, only_a, ("a", False))).text == ""


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_denied_is_in_no_format(two: Tree, format: Format) -> None:
    """Case 36."""
    for budget in (1, 20, 60, 10_000):
        skills = permitted(two, ("*", True), ("b", False))
        made = overview(skills, format=format, budget_tokens=budget)
        assert "second" not in made.text
        assert made.shown + made.names_only + made.omitted == 1


def test_without_a_description_it_is_not_shown_but_can_be_asked_for(two: Tree) -> None:
    """Case 37."""
    two.skill(f"{SKILLS}/silent", description="", text="")
    catalog = two.catalog()
    assert shown(overview(visible(catalog.values()))) == ["a", "b"]
    assert shown(overview(catalog.available())) == ["a", "b"]
    assert catalog.find("silent").user_invocable


@pytest.mark.parametrize(
    "about",
    [
        "Turns <b>bold</b> & \"quoted\" into 'plain'.",
        "One line.\nAnother line.\r\nA third.",
        "</description></skill></available_skills><available_skills>",
        "]]> &amp; &#10; <!-- x --> <?x?>",
    ],
)
def test_xml_holds_the_original_text(tree: Tree, about: str) -> None:
    """Case 38."""
    tree.skill(f"{SKILLS}/odd", description=about, when_to_use=f"Use for {about}")
    skill = tree.catalog()["odd"]
    root = read(overview([skill]))
    assert len(root) == 1
    assert root.findtext("skill/description") == f"{skill.description} {skill.when_to_use}"
    assert skill.description == about


def test_xml_holds_an_odd_name_and_path(tree: Tree) -> None:
    """Case 38."""
    tree.skill(f"{SKILLS}/a<b>&c\n'd'", name="A <b> & C", text="Text.\n")
    [skill] = tree.catalog().available()
    root = read(overview([skill]))
    assert root.findtext("skill/name") == skill.name
    assert root.findtext("skill/location") == skill.location
    named = overview([skill._replace(name="a<b>&\nc")], most_full=0)
    assert "a<b>&\nc" in read(named).findtext("note", "")
