"""`skillbelt chat`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from skillbelt.cli.ask import (
    OFFLINE,
    USER,
    Text,
    called,
    model_options,
    new_session,
    open_runner,
    plain,
)
from skillbelt.cli.keyboard import somebody_is_there
from skillbelt.cli.output import CLI_SESSION, count, print_table
from skillbelt.errors import SkillbeltError
from skillbelt.files.private import create_file, make_folder
from skillbelt.text import one_line, shorten

if TYPE_CHECKING:
    from collections.abc import Generator

    from skillbelt.agent import AgentEvent, Runner

PROMPT = "> "
_HISTORY = 1_000  # lines that are remembered
_PREVIEW = 60
_HELP = """\
/NAME ARGUMENTS  use a skill; Tab completes its name
/reload          look for skills again
/sessions        list the conversations so far
/resume ID       go on with one of them
/continue        go on with an answer that was cut off
/new             begin another conversation
/quit            end; so does Ctrl-D. Ctrl-C ends an answer"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `chat`."""
    model_options(parser)


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends. With --json, each event is a line of JSON."""
    asks = not args.json and somebody_is_there()
    with open_runner(args, interactive=asks and not args.yes) as runner:
        chat = _Chat(runner, args)
        with _Lines(chat) as lines:
            chat.talk(lines)
    return 0


class _Chat:
    """One talk, which may go from one conversation to another."""

    def __init__(self, runner: Runner, args: argparse.Namespace) -> None:
        self.runner, self.args, self._text = runner, args, Text()
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

    def talk(self, lines: Iterator[str]) -> None:
        """Answer line by line."""
        self.runner.agent.runtime.look()  # so that names can be completed, and changes be told
        model = self.runner.agent.model
        self.say(f"model {model}; session {one_line(self.session)}; /help lists the commands")
        for line in lines:
            if line.strip() and not self._taken(line):
                return

    def _taken(self, line: str) -> bool:
        """Do what a line asks for; whether the talk goes on."""
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        if line.lstrip().startswith("/") and name in self.commands:
            return self.commands[name](rest.strip())
        self._answer(self.runner.run_sync(USER, self.session, line))
        return True

    def say(self, text: str) -> None:
        """Something that is not part of the answers."""
        if not self.args.quiet:
            print(text, file=sys.stderr, flush=True)

    # Answers

    def _answer(self, events: Generator[AgentEvent, None, None]) -> None:
        """Show an answer as it comes; an interrupt ends the answer, not the talk."""
        try:
            with closing(events):
                for event in events:
                    self._show(event)
        except KeyboardInterrupt:
            self._text.end()
            self.say("\ncancelled")
        except SkillbeltError as error:
            self.say(f"skillbelt: {one_line(str(error))}")
            self._document("error", error=str(error))

    def _document(self, type: str, **fields: object) -> bool:
        """With --json, print one that is no event of a run; whether it was wanted."""
        if self.args.json:
            print(json.dumps({"type": type, **fields}, default=str), flush=True)
        return bool(self.args.json)

    def _show(self, event: AgentEvent) -> None:
        from skillbelt import agent

        if self.args.json:
            print(json.dumps(agent.document(event), default=str), flush=True)
            return
        if not isinstance(event, agent.TextDelta | agent.ThinkingDelta):
            self._text.end()
        match event:
            case agent.TextDelta():
                self._text.more(event.text)
            case agent.ToolCall():
                self.say(self._faint(called(event)))
            case agent.RunOutput() if self.runner.agent.model != OFFLINE:
                self.say(self._faint(plain(event.data.decode("utf-8", "replace")).rstrip("\n")))
            case agent.PermissionRequest():
                self._ask(event)
            case agent.Retry():
                self.say(f"asking again: {one_line(event.reason)}")
            case agent.Compaction():
                self.say(f"({count(event.messages, 'message')} told in short from now on)")
            case agent.Final() if event.error:
                self.say(f"skillbelt: {one_line(event.error)}")

    def _ask(self, event: object) -> None:
        from skillbelt.agent import PermissionRequest
        from skillbelt.cli.asking import ask

        assert isinstance(event, PermissionRequest)
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
        told = [f"{kind}: {', '.join(names)}" for kind, names in changes._asdict().items() if names]
        self.say("; ".join(map(one_line, told)) or "nothing changed")
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
        """The conversations from the command line, the last used first; not what forked off."""
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
        said = [one for one in self._messages(session) if one.get("role") == "user"]
        first = str(said[0].get("said") or said[0].get("content")) if said else ""
        return shorten(one_line(first), _PREVIEW)

    def _resume(self, wanted: str) -> bool:
        known = [name for name, _ in self._known()]
        found = [name for name in known if name == wanted] or [
            name for name in known if wanted and name.startswith(wanted)
        ]
        if len(found) != 1:
            fault = "more than one conversation begins so" if found else "no such conversation"
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
            self.say("its last answer was cut off; /continue goes on with it")
        return True

    def _continue(self, _: str) -> bool:
        self._answer(self.runner.resume_sync(USER, self.session))
        return True

    def completions(self, text: str) -> list[str]:
        """What a line that begins so may go on as."""
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


class _Lines:
    """The lines somebody types, with history and completion; or those of a pipe, as they are."""

    def __init__(self, chat: _Chat) -> None:
        self._chat = chat
        settings = chat.runner.agent.runtime.settings
        self._file = os.path.join(settings.state_dir, "chat_history")
        self._edited = sys.stdin.isatty() and sys.stdout.isatty() and not _dumb()

    def __enter__(self) -> Iterator[str]:
        if self._edited:
            self._prepare()
        return self._typed() if sys.stdin.isatty() else self._piped()

    def __exit__(self, *_: object) -> None:
        if self._edited:
            self._remember()

    def _prepare(self) -> None:
        import readline

        readline.set_completer_delims(" ")
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.set_history_length(_HISTORY)
        with suppress(OSError):
            readline.read_history_file(self._file)

    def _complete(self, text: str, number: int) -> str | None:
        found = self._chat.completions(text)
        return found[number] if number < len(found) else None

    def _remember(self) -> None:
        import readline

        with suppress(OSError):
            make_folder(os.path.dirname(self._file))
            create_file(self._file)
            readline.write_history_file(self._file)

    @staticmethod
    def _typed() -> Iterator[str]:
        while True:
            try:
                yield input(PROMPT)
            except EOFError:
                print(flush=True)
                return
            except KeyboardInterrupt:  # the line is given up, not the talk
                print(flush=True)

    @staticmethod
    def _piped() -> Iterator[str]:
        for line in sys.stdin.buffer:
            yield line.decode("utf-8", "replace").rstrip("\r\n")
