"""Work out what expansions and filters of the shell make of a known text. Pure, and bounded."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from skillbelt.text import Lazy

MAX_MADE = 64 * 2**10
_MAX_PATTERN = 60
_MAX_NUMBER = 2**64
_MAX_FORMULA = 200
_MAX_RANGE = 256

# --- ${name…} ------------------------------------------------------------------------------------

_SLICE = Lazy(r":\s*(-?\d{1,6}|\(\s*-\d{1,6}\s*\))\s*(?::\s*(-?\d{1,6}))?\Z")
_EDIT = Lazy(r"(//|/#|/%|/|##|#|%%|%|\^\^|\^|,,|,|@)(.{0,200})\Z", re.DOTALL)


def expand_text(text: str, rest: str) -> str | None:
    """Return `${name REST}` for a known value; None for what is not understood."""
    if not rest:
        return text
    if match := _SLICE.match(rest):
        return _slice(text, int(match[1].strip("() ")), match[2])
    if rest.startswith((":-", ":=", ":?", "-", "=", "?")):
        return text
    if rest.startswith((":+", "+")):
        return rest.lstrip(":+")
    edit = _EDIT.match(rest)
    if edit is None:
        return None
    sign, operand = edit[1], edit[2]
    if sign == "@":
        return text
    if sign in _CASES:
        return _CASES[sign](text)
    if sign[0] == "/":
        pattern, _, new = operand.partition("/")
        return _replace(text, sign, pattern.replace("\\", ""), new)
    return _cut_ends(text, sign, operand)


def _slice(text: str, start: int, length: str | None) -> str:
    start = max(len(text) + start, 0) if start < 0 else start
    if length is None:
        return text[start:]
    count = int(length)
    return text[start : len(text) + count if count < 0 else start + count]


def _replace(text: str, sign: str, pattern: str, new: str) -> str | None:
    if not pattern:
        return text
    if sign == "/#":
        return new + text[len(pattern) :] if text.startswith(pattern) else text
    if sign == "/%":
        return text[: -len(pattern)] + new if text.endswith(pattern) else text
    found = _compile_glob(pattern)
    if found is None:
        return None
    if isinstance(found, str):
        return text.replace(found, new, -1 if sign == "//" else 1)[:MAX_MADE]
    return found.sub(lambda _: new, text, 0 if sign == "//" else 1)[:MAX_MADE]


def _compile_glob(pattern: str) -> re.Pattern[str] | str | None:
    """Return a pattern of the shell as a text or as one for single signs; None for any other."""
    if not re.search(r"[*?\[]", pattern):
        return pattern
    one_sign = re.fullmatch(r"\[([!^]?)([^\]\[\\]{1,40})\]|\?", pattern)
    if one_sign is None:
        return None
    inside = re.sub(r"([\\^&~|])", r"\\\1", one_sign[2] or "")
    try:
        return _compile_sign(f"[{'^' if one_sign[1] else ''}{inside}]" if inside else ".")
    except re.error:
        return None


def _compile_sign(form: str) -> re.Pattern[str]:
    return re.compile(form, re.DOTALL)


def _cut_ends(text: str, sign: str, pattern: str) -> str | None:
    if not pattern or len(pattern) > _MAX_PATTERN or pattern.count("*") > 1 or "[" in pattern:
        return None
    before, star, after = pattern.partition("*")
    if "?" in pattern:
        return None
    if sign[0] == "#":
        if not text.startswith(before):
            return text
        if not star:
            return text[len(before) :]
        at = text.rfind(after) if sign == "##" else text.find(after, len(before))
        return text[at + len(after) :] if at >= len(before) else text
    if not text.endswith(after):
        return text
    if not star:
        return text[: len(text) - len(after)]
    end = len(text) - len(after)
    at = text.find(before) if sign == "%%" else text.rfind(before, 0, end)
    return text[:at] if 0 <= at <= end else text


_CASES: dict[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:],
    ",": lambda text: text[:1].lower() + text[1:],
}


# --- numbers -------------------------------------------------------------------------------------

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: int(a / b) if b else 0,
    ast.Div: lambda a, b: int(a / b) if b else 0,
    ast.Mod: lambda a, b: a % b if b else 0,
    ast.BitXor: lambda a, b: a ^ b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.LShift: lambda a, b: a << b if 0 <= b < 64 else 0,
    ast.RShift: lambda a, b: a >> b if 0 <= b < 64 else 0,
}
_BASE = Lazy(r"\b(\d{1,2})#([0-9a-zA-Z]{1,12})\b")
_COMPARED: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}


def calculate(formula: str) -> int | None:
    """Return the value of a formula of numbers alone; None for any other."""
    if len(formula) > _MAX_FORMULA:
        return None
    plain = _BASE.sub(_read_base, formula)
    plain = re.sub(r"\b0+(?=\d)", "0o", plain) if re.search(r"\b0\d", plain) else plain
    try:
        return _calculate(ast.parse(plain.strip(), mode="eval").body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def _read_base(match: re.Match[str]) -> str:
    try:
        return str(int(match[2], int(match[1])))
    except ValueError:
        return match[0]


def _calculate(node: ast.expr, depth: int) -> int | None:
    if depth > 40:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value if abs(node.value) < _MAX_NUMBER else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert | ast.UAdd):
        inner = _calculate(node.operand, depth + 1)
        if inner is None:
            return None
        return ~inner if isinstance(node.op, ast.Invert) else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        a, b = _calculate(node.left, depth + 1), _calculate(node.right, depth + 1)
        if a is None or b is None or abs(a) > _MAX_NUMBER or abs(b) > _MAX_NUMBER:
            return None
        return _BINARY[type(node.op)](a, b)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        a = _calculate(node.left, depth + 1)
        b = _calculate(node.comparators[0], depth + 1)
        return None if a is None or b is None else int(_COMPARED[type(node.ops[0])](a, b))
    return None


# --- words ---------------------------------------------------------------------------------------

_BRACES = Lazy(
    r"(?<![\w$}\]\"'./\\=-])\{([\w./:@%+~?&=-]{1,200}(?:,[\w./:@%+~?&=-]{0,200}){1,40})\}(?![\w{])"
)
_RANGE = Lazy(r"\{(\d{1,4}|[a-zA-Z])\.\.(\d{1,4}|[a-zA-Z])\}\Z")


def expand_braces(text: str) -> str:
    """Return a text with `{curl,-s,…}` as the words that the shell makes of it."""
    if "{" not in text or "," not in text:
        return text
    return _BRACES.sub(lambda match: match[1].replace(",", " "), text)


def expand_range(word: str) -> list[str] | None:
    """Return the words of `{1..9}`; None for any other word."""
    match = _RANGE.match(word)
    if match is None:
        return None
    first, last = match[1], match[2]
    if first.isdigit() != last.isdigit():
        return None
    a, b = (int(one) if one.isdigit() else ord(one) for one in (first, last))
    numbers = range(a, b + 1) if a <= b else range(a, b - 1, -1)
    if len(numbers) > _MAX_RANGE:
        return None
    return [str(one) if first.isdigit() else chr(one) for one in numbers]


# Where programs of power are, for words with signs that stand for any letter.
_PLACES = tuple(
    f"{folder}/{name}"
    for name in ("bash", "sh", "curl", "wget", "nc", "base64", "python3", "python", "perl", "node",
                 "zsh", "dash", "openssl", "ssh", "scp", "crontab", "eval", "xxd", "rm", "cat")
    for folder in ("/bin", "/usr/bin")
)  # fmt: skip


def find_by_glob(word: str) -> str:
    """Return the program of power that a word with `?` or `*` stands for; "" for none."""
    if not 3 < len(word) <= _MAX_PATTERN or word.count("*") > 2 or word[0] != "/":
        return ""
    if not re.search(r"[?*\[]", word) or not re.search(r"\w", word.rpartition("/")[2]):
        return ""
    return next((place for place in _PLACES if fnmatchcase(place, word)), "")


# --- filters -------------------------------------------------------------------------------------

_CLASSES = {
    "[:lower:]": "abcdefghijklmnopqrstuvwxyz", "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "[:digit:]": "0123456789", "[:space:]": " \t\n\r\v\f", "[:blank:]": " \t",
    "[:punct:]": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
}  # fmt: skip
_CLASSES["[:alpha:]"] = _CLASSES["[:upper:]"] + _CLASSES["[:lower:]"]
_CLASSES["[:alnum:]"] = _CLASSES["[:digit:]"] + _CLASSES["[:alpha:]"]
_SIGN = Lazy(r"\\([0-7]{1,3}|.)", re.DOTALL)
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def translate_signs(text: str, sets: Sequence[str], options: str) -> str | None:
    """Return what `tr` makes of a text."""
    given = [_list_signs(one) for one in sets[:2]]
    if not given or any(one is None for one in given):
        return None
    first, second = given[0] or "", (given[1] or "") if len(given) > 1 else ""
    if "d" in options:
        keep = "c" in options or "C" in options
        return "".join(one for one in text if (one in first) == keep)
    if not second or "c" in options or "C" in options:
        return text if "s" in options else None
    table = dict(zip(first, second + second[-1] * max(len(first) - len(second), 0), strict=False))
    return text.translate({ord(one): new for one, new in table.items()})


def _list_signs(form: str) -> str | None:
    if len(form) > 2_000:
        return None
    for name, signs in _CLASSES.items():
        form = form.replace(name, signs)
    form = _SIGN.sub(_read_sign, form)
    if form.startswith("[") and form.endswith("]") and len(form) > 2 and "-" in form:
        form = form[1:-1]
    made = re.sub(r"(.)-(.)", _list_range, form, flags=re.DOTALL)
    return made[:4_000]


def _read_sign(match: re.Match[str]) -> str:
    body = match[1]
    return chr(int(body, 8) % 256) if body[0] in "01234567" else _SIGNS.get(body, body)


def _list_range(match: re.Match[str]) -> str:
    first, last = ord(match[1]), ord(match[2])
    if not 0 <= last - first < _MAX_RANGE:
        return match[0]
    return "".join(map(chr, range(first, last + 1)))


_MAX_PIECES = 60
_PIECES = Lazy(r"(\d{0,6})(-?)(\d{0,6})\Z")


def cut_lines(text: str, option: str, form: str, mark: str) -> str | None:
    """Return what `cut -c FORM` or `cut -d MARK -f FORM` makes of a text."""
    if len(form) > _MAX_FORMULA or not form:
        return None
    lines: list[str] = []
    if form.count(",") > _MAX_PIECES or (option == "f" and not mark):
        return None
    for line in text.split("\n"):
        parts = line.split(mark) if option == "f" else list(line)
        chosen: list[str] = []
        for piece in form.split(","):
            match = _PIECES.match(piece)
            if match is None:
                return None
            start = int(match[1] or 1)
            end = int(match[3] or len(parts)) if match[2] else start
            chosen += parts[max(start - 1, 0) : end]
            if len(chosen) > MAX_MADE:
                return None
        lines.append((mark if option == "f" else "").join(chosen))
        if sum(map(len, lines)) > MAX_MADE:
            return None
    return "\n".join(lines)


_SUBSTITUTION = Lazy(
    r"s([^\w\s\\])((?:\\.|(?!\1)[^\\]){1,200})\1((?:\\.|(?!\1)[^\\]){0,200})\1([gIi0-9]{0,3})\Z"
)
_MAX_SCRIPT = 500
_SPECIAL = Lazy(r"[.*\[\]^$(){}+?|]")


def edit_lines(text: str, scripts: Sequence[str]) -> str | None:
    """Return what `sed` makes of a text by substitutions of plain words or single signs."""
    for script in scripts:
        for step in _split_steps(script[:_MAX_SCRIPT]):
            made = _edit(text, step.strip())
            if made is None:
                return None
            text = made
    return text


def _split_steps(script: str) -> list[str]:
    if script[:1] == "s" and len(script) > 1 and script[1] == ";":
        return [script]
    return [one for one in re.split(r"(?<=[/|#,@!][gIi])\s{0,9};|(?<=[/|#,@!]);", script) if one]


def _edit(text: str, step: str) -> str | None:
    match = _SUBSTITUTION.match(step)
    if match is None:
        return None
    old, new = match[2], match[3].replace("\\n", "\n")
    new = re.sub(r"\\(.)", r"\1", new, flags=re.DOTALL)
    everywhere = "g" in match[4]
    if old in (".", "^", "$"):
        return None
    if one_sign := _one_sign(old):
        return one_sign.sub(lambda _: new, text, 0 if everywhere else 1)[:MAX_MADE]
    plain = re.sub(r"\\([^\w])", r"\1", old)
    if _SPECIAL.search(re.sub(r"\\.", "", old)) or re.search(r"\\\w", old):
        return None
    lines = (line.replace(plain, new, -1 if everywhere else 1) for line in text.split("\n"))
    return "\n".join(lines)[:MAX_MADE]


def _one_sign(old: str) -> re.Pattern[str] | None:
    found = _compile_glob(old) if old.startswith("[") else None
    return found if isinstance(found, re.Pattern) else None


_AWK = Lazy(r"\{\s{0,9}print\s([^{};]{1,400})\}")
_AWK_PART = Lazy(
    r"\s*(?:\"((?:[^\"\\]|\\.){0,200})\"|\$(\d{1,3}|NF)|substr\(\s*(\"[^\"]{0,400}\"|\$\d{1,3})\s*,"
    r"\s*(\d{1,5})\s*(?:,\s*(\d{1,5})\s*)?\)|(,))"
)


def print_fields(text: str, program: str, mark: str) -> str | None:
    """Return what `awk '{print …}'` prints of a text, made of fields, texts and substr."""
    match = _AWK.search(program)
    if match is None:
        return None
    lines: list[str] = []
    for line in text.split("\n")[:500]:
        fields = line.split(mark) if mark else line.split()
        made, at = "", 0
        while at < len(match[1].rstrip()):
            part = _AWK_PART.match(match[1], at)
            if part is None:
                return None
            made = f"{made}{_print_part(part, line, fields)}"[:MAX_MADE]
            at = part.end()
        lines.append(made)
        if sum(map(len, lines[-2:])) > MAX_MADE:
            return None
    return "\n".join(lines)[:MAX_MADE]


def _print_part(part: re.Match[str], line: str, fields: list[str]) -> str:
    if part[6]:
        return " "
    if part[3] is not None:
        source = part[3][1:-1] if part[3][0] == '"' else _field(part[3][1:], line, fields)
        start = int(part[4]) - 1
        return source[start : start + int(part[5])] if part[5] else source[start:]
    if part[2] is not None:
        return _field(part[2], line, fields)
    return re.sub(r"\\(.)", r"\1", part[1] or "")


def _field(name: str, line: str, fields: list[str]) -> str:
    if name == "0":
        return line
    at = len(fields) if name == "NF" else int(name)
    return fields[at - 1] if 0 < at <= len(fields) else ""


_FORMAT = Lazy(r"%(-?0?\d{0,4}(?:\.\d{1,4})?)([sbdqicxXo%])")
_MAX_ROUNDS = 200


def format_values(form: str, values: Sequence[str]) -> str:
    """Return what `printf` prints: the form is used until all values are."""
    rest = list(values)
    made: list[str] = []
    for _ in range(_MAX_ROUNDS):
        before = len(rest)
        made.append(_FORMAT.sub(lambda match: _format_one(match, rest), form))
        if not rest or len(rest) == before or sum(map(len, made)) > MAX_MADE:
            break
    return "".join(made)[:MAX_MADE]


def _format_one(match: re.Match[str], rest: list[str]) -> str:
    kind = match[2]
    if kind == "%":
        return "%"
    value = rest.pop(0) if rest else ""
    if kind in "dixXo":
        number = ord(value[1]) if value[:1] in "'\"" and value[1:] else _read_number(value)
        if number is None:
            return value
        width = re.sub(r"\D", "", match[1].partition(".")[0])[:2]
        made = format(number, "d" if kind in "di" else kind)
        return made.rjust(int(width or 0), "0" if match[1].startswith("0") else " ")
    if kind == "c":
        return value[:1]
    return value if kind == "b" else value.replace("\\", "\\\\")


def _read_number(value: str) -> int | None:
    try:
        if re.fullmatch(r"0[0-7]{1,6}", value):
            return int(value, 8)
        return int(value[:12], 0)
    except ValueError:
        return None
