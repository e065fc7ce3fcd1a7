"""A project with a name is the same one in every folder and on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.errors import ConfigError
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting import Pending
from skillbelt.settings import load_settings
from skillbelt.store.memory import MemoryStore
from skillbelt.trust import Trust
from tests.tree import Tree

NAME = {"project_name": "team/shop"}


def gate_of(folder: Path, store: MemoryStore, *, answer: str = "", **overrides: object) -> Gate:
    settings = load_settings(str(folder), overrides=overrides)

    def ask(pending: Pending) -> Answer | None:
        return Answer("always") if answer else None

    return Gate(settings, lambda: store, ask=ask)


def of_skill(folder: Path, hash: str = "h1") -> Request:
    """A request about a skill in the project of that folder."""
    place = str(folder / ".agents/skills/pdf")
    return Request("run", ("ls",), ("ls",), skill="pdf", hash=hash, origin=place)


@pytest.fixture
def checkouts(tree: Tree) -> tuple[Path, Path]:
    return tree.git("machine-a/shop"), tree.git("machine-b/src/shop")


def test_an_answer_counts_in_every_checkout(checkouts: tuple[Path, Path]) -> None:
    one, other = checkouts
    store = MemoryStore()
    assert gate_of(one, store, answer="always", **NAME).check(of_skill(one)).by == "always"
    assert gate_of(other, store, **NAME).check(of_skill(other)).by == "remembered"


def test_without_the_name_each_folder_is_its_own(checkouts: tuple[Path, Path]) -> None:
    one, other = checkouts
    store = MemoryStore()
    assert gate_of(one, store, answer="always", **NAME).check(of_skill(one)).allowed
    assert not gate_of(other, store).check(of_skill(other)).allowed
    assert not gate_of(other, store, project_name="team/shop2").check(of_skill(other)).allowed


def test_the_answer_is_for_that_content_and_that_place(checkouts: tuple[Path, Path]) -> None:
    one, other = checkouts
    store = MemoryStore()
    assert gate_of(one, store, answer="always", **NAME).check(of_skill(one)).allowed
    gate = gate_of(other, store, **NAME)
    elsewhere = of_skill(other)._replace(origin=str(other.parent / ".agents/skills/pdf"))
    assert not gate.check(elsewhere).allowed
    assert not gate.check(of_skill(other, "h2")).allowed


def test_a_checkout_names_itself_only_when_it_is_trusted(checkouts: tuple[Path, Path]) -> None:
    """Otherwise a download would get the answers that were given for another project."""
    one, other = checkouts
    store = MemoryStore()
    assert gate_of(one, store, answer="always", **NAME).check(of_skill(one)).allowed
    file = other / "skillbelt.toml"
    file.write_text('project_name = "team/shop"\n')
    gate = gate_of(other, store)
    assert not gate.check(of_skill(other)).allowed
    [said] = gate.diagnostics
    assert (said.code, said.path) == ("untrusted-name", str(file))
    assert "skillbelt trust add" in said.remedy
    Trust(gate.settings.state_dir).add(str(other))
    trusted = gate_of(other, store)
    assert trusted.diagnostics == ()
    assert trusted.check(of_skill(other)).by == "remembered"


@pytest.mark.parametrize(
    "name", ["/srv/shop", "ada@vm:/srv", "../x", "a b", "a\nb", "é", "x" * 201]
)
def test_what_could_be_a_folder_is_no_name(tree: Tree, name: str) -> None:
    with pytest.raises(ConfigError, match="project_name must begin with a letter"):
        tree.settings(project_name=name)
