"""Parse a command line for the WASM sandbox: a module, or a script for a host component."""

import os
import re
from typing import Literal, NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.permission.command_policy import split_words
from skillbelt.text import one_line, shorten

Kind = Literal["module", "python", "javascript"]
MISSING = 127
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_NODE = ("node", "nodejs")
_SHELLS = ("sh", "bash", "dash")
_SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".mts")
# Options without effect inside: there is no user environment to ignore, and output is unbuffered.
_IGNORED = frozenset("IEsSBuOqd")
_TAKES_VALUE = ("-X", "-W")
# They only choose where packages come from, and none are installed here.
_UV_FLAGS = ("--script", "-s", "--quiet", "-q", "--no-project", "--offline", "--isolated", "--")
_SHOWN = 200
_RUNS = "the sandbox 'wasm' runs WASM modules, Python and JavaScript/TypeScript scripts"


class Program(NamedTuple):
    """The program to run with its `argv`; `path` is that of a module, as inside."""

    kind: Kind
    argv: tuple[str, ...]
    path: str = ""


class NotRunnable(Exception):
    """The command cannot run in this sandbox; the text is one line."""

    def __init__(self, word: str, why: str = "not found") -> None:
        super().__init__(f"{shorten(one_line(word), _SHOWN)}: {why}; {_RUNS}")


def parse_command(argv: tuple[str, ...]) -> Program:
    """Return the program for an argument vector; raises NotRunnable."""
    first = os.path.basename(argv[0])
    if first.endswith(".wasm"):
        return Program("module", argv, argv[0])
    if _PYTHON.fullmatch(first):
        return Program("python", (argv[0], *_python_words(argv)))
    if first in _NODE:
        return Program("javascript", (argv[0], *_node_words(argv)))
    if first == "uv" and argv[1:2] == ("run",):
        return parse_command(_uv_words(argv))
    if first in _SHELLS and len(argv) == 3 and argv[1] == "-c":
        return parse_command(_split_simple(argv[2]))
    raise NotRunnable(argv[0])


def _uv_words(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what `uv run` starts: a script of Python, or the command that follows."""
    rest = argv[2:]
    while rest and rest[0] in _UV_FLAGS:
        rest = rest[1:]
    if not rest or rest[0].startswith("-"):
        raise NotRunnable("uv run", "takes a script or a command, and no such option, here")
    return ("python", *rest) if rest[0].endswith(".py") else rest


def _split_simple(text: str) -> tuple[str, ...]:
    """Split a command line that is one plain command."""
    try:
        words = tuple(split_words(text))
    except RunRefused as error:
        raise NotRunnable(text, "is more than one plain command") from error
    if not words:
        raise NotRunnable(text)
    return words


def _python_words(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the script or code with its arguments, without options that have no effect here."""
    rest = argv[1:]
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-c", "-m"):
        option, rest = rest[0], rest[1:]
        if option in _TAKES_VALUE:
            rest = rest[1:]
        elif option[:2] in _TAKES_VALUE:
            continue
        elif option[-1:] in ("c", "m") and set(option[1:-1]) <= _IGNORED and rest:
            return (f"-{option[-1]}", *rest)
        elif option.startswith("--") or not set(option[1:]) <= _IGNORED:
            raise NotRunnable(argv[0], f"does not know the option {option[:_SHOWN]!r} here")
    if not rest:
        return ("-",)
    return rest


def _node_words(argv: tuple[str, ...]) -> tuple[str, ...]:
    rest = argv[1:]
    if rest[:1] in (("-e",), ("--eval",)) and len(rest) > 1:
        return ("-e", *rest[1:])
    if not rest or not rest[0].endswith(_SCRIPTS):
        raise NotRunnable(argv[0], "takes one script, or -e and code, here")
    return rest
