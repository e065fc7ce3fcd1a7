"""How a person at a terminal is asked for permission."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from skillbelt.cli.asking import describe_request, find_new
from skillbelt.permission.command_lines import simple_commands
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import SHELL_TOOLS, Decision, Request, Rule
from skillbelt.store.memory import MemoryStore
from tests.terminal import CHOICE, REASON, Paste, on_terminal
from tests.tree import Tree

AT_ONCE = "Pasted text is not accepted"


@pytest.fixture
def asked(tree: Tree) -> Tree:
    """A skill that the user's own rule asks for."""
    tree.skill("project/.agents/skills/pdf", text="The body.\n")
    tree.write("home/.config/skillbelt/config.toml", '[permission]\nskill = "ask"\n')
    return tree


def test_the_question_says_what_why_and_what_always_covers(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", columns=200, answers=[(CHOICE, "o\n")])
    assert screen.exit_code == 0
    text = "\n".join(screen.lines)
    assert "load the skill pdf from" in text
    assert "you asked for it, and no rule allows it" in text
    assert "would cover skill pdf in this project, until the skill changes" in text
    assert "The body." in text


def test_once_is_not_remembered(asked: Tree) -> None:
    assert on_terminal(asked, "load", "pdf", answers=[(CHOICE, "o\n")]).exit_code == 0
    assert asked.run("load", "pdf").exit_code == 4


def test_always_is_remembered_until_the_skill_changes(asked: Tree) -> None:
    assert on_terminal(asked, "load", "pdf", answers=[(CHOICE, "a\n")]).exit_code == 0
    assert asked.run("load", "pdf").exit_code == 0
    asked.write("project/.agents/skills/pdf/scripts/run.py", "print()\n")
    assert asked.run("load", "pdf").exit_code == 4


def test_a_word_may_be_typed_letter_by_letter(asked: Tree) -> None:
    letters = [(CHOICE, "o"), ("o", "n"), ("n", "c"), ("c", "e"), ("e", "\n")]
    assert on_terminal(asked, "load", "pdf", answers=letters).exit_code == 0


def test_a_letter_can_be_taken_back(asked: Tree) -> None:
    letters = [(CHOICE, "a"), ("a", "\x7f"), ("\b \b", "o"), ("o", "\n")]
    assert on_terminal(asked, "load", "pdf", answers=letters).exit_code == 0
    assert asked.run("load", "pdf").exit_code == 4


def test_reject_ends_with_the_reason_that_was_typed(asked: Tree) -> None:
    answers = [(CHOICE, "r\n"), (REASON, "not today\n")]
    screen = on_terminal(asked, "load", "pdf", answers=answers)
    assert screen.exit_code == 4
    assert any("was refused: not today" in line for line in screen.lines)


def test_enter_alone_is_a_no(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", answers=[(CHOICE, "\n")])
    assert screen.exit_code == 4
    assert REASON not in screen.written


def test_an_answer_that_is_none_is_asked_for_again_and_then_no(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", answers=[(CHOICE, "w\n")] * 3)
    assert screen.exit_code == 4
    assert screen.written.count(CHOICE) == 3


def test_the_end_of_the_input_is_a_no(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", answers=[(CHOICE, "\x04")])
    assert screen.exit_code == 4
    assert REASON not in screen.written


def test_an_interrupt_is_a_no_and_leaves(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", answers=[(CHOICE, "\x03")])
    assert screen.exit_code == 130
    assert asked.run("load", "pdf").exit_code == 4


@pytest.mark.parametrize("ahead", ["a\n", "o\no\no\n", "a", "\n\n\n"])
def test_what_was_typed_before_the_question_is_no_answer(asked: Tree, ahead: str) -> None:
    """The last of them is one more key: what was typed ahead would have made it a yes."""
    screen = on_terminal(asked, "load", "pdf", ahead=ahead, answers=[(CHOICE, "\n")])
    assert screen.exit_code == 4
    assert screen.written.count(CHOICE) == 1
    assert asked.run("load", "pdf").exit_code == 4


@pytest.mark.parametrize(
    "paste",
    [
        "\x1b[200~a\x1b[201~",
        "\x1b[200~a\n\x1b[201~",
        "\x1b[200~text\na\n\x1b[201~",
        "text\na\n",
        "always\n",
        Paste("a\n"),
        Paste("o\r"),
        "a\na\n",
        "\na\n",
        "oa\n",
    ],
)
def test_a_paste_is_no_answer(asked: Tree, paste: str) -> None:
    screen = on_terminal(asked, "load", "pdf", answers=[(CHOICE, paste), (CHOICE, "\n")])
    assert screen.exit_code == 4
    assert AT_ONCE in screen.written
    assert asked.run("load", "pdf").exit_code == 4


def test_after_a_paste_a_letter_is_an_answer(asked: Tree) -> None:
    answers = [(CHOICE, "first\na\n"), (AT_ONCE, ""), (CHOICE, "o\n")]
    assert on_terminal(asked, "load", "pdf", answers=answers).exit_code == 0


def test_a_paste_is_told_apart_only_while_it_is_asked(asked: Tree) -> None:
    written = on_terminal(asked, "load", "pdf", answers=[(CHOICE, "o\n")]).written
    assert written.count("\x1b[?2004h") == written.count("\x1b[?2004l") == 1
    assert written.index("\x1b[?2004h") < written.index(CHOICE) < written.index("\x1b[?2004l")
    plain = on_terminal(asked, "load", "pdf", answers=[(CHOICE, "o\n")], TERM="dumb").written
    assert "\x1b[?2004" not in plain


def test_under_a_pipe_it_is_denied_and_says_how_to_allow_it(asked: Tree) -> None:
    done = asked.run("load", "pdf", "--json")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["error"]["kind"] == "permission_denied"
    assert "no user or callback can grant it" in done.stderr
    assert "skillbelt permissions allow" in done.stderr


def words_of(reason: str) -> list[str]:
    """The words of the command that a refusal names, as a shell reads them."""
    [command] = re.findall(r"`(skillbelt permissions allow [^`]+)`", reason)
    assert command.isprintable()
    # `&&` becomes a word, so that several commands are one list.
    listed = ["bash", "-c", "printf '%s\\0' " + command.replace(" && ", " '&&' ")]
    done = subprocess.run(listed, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    "request_",
    [
        Request("run", ("cat /etc/passwd",), tools=SHELL_TOOLS),
        Request("run", ("ls *.txt  'a' `id` $(x)\n\u202e; rm -rf ~",), tools=SHELL_TOOLS),
        Request("run", simple_commands("cat a.txt | sort -u"), tools=SHELL_TOOLS),
        Request("run", simple_commands("for x in *; do echo $x; done"), tools=SHELL_TOOLS),
        Request("host_file", ("/srv/a b/*/c",)),
        Request("network", ("example.com:8080",)),
        Request("install", ("six==1.16.0 sha256:00ff",)),
        Request("tool", ("-x",)),
        Request("skill", ("pdf",), trusted=False, skill="pdf"),
    ],
    ids=lambda one: f"{one.type}-{len(one.patterns[0])}",
)
def test_the_command_in_a_refusal_allows_what_was_refused(tree: Tree, request_: Request) -> None:
    def decide(asked: Request = request_) -> Decision:
        return Gate(tree.settings(), MemoryStore).check(asked)

    refused = decide()
    assert not refused.allowed
    words = words_of(refused.reason)
    for start in [at for at, word in enumerate(words) if word == "skillbelt"]:
        stop = words.index("&&", start) if "&&" in words[start:] else len(words)
        assert tree.run(*words[start + 1 : stop]).exit_code == 0
    assert decide().allowed
    close = request_.patterns[0].replace("*", "a/longer/text")
    other = request_._replace(patterns=(close,))
    assert close == request_.patterns[0] or not decide(other).allowed


def test_a_rule_of_the_host_is_not_overridden_by_a_command(tree: Tree) -> None:
    gate = Gate(tree.settings(), MemoryStore, rules=[Rule("run", "*", "ask")])
    reason = gate.check(Request("run", ("ls",))).reason
    assert "skillbelt permissions" not in reason
    assert "in code: Rule('run', 'ls', 'allow')" in reason


def test_a_model_is_told_that_the_command_is_for_the_user(tree: Tree) -> None:
    gate = Gate(tree.settings(), MemoryStore)
    said = "Only the user may decide: `skillbelt permissions allow ls --type run`"
    assert said in gate.check(Request("run", ("ls",))).reason
    assert "Only the user" not in gate.check(Request("run", ("ls",), initiator="user")).reason


def test_no_command_is_named_for_what_a_rule_cannot_hold(tree: Tree) -> None:
    gate = Gate(tree.settings(), MemoryStore)
    reason = gate.check(Request("run", ("echo \udcff",))).reason
    assert "permissions allow" not in reason
    assert "`skillbelt permissions watch` answers" in reason


def test_what_the_refusal_says_to_do_helps(asked: Tree) -> None:
    assert asked.run("permissions", "allow", "pdf").exit_code == 0
    assert json.loads(asked.run("load", "pdf", "--json").stdout)["text"] == "The body.\n"


def test_what_is_long_is_counted_and_can_be_shown(asked: Tree) -> None:
    long = "x" * 2_000 + "; touch hidden; " + "y" * 2_000
    asked.write("home/.config/skillbelt/config.toml", "")  # the run alone is asked for
    asked.skill("project/.agents/skills/kit")
    answers = [("show all of it (", ""), (CHOICE, "s\n"), ("touch hidden", ""), (CHOICE, "\n")]
    screen = on_terminal(asked, "run", "kit", "--", "echo", long, columns=6_000, answers=answers)
    assert screen.exit_code == 4
    first = screen.written[: screen.written.index(CHOICE)]
    assert "touch hidden" not in first
    assert "characters ...]" in first


def test_a_hostile_request_can_not_forge_the_question() -> None:
    request = Request("run", ("ls\n  why      you trust it\x1b[2J",), summary="run a\nb\u202ec")
    lines = describe_request(request)[0].splitlines()
    assert len(lines) == 4
    assert "ls\\n  why      you trust it\\x1b[2J" in lines[2]
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_a_type_that_is_not_known_is_said_so() -> None:
    assert "that this version does not know" in describe_request(Request("teleport", ("home",)))[0]


def test_arrow_keys_choose_a_row(asked: Tree) -> None:
    keys = [(CHOICE, "\x1b[B"), ("once", "\x1b[B"), ("always", "\x1b[A"), ("once", "\r")]
    assert on_terminal(asked, "load", "pdf", answers=keys).exit_code == 0
    assert asked.run("load", "pdf").exit_code == 4  # it was for once


def test_an_arrow_key_that_was_meant_for_something_else_allows_nothing(asked: Tree) -> None:
    keys = [(CHOICE, "\x1b[A"), ("reject", "\r"), (REASON, "\r")]
    assert on_terminal(asked, "load", "pdf", answers=keys).exit_code == 4


def test_a_command_that_ends_is_not_asked_about_for_its_conversation(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", answers=[(CHOICE, "c\n"), (CHOICE, "\n")])
    assert screen.exit_code == 4
    assert "for this conversation" not in screen.written


def run_request(command: str, **fields: Any) -> Request:
    return Request("run", (command,), skill="kit", hash=fields.pop("hash", "1"), **fields)


def test_what_is_new_is_said_beside_the_closest_request() -> None:
    before = [run_request("python3 a.py x"), run_request("ls"), Request("run", ("rm -r y",))]
    assert find_new(run_request("python3 a.py x --send"), before) == "`--send`"
    assert find_new(run_request("ls"), before) == "nothing, you allowed the same before"
    assert find_new(run_request("ls", hash="2"), before) == "the files of the skill changed"
    more = run_request("ls", metadata={"call": {"hosts": ["evil.example"]}})
    assert find_new(more, before) == "hosts evil.example"
    assert find_new(Request("network", ("a.example",), skill="kit"), before) == ""


def test_a_command_is_shown_whole_and_once() -> None:
    command = "echo " + "x" * 1_500
    request = run_request(command, summary=f"run `{command}`", metadata={"command": command})
    text, hidden = describe_request(request)
    assert text.count(command) == 1
    assert hidden == 0


def test_a_long_fact_goes_on_below_itself_and_nothing_is_lost() -> None:
    command = "run " + " ".join(f"word{n}" for n in range(40)) + " 日本語" * 20
    lines = describe_request(run_request("x", summary=command), columns=40)[0].splitlines()
    assert all(len(line) <= 40 for line in lines)
    value = "".join(line[11:] for line in lines[1:] if line.startswith(("  what", "      ")))
    assert command.replace(" ", "") in value.replace(" ", "")
