"""Follow the variables and functions of make to the commands that it runs while it reads.

Only functions that put texts together are known. What stays unknown in the place of a program is
a finding if such a function made it: no recipe shows that program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from skillbelt.scan.ledger import Ledger
from skillbelt.text import Lazy

_MAX_VALUE = 4_000
_MAX_DEPTH = 12
_MAX_CALLS = 100
_ASSIGNS = Lazy(
    r"(?m)^[ ]{0,20}(?:(?:override|export|private)[ \t]{1,9}){0,3}([\w.-]{1,60})[ \t]{0,9}"
    r"(?::{1,3}|\?|\+|!)?=[ \t]{0,9}([^\n]{0,4000})$"
)
_DEFINES = Lazy(
    r"(?m)^define[ \t]{1,9}([\w.-]{1,60})[^\n]{0,20}\n((?:(?!endef\b)[^\n]{0,2000}\n){1,40})endef"
)
_INCLUDES = Lazy(r"(?m)^[ ]{0,9}[-s]?include[ \t]{1,9}([^\n$]{1,200})$")
_BANG = Lazy(r"(?m)^[ ]{0,20}[\w.-]{1,60}[ \t]{0,9}!=[ \t]{0,9}([^\n]{1,4000})$")
# Functions that put a text together.
_BUILDS = Lazy(
    r"\$[({](?:subst|patsubst|word|wordlist|firstword|lastword|file|join|addprefix|addsuffix"
    r"|foreach"
    r"|shell[ \t]{1,9}(?:cat|head|tail|sed|tr|cut|awk|printf|base64|rev|xxd)|call|let)[ \t]"
)


class _Make:
    """The variables of a file of make, and of those that it includes."""

    def __init__(self, text: str, read: Callable[[str], str]) -> None:
        self.values: dict[str, str] = {}
        self._read, self._calls = read, 0
        for included in islice(_INCLUDES.finditer(text), 10):
            for name in included[1].split()[:5]:
                self._take(read(name))
        self._take(text)

    def _take(self, text: str) -> None:
        joined = text.replace("\\\n", " ")
        for match in islice(_DEFINES.finditer(joined), 40):
            self.values[match[1]] = match[2].strip()
        for match in islice(_ASSIGNS.finditer(joined), 400):
            self.values[match[1]] = match[2].strip()

    def expand(self, text: str, depth: int = 0) -> str:
        """Return a text with its variables and known functions filled in; others stay."""
        self._calls += 1
        if depth > _MAX_DEPTH or self._calls > 2_000 or "$" not in text:
            return text[:_MAX_VALUE]
        made: list[str] = []
        at = 0
        while at < len(text) and len(made) < _MAX_VALUE:
            if text[at] == "$" and text[at + 1 : at + 2] in ("(", "{"):
                end = _find_close(text, at + 1)
                inner = text[at + 2 : end]
                made.append(self._reference(inner, text[at : end + 1], depth))
                at = end + 1
            else:
                made.append(text[at])
                at += 1
        return "".join(made)[:_MAX_VALUE]

    def _reference(self, inner: str, whole: str, depth: int) -> str:
        name, blank, rest = inner.partition(" ")
        if not blank:
            if ":" in inner and "=" in inner:
                name, _, change = inner.partition(":")
                before, _, after = change.partition("=")
                words = self._value(name, depth).split()
                return " ".join(_substitute(before, after, word) for word in words)
            value = self.values.get(inner)
            return whole if value is None else self.expand(value, depth + 1)
        function = _FUNCTIONS.get(name)
        if name in ("shell", "eval", "info", "warning", "error", "wildcard", "foreach", "call"):
            return whole
        parts = [self.expand(one, depth + 1) for one in _split_arguments(rest)]
        if name == "file":
            path = parts[0].strip()
            return self._read(path[1:].strip()).strip() if path.startswith("<") else whole
        if name in ("if", "or", "and"):
            chosen = [one for one in parts[1 if name == "if" else 0 :] if one.strip()]
            return chosen[0] if chosen and name != "and" else chosen[-1] if chosen else ""
        try:
            return whole if function is None else function(parts)
        except (ValueError, IndexError):
            return whole

    def _value(self, name: str, depth: int) -> str:
        return self.expand(self.values.get(name, ""), depth + 1)


def _find_close(text: str, at: int) -> int:
    """Return where the bracket that opens at `at` closes, or the end of the text."""
    opened, closed = text[at], ")" if text[at] == "(" else "}"
    depth = 0
    for place in range(at, min(len(text), at + _MAX_VALUE)):
        if text[place] == opened:
            depth += 1
        elif text[place] == closed:
            depth -= 1
            if not depth:
                return place
    return len(text)


def _split_arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, one in enumerate(text):
        if one in "({":
            depth += 1
        elif one in ")}":
            depth -= 1
        elif one == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _substitute(before: str, after: str, word: str) -> str:
    if "%" in before:
        if fnmatchcase(word, before.replace("%", "*")):
            head, _, tail = before.partition("%")
            stem = word[len(head) : len(word) - len(tail) if tail else None]
            return after.replace("%", stem)
        return word
    return word.removesuffix(before) + after if before and word.endswith(before) else word


def _pick(words: str, first: str, last: str) -> str:
    return " ".join(words.split()[int(first) - 1 : int(last)])


_FUNCTIONS: dict[str, Callable[[list[str]], str]] = {
    "subst": lambda parts: (
        ",".join(parts[2:]).replace(parts[0], parts[1]) if parts[0] else parts[2]
    ),
    "patsubst": lambda parts: " ".join(
        _substitute(parts[0].strip(), parts[1].strip(), word) for word in parts[2].split()
    ),
    "word": lambda parts: _pick(parts[1], parts[0], parts[0]),
    "wordlist": lambda parts: _pick(parts[2], parts[0], parts[1]),
    "firstword": lambda parts: " ".join(parts[0].split()[:1]),
    "lastword": lambda parts: " ".join(parts[0].split()[-1:]),
    "strip": lambda parts: " ".join(",".join(parts).split()),
    "join": lambda parts: " ".join(
        one + two for one, two in zip(parts[0].split(), parts[1].split(), strict=False)
    ),
    "addprefix": lambda parts: " ".join(f"{parts[0].strip()}{one}" for one in parts[1].split()),
    "addsuffix": lambda parts: " ".join(f"{one}{parts[0].strip()}" for one in parts[1].split()),
    "sort": lambda parts: " ".join(sorted(parts[0].split())),
    "dir": lambda parts: parts[0],
    "notdir": lambda parts: parts[0].rpartition("/")[2],
}


def _find_shell_calls(text: str) -> Iterator[tuple[str, int]]:
    """Yield what `$(shell …)` and `!=` run, with the place of each."""
    at = text.find("(shell ")
    calls = 0
    while at > 0 and calls < _MAX_CALLS:
        end = _find_close(text, at)
        yield text[at + 7 : end], at
        calls += 1
        at = text.find("(shell ", at + 7)
    for match in islice(_BANG.finditer(text), _MAX_CALLS):
        yield match[1], match.start(1)


def read_make(text: str, ledger: Ledger) -> None:
    """Note what make runs while it reads its files, and which program runs its recipes."""
    if "(shell " not in text and "!=" not in text and "SHELL" not in text:
        return
    make = _Make(text, ledger.read_sibling)
    for command, at in _find_shell_calls(text):
        line = text.count("\n", 0, at) + 1
        made = make.expand(command)
        ledger.spend(1 + len(made) // 20)
        if made != command:
            ledger.read_shell(made.replace("$$", "$"), line, ledger)
        if _is_hidden(command, make):
            ledger.find("dynamic-code", line, made, "ask")
    shell = make.values.get("SHELL", "")
    if shell and ("/" in shell or " " in shell) and not re.match(r"[\w/$(){}-]*sh\b", shell):
        ledger.find("dynamic-code", 1, f"SHELL = {shell}", "ask")


def _is_hidden(command: str, make: _Make) -> bool:
    """Whether functions made the program that a command starts."""
    first = command.split(None, 1)[0] if command.split() else ""
    if _BUILDS.match(command.lstrip()):
        return True
    name = re.fullmatch(r"\$[({]([\w.-]+)[)}]", first)
    return name is not None and bool(_BUILDS.search(make.values.get(name[1], "")))
