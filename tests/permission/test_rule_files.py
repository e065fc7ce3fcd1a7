from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import ConfigError, Diagnostic, load_settings
from skillbelt.permission.gate import Gate
from skillbelt.permission.rule_files import Policy, parse_rule, read_policy, type_of
from skillbelt.permission.rules import (
    DEFAULT_RULES,
    MAX_PATTERN_CHARS,
    TYPES,
    Request,
    Rule,
    RuleSet,
)
from skillbelt.store.memory import MemoryStore
from tests.tree import Tree

USER, PROJECT = "home/.config/skillbelt/config.toml", "project/skillbelt.toml"


def policy(tree: Tree, *, trusted: bool = True, **more: Any) -> Policy:
    return read_policy(tree.settings(), project_trusted=trusted, **more)


def written(tree: Tree, text: str, **more: Any) -> list[tuple[str, str, str, int]]:
    """Return the rules of the user's file with this text."""
    path = tree.write(USER, text)
    rules = [rule for rule in policy(tree, **more).rules if rule.path == str(path)]
    return [(rule.type, rule.pattern, rule.action, rule.line) for rule in rules]


def codes(said: tuple[Diagnostic, ...]) -> list[tuple[str, int | None]]:
    return [(one.code, one.line) for one in said]


def decided(found: Policy, type: str, text: str, **more: Any) -> str:
    return RuleSet(found.rules).decide(Request(type, (text,), **more))[0]


def test_without_files_there_are_only_the_built_in_rules(tree: Tree) -> None:
    assert policy(tree)[:2] == (DEFAULT_RULES, ())


# The forms of a rule


def test_a_table_of_patterns(tree: Tree) -> None:
    text = '[permission]\nrun = "ask"\nskill = { "*" = "allow", "internal-*" = "deny" }\n'
    assert written(tree, text) == [
        ("run", "*", "ask", 2),
        ("skill", "*", "allow", 3),
        ("skill", "internal-*", "deny", 3),
    ]


def test_a_table_of_its_own_for_a_type(tree: Tree) -> None:
    text = '[permission."*"]\n"*" = "deny"\n[permission.host-file]\n"/srv/a.b/*" = "allow"\n'
    assert written(tree, text) == [("*", "*", "deny", 2), ("host_file", "/srv/a.b/*", "allow", 4)]


def test_a_rule_may_be_for_an_initiator_an_agent_or_trusted_origins(tree: Tree) -> None:
    tree.write(
        USER,
        "[permission.skill]\n"
        '"a" = { action = "deny", initiator = "model", agent = "review" }\n'
        '"b" = { action = "ask", trusted = false }\n',
    )
    first, second = policy(tree).rules[-2:]
    assert (first.action, first.initiator, first.agent, first.trusted) == (
        "deny",
        "model",
        "review",
        None,
    )
    assert (second.action, second.initiator, second.agent, second.trusted) == ("ask", "", "", False)


def test_rules_of_other_clients_stand_after_tables_and_deny_stands_last(tree: Tree) -> None:
    text = (
        "[permission]\n"
        'deny = ["Bash(rm *)"]\n'
        "ask = [\n"
        '  "WebFetch(domain:example.com)",  # a host\n'
        "\n"
        "  'Read(//etc/**)',\n"
        "]\n"
        'allow = ["Skill(pdf *)"]\n'
        'run = "allow"\n'
    )
    assert written(tree, text) == [
        ("run", "*", "allow", 9),
        ("skill", "pdf *", "allow", 8),
        ("network", "example.com:?*", "ask", 4),
        ("network", "example.com", "ask", 4),
        ("host_file", "/etc/**", "ask", 6),
        ("run", "rm *", "deny", 2),
    ]


def test_rules_in_blocks_keep_their_order(tree: Tree) -> None:
    text = (
        '[[permission.rules]]\ntype = "run"\naction = "deny"\n'
        '[[permission.rules]]\npattern = "pdf"\ntype = "skill"\naction = "allow"\n'
        'initiator = "user"\n'
    )
    assert written(tree, text) == [("run", "*", "deny", 1), ("skill", "pdf", "allow", 5)]
    assert policy(tree).rules[-1].initiator == "user"


def test_rules_of_a_pyproject(tree: Tree) -> None:
    text = '[tool.other.permission]\nrun = "no"\n[tool.skillbelt.permission]\nrun = "deny"\n'
    path = tree.write("project/pyproject.toml", text)
    assert policy(tree).rules[-1] == Rule(
        type="run", pattern="*", action="deny", source="project", path=str(path), line=4
    )


def test_rules_of_an_agent(tree: Tree) -> None:
    text = '[agent.review.permission]\nrun = "deny"\nallow = ["Skill(pdf)"]\n'
    path = tree.write(USER, text)
    assert policy(tree).rules[-2:] == (
        Rule(
            type="run",
            pattern="*",
            action="deny",
            source="agent",
            path=str(path),
            line=2,
            agent="review",
        ),
        Rule(
            type="skill",
            pattern="pdf",
            action="allow",
            source="agent",
            path=str(path),
            line=3,
            agent="review",
        ),
    )


def test_a_path_in_the_home_is_the_same_as_its_full_path(tree: Tree) -> None:
    tree.write(USER, '[permission]\nhost_file = {"~/.ssh/*" = "deny"}\nask = ["Read(~/x)"]\n')
    found = policy(tree)
    assert decided(found, "host_file", f"{tree.home}/.ssh/id") == "deny"
    assert decided(found, "host_file", "~/.ssh/id") == "deny"
    assert [rule.pattern for rule in found.rules[-2:]] == [f"{tree.home}/x", "~/x"]


def test_every_port_of_a_host(tree: Tree) -> None:
    tree.write(USER, '[permission.network]\n"example.com:*" = "deny"\n')
    for text, action in (
        ("example.com", "deny"),
        ("example.com:8080", "deny"),
        ("example.com.org", "ask"),
    ):
        assert decided(policy(tree), "network", text) == action


# The stack


def test_the_order_of_the_sources(tree: Tree) -> None:
    tree.setenv("XDG_CONFIG_DIRS", tree.root / "etc")
    for path in ("etc/skillbelt/config.toml", USER, PROJECT):
        tree.write(path, '[agent.a.permission]\nrun = "deny"\n[permission]\nrun = "deny"\n')
    session = Rule("run", "*", "ask", "user")
    found = policy(tree, session_rules=iter([session])).rules
    assert [rule.source for rule in found[len(DEFAULT_RULES) :]] == [
        "system", "user", "project", "agent", "agent", "agent", "session",
    ]  # fmt: skip
    assert [rule.path for rule in found if rule.source == "agent"] == [
        str(tree.path(path)) for path in ("etc/skillbelt/config.toml", USER, PROJECT)
    ]


def test_other_files_can_be_named(tree: Tree) -> None:
    tree.write(USER, '[permission]\nrun = "deny"\n')
    own = tree.write("mine.toml", '[permission]\nskill = "deny"\n')
    found = policy(tree, files=[("user", str(own))]).rules
    assert found == (
        *DEFAULT_RULES,
        Rule(type="skill", pattern="*", action="deny", source="user", path=str(own), line=2),
    )


def test_a_project_that_is_not_trusted_allows_nothing(tree: Tree) -> None:
    text = (
        '[permission]\nrun = "allow"\nskill = "deny"\nnetwork = "ask"\nallow = ["Bash"]\n'
        '[agent.a.permission]\nrun = "allow"\n'
    )
    path = tree.write(PROJECT, text)
    found = policy(tree, trusted=False)
    assert {(rule.type, rule.action) for rule in found.rules if rule.path} == {
        ("skill", "deny"),
        ("network", "ask"),
    }
    assert codes(found.diagnostics) == [("untrusted-rule", line) for line in (2, 5, 5, 7)]
    assert all(one.severity == "warning" for one in found.diagnostics)
    assert "skillbelt trust add" in found.diagnostics[0].remedy
    assert found.diagnostics[0].path == str(path)
    assert len(policy(tree).rules) == len(found.rules) + 4


def test_a_project_that_is_not_trusted_takes_back_what_it_forbids_itself(tree: Tree) -> None:
    tree.write(USER, '[permission.skill]\n"secret" = "deny"\n"asked" = "ask"\n')
    text = (
        '[permission.skill]\n"*" = "deny"\n"foo" = "allow"\n"secret" = "allow"\n"asked" = "allow"\n'
    )
    tree.write(PROJECT, text + '[permission.run]\n"ls" = "allow"\n')
    gate = Gate(tree.settings(), MemoryStore)
    asked = {
        name: gate.explain(Request("skill", (name,))) for name in ("foo", "bar", "secret", "asked")
    }
    assert {name: one.action for name, one in asked.items()} == {
        "foo": "allow",
        "bar": "deny",
        "secret": "deny",
        "asked": "ask",
    }
    assert codes(gate.diagnostics) == [("untrusted-rule", 7)]
    ignored = {name: one.ignored and one.ignored.line for name, one in asked.items()}
    assert ignored == {"foo": None, "bar": None, "secret": 4, "asked": 5}
    command = gate.explain(Request("run", ("ls",)))
    assert (command.action, command.ignored and command.ignored.line) == ("ask", 7)


def test_the_hosts_rules_are_stronger_than_a_project_that_is_not_trusted(tree: Tree) -> None:
    tree.write(PROJECT, '[permission]\nskill = "deny"\n')
    gate = Gate(tree.settings(), MemoryStore, rules=[Rule("skill", "foo", "allow")])
    decided = [gate.explain(Request("skill", (name,))).action for name in ("foo", "bar")]
    assert decided == ["allow", "deny"]


def test_a_file_that_the_user_names_is_trusted(tree: Tree) -> None:
    path = tree.write(PROJECT, '[permission]\nrun = "allow"\n')
    found = read_policy(load_settings(tree.project, config=path), project_trusted=False)
    assert found.rules[-1] == Rule(
        type="run", pattern="*", action="allow", source="user", path=str(path), line=2
    )
    assert found.diagnostics == ()


@pytest.mark.parametrize(
    ("deny", "ask", "counts"),
    [
        ('run = {"rm *" = "deny"}', 'run = "ask"', False),
        ('run = {"rm *" = "deny"}', '"*" = "ask"', False),
        ('"*" = "deny"', 'run = {"ls" = "ask"}', False),
        ('run = {"rm *" = "deny"}', 'run = {"rm" = "ask"}', False),
        ('run = {"*x" = "deny"}', 'run = {"*y" = "ask"}', True),
        ('run = {"rm *" = "deny"}', 'run = {"ls *" = "ask"}', True),
        ('run = {"rm *" = "deny"}', 'skill = "ask"', True),
    ],
)
def test_a_project_that_is_not_trusted_turns_no_deny_of_the_users_into_a_question(
    tree: Tree, deny: str, ask: str, counts: bool
) -> None:
    tree.write(USER, f"[permission]\n{deny}\n")
    tree.write(PROJECT, f"[permission]\n{ask}\n")
    found = policy(tree, trusted=False)
    assert any(rule.source == "project" for rule in found.rules) is counts
    assert codes(found.diagnostics) == ([] if counts else [("untrusted-rule", 2)])
    assert any(rule.source == "project" for rule in policy(tree).rules)


# The home folder in paths


@pytest.mark.parametrize("pattern", ["~", "$HOME", "${HOME}", "~/", "$HOME/"])
def test_every_spelling_of_the_home_is_denied(tree: Tree, pattern: str) -> None:
    tree.write(USER, f'[permission.host_file]\n"*" = "allow"\n"{pattern}" = "deny"\n')
    found = policy(tree)
    assert decided(found, "host_file", str(tree.home)) == "deny"
    assert decided(found, "host_file", str(tree.home / "a")) == "allow"


@pytest.mark.parametrize("pattern", ["~/.ssh/*", "$HOME/.ssh/*", "${HOME}/.ssh/*", "$HOME/.ss*"])
def test_what_lies_in_the_home_is_denied(tree: Tree, pattern: str) -> None:
    tree.write(USER, f'[permission.host_file]\n"*" = "allow"\n"{pattern}" = "deny"\n')
    assert decided(policy(tree), "host_file", str(tree.home / ".ssh/id")) == "deny"
    rules = [Rule("host_file", "*", "allow"), Rule("host_file", pattern, "deny")]
    given = policy(tree, session_rules=rules)
    assert decided(given, "host_file", str(tree.home / ".ssh/id")) == "deny"


@pytest.mark.parametrize("pattern", ["secrets/*", "./x", "~bob/.ssh/*", "$XDG_DATA_HOME/x", "."])
def test_a_path_that_could_never_match_is_an_error(tree: Tree, pattern: str) -> None:
    with pytest.raises(ConfigError, match="is not a path that a request can name"):
        policy(tree, session_rules=[Rule("host_file", pattern, "deny")])
    tree.write(USER, f'[permission]\ndeny = ["Read({pattern})"]\n')
    with pytest.raises(ConfigError, match=r"config.toml:2: .* is not a path"):
        policy(tree)
    tree.write(USER, f'[permission.host_file]\n"{pattern}" = "deny"\n')
    with pytest.raises(ConfigError, match=r"config.toml:2: .* is not a path"):
        policy(tree)


# Rules that never decide


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('[permission.skill]\n"internal-*" = "deny"\n"*" = "allow"\n', [2]),
        ('[permission.skill]\n"*" = "allow"\n"internal-*" = "deny"\n', []),
        ('[permission]\nskill = {"a" = "deny"}\n"*" = "ask"\n', [2]),
        ('[permission]\n"*" = "ask"\nskill = "allow"\n', []),
        ('[permission.run]\n"git add *" = "allow"\n"git *" = "deny"\n', [2]),
        ('[permission.run]\n"git *" = "deny"\n"git ?*" = "allow"\n', []),
        ('[permission.run]\n"git*" = "allow"\n"git *" = "deny"\n', []),
        ('[permission.run]\n"a*b" = "allow"\n"a*" = "ask"\n', [2]),
        ('[permission.run]\n"b" = "allow"\n"*" = {action="deny", initiator="model"}\n', []),
        ('[permission.run]\n"b" = "allow"\n"*" = {action="deny", agent="x"}\n', []),
        ('[permission.run]\n"b" = "allow"\n"*" = {action="deny", trusted=false}\n', []),
        ('[permission.run]\n"b" = {action="allow", agent="x"}\n"*" = "deny"\n', [2]),
        ('[permission]\nallow = ["Bash(git *)"]\ndeny = ["Bash"]\n', [2]),
        ('[agent.x.permission.run]\n"b" = "allow"\n"*" = "deny"\n', [2]),
        ('[agent.x.permission]\nrun = "allow"\n[agent.y.permission]\nrun = "deny"\n', []),
    ],
)
def test_a_rule_that_never_decides_is_told(tree: Tree, text: str, lines: list[int]) -> None:
    tree.write(USER, text)
    said = policy(tree).diagnostics
    assert codes(said) == [("rule-never-decides", line) for line in lines]
    assert all(one.severity == "warning" and "first" in one.remedy for one in said)


def test_a_stronger_file_may_say_otherwise_in_peace(tree: Tree) -> None:
    tree.write(USER, '[permission]\nrun = {"ls" = "deny"}\n')
    tree.write(PROJECT, '[permission]\nrun = "deny"\n')
    assert policy(tree).diagnostics == ()


LETTERS = st.text("ab *?:", min_size=1, max_size=5)


@given(st.lists(st.tuples(LETTERS, st.sampled_from(["ask", "deny"])), max_size=6), st.data())
def test_what_is_said_never_to_decide_never_does(
    tmp_path_factory: pytest.TempPathFactory, rules: list[tuple[str, str]], data: st.DataObject
) -> None:
    blocks = [
        f'[[permission.rules]]\npattern = "{pattern}"\ntype = "run"\naction = "{action}"\n'
        for pattern, action in rules
    ]
    found = policy_of(tmp_path_factory.mktemp("home"), "".join(blocks))
    stack = RuleSet(found.rules)
    text = data.draw(st.text("ab :", max_size=5))
    _, rule = stack.decide(Request("run", (text,)))
    assert rule.line not in [one.line for one in found.diagnostics]


def policy_of(home: Path, text: str) -> Policy:
    """Return the policy of a project's file with the text, if the project is trusted."""
    (home / "skillbelt.toml").write_text(text, "utf-8", newline="")
    environ = {"HOME": str(home), "XDG_CONFIG_DIRS": str(home)}
    return read_policy(load_settings(home, environ=environ), project_trusted=True)


# Lines and errors

PATTERNS = (
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")))
    .map(lambda text: text.translate(dict.fromkeys(map(ord, "'\"\\"))).strip())
    .filter(bool)
)
FILLER = st.sampled_from(["", "\n", "# run = {'a' = 1}\n", "\r\n"])


@given(
    st.lists(PATTERNS, unique=True, max_size=5),
    st.lists(st.tuples(FILLER, st.booleans()), min_size=5, max_size=5),
    st.sampled_from(["table", "inline", "list", "dotted", "blocks"]),
    st.sampled_from(["", "agent.x-y."]),
)
def test_the_line_of_a_rule_holds_its_pattern(
    tmp_path_factory: pytest.TempPathFactory,
    patterns: list[str],
    ways: list[tuple[str, bool]],
    form: str,
    agent: str,
) -> None:
    text = document(patterns, ways, form, agent)
    lines = text.split("\n")
    rules = [rule for rule in policy_of(tmp_path_factory.mktemp("home"), text).rules if rule.path]
    assert [rule.pattern for rule in rules] == patterns
    assert all(rule.pattern in lines[rule.line - 1] for rule in rules)
    if form != "inline":
        assert len({rule.line for rule in rules}) == len(rules)


def document(patterns: list[str], ways: list[tuple[str, bool]], form: str, agent: str) -> str:
    """The patterns, all denied for `run`, in one of the forms."""
    quoted = [f'"{p}"' if way[1] else f"'{p}'" for p, way in zip(patterns, ways, strict=False)]
    pairs = [(way[0], text) for way, text in zip(ways, quoted, strict=False)]
    match form:
        case "table":
            return f"[{agent}permission.run]\n" + "".join(f"{n}{q} = 'deny'\n" for n, q in pairs)
        case "inline":
            inner = ", ".join(f"{q} = {{action = 'deny'}}" for q in quoted)
            return f"\n[{agent}permission]\nrun = {{{inner}}}\n"
        case "dotted":
            return "".join(f"{n}{agent}permission.run.{q} = 'deny'\n" for n, q in pairs)
        case "list":
            inner = "".join(f"{n}{q[0]}Bash({q[1:-1]}){q[0]},\n" for n, q in pairs)
            return f"[{agent}permission]\ndeny = [\n{inner}]\n"
        case _:
            return "".join(
                f"[[{agent}permission.rules]]\ntype = 'run'\n{n}pattern = {q}\naction = 'deny'\n"
                for n, q in pairs
            )


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('\nrun = "no"', 3, "action must be one of allow, ask, deny, not 'no'"),
        ("run = 1", 2, "action must be one of allow, ask, deny, not 1"),
        ('run = {"a" = "Deny"}', 2, "action must be one of allow, ask, deny, not 'Deny'"),
        ('run = {"a" = {initiator = "model"}}', 2, "action must be one of"),
        ('skil = "deny"', 2, "unknown type 'skil'; did you mean 'skill'?"),
        ('xyzzy = "deny"', 2, f"unknown type 'xyzzy'; known are {', '.join(TYPES)} and *"),
        ('run = {"a" = {action = "deny", initator = "model"}}', 2,
         "unknown key 'initator'; did you mean 'initiator'?"),
        ('run = {"a" = {action = "deny", initiator = "me"}}', 2,
         "initiator must be model or user, not 'me'"),
        ('run = {"a" = {action = "deny", trusted = 1}}', 2,
         "trusted must be true or false, not 1"),
        ('run = {"a" = {action = "deny", agent = 1}}', 2, "agent must be text, not 1"),
        ('deny = "Bash"', 2, "permission.deny must be a list, not 'Bash'"),
        ('deny = [\n"Bash",\n7]', 4, "7 is not a rule; write a tool, as in Bash, or"),
        ('deny = [\n"Bash", "Bash(",\n]', 3, "'Bash(' is not a rule; write a tool"),
        ('deny = ["WebFetch(https://example.com/x)"]', 2, "'WebFetch(https://example.com/x)' is"),
        ('rules = [{type = "run", pattern = 1, action = "deny"}]', 2,
         "pattern must be text, not 1"),
        ('rules = [{pattern = "x", action = "deny"}]', 2, "unknown type None; known are"),
        ('rules = [{type = "run", pattern = "x"}]', 2, "action must be one of"),
        ("rules = [1]", 2, "permission.rules.0 must be a table, not 1"),
        (f'run = {{"{"a" * 5000}" = "deny"}}', 2, "a pattern may have 4096 characters, this"),
        ('[agent.a.permission.run]\n"x" = {action = "deny", agent = "b"}', 3,
         "these are the rules of agent 'a' already; remove the key agent"),
        ('[agent.a]\npermision = 1', 3, "unknown key 'permision' of agent 'a'; only 'permission'"),
        ("[agent]\na = 1", 3, "agent.a must be a table, not 1"),
    ],
)  # fmt: skip
def test_a_wrong_rule_names_file_line_and_remedy(
    tree: Tree, text: str, line: int, says: str
) -> None:
    file = tree.write(USER, f"[permission]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        policy(tree)
    assert str(caught.value).startswith(f"{file}:{line}: {says}")


@pytest.mark.parametrize("name", ["permission", "agent"])
def test_a_table_must_be_one(tree: Tree, name: str) -> None:
    file = tree.write(USER, f"nested = true\n{name} = 3\n")
    with pytest.raises(ConfigError) as caught:
        policy(tree)
    assert str(caught.value) == f"{file}:2: {name} must be a table, not 3"


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("deny"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["run", "skill", "deny", "rules", "action", "permission", "x", ""]),
            inner,
            max_size=3,
        )
    ),
)


@given(st.sampled_from(["permission", "agent"]), TREES)
def test_any_table_is_read_or_refused(name: str, value: Any) -> None:
    from skillbelt.settings import RuleTables, Settings

    settings = Settings(
        files=(("user", "/x.toml"),), rule_tables={"/x.toml": RuleTables("", (), {name: value})}
    )
    try:
        found = read_policy(settings, project_trusted=False)
    except ConfigError as error:
        assert str(error).startswith("/x.toml:1: ")
    else:
        assert all(rule.action in ("allow", "ask", "deny") for rule in found.rules)


@pytest.mark.long
@pytest.mark.parametrize("form", ['"*{}*" = "ask"\n', '"{}*" = "allow"\n', '"a{}" = "deny"\n'])
def test_a_very_long_file_is_read_in_good_time(tree: Tree, form: str) -> None:
    tree.write(USER, '[permission.run]\n"x*y" = "deny"\n')
    body = "".join(form.format(number) for number in range(30_000))
    tree.write(PROJECT, f"[permission.run]\n{body}")
    started = time.process_time()
    policy(tree, trusted=False)
    assert time.process_time() - started < 40


# Rules of other clients


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Skill(pdf)", [("skill", "pdf")]),
        ("Skill(pdf *)", [("skill", "pdf *")]),
        ("Skill", [("skill", "*"), ("tool", "Skill")]),
        ("Bash(git add *)", [("run", "git add *")]),
        ("Bash(npm run test:*)", [("run", "npm run test:*")]),
        ("Bash(echo (a) b)", [("run", "echo (a) b")]),
        (" Terminal( ls ) ", [("run", "ls")]),
        ("Bash", [("run", "*"), ("tool", "Bash")]),
        ("WebFetch(domain:example.com)", [("network", "example.com")]),
        ("Fetch(*.example.com)", [("network", "*.example.com")]),
        ("WebSearch", [("network", "*"), ("tool", "WebSearch")]),
        ("Read(//etc/hosts)", [("host_file", "/etc/hosts")]),
        ("Edit(~/x/**)", [("host_file", "~/x/**")]),
        ("Write", [("tool", "Write")]),
        ("mcp__server__tool", [("tool", "mcp__server__tool")]),
        ("mcp__server__*", [("tool", "mcp__server__*")]),
        ("mcp__server__tool(x)", []),
        ("Bash()", []),
        ("Bash(ls", []),
        ("Bash)", []),
        ("Bash(ls) x", []),
        ("(ls)", []),
        ("", []),
        ("Bash, Read", []),
        ("Bash\nRead", []),
        ("a" * (MAX_PATTERN_CHARS + 1), []),
    ],
)
def test_a_rule_of_another_client(text: str, expected: list[tuple[str, str]]) -> None:
    rules = parse_rule(text, "deny")
    assert [(rule.type, rule.pattern) for rule in rules] == expected
    assert all(rule.action == "deny" and rule.source == "session" for rule in rules)


def test_a_rule_of_another_client_knows_where_it_stands() -> None:
    [rule] = parse_rule(
        "Skill(a)", "ask", source="user", path="/x", line=3, agent="b", initiator="model",
        trusted=False,
    )  # fmt: skip
    assert rule == Rule(
        type="skill",
        pattern="a",
        action="ask",
        source="user",
        path="/x",
        line=3,
        agent="b",
        initiator="model",
        trusted=False,
    )


@given(st.text() | st.text("Bash()* :", max_size=12))
def test_any_text_is_read_or_passed_by(text: str) -> None:
    for rule in parse_rule(text, "allow"):
        assert rule.type in TYPES
        assert rule.pattern


def test_the_name_of_a_skill_is_covered_whatever_follows(tree: Tree) -> None:
    tree.write(USER, '[permission]\ndeny = ["Skill(pdf *)"]\n')
    assert decided(policy(tree), "skill", "pdf") == "deny"
    assert decided(policy(tree), "skill", "pdf-forms") == "allow"


def test_deny_of_a_file_beats_its_allow_in_whatever_order_it_stands(tree: Tree) -> None:
    tree.write(USER, '[permission]\ndeny = ["Bash(git push *)"]\nallow = ["Bash(git *)"]\n')
    assert decided(policy(tree), "run", "git push x") == "deny"
    assert decided(policy(tree), "run", "git status") == "allow"


def test_a_tool_says_what_is_asked_for() -> None:
    assert [type_of(tool) for tool in ("Skill", "Bash", "Fetch", "LS", "mcp__x")] == [
        "skill", "run", "network", "host_file", "tool",
    ]  # fmt: skip


def test_the_example_of_the_documentation(tree: Tree) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "permissions.md"
    example = page.read_text("utf-8").partition("```toml\n")[2].partition("\n```")[0]
    assert {"permission", "agent"} <= tomllib.loads(example).keys()
    tree.write(USER, example)
    found = policy(tree)
    assert found.diagnostics == ()
    for type, text, agent, action in (
        ("skill", "internal-x", "", "deny"),
        ("skill", "internal-docs", "", "allow"),
        ("run", "git status", "", "allow"),
        ("run", "git push origin", "", "deny"),
        ("run", "make", "", "ask"),
        ("run", "git status", "review", "deny"),
        ("network", "docs.python.org", "", "allow"),
    ):
        assert decided(found, type, text, agent=agent) == action, (type, text)
