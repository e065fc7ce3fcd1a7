"""Undo encodings of a known text, within bounds; None where that is not possible."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from math import log2
from typing import TYPE_CHECKING

from skillbelt.late import Late
from skillbelt.scan.markdown import number_lines
from skillbelt.text import Lazy

if TYPE_CHECKING:
    import base64
    import binascii
    import zlib
else:  # cost: 1 ms, only for what looks encoded
    base64, binascii, zlib = Late("base64"), Late("binascii"), Late("zlib")

MAX_DECODED = 256 * 2**10
_HEX_ESCAPE = Lazy(r"\\x([0-9a-fA-F]{2})|\\0?([0-7]{3})")
_DECODER = Lazy(
    r"b(?:ase)?64|b64decode|atob|fromhex|unhexlify|a85|b85|b32|decompress|inflate|Buffer\.from"
    r"|FromBase64String|openssl|xxd|charCodeAt|fromCharCode|codecs\.decode|pack\(|marshal"
)
_BLOB_CHARS = 200
_BLOB = Lazy(rf"[A-Za-z0-9+/_=-]{{{_BLOB_CHARS},}}")


def decode_text(form: str, text: str) -> str | None:
    """Return the text decoded: base64, base32, hex, rot13, gzip, utf16, escapes."""
    data = decode_bytes(form, text)
    if data is not None and data.startswith(_COMPRESSED):
        return data.decode("latin-1")  # as "gzip" takes it
    return None if data is None else data.decode("utf-8", "replace")


_COMPRESSED = (b"\x1f\x8b", b"x\x9c", b"x\xda", b"x\x01", b"x\x5e")


def decode_bytes(form: str, text: str | bytes) -> bytes | None:
    """Return the bytes that a text stands for."""
    plain = text if isinstance(text, str) else text.decode("latin-1")
    try:
        return _decode(form, plain[: MAX_DECODED * 2])
    except (ValueError, binascii.Error, zlib.error, EOFError, UnicodeError):
        return None


def _decode(form: str, text: str) -> bytes | None:
    squeezed = re.sub(r"\s+", "", text)
    if form == "base64":
        raw = squeezed.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(raw + "=" * (-len(raw) % 4))
    if form == "base32":
        return base64.b32decode(squeezed.upper() + "=" * (-len(squeezed) % 8))
    if form == "base85":
        return base64.b85decode(squeezed)
    if form == "ascii85":
        return base64.a85decode(squeezed)
    if form == "hex":
        return bytes.fromhex(squeezed.replace("\\x", "").replace("0x", ""))
    if form == "rot13":
        return codecs.encode(text, "rot13").encode()
    if form == "utf16":
        return base64.b64decode(squeezed).decode("utf-16-le", "replace").encode()
    if form == "gzip":
        return zlib.decompressobj(47).decompress(text.encode("latin-1"), MAX_DECODED)
    if form == "escapes":
        return _HEX_ESCAPE.sub(_escaped, text).encode("utf-8", "replace")
    return None


def _escaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16) if match[1] else int(match[2], 8))


def opaque_blob(text: str) -> re.Match[str] | None:
    """Return a long random literal, if the text has a decoder beside it."""
    if max(map(len, text.split("\n"))) < _BLOB_CHARS or not _DECODER.search(text):
        return None
    for match in _BLOB.finditer(text):
        if _measure_entropy(match[0][:2000]) > 4.3 and not re.fullmatch(r"[0-9a-f]+", match[0]):
            return match
    return None


def _measure_entropy(text: str) -> float:
    counts = Counter(text).values()
    return -sum(n / len(text) * log2(n / len(text)) for n in counts)


# Numbers that spell letters, each form with the base of its digits.
_SPELLED = (
    (Lazy(r"(?:%[0-9a-fA-F]{2}){16,4000}+"), "%", 16),
    (Lazy(r"(?:\\\\?x[0-9a-fA-F]{2}[ ,]?){16,4000}+"), "\\x", 16),
    (Lazy(r"(?:\\\\?u[0-9a-fA-F]{4}[ ,]?){12,4000}+"), "\\u", 16),
    (Lazy(r"(?<![0-9a-fA-F])(?:(?:0x)?[0-9a-fA-F]{2}[ ,:]{1,2}){16,4000}+"), "", 16),
    (Lazy(r"(?<![01])(?:[01]{8}[ ,]{1,2}){12,4000}+"), "", 2),
    (Lazy(r"(?<!\d)(?:\d{2,3}[ ,]{1,2}){16,4000}+"), "", 10),
)
_DIGITS = {
    16: Lazy(r"[0-9a-fA-F]{2,4}"),
    10: Lazy(r"\d{2,3}"),
    2: Lazy(r"[01]{8}"),
}
# A cheap test first: every text that spells something in numbers matches it.
_NUMBERS = Lazy(r"(?:\b(?:0x)?[0-9a-fA-F]{2,8}[ ,:]{1,2}){12}")
# A cheaper test: twelve such numbers have at least so many of these characters, without the last.
_IN_NUMBERS = bytes(
    1 if code in b" ,:" else 2 if code in b"0123456789abcdefABCDEFx" else 0 for code in range(256)
)
_RUN_OF_NUMBERS = b"\2" * 35
# Lines of base64 below each other.
_WRAPPED = Lazy(r"(?m)(?:^[ \t>]*[A-Za-z0-9+/]{16,200}={0,2}[ \t]*(?:\n|\Z)){2,400}+")
# The second such line; a search for its first character is fast.
_SECOND_LINE = Lazy(r"\n[ \t>]*+[A-Za-z0-9+/]{16,200}={0,2}[ \t]*(?:\n|\Z)")


def find_spelled(text: str) -> Iterator[tuple[str, int]]:
    """Yield sentences that are written as numbers or as lines of base64, with their lines."""
    has_numbers = _has_numbers(text)
    for form, sign, base in _SPELLED:
        found = form.finditer(text) if (sign in text if sign else has_numbers) else iter(())
        for match, line in number_lines(found, text):
            digits = _DIGITS[base].findall(match[0].replace("0x", "").replace("\\x", " "))
            codes = [int(one, base) for one in digits]
            plain = "".join(map(chr, codes)) if max(codes, default=0) < 0x3000 else ""
            if is_sentence(plain):
                yield plain, line
    wrapped = _WRAPPED.finditer(text) if _SECOND_LINE.search(text) else iter(())
    for match, line in number_lines(wrapped, text):
        plain = decode_text("base64", re.sub(r"[\s>]", "", match[0])) or ""
        if is_sentence(plain):
            yield plain, line


def _has_numbers(text: str) -> bool:
    data = text.encode("utf-8", "surrogatepass").translate(_IN_NUMBERS)
    if _RUN_OF_NUMBERS not in data.replace(b"\1", b"\2"):
        return False
    # Between numbers stand no more than two signs; long blanks are usual.
    parts = data.replace(b"\1\1\1", b"\0").replace(b"\1", b"\2")
    return _RUN_OF_NUMBERS in parts and _NUMBERS.search(text) is not None


def has_run(text: str, table: bytes, run: bytes) -> bool:
    """Whether a text has a run of bytes, after a table changed each into its kind.

    To look for such a run takes a tenth of the time of a pattern.
    """
    return run in text.encode("utf-8", "surrogatepass").translate(table)


def is_sentence(text: str) -> bool:
    """Whether decoded data is text of some words; line ends count as blanks."""
    words = text.split()
    return len(words) > 3 and "".join(words).isprintable()
