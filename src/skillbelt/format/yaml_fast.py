"""A fast reader for the subset of YAML that most files use.

It takes a fifth of libyaml's time, and most processes never import yaml because of it. For text
outside the subset it returns None, and `yaml.py` reads it.
"""

from __future__ import annotations

import json
import re
from typing import Final

from skillbelt.text import Lazy

_HYPHENED = {"name", "description", "license", "compatibility", "version", "when-to-use"} | {
    "argument-hint",
    "model",
    "effort",
    "context",
    "agent",
    "shell",
}
# Text by specification: the value is what the author typed, not YAML's number or flag.
TEXT_KEYS: Final = frozenset(_HYPHENED | {key.replace("-", "_") for key in _HYPHENED})
METADATA: Final = "metadata"


class AsWritten(str):
    """A value of `metadata` as it is written, which YAML would read as a number or a flag.

    The values are text by specification: `1.10` is a version, not the number 1.1.
    """

    __slots__ = ()


_KEY = "([A-Za-z_][A-Za-z0-9_-]{0,99})"
# What may start a plain scalar, as a negated class: one that lists all letters of Unicode takes
# milliseconds to compile.
_LETTER = r"[^\x00-@\[-`{-\x7f]"
_FIRST = r"[^\x00-#%-')-.:=-@\[\]`{-\x7f]"
# A colon before a blank and a hash after one end a plain scalar; elsewhere they are text.
_LINE = rf"{_FIRST}[^:#\n]*+(?:(?::(?![ \n])|(?<! )#)[^:#\n]*+)*"
_LINES = rf"{_FIRST}[^:#\n]*+(?:(?::(?![ \n])|(?<! )#|\n+ )[^:#\n]*+)*"
_SINGLE = r"'[^'\n]*+(?:(?:''|\n(?=[ \n]))[^'\n]*+)*'"
# Escapes as dumpers write them; an escaped line end joins the lines.
_ESCAPED = r'\\(?:[ntr"\\ ]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U0001[0-9a-fA-F]{4}|\n +(?=[^ \n]))'
_DOUBLE = rf'"[^"\\\n]*+(?:(?:{_ESCAPED}|\n(?=[ \n]))[^"\\\n]*+)*"'
_FLOW = r"\[[^][{}\n]*\]|\{[^][{}\n]*\}"
_JSON = r'\{"[^\n]*\}'
_ENTRY = Lazy(
    rf"{_KEY}:(?: +(?:({_LINES})|({_SINGLE}|{_DOUBLE}) *|({_FLOW}|{_JSON}) *)\n+"
    r"| +([>|]-?) *\n((?: [^\n]*\n|\n)+)"
    r"| *\n+((?:(?:- | )[^\n]*\n+)+)| *\n+)|((?s:.+))"
)
_WORDS_LIST = Lazy(rf"( *)- {_LETTER}[^:#\n]*\n(?:\1- {_LETTER}[^:#\n]*\n)*")
_ONE_LINE = rf"({_LINE})|('[^'\n]*'|\"[^\"\\\n]*\") *|({_FLOW}) *"
_MEMBER = Lazy(rf"( +){_KEY}:(?: +(?:{_ONE_LINE})\n| *\n((?:\1(?:- | +)[^\n]*\n)*))|((?s:.+))")
_LIST_ITEM = Lazy(rf"( *)- +(?:{_ONE_LINE})\n|((?s:.+))")
_LIST_BLOCK = Lazy(r"( *)- ([^\n]*\n(?:\1  [^\n]*\n)*)|((?s:.+))")
_FLOW_ITEM = Lazy(rf" *(?:({_LETTER}[^][,:#?{{}}]*)|('[^'\n]*'|\"[^\"\\\n]*\") *)(?:,(?=.)|$)|(.+)")
_FLOW_PAIR = Lazy(r' *"([^"\\]{0,99})": +("[^"\\]*") *(?:,(?=.)|$)|(.+)')
_BELOW = Lazy(rf" +(?:({_LINES})|({_SINGLE}|{_DOUBLE}) *)\n+")
CONSTANTS: dict[str, object] = {
    **{form: True for word in ("yes", "true", "on") for form in (word, word.title(), word.upper())},
    **{
        form: False
        for word in ("no", "false", "off")
        for form in (word, word.title(), word.upper())
    },
    **dict.fromkeys(("null", "Null", "NULL")),
}
_WORDS = frozenset(CONSTANTS)
_INTEGER = Lazy(r"(?:0|[1-9][0-9]{0,15})\Z")
_FLOAT = Lazy(r"[0-9]{1,15}\.[0-9]{1,15}\Z")
# No number continues like these; a date stays text.
_DIGIT_TEXT = Lazy(
    r"[0-9][A-Za-z0-9.]*(?: +[A-Za-z(]|(?:\.[0-9]+){2}\Z)|[0-9]{4}-[0-9]{2}-[0-9]{2}\Z"
    r"|[0-9][0-9.]*[acdf-wyzACDF-WYZ(]"
)
# From the first blank of a run; an escaped blank may come before it.
_FOLDED = r"(?<!(?<!\\) ) *+\n((?: *+\n)*+) *+"
_FOLD = Lazy(_FOLDED)
_FOLD_OR_ESCAPE = Lazy(rf"{_FOLDED}|(?={_ESCAPED})\\(\n +|u.{{4}}|U.{{8}}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


_ASCII = bytes([10, *range(32, 127)])
_DEPTH = 5
_LONG_RUN = " " * 64
_JSON_CHARS = 1000  # YAML looks for a key's colon no further
_JSON_OPEN = 24


class _Unsure(Exception):
    """The text is outside the subset."""


def read(text: str) -> dict[str, object] | None:
    """Return the block as YAML reads it, or None when it is outside the subset.

    `text` has LF line ends and ends with one.
    """
    # Every character that YAML refuses, folds or treats as a line end is not printable.
    if text.encode().translate(None, _ASCII) and not text.replace("\n", "").isprintable():
        return None
    fields: dict[str, object] = {}
    entries = _ENTRY.findall(text)
    try:
        for key, plain, quoted, flow, style, block, nested, rest in entries:
            if plain:
                if "\n" in plain:
                    plain = _fold(plain.rstrip(" \n"))
                fields[key] = _plain_scalar(plain, key in TEXT_KEYS)
            elif quoted:
                fields[key] = _read_quoted(quoted)
            elif rest:
                return None
            elif style:
                fields[key] = _block(style, block)
            else:
                fields[key] = _collection(key, flow, nested)
    except _Unsure:
        return None
    return fields if len(fields) == len(entries) else None


def _collection(key: str, flow: str, nested: str) -> object:
    if flow:
        items = _flow(flow)
        if key == METADATA and isinstance(items, dict):
            _only_texts(items)
        return flow if key in ("argument-hint", "argument_hint") else items
    text = key in TEXT_KEYS
    if not nested:
        return "" if text else None
    below = _BELOW.fullmatch(nested) if text else None
    if below is None and key == METADATA and not nested.lstrip(" ").startswith("- "):
        return _members(nested.rstrip("\n") + "\n", 0, written=True)
    if below is None:
        return _read_nested(nested.rstrip("\n") + "\n")
    if below[2]:
        return _read_quoted(below[2])
    return _plain_scalar(_fold(below[1].rstrip(" \n")), verbatim=True)


def _only_texts(items: dict[str, object]) -> None:
    """Raise _Unsure for values whose source is lost by now: the other reader has it."""
    if any(isinstance(value, int) for value in items.values()):
        raise _Unsure


def _read_plain(text: str) -> object:
    value = _plain_scalar(text)
    return value if value is None or isinstance(value, str) else AsWritten(text.rstrip(" "))


def _plain_scalar(text: str, verbatim: bool = False) -> object:
    text = text.rstrip(" ")
    if verbatim:
        return "" if text in ("null", "Null", "NULL") else text
    if len(text) < 6 and text in CONSTANTS:
        return CONSTANTS[text]
    return _number(text) if text[0] in "0123456789" else text


def _number(text: str) -> object:
    if _DIGIT_TEXT.match(text):
        return text
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    raise _Unsure


def _read_quoted(text: str) -> str:
    value = text[1:-1]
    if text[0] == "'":
        value = value.replace("''", "'")
    elif "\\" in value:
        _no_long_run(value)
        return _FOLD_OR_ESCAPE.sub(_unescape, text[1:])[:-1]
    return _fold(value) if "\n" in value else value


def _fold(text: str) -> str:
    """Fold lines: one line end is a space, each further one a line end; drop blanks around."""
    if " \n" not in text and "\n   " not in text and "\n\n\n" not in text:
        folded = text.replace("\n\n  ", "\0").replace("\n  ", " ")
        if "\n" not in folded:
            return folded.replace("\0", "\n")
    _no_long_run(text)
    return _FOLD.sub(lambda match: "\n" * match[1].count("\n") or " ", text)


def _no_long_run(text: str) -> None:
    # The fold pattern takes time in the square of a run of blanks.
    if _LONG_RUN in text:
        raise _Unsure


def _unescape(match: re.Match[str]) -> str:
    code = match[2]
    if code is None:
        return "\n" * match[1].count("\n") or " "
    if code[0] in "uU":
        return chr(int(code[1:], 16))
    return "" if code[0] == "\n" else _ESCAPES.get(code, code)


def _block(style: str, block: str) -> str:
    indent = block[: len(block) - len(block.lstrip(" "))]
    content = block[len(indent) :].rstrip("\n")
    if (
        not indent
        or content[:1] in ("", "\n")
        or content[-1] == " "
        or _is_outdented(content, indent)
    ):
        raise _Unsure
    lines = content.replace("\n" + indent, "\n")
    value = lines if style[0] == "|" else _fold_block(lines)
    return value if style[-1] == "-" else value + "\n"


def _is_outdented(content: str, indent: str) -> bool:
    """Whether some line is neither empty nor starts with the indentation."""
    return content.count("\n") != content.count("\n" + indent) + content.count("\n\n")


def _fold_block(lines: str) -> str:
    if "\n " in lines or "\n\n\n" in lines:
        raise _Unsure
    return lines.replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n")


def _read_nested(block: str, depth: int = 0) -> object:
    words = _WORDS_LIST.fullmatch(block)
    if words:
        indent = words[1]
        items = block[len(indent) + 2 : -1].split(f"\n{indent}- ")
        if " \n" in block:
            items = [item.rstrip(" ") for item in items]
        if _WORDS.isdisjoint(items):
            return items
    return _items(block, depth) if block.lstrip(" ").startswith("- ") else _members(block, depth)


def _items(block: str, depth: int) -> list[object]:
    found = _LIST_ITEM.findall(block)
    if any(rest or indent != found[0][0] for indent, *_, rest in found):
        return _records(block, depth)
    return [_value(plain, quoted, flow) for _, plain, quoted, flow, _ in found]


def _records(block: str, depth: int) -> list[object]:
    """Read a list of mappings whose lines are indented two columns from the dash."""
    found = _LIST_BLOCK.findall(block)
    if depth > _DEPTH or any(rest or indent != found[0][0] for indent, _, rest in found):
        raise _Unsure
    return [_members(f"{indent}  {lines}", depth + 1) for indent, lines, _ in found]


def _members(block: str, depth: int, *, written: bool = False) -> dict[str, object]:
    found = _MEMBER.findall(block)
    if depth > _DEPTH or any(rest or indent != found[0][0] for indent, *_, rest in found):
        raise _Unsure
    members = {
        key: _read_nested(nested, depth + 1)
        if nested
        else _read_plain(plain)
        if written and plain
        else _value(plain, quoted, flow)
        for _, key, plain, quoted, flow, nested, _ in found
    }
    if len(members) != len(found):
        raise _Unsure
    return members


def _value(plain: str, quoted: str, flow: str) -> object:
    if plain:
        return _plain_scalar(plain)
    if quoted:
        return quoted[1:-1]
    return _flow(flow) if flow else None


def _flow(text: str) -> object:
    inner = text[1:-1].strip(" ")
    if not inner:
        return [] if text[0] == "[" else {}
    if text[0] == "{":
        return _pairs(inner) if "{" not in inner and "[" not in inner else _json(text)
    found = _FLOW_ITEM.findall(inner)
    if any(rest for _, _, rest in found):
        raise _Unsure
    return [_plain_scalar(plain) if plain else quoted[1:-1] for plain, quoted, _ in found]


def _json(text: str) -> object:
    """Read JSON that is also YAML: no escapes, fractions or double keys, not long or deep."""
    if "\\" in text or len(text) > _JSON_CHARS or text.count("{") + text.count("[") > _JSON_OPEN:
        raise _Unsure
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique_members,
            parse_int=_number,
            parse_float=_refuse,
            parse_constant=_refuse,
        )
    except ValueError:
        raise _Unsure from None


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs) or "<<" in members:
        raise _Unsure
    return members


def _refuse(text: str) -> object:
    raise _Unsure


def _pairs(inner: str) -> dict[str, object]:
    found = _FLOW_PAIR.findall(inner)
    pairs: dict[str, object] = {key: quoted[1:-1] for key, quoted, _ in found}
    if len(pairs) != len(found) or any(rest for _, _, rest in found):
        raise _Unsure
    return pairs
