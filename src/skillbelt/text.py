"""Text that leaves the product: escaped for where it goes, cut where it may be cut.

Everything a skill says is hostile until it went through here.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

# C0 and C1 controls, bidirectional overrides, zero-width and tag characters, the variation
# selectors no script needs, surrogates: on a terminal they move the cursor or hide text, in a
# prompt they smuggle it.
_UNSAFE = (
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
_BYTES_PER_TOKEN = 4  # median error 5 % on real skills, no vocabulary to carry
# Line ends and tabs are references, so that no text opens a line and a parser gives them back; the
# last two are characters that XML has no way to write.
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


def one_line(text: str) -> str:
    """The text on one line, with white space folded and unsafe characters shown as escapes."""
    folded = " ".join(text.split())
    if folded.isascii() and folded.isprintable():
        return folded
    return _unsafe().sub(_escape, folded)


def exact(text: str) -> str:
    """The text on one line with nothing left out: line ends and all that is unsafe as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _unsafe().sub(_escape, text.replace("\n", "\\n").replace("\t", "\\t"))


def xml(text: str) -> str:
    """The text on one line for an element or an attribute of XML; a parser gives it back.

    Only what XML can not hold, and what nobody would see, comes back as the escapes of `one_line`.
    """
    if not (text.isascii() and text.isprintable()):
        text = _unsafe().sub(_escape_hidden, text)
    return text.translate(_XML)


def json_string(text: str) -> str:
    """The text as a JSON string that shows what is hidden and holds no `<`; nothing is lost."""
    import json

    dumped = json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")
    if dumped.isascii() and dumped.isprintable():
        return dumped
    return _unsafe().sub(lambda match: json.dumps(match[0])[1:-1], dumped)


def hidden(text: str) -> list[str]:
    """The characters in the text that a person can not see, white space left out.

    Joiners between letters of other scripts and inside emoji are ordinary writing; they count only
    next to ASCII.
    """
    return [
        match[0]
        for match in _unsafe().finditer(text)
        if match[0] not in "\t\n\r" and not _joins(text, match.start())
    ]


def _joins(text: str, at: int) -> bool:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    return text[at] in "\u200c\u200d" and not before.isascii() and not after.isascii()


@cache
def _unsafe() -> "re.Pattern[str]":
    """Compiled when first needed: most text is plain, and starting up must be quick."""
    import re

    return re.compile(_UNSAFE)


def _escape(match: "re.Match[str]") -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_hidden(match: "re.Match[str]") -> str:
    return match[0] if match[0] in "\t\n\r" else _escape(match)


def shorten(text: str, width: int) -> str:
    """At most `width` characters, cut at a word where one is near, with an ellipsis."""
    if len(text) <= width:
        return text
    if width < 1:
        return ""
    cut = text[: width - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > width // 2 else cut).rstrip() + "…"


def tokens(text: str) -> int:
    """About how many tokens a model counts for the text."""
    return tokens_of_bytes(len(text.encode("utf-8", "surrogatepass")))


def tokens_of_bytes(size: int) -> int:
    """About how many tokens a text of that many bytes has."""
    return -(-size // _BYTES_PER_TOKEN)


def bytes_of_tokens(count: int) -> int:
    """The most bytes a text may have to count as no more than that many tokens."""
    return max(count, 0) * _BYTES_PER_TOKEN
