"""The second chance: frontmatter that YAML refuses, read line by line, and files that have none.

Whatever a single entry says that YAML can read alone is read by YAML; only the rest is taken as
text. Nothing here raises, and every loop is bounded by the length of the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from skillbelt.format import yaml
from skillbelt.format.yaml_fast import TEXT_KEYS, Lazy
from skillbelt.text import shorten
from skillbelt.values import Limits

_KNOWN = (
    {"name", "description", "license", "compatibility", "version", "author", "tags", "metadata"}
    | {"homepage", "category", "allowed-tools", "disallowed-tools", "when_to_use", "argument-hint"}
    | {"arguments", "model", "effort", "context", "agent", "hooks", "paths", "shell"}
    | {"user-invocable", "disable-model-invocation"}
)
_MAX_ENTRIES = 512
_MAX_DEPTH = 3
_PREFACE_LINES = 8
_NEARBY = 20


class Mended(NamedTuple):
    """What the second chance read."""

    fields: dict[str, object]
    problems: tuple[yaml.Problem, ...] = ()


class Block(NamedTuple):
    """Where a misplaced or malformed block lies in the text, in characters."""

    start: int
    end: int
    body: int
    reason: str
    single: bool = False


# --- finding a block -----------------------------------------------------------------------------

_EOL = r"[ \t]*(?:\r?\n|\Z)"
_ANY_KEY = r"[ \t]*(?:name|description|title|slug|version)[ \t]*:"
_RULE = Lazy(rf"-{{3,}}{_EOL}")
_FENCE = Lazy(rf"(`{{3,}}|~{{3,}})[\w-]*{_EOL}(?=(?:-{{3,}}[ \t]*\r?\n)?{_ANY_KEY})")
_COMMENT = Lazy(r"<!--.*?-->", re.S)
_BLANKS = Lazy(r"[\s\ufeff]+")
_BARE = Lazy(r"(?:name|description)[ \t]*:[ \t]*\S", re.I)
_ONE_LINE = Lazy(rf"---[ \t]+(?={_ANY_KEY})([^\n]*)\n?")
_CLOSING = Lazy(rf"^-{{3,}}(?:{_EOL}|[ \t]*(?=[^\s|:-]))", re.M)
KEY_LINE = Lazy(r"""(["']?)([^\W\d][\w.-]{0,63}|[^\W\d]\w*(?: \w+){1,2})\1[ \t]*:(?=\s|\Z)""")


def find(text: str) -> Block | None:
    """The block of a file whose first line is not `---`, or whose closing line is not."""
    start = _skip(text, 0)
    for look in (_fenced, _one_line, _opened, _bare):
        block = look(text, start)
        if block:
            return block
    return None


def _skip(text: str, at: int) -> int:
    """The first character that is neither blank nor in an HTML comment."""
    while match := _BLANKS.match(text, at) or _COMMENT.match(text, at):
        at = match.end()
    return at


def _fenced(text: str, at: int) -> Block | None:
    fence = _FENCE.match(text, at)
    if not fence:
        return None
    closing = re.compile(rf"^{fence[1]}{_EOL}", re.M).search(text, fence.end())
    if not closing:
        return None
    opening = _RULE.match(text, fence.end())
    start = opening.end() if opening else fence.end()
    end = _CLOSING.search(text, start, closing.start())
    if end and end.start() > start:
        body = closing.end() if not text[end.end() : closing.start()].strip() else end.end()
        return Block(start, end.start(), body, "the block stands in a code fence")
    return Block(start, closing.start(), closing.end(), "the block stands in a code fence")


def _one_line(text: str, at: int) -> Block | None:
    match = _ONE_LINE.match(text, at)
    if not match:
        return None
    end = match.start(1) + len(match[1].rstrip().rstrip("-").rstrip())
    reason = "the whole block stands on one line"
    return Block(match.start(1), end, match.end(), reason, single=True)


def _opened(text: str, at: int) -> Block | None:
    """A block that has an opening line, perhaps with something in front of it."""
    for start in _line_starts(text, at):
        opening = _RULE.match(text, start)
        if not opening or not KEY_LINE.match(text, opening.end()):
            continue
        closing = _CLOSING.search(text, opening.end())
        if not closing:
            return None
        reason = "the closing line is not `---` alone"
        if text[:start].strip("\ufeff") or opening[0].rstrip() != "---":
            reason = "the first line is not `---`"
        return Block(opening.end(), closing.start(), closing.end(), reason)
    return None


def _line_starts(text: str, at: int) -> Iterator[int]:
    """Where the first lines begin; prose further down is the body, whatever it holds."""
    for _ in range(_PREFACE_LINES):
        yield at
        at = text.find("\n", at) + 1
        if not at:
            return


def _bare(text: str, at: int) -> Block | None:
    """Keys without an opening line, up to a rule, a blank line or a heading."""
    if not _BARE.match(text, at):
        return None
    end = at
    for line in re.findall(r"[^\n]*\n|[^\n]+", text[at:]):
        closing = _CLOSING.match(line)
        if closing:
            return Block(at, end, end + closing.end(), "the opening line is missing")
        if not line.strip() or not (KEY_LINE.match(line) or line[0] in " \t-"):
            break
        end += len(line)
    return Block(at, end, end, "the opening line is missing")


def open_description(text: str, limits: Limits) -> str:
    """The description in a block that is never closed; empty when there is none."""
    match = re.compile(r"^description[ \t]*:.*(?:\r?\n[ \t]+\S.*)*", re.M).search(text)
    if not match:
        return ""
    fields = read(match[0].replace("\r\n", "\n") + "\n", limits).fields
    value = fields.get("description")
    return " ".join(value.split()) if isinstance(value, str) else ""


# --- reading a block -----------------------------------------------------------------------------

_CONTROLS = Lazy("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_HEADING = Lazy(r"#{1,6} \S")
_INNER_END = Lazy(r"-{3,}(?![ \t]*$)[ \t]*|-{4,}[ \t]*$")
_HEADER = Lazy(r"[>|][+-]?\d?[+-]?[ \t]+(?=\S)")
_CLOSED = Lazy(r"""(["'])(.*?[.!?。！？…]|.*?(?=\1\n))\1\s*([^\s"',].*)\Z""", re.S)


def without_controls(text: str) -> str:
    """The text without the characters that YAML refuses."""
    return _CONTROLS.sub("", text)


def inner_end(text: str) -> tuple[int, int] | None:
    """Where a block that was closed too late should have ended: (end of keys, start of body).

    A dash run with more on its line closes it, and so does a heading that no key follows.
    """
    at = 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if at and (match := _INNER_END.match(line)):
            rest = match.end() < len(line)
            return at, at + (match.end() if rest else min(len(line) + 1, len(text) - at))
        if at and _HEADING.match(line) and not _keys_follow(lines, number):
            return at, at
        at += len(line) + 1
    return None


def _keys_follow(lines: list[str], number: int) -> bool:
    """Whether the heading on this line is a comment between keys."""
    nearby = lines[number + 1 : number + 1 + _NEARBY]
    following = next((line for line in nearby if line.strip(" \t#")), "")
    return not following or bool(KEY_LINE.match(following)) or following[0] in " \t-#"


def read(text: str, limits: Limits, depth: int = 0) -> Mended:
    """What the lines of a block say, key by key; no fields when there is no key.

    `text` has LF line ends. Values stay literal: backslashes and `$1` mean themselves.
    """
    fields: dict[str, object] = {}
    problems: list[yaml.Problem] = []
    for line, key, entry in _entries(text):
        alone = yaml.load(entry, limits)
        if isinstance(alone, yaml.Loaded) and len(alone.fields) == 1:
            fields.update(alone.fields)
            problems += [p._replace(line=p.line + line - 1) for p in alone.problems]
        else:
            fields[key] = _mend(key, entry, limits, depth)
    return Mended(fields, tuple(problems[:8]))


def one_line(text: str, limits: Limits) -> Mended:
    """A whole block on one line, cut before each key that is well known."""
    keys = "|".join(sorted(_KNOWN, key=len, reverse=True))
    spread = re.sub(rf"(?<![ \t,;])[ \t,;]++(?=(?:{keys})[ \t]*:[ \t])", "\n", text.strip())
    return read(spread + "\n", limits)


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Each top-level key with its line and all lines that belong to it."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(text.rstrip().split("\n"), 1):
        match = KEY_LINE.match(line)
        if match and len(found) < _MAX_ENTRIES:
            found.append((number, match[2], [line]))
        elif found and not line.startswith(("...", "---")) and not line.startswith("#"):
            found[-1][2].append(line)
    for number, key, lines in found:
        yield number, key, "\n".join(lines).rstrip() + "\n"


def _mend(key: str, entry: str, limits: Limits, depth: int) -> object:
    """The value of an entry that YAML can not read alone."""
    first, _, below = entry.partition("\n")
    value = first.partition(":")[2].strip()
    if "\t" in entry:
        untabbed = yaml.load(entry.replace("\t", "  "), limits)
        if isinstance(untabbed, yaml.Loaded) and len(untabbed.fields) == 1:
            return next(iter(untabbed.fields.values()))
    if not value and key not in TEXT_KEYS:
        return _below(below, limits, depth)
    return _scalar(value, below)


def _below(text: str, limits: Limits, depth: int) -> object:
    """A nested block: a mapping where its lines are keys, a list where they are items."""
    lines = [line.rstrip() for line in text.replace("\t", "  ").split("\n") if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    lines = [line[margin:] for line in lines]
    if lines and all(line.startswith(("- ", " ")) or line == "-" for line in lines):
        return _items(lines)
    if depth < _MAX_DEPTH and lines and KEY_LINE.match(lines[0]):
        return read("\n".join(lines) + "\n", limits, depth + 1).fields
    return _joined(lines)


def _items(lines: list[str]) -> list[object]:
    items: list[list[str]] = []
    for line in lines:
        if line.startswith("-"):
            items.append([line[1:]])
        elif items:
            items[-1].append(line)
    return [_unquoted(_joined(item)) for item in items]


def _scalar(value: str, below: str) -> str:
    """Text that spans lines, without the marks YAML would have taken away."""
    header = _HEADER.match(value)
    if header:
        value = value[header.end() :]
    lines = [value, *below.split("\n")]
    if re.fullmatch(r"[>|][+-]?\d?[+-]?", value):
        lines = lines[1:]
        return "\n".join(line.strip() for line in lines).strip("\n")
    return _unquoted(_joined(lines))


def _joined(lines: list[str]) -> str:
    """The lines as one text: folded, but list items keep their own line."""
    kept = [stripped for line in lines if (stripped := line.strip())]
    parts = [("\n" if line.startswith("- ") else " ") + line for line in kept]
    return "".join(parts)[1:]


def _unquoted(text: str) -> str:
    """The text without the quotes around it, or around its first sentence."""
    quote = text[:1]
    if quote not in ('"', "'"):
        return text
    if len(text) > 1 and text[-1] == quote:
        inner = text[1:-1]
        return inner.replace('\\"', '"') if quote == '"' else inner.replace("''", "'")
    closed = _CLOSED.match(text)
    if closed:
        return f"{closed[2]} {closed[3]}"
    return text if quote in text[1:] else text[1:]


# --- deriving a description ----------------------------------------------------------------------

_OPENING_CHARS = 2000  # where nearly every text has its first paragraph
_CODE = Lazy(r"^(`{3,}|~{3,}).*?(?:^\1[ \t]*$|\Z)", re.M | re.S)
_TARGET = r"(?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)?\)|\[[^][\n]*\])"
_IMAGE = Lazy(rf"!\[[^][\n]*\]{_TARGET}?")
_LINK = Lazy(rf"\[([^][\n]*)\]{_TARGET}")
_TAG = Lazy(r"</?[A-Za-z][^<>\n]{0,500}>|<!--.*?(?:-->|\Z)", re.S)
_AUTOLINK = Lazy(r"<((?:https?|mailto):[^<>\s]+)>")
_MARKS = Lazy(r"\*{1,3}|~~|`+|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)")
_LEADING = Lazy(r"^[ \t]*(?:>[ \t]?)*(?:[-*+•]|\d{1,3}[.)])?[ \t]+(?:\[[ xX]\][ \t])?", re.M)
_UNDERLINE = Lazy(r"^(?P<title>[^\n]+)\n[ \t]*(?:=+|-{2,})[ \t]*$", re.M)
_NOISE = Lazy(r"^[ \t]*(?:[-*_=|:+][ \t]*){3,}$|^[ \t]*\[[^\]\n]+\]:.*$", re.M)
_ATX = Lazy(r"[ \t]{0,3}#{1,6}(?:[ \t]+|$)(.*)")


def derive(body: str, limit: int) -> str:
    """A description for a text that has none: its first paragraph in plain words.

    A heading counts only where there is nothing else, and code only where there is no heading
    either. Empty when there is no text at all.
    """
    for part in (body[:_OPENING_CHARS], body):
        headings: list[str] = []
        for paragraph in re.split(r"\n[ \t]*\n", _readable(part)):
            plain = _plain(_prose(paragraph, headings)) if paragraph.strip() else ""
            if _says_something(plain):
                return shorten(plain, limit)
    last = (_plain(text) for text in (*headings, body))
    return shorten(next(filter(_says_something, last), ""), limit)


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _readable(text: str) -> str:
    """The text without code, tags and rules; underlined headings as the other kind."""
    text = _TAG.sub("", _AUTOLINK.sub(r"\1", text.replace("\r\n", "\n")))
    return _NOISE.sub("", _UNDERLINE.sub(r"# \g<title>", _CODE.sub("", text)))


def _prose(paragraph: str, headings: list[str]) -> str:
    """The lines that are not headings, up to the next heading; headings are put aside."""
    lines: list[str] = []
    for line in paragraph.split("\n"):
        heading = _ATX.match(line)
        if heading:
            headings.append(heading[1].rstrip(" \t#"))
            if any(line.strip() for line in lines):
                break
        else:
            lines.append(line)
    return "\n".join(lines)


def _plain(text: str) -> str:
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _MARKS.sub("", _LEADING.sub("", text))
    return " ".join(without_controls(text).split())
