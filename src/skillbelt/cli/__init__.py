"""The command line: parse arguments, call the library, print.

Only the chosen command's module is imported, so that `skillbelt list` pays for nothing else.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from skillbelt.errors import SkillbeltError
from skillbelt.text import one_line

INTERRUPTED = 130


class Command(NamedTuple):
    """One command: its module, what it does in a line, and more for its help page."""

    module: str
    summary: str
    details: str = ""
    words: str = ""  # what may stand after `--`, taken as it is
    json: str = "print one JSON document"


# No module may be called `list`: it would hide the built-in in this one.
COMMANDS: dict[str, Command] = {
    "list": Command("listing", "list the skills that are found here"),
    "show": Command("show", "show one skill: manifest, files, origin, problems, token cost"),
    "where": Command("where", "print the folder of a skill"),
    "search": Command(
        "search",
        "find skills by their whole text",
        "The query may be a few words or a page. Exit code 1: no skill fits.",
    ),
    "check": Command(
        "check",
        "check skills against the format's rules",
        "Exit code 0: no errors; 1: problems were found; 2: wrong usage.",
    ),
    "prompt": Command("prompt", "print the overview of skills for a model's system prompt"),
    "load": Command("load", "print a skill's instructions, with documents if asked for"),
    "read": Command("read", "print a document of a skill, or a part of it"),
    "run": Command(
        "run",
        "run a command of a skill in a sandbox",
        "Words after -- are one argument vector, not a shell string; use `bash -c` for a shell. "
        "The exit code is the command's own; with --json it is 1 for any that is not 0, and 124 "
        "when it took too long.",
        "COMMAND...",
    ),
    "exec": Command(
        "execution",
        "execute a skill on JSON: a script of it answers, in a sandbox",
        "The exit code is the script's own; with --json it is 1 for any that is not 0.",
    ),
    "ask": Command(
        "ask",
        "answer a question with the skills there are, by a model or without one",
        "Without --model no language model is used: the skill whose words fit best is loaded, and "
        "what it declares is run. A model needs its provider's key in the environment.",
    ),
    "chat": Command(
        "chat",
        "talk, with the skills at hand",
        "/help lists what can be typed there.",
        json="print each event as a line of JSON",
    ),
    "demo": Command("demo", "show what skillbelt does, from discovery to result, with no key"),
    "build": Command(
        "build",
        "build a skill's source into a WASM module",
        "TypeScript, JavaScript, Python, C and WAT can be built. With --check exit code 1 means "
        "that the module is not what the source gives.",
    ),
    "sessions": Command("sessions", "list, show and delete the conversations that were kept"),
    "artifacts": Command(
        "artifacts",
        "list the files that runs have kept, and get one",
        "NAME@V is a version, NAME the newest one; `list NAME` shows every version of it. Without "
        "--session they are those of runs from the command line.",
    ),
    "permissions": Command(
        "permissions",
        "list, explain and change what is allowed, and answer who waits for permission",
        "`why NAME` says which rule decides, from which file and line; allow, ask and deny add a "
        "rule of the user's; revoke takes one back, or what was remembered; watch answers the "
        "requests of other processes, pending lists them, and answer answers one.",
        json="print one JSON document; with watch each request as a line",
    ),
    "doctor": Command(
        "doctor",
        "show where skills are looked for, what was found and what is wrong",
        "With --sandbox exit code 1 means too that an attack was not stopped by a sandbox that "
        "says it does, and 5 that there was no sandbox to attack.",
    ),
    "trust": Command("trust", "say which project folders and origins are trusted"),
    "log": Command(
        "log",
        "print what was decided, loaded and run, and why",
        json="print one JSON document; with --follow each event as a line",
    ),
    "serve": Command(
        "serve",
        "serve skills to MCP clients",
        "Over standard input and output one client is served, which starts this program. Over HTTP "
        "there may be many; each sends the token, which is printed to stderr when none is given.",
        json="with --http: print where the server is, and its token, as one JSON document",
    ),
    "refresh": Command("refresh", "scan again, ask remote sources again, and say what changed"),
    "watch": Command(
        "watch",
        "print changes of the catalogue as they happen, until interrupted",
        json="print each change as a line of JSON",
    ),
    "config": Command("config", "print the merged settings and where each came from"),
}
_EXIT_CODES = (
    "Exit codes: 0 done, 1 the answer is no, 2 wrong usage or configuration, 3 no such skill, "
    "4 denied, 5 sandbox unavailable, 124 timed out, 130 interrupted."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _tolerate_any_text()
    code = 0
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except SkillbeltError as error:
        print(f"skillbelt: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        # A library may pass on the interrupt that Python is about to raise as well: both are one.
        try:
            return _interrupted()
        except KeyboardInterrupt:
            return _interrupted()
    except BrokenPipeError:
        # Whoever reads has had enough; what is known of the outcome still counts.
        _forget_output()
        return code
    except OSError as error:
        _forget_output()
        print(f"skillbelt: {one_line(str(error))}", file=sys.stderr)
        return 1


def _interrupted() -> int:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return INTERRUPTED


def _forget_output() -> None:
    """Nobody takes what is left in the buffer, so Python shall not try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command, with the options that every command has."""
    command = COMMANDS[name]
    made = argparse.ArgumentParser(
        prog=f"skillbelt {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}. {command.details}".strip(),
        epilog=_EXIT_CODES,
        allow_abbrev=False,
        formatter_class=_formatter,
    )
    import_module(f"skillbelt.cli.{command.module}").configure(made)
    made.add_argument("--json", action="store_true", help=command.json)
    made.add_argument("--project", metavar="DIR", help="the project folder (default: this one)")
    made.add_argument(
        "--config", metavar="FILE", help="settings to use in place of the project's own"
    )
    made.add_argument("-q", "--quiet", action="store_true", help="print no messages")
    made.add_argument("-v", "--verbose", action="store_true", help="print more")
    if command.words:
        shown = made.format_usage().removeprefix("usage: ").rstrip()
        made.usage = f"{shown} -- {command.words}".replace("%", "%%")
    return made


def _formatter(prog: str) -> argparse.HelpFormatter:
    """The usual one, told the width: it would import shutil to find it, for each option."""
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        width = 80
    return argparse.HelpFormatter(prog, width=min(width, 100) - 2)


def usage() -> str:
    """The overview of all commands."""
    lines = [f"  {name:<11} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: skillbelt COMMAND [options]",
            "",
            "Find Agent Skills, show them to models, run them in a sandbox, serve them to agents.",
            "",
            "commands:",
            *lines,
            "",
            "`skillbelt COMMAND --help` explains one. Every command takes --json.",
            _EXIT_CODES,
        ]
    )


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if name in ("-V", "--version"):
        from skillbelt import __version__

        print(f"skillbelt {__version__}")
        return 0
    if name not in COMMANDS:
        return _unknown(name)
    try:
        options, words = _split(arguments[1:]) if COMMANDS[name].words else (arguments[1:], [])
        parsed = parser(name).parse_intermixed_args(options)
        parsed.words = words
    except SystemExit as stop:
        return int(stop.code or 0)
    code: int = import_module(f"skillbelt.cli.{COMMANDS[name].module}").run(parsed)
    return code


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options, and the words after the first `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`skillbelt --help` lists them"
    if name.startswith("-"):
        hint = "options stand after the command"
    print(f"skillbelt: no command named {one_line(name)!r}; {hint}", file=sys.stderr)
    return 2


def _tolerate_any_text() -> None:
    """A name the terminal's encoding can not show is printed as an escape, not an exception."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
