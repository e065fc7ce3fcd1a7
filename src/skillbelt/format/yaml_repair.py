"""Repair frontmatter that is not YAML by reading it line by line, and derive missing descriptions.

An entry that YAML can read alone is read by YAML; only the rest becomes text. Nothing here raises,
and every loop is bounded by the length of the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skillbelt.format import yaml
from skillbelt.format.yaml_fast import TEXT_KEYS
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, has_no_controls, shorten

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


class RepairedYaml(NamedTuple):
    """The fields that were read line by line."""

    fields: dict[str, object]
    problems: tuple[yaml.Problem, ...] = ()


class FrontmatterBlock(NamedTuple):
    """The position of a misplaced or malformed block in the text, in characters."""

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
_ONE_LINE = Lazy(rf"---[ \t]++(?={_ANY_KEY})([^\n]*)\n?")
_CLOSING = Lazy(rf"^-{{3,}}(?:{_EOL}|[ \t]*(?=[^\s|:-]))", re.M)
# A key needs a blank after its colon; a well-known one is also recognised without.
_GLUED = "|".join(map(re.escape, sorted(_KNOWN, key=len, reverse=True)))
_BEFORE_KEY = Lazy(rf"(?<![ \t,;])[ \t,;]++(?=(?:{_GLUED})[ \t]*:[ \t])")
KEY_LINE = Lazy(
    rf"""(["']?)((?:{_GLUED})(?=\1[ \t]*:(?!//))"""
    r"""|(?:[^\W\d][\w.-]{0,63}|[^\W\d]\w*(?: \w+){1,2})(?=\1[ \t]*:(?:\s|\Z)))\1[ \t]*:"""
)


def find(text: str) -> FrontmatterBlock | None:
    """Find the block of a file whose first line is not `---`, or whose closing line is not."""
    start = _skip(text, 0)
    for look in (_find_fenced, _one_line, _find_opened, _find_bare_keys):
        block = look(text, start)
        if block:
            return block
    return None


def _skip(text: str, at: int) -> int:
    """Return the position of the first character that is neither blank nor in an HTML comment."""
    while match := _BLANKS.match(text, at) or _COMMENT.match(text, at):
        at = match.end()
    return at


def _closing_fence(fence: str) -> re.Pattern[str]:
    return re.compile(rf"^{fence}{_EOL}", re.M)


def _find_fenced(text: str, at: int) -> FrontmatterBlock | None:
    fence = _FENCE.match(text, at)
    if not fence:
        return None
    closing = _closing_fence(fence[1]).search(text, fence.end())
    if not closing:
        return None
    opening = _RULE.match(text, fence.end())
    start = opening.end() if opening else fence.end()
    end = _CLOSING.search(text, start, closing.start())
    if end and end.start() > start:
        body = closing.end() if not text[end.end() : closing.start()].strip() else end.end()
        return FrontmatterBlock(start, end.start(), body, "the block is in a code fence")
    return FrontmatterBlock(start, closing.start(), closing.end(), "the block is in a code fence")


def _one_line(text: str, at: int) -> FrontmatterBlock | None:
    match = _ONE_LINE.match(text, at)
    if not match:
        return None
    end = match.start(1) + len(match[1].rstrip().rstrip("-").rstrip())
    reason = "the whole block is on one line"
    return FrontmatterBlock(match.start(1), end, match.end(), reason, single=True)


def _find_opened(text: str, at: int) -> FrontmatterBlock | None:
    """Find a block with an opening line, perhaps after other text."""
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
        return FrontmatterBlock(opening.end(), closing.start(), closing.end(), reason)
    return None


def _line_starts(text: str, at: int) -> Iterator[int]:
    """Yield where the first lines begin; text further down is always the body."""
    for _ in range(_PREFACE_LINES):
        yield at
        at = text.find("\n", at) + 1
        if not at:
            return


def _find_bare_keys(text: str, at: int) -> FrontmatterBlock | None:
    """Find keys without an opening line, up to a rule, a blank line or a heading."""
    if not _BARE.match(text, at):
        return None
    end = at
    for line in re.findall(r"[^\n]*\n|[^\n]+", text[at:]):
        closing = _CLOSING.match(line)
        if closing:
            return FrontmatterBlock(at, end, end + closing.end(), "the opening line is missing")
        if not line.strip() or not (KEY_LINE.match(line) or line[0] in " \t-"):
            break
        end += len(line)
    return FrontmatterBlock(at, end, end, "the opening line is missing")


def open_description(text: str) -> str:
    """Return the description in a block that is never closed; "" when there is none."""
    match = re.compile(r"^description[ \t]*:.*(?:\r?\n[ \t]+\S.*)*", re.M).search(text)
    if not match:
        return ""
    fields = read(match[0].replace("\r\n", "\n") + "\n").fields
    value = fields.get("description")
    return " ".join(value.split()) if isinstance(value, str) else ""


# --- reading a block -----------------------------------------------------------------------------

_CONTROLS = Lazy("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_HEADING = Lazy(r"#{1,6} \S")
_INNER_END = Lazy(r"-{3,}(?![ \t]*$)[ \t]*|-{4,}[ \t]*$")
_HEADER = Lazy(r"[>|][+-]?\d?[+-]?[ \t]+(?=\S)")
_CLOSED = Lazy(r"""(["'])(.*?[.!?。！？…]|.*?(?=\1\n))\1\s*([^\s"',].*)\Z""", re.S)


def without_controls(text: str) -> str:
    """Remove the characters that YAML refuses."""
    return text if has_no_controls(text) else _CONTROLS.sub("", text)


def inner_end(text: str) -> tuple[int, int] | None:
    """Return where a block that was closed too late should end: (end of keys, start of body).

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


def read(text: str, depth: int = 0) -> RepairedYaml:
    """Read the lines of a block key by key; no fields when there is no key.

    `text` has LF line ends. Values stay literal: backslashes and `$1` mean themselves.
    """
    fields: dict[str, object] = {}
    problems: list[yaml.Problem] = []
    for line, key, entry in _entries(text):
        alone = yaml.load(entry)
        # `name:a: b` is one key to YAML, and another one than that of the line.
        if (
            isinstance(alone, yaml.LoadedYaml)
            and len(alone.fields) == 1
            and (key in alone.fields or key not in _KNOWN)
        ):
            fields.update(alone.fields)
            problems += [p._replace(line=p.line + line - 1) for p in alone.problems]
        else:
            fields[key] = _repair(key, entry, depth)
    return RepairedYaml(fields, tuple(problems[:8]))


def one_line(text: str) -> RepairedYaml:
    """Read a block that is on one line, split before each well-known key."""
    spread = _BEFORE_KEY.sub("\n", text.strip())
    return read(spread + "\n")


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield each top-level key with its line number and all lines that belong to it."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(text.rstrip().split("\n"), 1):
        match = KEY_LINE.match(line)
        if match and len(found) < _MAX_ENTRIES:
            found.append((number, match[2], [line]))
        elif found and not line.startswith(("...", "---", "#")) and not _is_stray(line, found[-1]):
            found[-1][2].append(line)
    for number, key, lines in found:
        yield number, key, "\n".join(lines).rstrip() + "\n"


def _is_stray(line: str, entry: tuple[int, str, list[str]]) -> bool:
    """Whether the line is not part of the entry: a name has one line, except for indented ones."""
    return entry[1] == "name" and line[:1].isalnum()


def _repair(key: str, entry: str, depth: int) -> object:
    """Return the value of an entry that YAML cannot read alone."""
    first, _, below = entry.partition("\n")
    value = first.partition(":")[2].strip()
    if "\t" in entry:
        untabbed = yaml.load(entry.replace("\t", "  "))
        if isinstance(untabbed, yaml.LoadedYaml) and len(untabbed.fields) == 1:
            return next(iter(untabbed.fields.values()))
    if not value and key not in TEXT_KEYS:
        return _below(below, depth)
    return _scalar(value, below)


def _below(text: str, depth: int) -> object:
    """Read a nested block: a mapping if its lines are keys, a list if they are items."""
    lines = [line.rstrip() for line in text.replace("\t", "  ").split("\n") if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    lines = [line[margin:] for line in lines]
    if lines and all(line.startswith(("- ", " ")) or line == "-" for line in lines):
        return _items(lines)
    if depth < _MAX_DEPTH and lines and KEY_LINE.match(lines[0]):
        return read("\n".join(lines) + "\n", depth + 1).fields
    return _join(lines)


def _items(lines: list[str]) -> list[object]:
    items: list[list[str]] = []
    for line in lines:
        if line.startswith("-"):
            items.append([line[1:]])
        elif items:
            items[-1].append(line)
    return [_unquote(_join(item)) for item in items]


def _scalar(value: str, below: str) -> str:
    """Return a text that spans lines, without the marks that YAML would remove."""
    header = _HEADER.match(value)
    if header:
        value = value[header.end() :]
    lines = [value, *below.split("\n")]
    if re.fullmatch(r"[>|][+-]?\d?[+-]?", value):
        lines = lines[1:]
        return "\n".join(line.strip() for line in lines).strip("\n")
    return _unquote(_join(lines))


def _join(lines: list[str]) -> str:
    """Fold the lines into one text; list items keep their own line."""
    kept = [stripped for line in lines if (stripped := line.strip())]
    parts = [("\n" if line.startswith("- ") else " ") + line for line in kept]
    return "".join(parts)[1:]


def _unquote(text: str) -> str:
    """Remove the quotes around the text, or around its first sentence."""
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
    """Derive a description: the first paragraph of the text, without markup.

    A heading is used only if there is nothing else, and code only if there is no heading either.
    Returns "" when there is no text at all.
    """
    for part in (body[:_OPENING_CHARS], body):
        headings: list[str] = []
        for paragraph in re.split(r"\n[ \t]*\n", _remove_noise(part)):
            plain = _remove_markup(_prose(paragraph, headings)) if paragraph.strip() else ""
            if _has_words(plain):
                return shorten(plain, limit)
    last = (_remove_markup(text) for text in (*headings, body))
    return shorten(next(filter(_has_words, last), ""), limit)


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _remove_noise(text: str) -> str:
    """Remove code, tags and rules; turn underlined headings into `#` headings."""
    text = _TAG.sub("", _AUTOLINK.sub(r"\1", text.replace("\r\n", "\n")))
    return _NOISE.sub("", _UNDERLINE.sub(r"# \g<title>", _CODE.sub("", text)))


def _prose(paragraph: str, headings: list[str]) -> str:
    """Return the lines up to the next heading; headings go to the list."""
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


def _remove_markup(text: str) -> str:
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _MARKS.sub("", _LEADING.sub("", text))
    return " ".join(without_controls(text).split())
