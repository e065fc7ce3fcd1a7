from __future__ import annotations

import pytest

from skillbelt.format.fields import KNOWN, closest_field, correct_spelling
from skillbelt.values import Frontmatter


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("allowed_tools", "allowed-tools"),
        ("allowedTools", "allowed-tools"),
        ("Allowed-Tools", "allowed-tools"),
        ("allowed tools", "allowed-tools"),
        ("user-invokable", "user-invocable"),
        ("user_invokable", "user-invocable"),
        ("when-to-use", "when_to_use"),
        ("Name", "name"),
        ("licence", "license"),
        ("desciption", ""),
        ("author", ""),
        ("名称", ""),
        ("", ""),
    ],
)
def test_other_spellings(key: str, known: str) -> None:
    assert correct_spelling(key, ()) == known


@pytest.mark.parametrize("key", KNOWN)
def test_a_known_field_is_spelled_right(key: str) -> None:
    assert correct_spelling(key, ()) == ""
    assert closest_field(key, ()) == ""


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("desciption", "description"),
        ("discription", "description"),
        ("compatability", "compatibility"),
        ("alowed-tools", "allowed-tools"),
        ("user-invocabel", "user-invocable"),
        ("author", ""),
        ("tags", ""),
        ("title", ""),
        ("homepage", ""),
        ("requires", ""),
        ("category", ""),
        ("triggers", ""),
        ("tools", ""),
        ("permissions", ""),
        ("description-zh", ""),
        ("nam", ""),
    ],
)
def test_slips(key: str, known: str) -> None:
    assert closest_field(key, ()) == known


def test_a_field_that_stands_there_is_not_suggested_again() -> None:
    assert correct_spelling("allowed_tools", {"allowed-tools"}) == ""
    assert closest_field("desciption", {"description"}) == ""


def test_every_known_field_is_a_field_of_the_frontmatter() -> None:
    assert {key.replace("-", "_") for key in KNOWN} == set(Frontmatter._fields) - {"extra"}
