"""Find the text of PDF and office documents: a model that is given one reads all of it.

Nothing is run or drawn. What is decompressed has a bound, and each text is read once.
"""

from __future__ import annotations

import base64
import html
import re
import zlib
from collections.abc import Iterator
from typing import Literal

from skillbelt.records import NamedTuple
from skillbelt.text import Lazy

MAX_PDF_BYTES = 8 * 2**20
# Of one stream, and of all streams of a document.
MAX_STREAM = 512 * 2**10
MAX_TEXT = 2 * 2**20
_MAX_STREAMS = 2_000

_STREAM = Lazy(rb"stream\r?\n")
_MAX_HEAD = 1_000
# A part of a page's text: what is shown, where the next line begins, size and color.
_OPERATOR = Lazy(
    # One that is not closed is passed over as well, so that no part is searched twice.
    rb"\((?:[^()\\]|\\[\s\S]|\([^()]{0,200}\)){0,4000}+\)?|<[0-9A-Fa-f\s]{2,8000}+>?"
    rb"|\bT\*|\b(?:Td|TD|Tm|ET|BT|Tf|Tr|rg|g|k)\b|-?\d{0,9}\.?\d{1,9}|['\"]"
)
_ESCAPE = Lazy(rb"\\(?:([0-7]{1,3})|(\r?\n)|(.))", re.DOTALL)
_NAMED = {b"n": b"\n", b"r": b"\n", b"t": b" ", b"b": b"", b"f": b""}
_LINE_ENDS = frozenset((b"Td", b"TD", b"T*", b"Tm", b"ET", b"'", b'"'))
_SMALL = 2.5
_LETTERS = Lazy(r"[A-Za-z]{3}|[^\x00-\x7f]{3}")

Shown = Literal["shown", "hidden"]


class DocumentText(NamedTuple):
    """A text of a document, and whether a reader of it sees it."""

    text: str
    how: Shown


def read_pdf(data: bytes) -> Iterator[DocumentText]:
    """Yield the texts of a PDF document, those that no reader sees apart from the others."""
    data = data[:MAX_PDF_BYTES]
    left = MAX_TEXT
    for number, match in enumerate(_STREAM.finditer(data)):
        if number >= _MAX_STREAMS or left <= 0:
            return
        head = data[max(match.start() - _MAX_HEAD, 0) : match.start()].rpartition(b"obj")[2]
        if b"/Image" in head or b"/FontFile" in head or b"/Length1" in head:
            continue
        content = _inflate(data, match.end(), head, min(left, MAX_STREAM))
        left -= max(len(content), 100)
        if b"BT" in content and b"T" in content:
            yield from _read_page(content)
        elif b"/Contents" in content or b"/V(" in content or b"/V (" in content:
            yield from _read_strings(content)
    yield from _read_strings(data)


def _inflate(data: bytes, start: int, head: bytes, most: int) -> bytes:
    raw = data[start : start + most * 2]
    if b"ASCIIHex" in head or b"/AHx" in head:
        digits = re.sub(rb"[^0-9A-Fa-f]", b"", raw.partition(b">")[0])
        raw = bytes.fromhex(digits[: len(digits) & ~1].decode("ascii"))
    elif b"ASCII85" in head or b"/A85" in head:
        raw = _read_ascii85(raw.partition(b"~>")[0])
    if b"Flate" not in head and b"/Fl" not in head:
        return raw.partition(b"endstream")[0][:most]
    try:
        return zlib.decompressobj().decompress(raw, most)
    except zlib.error:
        return b""


def _read_ascii85(raw: bytes) -> bytes:
    try:
        return base64.a85decode(raw.strip().removeprefix(b"<~"))
    except ValueError:
        return b""


def _read_page(content: bytes) -> Iterator[DocumentText]:
    """Yield the shown and the hidden text of one page, from the operators that show it."""
    page = _Page()
    for match in _OPERATOR.finditer(content):
        page.take(match[0])
    for key, parts in page.texts.items():
        text = _join_lines("".join(parts))
        if _LETTERS.search(text):
            yield DocumentText(text, key)


class _Page:
    """State of a page: what its operators set so far, and the texts that they showed."""

    def __init__(self) -> None:
        self.texts: dict[Shown, list[str]] = {"shown": [], "hidden": []}
        self._numbers: list[float] = []
        self._size, self._scale = 12.0, 1.0
        self._white = self._undrawn = False

    @property
    def _how(self) -> Shown:
        small = self._size * self._scale < _SMALL
        return "hidden" if self._white or self._undrawn or small else "shown"

    def take(self, one: bytes) -> None:
        """Follow one operator, or keep its number or its text."""
        if one[:1] in b"(<":
            self.texts[self._how].append(_read_string(one))
        elif one[-1:].isdigit():
            self._numbers = [*self._numbers[-5:], float(one)]
            # In a list of parts, a long step back stands for a blank.
            if self._numbers[-1] < _BLANK:
                self.texts[self._how].append(" ")
            return
        elif one in _LINE_ENDS:
            self.texts[self._how].append("\n")
        self._set(one, self._numbers)
        self._numbers = []

    def _set(self, operator: bytes, numbers: list[float]) -> None:
        if operator == b"BT":
            self._scale = 1.0
        elif operator == b"Tm" and len(numbers) > 5:
            self._scale = max(abs(numbers[-6]), abs(numbers[-5]), abs(numbers[-3]))
        elif operator == b"Tf" and numbers:
            self._size = abs(numbers[-1])
        elif operator == b"Tr" and numbers:
            self._undrawn = numbers[-1] == _NOT_DRAWN
        elif operator in (b"rg", b"g") and len(numbers) >= (3 if operator == b"rg" else 1):
            self._white = min(numbers[-3:]) > _WHITE
        elif operator == b"k" and len(numbers) > 3:
            self._white = max(numbers[-4:]) < 1 - _WHITE


_BLANK, _NOT_DRAWN, _WHITE = -180, 3, 0.95


# A line of a page goes on in the next one, unless something begins there.
_LINES = Lazy(r"(?<![ \t])[ \t]*+\n\s*+")
_GOES_ON = Lazy(r"(?<=[^\n])\n(?=[a-z(])")


def _join_lines(text: str) -> str:
    return _GOES_ON.sub(" ", _LINES.sub("\n", text))


def _read_string(one: bytes) -> str:
    if one[:1] == b"<":
        digits = re.sub(rb"[\s<>]", b"", one)
        raw = bytes.fromhex((digits + b"0" * (len(digits) % 2)).decode("ascii"))
    else:
        raw = _ESCAPE.sub(_unescape, one[1:].removesuffix(b")"))
    if raw.startswith(b"\xfe\xff") or (len(raw) > 3 and raw[::2].count(0) * 4 > len(raw)):
        return raw.removeprefix(b"\xfe\xff").decode("utf-16-be", "replace")
    return raw.decode("cp1252", "replace")


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes((int(match[1], 8) & 255,))
    return b"" if match[2] else _NAMED.get(match[3], match[3])


# Comments, values of fields and names of a document that stand outside of its pages.
_FIELD = Lazy(
    rb"/(?:Contents|V|DV|TU|T|Alt|ActualText|RC|Subj|Title|Subject|Keywords|JS)\s{0,9}"
    rb"(\((?:[^()\\]|\\[\s\S]|\([^()]{0,200}\)){20,4000}+\)|<[0-9A-Fa-f\s]{40,8000}+>)"
)


def _read_strings(data: bytes) -> Iterator[DocumentText]:
    for number, match in enumerate(_FIELD.finditer(data)):
        if number >= _MAX_STREAMS:
            return
        yield DocumentText(_read_string(match[1]), "hidden")


# --- office documents ----------------------------------------------------------------------------

# Members that hold what a document says.
_SAYS = Lazy(
    r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|glossary/document)\.xml\Z"
    r"|ppt/(?:slides|notesSlides|slideMasters)/[^/]{1,60}\.xml\Z"
    r"|xl/(?:sharedStrings|worksheets/[^/]{1,60})\.xml\Z|content\.xml\Z|styles\.xml\Z"
    r"|[^\n]{1,200}\.x?html?\Z"
)
_PARAGRAPH = Lazy(
    r"</(?:w:p|a:p|text:p|text:h|si|is|p|div|li|td|h\d)>|<(?:w:br|a:br|br)\b[^<>]{0,99}>"
)
_TAG = Lazy(r"<[^<>]{0,4000}>")
_RUN = Lazy(r"<(?:w|a):r[ >]")
_HIDES = Lazy(
    r"<w:(?:vanish|webHidden)(?:/|\s{1,9}w:val=\"(?:1|true|on)\"\s{0,9}/)>"
    r"|<w:color [^<>]{0,99}w:val=\"(?i:f[0-9a-f]f[0-9a-f]f[0-9a-f])\""
    r"|<w:sz [^<>]{0,99}w:val=\"[1-5]\""
    r"|<a:rPr\b[^<>]{0,300}\bsz=\"[1-4]?\d{1,2}\""
    r"|<a:rPr\b[^<>]{0,300}>\s{0,9}(?:<a:ln\b[^<>]{0,99}/>\s{0,9})?<a:solidFill>\s{0,9}"
    r"(?:<a:srgbClr val=\"(?i:f[0-9a-f]f[0-9a-f]f[0-9a-f])\"|<a:schemeClr val=\"bg1\")"
)


def says(name: str) -> bool:
    """Whether a member of an office document holds what it says."""
    return _SAYS.match(name) is not None


def read_office(data: bytes) -> Iterator[DocumentText]:
    """Yield what a member of an office document says, and what of it no reader sees."""
    text = data.decode("utf-8", "replace")
    yield DocumentText(_strip(text), "shown")
    hidden = [_strip(run) for run in _RUN.split(text)[1:] if _HIDES.search(run.partition("</")[0])]
    if hidden:
        yield DocumentText(_join_lines("".join(hidden)), "hidden")


def _strip(text: str) -> str:
    return html.unescape(_TAG.sub("", _PARAGRAPH.sub("\n", text)))
