"""Subscribed resources are checked, and no others."""

from __future__ import annotations

import pytest

from skillbelt import Runtime
from skillbelt.mcp import notifications
from skillbelt.mcp.notifications import Subscriptions
from skillbelt.mcp.published import Published, PublishedSkills
from tests.mcp.conftest import SKILLS
from tests.tree import Tree

GUIDE, BODY = "skill://pdf/guide.md", "skill://pdf/SKILL.md"
LATER = "skill://pdf/later.md"


@pytest.fixture
def wanted(belt: Runtime) -> Subscriptions:
    return Subscriptions(PublishedSkills(belt))


def test_a_file_that_comes_changes_or_goes_is_told_once(
    wanted: Subscriptions, skills: Tree
) -> None:
    assert wanted.add("one", [GUIDE, BODY])
    assert wanted.add("two", [LATER])
    assert wanted.changed() == []
    skills.write(f"{SKILLS}/pdf/guide.md", "Another guide.\n")
    assert (wanted.changed(), wanted.changed()) == ([GUIDE], [])
    later = skills.write(f"{SKILLS}/pdf/later.md", "Came.\n")
    assert (wanted.changed(), wanted.changed()) == ([LATER], [])
    later.unlink()
    assert (wanted.changed(), wanted.changed()) == ([LATER], [])


def test_who_has_gone_is_looked_at_for_no_more(wanted: Subscriptions, skills: Tree) -> None:
    wanted.add("one", [GUIDE])
    wanted.add("two", [GUIDE, BODY])
    wanted.drop("two")
    wanted.remove("one", [BODY, LATER])
    assert wanted.of("one") == {GUIDE}
    assert not wanted.of("two")
    wanted.remove("one", [GUIDE])
    skills.write(f"{SKILLS}/pdf/guide.md", "Another guide.\n")
    assert wanted.changed() == []


def test_there_is_a_bound_for_each(wanted: Subscriptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "MAX_SUBSCRIPTIONS", 2)
    assert wanted.add("one", [GUIDE, BODY])
    assert not wanted.add("one", [LATER])
    assert wanted.add("one", [GUIDE]), "it has that already"
    assert wanted.of("one") == {GUIDE, BODY}


def test_a_skill_is_looked_at_once_for_all_of_its_files(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer, looked = PublishedSkills(belt), list[str]()
    real = offer.find_skill

    def published(name: str) -> Published | None:
        looked.append(name)
        return real(name)

    monkeypatch.setattr(offer, "find_skill", published)
    wanted = Subscriptions(offer)
    wanted.add("one", [GUIDE, BODY, LATER])
    assert looked == ["pdf"]
    assert wanted.exists(GUIDE)
    assert looked == ["pdf"], "and is known then"
    wanted.changed()
    assert looked == ["pdf", "pdf"]
