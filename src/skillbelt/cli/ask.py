"""`skillbelt ask`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from skillbelt.cli.keyboard import somebody_is_there
from skillbelt.cli.output import CLI_SESSION, print_json, say
from skillbelt.errors import ConfigError
from skillbelt.running.following import visible
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

if TYPE_CHECKING:
    from skillbelt.agent import AgentEvent, Final, Runner, ToolCall, ToolResponse
    from skillbelt.permission.rules import Answer
    from skillbelt.runtime.runtime import Runtime

USER = CLI_SESSION[1]
OFFLINE = "offline"
_LONG = 120  # characters of a call that are shown
_LOADING = ("skill", "skill_load")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `ask`."""
    parser.add_argument("text", metavar="TEXT", help="the question; - takes it from standard input")
    parser.add_argument(
        "--file",
        metavar="F",
        action="append",
        default=[],
        help="a file the question is about; may be repeated",
    )
    model_options(parser)


def model_options(parser: argparse.ArgumentParser) -> None:
    """The options of whatever talks to a model."""
    parser.add_argument(
        "--model",
        metavar="M",
        help="the model: openai:..., anthropic:..., google:..., ollama:..., NAME@URL for a server "
        "that speaks as OpenAI's, or offline, which uses none (default: the setting `model`)",
    )
    parser.add_argument("--session", metavar="S", help="the conversation to go on with")
    parser.add_argument("--yes", action="store_true", help="say yes to what is asked for")


def run(args: argparse.Namespace) -> int:
    """Ask one question and print the answer as it comes."""
    text = _question(args.text)
    session = args.session or new_session("ask")
    with (
        open_runner(args) as runner,
        closing(runner.run_sync(USER, session, text, files=args.file)) as events,
    ):
        told = list(_shown(events, args))
        offline = runner.agent.model == OFFLINE
    if args.json:
        print_json(document(told))
    else:
        _tell(told, session, args)
    return _exit_code(told, offline)


def _question(text: str) -> str:
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise ConfigError("ask needs a question: skillbelt ask TEXT")
    return text


def new_session(kind: str) -> str:
    """A name for a conversation that nobody has had before."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


@contextmanager
def open_runner(args: argparse.Namespace, *, interactive: bool = False) -> Iterator[Runner]:
    """A runner for the model of the options; what is open at the end is closed."""
    from skillbelt.agent import Agent, Runner

    with (
        _quiet(),
        _open_runtime(args, interactive) as belt,
        Runner(
            Agent(belt, args.model or belt.settings.model or OFFLINE), interactive=interactive
        ) as runner,
    ):
        yield runner


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of what reads a provider's answers, unless Python is asked for them."""
    import warnings

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


def _open_runtime(args: argparse.Namespace, interactive: bool) -> Runtime:
    """The runtime of the options: with `--yes` it says yes once, on a terminal it asks."""
    from skillbelt.cli.asking import ask
    from skillbelt.permission.rules import Answer
    from skillbelt.permission.waiting import Pending
    from skillbelt.runtime.runtime import Runtime
    from skillbelt.settings import load_settings

    def answer(pending: Pending) -> Answer | None:
        return Answer("once", by="--yes") if args.yes else ask(pending, belt.gate.desk)

    asks = args.yes or (not interactive and somebody_is_there())
    settings = load_settings(args.project, config=args.config)
    belt = Runtime(settings=settings, ask=answer if asks else None)
    return belt


def _shown(events: Iterable[AgentEvent], args: argparse.Namespace) -> Iterator[AgentEvent]:
    """The events, each shown as it comes; nothing but the document at the end with --json.

    Pieces are not given on: the end has the whole, and a command may print without an end.
    """
    from skillbelt.agent import Retry, RunOutput, TextDelta, ThinkingDelta, ToolCall

    text = Text()
    for event in events:
        if not isinstance(event, TextDelta | ThinkingDelta):
            text.end()
        match event:
            case TextDelta() if not args.json:
                text.more(event.text)
            case ToolCall() if args.verbose:
                say(f"skillbelt: {called(event)}", args)
            case Retry():
                say(f"skillbelt: asking again: {one_line(event.reason)}", args)
        if not isinstance(event, TextDelta | ThinkingDelta | RunOutput):
            yield event


class Text:
    """An answer on stdout, as it comes; what comes after it begins a line of its own."""

    def __init__(self) -> None:
        self._open = False

    def more(self, text: str) -> None:
        """Show more of it."""
        print(plain(text), end="", flush=True)
        self._open = not text.endswith("\n") if text else self._open

    def end(self) -> None:
        """Show no more of it."""
        if self._open:
            print(flush=True)
        self._open = False


def plain(text: str) -> str:
    """Text of a model or a skill, with nothing in it that a terminal would act on."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


def called(call: ToolCall) -> str:
    """A call in a line."""
    import json

    given = call.arguments
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return shorten(one_line(f"{call.name} {text}"), _LONG)


def _final(told: Iterable[AgentEvent]) -> Final:
    from skillbelt.agent import Final

    return [event for event in told if isinstance(event, Final)][-1]


def _responses(told: Iterable[AgentEvent]) -> list[ToolResponse]:
    from skillbelt.agent import ToolResponse

    return [event for event in told if isinstance(event, ToolResponse)]


def document(told: list[AgentEvent]) -> dict[str, object]:
    """What happened, as JSON has it."""
    from skillbelt.agent import ToolCall

    final, responses = _final(told), _responses(told)
    errors = {one.id: one.error for one in responses}
    calls = [event for event in told if isinstance(event, ToolCall)]
    found: dict[str, object] = {
        "answer": final.text,
        "skills": _skills(responses),
        "tool_calls": [
            {"name": call.name, "arguments": _arguments(call), "error": errors.get(call.id, "")}
            for call in calls
        ],
        "files": _files(responses),
        "usage": final.usage._asdict(),
    }
    if final.error:
        found["error"] = final.error
    return found


def _arguments(call: ToolCall) -> object:
    """The arguments as an object, where what the model wrote is one."""
    from skillbelt.agent.models import is_deep

    try:
        found = read_json(call.arguments) if isinstance(call.arguments, str) else call.arguments
    except ValueError:
        return call.arguments
    return call.arguments if is_deep(found) else found


def _skills(responses: Iterable[ToolResponse]) -> list[str]:
    """The skills that were loaded, in their order."""
    loaded = [one for one in responses if one.name in _LOADING and not one.error]
    return list(dict.fromkeys(str(one.data.get("name")) for one in loaded if "name" in one.data))


def _files(responses: Iterable[ToolResponse]) -> list[object]:
    """The files that runs gave back."""
    found: list[object] = []
    for one in responses:
        given = one.data.get("output_files")
        found += given if isinstance(given, list) else []
    return found


def _tell(told: list[AgentEvent], session: str, args: argparse.Namespace) -> None:
    """What there is to say beside the answer."""
    final = _final(told)
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


def _exit_code(told: list[AgentEvent], offline: bool) -> int:
    """Whether there was an answer; without a model, whether the skill did its work."""
    final = _final(told)
    if final.reason != "answer" or (final.error and not final.text):
        return 1
    faults = [one for one in _responses(told) if one.error and offline]
    refused = [code for one in faults if isinstance(code := one.data.get("refused"), int)]
    if not faults:
        return 0
    return refused[-1] if refused else 1
