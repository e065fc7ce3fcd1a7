"""Where the keys of a TOML text are written; the standard library's reader does not tell."""

from __future__ import annotations

from collections.abc import Iterator

# A key with all above it; a number is a place in a list.
Key = tuple[str | int, ...]
# Keys of so many parts are not noted: no setting lies there, and a hostile text would take memory.
_TOO_DEEP = 10


def key_lines(text: str) -> dict[Key, int]:
    """The line of every key and of every item of a list, in a text that is valid TOML."""
    reader = _Reader()
    line = 1
    for token in _tokens(text):
        reader.take(token, line)
        line += token.count("\n")
    return reader.lines


def _tokens(text: str) -> Iterator[str]:
    """Strings, words, marks and line ends; blanks and comments are left out."""
    import re

    found = re.compile(
        r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'"
        r"|\#[^\n]*|\n|[\[\]{}=,.]|[^\s\[\]{}=,.\#\"']+",
        re.DOTALL,
    )
    return (match[0] for match in found.finditer(text) if match[0][0] != "#")


class _Reader:
    """Follows the tokens of a TOML text. It does not recurse, as deep as lists may lie."""

    def __init__(self) -> None:
        self.lines: dict[Key, int] = {}
        self._base: Key = ()  # the table whose header was last
        self._at: Key = ()  # the key whose value is being read
        self._open: list[tuple[Key, int]] = []  # lists with the number of the item, tables with -1
        self._parts: list[str] = []
        self._brackets = 0
        self._counts: dict[Key, int] = {}
        self._reading = "key"

    def take(self, token: str, line: int) -> None:
        """The next token, which begins in that line."""
        if token == "\n":
            if not self._open:
                self._parts, self._reading = [], "key"
        elif self._reading == "value":
            self._value(token, line)
        elif token == "=":
            self._at = self._named((*self._prefix(), *self._parts), line)
            self._parts, self._reading = [], "value"
        elif token == "]":
            self._header(line)
        elif token == "}":
            self._open.pop()
            self._reading = "value"
        elif token == "[":
            self._brackets += 1
        elif token not in ".,":
            self._parts.append(_unquoted(token))

    def _header(self, line: int) -> None:
        """`[a.b]` is a table, `[[a.b]]` one more in a list of them; the second bracket is idle."""
        if self._brackets:
            key = self._named(tuple(self._parts), line)
            if self._brackets == 2:
                self._counts[key] = number = self._counts.get(key, -1) + 1
                key = self._named((*key, number), line)
            self._base, self._brackets = key, 0

    def _value(self, token: str, line: int) -> None:
        if token not in "],}=.":
            self._named(self._place(), line)
        if token == "[":
            self._open.append((self._place(), 0))
        elif token == "{":
            self._open.append((self._place(), -1))
            self._reading = "key"
        elif token in "]}" and self._open:
            self._open.pop()
        elif token == "," and self._open:
            self._next()

    def _next(self) -> None:
        at, number = self._open[-1]
        if number < 0:
            self._reading = "key"
        else:
            self._open[-1] = (at, number + 1)

    def _place(self) -> Key:
        """The key of the value that comes now."""
        if self._open and self._open[-1][1] >= 0:
            return (*self._open[-1][0], self._open[-1][1])[:_TOO_DEEP]
        return self._at

    def _prefix(self) -> Key:
        return self._open[-1][0] if self._open else self._base

    def _named(self, key: Key, line: int) -> Key:
        """Note the key, and those above it that were not named before; cut if it is too deep."""
        for length in range(min(len(key), _TOO_DEEP - 1), 0, -1):
            if key[:length] in self.lines:
                break
            self.lines[key[:length]] = line
        return key[:_TOO_DEEP]


def _unquoted(token: str) -> str:
    if token[0] not in "\"'":
        return token
    if "\\" not in token or token[0] == "'":
        return token[1:-1]
    import tomllib

    [key] = tomllib.loads(f"{token} = 0")
    return key
