"""Parse a skill's Python code, without running any of it."""

from __future__ import annotations

import ast
import re
import threading
import warnings

# Larger files are not a skill's scripts; the rest is not read.
MAX_SOURCE_BYTES = 512 * 2**10
# The parser needs quadratic time for a name with many dots.
_MAX_DOTTED = 2_000
_DOTTED = re.compile(rf"[\w.\s\\]{{{_MAX_DOTTED + 1},}}+")
# Turns every character that cannot be in a dotted name into one that splits a text, and all others
# into one.
_OUTSIDE = bytes(
    code if code > 127 or chr(code).isalnum() or chr(code).isspace() or chr(code) in "._\\" else 0
    for code in range(256)
)
# The parser warns of odd escapes in a script, which the user who runs it did not write.
_INSIDE = bytes(int(code > 0) for code in _OUTSIDE)
_LONG = b"\1" * (_MAX_DOTTED + 1)
_FILE = "skillbelt-imports"
_PARSING = threading.Lock()
warnings.filterwarnings("ignore", module=re.escape(_FILE))


def _has_long_name(text: str) -> bool:
    """Whether a name has more dots than the parser should be given; most texts need no pattern."""
    data = text.encode("utf-8", "surrogatepass")
    if _LONG not in data.translate(_INSIDE):
        return False
    data = data.translate(_OUTSIDE)
    long = [one for one in data.split(b"\0") if len(one) > _MAX_DOTTED and b"." in one]
    return any(map(_is_dotted, long))


def _is_dotted(part: bytes) -> bool:
    """Whether a long part is one name; other alphabets have signs that end one, too."""
    if part.isascii():
        return True
    found = _DOTTED.finditer(part.decode("utf-8", "surrogatepass"))
    return any("." in one[0] for one in found)


def parse_python(text: str) -> ast.Module:
    """Return the syntax tree; SyntaxError, ValueError, RecursionError or MemoryError if it fails.

    Python 3.11 counts the depth of all threads together, and fails when two parse at once.
    """
    if _has_long_name(text):
        raise ValueError("a name that is too long to parse")
    with _PARSING:
        try:
            return ast.parse(text, _FILE)
        except SystemError as error:  # another thread of the process is parsing
            raise ValueError("the source cannot be parsed now") from error
