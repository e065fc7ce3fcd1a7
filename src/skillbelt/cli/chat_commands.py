"""The commands of a chat: /help, /model, /skills and the others."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, Protocol

from skillbelt.agent.events import AgentEvent
from skillbelt.agent.runner import Runner
from skillbelt.cli.ask import USER, new_session
from skillbelt.cli.mentions import Suggestion
from skillbelt.cli.output import CLI_SESSION, count, print_table
from skillbelt.conversation.transcript import plain, read_title, to_markdown
from skillbelt.errors import SkillbeltError, closest
from skillbelt.files.contain import NEW_FILE
from skillbelt.permission.gate import session_id
from skillbelt.running.outputs import OutputFile, Wanted, collect
from skillbelt.store import SessionKey
from skillbelt.text import exact, one_line

_WORKSPACE = Wanted(globs=("out/**", "work/**"), inline=True)
_MAX_LISTED_SESSIONS = 20
_MOST_FOUND = 10


class ChatInterface(Protocol):
    """The interface of a chat that the commands need."""

    runner: Runner
    session: str

    def say(self, text: str) -> None:
        """Print a message that is not part of an answer."""

    def document(self, type: str, **fields: object) -> bool:
        """Print an event of the chat itself with --json; return whether --json was given."""

    def answer(self, events: Generator[AgentEvent, None, None]) -> None:
        """Show an answer."""

    def show_text(self, text: str) -> None:
        """Show text written by the model."""

    def clear(self) -> None:
        """Clear the screen."""


class ChatCommand(NamedTuple):
    """A command: its function, its argument for the help, and its summary; False ends the chat."""

    run: Callable[[str], object]
    help: str
    argument: str = ""


class ChatCommands:
    """The commands of one chat, by name."""

    def __init__(self, chat: ChatInterface) -> None:
        self._chat = chat
        self.all: Mapping[str, ChatCommand] = {
            "help": ChatCommand(self._help, "list the commands and keys"),
            "model": ChatCommand(self._model, "show or change the model", "[NAME]"),
            "skills": ChatCommand(self._skills, "list the skills, or search them", "[WORDS]"),
            "permissions": ChatCommand(self._permissions, "show what you allowed"),
            "files": ChatCommand(self._files, "list the files of this conversation"),
            "sessions": ChatCommand(self._sessions, "list the stored conversations"),
            "resume": ChatCommand(self._resume, "switch to one of them", "ID"),
            "continue": ChatCommand(self._continue, "continue an interrupted answer"),
            "new": ChatCommand(self._begin_new, "start a new conversation"),
            "clear": ChatCommand(self._clear, "start a new one on an empty screen"),
            "compact": ChatCommand(self._compact, "replace older messages by a summary"),
            "export": ChatCommand(self._export, "save the conversation as Markdown", "[FILE]"),
            "reload": ChatCommand(self._reload, "scan for skills again"),
            "quit": ChatCommand(lambda _: False, "quit, as Ctrl-D does"),
            "exit": ChatCommand(lambda _: False, ""),
        }

    def run(self, name: str, rest: str) -> bool:
        """Run a command; return False to end the chat."""
        return self.all[name].run(rest) is not False

    def describe_unknown(self, name: str) -> str:
        """Say that there is no such command or skill, and suggest one."""
        close = closest(name, [*self.all, *self._invocable()], most=1)
        hint = f"did you mean /{one_line(close[0])}?" if close else "/help lists the commands"
        return (
            f"there is no command or skill /{one_line(name)}, and nothing was sent; {hint} "
            "(a message may begin with a slash after a space)"
        )

    def is_skill(self, name: str) -> bool:
        """Whether the word names a skill, also one that the user cannot call."""
        return name in self._chat.runner.agent.runtime.skills()

    def suggestions(self) -> list[Suggestion]:
        """Return the commands and skills for completion."""
        found = [Suggestion(name, one.help) for name, one in self.all.items() if one.help]
        return found + [
            Suggestion(name, about)
            for name, about in self._invocable().items()
            if name not in self.all
        ]

    def arguments(self) -> dict[str, Callable[[], list[Suggestion]]]:
        """Return the arguments of commands for completion."""
        return {"resume": self._suggest_sessions, "skills": self._suggest_skills}

    def _suggest_sessions(self) -> list[Suggestion]:
        found = self._list_conversations()[:_MAX_LISTED_SESSIONS]
        return [Suggestion(name, self._title(name)) for name, _ in found]

    def _suggest_skills(self) -> list[Suggestion]:
        return [Suggestion(name, about) for name, about in self._invocable().items()]

    def _invocable(self) -> dict[str, str]:
        skills = self._chat.runner.agent.runtime.skills().values()
        return {one.name: one.description for one in skills if one.user_invocable}

    # Help, model, skills

    def _help(self, _: str) -> None:
        shown = {f"/{name} {one.argument}".strip(): one.help for name, one in self.all.items()}
        lines = [f"{name:<18} {about}" for name, about in shown.items() if about]
        lines += [
            f"{'/SKILL WORDS':<18} use a skill; Tab completes names",
            f"{'@PATH':<18} attach a file of the project; Tab completes it",
            f"{'Alt-Enter, Ctrl-J':<18} begin a new line, as a backslash at the end does",
            f"{'Ctrl-C':<18} stop the answer; once more at the empty prompt leaves",
            "A pasted block is one message. One that begins with a space is in no history.",
        ]
        self._chat.say("\n".join(lines))

    def _model(self, wanted: str) -> None:
        runner = self._chat.runner
        if wanted:
            before = runner.agent
            runner.agent = before._replace(model=wanted)
            try:
                runner.prepare()
            except SkillbeltError as error:
                runner.agent = before
                self._chat.say(f"skillbelt: {one_line(str(error))}")
        model = str(runner.agent.model)
        if not self._chat.document("model", model=model):
            hint = "" if wanted else "; /model NAME changes it, for example openai:gpt-5 or offline"
            self._chat.say(f"model {one_line(model)}{hint}")

    def _skills(self, words: str) -> None:
        found = self._invocable()
        if words:
            runtime = self._chat.runner.agent.runtime
            names = runtime.suggest(words, _MOST_FOUND)
            found = {name: found[name] for name in names if name in found}
        listed = [{"name": name, "description": about} for name, about in found.items()]
        if self._chat.document("skills", skills=listed):
            return
        if found:
            print_table(("skill", "what it is for"), list(found.items()))
        else:
            self._chat.say(f"no skill matches {one_line(words)!r}" if words else "no skills")

    def _reload(self, _: str) -> None:
        belt = self._chat.runner.agent.runtime
        changes = belt.catalog.refresh()
        belt.look()
        if self._chat.document("reloaded", **changes._asdict()):
            return
        lines = [
            f"{kind}: {', '.join(names)}" for kind, names in changes._asdict().items() if names
        ]
        self._chat.say("; ".join(map(one_line, lines)) or "nothing changed")

    # Permissions and files

    @property
    def _key(self) -> SessionKey:
        return SessionKey(CLI_SESSION[0], USER, self._chat.session)

    def _permissions(self, _: str) -> None:
        gate = self._chat.runner.agent.runtime.gate
        here = gate.held(session_id(self._key))
        rows = [("this conversation", one.type, ", ".join(one.always), one.skill) for one in here]
        rows += [("always", one.type, one.pattern, one.skill) for one in gate.ledger.all()]
        keys = ("for", "type", "what", "skill")
        listed = [dict(zip(keys, row, strict=True)) for row in rows]
        if self._chat.document("permissions", permissions=listed):
            return
        if rows:
            shown = [(span, skill, f"{kind} {exact(what)}") for span, kind, what, skill in rows]
            print_table(("for", "what", "skill"), shown)
        else:
            self._chat.say("you allowed nothing yet that holds for longer than one call")
        self._chat.say("`skillbelt permissions` shows the rules too, and revokes answers")

    def written_files(self) -> list[OutputFile]:
        """Return the files in the workspace of the conversation, with the content of text files."""
        bench = self._chat.runner.agent.runtime.workbench
        folders = bench.workspaces(self._key)
        return [
            one
            for folder in folders
            for one in collect(folder, _WORKSPACE, may_be_empty=True).files
        ]

    def _files(self, _: str) -> None:
        bench = self._chat.runner.agent.runtime.workbench
        found = [one for one in self.written_files() if one.name.startswith(("out/", "work/"))]
        listed = [{"name": one.name, "size_bytes": one.size_bytes} for one in found]
        if self._chat.document("files", files=listed):
            return
        if not found:
            self._chat.say("the runs of this conversation left no files")
            return
        rows = [(one.name, f"{one.size_bytes:,}", one.mime_type) for one in found]
        print_table(("file", "bytes", "type"), rows)
        for folder in bench.workspaces(self._key):
            self._chat.say(f"in {one_line(folder)}")

    # Conversations

    def _begin_new(self, _: str) -> None:
        self._chat.session = new_session("chat")
        self._chat.document("session", session=self._chat.session)
        self._chat.say(f"session {one_line(self._chat.session)}")

    def _clear(self, rest: str) -> None:
        self._chat.clear()
        self._begin_new(rest)

    def _sessions(self, _: str) -> None:
        rows = [
            (name, _time(updated), self._title(name))
            for name, updated in self._list_conversations()
        ]
        listed = [{"session": row[0], "last_used": row[1], "begins_with": row[2]} for row in rows]
        if self._chat.document("sessions", sessions=listed):
            return
        if rows:
            print_table(("session", "last used", "begins with"), rows)
        else:
            self._chat.say("no conversations yet")

    def _list_conversations(self) -> list[tuple[str, float]]:
        """Return the conversations of the command line, newest first, without forks."""
        kept = self._chat.runner.store.sessions(CLI_SESSION[0], USER)
        names = {info.key.session for info in kept}
        return [
            (info.key.session, info.updated)
            for info in sorted(kept, key=lambda info: -info.updated)
            if info.key.session.rpartition(".")[0] not in names
        ]

    def _messages(self, session: str) -> list[dict[str, object]]:
        belt = self._chat.runner.agent.runtime
        return belt.session(USER, session).session.messages()

    def _title(self, session: str) -> str:
        return read_title(self._messages(session))

    def _resume(self, wanted: str) -> None:
        known = [name for name, _ in self._list_conversations()]
        found = [name for name in known if name == wanted] or [
            name for name in known if wanted and name.startswith(wanted)
        ]
        if len(found) != 1:
            fault = "several conversations begin with" if found else "no such conversation"
            self._chat.say(f"{fault}: {one_line(wanted)!r}; /sessions lists them")
            return
        self._chat.session = found[0]
        messages = self._messages(found[0])
        as_json = self._chat.document("session", session=found[0], messages=messages)
        self._chat.say(f"session {one_line(found[0])}, {count(len(messages), 'message')}")
        last = messages[-1] if messages else {}
        whole = last.get("role") == "assistant" and not last.get("tool_calls")
        if whole and not as_json:
            self._chat.show_text(str(last["content"]))
        elif messages and not whole:
            self._chat.say("its last answer was interrupted; /continue continues it")

    def _continue(self, _: str) -> None:
        self._chat.answer(self._chat.runner.resume_sync(USER, self._chat.session))

    def _compact(self, _: str) -> None:
        self._chat.answer(self._chat.runner.compact_sync(USER, self._chat.session))

    def _export(self, wanted: str) -> None:
        session = self._chat.runner.agent.runtime.session(USER, self._chat.session).session
        path = os.path.abspath(os.path.expanduser(wanted or f"{self._chat.session}.md"))
        text = to_markdown(session.events())
        if not text:
            self._chat.say("there is nothing to export yet")
            return
        try:
            # Never over another file: a name may be mistyped.
            with open(os.open(path, NEW_FILE, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self._chat.say(f"skillbelt: {one_line(path)} cannot be written: {error.strerror}")
            return
        if not self._chat.document("exported", path=path):
            self._chat.say(f"wrote {one_line(path)}")


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def show_plain(text: str) -> None:
    """Print text written by the model, without Markdown."""
    print(plain(text), flush=True, file=sys.stdout)
