"""`skillbelt permissions`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Request, Runtime
from tests import warm
from tests.terminal import CHOICE, on_terminal
from tests.tree import Tree

CONFIG = """\
[permission]
run = "deny"

[permission.skill]
"internal-*" = "deny"
"""


@pytest.fixture
def rules(tree: Tree) -> Tree:
    tree.skill("project/.agents/skills/pdf")
    tree.skill("project/.agents/skills/internal-plan")
    tree.write("home/.config/skillbelt/config.toml", CONFIG)
    return tree


def given(tree: Tree, *arguments: str) -> Any:
    done = tree.run("permissions", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return done.document


def test_list_shows_every_rule_with_its_place(rules: Tree) -> None:
    document = given(rules, "list")
    own = [rule for rule in document["rules"] if rule["source"] == "user"]
    path = str(rules.home / ".config/skillbelt/config.toml")
    assert own == [
        {
            "type": "run",
            "pattern": "*",
            "action": "deny",
            "source": "user",
            "path": path,
            "line": 2,
        },
        {
            "type": "skill",
            "pattern": "internal-*",
            "action": "deny",
            "source": "user",
            "path": path,
            "line": 5,
        },
    ]
    assert document["rules"][0]["source"] == "default"
    assert document["remembered"] == []


def test_list_for_a_person(rules: Tree) -> None:
    screen = on_terminal(rules, "permissions", columns=160)
    assert any("internal-*" in line and "config.toml:5" in line for line in screen.lines)


def test_why_names_the_rule_the_file_and_the_line(rules: Tree) -> None:
    document = given(rules, "why", "internal-plan")
    assert document["model"]["action"] == "deny"
    assert document["model"]["rule"]["line"] == 5
    done = rules.run("permissions", "why", "internal-plan")
    assert "deny" in done.stdout
    assert "config.toml:5" in done.stdout


def test_why_tells_the_user_and_the_model_apart(rules: Tree) -> None:
    rules.setenv("SKILLBELT_TRUST_PROJECT", "ask")
    document = given(rules, "why", "pdf")
    assert (document["model"]["action"], document["user"]["action"]) == ("ask", "allow")


def test_why_of_a_command_takes_it_apart(rules: Tree) -> None:
    rules.run("permissions", "allow", "--type", "run", "git *")
    assert given(rules, "why", "--type", "run", "git push")["model"]["action"] == "allow"
    assert given(rules, "why", "--type", "run", "git push; rm x")["model"]["action"] == "deny"


def test_a_command_that_is_allowed_as_a_skill_gets_a_hint(rules: Tree) -> None:
    assert "add --type run" in rules.run("permissions", "allow", "git push").stderr
    assert "add --type run" not in rules.run("permissions", "allow", "pdf").stderr


def test_why_of_an_unknown_skill(rules: Tree) -> None:
    assert rules.run("permissions", "why", "pfd").exit_code == 3


def test_allow_ask_and_deny_add_a_rule(rules: Tree) -> None:
    for action in ("deny", "ask", "allow"):
        written = given(rules, action, "internal-plan")
        assert written["action"] == action
        assert Path(written["path"]).read_text().splitlines()[written["line"] - 1]
        assert given(rules, "why", "internal-plan")["model"]["action"] == action


def test_a_rule_for_one_agent(rules: Tree) -> None:
    given(rules, "deny", "pdf", "--agent", "writer")
    assert given(rules, "why", "pdf", "--agent", "writer")["model"]["action"] == "deny"
    assert given(rules, "why", "pdf")["model"]["action"] == "allow"


def test_a_rule_for_one_skill(rules: Tree) -> None:
    command = ("python3 a.py", "--type", "run")
    rules.skill("project/.agents/skills/docx")
    given(rules, "deny", *command)
    written = given(rules, "allow", *command, "--skill", "pdf")
    assert (written["skill"], written["action"]) == ("pdf", "allow")
    assert given(rules, "why", *command, "--skill", "pdf")["model"]["action"] == "allow"
    for words in ((), ("--skill", "docx")):
        assert given(rules, "why", *command, *words)["model"]["action"] == "deny"
    assert "skill pdf" in rules.run("permissions", "list").stdout
    # It stands beside the other, is changed by itself and taken back by itself.
    given(rules, "ask", *command, "--skill", "pdf")
    assert given(rules, "why", *command, "--skill", "pdf")["model"]["action"] == "ask"
    assert given(rules, "revoke", *command, "--skill", "pdf")["rules"] == 1
    assert given(rules, "why", *command, "--skill", "pdf")["model"]["action"] == "deny"
    assert given(rules, "revoke", *command)["rules"] == 1


def test_a_rule_about_a_skill_names_it_as_its_subject(rules: Tree) -> None:
    done = rules.run("permissions", "deny", "pdf", "--skill", "pdf")
    assert done.exit_code == 2 and "SUBJECT is the skill itself" in done.stderr


@pytest.mark.parametrize("named", ['""', "4", '["pdf"]'])
def test_a_file_names_a_skill_by_a_text(rules: Tree, named: str) -> None:
    path = "home/.config/skillbelt/config.toml"
    rules.write(path, f'[permission.run]\n"*" = {{ action = "allow", skill = {named} }}\n')
    done = rules.run("permissions", "list")
    assert done.exit_code == 2 and "config.toml:2: skill must be the name" in done.stderr


def test_revoke_takes_an_added_rule_back(rules: Tree) -> None:
    given(rules, "deny", "pdf")
    assert given(rules, "revoke", "pdf")["rules"] == 1
    assert given(rules, "why", "pdf")["model"]["action"] == "allow"


def test_revoke_takes_back_what_was_remembered(rules: Tree) -> None:
    rules.write("home/.config/skillbelt/config.toml", '[permission]\nskill = "ask"\n')
    assert on_terminal(rules, "load", "pdf", answers=[(CHOICE, "a\n")]).exit_code == 0
    [remembered] = given(rules, "list")["remembered"]
    assert remembered["skill"] == "pdf"
    [taken] = given(rules, "revoke", remembered["id"])["remembered"]
    assert taken == remembered
    assert rules.run("load", "pdf").exit_code == 4
    assert "revoked" in rules.run("log").stdout


def test_revoke_takes_the_text_that_is_listed(rules: Tree) -> None:
    gate = Runtime(rules.project).gate
    text = "echo X"
    asked = Request("run", (text,), (text,), skill="pdf", hash="sha256:1", exact="sha256:2")
    gate.ledger.remember(asked)
    assert text in rules.run("permissions").stdout
    [taken] = given(rules, "revoke", text)["remembered"]
    assert taken["pattern"] == text
    assert gate.ledger.all() == []


def test_a_line_end_in_a_rule_is_listed_and_its_text_is_revoked(rules: Tree) -> None:
    added = rules.run("permissions", "allow", "echo a\nrm -rf x", "--type", "run")
    assert r"allow run 'echo a\nrm -rf x'" in added.stderr
    shown = r"echo a\nrm -rf x"
    assert shown in rules.run("permissions").stdout
    assert given(rules, "revoke", shown, "--type", "run")["rules"] == 1
    assert shown not in rules.run("permissions").stdout


def _on_a_full_disk(tree: Tree, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where no file can become larger than 8 KB, as SQLite's have to."""
    code = (
        "import resource, sys; from skillbelt.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8_192,) * 2)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    return warm.run(
        [sys.executable, "-c", code, "permissions", *arguments],
        cwd=tree.project,
        capture_output=True,
        text=True,
    )


def test_a_full_disk_keeps_rules_whose_remembered_answers_it_keeps(rules: Tree) -> None:
    gate = Runtime(rules.project).gate
    given(rules, "deny", "pdf")
    file = rules.path("home/.config/skillbelt/permissions.toml")
    before = file.read_text()
    asked = Request("run", ("echo",), ("echo",), skill="pdf", hash="sha256:1", exact="sha256:2")
    gate.ledger.remember(asked)
    gate.close()
    done = _on_a_full_disk(rules, "revoke", "pdf")
    assert (done.returncode, file.read_text()) == (2, before)
    assert "nothing of this change was kept" in done.stderr
    assert "echo" in _on_a_full_disk(rules, "list").stdout


def test_a_full_disk_lets_rules_go_that_have_no_remembered_answers(rules: Tree) -> None:
    gate = Runtime(rules.project).gate
    gate.ledger.remember(Request("run", ("echo",), ("echo",), exact="sha256:2"))
    gate.close()
    given(rules, "deny", "pdf")
    done = _on_a_full_disk(rules, "revoke", "pdf")
    assert (done.returncode, done.stderr) == (0, "revoked: 1 rule, 0 remembered answers\n")
    assert given(rules, "why", "pdf")["model"]["action"] == "allow"


def test_revoke_of_nothing(rules: Tree) -> None:
    done = rules.run("permissions", "revoke", "pdf")
    assert done.exit_code == 1
    assert "nothing to revoke" in done.stderr


@pytest.mark.parametrize("action", ["why", "allow", "revoke", "answer"])
def test_a_subject_is_needed(tree: Tree, action: str) -> None:
    done = tree.run("permissions", action)
    assert done.exit_code == 2
    assert "SUBJECT" in done.stderr


def test_nobody_waits(tree: Tree) -> None:
    assert given(tree, "pending") == {"pending": []}
    assert tree.run("permissions", "answer", "x", "once").exit_code == 1


def test_another_process_is_told_and_answers(rules: Tree) -> None:
    rules.setenv("SKILLBELT_TRUST_PROJECT", "ask")
    command = [sys.executable, "-m", "skillbelt", "permissions", "watch", "--json"]
    watcher = warm.Popen[str](
        command, cwd=rules.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    assert watcher.stderr is not None
    try:
        assert "waiting for requests" in watcher.stderr.readline()
        code = (
            "from skillbelt import Runtime\n"
            "print(Runtime('.').dispatch('skill_load', {'skill': 'pdf'}).error or 'loaded')"
        )
        asker = warm.Popen[str](
            [sys.executable, "-c", code], cwd=rules.project, stdout=subprocess.PIPE, text=True
        )
        pending = json.loads(watcher.stdout.readline())
        assert pending["skill"] == "pdf"
        assert [one["id"] for one in given(rules, "pending")["pending"]] == [pending["id"]]
        assert given(rules, "answer", pending["id"], "once")["answered"]
        assert asker.communicate(timeout=500)[0] == "loaded\n"
    finally:
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=500)
    assert watcher.returncode == 130
    assert given(rules, "pending") == {"pending": []}


def test_what_the_rules_deny_is_in_no_prompt(rules: Tree) -> None:
    assert "internal-plan" not in rules.run("prompt").stdout
    assert "internal-plan" not in Runtime(rules.project).overview().text


@pytest.mark.parametrize(
    ("type", "pattern", "fault"),
    [
        ("secret", "A_KEY", "write SKILL/NAME, or '*/A_KEY'"),
        ("host_file", "secrets/a", "write an absolute path"),
        ("network", "a b", "write example.com"),
    ],
)
def test_a_rule_that_no_file_may_hold_is_not_written(
    rules: Tree, type: str, pattern: str, fault: str
) -> None:
    done = rules.run("permissions", "deny", pattern, "--type", type)
    assert done.exit_code == 2
    assert fault in done.stderr
    assert rules.run("permissions").exit_code == 0


def test_a_rule_about_a_secret(rules: Tree) -> None:
    given(rules, "allow", "pdf/A_KEY", "--type", "secret")
    why = given(rules, "why", "pdf/A_KEY", "--type", "secret")
    assert (why["model"]["action"], why["user"]["action"]) == ("allow", "allow")
    assert given(rules, "why", "pdf/B_KEY", "--type", "secret")["user"]["action"] == "ask"
    rules.run("permissions", "revoke", "pdf/A_KEY", "--type", "secret")
    assert given(rules, "why", "pdf/A_KEY", "--type", "secret")["user"]["action"] == "ask"
