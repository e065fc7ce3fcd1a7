"""Escape and shorten text for terminals, prompts, XML and JSON.

Text from a skill is hostile until it is escaped here.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from skillbelt.late import Late

# C0 and C1 controls, bidirectional overrides, zero-width and tag characters, the variation
# selectors that no script needs, surrogates: they move the cursor or hide text on a terminal, and
# hide instructions in a prompt.
_UNSAFE = (
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
_DAYS_AGO = 14  # older than this, a date says more
_BYTES_PER_TOKEN = 4  # median error 5 % on real skills, without a vocabulary
# Line ends and tabs become character references: no text can begin a line, and a parser restores
# them. XML cannot express the last two characters.
_XML = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord('"'): "&quot;",
    ord("'"): "&#39;",
    ord("\t"): "&#9;",
    ord("\n"): "&#10;",
    ord("\r"): "&#13;",
    0xFFFE: "\\ufffe",
    0xFFFF: "\\uffff",
}


if TYPE_CHECKING:
    import shlex

    Lazy = re.compile
else:
    shlex = Late("shlex")  # cost: 1 ms, only for shell words

    class Lazy:
        """A pattern that is compiled when it is first used.

        Compiling those of all modules takes longer than starting the interpreter, and most commands
        need few of them.
        """

        def __init__(self, pattern, flags=0):
            self.source, self.pattern = (pattern, flags), pattern

        def __getattr__(self, name):
            method = getattr(re.compile(*self.source), name)
            setattr(self, name, method)
            return method


def one_line(text: str) -> str:
    """Return the text on one line, with white space folded and unsafe characters escaped."""
    folded = " ".join(text.split())
    if folded.isascii() and folded.isprintable():
        return folded
    return _unsafe().sub(_escape, folded)


def exact(text: str) -> str:
    """Return the text on one line without loss: line ends and unsafe characters as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _unsafe().sub(_escape, text.replace("\n", "\\n").replace("\t", "\\t"))


def shell_word(text: str) -> str:
    """Return the text as one shell word that can be copied and run.

    Unsafe characters, line ends and repeated blanks are escaped, so that it stays on one line and
    hides nothing.
    """
    plain = text == text.strip() and "  " not in text and "`" not in text
    if plain and text.isprintable() and not _unsafe().search(text):
        return shlex.quote(text)
    data = text.encode("utf-8", "surrogatepass")
    escaped = "".join(map(_shell_byte, data)).replace("  ", " \\x20").replace("  ", " \\x20")
    return f"$'{escaped}'"


def shell_line(words: Iterable[str]) -> str:
    """Return the words as one line that a shell splits into them again."""
    return shlex.join(words)


def _shell_byte(code: int) -> str:
    char = chr(code)
    return f"\\x{code:02x}" if char in "'\\`" or not " " <= char <= "~" else char


def xml(text: str) -> str:
    """Return the text on one line for an XML element or attribute; a parser restores it.

    Characters that XML cannot express, and invisible ones, stay escaped as by `one_line`.
    """
    if not (text.isascii() and text.isprintable()):
        text = _unsafe().sub(_escape_hidden, text)
    return text.translate(_XML)


def break_tag(text: str, name: str) -> str:
    """Break every opening or closing tag of that name; the rest of the text is unchanged."""
    return _tag_pattern(name).sub(r"<\\\1", text)


def break_lines(text: str, *starts: str) -> str:
    """Break every line that begins with one of the starts; the rest of the text is unchanged."""
    folded = text.casefold()
    if not any(start.casefold() in folded for start in starts):
        return text
    return _start_pattern(starts).sub(r"\1\\\2", text)


@cache
def _tag_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(\s*+(?:/\s*+)?{name})", re.IGNORECASE)


@cache
def _start_pattern(starts: tuple[str, ...]) -> re.Pattern[str]:
    # Ends of lines are white space, too; without them each blank is looked at once.
    ends = "\r\v\f\x1c-\x1e\x85\u2028\u2029"
    found = "|".join(map(re.escape, starts))
    return re.compile(
        rf"(?:^|(?<=[{ends}]))([^\S\n{ends}]*+)({found})", re.IGNORECASE | re.MULTILINE
    )


def toml_value(value: object) -> str:
    """Return a text or a list of texts as TOML: JSON, except for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def json_string(text: str) -> str:
    """Return the text as a JSON string without `<` and with hidden characters escaped."""
    dumped = json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")
    if dumped.isascii() and dumped.isprintable():
        return dumped
    return _unsafe().sub(lambda match: json.dumps(match[0])[1:-1], dumped)


def file_url(path: str) -> str:
    """Return the URL of a file on this machine."""
    return f"file://{percent_encode(os.fsencode(path), keep='/')}"


def percent_encode(text: str | bytes, *, keep: str = "") -> str:
    """Return the text as a part of a URL; letters, digits, `_.-~` and `keep` stay as they are."""
    encoded: str = _urls().quote(text, safe=keep)
    return encoded


def percent_decode(text: str) -> str:
    """Return a part of a URL with every `%XX` decoded once."""
    decoded: str = _urls().unquote(text)
    return decoded


def _urls() -> ModuleType:
    import urllib.parse  # cost: 4 ms, only for spans, archives, mcp_commands and escaped URLs

    return urllib.parse


def hidden(text: str) -> list[str]:
    """Return the invisible characters in the text, except white space.

    Joiners between letters of other scripts and inside emoji are ordinary; they count only next to
    ASCII.
    """
    if has_no_controls(text):
        return []
    return [
        match[0]
        for match in _unsafe().finditer(text)
        if match[0] not in "\t\n\r" and not _joins(text, match.start())
    ]


def has_no_controls(text: str) -> bool:
    """Whether a text is ASCII without control characters, except tabs and line ends.

    Most text is, and needs no pattern, which takes longer to compile than a SKILL.md to search.
    """
    shown = text.replace("\t", " ").replace("\n", " ").replace("\r", " ")
    return shown.isascii() and shown.isprintable()


def _joins(text: str, at: int) -> bool:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    return text[at] in "\u200c\u200d" and not before.isascii() and not after.isascii()


@cache
def _unsafe() -> re.Pattern[str]:
    """Compile the pattern when it is first needed: most text is plain."""
    return re.compile(_UNSAFE)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_hidden(match: re.Match[str]) -> str:
    return match[0] if match[0] in "\t\n\r" else _escape(match)


def shorten(text: str, width: int) -> str:
    """Cut the text to `width` characters, at a word if one is near, with an ellipsis."""
    if len(text) <= width:
        return text
    if width < 1:
        return ""
    cut = text[: width - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > width // 2 else cut).rstrip() + "…"


def tokens(text: str) -> int:
    """Estimate how many tokens a model counts for the text."""
    return tokens_of_bytes(len(text.encode("utf-8", "surrogatepass")))


def tokens_of_bytes(size: int) -> int:
    """Estimate how many tokens a text of that many bytes has."""
    return -(-size // _BYTES_PER_TOKEN)


def bytes_of_tokens(count: int) -> int:
    """Return how many bytes a text of at most that many tokens may have."""
    return max(count, 0) * _BYTES_PER_TOKEN


def ago(then: float, now: float) -> str:
    """Return how long ago a time was, in words; the date if it is weeks ago or in the future."""
    minutes = int((now - then) // 60)
    if now < then or minutes >= _DAYS_AGO * 1_440:
        return local_time(then, "%Y-%m-%d")
    if minutes < 60:
        return f"{minutes} min ago" if minutes else "just now"
    if minutes < 1_440:
        return f"{minutes // 60} h ago"
    return "1 day ago" if minutes < 2_880 else f"{minutes // 1_440} days ago"


def local_time(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in this machine's time zone; the number itself if it is out of range."""
    try:
        return time.strftime(form, time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


def describe_seconds(seconds: float) -> str:
    """Return a time for a reader: 0.3 s, 12 s, 2 min 5 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def read_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document; ValueError if it is invalid, RecursionError if nested too deep."""
    import tomllib  # cost: 4 ms, and most projects and skills have no such file

    return tomllib.loads(text)
