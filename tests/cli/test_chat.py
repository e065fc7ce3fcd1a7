"""Talks at a real pseudo-terminal, and through pipes."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from skillbelt.cli import main
from skillbelt.cli.failure import INTERRUPTED
from tests import warm
from tests.benches import alive
from tests.discovery.sources.server import eventually
from tests.openai_server import Slow, called, said, serving
from tests.terminal import CHOICE
from tests.tree import Done, Tree

SKILLS = "project/.agents/skills"
ECHO = "import json, sys\nprint(json.dumps({'got': json.load(sys.stdin)}))\n"
HANG_SECONDS = 500
# Stands in an empty prompt alone: answers may have "> " in them, and what is typed before the
# prompt is read by a terminal that makes a new line of Enter.
PROMPT = "a question, @file or /help"
# An answer that cannot be stopped, and a runner that cannot be closed.
STUCK = """
import threading
from skillbelt.agent import Runner, TextDelta
from skillbelt.cli import main

def run(*_, **__):
    try:
        yield TextDelta("Once")
        threading.Event().wait()
    finally:
        threading.Event().wait()

Runner.run_sync, Runner.close = run, lambda self: threading.Event().wait()
raise SystemExit(main())
"""


class Talk:
    """Somebody at a terminal."""

    def __init__(self, handle: int, prompt: str) -> None:
        self._handle, self._prompt, self.written = handle, prompt, ""
        self._seen = 0

    def until(self, text: str) -> str:
        """Wait until the text is on the screen, after what was waited for before."""
        end = time.monotonic() + HANG_SECONDS
        while text not in self.written[self._seen :]:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come:\n{self.written}"
            if select.select([self._handle], [], [], left)[0]:
                self.written += os.read(self._handle, 65536).decode("utf-8", "replace")
        start = self._seen
        self._seen = self.written.index(text, start) + len(text)
        return self.written[start : self._seen]

    def until_closed(self) -> None:
        """Wait until no process has the terminal any more."""
        with suppress(OSError):  # that is how it ends
            self.until("\0")

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def press(self, letter: str) -> None:
        """Type a letter, and Enter once it is on the screen."""
        self.type(letter)
        self.until(letter)
        self.type("\r")

    def say(self, line: str) -> None:
        """Type a line at the prompt."""
        self.until(self._prompt)
        self.type(f"{line}\r")


@contextmanager
def talking(
    tree: Tree,
    *options: str,
    term: str = "xterm",
    program: tuple[str, str] = ("-m", "skillbelt"),
    exit_code: int = 0,
) -> Iterator[Talk]:
    ours, theirs = pty.openpty()
    child = warm.Popen[bytes](
        [sys.executable, *program, "chat", *options],
        terminal=True,
        cwd=tree.project,
        env={**os.environ, "TERM": term, "PYTHONUTF8": "1", "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Talk(ours, "> " if term == "dumb" else PROMPT)
        assert child.wait(HANG_SECONDS) == exit_code
    finally:
        child.kill()
        child.wait()
        os.close(ours)


@pytest.fixture
def skilled(open_tree: Tree) -> Tree:
    open_tree.skill(f"{SKILLS}/echo", "Gives back what it gets, as an echo.")
    open_tree.write(f"{SKILLS}/echo/scripts/main.py", ECHO)
    open_tree.skill(f"{SKILLS}/greet", "Greets people.", text="Say `mellifluous` first.\n")
    open_tree.skill(f"{SKILLS}/mute", "Is not for users.", user_invocable=False)
    return open_tree


def piped(tree: Tree, text: str, *options: str) -> Done:
    done = warm.run(
        [sys.executable, "-m", "skillbelt", "chat", *options],
        cwd=tree.project,
        input=text.encode(),
        capture_output=True,
        timeout=500,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def chat(
    skilled: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """A talk in this process: what providers need is imported once for all tests."""

    def chatted(text: str, *options: str) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = main(["chat", *options, "--project", str(skilled.project)])
        return Done(code, *capsys.readouterr())

    return chatted


# At a terminal


def test_an_answer_and_the_end(skilled: Tree) -> None:
    with talking(skilled, "--yes") as talk:
        talk.say("An echo, please")
        talk.until("No language model was used.")
        talk.until('"question": "An echo, please"')
        talk.say("/quit")


def test_the_end_of_the_input_ends_the_talk(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.until(PROMPT)
        talk.type("\x04")


def test_permission_is_asked_for_between_the_lines(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.say("An echo, please")
        talk.until("Permission needed")
        talk.until(CHOICE)
        talk.press("o")
        talk.until('"question": "An echo, please"')
        talk.say("An echo, again")
        talk.until(CHOICE)
        talk.press("r")
        talk.until("Enter for none)? ")
        talk.type("enough\r")
        talk.until("was refused: enough")
        talk.say("/quit")


@pytest.mark.parametrize(
    "more", ["a\r", "o\r", "\x1b[200~a\n\x1b[201~\r", "a\ra\ra\r"], ids=["a", "o", "paste", "lines"]
)
def test_what_was_typed_before_the_question_is_no_answer(skilled: Tree, more: str) -> None:
    with talking(skilled) as talk:
        talk.until(PROMPT)
        talk.type(f"An echo, please\r{more}")
        talk.until(CHOICE)
        talk.type("\r")
        talk.until("was refused")
        talk.say("/quit")
    assert '"remembered": []' in skilled.run("permissions", "--json").stdout
    assert talk.written.count(CHOICE) == 1


def test_two_lines_that_are_pasted_do_not_answer_what_the_first_one_leads_to(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.until(PROMPT)
        talk.type("\x1b[200~An echo, please\na\n\x1b[201~\r")
        talk.until(CHOICE)
        talk.type("\r")
        talk.until("was refused")
        talk.say("/quit")
    assert '"remembered": []' in skilled.run("permissions", "--json").stdout


def sent_when_typed(tree: Tree, *keys: tuple[str, str]) -> list[str]:
    """What a model is told when these keys are typed, each once its text is on the screen."""
    with (
        serving(said("I see.")) as server,
        talking(tree, "--model", f"tiny@{server.url}") as talk,
    ):
        for awaited, typed in keys:
            talk.until(awaited)
            talk.type(typed)
        talk.until("I see.")
        talk.say("/quit")
    return [one["content"] for one in server.requests[0]["messages"] if one["role"] == "user"]


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_pasted_block_is_one_message(skilled: Tree, end: str) -> None:
    block = end.join(["first line", "  second line", "", "third"])
    keys = [(PROMPT, f"\x1b[200~{block}\x1b[201~"), ("third", "\r")]
    assert sent_when_typed(skilled, *keys) == ["first line\n  second line\n\nthird"]


def test_a_pasted_block_that_ends_in_a_newline_waits_for_enter(skilled: Tree) -> None:
    keys = [(PROMPT, "\x1b[200~first\nsecond\n\x1b[201~"), ("second", "and more\r")]
    assert sent_when_typed(skilled, *keys) == ["first\nsecond\nand more"]


def test_alt_enter_begins_a_new_line(skilled: Tree) -> None:
    keys = [(PROMPT, "first\x1b\r"), ("first", "second\r")]
    assert sent_when_typed(skilled, *keys) == ["first\nsecond"]


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_backslash_at_the_end_of_a_line_continues_it(skilled: Tree, term: str) -> None:
    with (
        serving(said("I see.")) as server,
        talking(skilled, "--model", f"tiny@{server.url}", term=term) as talk,
    ):
        talk.say("first \\")
        talk.until("... " if term == "dumb" else "first")
        talk.type("a path C:\\\\\r")
        talk.until("I see.")
        talk.say("/quit")
    [message] = [one for one in server.requests[0]["messages"] if one["role"] == "user"]
    assert message["content"] == "first \na path C:\\\\"


def test_help_says_how_to_write_several_lines(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.say("/help")
        talk.until("Alt-Enter, Ctrl-J")
        talk.until("A pasted block is one message.")
        talk.say("/quit")


def test_an_interrupt_at_the_question_is_a_no_and_not_the_end_of_the_talk(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.say("An echo, please")
        talk.until(CHOICE)
        talk.type("\x03")
        talk.until("cancelled")
        talk.say("/quit")
    log = json.loads(skilled.run("log", "--json").stdout)["events"]
    assert not any(one["type"] == "run" for one in log)


def test_names_of_skills_and_commands_are_completed(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.until(PROMPT)
        talk.type("/gre\t")
        talk.until("/greet")
        talk.type("\r")
        talk.until("mellifluous")
        talk.until(PROMPT)
        talk.type("/mut\t\r")  # nothing to complete: it is no skill for users
        talk.until("there is no command or skill /mut, and nothing was sent")
        talk.until(PROMPT)
        talk.type("/qu\t\r")


def test_an_interrupt_ends_the_answer_and_not_the_talk(skilled: Tree) -> None:
    slow = Slow(said("Once", " upon a time"), threading.Event())
    with (
        serving(slow, said("Here I am.")) as server,
        talking(skilled, "--model", f"tiny@{server.url}") as talk,
    ):
        talk.say("Tell me a story")
        talk.until("Once")
        talk.type("\x03")
        talk.until("cancelled")
        assert server.gone.wait(HANG_SECONDS)
        talk.say("Are you there?")
        talk.until("Here I am.")
        talk.say("/quit")


def test_an_interrupt_ends_a_command_and_not_the_talk(skilled: Tree) -> None:
    mark = f"7{os.getpid()}.75"
    run = called("skill_run", {"skill": "echo", "command": f"echo begun; exec sleep {mark}"})
    with (
        serving(run, said("Here I am.")) as server,
        talking(skilled, "--yes", "--model", f"tiny@{server.url}") as talk,
    ):
        talk.say("Run it")
        talk.until("│ ")
        talk.until("begun")
        eventually(lambda: alive(mark) != [])
        talk.type("\x03")
        talk.until("cancelled")
        assert alive(mark) == []
        talk.say("Are you there?")
        talk.until("Here I am.")
        answers = [m for m in server.requests[1]["messages"] if m["role"] == "tool"]
        assert [json.loads(one["content"])["cancelled"] for one in answers] == [True]
        talk.say("/quit")


def test_a_second_interrupt_leaves_whatever_the_first_waits_for(skilled: Tree) -> None:
    with talking(skilled, program=("-c", STUCK), exit_code=INTERRUPTED) as talk:
        talk.say("Tell me a story")
        talk.until("Once")
        talk.type("\x03")
        talk.until("stopping, Ctrl-C again leaves")
        talk.type("\x03")
        talk.until_closed()


def test_conversations_are_gone_on_with_at_a_terminal(skilled: Tree) -> None:
    with serving(said("First answer."), said("Second answer.")) as server:
        options = ("--model", f"tiny@{server.url}")
        with talking(skilled, *options, "--session", "mine") as talk:
            talk.say("A question")
            talk.until("First answer.")
            talk.say("/quit")
        with talking(skilled, *options) as talk:
            talk.say("/sessions")
            talk.until("A question")
            talk.say("/resume mi")
            talk.until("session mine, 2 messages")
            talk.until("First answer.")
            talk.say("Another")
            talk.until("Second answer.")
            talk.say("/quit")
        sent = [message["content"] for message in server.requests[1]["messages"][1:]]
    assert sent == ["A question", "First answer.", "Another"]


def test_an_interrupt_at_the_prompt_gives_up_the_line(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.until(PROMPT)
        talk.type("half a line")
        talk.until("half a line")
        talk.type("\x03")
        talk.say("/quit")


def test_an_interrupt_of_a_question_ends_the_answer(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.say("An echo, please")
        talk.until(CHOICE)
        talk.type("\x03")
        talk.until("cancelled")
        talk.say("/quit")


def test_what_was_typed_is_remembered_for_the_next_time(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.say("/help")
        talk.until("/reload")
        talk.say("/quit")
    with talking(skilled) as talk:
        talk.until(PROMPT)
        talk.type("\x1b[A\x1b[A\r")  # the line before the last
        talk.until("/reload")
        talk.say("/quit")
    [history] = skilled.root.rglob("chat_history.jsonl")
    assert history.stat().st_mode & 0o077 == 0


def test_a_dumb_terminal_will_do(skilled: Tree) -> None:
    with talking(skilled, "--yes", term="dumb") as talk:
        talk.say("An echo, please")
        talk.until('"question": "An echo, please"')
        talk.say("/quit")
    assert "\x1b" not in talk.written


def test_a_new_skill_is_there_after_a_reload(skilled: Tree) -> None:
    with talking(skilled) as talk:
        talk.until(PROMPT)
        skilled.skill(f"{SKILLS}/fresh", "Is new.")
        talk.type("/reload\r")
        talk.until("added: fresh")
        talk.say("/fresh")
        talk.until("Skill: fresh")
        talk.say("/quit")


# Through pipes


def test_lines_of_a_pipe_are_answered_one_after_the_other(skilled: Tree) -> None:
    done = piped(skilled, "An echo, one\nAn echo, two\n", "--yes")
    assert done.exit_code == 0
    assert done.stdout.index("An echo, one") < done.stdout.index("An echo, two")
    assert "> " not in done.stdout


def test_in_a_pipe_a_backslash_is_a_backslash(chat: Callable[..., Done]) -> None:
    with serving(said("One."), said("Two.")) as server:
        chat("a\\\nb\n", "--model", f"tiny@{server.url}")
        sent = server.requests[1]["messages"]
    assert [one["content"] for one in sent if one["role"] == "user"] == ["a\\", "b"]


def test_nobody_is_asked_through_a_pipe(skilled: Tree) -> None:
    assert "no user or callback can grant it" in piped(skilled, "An echo\n").stdout


def test_each_event_is_a_line_of_json(chat: Callable[..., Done]) -> None:
    done = chat("An echo\n", "--yes", "--json")
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert types[-1] == "final"
    assert {"text", "tool.call", "tool.response", "run.output"} <= set(types)


def test_with_json_every_line_is_json_whatever_is_asked(chat: Callable[..., Done]) -> None:
    chat("An echo\n", "--yes", "--session", "first")
    lines = "/sessions\n/resume first\n/resume nothing\n/reload\n/new\n/help\nHello\n"
    done = chat(lines, "--json", "--model", "nobody:x")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["type"] for one in found] == ["sessions", "session", "reloaded", "session", "error"]
    assert found[0]["sessions"][0]["session"] == "first"
    assert found[1]["messages"][0]["content"] == "An echo"


def test_a_model_streams_and_uses_skills(chat: Callable[..., Done]) -> None:
    load = called("skill_load", {"skill": "greet"})
    with serving(load, said("mellif", "luous")) as server:
        done = chat("Greet Bob\n", "--model", f"tiny@{server.url}")
    assert done.stdout == "mellifluous\n"
    assert 'skill_load {"skill": "greet"}' in done.stderr


def test_the_model_of_a_talk_may_be_a_setting(chat: Callable[..., Done], skilled: Tree) -> None:
    with serving(said("Hi from afar")) as server:
        skilled.setenv("SKILLBELT_MODEL", f"tiny@{server.url}")
        assert chat("Hello\n").stdout == "Hi from afar\n"


def test_conversations_are_listed_and_gone_on_with(chat: Callable[..., Done]) -> None:
    chat("An echo, please\n", "--yes", "--session", "first")
    done = chat("/sessions\n/resume fir\n/resume nothing\n/quit\n")
    assert "first\t" in done.stdout
    assert "An echo, please" in done.stdout
    assert "session first, 6 messages" in done.stderr
    assert "no such conversation: 'nothing'" in done.stderr


def test_an_answer_that_was_cut_off_is_gone_on_with(chat: Callable[..., Done]) -> None:
    with serving(said("Later.")) as server:
        gone = chat("Hello\n", "--model", "tiny@http://127.0.0.1:9/v1", "--session", "s")
        model = f"tiny@{server.url}"
        done = chat("/resume s\n/continue\n", "--model", model)
    assert "skillbelt: " in gone.stderr
    assert "was interrupted" in done.stderr
    assert done.stdout == "Later.\n"


def test_another_conversation_knows_nothing_of_the_first(chat: Callable[..., Done]) -> None:
    with serving(said("One."), said("Two.")) as server:
        chat("First\n/new\nSecond\n", "--model", f"tiny@{server.url}")
        assert len(server.requests[1]["messages"]) == 2


def test_a_model_that_can_not_be_used_is_told_for_each_line(chat: Callable[..., Done]) -> None:
    done = chat("Hello\n", "--model", "nobody:x")
    assert "'nobody:x' cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_is_a_message(skilled: Tree) -> None:
    assert "No language model was used." in piped(skilled, "/etc/passwd\n").stdout


def test_text_that_is_no_utf_8_is_taken(skilled: Tree) -> None:
    done = warm.run(
        [sys.executable, "-m", "skillbelt", "chat"],
        cwd=skilled.project,
        input=b"\xff\xfe\n",
        capture_output=True,
        timeout=500,
    )
    assert done.returncode == 0


# Commands


def test_an_unknown_command_is_never_sent(chat: Callable[..., Done]) -> None:
    with serving(said("Never.")) as server:
        options = ("--model", f"tiny@{server.url}")
        done = chat("/quti\n/nosuch x\n/gret Bob\n", *options)
        lines = chat("/quti\n", *options, "--json").stdout.splitlines()
    assert server.requests == []
    assert "no command or skill /quti, and nothing was sent; did you mean /quit?" in done.stderr
    assert "did you mean /greet?" in done.stderr
    assert [json.loads(line)["kind"] for line in lines] == ["unknown_command"]


def test_a_slash_after_a_space_is_a_message(chat: Callable[..., Done]) -> None:
    with serving(said("I see.")) as server:
        chat(" /nosuch x\n", "--model", f"tiny@{server.url}")
    assert server.requests[0]["messages"][-1]["content"].strip() == "/nosuch x"


def test_the_model_is_changed_in_the_middle(chat: Callable[..., Done]) -> None:
    with serving(said("Hi from afar")) as server:
        done = chat(f"/model\n/model nobody:x\n/model tiny@{server.url}\nHello\n")
    assert "model offline; /model NAME changes it" in done.stderr
    assert "'nobody:x' cannot be used" in done.stderr
    assert done.stdout == "Hi from afar\n"


def test_skills_are_listed_and_searched(chat: Callable[..., Done]) -> None:
    done = chat("/skills\n/skills greets people\n/skills zzz\n/skills what of people in Portugal\n")
    assert done.stdout.splitlines()[0].startswith("echo\t")
    assert done.stdout.splitlines()[-1].startswith("greet\t")
    assert "mute" not in done.stdout
    assert "no skill matches 'zzz'" in done.stderr
    assert "no skill matches 'what of people in Portugal'" in done.stderr  # one shares a word


def test_a_conversation_is_exported_and_nothing_overwritten(
    chat: Callable[..., Done], skilled: Tree
) -> None:
    path = skilled.project / "talk.md"
    with serving(said("**Six.**")) as server:
        model = ("--model", f"tiny@{server.url}")
        done = chat(f"/export {path}\nHow many?\n/export {path}\n/export {path}\n", *model)
    assert path.read_text() == "## You\n\nHow many?\n\n## Assistant\n\n**Six.**\n\n"
    assert "there is nothing to export yet" in done.stderr
    assert "cannot be written: File exists" in done.stderr


def test_a_conversation_is_compacted_on_demand(chat: Callable[..., Done]) -> None:
    with serving(said("One."), said("Two."), said("They counted."), said("Three.")) as server:
        model = ("--model", f"tiny@{server.url}")
        assert "too short to be summarized" in chat("/compact\n", *model).stderr
        done = chat("First\nSecond\n/compact\nThird\n", *model)
        last = [str(one["content"]) for one in server.requests[-1]["messages"]]
    assert "summarized)" in done.stderr
    assert any("They counted." in text for text in last)
    assert not any(text == "First" for text in last)


def test_what_was_allowed_and_written_is_listed(chat: Callable[..., Done]) -> None:
    done = chat("/permissions\n/files\n", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"type": "permissions", "permissions": []},
        {"type": "files", "files": []},
    ]


def test_a_file_is_mentioned_by_a_person_only(chat: Callable[..., Done], skilled: Tree) -> None:
    skilled.write("project/notes.txt", "The total is 6.00.\n")
    with serving(said("I see.")) as server:
        chat("see @notes.txt\n", "--model", f"tiny@{server.url}")
    assert "6.00" not in str(server.requests[0]["messages"])


def test_a_mentioned_file_is_read_inside_the_project_only(skilled: Tree) -> None:
    os.symlink(skilled.write("home/secret.txt", "hidden"), skilled.project / "notes.txt")
    with talking(skilled) as talk:
        talk.say("see @notes.txt")
        talk.until("is not attached:")
        talk.say("/quit")
