"""Substitute the arguments of a skill into its text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

# A hostile text could repeat a long argument without end.
MAX_ADDED_CHARS = 2**20
_NO_VARIABLES: Mapping[str, str] = {}
# Commands are left unchanged: no argument must ever become part of a command that is run.
_COMMAND = r"(?P<command>(?<!\S)!`[^`\n]+`|(?<![^\n]) {0,3}```!(?:(?!\n {0,3}```)[\s\S])*+)"
_PLACE = (
    r"\$(?:ARGUMENTS\[(?P<item>[0-9]{1,5})\]|(?P<index>[0-9]{1,5})(?!\w)"
    r"|(?P<all>ARGUMENTS)(?!\w)"
)


def substitute(
    text: str,
    arguments: str | None,
    *,
    names: Sequence[str] = (),
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> str:
    r"""Fill the placeholders in one pass: inserted text is not searched for placeholders.

    `$ARGUMENTS` is all of them, `$ARGUMENTS[0]` and `$0` the first (quotes as in a shell), `$name`
    the one at its position in `names`, `${NAME}` a variable. `\$0` stays `$0`. A number beyond the
    arguments and an unknown variable stay as they are; a name without a value becomes empty.
    Arguments that no placeholder used are appended. With None, only variables are filled. To run
    the commands in a text, look for them before this, not after.
    """
    filler = _Filler(arguments, names, variables)
    filled = _pattern(names if arguments is not None else ()).sub(filler, text)
    if arguments and not filler.used:
        return filled + appended(arguments)
    return filled


def appended(arguments: str) -> str:
    """Return the text that is appended if there is no placeholder for the arguments."""
    return f"\n\nARGUMENTS: {arguments}\n"


def split_arguments(arguments: str) -> list[str]:
    """Split at blanks, with quotes as in a shell; at blanks alone if a quote is not closed."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


class _Filler:
    """Returns the text for one placeholder, and records whether any used an argument."""

    def __init__(
        self, arguments: str | None, names: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        self._arguments = arguments
        self._values = split_arguments(arguments) if arguments else []
        self._places = {name: place for place, name in reversed(list(enumerate(names)))}
        self._variables = variables
        self._room = MAX_ADDED_CHARS
        self.used = False

    def __call__(self, match: re.Match[str]) -> str:
        if match["command"]:
            return match[0]
        value = self._value(match)
        if value is None:
            return match[0]
        if match["escape"]:
            return match[0][1:]
        self._room -= len(value)
        return value if self._room >= 0 else match[0]

    def _value(self, match: re.Match[str]) -> str | None:
        """Return the value of the placeholder; None to keep it. An escaped one uses no argument."""
        if match["variable"]:
            return self._variables.get(match["variable"])
        if self._arguments is None:
            return None
        value = self._argument(match, self._arguments)
        if value and not match["escape"]:
            self.used = True
        return "" if value is None and match["escape"] else value

    def _argument(self, match: re.Match[str], arguments: str) -> str | None:
        if match["all"]:
            return arguments
        named = match["name"]
        place = self._places[named] if named else int(match["item"] or match["index"])
        if place < len(self._values):
            return self._values[place]
        return "" if named else None


def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    words = sorted(filter(None, set(names)), key=len, reverse=True)
    name = "|".join(map(re.escape, words)) or "(?!)"
    place = rf"{_PLACE}|(?P<name>{name})(?![\w\[])|\{{(?P<variable>\w{{1,100}})\}})"
    return re.compile(rf"{_COMMAND}|(?P<escape>\\)?{place}")
