from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import ConfigError, Runtime
from skillbelt.permission.rules import (
    DEFAULT_RULES,
    TYPES,
    Action,
    Answer,
    Request,
    Rule,
    RuleSet,
    Source,
    matches,
    meet,
)
from tests.tree import Tree

# The reference: a plain loop over the rules and a matcher that tries everything.


def covers(pattern: str, text: str) -> bool:
    if pattern.endswith(":*"):
        pattern = pattern[:-2] + " *"
    return naive(pattern, text) or (pattern.endswith(" *") and naive(pattern[:-2], text))


def naive(pattern: str, text: str) -> bool:
    if pattern[:1] == "*":
        return any(naive(pattern[1:], text[n:]) for n in range(len(text) + 1))
    if not pattern or not text:
        return pattern == text
    return pattern[0] in ("?", text[0]) and naive(pattern[1:], text[1:])


def model(rules: list[Rule], asked: Request) -> tuple[Action, Rule]:
    found = []
    for text in asked.patterns:
        hits = [r for r in rules if applies(r, asked) and covers(r.pattern, text)]
        found.append(hits[-1] if hits else DEFAULT_RULES[0])
    found = found or [DEFAULT_RULES[0]]
    worst = max(map(weight, found))
    return next((r.action, r) for r in found if weight(r) == worst)


def weight(rule: Rule) -> tuple[int, bool]:
    return ("allow", "ask", "deny").index(rule.action), rule.source != "default"


def applies(rule: Rule, asked: Request) -> bool:
    agent = rule.agent in ("", asked.agent) or covers(rule.agent, asked.agent)
    by = rule.initiator in ("", asked.initiator) and rule.trusted in (None, asked.trusted)
    if rule.skill and rule.action == "allow" and rule.trusted is None:
        by = by and asked.trusted
    about = not rule.skill or (bool(asked.skill) and covers(rule.skill, asked.skill))
    return rule.type in ("*", asked.type) and agent and by and about


# Few letters, so that much of it matches.
TEXT = st.text("ab :", max_size=6)
PATTERN = st.text("ab *?:", max_size=6) | TEXT | st.sampled_from(["*", "a*", "*a", "a *", "a:*"])
AGENT = st.sampled_from(["", "a", "ab", "b"])
TYPE = st.sampled_from(["skill", "run", "never heard of"])
RULE = st.builds(
    Rule,
    st.sampled_from(["skill", "run", "trust", "*"]),
    PATTERN,
    st.sampled_from(["allow", "ask", "deny"]),
    st.just("session"),
    st.just(""),
    st.integers(0, 9),
    AGENT | st.sampled_from(["*", "a*", "?"]),
    st.sampled_from(["", "", "model", "user"]),
    st.sampled_from([None, None, True, False]),
    st.sampled_from(["", "", "a", "a*", "*"]),
)
REQUEST = st.builds(
    Request,
    TYPE,
    st.lists(TEXT, max_size=3).map(tuple),
    initiator=st.sampled_from(["model", "user"]),
    agent=AGENT,
    skill=st.sampled_from(["", "a", "ab"]),
    trusted=st.booleans(),
    tools=st.just(()),
)
STACK = st.lists(RULE, max_size=25)


@given(PATTERN, TEXT)
def test_a_pattern_matches_what_the_reference_says(pattern: str, text: str) -> None:
    assert matches(pattern, text) == covers(pattern, text)


@given(PATTERN, PATTERN, TEXT)
def test_patterns_that_share_a_text_meet(one: str, other: str, text: str) -> None:
    assert meet(one, other) or not (covers(one, text) and covers(other, text))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "b"), ("a*", "b"), ("a*", "b*"), ("*a", "*b"), ("a *", "ab"), ("?", "")],
)
def test_patterns_that_share_no_text_do_not_meet(one: str, other: str) -> None:
    assert not meet(one, other)
    assert not meet(other, one)


@given(STACK, st.lists(REQUEST, min_size=1, max_size=8))
def test_any_stack_of_rules_decides_as_the_reference_does(
    rules: list[Rule], requests: list[Request]
) -> None:
    stack = RuleSet(rules)
    for request in requests:
        assert stack.decide(request) == model(rules, request)


@given(STACK, st.lists(REQUEST, max_size=8))
def test_the_last_rule_of_a_text_is_the_one_the_reference_finds(
    rules: list[Rule], requests: list[Request]
) -> None:
    stack = RuleSet(rules)
    for request in requests:
        for text in request.patterns:
            hits = [
                n
                for n, rule in enumerate(rules)
                if applies(rule, request) and covers(rule.pattern, text)
            ]
            assert stack.last(request, text) == (hits[-1] if hits else -1)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("*", "a\n/b", True),
        ("?", "", False),
        ("?", "\n", True),
        ("?", "ab", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("Pdf", "pdf", False),
        ("git add *", "git add", True),
        ("git add *", "git add x\ny", True),
        ("git add *", "git addx", False),
        ("git add *", "git ad", False),
        ("git add:*", "git add x", True),
        ("git add:*", "git add", True),
        ("git add:*", "git add:x", False),
        ("git add*", "git added", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("ab*ba", "aba", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_matching(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*a" * 2000 + "b", "a" * 100_000),
        ("*?a" * 1300 + "b", "a" * 100_000),
        ("?" * 4000 + "*" * 90 + "b", "a" * 100_000),
        ("*" + "a?" * 2000 + "b*c", "a" * 100_000 + "b"),
    ],
)
def test_a_hostile_pattern_takes_no_exponential_time(pattern: str, text: str) -> None:
    started = time.process_time()
    assert not matches(pattern, text)
    assert time.process_time() - started < 20


def asked(type: str, *patterns: str, **more: Any) -> Request:
    return Request(type, patterns, **more)


def test_the_last_matching_rule_wins() -> None:
    """Case 86."""
    rules = [
        Rule("skill", "*", "allow"),
        Rule("skill", "internal-*", "deny"),
        Rule("skill", "internal-docs", "allow"),
    ]
    stack = RuleSet(rules)
    assert stack.decide(asked("skill", "pdf")) == ("allow", rules[0])
    assert stack.decide(asked("skill", "internal-x")) == ("deny", rules[1])
    assert stack.decide(asked("skill", "internal-docs")) == ("allow", rules[2])


def test_an_unknown_type_is_asked_for() -> None:
    """Case 86."""
    assert RuleSet(DEFAULT_RULES).decide(asked("teleport", "x")) == ("ask", DEFAULT_RULES[0])
    assert RuleSet([Rule("skill", "*", "allow")]).decide(asked("teleport", "x"))[0] == "ask"


def test_what_no_rule_matches_is_asked_for() -> None:
    assert RuleSet().decide(asked("run", "ls")) == ("ask", DEFAULT_RULES[0])
    assert RuleSet([Rule("*", "*", "allow")]).decide(asked("run"))[0] == "ask"


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("initiator", ["model", "user"])
@pytest.mark.parametrize("trusted", [True, False])
def test_by_default_only_skills_are_allowed_and_strange_ones_only_to_the_user(
    type: str, initiator: str, trusted: bool
) -> None:
    request = asked(type, "x", initiator=initiator, trusted=trusted)
    allowed = type == "skill" and (trusted or initiator == "user")
    assert RuleSet(DEFAULT_RULES).decide(request)[0] == ("allow" if allowed else "ask")


def test_of_several_patterns_the_strictest_decides_and_the_first_such() -> None:
    rules = [
        Rule("run", "a", "allow"),
        Rule("run", "b", "ask"),
        Rule("run", "c", "deny"),
        Rule("run", "d", "deny"),
    ]
    stack = RuleSet(rules)
    assert stack.decide(asked("run", "a", "b")) == ("ask", rules[1])
    assert stack.decide(asked("run", "a", "d", "c", "b")) == ("deny", rules[3])


def test_the_rules_can_be_read_back_but_not_changed() -> None:
    rules = [Rule("run", "a", "allow")]
    stack = RuleSet(iter(rules))
    assert stack.rules == tuple(rules)
    with pytest.raises(AttributeError):
        stack.rules = ()  # type: ignore[misc]


def test_agents_that_come_and_go_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillbelt.permission.rules._MAX_VIEWS", 10)
    stack = RuleSet([Rule("run", "*", "allow", agent="even-*"), Rule("run", "x", "deny")])
    for number in range(100):
        agent = f"{'odd' if number % 2 else 'even'}-{number}"
        expected = "ask" if number % 2 else "allow"
        assert stack.decide(asked("run", "y", agent=agent))[0] == expected
    assert len(stack._views) <= 10


LINE = "shell: git push $(x)"


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ([("*", "allow")], "allow"),
        ([("git *", "allow")], "ask"),
        ([("shell: git *", "allow")], "ask"),
        ([("shell: *", "allow")], "ask"),
        ([("*git*", "allow")], "ask"),
        ([(LINE, "allow")], "allow"),
        ([("*", "deny")], "deny"),
        ([("shell: *", "deny"), ("git *", "allow")], "deny"),
        # It may be a denied command, so a person must look at it.
        ([("*", "allow"), ("git push *", "deny")], "ask"),
        ([("*", "allow"), ("rm *", "ask")], "ask"),
        ([("git push *", "deny"), ("*", "allow")], "allow"),
    ],
)
def test_only_a_rule_about_everything_allows_a_line_that_may_be_anything(
    rules: list[tuple[str, Action]], action: Action
) -> None:
    stack = RuleSet([*DEFAULT_RULES, *(Rule("run", pattern, said) for pattern, said in rules)])
    assert stack.decide(Request("run", (LINE,)))[0] == action


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ([("*", "allow")], "allow"),
        ([("*.example.com", "allow")], "allow"),
        ([("a.example.com", "allow")], "ask"),
        ([("*", "allow"), ("a.example.com", "deny")], "deny"),
        ([("*", "allow"), ("a.example.org", "deny")], "allow"),
    ],
)
def test_a_wish_for_many_hosts_meets_a_rule_about_one_of_them(
    rules: list[tuple[str, Action]], action: Action
) -> None:
    stack = RuleSet([*DEFAULT_RULES, *(Rule("network", pattern, said) for pattern, said in rules)])
    assert stack.decide(Request("network", ("*.example.com",)))[0] == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("rm -r x", "deny"),
        ("/bin/rm -r x", "deny"),
        ("./rm -r x", "deny"),
        ("python3 x", "allow"),
        ("./python3 x", "ask"),
        ("bin/python3 x", "ask"),
    ],
)
def test_a_path_is_denied_by_its_name_and_never_allowed_by_it(text: str, action: Action) -> None:
    rules = [Rule("run", "python3 *", "allow"), Rule("run", "rm *", "deny")]
    assert RuleSet([*DEFAULT_RULES, *rules]).decide(Request("run", (text,)))[0] == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("/bin/touch q", "ask"),
        ("../bin/touch q", "ask"),
        ("/bin/ls q", "allow"),
        ("/bin/sh q", "deny"),
    ],
)
def test_what_is_asked_for_by_its_name_is_asked_for_at_every_path(
    text: str, action: Action
) -> None:
    rules = [
        Rule("run", "*", "allow"),
        Rule("run", "touch *", "ask"),
        Rule("run", "sh *", "ask"),
        Rule("run", "/bin/sh *", "deny"),
    ]
    assert RuleSet([*DEFAULT_RULES, *rules]).decide(Request("run", (text,)))[0] == action


USERS, PROJECTS = "/home/a.toml", "/project/a.toml"


@pytest.mark.parametrize(
    ("own", "projects", "action"),
    [
        ([("rm *", "deny")], [("*", "allow")], "deny"),
        ([("rm *", "deny")], [("rm x", "ask")], "deny"),
        ([("rm *", "ask")], [("rm x", "allow")], "ask"),
        ([("rm *", "ask")], [("rm x", "deny")], "deny"),
        ([("rm *", "deny"), ("rm x", "allow")], [("rm x", "allow")], "allow"),
        ([("*", "allow")], [("rm *", "deny")], "deny"),
        ([], [("rm *", "allow")], "allow"),
    ],
)
@pytest.mark.parametrize("agent", ["", "review"])
def test_no_rule_of_a_project_makes_another_weaker(
    own: list[tuple[str, Action]],
    projects: list[tuple[str, Action]],
    action: Action,
    agent: str,
) -> None:
    source: Source = "agent" if agent else "project"
    rules = [
        *DEFAULT_RULES,
        *(
            Rule(type="run", pattern=pattern, action=said, source="user", path=USERS)
            for pattern, said in own
        ),
        *(
            Rule(
                type="run",
                pattern=text,
                action=said,
                source=source,
                path=PROJECTS,
                line=0,
                agent=agent,
            )
            for text, said in projects
        ),
    ]
    stack = RuleSet(rules, (PROJECTS,))
    assert stack.decide(Request("run", ("rm x",), agent=agent))[0] == action
    hosts = Rule("run", "rm *", "allow", "session")
    assert RuleSet([*rules, hosts], (PROJECTS,)).decide(Request("run", ("rm x",)))[0] == "allow"


def test_what_is_denied_below_a_folder_no_project_allows() -> None:
    rules = [
        Rule(type="host_file", pattern="/a/b/*", action="deny", source="user", path=USERS),
        Rule(type="host_file", pattern="*", action="allow", source="project", path=PROJECTS),
    ]
    assert RuleSet(rules).denying(Request("host_file", ()), "/a/*") == rules[0]


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ([Rule("run", "*", "allow"), Rule("tool", "Bash", "ask")], "ask"),
        ([Rule("run", "*", "allow"), Rule("tool", "Bash", "deny")], "deny"),
        ([Rule("tool", "Bash", "ask"), Rule("run", "git *", "allow")], "allow"),
        ([Rule("tool", "Bash", "allow")], "ask"),
        ([Rule("tool", "*", "deny")], "deny"),
    ],
)
@pytest.mark.parametrize("text", ["git add x", "shell: git add $x"])
def test_a_rule_about_the_tool_counts_for_its_uses(
    rules: list[Rule], action: Action, text: str
) -> None:
    if text.startswith("shell:") and action == "allow":
        action = "ask"  # a command that may be anything is not allowed by a rule about git
    request = Request("run", (text,), tools=("Bash",))
    assert RuleSet([*DEFAULT_RULES, *rules]).decide(request)[0] == action


def test_of_two_asks_the_one_that_somebody_wrote_is_told() -> None:
    stack = RuleSet([*DEFAULT_RULES, Rule("run", "b", "ask")])
    assert stack.decide(Request("run", ("a", "b")))[1].pattern == "b"


# Wrong values


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (("skils", "few", "deny"), "type must be one of .*'skill'.*; did you mean 'skill'"),
        (("run", "*", "permit"), "action must be one of 'allow', 'ask', 'deny', not 'permit'"),
        (("run", "*", "Deny"), "action must be one of"),
        (("run", "*", ""), "action must be one of"),
        (("run", 3, "deny"), "pattern must be text"),
    ],
)
def test_a_rule_that_could_never_decide_is_refused(fields: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Rule(*fields)


@pytest.mark.parametrize("kind", ["yes", "allow", True, None, ""])
def test_an_answer_of_no_kind_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="one of 'once', 'conversation', 'always', 'reject'"):
        Answer(kind)


def test_what_is_no_rule_is_refused_by_the_runtime(tree: Tree) -> None:
    wrong: Any = [("run", "*", "allow")]
    with pytest.raises(ConfigError, match="is not a Rule; write Rule"):
        Runtime(settings=tree.settings(), rules=wrong)
    with pytest.raises(ConfigError, match="is not a Rule; write Rule"):
        Runtime(settings=tree.settings()).session("ada", "s", rules=wrong)
    changed: Any = Rule("run", "*", "deny")._replace(action="Deny")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="action must be one of"):
        Runtime(settings=tree.settings(), rules=[changed])


def test_what_cannot_be_asked_is_refused_by_the_runtime(tree: Tree) -> None:
    wrong: Any = "yes"
    with pytest.raises(ConfigError, match="ask: str cannot be called; give a function"):
        Runtime(settings=tree.settings(), ask=wrong)


def test_a_rule_for_one_skill_is_about_no_other() -> None:
    rules = RuleSet([Rule("run", "*", "deny"), Rule("run", "python3 *", "allow", skill="pdf")])
    asked = Request("run", ("python3 a.py",))
    for skill, action in (("pdf", "allow"), ("pdf2", "deny"), ("", "deny"), ("PDF", "deny")):
        assert rules.decide(asked._replace(skill=skill))[0] == action
    assert rules.decide(asked._replace(skill="pdf", patterns=("rm x",)))[0] == "deny"


def test_what_is_allowed_to_a_skill_is_not_to_one_of_that_name_in_an_untrusted_project() -> None:
    asked = Request("run", ("python3 a.py",), skill="pdf", trusted=False)
    allow = Rule("run", "python3 *", "allow", skill="pdf")
    deny = Rule("run", "python3 *", "deny", skill="pdf")
    for rule, action in ((allow, "ask"), (deny, "deny"), (allow._replace(trusted=False), "allow")):
        assert RuleSet([rule]).decide(asked)[0] == action
    assert RuleSet([allow]).decide(asked._replace(trusted=True))[0] == "allow"


def test_what_is_denied_to_one_skill_is_so_whatever_it_hides_behind() -> None:
    rules = RuleSet([Rule("*", "*", "allow"), Rule("run", "rm *", "deny", skill="pdf")])
    for text in ("rm x", "/bin/rm x", "env rm x", "sudo rm x"):
        asked = Request("run", (text,), skill="pdf")
        assert rules.decide(asked)[0] == "deny", text
        assert rules.decide(asked._replace(skill="docx"))[0] == "allow", text


def test_a_skill_is_named_by_a_text() -> None:
    with pytest.raises(ConfigError, match="skill must be the name of a skill"):
        Rule("run", "*", "allow", skill=4)  # type: ignore[arg-type]
