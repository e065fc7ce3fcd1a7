"""`skillbelt chat`."""

from __future__ import annotations

import _thread
import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from types import FrameType
from typing import Self

from skillbelt import agent
from skillbelt.agent import AgentEvent, PermissionRequest, Runner
from skillbelt.agent.models import OFFLINE
from skillbelt.cli.ask import (
    USER,
    AnswerPrinter,
    describe_call,
    model_options,
    new_session,
    open_runner,
)
from skillbelt.cli.asking import ask
from skillbelt.cli.chat_commands import ChatCommands, show_plain
from skillbelt.cli.failure import INTERRUPTED
from skillbelt.cli.keyboard import Unechoed, can_ask, is_continued, is_dumb, restore_all
from skillbelt.cli.live_answer import LiveAnswer
from skillbelt.cli.mentions import ProjectFiles, Suggestion, find_mentions
from skillbelt.cli.output import count
from skillbelt.cli.screen import Screen, can_draw
from skillbelt.cli.tool_lines import WrittenFiles, kinds_by_name
from skillbelt.cli.words import print_words
from skillbelt.conversation.transcript import plain
from skillbelt.errors import SkillbeltError
from skillbelt.text import one_line

PROMPT = "> "
_MORE_PROMPT = "... "
_HISTORY = "chat_history.jsonl"
_LEAVE = "press Ctrl-C again to leave"
# How long the second Ctrl-C waits for tasks that are being stopped.
_LEAVE_SECONDS = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chat`."""
    model_options(parser)


def run(args: argparse.Namespace) -> int:
    """Chat until the input ends. With --json, print one line of JSON per event."""
    asks = not args.json and can_ask()
    with open_runner(args, interactive=asks and not args.yes) as runner:
        chat = _Chat(runner, args)
        chat.run(_open_input(chat))
    return 0


class _Chat:
    """A chat, which may switch between conversations."""

    def __init__(self, runner: Runner, args: argparse.Namespace) -> None:
        self.runner, self.args, self._text = runner, args, AnswerPrinter()
        self.session: str = args.session or new_session("chat")
        self.commands = ChatCommands(self)
        self.typed = sys.stdin.isatty()  # typed by a person: `@path` is a file
        self.screen = Screen() if can_draw() and self.typed and not args.json else None
        self.forget_keys: Callable[[], object] = lambda: None
        self._live: LiveAnswer | None = None
        self.interrupted = False  # the last input was Ctrl-C

    @property
    def project(self) -> str:
        """The folder that `@path` is relative to."""
        return self.runner.agent.runtime.settings.project

    def run(self, lines: Iterator[str]) -> None:
        """Answer line by line."""
        self.runner.agent.runtime.look()  # for completion, and to report changes
        model = one_line(str(self.runner.agent.model))
        hello = f"model {model}; session {one_line(self.session)}; /help lists the commands"
        self.say("\n".join(self.screen.render_own(hello)) if self.screen else hello)
        for line in lines:
            if line.strip() and not self._take_line(line):
                return

    def _take_line(self, line: str) -> bool:
        """Handle the line; an interrupt stops that, a second one ends the chat."""
        with _Interrupts(self._begin_stop) as interrupts:
            try:
                return self._handle(line)
            except KeyboardInterrupt:
                if interrupts.count > 1:
                    raise
                self.interrupted = True
                self._text.end()
                self.say("cancelled" if self.screen else "\ncancelled")
                return True

    def _begin_stop(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _handle(self, line: str) -> bool:
        """Run a command or answer the line; False ends the chat."""
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        if line.startswith("/") and name in self.commands.all:
            return self.commands.run(name, rest.strip())
        if line.startswith("/") and "/" not in name and not self.commands.is_skill(name.strip()):
            unknown = self.commands.describe_unknown(name.strip())
            self.say(f"skillbelt: {unknown}")
            self.document("error", error=unknown, kind="unknown_command")
            return True
        files = find_mentions(line, self.project) if self.typed else []
        for path in files:
            self.say(f"attached {one_line(os.path.relpath(path, self.project))}")
        fence = self.project if files else ""
        self.answer(self.runner.run_sync(USER, self.session, line, files=files, fence=fence))
        return True

    def say(self, text: str) -> None:
        """Print a message that is not part of an answer to stderr."""
        if not self.args.quiet:
            print_words(text, "    ", sys.stderr)
            sys.stderr.flush()

    def document(self, type: str, **fields: object) -> bool:
        """Print an event of the chat itself with --json; return whether --json was given."""
        if self.args.json:
            print(json.dumps({"type": type, **fields}, default=str), flush=True)
        return bool(self.args.json)

    def show_text(self, text: str) -> None:
        """Show text written by the model."""
        if self.screen is not None:
            self.screen.print(*self.screen.render_markdown(text))
        else:
            show_plain(text)

    def clear(self) -> None:
        """Clear the screen, if there is one."""
        if self.screen is not None:
            self.screen.clear()

    # Answers

    def answer(self, events: Generator[AgentEvent, None, None]) -> None:
        """Stream an answer."""
        try:
            # Shown until it is closed: stopping a step may take a while.
            with self._watch(), closing(events):
                for event in events:
                    self._show(event)
        except SkillbeltError as error:
            self._text.end()
            self.say(f"skillbelt: {one_line(str(error))}")
            self.document("error", error=str(error), kind=error.kind)
        finally:
            self._live = None

    def _watch(self) -> AbstractContextManager[object]:
        """Show the answer as it is made, if there is a screen."""
        if self.screen is None:
            return nullcontext()
        files = WrittenFiles(self.commands.written_files)
        files.mark()
        names = kinds_by_name(self.runner.agent.runtime.names)
        offline = self.runner.agent.model == OFFLINE
        self._live = LiveAnswer(self.screen, names, files, quiet=offline)
        return _TwoContexts(Unechoed(), self._live)

    def _show(self, event: AgentEvent) -> None:
        if self.args.json:
            print(json.dumps(agent.document(event), default=str), flush=True)
        elif isinstance(event, PermissionRequest):
            self._ask(event)
        elif self._live is not None:
            self._live.show(event)
        else:
            self._print(event)

    def _print(self, event: AgentEvent) -> None:
        if not isinstance(event, agent.TextDelta | agent.ThinkingDelta):
            self._text.end()
        match event:
            case agent.TextDelta():
                self._text.more(event.text)
            case agent.ToolCall():
                self.say(describe_call(event))
            case agent.RunOutput() if self.runner.agent.model != OFFLINE:
                self.say(plain(event.data.decode("utf-8", "replace")).rstrip("\n"))
            case agent.Retry():
                self.say(f"asking again: {one_line(event.reason)}")
            case agent.Compaction():
                self.say(f"({count(event.messages, 'message')} summarized)")
            case agent.Final() if event.error:
                self.say(f"skillbelt: {one_line(event.error)}")

    def _ask(self, event: PermissionRequest) -> None:
        self._text.end()
        if not self.runner.interactive:
            return
        with self._live.paused() if self._live is not None else nullcontext():
            desk = self.runner.agent.runtime.gate.desk
            answer = ask(event.pending, desk, in_conversation=True)
            self.forget_keys()
        if answer is not None:
            self.runner.answer(event.pending.id, answer)


class _Interrupts:
    """Counts Ctrl-C while a line is handled. The first calls a function, the second leaves."""

    def __init__(self, when_first: Callable[[], object]) -> None:
        self.count = 0
        self._when_first = when_first

    def __enter__(self) -> Self:
        self._ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self._when_first()
        else:
            _leave_soon()
        signal.default_int_handler(number, frame)


def _leave_soon() -> None:
    """End the process in a moment, even if it waits for a lock, a thread or an import."""
    # A signal handler must not start a `threading.Thread`: that takes locks that it may hold.
    _thread.start_new_thread(_end_process, ())


def _end_process() -> None:
    time.sleep(_LEAVE_SECONDS)
    restore_all()
    os._exit(INTERRUPTED)


class _TwoContexts(AbstractContextManager[None]):
    """Two contexts as one."""

    def __init__(
        self, outer: AbstractContextManager[object], inner: AbstractContextManager[object]
    ) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner.__enter__()

    def __exit__(self, *about: object) -> None:
        try:
            self._inner.__exit__(None, None, None)
        finally:
            self._outer.__exit__(None, None, None)


# Lines


def _open_input(chat: _Chat) -> Iterator[str]:
    """Return the messages: from an editor, from a plain terminal, or from a pipe."""
    if not chat.typed:
        return _read_piped()
    if chat.screen is None or is_dumb():
        return _read_typed(chat, _read_message)
    try:
        from skillbelt.cli.editor import Editor, Suggestions  # extra: agent
    except ImportError:
        chat.say("skillbelt: install skillbelt[agent] for a line that can be edited")
        return _read_typed(chat, _read_message)
    files = ProjectFiles(chat.project)
    editor = Editor(
        os.path.join(chat.runner.agent.runtime.settings.state_dir, _HISTORY),
        Suggestions(
            commands=chat.commands.suggestions,
            files=lambda typed: map(Suggestion, files.matching(typed)),
            arguments=chat.commands.arguments(),
        ),
        when_shown=lambda: _prepare(chat.runner),
    )
    chat.forget_keys = editor.discard_typed
    return _read_typed(chat, editor.read)


def _prepare(runner: Runner) -> None:
    """Import the model's packages while the user types; errors are reported with the message."""
    with suppress(Exception):
        runner.prepare()


def _read_typed(chat: _Chat, read: Callable[[], str]) -> Iterator[str]:
    """Yield messages until EOF, or until two interrupts in a row."""
    while True:
        try:
            line = read()
        except EOFError:
            print(flush=True)
            return
        except KeyboardInterrupt:  # drops the line, not the chat
            if chat.interrupted:
                _leave_soon()
                return
            print(_LEAVE, file=sys.stderr, flush=True)
            chat.interrupted = True
            continue
        chat.interrupted = False
        yield line


def _read_piped() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", "replace").rstrip("\r\n")


def _read_message() -> str:
    """Read one message; a backslash at the end of a line continues it on the next."""
    lines = [input(PROMPT)]
    while is_continued(lines[-1]):
        lines[-1] = lines[-1][:-1]
        lines.append(input(_MORE_PROMPT))
    return "\n".join(lines)
