"""Packages as values, and the meaning of rules about them."""

from __future__ import annotations

import pytest

from skillbelt.permission.packages import Package, normal, rule_patterns
from skillbelt.permission.rules import Request, Rule, RuleSet

PYTHON = Package("python", "inner-one", "1.2", ("sha256:00",)).text
NODE = Package("node", "@a/in_one", "1.2", ("sha512:00",)).text


def test_a_package_is_told_with_its_version_and_hashes() -> None:
    assert PYTHON == "inner-one==1.2 sha256:00"
    assert NODE == "@a/in_one@1.2 sha512:00"


def test_a_name_has_one_spelling() -> None:
    assert normal("python", "In__ner.One") == "in-ner-one"
    assert normal("node", "@A/In_ner") == "@a/in_ner"


def decided(text: str, pattern: str, action: str) -> str:
    other = "deny" if action == "allow" else "allow"
    rules = [Rule("install", "*", other), Rule("install", pattern, action)]  # type: ignore[arg-type]
    return RuleSet(rules).decide(Request("install", (text,)))[0]


@pytest.mark.parametrize(
    "pattern",
    ["inner-one", "Inner_One", "INNER.ONE", "inner*", "inner-one==1.2", "Inner_One==1.*",
     "inner_one *", "inner-one:*", "inner-one==1.2 sha256:00", "*"],
)  # fmt: skip
@pytest.mark.parametrize("action", ["allow", "deny"])
def test_a_rule_means_a_package_of_python(pattern: str, action: str) -> None:
    assert decided(PYTHON, pattern, action) == action


@pytest.mark.parametrize("pattern", ["@a/in_one", "@A/In_one", "@a/in_one@1.2", "@a/*", "*"])
@pytest.mark.parametrize("action", ["allow", "deny"])
def test_a_rule_means_a_package_for_node(pattern: str, action: str) -> None:
    assert decided(NODE, pattern, action) == action


@pytest.mark.parametrize("pattern", ["inner", "inner-one==2", "inner-one-more", "@a/inner-one"])
def test_a_rule_about_another_package_is_none_about_this(pattern: str) -> None:
    assert decided(PYTHON, pattern, "deny") == "allow"


def test_names_that_only_python_takes_for_one_are_two_for_node() -> None:
    assert decided(NODE, "@a/in-one", "allow") == "deny"


@pytest.mark.parametrize("pattern", ["inner-one>=1", "inner-one[x]", "inner-one ~= 1.0"])
def test_a_range_allows_nothing_and_denies_the_name(pattern: str) -> None:
    assert rule_patterns(pattern, allows=True) == ()
    assert decided(PYTHON, pattern, "allow") == "deny"
    assert decided(PYTHON, pattern, "deny") == "deny"


def test_who_allows_packages_has_not_allowed_a_skill() -> None:
    skill = Request("install", ("skill:beta@sha256:00",))
    for pattern in ("*", "s*", "skill*", "beta"):
        assert RuleSet([Rule("install", pattern, "allow")]).decide(skill)[0] == "ask"
    for pattern in ("skill:beta", "skill:*", "skill:beta@sha256:00"):
        assert RuleSet([Rule("install", pattern, "allow")]).decide(skill)[0] == "allow"
    assert RuleSet([Rule("*", "*", "allow")]).decide(skill)[0] == "allow"


def test_who_denies_every_install_denies_skills_too() -> None:
    rules = RuleSet([Rule("install", "skill:*", "allow"), Rule("install", "*", "deny")])
    assert rules.decide(Request("install", ("skill:beta",)))[0] == "deny"
    rules = RuleSet([Rule("*", "*", "allow"), Rule("install", "skill:*", "deny")])
    assert rules.decide(Request("install", ("skill:beta",)))[0] == "deny"


def test_packages_and_skills_are_decided_apart_by_one_set_of_rules() -> None:
    rules = RuleSet([Rule("install", "*", "allow")])
    asked = (PYTHON,), ("skill:beta",), (PYTHON,), (PYTHON, "skill:beta")
    assert [rules.decide(Request("install", texts))[0] for texts in asked] == [
        "allow", "ask", "allow", "ask"
    ]  # fmt: skip
