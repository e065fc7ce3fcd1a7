"""The headings of a Markdown text, their sections, and the section that a hint means.

The text is read as a renderer reads it: inside a fence, a comment or indented code there are no
headings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from skillbelt.records import NamedTuple

MAX_SECTIONS = 10_000
MAX_LINES = 200_000
MAX_HINT_CHARS = 500
_MAX_TITLE_CHARS = 500
# Quantifiers are bounded or possessive so that a hostile text costs time in proportion to its size.
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]++(.*))?$", re.DOTALL)
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
_SETEXT = re.compile(r" {0,3}(?:(=++)|-++)[ \t]*+$")
_FENCE = re.compile(r"([ \t]{0,99}+)(`{3,}+|~{3,}+)(.*)$", re.DOTALL)
_ITEM = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")
_BREAK = re.compile(r" {0,3}(?:(?:\*[ \t]*+){3,}|(?:-[ \t]*+){3,}|(?:_[ \t]*+){3,})$")
_INDENTED = re.compile(r" {0,3}\t| {4}")
_RAW = re.compile(r" {0,3}<(?:(!--)|(pre|script|style|textarea)(?=[\s>]|$))", re.IGNORECASE)
_END = re.compile(r"\n---[ \t]*+\r?(?:\n|\Z)")
_KEY = re.compile(r"[\w.-]{1,100}[ \t]*:")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\n]{0,500}\)")
_MARKUP = re.compile(r"[*`]+|(?<!\w)_+|_+(?!\w)")
_ORDINAL = re.compile(r"(.*\S)[ \t]*#(\d{1,5})", re.DOTALL)
_HEADING_HINT = re.compile(r"(#{1,6})[ \t]+(.+)", re.DOTALL)
_PATH = re.compile(r"\s>\s++|/\s*+")
_NOT_SLUG = re.compile(r"[^\w\- ]")


class Section(NamedTuple):
    """A heading and the text below it, up to the next heading that is not deeper.

    `line` is the heading's, counted from 1; `start` and `end` are offsets into the text.
    """

    title: str
    level: int
    line: int
    start: int
    end: int


class TextLine(NamedTuple):
    """One line of a text: its position, its content, and whether it is code or a comment."""

    start: int
    text: str
    verbatim: bool


class _Heading(NamedTuple):
    title: str
    level: int
    line: int
    start: int


def sections(text: str) -> list[Section]:
    """Return every section in order, within MAX_LINES and MAX_SECTIONS."""
    found: list[Section] = []
    still_open: list[int] = []
    for heading in _headings(text):
        while still_open and found[still_open[-1]].level >= heading.level:
            place = still_open.pop()
            found[place] = found[place]._replace(end=heading.start)
        if len(found) == MAX_SECTIONS:
            break
        still_open.append(len(found))
        found.append(Section(*heading, end=len(text)))
    return found


def lines(text: str) -> Iterator[TextLine]:
    """Yield each line without its end; `verbatim` if it is frontmatter, code or a comment."""
    state = _Verbatim(_frontmatter_lines(text))
    at = 0
    for number, raw in enumerate(text.split("\n")):
        line = raw.removesuffix("\r")
        yield TextLine(at, line, state.covers(line, number))
        at += len(raw) + 1


class _Verbatim:
    """Follows a text line by line and tracks whether it is inside code or a comment."""

    def __init__(self, frontmatter: int) -> None:
        self._frontmatter = frontmatter
        self._fence = ""
        self._until = ""
        self._in_list = False

    def covers(self, line: str, number: int) -> bool:
        if number < self._frontmatter:
            return True
        if self._fence:
            self._end_fence(line)
            return True
        if self._until:
            self._end_raw(line)
            return True
        return self._opens(line)

    def _end_fence(self, line: str) -> None:
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = ""

    def _end_raw(self, line: str) -> None:
        if self._until in line.lower():
            self._until = ""

    def _opens(self, line: str) -> bool:
        if _ITEM.match(line):
            self._in_list = True
        elif line and not line[0].isspace():
            self._in_list = False
        return self._opens_fence(line) or self._opens_raw(line)

    def _opens_fence(self, line: str) -> bool:
        mark = _FENCE.match(line) if "```" in line or "~~~" in line else None
        # A deeper indentation is code already, unless it is that of a list item.
        if not mark or (mark[2][0] == "`" and "`" in mark[3]):
            return False
        if _INDENTED.match(line) and not self._in_list:
            return False
        self._fence = mark[2]
        return True

    def _opens_raw(self, line: str) -> bool:
        mark = _RAW.match(line) if "<" in line else None
        if not mark:
            return False
        self._until = "-->" if mark[1] else f"</{mark[2].lower()}>"
        self._end_raw(line[mark.end() :])
        return True


def _frontmatter_lines(text: str) -> int:
    """Count the lines of the frontmatter, whose closing line looks like a heading underline."""
    if not text.startswith(("---\n", "---\r\n")):
        return 0
    first = text.index("\n") + 1
    end = _END.search(text, first - 1) if _KEY.match(text, first) else None
    return text.count("\n", 0, end.start() + 1) + 1 if end else 0


# --- headings ------------------------------------------------------------------------------------


class _Paragraph(NamedTuple):
    """Tracks the lines that a line of dashes turns into a heading; none inside a list."""

    line: int
    start: int
    words: tuple[str, ...]


_NONE = _Paragraph(0, 0, ())


def _headings(text: str) -> Iterator[_Heading]:
    paragraph = _NONE
    contained = False
    for number, (start, line, verbatim) in enumerate(islice(lines(text), MAX_LINES), 1):
        if verbatim or not line.strip():
            paragraph, contained = _NONE, False
            continue
        underline = _SETEXT.match(line) if paragraph.words else None
        if underline:
            title = " ".join(paragraph.words)[:_MAX_TITLE_CHARS]
            yield _Heading(title, 1 if underline[1] else 2, paragraph.line, paragraph.start)
            paragraph = _NONE
        elif atx := _ATX.match(line):
            yield _Heading(_atx_title(atx[2] or ""), len(atx[1]), number, start)
            paragraph, contained = _NONE, False
        elif _BREAK.match(line):
            paragraph, contained = _NONE, False
        else:
            contained = contained or bool(_ITEM.match(line)) or line.lstrip().startswith((">", "|"))
            paragraph = _NONE if contained else _extend(paragraph, number, start, line)


def _atx_title(rest: str) -> str:
    return _CLOSING.sub("", rest.strip()[: _MAX_TITLE_CHARS * 2]).strip()[:_MAX_TITLE_CHARS]


def _extend(paragraph: _Paragraph, number: int, start: int, line: str) -> _Paragraph:
    if paragraph.words:
        # Only the first lines can matter: a title is cut anyway.
        few = len(paragraph.words) < 3
        return paragraph._replace(words=(*paragraph.words, line.strip())) if few else paragraph
    return _NONE if _INDENTED.match(line) else _Paragraph(number, start, (line.strip(),))


# --- hints ---------------------------------------------------------------------------------------


def find(text: str, hint: str) -> Section | None:
    """Return the section a hint means, or None.

    A hint is a heading line (`## Set up`), its words in any case, a path (`Usage > Set up`,
    `Usage/Set up`), the second of several of the same name (`Example#2`) or a link's anchor
    (`#set-up`). The most exact form is tried first.
    """
    hint = " ".join(hint[:MAX_HINT_CHARS].split())
    if not hint:
        return None
    found = sections(text)
    for attempt in (_by_line, _by_title, _by_ordinal, _by_path, _by_slug):
        section = attempt(found, hint)
        if section is not None:
            return section
    return None


def _by_line(found: list[Section], hint: str) -> Section | None:
    mark = _HEADING_HINT.fullmatch(hint)
    if not mark:
        return None
    title, level = _atx_title(mark[2]), len(mark[1])
    matches = _find_titled(found, title) or _find_titled(found, title, exact=False)
    return next((one for one in matches if one.level == level), next(iter(matches), None))


def _by_title(found: list[Section], hint: str) -> Section | None:
    return next(iter(_find_titled(found, hint) or _find_titled(found, hint, exact=False)), None)


def _by_ordinal(found: list[Section], hint: str) -> Section | None:
    mark = _ORDINAL.fullmatch(hint)
    if not mark:
        return None
    title = _without_marks(mark[1])
    matches = _find_titled(found, title) or _find_titled(found, title, exact=False)
    wanted = int(mark[2])
    return matches[wanted - 1] if 0 < wanted <= len(matches) else None


def _by_path(found: list[Section], hint: str) -> Section | None:
    for parts in (re.split(r"\s>\s++|>", hint), _PATH.split(hint)):
        steps = [part.strip() for part in parts if part.strip()]
        if len(steps) > 1:
            section = _descend(found, steps)
            if section is not None:
                return section
    return None


def _descend(found: list[Section], steps: list[str]) -> Section | None:
    """Return the section of the last step, inside one of the steps before it."""
    inside = found
    for step in steps[:-1]:
        outer = _step(inside, step)
        inside = _sections_below(inside, outer)
    return next(iter(_step(inside, steps[-1])), None)


def _step(found: list[Section], step: str) -> list[Section]:
    title = _without_marks(step)
    matches = _find_titled(found, title) or _find_titled(found, title, exact=False)
    if matches:
        return matches
    one = _by_ordinal(found, step)
    return [one] if one else []


def _sections_below(found: list[Section], outer: list[Section]) -> list[Section]:
    """Return the sections below any of the outer ones; both lists are in text order."""
    kept, end, coming = [], 0, iter(outer)
    opening = next(coming, None)
    for section in found:
        if section.start < end:
            kept.append(section)
        while opening and opening.start <= section.start:
            end = max(end, opening.end)
            opening = next(coming, None)
    return kept


def _by_slug(found: list[Section], hint: str) -> Section | None:
    wanted = hint.lstrip("#").lower()
    seen: dict[str, int] = {}
    for section in found:
        slug = slug_of(section.title)
        times = seen.get(slug, 0)
        seen[slug] = times + 1
        if wanted == (f"{slug}-{times}" if times else slug):
            return section
    return None


def slug_of(title: str) -> str:
    """Return the anchor that code hosts give a heading, without the number of a repeated one."""
    return _NOT_SLUG.sub("", plain(title).lower()).replace(" ", "-")


def plain(title: str) -> str:
    """Return the words of a heading without links and emphasis."""
    return _MARKUP.sub("", _LINK.sub(r"\1", title)).strip()


def _without_marks(step: str) -> str:
    mark = _HEADING_HINT.fullmatch(step)
    return mark[2] if mark else step


def _find_titled(found: list[Section], title: str, *, exact: bool = True) -> list[Section]:
    key: Callable[[str], str] = _collapse_blanks if exact else folded
    wanted = key(title)
    return [section for section in found if key(section.title) == wanted]


def _collapse_blanks(title: str) -> str:
    return " ".join(title.split())


def folded(title: str) -> str:
    """Normalize a title for comparison: no markup, no case, no colon at the end."""
    return " ".join(plain(title).casefold().split()).rstrip(":：")
