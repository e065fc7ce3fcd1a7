"""Undo encodings of a known text, within bounds; None where that is not possible."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import zlib
from collections import Counter
from math import log2

MAX_DECODED = 256 * 2**10
_HEX_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\0?([0-7]{3})")
_DECODER = re.compile(
    r"b(?:ase)?64|b64decode|atob|fromhex|unhexlify|a85|b85|b32|decompress|inflate|Buffer\.from"
    r"|FromBase64String|openssl|xxd|charCodeAt|fromCharCode|codecs\.decode|pack\(|marshal"
)
_BLOB_CHARS = 200
_BLOB = re.compile(rf"[A-Za-z0-9+/_=-]{{{_BLOB_CHARS},}}")


def decode_text(form: str, text: str) -> str | None:
    """Return the text decoded: base64, base32, hex, rot13, gzip, utf16, escapes."""
    data = decode_bytes(form, text)
    return None if data is None else data.decode("utf-8", "replace")


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
        if _entropy(match[0][:2000]) > 4.3 and not re.fullmatch(r"[0-9a-f]+", match[0]):
            return match
    return None


def _entropy(text: str) -> float:
    counts = Counter(text).values()
    return -sum(n / len(text) * log2(n / len(text)) for n in counts)
