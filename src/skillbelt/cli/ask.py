"""`skillbelt ask`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial

from skillbelt.agent import (
    Agent,
    AgentEvent,
    Final,
    Retry,
    Runner,
    RunOutput,
    SkillCalled,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolResponse,
)
from skillbelt.agent.models import OFFLINE, is_deep
from skillbelt.cli.asking import ask
from skillbelt.cli.failure import describe
from skillbelt.cli.keyboard import can_ask, is_dumb
from skillbelt.cli.output import (
    CLI_SESSION,
    SANDBOX_HELP,
    print_json,
    say,
    show_progress,
    wants_progress,
    yes_option,
)
from skillbelt.cli.screen import FRAME_SECONDS, MarkdownStream, Screen, can_draw
from skillbelt.cli.tool_lines import describe_call as describe_step
from skillbelt.cli.tool_lines import read_arguments
from skillbelt.cli.words import print_words
from skillbelt.conversation.transcript import plain
from skillbelt.errors import ConfigError, PermissionDenied
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending
from skillbelt.runtime.runtime import Runtime
from skillbelt.settings import load_settings
from skillbelt.text import one_line, shorten
from skillbelt.tools.definitions import LOADERS
from skillbelt.untrusted_json import read_json

USER = CLI_SESSION[1]
_MAX_CALL_CHARS = 120
# Error kinds, by the reason why a run ended; an answer may be incomplete.
_KINDS = {
    "answer": "incomplete",
    "max_steps": "max_steps",
    "loop": "repeated_call",
    "error": "model_failed",
}
_REFUSED = "The script did not run: permission was refused."
_REMEDY = "ask again; -v shows what was done"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ask`."""
    parser.add_argument("text", metavar="TEXT", help="the question; - reads it from standard input")
    parser.add_argument(
        "--file",
        metavar="F",
        action="append",
        default=[],
        help="a file the question is about; may be repeated",
    )
    model_options(parser)


def model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that use a model."""
    parser.add_argument(
        "--model",
        metavar="M",
        help="the model: openai:..., anthropic:..., google:..., ollama:..., NAME@URL for an "
        "OpenAI-compatible server, or offline for none (default: the setting `model`)",
    )
    parser.add_argument("--session", metavar="S", help="the conversation to continue")
    parser.add_argument("--sandbox", metavar="S", help=SANDBOX_HELP)
    yes_option(parser)


def run(args: argparse.Namespace) -> int:
    """Ask one question and stream the answer."""
    text = _read_question(args.text)
    session = args.session or new_session("ask")
    with (
        open_runner(args) as runner,
        closing(runner.run_sync(USER, session, text, files=args.file)) as events,
    ):
        offline = runner.agent.model == OFFLINE
        kept = list(_show(events, args, _open_printer(offline)))
        offered = runner.agent.runtime.names
    code = _exit_code(kept, offline)
    if args.json:
        loading = {offered.get(one, one) for one in LOADERS}
        print_json(document(kept, loading, code))
    else:
        _print_summary(kept, session, args)
    return code


def _read_question(text: str) -> str:
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise ConfigError("ask needs a question: skillbelt ask TEXT")
    return text


def new_session(kind: str) -> str:
    """Return a new name for a conversation."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


@contextmanager
def open_runner(args: argparse.Namespace, *, interactive: bool = False) -> Iterator[Runner]:
    """Open a runner for the model of the options; closed at the end."""
    with (
        ignore_warnings(),
        _open_runtime(args, interactive) as belt,
        Runner(
            Agent(belt, args.model or belt.settings.model or OFFLINE), interactive=interactive
        ) as runner,
    ):
        yield runner


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Hide the warnings of provider libraries, unless Python was started with -W."""
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


def _open_runtime(args: argparse.Namespace, interactive: bool) -> Runtime:
    """Open the runtime: --yes allows each request once, a terminal asks."""

    def answer(pending: Pending) -> Answer | None:
        return Answer("once", by="--yes") if args.yes else ask(pending, belt.gate.desk)

    asks = args.yes or (not interactive and can_ask())
    overrides = {"sandbox": args.sandbox} if args.sandbox else {}
    reload = partial(load_settings, args.project, config=args.config, overrides=overrides)
    belt = Runtime(settings=reload(), reload=reload, ask=answer if asks else None)
    return belt


def _open_printer(offline: bool) -> AnswerPrinter:
    """Return the printer for the answer; without a model it is a script's output, not Markdown."""
    if offline:
        return _WordsPrinter()
    return _MarkdownPrinter(Screen()) if can_draw() else AnswerPrinter()


def _show(
    events: Iterable[AgentEvent], args: argparse.Namespace, text: AnswerPrinter
) -> Iterator[AgentEvent]:
    """Show each event, unless --json was given, and yield those that the summary needs.

    Deltas are dropped: the final event has the whole text, and output may be endless.
    """
    try:
        yield from _show_all(events, args, text)
    finally:
        text.end()


def _show_all(
    events: Iterable[AgentEvent], args: argparse.Namespace, text: AnswerPrinter
) -> Iterator[AgentEvent]:
    progress = _Progress(args)
    responses: list[ToolResponse] = []
    for event in events:
        if not isinstance(event, TextDelta | ThinkingDelta):
            text.end()
        progress.note(event)
        match event:
            case TextDelta() if not args.json:
                text.more(event.text if args.quiet else _leave_out_refusals(event.text, responses))
            case ToolResponse():
                responses.append(event)
            case ToolCall() if args.verbose:
                say(f"skillbelt: {describe_call(event)}", args)
            case Retry():
                say(f"skillbelt: asking again: {one_line(event.reason)}", args)
        if not isinstance(event, TextDelta | ThinkingDelta | RunOutput):
            yield event


def _leave_out_refusals(text: str, responses: Iterable[ToolResponse]) -> str:
    """Remove refusals that the text repeats completely; they are printed to stderr."""
    for one in _find_refused(responses):
        text = text.replace(one.error, _REFUSED)
    return text


class _Progress:
    """A progress line on a terminal, until there is an answer."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._shown = wants_progress(args) and not is_dumb()
        self._line = ""
        self._writing = False  # the answer owns the line
        self._show("waiting for the model")

    def note(self, event: AgentEvent) -> None:
        """Show the start of an event's action; clear the line before output."""
        self._writing = isinstance(event, TextDelta) or (
            self._writing and isinstance(event, ThinkingDelta)
        )
        match event:
            case ToolCall():
                self._show(describe_step(event, event.name))
            case ThinkingDelta() if not self._writing:
                self._show("thinking")
            case ToolResponse():
                self._show("waiting for the model")
            case TextDelta() | Final() | Retry():
                self._show("")

    def _show(self, text: str) -> None:
        if self._shown and text != self._line:
            self._line = text
            show_progress(text)


class AnswerPrinter:
    """Streams an answer to stdout; later output begins on a new line."""

    def __init__(self) -> None:
        self._open = False

    def more(self, text: str) -> None:
        """Print the next part."""
        print(plain(text), end="", flush=True)
        self._open = not text.endswith("\n") if text else self._open

    def end(self) -> None:
        """End the line of the answer."""
        if self._open:
            print(flush=True)
        self._open = False


class _WordsPrinter(AnswerPrinter):
    """Prints an answer in whole lines; a terminal breaks long ones between words."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = ""

    def more(self, text: str) -> None:
        """Print the complete lines."""
        lines, newline, self._rest = (self._rest + plain(text)).rpartition("\n")
        if newline:
            print_words(lines)

    def end(self) -> None:
        """Print the last line."""
        if self._rest:
            print_words(self._rest)
        self._rest = ""
        sys.stdout.flush()


class _MarkdownPrinter(AnswerPrinter):
    """Streams an answer to a terminal as Markdown: finished blocks stay, the end is redrawn."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._stream, self._drawn = MarkdownStream(screen), 0.0

    def more(self, text: str) -> None:
        """Show the next part; many small parts are drawn together."""
        self._stream.add(text)
        if time.monotonic() > self._drawn + FRAME_SECONDS:
            self._stream.draw()
            self._drawn = time.monotonic()

    def end(self) -> None:
        """Print the rest of the answer."""
        if self._stream:
            self._stream.end()


def describe_call(call: ToolCall) -> str:
    """Return a call in one line."""
    given = call.arguments
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return shorten(one_line(f"{call.name} {text}"), _MAX_CALL_CHARS)


def _final(kept: Iterable[AgentEvent]) -> Final:
    return [event for event in kept if isinstance(event, Final)][-1]


def _responses(kept: Iterable[AgentEvent]) -> list[ToolResponse]:
    return [event for event in kept if isinstance(event, ToolResponse)]


def document(kept: list[AgentEvent], loading: Container[str], exit_code: int) -> dict[str, object]:
    """Return the document for --json; `loading` are the names of the tools that load skills."""
    final, responses = _final(kept), _responses(kept)
    errors = {one.id: one.error for one in responses}
    calls = [event for event in kept if isinstance(event, ToolCall)]
    found: dict[str, object] = {
        "answer": final.text,
        "skills": _skills(kept, loading),
        "tool_calls": [
            {"name": call.name, "arguments": _arguments(call), "error": errors.get(call.id, "")}
            for call in calls
        ],
        "files": _files(responses),
        "usage": final.usage._asdict(),
    }
    if refused := _find_refused(kept):
        found["refused"] = [{"tool": one.name, "message": one.error} for one in refused]
    if final.error or exit_code:
        found["error"] = _failure(final, responses, exit_code)
    return found


def _failure(final: Final, responses: Sequence[ToolResponse], exit_code: int) -> dict[str, object]:
    """Return the failure, as every document has it."""
    faults = [(about, one) for one in responses if one.error and (about := _kind(one))]
    if exit_code == PermissionDenied.exit_code:
        faults = [fault for fault in faults if fault[0] == PermissionDenied.kind] or faults
    if final.reason != "answer" or not faults:
        return describe(_KINDS[final.reason], final.error, _REMEDY, exit_code)
    kind, last = faults[-1]
    remedy = PermissionDenied.remedy if kind == PermissionDenied.kind else _REMEDY
    return describe(kind, final.error or last.error, remedy, exit_code)


def _kind(response: ToolResponse) -> str:
    about = response.data.get("error")
    return str(about.get("kind", "")) if isinstance(about, Mapping) else ""


def _arguments(call: ToolCall) -> object:
    """Return the arguments as an object if the model wrote one."""
    try:
        found = read_json(call.arguments) if isinstance(call.arguments, str) else call.arguments
    except ValueError:
        return call.arguments
    return call.arguments if is_deep(found) else found


def _skills(kept: Iterable[AgentEvent], loading: Container[str]) -> list[str]:
    """Return the skills that the user called and those that were loaded, in order."""
    found: dict[str, None] = {}
    for event in kept:
        match event:
            case SkillCalled():
                found[event.skill] = None
            case ToolResponse() if event.name in loading and not event.error:
                if "name" in event.data:
                    found[str(event.data["name"])] = None
    return list(found)


def _files(responses: Iterable[ToolResponse]) -> list[object]:
    """Return the output files of runs."""
    found: list[object] = []
    for one in responses:
        given = one.data.get("output_files")
        found += given if isinstance(given, list) else []
    return found


def _print_summary(kept: list[AgentEvent], session: str, args: argparse.Namespace) -> None:
    """Print what was refused and the error, and with -v the session and its tokens."""
    final = _final(kept)
    for one in _find_refused(kept):
        say(f"skillbelt: refused: {one_line(one.error)}", args)
    if final.error:
        say(f"skillbelt: {one_line(final.error)}", args)
    if args.verbose:
        used = final.usage
        say(
            f"skillbelt: session {one_line(session)}; {used.requests} requests, "
            f"{used.input_tokens} tokens in ({used.cached_tokens} cached), "
            f"{used.output_tokens} out",
            args,
        )


def _exit_code(kept: list[AgentEvent], offline: bool) -> int:
    """Return 0 for an answer; without a model only if the skill succeeded.

    A refusal is 4, unless a later call of the same tool for the same skill was not refused: then
    the model found another way.
    """
    final = _final(kept)
    if final.reason != "answer" or (final.error and not final.text):
        return 1
    skills = {one.id: read_arguments(one).get("skill") for one in kept if isinstance(one, ToolCall)}
    last = {(one.name, str(skills.get(one.id))): one for one in _responses(kept)}
    refused = [one for one in _find_refused(kept) if last[one.name, str(skills.get(one.id))] is one]
    if refused:
        return PermissionDenied.exit_code
    faults = [one for one in _responses(kept) if one.error and offline]
    codes = [code for one in faults if isinstance(code := one.data.get("refused"), int)]
    if not faults:
        return 0
    return codes[-1] if codes else 1


def _find_refused(kept: Iterable[AgentEvent]) -> list[ToolResponse]:
    """Return the calls that were refused, each refusal once."""
    found: dict[str, ToolResponse] = {}
    for one in _responses(kept):
        if _kind(one) == PermissionDenied.kind:
            found[one.error] = one
    return list(found.values())
