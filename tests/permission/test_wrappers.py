"""Programs that start other programs, and the rules that apply to them."""

from __future__ import annotations

import pytest

from skillbelt.permission.command_lines import simple_commands
from skillbelt.permission.rules import DEFAULT_RULES, Action, Request, Rule, RuleSet
from skillbelt.permission.wrappers import Started, started

DENIED = [
    "env rm x", "env -i rm x", "env -u A -- rm x", "env A=b rm x", "nice rm x", "nice -n 5 rm x",
    "nice -5 rm x", "timeout 5 rm x", "timeout -k 1 -s KILL 5 rm x", "nohup rm x",
    "setsid -f rm x", "stdbuf -oL rm x", "stdbuf -o L rm x", "ionice -c 3 rm x",
    "flock /tmp/l rm x", "flock /tmp/l -c 'rm x'", "taskset -c 0 rm x", "taskset 1 rm x",
    "prlimit --nofile=9 rm x", "setpriv --no-new-privs rm x", "choom -n 5 rm x", "xargs rm",
    "xargs -n 1 rm", "busybox rm x", "sudo rm x", "sudo -u a rm x", "doas rm x", "sh -c 'rm x'",
    "bash -c 'rm x'", "dash -c 'rm x'", "zsh -c 'rm x'", "ksh -c 'rm x'", "bash -lc 'ls; rm x'",
    "bash --norc -o pipefail -c 'rm x'", "/usr/bin/env rm x", "env /bin/rm x",
    "env nice timeout 5 sh -c 'nohup rm x'", "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    "git -C . push", "git -C . push origin main", "git -c a=b push", "git --git-dir=.git push",
    "env git -C . push", "xargs -0 git push", "find . -execdir rm x",
]  # fmt: skip
ASKED = [
    "env -S 'rm x'", "env '-Srm x'", "env --split-string='rm x'", "script -c 'rm x'", "sh",
    "bash -s", "sh -c 'eval x'", "find . -exec ls", "perl -e 'unlink 1'", "perl -pe 1 x",
    "python3 -c 'import os'", "python3", "python3 -", "python3.11 -Wignore -c 1",
    "python3 -W ignore -c 1", "python3 -m timeit 1", "node -e 1", "node --eval=1", "ruby -e 1",
    "awk 'BEGIN{system(1)}'", "awk '{print | 1}'", "sed 1e", "sed 's/a/b/e' x",
    "sed -n '1e ls' x", "parallel ls", "xargs ls", "watch ls", "git -c alias.x='!rm' x",
    "ssh a ls", "rsync -ave ls a b", "tar xf a --to-command=ls", "timeout --unheard-of 5 ls",
    "strace ls", "env A=b ls", "ls | sh", "npx a", "deno eval 1",
    "env env env env env env env env env env ls",
]  # fmt: skip
ALLOWED = [
    "python3 scripts/x.py", "python3 scripts/x.py -c 1", "python3 -u scripts/x.py",
    "bash x.sh -c 1", "bash -x x.sh", "python3 -m json.tool a", "node x.js -e", "perl x.pl",
    "awk '{print 1}' x", "sed 's/a/b/g' x", "sed -n 2p x", "sed -i 's|a|b|' x",
    "find . -name '*.txt'", "git -C . status", "git status", "env", "timeout 5 ls rm",
    "nice grep rm x", "tar xf a", "python3 --version", "awk -F'|' '{print 1}' x", "echo rm x",
    "sh x.sh",
]  # fmt: skip
RULES = [
    *DEFAULT_RULES,
    Rule("run", "*", "allow"),
    Rule("run", "rm *", "deny"),
    Rule("run", "git push *", "deny"),
]


def decided(line: str, rules: list[Rule] = RULES) -> Action:
    return RuleSet(rules).decide(Request("run", simple_commands(line)))[0]


@pytest.mark.parametrize("line", DENIED)
def test_what_is_denied_is_denied_behind_what_starts_it(line: str) -> None:
    assert decided(line) == "deny"


@pytest.mark.parametrize("line", ASKED)
def test_what_may_start_what_is_denied_is_asked_for(line: str) -> None:
    assert decided(line) == "ask"


@pytest.mark.parametrize("line", ALLOWED)
def test_what_starts_nothing_of_that_is_allowed(line: str) -> None:
    assert decided(line) == "allow"


@pytest.mark.parametrize("line", ["env touch x", "sh -c 'touch x'", "env /bin/touch x"])
def test_what_is_asked_for_is_asked_for_behind_what_starts_it(line: str) -> None:
    rules = [*DEFAULT_RULES, Rule("run", "*", "allow"), Rule("run", "touch *", "ask")]
    assert decided(line, rules) == "ask"


@pytest.mark.parametrize("line", ["env ls", "python3 -c 1", "xargs ls", "sh -c ls"])
def test_without_a_rule_about_something_nothing_more_is_asked_for(line: str) -> None:
    assert decided(line, [*DEFAULT_RULES, Rule("run", "*", "allow")]) == "allow"
    later = [*DEFAULT_RULES, Rule("run", "rm *", "deny"), Rule("run", "*", "allow")]
    assert decided(line, later) == "allow"


def test_a_later_rule_about_the_command_itself_allows_it() -> None:
    assert decided("python3 -c 1", [*RULES, Rule("run", "python3 *", "allow")]) == "allow"
    assert decided("env rm x", [*RULES, Rule("run", "env *", "allow")]) == "deny"


def test_what_is_started_is_not_allowed_by_what_it_is() -> None:
    rules = [*DEFAULT_RULES, Rule("run", "ls *", "allow")]
    assert decided("env ls", rules) == "ask"


def test_what_is_read_of_a_command() -> None:
    assert started("nice -n 5 ls a") == Started(("ls a",))
    assert started("xargs ls") == Started(("ls",), True)
    assert started("ls a") == Started()
    assert started("env 'a") == Started((), True)
