"""Redact the secrets of a run in its output: results, shown files, the log."""

from __future__ import annotations

import base64
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from skillbelt.errors import log_warning
from skillbelt.sandbox.protocol import Listener, Stream
from skillbelt.text import Lazy

# Shorter values occur in too many texts.
LEAST_CHARS = 6
# From this length on, a single line of a longer secret, such as a key, is redacted by itself.
_LEAST_LINE_CHARS = 16
# Programs break base64 after this many characters.
_BASE64_WIDTHS = (64, 76)
# A prefix of this length is searched as a whole: hostile output may be made to slow that down.
_HEAD = 8
_SECRET = Lazy(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH)"
    r"(?:_|$)",
    re.IGNORECASE,
)


def secrets_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names mark their values as secret."""
    return {
        name: value for name, value in env.items() if len(value) >= LEAST_CHARS and is_secret(name)
    }


def is_secret(name: str) -> bool:
    """Whether the name of a variable marks its value as secret."""
    return _SECRET.search(name) is not None


def redacted(text: str, secrets: Mapping[str, str], *, cut: bool = False) -> str:
    """Replace the value of each secret by its name.

    In a `cut` text, an end that may begin a secret is dropped too.
    """
    if not secrets or not text:
        return text
    stream = Redactor(secrets)
    shown = stream.more(_bytes(text))
    return (shown if cut else shown + stream.end()).decode("utf-8", "surrogatepass")


def redacted_chunks(chunks: Iterable[str], secrets: Mapping[str, str]) -> Iterator[str]:
    """Yield a text that arrives in chunks, with the value of each secret replaced by its name."""
    if not secrets:
        yield from chunks
        return
    # The bytes held back may end within a character.
    stream, decoder = Redactor(secrets), getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        yield decoder.decode(stream.more(_bytes(chunk)))
    yield decoder.decode(stream.end(), True)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def spellings(value: str) -> Iterator[bytes]:
    """Yield the value and the forms in which programs usually print it: escaped and encoded.

    Each line of a text with several lines is a form too, since programs print something before each
    line.
    """
    for text in (value, *_long_lines(value)):
        data = _bytes(text)
        yield data
        yield from map(_bytes, _escape(text, data))
        yield from _base64(data)
        yield data.hex().encode()
        yield data.hex().upper().encode()


# As `html.escape` writes them; its module reads a table of 2,000 names.
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def _long_lines(value: str) -> Iterator[str]:
    lines = value.splitlines()
    if len(lines) > 1:
        yield "\r\n".join(lines)  # as a terminal shows it
        for line in map(str.strip, lines):
            if len(line) >= _LEAST_LINE_CHARS and not line.startswith("-----"):
                yield line


def _escape(text: str, data: bytes) -> Iterator[str]:
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield text.translate(_HTML)
    for quoted in (quote(data), quote(data, safe=""), quote_plus(data)):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)


def _base64(data: bytes) -> Iterator[bytes]:
    """Yield the part that certainly appears in base64 of any text with the data.

    The characters at both ends depend on the text before and after it, and on its length.
    """
    for before in range(3):
        start = -(-before * 8 // 6)
        end = (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield (text := encode(bytes(before) + data)[start:end])
        if not before:
            for width in _BASE64_WIDTHS:
                yield b"\n".join(text[at : at + width] for at in range(0, len(text), width))


class Redactor:
    """Redacts a stream that arrives in pieces: the possible beginning of a secret is held back."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """Take the values by name; a prefix before a `/` distinguishes two of one name."""
        named = {
            form: _bytes(f"[{name.rpartition('/')[2]}]")
            for name, value in secrets.items()
            for form in spellings(value)
        }
        # Where several secrets begin at the same place, the longest wins.
        self._names = dict(sorted(named.items(), key=lambda item: -len(item[0])))
        self._pattern = re.compile(b"|".join(map(re.escape, self._names)))
        self._held = b""

    def more(self, data: bytes) -> bytes:
        """Add a piece; return the bytes that can be shown."""
        data, at = self._held + data, 0
        end = self._open_end(data, 0)
        shown: list[bytes] = []
        for found in self._find(data):
            if found.start() >= end:
                break
            shown += (data[at : found.start()], self._names[found[0]])
            at = found.end()
            end = end if at <= end else self._open_end(data, at)
        self._held = data[end:]
        return b"".join((*shown, data[at:end]))

    def end(self) -> bytes:
        """Return the bytes held back, at the end of the stream."""
        data, self._held = self._held, b""
        return self._pattern.sub(lambda found: self._names[found[0]], data)

    def _find(self, data: bytes) -> Iterator[re.Match[bytes]]:
        # Substring search is much faster than the pattern, and secrets are rare.
        there = any(secret in data for secret in self._names)
        return self._pattern.finditer(data) if there else iter(())

    def _open_end(self, data: bytes, at: int) -> int:
        """Return the offset from which the data may begin a secret."""
        return min(_open_end(data, at, secret) for secret in self._names)


def _open_end(data: bytes, at: int, secret: bytes) -> int:
    start, head = max(at, len(data) - len(secret) + 1), secret[:_HEAD]
    while (found := data.find(head, start)) >= 0:
        if secret.startswith(data[found:]):
            return found
        start = found + 1
    for short in range(max(start, len(data) - _HEAD + 1), len(data)):
        if secret.startswith(data[short:]):
            return short
    return len(data)


class RedactingListener:
    """Passes the output of a run to a listener, with its secrets redacted."""

    def __init__(self, listener: Listener, secrets: Mapping[str, str]) -> None:
        self._listener = listener
        self._streams: dict[Stream, Redactor] = {
            "stdout": Redactor(secrets),
            "stderr": Redactor(secrets),
        }

    def __call__(self, stream: Stream, data: bytes) -> None:
        """Redact more of a stream and pass it on."""
        self._pass_on(stream, self._streams[stream].more(data))

    def end(self) -> None:
        """Pass on the bytes held back, at the end of the run."""
        for stream, redactor in self._streams.items():
            try:
                self._pass_on(stream, redactor.end())
            except Exception:  # like errors of a listener in a sandbox
                log_warning(f"the listener for {stream} of a run failed", trace=True)

    def _pass_on(self, stream: Stream, data: bytes) -> None:
        if data:
            self._listener(stream, data)
