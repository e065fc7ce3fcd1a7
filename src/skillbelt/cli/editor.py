"""The editor for a message: several lines, history, completion."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle, PromptSession
from prompt_toolkit.styles import Style

from skillbelt.cli.keyboard import is_continued
from skillbelt.cli.mentions import Suggestion
from skillbelt.files.contain import APPEND_FILE, READ_FILE, read_handle
from skillbelt.files.private import create_file, make_folder, replace_file
from skillbelt.text import hidden, one_line, shorten
from skillbelt.untrusted_json import BadJson, read_json

PROMPT = "> "
MAX_HISTORY_ENTRIES = 1_000
_MAX_HISTORY_BYTES = 2**20
_MAX_ENTRY_CHARS = 20_000
_MAX_META_CHARS = 60
_MAX_COMPLETIONS = 100
# Texts that are never written to the history: they look like a key or a password.
_SECRET = re.compile(
    r"\b(?:sk|pk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bxox[abpr]-[\w-]{10,}|\bAIza[\w-]{30,}|\beyJ[\w-]{10,}\.[\w-]{10,}\.|-----BEGIN [A-Z ]*KEY"
    r"|(?i:\b(?:password|passwd|secret|token|api[-_ ]?key)\b\s*(?:is|=|:)\s*\S)"
)
_MARK = "\ufffd"
_FILE = re.compile(r"(?:^|(?<=\s))@([^\s@]*)\Z")
_COMMAND = re.compile(r"\A\s*/([^\s/]*)\Z")
_ARGUMENT = re.compile(r"\A\s*/([a-z]+)\s+(\S*)\Z")
_STYLE = Style.from_dict({"placeholder": "#888888", "hint": "#888888"})


class Suggestions(NamedTuple):
    """The completions: commands, files of the project, arguments of commands."""

    commands: Callable[[], Iterable[Suggestion]]
    files: Callable[[str], Iterable[Suggestion]]
    arguments: Mapping[str, Callable[[], Iterable[Suggestion]]]


class ChatHistory(History):
    """The typed messages, in a private file that all chats share.

    Messages that begin with a space, or look like a secret, are not stored.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the messages, newest first."""
        found = self._read()
        return reversed(found[-MAX_HISTORY_ENTRIES:])

    def _read(self) -> list[str]:
        try:
            data = read_handle(os.open(self._path, READ_FILE), _MAX_HISTORY_BYTES + 1)
        except OSError:
            return []  # there is no history yet
        found = list(_parse_history(data.decode("utf-8", "replace")))
        if len(found) > 2 * MAX_HISTORY_ENTRIES or len(data) > _MAX_HISTORY_BYTES:
            found = found[-MAX_HISTORY_ENTRIES:]
            with suppress(OSError):
                replace_file(self._path, "".join(map(_history_line, found)).encode())
        return found

    def store_string(self, string: str) -> None:
        """Append a message; a history that cannot be written must not break the chat."""
        if not is_kept(string):
            return
        with suppress(OSError):
            make_folder(os.path.dirname(self._path))
            create_file(self._path)
            handle = os.open(self._path, APPEND_FILE)
            try:
                os.write(handle, _history_line(string).encode("utf-8", "backslashreplace"))
            finally:
                os.close(handle)


def is_kept(text: str) -> bool:
    """Whether a message goes into the history file."""
    return not (text[:1].isspace() or _SECRET.search(text) or len(text) > _MAX_ENTRY_CHARS)


def _history_line(text: str) -> str:
    return f"{json.dumps(text)}\n"


def _parse_history(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        try:
            entry = read_json(line) if line else None
        except (ValueError, BadJson):
            continue
        if isinstance(entry, str):
            yield entry


class _ShowHidden(Processor):
    """Draws a mark for each character that would hide text or change its direction."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        marks = dict.fromkeys(hidden("".join(one[1] for one in fragments)), _MARK)
        if not marks:
            return Transformation(fragments)
        table = str.maketrans(marks)
        return Transformation([(one[0], one[1].translate(table)) for one in fragments])


class _ChatCompleter(Completer):
    def __init__(self, known: Suggestions) -> None:
        self._known = known

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        text = document.text_before_cursor
        if command := _COMMAND.match(text):
            yield from _complete(self._known.commands(), command[1], " ")
        elif (argument := _ARGUMENT.match(text)) and argument[1] in self._known.arguments:
            yield from _complete(self._known.arguments[argument[1]](), argument[2], "")
        elif file := _FILE.search(text):
            for one in list(self._known.files(file[1]))[:_MAX_COMPLETIONS]:
                yield _completion(one, len(file[1]), "" if one.text.endswith("/") else " ")


def _complete(known: Iterable[Suggestion], typed: str, end: str) -> Iterator[Completion]:
    found = [one for one in known if one.text.startswith(typed)]
    found += [one for one in known if typed and typed in one.text and one not in found]
    for one in found[:_MAX_COMPLETIONS]:
        yield _completion(one, len(typed), end)


def _completion(one: Suggestion, typed: int, end: str) -> Completion:
    about = shorten(one_line(one.about), _MAX_META_CHARS)
    return Completion(f"{one.text}{end}", -typed, display=one_line(one.text), display_meta=about)


def _enter(event: KeyPressEvent) -> None:
    """Take the marked menu entry; else send, unless a backslash continues the line."""
    buffer = event.current_buffer
    state, before = buffer.complete_state, buffer.document.text_before_cursor
    if state is not None and state.current_completion is not None:
        buffer.complete_state = None
    elif buffer.document.is_cursor_at_the_end and is_continued(before):
        buffer.delete_before_cursor(1)
        buffer.insert_text("\n")
    elif buffer.text.strip():
        buffer.validate_and_handle()


def _complete_word(event: KeyPressEvent) -> None:
    """Complete the only choice; cycle through several."""
    buffer = event.current_buffer
    state = buffer.complete_state
    found = state.completions if state is not None else []
    if not found:
        wanted = CompleteEvent(completion_requested=True)
        found = list(buffer.completer.get_completions(buffer.document, wanted))
        state = None
    if len(found) == 1:
        buffer.apply_completion(found[0])
    elif state is not None:
        buffer.complete_next()
    elif found:
        buffer.start_completion(select_first=True)


def _insert_newline(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _interrupt(event: KeyPressEvent) -> None:
    """Discard the typed text; if there is none, ask whether to leave."""
    if event.current_buffer.text:
        event.current_buffer.reset()
    else:
        event.app.exit(exception=KeyboardInterrupt, style="class:aborting")


def _keys() -> KeyBindings:
    keys = KeyBindings()
    keys.add("enter")(_enter)
    keys.add("tab")(_complete_word)
    keys.add("c-j")(_insert_newline)
    keys.add("escape", "enter")(_insert_newline)
    keys.add("c-c")(_interrupt)
    return keys


def _expects_completion() -> bool:
    """Whether a menu may come: only then is there room for it below the line."""
    text = get_app().current_buffer.document.text_before_cursor
    return bool(_COMMAND.match(text) or _FILE.search(text))


def _open_output() -> Output:
    """Return the terminal output, which does not query the cursor position.

    A late answer would be read as keys.
    """

    def size() -> Size:
        try:
            found = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return Size(rows=24, columns=80)
        return Size(rows=found.lines or 24, columns=found.columns or 80)

    return Vt100_Output(sys.stdout, size, term=os.environ.get("TERM"), enable_cpr=False)


class Editor:
    """Reads messages at a terminal. `when_shown` runs once, after the first prompt."""

    def __init__(
        self,
        history: str,
        known: Suggestions,
        *,
        when_shown: Callable[[], object] = lambda: None,
        keys: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._input = keys or create_input(sys.stdin)
        self._when_shown: Callable[[], object] | None = when_shown
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            placeholder=[("class:placeholder", "a question, @file or /help")],
            history=ChatHistory(history),
            completer=_ChatCompleter(known),
            complete_while_typing=Condition(_expects_completion),
            complete_in_thread=True,
            complete_style=CompleteStyle.COLUMN,
            reserve_space_for_menu=6,
            key_bindings=_keys(),
            enable_open_in_editor=True,
            input_processors=[_ShowHidden()],
            style=_STYLE,
            input=self._input,
            output=output or _open_output(),
            erase_when_done=False,
        )

    def read(self) -> str:
        """Read one message. KeyboardInterrupt for Ctrl-C on an empty line, EOFError at the end."""
        return self._session.prompt(pre_run=self._start)

    def _start(self) -> None:
        shown, self._when_shown = self._when_shown, None
        if shown is not None:
            # After the prompt is drawn: an import holds the interpreter lock.
            app = get_app()

            def once(_: object) -> None:
                app.after_render -= once
                threading.Thread(target=shown, name="skillbelt-loading", daemon=True).start()

            app.after_render += once

    def discard_typed(self) -> None:
        """Discard keys that were typed ahead."""
        clear_typeahead(self._input)
