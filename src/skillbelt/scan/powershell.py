"""Work out texts that PowerShell puts together, by rewriting its constant expressions.

There is no parser for it: each step turns an expression of constants into one constant, until
nothing changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from skillbelt.scan.decoding import decode_bytes
from skillbelt.scan.ledger import Ledger, Traced
from skillbelt.scan.made_texts import judge_made_text
from skillbelt.text import Lazy

_MAX_TEXT = 64 * 2**10
_MAX_STEPS = 12
_MAX_NAMES = 100
# A cheap test first: each expression has one of these.
_SIGNS = ("[char", "-join", "-f", "frombase64string", "-replace", ".replace(", "'+", '"+', "' +",
          '" +', "..", "tochararray", "reverse(", ".substring(", "getstring(")  # fmt: skip
_S = r"(?:'([^'\n]{0,4000})'|\"([^\"\n$`]{0,4000})\")"
_CHAR = Lazy(
    r"(?i)(?:\[char\]\s{0,9}|\[convert\]::tochar)(?:\(\s{0,9}(0x[0-9a-f]{1,4}|\d{1,5})\s{0,9}\)"
    r"|(0x[0-9a-f]{1,4}|\d{1,5}))"
)
_ADDED = Lazy(rf"{_S}\s{{0,9}}\+\s{{0,9}}{_S}")
_JOINED = Lazy(
    r"(?i)-join\s{0,9}\(((?:\s{0,9}'[^'\n]{0,400}'\s{0,9},){1,800}\s{0,9}'[^'\n]{0,400}'\s{0,9})\)"
    r"|(?:\(|@\()((?:\s{0,9}'[^'\n]{0,400}'\s{0,9},){1,800}\s{0,9}'[^'\n]{0,400}'\s{0,9})\)"
    r"\s{0,9}-join\s{0,9}'([^'\n]{0,9})'"
)
_CODES = Lazy(
    r"(?i)(?:-join\s{0,9}\(?\s{0,9})?\[char\[\]\]\s{0,9}@?\(((?:\s{0,9}(?:0x[0-9a-f]{1,4}|\d{1,5})"
    r"\s{0,9},){2,2000}\s{0,9}(?:0x[0-9a-f]{1,4}|\d{1,5})\s{0,9})\)(?:\s{0,9}-join\s{0,9}'')?\)?"
)
_FORMATTED = Lazy(
    rf"(?i){_S}\s{{0,9}}-f\s{{0,9}}((?:'[^'\n]{{0,400}}'\s{{0,9}},\s{{0,9}}){{0,40}}'[^'\n]{{0,400}}')"
)
_REPLACED = Lazy(
    rf"(?i){_S}\s{{0,9}}(?:-c?replace\s{{0,9}}|\.replace\(\s{{0,9}}){_S}(?:\s{{0,9}},\s{{0,9}}{_S})?\)?"
)
_CUT = Lazy(
    rf"(?i){_S}\.substring\(\s{{0,9}}(\d{{1,5}})\s{{0,9}}(?:,\s{{0,9}}(\d{{1,5}})\s{{0,9}})?\)"
)
_TURNED = Lazy(
    rf"(?i){_S}\[\s{{0,9}}-1\s{{0,9}}\.\.\s{{0,9}}-\s{{0,9}}[^\]\n]{{1,80}}\]\s{{0,9}}-join\s{{0,9}}(?:''|\"\")"
    rf"|-join\s{{0,9}}\(?\s{{0,9}}{_S}\[\s{{0,9}}-1\s{{0,9}}\.\.\s{{0,9}}-\s{{0,9}}[^\]\n]{{1,80}}\]"
)
_DECODED = Lazy(
    r"(?i)\[(?:system\.)?text\.encoding\]::(utf8|ascii|unicode|default)\.getstring\(\s{0,9}"
    rf"\[(?:system\.)?convert\]::frombase64string\(\s{{0,9}}{_S}\s{{0,9}}\)\s{{0,9}}\)"
)
_IN_BRACKETS = Lazy(r"\(\s{0,9}('[^'\n]{0,4000}')\s{0,9}\)")
_SET = Lazy(
    r"(?m)^[ \t]{0,99}\$(\w{1,60})[ \t]{0,9}=[ \t]{0,9}'([^'\n]{0,4000})'[ \t]{0,9};?[ \t]{0,9}$"
)
_USED = Lazy(r"\$(\w{1,60})\b(?![ \t]{0,9}[-+]?=)")
_RUN = Lazy(
    r"(?i)(?:\b(?:iex|invoke-expression)\b|&)\s{0,9}\(?\s{0,9}'([^'\n]{3,4000})'"
    r"|'([^'\n]{3,4000})'\s{0,9}\|\s{0,9}(?:&\s{0,9})?'?(?:iex|invoke-expression)\b"
)
_QUOTED_NAME = Lazy(r"&\s{0,9}\(?\s{0,9}'([\w-]{2,40})'\)?")


def read_powershell(text: str, line: int, ledger: Ledger) -> str:
    """Note what a script puts together and runs; return it with constants for expressions.

    A long script is read in pieces.
    """
    made: list[str] = []
    for at in range(0, len(text), _MAX_TEXT):
        made.append(_read_piece(text[at : at + _MAX_TEXT], line, ledger))
        line += text.count("\n", at, at + _MAX_TEXT)
    return "".join(made)


def _read_piece(text: str, line: int, ledger: Ledger) -> str:
    folded = text.lower()
    if not any(sign in folded for sign in _SIGNS):
        return text
    ledger.spend(1 + len(text) // 100)
    made = _rewrite(text)
    if made == text:
        return text
    for match in _RUN.finditer(made):
        command = match[1] or match[2]
        if command not in text:
            at = line + made.count("\n", 0, match.start())
            ledger.runs_code(Traced(text=command), at, "Invoke-Expression", "powershell")
            ledger.runs_shell(Traced(text=command), at, "Invoke-Expression")
    known: set[str] = set()
    for number, one in enumerate(made.split("\n")):
        for quoted in re.findall(r"'([^'\n]{12,4000})'", one):
            if quoted not in text and quoted not in known:
                known.add(quoted)
                judge_made_text(quoted, text, line + number, ledger)
    return _QUOTED_NAME.sub(r"\1", made)


def _rewrite(text: str) -> str:
    for _ in range(_MAX_STEPS):
        made = text
        for form, turn in _TURNS:
            made = form.sub(turn, made)
        made = _fill_names(made)
        if made == text or len(made) > 2 * _MAX_TEXT:
            return made[: 2 * _MAX_TEXT]
        text = made
    return text


def _fill_names(text: str) -> str:
    """Return a text with the values of variables that are set once, to a constant."""
    values: dict[str, str] = {}
    for match in _SET.finditer(text):
        values[match[1].lower()] = match[2] if len(values) < _MAX_NAMES else ""
    if not values:
        return text
    room = [_MAX_TEXT]

    def fill(match: re.Match[str]) -> str:
        value = values.get(match[1].lower())
        if not value or len(value) > room[0]:
            return match[0]
        room[0] -= len(value)
        return f"'{value}'"

    return _USED.sub(fill, text)


def _quote(text: str) -> str:
    return "'" + text.replace("'", " ").replace("\n", " ") + "'"


def _first(match: re.Match[str], at: int = 1) -> str:
    return match[at] if match[at] is not None else match[at + 1] or ""


def _turn_char(match: re.Match[str]) -> str:
    digits = match[1] or match[2]
    code = int(digits, 16) if digits[:2].lower() == "0x" else int(digits)
    return _quote(chr(code)) if code < 0x3000 else match[0]


def _turn_codes(match: re.Match[str]) -> str:
    codes = [
        int(one, 0) if one[:2].lower() == "0x" else int(one)
        for one in re.findall(r"0x[0-9a-fA-F]+|\d+", match[1])
    ]
    return _quote("".join(map(chr, codes))) if max(codes) < 0x3000 else match[0]


def _turn_joined(match: re.Match[str]) -> str:
    parts = re.findall(r"'([^'\n]*)'", match[1] or match[2])
    return _quote((match[3] or "").join(parts))


def _turn_formatted(match: re.Match[str]) -> str:
    values = re.findall(r"'([^'\n]*)'", match[3])
    form = _first(match)
    made = re.sub(
        r"\{(\d{1,2})\}", lambda one: values[int(one[1])] if int(one[1]) < len(values) else "", form
    )
    return _quote(made) if "{0}" in form or "{1}" in form else match[0]


def _turn_replaced(match: re.Match[str]) -> str:
    old, new = _first(match, 3), _first(match, 5)
    text = _first(match)
    if not old or text.count(old) * len(new) > _MAX_TEXT:
        return match[0]
    return _quote(text.replace(old, new))


def _turn_cut(match: re.Match[str]) -> str:
    start = int(match[3])
    text = _first(match)[start:]
    return _quote(text[: int(match[4])] if match[4] else text)


def _turn_turned(match: re.Match[str]) -> str:
    text = next((one for one in match.groups() if one), "")
    return _quote(text[::-1])


def _turn_decoded(match: re.Match[str]) -> str:
    data = decode_bytes("base64", _first(match, 2)) or b""
    codec = "utf-16-le" if match[1].lower() == "unicode" else "utf-8"
    return _quote(data.decode(codec, "replace"))


_TURNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_DECODED, _turn_decoded),
    (_CODES, _turn_codes),
    (_CHAR, _turn_char),
    (_FORMATTED, _turn_formatted),
    (_REPLACED, _turn_replaced),
    (_CUT, _turn_cut),
    (_TURNED, _turn_turned),
    (_ADDED, lambda match: _quote(_first(match) + _first(match, 3))),
    (_JOINED, _turn_joined),
    (_IN_BRACKETS, r"\1"),
)
