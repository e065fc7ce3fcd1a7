"""The line of the chat, typed through a pipe in this process."""

from __future__ import annotations

import io
import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.output.vt100 import Vt100_Output

from skillbelt.cli.editor import MAX_HISTORY_ENTRIES, ChatHistory, Editor, Suggestions, is_kept
from skillbelt.cli.mentions import Suggestion

KNOWN = Suggestions(
    commands=lambda: [Suggestion("help"), Suggestion("model"), Suggestion("greet", "Greets.")],
    files=lambda typed: [Suggestion("notes.txt")] if "notes.txt".startswith(typed) else [],
    arguments={"resume": lambda: [Suggestion("chat-1", "A title")]},
)
Typed = Callable[[str], str]


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    """What these keys send."""

    def read(keys: str) -> str:
        with create_pipe_input() as pipe:
            editor = Editor(str(tmp_path / "history"), KNOWN, keys=pipe, output=DummyOutput())
            pipe.send_text(keys)
            return editor.read()

    return read


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ("hello\r", "hello"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("one\ntwo\r", "one\ntwo"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("C:\\\\\r", "C:\\\\"),
        ("\x1b[200~a\r\nb\nc\x1b[201~\r", "a\nb\nc"),
        ("\x1b[200~a\n\x1b[201~b\r", "a\nb"),
        ("\r  \rhello\r", "  hello"),
        ("half\x03whole\r", "whole"),
        ("/gre\t\r", "/greet "),
        ("see @not\tnow\r", "see @notes.txt now"),
        ("/resume ch\t\r", "/resume chat-1"),
    ],
)
def test_keys_make_a_message(typed: Typed, keys: str, sent: str) -> None:
    assert typed(keys) == sent


def test_pasted_text_does_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    pasted, drawn = "a\u202egnp.exe \x1b]52;c;eA==\x07 \u200b 你好", io.StringIO()
    output = Vt100_Output(drawn, lambda: Size(rows=24, columns=80), enable_cpr=False)
    with create_pipe_input() as pipe:
        editor = Editor(str(tmp_path / "history"), KNOWN, keys=pipe, output=output)
        pipe.send_text(f"\x1b[200~{pasted}\x1b[201~\r")
        assert editor.read() == pasted
    shown = drawn.getvalue()
    assert "a\ufffdgnp.exe" in shown
    assert "你好" in shown
    assert not {"\u202e", "\u200b", "\x1b]", "\x07"} & {*shown, *re.findall(r"\x1b.", shown)}


def test_an_interrupt_on_an_empty_line_and_the_end_are_told_apart(typed: Typed) -> None:
    with pytest.raises(KeyboardInterrupt):
        typed("\x03")
    with pytest.raises(EOFError):
        typed("\x04")


def test_what_was_typed_comes_back_in_the_next_chat(typed: Typed, tmp_path: Path) -> None:
    typed("first\x1b\rline\r")
    typed("second\r")
    assert typed("\x1b[A\x1b[A\r") == "first\nline"
    mode = (tmp_path / "history").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize(
    "text",
    [
        " begins with a space",
        "use sk-abcdefghijklmnop1234567890",
        "my password is hunter2",
        "token: abc",
        "-----BEGIN RSA PRIVATE KEY-----",
        "x" * 30_000,
    ],
)
def test_secrets_are_not_kept(text: str) -> None:
    assert not is_kept(text)
    assert is_kept("what does the skill say about tokens?")


def test_the_history_is_bounded_and_bears_damage(tmp_path: Path) -> None:
    path = tmp_path / "history"
    lines = [json.dumps(str(n)) for n in range(3 * MAX_HISTORY_ENTRIES)]
    path.write_text("\n".join(["{broken", *lines, "12", ""]))
    found = list(ChatHistory(str(path)).load_history_strings())
    assert len(found) == MAX_HISTORY_ENTRIES
    assert found[0] == str(3 * MAX_HISTORY_ENTRIES - 1)
    assert len(path.read_text().splitlines()) == MAX_HISTORY_ENTRIES


def test_a_history_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text('"old"\n')
    (tmp_path / "history").symlink_to(target)
    history = ChatHistory(str(tmp_path / "history"))
    history.store_string("new")
    assert list(history.load_history_strings()) == []
    assert target.read_text() == '"old"\n'


def test_the_prompt_does_not_wait_for_the_packages_of_models() -> None:
    code = (
        "import sys; import skillbelt.cli.chat, skillbelt.cli.editor\n"
        "print(sorted({'pydantic_ai', 'openai', 'anthropic', 'google.genai', 'pydantic', 'httpx',"
        "'skillbelt.agent.provider'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
