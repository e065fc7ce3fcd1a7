"""`skillbelt chat`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from types import ModuleType

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
from skillbelt.cli.keyboard import can_ask
from skillbelt.cli.output import CLI_SESSION, count, print_table
from skillbelt.cli.transcript import plain, read_title
from skillbelt.errors import SkillbeltError
from skillbelt.files.private import create_file, make_folder
from skillbelt.text import one_line

PROMPT = "> "
_MORE_PROMPT = "... "
# Python turns bracketed paste off; with it a pasted block is one entry, newlines included.
# Alt-Enter inserts a newline.
_EDITING = (
    "tab: complete",
    "set enable-bracketed-paste on",
    r'"\e\C-m": "\C-v\C-j"',
    r'"\e\C-j": "\C-v\C-j"',
)
_MAX_HISTORY_LINES = 1_000
_HELP = """\
/NAME ARGUMENTS  use a skill; Tab completes its name
/reload          scan for skills again
/sessions        list the stored conversations
/resume ID       switch to one of them
/continue        continue an interrupted answer
/new             start a new conversation
/quit            quit, like Ctrl-D; Ctrl-C interrupts an answer
A pasted block is one message. Alt-Enter, or a backslash at the end of a line, begins a new line."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chat`."""
    model_options(parser)


def run(args: argparse.Namespace) -> int:
    """Chat until the input ends. With --json, print one line of JSON per event."""
    asks = not args.json and can_ask()
    with open_runner(args, interactive=asks and not args.yes) as runner:
        chat = _Chat(runner, args)
        with _InputLines(chat) as lines:
            chat.run(lines)
    return 0


class _Chat:
    """A chat, which may switch between conversations."""

    def __init__(self, runner: Runner, args: argparse.Namespace) -> None:
        self.runner, self.args, self._text = runner, args, AnswerPrinter()
        self.session: str = args.session or new_session("chat")
        self.commands: dict[str, Callable[[str], bool]] = {
            "help": self._help,
            "reload": self._reload,
            "sessions": self._sessions,
            "resume": self._resume,
            "continue": self._continue,
            "new": self._new,
            "quit": lambda _: False,
            "exit": lambda _: False,
        }

    def run(self, lines: Iterator[str]) -> None:
        """Answer line by line."""
        self.runner.agent.runtime.look()  # for completion, and to report changes
        model = self.runner.agent.model
        self.say(f"model {model}; session {one_line(self.session)}; /help lists the commands")
        for line in lines:
            if line.strip() and not self._handle(line):
                return

    def _handle(self, line: str) -> bool:
        """Run a command or answer the line; False ends the chat."""
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        if line.lstrip().startswith("/") and name in self.commands:
            return self.commands[name](rest.strip())
        self._answer(self.runner.run_sync(USER, self.session, line))
        return True

    def say(self, text: str) -> None:
        """Print a message that is not part of an answer to stderr."""
        if not self.args.quiet:
            print(text, file=sys.stderr, flush=True)

    # Answers

    def _answer(self, events: Generator[AgentEvent, None, None]) -> None:
        """Stream an answer; an interrupt ends the answer, not the chat."""
        try:
            with closing(events):
                for event in events:
                    self._show(event)
        except KeyboardInterrupt:
            self._text.end()
            self.say("\ncancelled")
        except SkillbeltError as error:
            self.say(f"skillbelt: {one_line(str(error))}")
            self._document("error", error=str(error), kind=error.kind)

    def _document(self, type: str, **fields: object) -> bool:
        """Print an own event with --json; return whether --json was given."""
        if self.args.json:
            print(json.dumps({"type": type, **fields}, default=str), flush=True)
        return bool(self.args.json)

    def _show(self, event: AgentEvent) -> None:
        if self.args.json:
            print(json.dumps(agent.document(event), default=str), flush=True)
            return
        if not isinstance(event, agent.TextDelta | agent.ThinkingDelta):
            self._text.end()
        match event:
            case agent.TextDelta():
                self._text.more(event.text)
            case agent.ToolCall():
                self.say(self._faint(describe_call(event)))
            case agent.RunOutput() if self.runner.agent.model != OFFLINE:
                self.say(self._faint(plain(event.data.decode("utf-8", "replace")).rstrip("\n")))
            case PermissionRequest():
                self._ask(event)
            case agent.Retry():
                self.say(f"asking again: {one_line(event.reason)}")
            case agent.Compaction():
                self.say(f"({count(event.messages, 'message')} summarized)")
            case agent.Final() if event.error:
                self.say(f"skillbelt: {one_line(event.error)}")

    def _ask(self, event: PermissionRequest) -> None:
        if self.runner.interactive:
            answer = ask(event.pending, self.runner.agent.runtime.gate.desk)
            if answer is not None:
                self.runner.answer(event.pending.id, answer)

    def _faint(self, text: str) -> str:
        dull = not sys.stderr.isatty() or _dumb() or os.environ.get("NO_COLOR")
        return text if dull else f"\x1b[2m{text}\x1b[0m"

    # Commands

    def _help(self, _: str) -> bool:
        self.say(_HELP)
        return True

    def _reload(self, _: str) -> bool:
        belt = self.runner.agent.runtime
        changes = belt.catalog.refresh()
        belt.look()
        if self._document("reloaded", **changes._asdict()):
            return True
        lines = [
            f"{kind}: {', '.join(names)}" for kind, names in changes._asdict().items() if names
        ]
        self.say("; ".join(map(one_line, lines)) or "nothing changed")
        return True

    def _new(self, _: str) -> bool:
        self.session = new_session("chat")
        self._document("session", session=self.session)
        self.say(f"session {one_line(self.session)}")
        return True

    def _sessions(self, _: str) -> bool:
        found = self._known()
        rows = [(name, _time(updated), self._preview(name)) for name, updated in found]
        listed = [{"session": row[0], "last_used": row[1], "begins_with": row[2]} for row in rows]
        if self._document("sessions", sessions=listed):
            pass
        elif rows:
            print_table(("session", "last used", "begins with"), rows)
        else:
            self.say("no conversations yet")
        return True

    def _known(self) -> list[tuple[str, float]]:
        """Return the conversations of the command line, newest first, without forks."""
        kept = self.runner.store.sessions(CLI_SESSION[0], USER)
        names = {info.key.session for info in kept}
        return [
            (info.key.session, info.updated)
            for info in sorted(kept, key=lambda info: -info.updated)
            if info.key.session.rpartition(".")[0] not in names
        ]

    def _messages(self, session: str) -> list[dict[str, object]]:
        belt = self.runner.agent.runtime
        return belt.session(USER, session).session.messages()

    def _preview(self, session: str) -> str:
        return read_title(self._messages(session))

    def _resume(self, wanted: str) -> bool:
        known = [name for name, _ in self._known()]
        found = [name for name in known if name == wanted] or [
            name for name in known if wanted and name.startswith(wanted)
        ]
        if len(found) != 1:
            fault = "several conversations begin with" if found else "no such conversation"
            self.say(f"{fault}: {one_line(wanted)!r}; /sessions lists them")
            return True
        self.session = found[0]
        said = self._messages(found[0])
        self._document("session", session=found[0], messages=said)
        self.say(f"session {one_line(found[0])}, {count(len(said), 'message')}")
        last = said[-1] if said else {}
        whole = last.get("role") == "assistant" and not last.get("tool_calls")
        if whole and not self.args.json:
            print(plain(str(last["content"])), flush=True)
        elif said and not whole:
            self.say("its last answer was interrupted; /continue continues it")
        return True

    def _continue(self, _: str) -> bool:
        self._answer(self.runner.resume_sync(USER, self.session))
        return True

    def completions(self, text: str) -> list[str]:
        """Return the completions of a line."""
        if not text.startswith("/"):
            return []
        skills = self.runner.agent.runtime.skills().values()
        names = [*self.commands, *(one.name for one in skills if one.user_invocable)]
        return sorted({f"/{name} " for name in names if f"/{name}".startswith(text)})


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _dumb() -> bool:
    return os.environ.get("TERM", "dumb") in ("", "dumb")


# Lines


class _InputLines:
    """Lines typed with history and completion, or the plain lines of a pipe."""

    def __init__(self, chat: _Chat) -> None:
        self._chat = chat
        settings = chat.runner.agent.runtime.settings
        self._file = os.path.join(settings.state_dir, "chat_history")
        self._edited = sys.stdin.isatty() and sys.stdout.isatty() and not _dumb()
        self._readline: ModuleType | None = None

    def __enter__(self) -> Iterator[str]:
        if self._edited:
            self._set_up_editing()
        return self._read_typed() if sys.stdin.isatty() else self._read_piped()

    def __exit__(self, *_: object) -> None:
        if self._readline is not None:
            self._save_history(self._readline)

    def _set_up_editing(self) -> None:
        import readline  # cost: changes what input() does, so only for a terminal

        self._readline = readline
        readline.set_completer_delims(" ")
        readline.set_completer(self._complete)
        for binding in _EDITING:
            readline.parse_and_bind(binding)
        readline.set_history_length(_MAX_HISTORY_LINES)
        with suppress(OSError):  # there is no history yet
            readline.read_history_file(self._file)

    def _complete(self, text: str, number: int) -> str | None:
        found = self._chat.completions(text)
        return found[number] if number < len(found) else None

    def _save_history(self, readline: ModuleType) -> None:
        with suppress(OSError):  # a history that cannot be written must not break the exit
            make_folder(os.path.dirname(self._file))
            create_file(self._file)
            readline.write_history_file(self._file)

    @staticmethod
    def _read_typed() -> Iterator[str]:
        while True:
            try:
                yield _read_message()
            except EOFError:
                print(flush=True)
                return
            except KeyboardInterrupt:  # drops the line, not the chat
                print(flush=True)

    @staticmethod
    def _read_piped() -> Iterator[str]:
        for line in sys.stdin.buffer:
            yield line.decode("utf-8", "replace").rstrip("\r\n")


def _read_message() -> str:
    """Read one message; a backslash at the end of a line continues it on the next."""
    lines = [input(PROMPT)]
    while _is_continued(lines[-1]):
        lines[-1] = lines[-1][:-1]
        lines.append(input(_MORE_PROMPT))
    return "\n".join(lines)


def _is_continued(line: str) -> bool:
    """Whether the line ends in a backslash that no other backslash escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
