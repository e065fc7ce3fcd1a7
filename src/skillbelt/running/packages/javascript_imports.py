"""The modules that a source of JavaScript or TypeScript imports, without running any of it.

Tokens alone decide: a string after `from`, `import` or in the brackets of `import()` and
`require()`. So this is a tokenizer and not a parser. It knows comments, strings, templates and
regular expressions, since a word in one of those imports nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from skillbelt.format.python_source import MAX_SOURCE_BYTES
from skillbelt.running.packages.python_imports import MAX_IMPORTS

_TOKEN = re.compile(
    r"""(?P<blank>[\s\ufeff]+|//[^\n]*|/\*.*?(?:\*/|\Z)|\A\#![^\n]*)"""
    # An unclosed one ends with its line: searching for its end again and again takes too long.
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)"""
    r"""|(?P<word>[A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*)"""
    r"""|(?P<number>\d[\w.]*)"""
    r"""|(?P<mark>.)""",
    re.DOTALL,
)
_REGEX = re.compile(r"/(?![*/])(?:[^\\/\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[A-Za-z]*")
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)?", re.DOTALL)
# After these words a slash begins a regular expression, as after any punctuation but a closing one.
_BEFORE_REGEX = frozenset(
    ("return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do",
     "instanceof", "await", "yield")
)  # fmt: skip
_PLAIN = re.compile(r"[^\\\x00-\x1f]{1,400}")


class _Token(NamedTuple):
    kind: str  # string, word, mark, number, open (a string without an end)
    text: str


def javascript_imports(data: bytes | str) -> tuple[str, ...]:
    """Return the names of modules as they are written, in their order.

    Those of `import type` are left out: they do not exist at run time.
    """
    if isinstance(data, bytes):
        data = data[:MAX_SOURCE_BYTES].decode("utf-8", "replace")
    found: dict[str, None] = {}
    for name in _names(_tokens(data[:MAX_SOURCE_BYTES])):
        if _PLAIN.fullmatch(name):
            found[name] = None
        if len(found) >= MAX_IMPORTS:
            break
    return tuple(found)


def _tokens(text: str) -> Iterator[_Token]:
    """Yield all but blanks and comments, in linear time."""
    at, end = 0, len(text)
    last = _Token("mark", "(")
    braces: list[bool] = []  # for each open brace, whether a template continues after it
    closed = 0  # no regular expression ends before this offset
    while at < end:
        if text[at] == "/" and at >= closed and _regex_may_begin(last):
            regex = _REGEX.match(text, at)
            if regex:
                at, last = regex.end(), _Token("word", "regex")
                continue
            closed = text.find("\n", at) + 1 or end
        token = _TOKEN.match(text, at)
        if token is None:  # cannot be: `mark` matches anything
            return
        at = token.end()
        kind = _kind(token)
        mark = token[0] if kind == "mark" else ""
        if kind == "blank":
            continue
        if mark == "`" or (mark == "}" and braces and braces.pop()):
            at, opened = _skip_template(text, at)
            if opened:
                braces.append(True)
            last = _Token("mark", "(") if opened else _Token("word", "template")
            if opened:
                yield last
            continue
        if mark == "{":
            braces.append(False)
        last = _Token(kind, token[0])
        yield last


def _kind(token: re.Match[str]) -> str:
    """Return the kind of a token; an unclosed string is not a string."""
    text, kind = token[0], token.lastgroup or ""
    is_open = kind == "string" and (len(text) < 2 or text[-1] != text[0])
    return "open" if is_open else kind


def _regex_may_begin(last: _Token) -> bool:
    if last.kind == "mark":
        return last.text not in (")", "]", "}")
    return last.kind == "word" and last.text in _BEFORE_REGEX


def _skip_template(text: str, at: int) -> tuple[int, bool]:
    """Return where the text of a template ends, and whether an expression begins there."""
    found = _TEMPLATE.match(text, at)
    return (found.end(), found[1] == "${") if found else (len(text), False)


def _names(tokens: Iterator[_Token]) -> Iterator[str]:
    """Yield the strings that name modules.

    A statement is `import` or `export` up to its string; a call is `import` or `require`, a bracket
    and a string. A dot before the word makes it a property of something else.
    """
    statement = ""  # import, export, or type, which does not exist at run time
    called, before = False, ""
    for kind, text in tokens:
        if kind == "string":
            stated = before == "from" and statement in ("import", "export")
            if called or stated or before == "import":
                yield text[1:-1]
            statement, called = "", False
        elif kind == "mark":
            called = text == "(" and before in ("import", "require", "resolve")
            if text in ";=":
                statement = ""
        else:
            called = False
            if text in ("import", "export") and before != ".":
                statement = text
            elif text == "type" and before in ("import", "export"):
                statement = "type"
        before = _previous_token(before, text)


def _previous_token(before: str, text: str) -> str:
    """Return the token that the next one follows; a property is not a keyword."""
    if before == ".":
        return text if text == "resolve" else "property"
    return text
