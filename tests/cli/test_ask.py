from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from skillbelt.cli import main
from tests import warm
from tests.openai_server import Broken, Calls, Raw, Refused, Said, Slow, called, said, serving
from tests.terminal import CHOICE, REASON, on_terminal
from tests.tree import Done, Tree

SKILLS = "project/.agents/skills"
ECHO = "import json, sys\nprint(json.dumps({'got': json.load(sys.stdin)}))\n"


@pytest.fixture
def skilled(open_tree: Tree) -> Tree:
    open_tree.skill(f"{SKILLS}/echo", "Gives back what it gets, as an echo.")
    open_tree.write(f"{SKILLS}/echo/scripts/main.py", ECHO)
    open_tree.skill(f"{SKILLS}/greet", "Greets people.", text="Say `mellifluous` first.\n")
    return open_tree


Ask = Callable[..., Done]


@pytest.fixture
def ask(skilled: Tree, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The command in this process: what providers need is imported once for all tests."""

    def asked(*arguments: str) -> Done:
        code = main(["ask", *arguments, "--project", str(skilled.project)])
        return Done(code, *capsys.readouterr())

    return asked


def test_it_answers_without_a_model_and_says_so(skilled: Tree) -> None:
    done = skilled.run("ask", "An echo, please", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "No language model was used." in done.stdout
    assert '"question": "An echo, please"' in done.stdout


def test_the_document_has_what_is_promised(skilled: Tree) -> None:
    done = skilled.run("ask", "An echo, please", "--yes", "--json")
    document = json.loads(done.stdout)
    assert list(document) == ["answer", "skills", "tool_calls", "files", "usage"]
    assert document["skills"] == ["echo"]
    assert [call["name"] for call in document["tool_calls"]] == ["skill_load", "execute_skill"]


def test_the_document_lists_a_skill_that_the_user_called(skilled: Tree) -> None:
    done = skilled.run("ask", "/greet Ada", "--json")
    assert json.loads(done.stdout)["skills"] == ["greet"]


def test_the_document_has_the_files_that_a_script_left(skilled: Tree) -> None:
    skilled.write(f"{SKILLS}/echo/scripts/main.py", "open('out/a.txt', 'w').write('text')")
    done = skilled.run("ask", "An echo, please", "--yes", "--json")
    (file,) = json.loads(done.stdout)["files"]
    assert (file["name"], file["content"]) == ("out/a.txt", "text")


def test_the_document_lists_what_a_renamed_tool_loaded(skilled: Tree) -> None:
    skilled.setenv("SKILLBELT_TOOL_NAMES", "common")
    done = skilled.run("ask", "Greet people", "--json")
    assert json.loads(done.stdout)["skills"] == ["greet"]


def test_without_a_terminal_what_must_be_asked_for_is_denied(skilled: Tree) -> None:
    done = skilled.run("ask", "An echo, please")
    assert done.exit_code == 4
    assert "The script did not run: permission was refused.\n" in done.stdout
    assert "no user or callback can grant it" in done.stderr
    assert "no user or callback can grant it" not in done.stdout


def test_quiet_leaves_the_refusal_in_the_answer(skilled: Tree) -> None:
    done = skilled.run("ask", "An echo, please", "-q")
    assert (done.exit_code, done.stderr) == (4, "")
    assert "no user or callback can grant it" in done.stdout


def test_a_terminal_breaks_an_answer_without_a_model_between_words(skilled: Tree) -> None:
    prose = "some words of prose that go on " * 9
    skilled.write(f"{SKILLS}/echo/scripts/main.py", f"print({prose!r})\nprint('a   b')\n")
    screen = on_terminal(skilled, "ask", "An echo, please", "--yes", columns=40)
    assert screen.exit_code == 0
    assert max(map(len, screen.lines)) <= 40
    assert " ".join(" ".join(screen.lines).split()).count(prose.strip()) == 1
    assert "a   b" in screen.lines


RUN = called("skill_run", {"skill": "echo", "command": "python3 scripts/main.py"}, "r")


def test_a_refusal_is_told_whatever_the_model_says(ask: Ask) -> None:
    """One line with the command that allows it; that command helps."""
    with serving(RUN, said("It is 6.00.")) as server:
        done = ask("Echo it", "--model", f"tiny@{server.url}")
    assert (done.exit_code, done.stdout) == (4, "It is 6.00.\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("skillbelt: refused: Permission to run")
    [command] = re.findall(r"`(skillbelt permissions allow [^`]+)`", line)
    assert main([*shlex.split(command)[1:], "-q"]) == 0
    with serving(RUN, said("It is 6.00.")) as server:
        done = ask("Echo it", "--model", f"tiny@{server.url}")
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_refusal_is_in_the_document(ask: Ask) -> None:
    with serving(RUN, said("It is 6.00.")) as server:
        done = ask("Echo it", "--model", f"tiny@{server.url}", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 4
    [refused] = document["refused"]
    assert refused["tool"] == "skill_run"
    assert "skillbelt permissions allow" in refused["message"]
    assert (document["error"]["kind"], document["error"]["exit_code"]) == ("permission_denied", 4)


def test_the_error_of_a_document_is_the_refusal_and_not_another_failure(ask: Ask) -> None:
    missed = called("skill_load", {"skill": "nosuch"}, "m")
    again = called("skill_load", {"skill": "neither"}, "n")
    with serving(missed, RUN, again, said("It is 6.00.")) as server:
        done = ask("Echo it", "--model", f"tiny@{server.url}", "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == ("permission_denied", 4)
    assert error["message"].startswith("Permission to run")
    assert "skillbelt permissions why" in error["remedy"]


def test_a_model_that_finds_another_way_succeeds(ask: Ask, skilled: Tree) -> None:
    skilled.write(
        "home/.config/skillbelt/config.toml", '[permission.run]\n"python3 --version" = "allow"\n'
    )
    other = called("skill_run", {"skill": "echo", "command": "python3 --version"}, "o")
    with serving(RUN, other, said("It is 6.00.")) as server:
        done = ask("Echo it", "--model", f"tiny@{server.url}")
    assert done.exit_code == 0
    assert done.stderr.count("skillbelt: refused: ") == 1


def test_the_run_of_another_skill_is_no_other_way(ask: Ask, skilled: Tree) -> None:
    skilled.skill(f"{SKILLS}/other", "Does something else.")
    skilled.write(
        "home/.config/skillbelt/config.toml", '[permission.run]\n"python3 --version" = "allow"\n'
    )
    other = called("skill_run", {"skill": "other", "command": "python3 --version"}, "o")
    with serving(RUN, other, said("It is 6.00.")) as server:
        done = ask("Echo it", "--model", f"tiny@{server.url}")
    assert done.exit_code == 4
    assert "`skillbelt permissions allow 'python3 scripts/main.py' --type run`" in done.stderr


def test_a_repeated_refusal_is_told_once(ask: Ask) -> None:
    again = called("skill_run", {"skill": "echo", "command": "python3 scripts/main.py"}, "s")
    with serving(RUN, again, said("No.")) as server:
        done = ask("Echo it", "--model", f"tiny@{server.url}")
    assert (done.exit_code, done.stderr.count("skillbelt: refused: ")) == (4, 1)


def test_on_a_terminal_it_asks(skilled: Tree) -> None:
    screen = on_terminal(skilled, "ask", "An echo, please", answers=[(CHOICE, "o\n")])
    assert screen.exit_code == 0
    assert any("Permission needed" in line for line in screen.lines)
    assert any('"question": "An echo, please"' in line for line in screen.lines)


def test_a_refusal_is_told_with_its_reason(skilled: Tree) -> None:
    screen = on_terminal(
        skilled, "ask", "An echo, please", answers=[(CHOICE, "r\n"), (REASON, "not today\n")]
    )
    assert screen.exit_code == 4
    assert sum("not today" in line for line in screen.lines) == 2  # where it is typed, and told


def test_a_script_that_fails_is_an_answer_of_no(skilled: Tree) -> None:
    skilled.write(f"{SKILLS}/echo/scripts/main.py", "import sys\nsys.exit(5)\n")
    assert skilled.run("ask", "An echo, please", "--yes").exit_code == 1


def test_the_sandbox_is_an_option(skilled: Tree) -> None:
    done = skilled.run("ask", "An echo, please", "--yes", "--sandbox", "nothing")
    assert done.exit_code != 0
    assert "nothing" in done.stdout + done.stderr


def test_a_question_from_a_pipe(skilled: Tree) -> None:
    done = warm.run(
        [sys.executable, "-m", "skillbelt", "ask", "-", "--yes"],
        cwd=skilled.project,
        input=b"An echo, please\n",
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert b"An echo, please" in done.stdout


@pytest.mark.parametrize("text", ["", "  "])
def test_no_question_is_wrong_usage(skilled: Tree, text: str) -> None:
    done = skilled.run("ask", text)
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_file_that_is_not_there_is_wrong_usage(skilled: Tree) -> None:
    done = skilled.run("ask", "Read it", "--file", "nowhere.txt")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nowhere.txt cannot be read" in done.stderr


def test_a_model_that_does_not_exist_is_wrong_usage(ask: Ask) -> None:
    done = ask("Hello", "--model", "nobody:x")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'nobody:x' cannot be used" in done.stderr


def test_a_model_answers_with_a_skill(ask: Ask) -> None:
    load = called("skill_load", {"skill": "greet"})
    with serving(load, said("mellif", "luous, Bob")) as server:
        done = ask("Greet Bob", "--model", f"tiny@{server.url}", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert document["answer"] == "mellifluous, Bob"
    assert document["skills"] == ["greet"]
    assert document["usage"] == {
        "input_tokens": 200,
        "output_tokens": 20,
        "cached_tokens": 160,
        "cache_write_tokens": 0,
        "requests": 2,
    }


def test_a_conversation_can_be_gone_on_with(ask: Ask) -> None:
    with serving(said("One."), said("Two.")) as server:
        for text in ("First", "Second"):
            model = f"tiny@{server.url}"
            ask(text, "--model", model, "--session", "mine")
        sent = [message["content"] for message in server.requests[1]["messages"][1:]]
    assert sent == ["First", "One.", "Second"]


def test_each_part_of_an_answer_begins_a_line(ask: Ask) -> None:
    load = Calls((("a", "skill_load", '{"skill": "greet"}'),), "Let me see.")
    with serving(load, said("Hello.")) as server:
        done = ask("Greet Bob", "--model", f"tiny@{server.url}")
    assert done.stdout == "Let me see.\nHello.\n"


def test_a_skill_that_is_worked_on_apart_is_called_by_name(ask: Ask, skilled: Tree) -> None:
    skilled.skill(f"{SKILLS}/research", "Researches.", context="fork")
    with serving(said("Found.")) as server:
        assert ask("/research the attic", "--model", f"tiny@{server.url}").stdout == "Found.\n"


def test_a_command_that_is_refused_says_why(ask: Ask, skilled: Tree) -> None:
    skilled.skill(f"{SKILLS}/mute", "Is not for users.", user_invocable=False)
    done = ask("/mute")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "cannot be called by the user" in done.stderr


def test_arguments_of_calls_are_objects_where_they_can_be(ask: Ask) -> None:
    twice = Calls((("a", "skill_load", '{"skill": "greet"}'), ("b", "skill_load", '{"skill')))
    with serving(twice, said("done")) as server:
        done = ask("Greet Bob", "--model", f"tiny@{server.url}", "--json")
    calls = json.loads(done.stdout)["tool_calls"]
    assert [call["arguments"] for call in calls] == [{"skill": "greet"}, '{"skill']
    assert [bool(call["error"]) for call in calls] == [False, True]


def test_what_does_not_count_is_not_in_the_line_of_the_answer(ask: Ask) -> None:
    with serving(Broken(said("half", "of"), 1), said("Whole.")) as server:
        done = ask("Hello", "--model", f"tiny@{server.url}")
    assert done.stdout == "half\nWhole.\n"
    assert "asking again: compatible:tiny at" in done.stderr


def test_an_address_that_is_none_is_wrong_usage(ask: Ask) -> None:
    done = ask("Hello", "--model", "tiny@http://[::1")
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_model_that_refuses_is_an_answer_of_no(ask: Ask) -> None:
    with serving(Refused(400, "no such thing")) as server:
        done = ask("Hello", "--model", f"tiny@{server.url}")
    assert done.exit_code == 1
    assert "no such thing" in done.stderr


def test_what_a_model_says_can_not_play_with_the_terminal(skilled: Tree) -> None:
    with serving(said("Fine\x1b[2J\x1b]0;ow", "ned\x07 \u202eevil\r")) as server:
        screen = on_terminal(skilled, "ask", "Hello", "--model", f"tiny@{server.url}")
    assert "\x1b]" not in screen.written
    assert "\x1b[2J" not in screen.written
    assert "\u202e" not in screen.written


def test_a_terminal_is_shown_markdown_and_a_pipe_gets_the_text(ask: Ask, skilled: Tree) -> None:
    answer = said("It is **6", ".00**.\n\n- on", "e\n- two\n")
    with serving(answer, answer) as server:
        model = ("--model", f"tiny@{server.url}")
        screen = on_terminal(skilled, "ask", "How much?", *model)
        done = ask("How much?", *model)
    drawn = [line.rpartition("\x1b[J")[2] for line in screen.lines]
    assert "  It is 6.00." in drawn
    assert drawn[-2:] == ["   • one", "   • two"]
    assert done.stdout == "It is **6.00**.\n\n- one\n- two\n"


def test_an_interrupt_ends_it_at_once(skilled: Tree) -> None:
    with serving(Slow(said("Once", " upon"), threading.Event())) as server:
        child = warm.Popen[bytes](
            [sys.executable, "-m", "skillbelt", "ask", "Hi", "--model", f"tiny@{server.url}"],
            cwd=skilled.project,
            env=os.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdout.read(4) == b"Once"
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=500)
        assert server.gone.wait(150)
    assert child.returncode == 130
    assert b"Traceback" not in stderr


def test_the_model_may_be_a_setting(ask: Ask, skilled: Tree) -> None:
    with serving(said("Hi from afar")) as server:
        skilled.setenv("SKILLBELT_MODEL", f"tiny@{server.url}")
        assert ask("Hello").stdout == "Hi from afar\n"
        assert "No language model" in ask("Hello", "--model", "offline").stdout
        assert len(server.requests) == 1


def test_a_project_can_not_say_who_is_told(ask: Ask, skilled: Tree) -> None:
    with serving(said("Thank you")) as server:
        skilled.write("project/skillbelt.toml", f'model = "tiny@{server.url}"\n')
        done = ask("My secret")
        assert (done.exit_code, server.requests) == (2, [])
    assert "model cannot be set by a project" in done.stderr


def test_an_empty_setting_is_no_model(ask: Ask, skilled: Tree) -> None:
    skilled.setenv("SKILLBELT_MODEL", "")
    assert "No language model was used." in ask("Hello").stdout


@pytest.mark.long
def test_what_a_command_prints_is_not_kept_in_memory(skilled: Tree) -> None:
    """Of two questions to one process the second prints 40 MB more; the peak tells them apart."""
    command = "head -c {} /dev/zero | tr '\\0' x"
    runs = [
        called("skill_run", {"skill": "echo", "command": command.format(size)})
        for size in (200_000, 40_000_000)
    ]
    code = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from skillbelt.cli import main\n"
        # What getrusage tells is that of the parent before it was this program, if that was more.
        "def peak():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "codes = [main(sys.argv[1:])]\n"
        "before = peak()\n"
        "codes.append(main(sys.argv[1:]))\n"
        "print(*codes, peak() - before)\n"
    )
    with serving(runs[0], said("Little."), runs[1], said("Much.")) as server:
        options = ("--yes", "--model", f"tiny@{server.url}")
        done = skilled.python("-c", code, "ask", "Print", *options)
    assert done.stdout.split()[:-1] == ["Little.", "Much.", "0", "0"], done
    results = [server.requests[at]["messages"][-1]["content"] for at in (1, 3)]
    assert all("xxx" in one for one in results)
    assert int(done.stdout.split()[-1]) < 20 * 1024


def test_verbose_says_what_it_cost(ask: Ask) -> None:
    with serving(said("Hi")) as server:
        done = ask("Hello", "--model", f"tiny@{server.url}", "-v")
    assert "1 requests, 100 tokens in (80 cached), 10 out" in done.stderr


def test_no_answer_at_all_is_no_success(ask: Ask) -> None:
    with serving(Said((), "content_filter")) as server:
        done = ask("Hello?", "--model", f"tiny@{server.url}")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "content filter blocked the answer" in done.stderr


def test_what_a_package_warns_of_is_not_told(ask: Ask, recwarn: pytest.WarningsRecorder) -> None:
    counted = {"prompt_tokens": -1, "completion_tokens": -1, "total_tokens": -1}
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    chunk = {"id": "x", "created": 1, "model": "m", "choices": [choice], "usage": counted}
    with serving(Raw((f"data: {json.dumps(chunk)}\n\n",))) as server:
        done = ask("Hello?", "--model", f"tiny@{server.url}")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Hi\n", "")
    assert not recwarn.list


def test_arguments_without_an_end_are_told_as_they_were_written(ask: Ask) -> None:
    deep = '{"skill": ' + "[" * 900 + "]" * 900 + "}"
    with serving(called("skill_load", deep), said("Fine.")) as server:
        done = ask("Hello?", "--model", f"tiny@{server.url}", "--json")
    assert json.loads(done.stdout)["tool_calls"][0]["arguments"] == deep
