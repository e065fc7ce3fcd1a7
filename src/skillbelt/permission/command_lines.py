"""Split a command line into the commands it would run, without running it.

Only words, quotes and the operators between commands are understood. A line with any other bash
syntax is returned whole, so that no rule about one program matches it.
"""

from __future__ import annotations

from skillbelt.records import NamedTuple
from skillbelt.text import shell_line

# The prefix of a line that cannot be split.
WHOLE = "shell: "
# The shell expands these outside of quotes; some of them in double quotes too.
_BEYOND = frozenset("`$<>(){}\\")
_BEYOND_QUOTED = frozenset("`$\\")
_SEPARATORS = (";", "&", "&&", "|", "||")
_GLOBS = frozenset("*?[]")
_SPECIAL = frozenset(" \t;&|`$<>(){}\\*?[]~#!'\"")
# Reserved words and builtins that begin several commands, or change the meaning of later words.
_GRAMMAR = """
! [[ ]] if then elif else fi for while until do done case esac select in function time coproc
. alias bind builtin command compgen complete compopt declare enable eval exec export fc getopts
hash let local mapfile read readarray readonly set shopt source trap typeset unalias unset wait
"""
_KEYWORDS = frozenset(_GRAMMAR.split())
# Where `-v` takes a variable name, bash runs an index in it: `test -v 'a[$(id)]'`.
_NAMING = frozenset(("printf", "test"))


class _Opaque(Exception):
    """The line cannot be split for certain."""


class _Word(NamedTuple):
    """A word: its meaning, how to write it, and whether the shell leaves it as it is."""

    value: str
    text: str
    certain: bool


class Line(NamedTuple):
    """A command line; `commands` are the texts that need permission.

    `words` are all its words as the programs get them; None where that is not certain.
    """

    commands: tuple[str, ...]
    words: tuple[str, ...] | None


def read_line(command: str) -> Line:
    """Split the line, if that is certain."""
    try:
        parts = _commands(command)
    except _Opaque:
        return Line((WHOLE + command,), None)
    words = [word for part in parts for word in part]
    known = tuple(word.value for word in words) if all(word.certain for word in words) else None
    texts = (" ".join(word.text for word in part) for part in parts)
    return Line(tuple(dict.fromkeys(texts)), known)


def simple_commands(command: str) -> tuple[str, ...]:
    """Return the commands of a line that need permission, each as one text.

    `git add . && git push` gives `git add .` and `git push`. A line that cannot be split for
    certain is returned whole, after `shell: `: no rule about one program matches it, so the user is
    asked unless everything is allowed.
    """
    return read_line(command).commands


def _commands(command: str) -> list[list[_Word]]:
    # The shell and a person must read the same line: no other whitespace, no control characters.
    if not command.replace("\t", " ").isprintable():
        raise _Opaque
    found: list[list[_Word]] = []
    at = 0
    while True:
        words, at = _read_words(command, at)
        found.append(_require_program(words))
        separator, at = _separator(command, at)
        if not separator or (separator in (";", "&") and not command[at:].strip(" \t")):
            return found


def _read_words(command: str, at: int) -> tuple[list[_Word], int]:
    """Return the words up to the next separator, and its position."""
    words: list[_Word] = []
    while True:
        while command[at : at + 1] in (" ", "\t"):
            at += 1
        if at >= len(command) or command[at] in ";&|":
            if not words:
                raise _Opaque
            return words, at
        word, at = _read_word(command, at)
        words.append(word)


def _separator(command: str, at: int) -> tuple[str, int]:
    end = at
    while command[end : end + 1] in (";", "&", "|"):
        end += 1
    if command[at:end] and command[at:end] not in _SEPARATORS:
        raise _Opaque
    return command[at:end], end


def _read_word(command: str, start: int) -> tuple[_Word, int]:
    pieces: list[str] = []
    at, quoted, certain = start, False, True
    while at < len(command) and command[at] not in " \t;&|":
        char = command[at]
        if char in "'\"":
            end = command.find(char, at + 1)
            inner = command[at + 1 : end]
            if end < 0 or (char == '"' and _BEYOND_QUOTED.intersection(inner)):
                raise _Opaque
            pieces.append(inner)
            at, quoted = end + 1, True
            continue
        if char in _BEYOND or (at == start and char == "#"):
            raise _Opaque
        if char == "~" and (at == start or command[at - 1] in "=:"):
            raise _Opaque
        certain = certain and char not in _GLOBS
        pieces.append(char)
        at += 1
    return _normalize_word("".join(pieces), command[start:at], quoted, certain), at


def _normalize_word(value: str, raw: str, quoted: bool, certain: bool) -> _Word:
    """Return the word in the normal form that rules are matched against."""
    if not quoted:
        return _Word(value, raw, certain)
    if not value or _SPECIAL.intersection(value):
        return _Word(value, shell_line([value]) if certain else raw, certain)
    return _Word(value, value, certain)


def _require_program(words: list[_Word]) -> list[_Word]:
    """Return the words of one command, if the first is literally the name of a program."""
    first = words[0]
    if not first.certain or first.value in _KEYWORDS or _assigns(first.value) or not first.value:
        raise _Opaque
    if first.value in _NAMING and not all(map(_names_nothing, words[1:])):
        raise _Opaque
    return words


def _names_nothing(word: _Word) -> bool:
    return word.certain and not word.value.startswith(("-v", "-R"))


def _assigns(word: str) -> bool:
    name, sign, _ = word.partition("=")
    name = name.removesuffix("+").partition("[")[0]
    return bool(sign) and name.isascii() and name.isidentifier()
