"""The commands that a command line would run."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt.permission.command_lines import WHOLE, simple_commands
from skillbelt.permission.rules import DEFAULT_RULES, Request, Rule, RuleSet
from tests.examples import examples


@pytest.mark.parametrize(
    ("command", "commands"),
    [
        ("git add .", ("git add .",)),
        ("git  add\t.", ("git add .",)),
        ("git add . && git push", ("git add .", "git push")),
        ("a; b | c || d & e", ("a", "b", "c", "d", "e")),
        ("ls;ls", ("ls",)),
        ("echo 'a; b'", ("echo 'a; b'",)),
        ("'git add' .", ("'git add' .",)),
        ("echo ''", ("echo ''",)),
        ("ls *.py", ("ls *.py",)),
        ("'l's \"-l\"", ("ls -l",)),
        ("a &", ("a",)),
    ],
)
def test_a_line_is_taken_apart(command: str, commands: tuple[str, ...]) -> None:
    assert simple_commands(command) == commands


@pytest.mark.parametrize(
    "command",
    ["git add $(rm x)", "git add `rm x`", "git add > ~/.bashrc", "git add\nrm x", "(rm x)",
     "git add 'x", "git add \\\n x", "", " ", ";"],
)  # fmt: skip
def test_a_line_that_can_not_be_taken_apart_is_given_whole(command: str) -> None:
    assert simple_commands(command) == (WHOLE + command,)


@given(st.text(alphabet="ab ;&|'\"$(`>\n\\", max_size=20))
def test_no_separator_outside_quotes_is_left_in_a_command(command: str) -> None:
    for text in simple_commands(command):
        if not text.startswith(WHOLE):
            outside = "".join(text.replace('"', "'").split("'")[::2])
            assert not set(outside) & set("`>(\n\\")


@pytest.mark.parametrize(
    "command",
    [
        "echo $[1+1]", "echo $((a[$(id)]))", "echo `id`", "echo <(id)", "echo >(id)", "cat <<E",
        "alias ls=id", "ls() { id; }", "function ls { id; }", "eval id", "source x", ". x",
        "echo {a,b}", "echo ~", "echo ~root", "cp --to=~/x y", "PATH=~:/bin ls", "echo a\nid",
        "echo a\rid", "echo a\0id", "echo\u00a0a", "echo\u2003a", "echo\u3000a", "echo \x1ba",
        "echo a\u2028id", "coproc id", "[[ -v a[$(id)] ]]", "test -v 'a[$(id)]'",
        "printf -v 'a[$(id)]' x", "let 'a[$(id)]'", "declare 'a[$(id)]=1'", "unset 'a[$(id)]'",
        "read 'a[$(id)]'", "LD_PRELOAD=x ls", "PATH=. ls", "A+=x ls", "a[1]=x ls", "ls > x",
        "ls >> x", "ls < x", "ls &> x", "ls 2>&1", "ls |& id", "! ls", "time ls", "if ls; then id",
        "exec id", "command id", "builtin eval id", "trap id EXIT", "enable -f x y",
        "hash -p ./x ls", "export PATH=.", "set -- a", "shopt -s expand_aliases", "ls $HOME",
        'ls "$HOME"', 'ls "`id`"', "$X ls", "l? x", "/bin/l* x", "[ -v x ]", "'' x", "a ;; b",
        "a && && b", "&& a", "a ||", "a |", "# a", "a # b", "\\ls", "l\\s", '"l\\s"', "$'ls'",
        '$"ls"', "mapfile -C id x", "(id)", "{ id; }", "for a in b; do id; done",
    ],
)  # fmt: skip
def test_whatever_bash_may_make_more_of_is_given_whole(command: str) -> None:
    assert simple_commands(command) == (WHOLE + command,)
    rules = RuleSet([*DEFAULT_RULES, Rule("run", command.split()[0] + " *", "allow")])
    assert rules.decide(Request("run", simple_commands(command)))[0] == "ask"


# bash calls this for every program that it does not find: it prints the number of words, and each.
RECORDED = 'command_not_found_handle() { printf "%s\\0" "$#" "$@" >&3; }\nPATH=/nowhere\n'
PIECES = ["a", "b", " ", "  ", "\t", ";", "&", "&&", "|", "||", "'", '"', "'a b'", "''", '"a;b"',
          "*", "?", "[", "]", "#", "~", "=", "!", "$", "`", "(", ")", "{", "}", "<", ">", "\\",
          "\n", "eval ", "time ", "A=a ", "${a}", "$(a)", ",", "-v", ".", "/", ":", "+", "^", "%",
          "@", "\u00e9", "\u00a0", "if ", "then ", "coproc ", "in "]  # fmt: skip


def bash_ran(command: str, folder: Path) -> list[list[str]]:
    """Return the commands that bash really runs, as it passes them; none of them exists."""
    reader, writer = os.pipe()
    try:
        subprocess.run(
            ["bash", "--norc", "-c", f"exec 3>&{writer}\n{RECORDED}{command}\nwait"],
            cwd=folder, pass_fds=[writer], stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
    finally:
        os.close(writer)
    with open(reader, "rb") as file:
        words = file.read().decode().split("\0")[:-1]
    ran: list[list[str]] = []
    while words:
        count = int(words.pop(0))
        ran.append(words[:count])
        del words[:count]
    return ran


@settings(max_examples=examples(400), suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join))
def test_bash_runs_nothing_but_what_a_line_was_taken_apart_into(
    tmp_path_factory: pytest.TempPathFactory, command: str
) -> None:
    parts = simple_commands(command)
    if parts[0].startswith(WHOLE):
        return
    ran = bash_ran(command, tmp_path_factory.getbasetemp())
    known = [shlex.split(part) for part in parts]
    assert {words[0] for words in ran} <= {words[0] for words in known}
    if not set("*?[]") & set(command):
        assert all(words in known for words in ran)
