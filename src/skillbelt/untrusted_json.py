"""The one parser for untrusted JSON: from a skill, a file, a server, a model, a process.

A document is UTF-8 (a byte order mark is skipped), bounded in size, and holds no NaN or Infinity,
which are not JSON and compare unequal to themselves. Of equal keys the last one wins, as in the
parsers of other languages: refusing them would reject files that every client reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from json import JSONDecoder
from typing import Any, NoReturn

# More than any document we read; callers with a tighter bound pass their own.
MAX_JSON_BYTES = 256 * 2**20
_MAX_STARTS = 200  # places where JSON is looked for in a text
# Matches strings too, so that nothing inside one is taken for a comment or a comma.
_STRING = r'"(?:[^"\\\n]|\\.)*+"'
# Compiled on first use: most processes read no such document.
_COMMENT = _STRING + r"|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"
_COMMA = _STRING + r"|,(?=\s*[\]}])"


class BadJson(ValueError):
    """The text is not a JSON document we accept.

    `deep`: it is nested too deeply to be read. `key`: a key that an object has twice.
    """

    def __init__(self, reason: str, *, deep: bool = False, key: str = "") -> None:
        super().__init__(reason)
        self.deep, self.key = deep, key


def read_json(
    data: str | bytes | bytearray,
    *,
    most: int = MAX_JSON_BYTES,
    constants: bool = False,
    unique: bool = False,
) -> Any:
    """Return the value of a JSON document; BadJson, a ValueError, with the reason otherwise.

    `constants` accepts NaN and Infinity, for text that `json.dumps` wrote in this process.
    `unique` refuses equal keys in one object, for a file that is written back whole.
    """
    if len(data) > most:
        raise BadJson(f"is longer than {most} bytes")
    try:
        # Not "utf-8-sig": Python loads that codec from a file, which a process that has given up
        # its rights may be unable to read.
        text = data if isinstance(data, str) else data.decode("utf-8").removeprefix("\ufeff")
        return _decoder(constants, unique).decode(text)
    except RecursionError:
        raise BadJson("is nested too deeply", deep=True) from None
    except UnicodeDecodeError as error:
        raise BadJson(f"is not UTF-8: byte {error.start}") from error
    except BadJson:
        raise
    except ValueError as error:
        raise BadJson(str(error)) from error


def read_list(answer: str, *, most: int = 2**20) -> list[Any] | None:
    """Return the JSON list in the answer of a model; None if there is none."""
    start, end = answer.find("["), answer.rfind("]") + 1
    try:
        found = read_json(answer[start:end], most=most) if 0 <= start < end else None
    except BadJson:
        return None
    return found if isinstance(found, list) else None


def find_json(text: str) -> Iterator[Any]:
    """Yield the objects and lists in a text, without those in one another.

    BadJson if they may begin in more places than are tried, or are nested too deeply.
    """
    reader, place = _decoder(False, False), 0
    for _ in range(_MAX_STARTS):
        start = re.compile(r"[\[{]").search(text, place)
        if start is None:
            return
        place = start.end()
        try:
            found, place = reader.raw_decode(text, start.start())
        except RecursionError:
            raise BadJson("is nested too deeply", deep=True) from None
        except ValueError:
            continue
        yield found
    raise BadJson("JSON may begin in too many places of the text")


def read_jsonc(data: bytes, *, most: int = MAX_JSON_BYTES) -> Any:
    """Return the value of a JSON document with comments and trailing commas; BadJson otherwise.

    Comments become blanks, so that a position in the reason is that in the text.
    """
    if len(data) > most:
        raise BadJson(f"is longer than {most} bytes")
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BadJson(f"is not UTF-8: byte {error.start}") from error
    return read_json(re.sub(_COMMA, _blank, re.sub(_COMMENT, _blank, text)), most=most)


def _blank(match: re.Match[str]) -> str:
    """Return a string as it is, and blanks for anything else."""
    found = match[0]
    return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)


@cache
def _decoder(constants: bool, unique: bool) -> JSONDecoder:
    pairs = _without_equal_keys if unique else None
    return JSONDecoder(parse_constant=None if constants else _refuse, object_pairs_hook=pairs)


def _without_equal_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadJson(f"has the key {key[:80]!r} twice in one object", key=key)
            seen.add(key)
    return made


def _refuse(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON")
