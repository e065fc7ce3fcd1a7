"""The file of rules that commands write."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.permission.rule_files import add_rule, read_policy, remove_rules, rulebook_file
from skillbelt.permission.rules import Rule
from skillbelt.settings import load_settings
from tests.tree import Tree


def written(tree: Tree) -> list[tuple[str, str, str]]:
    policy = read_policy(tree.settings(), project_trusted=False)
    return [(r.type, r.pattern, r.action) for r in policy.rules if r.source == "user"]


def test_a_rule_is_read_back_from_where_it_was_written(tree: Tree) -> None:
    path = rulebook_file(tree.settings())
    add_rule(path, Rule("run", "git *", "allow", agent="coder", initiator="model"))
    [rule] = [r for r in read_policy(tree.settings(), project_trusted=False).rules if r.path]
    assert rule[:3] == ("run", "git *", "allow")
    assert (rule.agent, rule.initiator, rule.path) == ("coder", "model", path)
    assert "git *" in Path(path).read_text().splitlines()[rule.line - 1]


def test_the_newest_rule_stands_last_and_takes_the_place_of_its_like(tree: Tree) -> None:
    path = rulebook_file(tree.settings())
    for pattern, action in (("a", "deny"), ("b", "deny"), ("a", "allow")):
        add_rule(path, Rule("skill", pattern, action))  # type: ignore[arg-type]
    assert written(tree) == [("skill", "b", "deny"), ("skill", "a", "allow")]


def test_a_rule_that_is_taken_out_leaves_the_rest_as_it_was(tree: Tree) -> None:
    path = rulebook_file(tree.settings())
    add_rule(path, Rule("skill", "a", "deny"))
    Path(path).write_text("# mine\n" + Path(path).read_text() + "# of a\n")
    add_rule(path, Rule("skill", "b", "deny"))
    assert remove_rules(path, "skill", "b") == 1
    assert remove_rules(path, "skill", "b") == 0
    assert Path(path).read_text().startswith("# mine\n")
    assert written(tree) == [("skill", "a", "deny")]


def test_adding_and_taking_out_leaves_the_file_as_it_was(tree: Tree) -> None:
    path = rulebook_file(tree.settings())
    add_rule(path, Rule("skill", "a", "deny"))
    seen = set()
    for _ in range(3):
        add_rule(path, Rule("skill", "b", "deny"))
        remove_rules(path, "skill", "b")
        seen.add(Path(path).read_text())
    remove_rules(path, "skill", "a")
    add_rule(path, Rule("skill", "a", "deny"))
    assert seen == {Path(path).read_text()}


def test_many_writers_lose_nothing(tree: Tree) -> None:
    path = rulebook_file(tree.settings())
    rules = [Rule("skill", f"s{number}", "deny") for number in range(20)]
    threads = [threading.Thread(target=add_rule, args=(path, rule)) for rule in rules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
    assert sorted(written(tree)) == sorted((r.type, r.pattern, r.action) for r in rules)


@pytest.mark.parametrize("text", [b"[[permission.rules]]\ntype = [\n", b"\xff"])
def test_a_damaged_file_is_left_as_it_is(tree: Tree, text: bytes) -> None:
    path = rulebook_file(tree.settings())
    file = tree.write(path, text)
    with pytest.raises(ConfigError, match=r"permissions\.toml"):
        add_rule(path, Rule("skill", "a", "deny"))
    assert file.read_bytes() == text


def test_what_is_no_text_is_refused(tree: Tree) -> None:
    with pytest.raises(ConfigError, match="not valid Unicode"):
        add_rule(rulebook_file(tree.settings()), Rule("skill", "\ud800", "deny"))


@given(pattern=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_pattern_is_read_back_to_the_letter(
    tmp_path_factory: pytest.TempPathFactory, pattern: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    settings = load_settings(home, environ={"HOME": str(home)})
    add_rule(rulebook_file(settings), Rule("run", pattern, "deny"))
    again = load_settings(home, environ={"HOME": str(home)})
    rules = read_policy(again, project_trusted=False).rules
    assert [rule.pattern for rule in rules if rule.source == "user"] == [pattern]
