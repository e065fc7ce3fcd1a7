"""Choose which part of a text to return when the whole is too long. Everything here is pure."""

from __future__ import annotations

import re
from typing import Literal

from skillbelt.format.sections import Section, folded, lines, plain, sections
from skillbelt.records import NamedTuple
from skillbelt.text import one_line, shorten

Strategy = Literal["whole", "sections", "head", "section", "lines"]

_MOST_NAMED = 8
_MOST_SHORTENED = 3
_NAME_CHARS = 40
_UNTITLED = "the part without a heading"
_NOTE_CHARS = (_MOST_NAMED + _MOST_SHORTENED) * (_NAME_CHARS + 2) + 110
# Headings of the most important sections: when to use it, what to do, when it is done, references.
_KEPT = re.compile(
    r"\b(?:when|triggers?|activation|use cases?|steps?|usage|use|using|workflows?|process|procedure"
    r"|instructions?|how to|quick ?start|getting started|rules?|guidelines?|requirements?"
    r"|constraints?|output|acceptance|verif\w*|validat\w*|check ?lists?|self[- ]?(?:check|review)"
    r"|success criteria|definition of done|resources?|references?|index|contents"
    r"|files|documents?|documentation)\b"
    r"|触发|何时|使用|适用|步骤|用法|流程|工作流|操作|指令|指南|规则|要求|输出|验收|验证|校验|自检"
    r"|检查|资源|参考|引用|索引|目录",
    re.IGNORECASE,
)
# Headings of introductions: a short one is needed, a long one is a narrative.
_LEADING = re.compile(r"\b(?:overview|summary)\b|概述|概览|总览", re.IGNORECASE)
_EXAMPLES = re.compile(r"\b(?:examples?|samples?|demos?)\b|示例|例子|样例|案例|举例", re.IGNORECASE)
_DROPPED = re.compile(
    r"\b(?:background|history|motivation|rationale|philosophy|change ?log|release notes|credits"
    r"|acknowledge?ments?|licen[cs]e|authors?|about|trivia|further reading|appendix)\b"
    r"|背景|历史|动机|缘由|更新日志|致谢|许可|作者|附录",
    re.IGNORECASE,
)
_FENCE = re.compile(r"[ \t]*+(`{3,8}|~{3,8})(?![`~])")
_FENCE_CHARS = 10  # room for the longest fence and two line ends
_LEAD, _KEY, _PLAIN, _LAST = range(4)
_LEAD_SHARE = 4  # a quarter of the room is reserved for the introduction
_LONG_SHARE = 2  # a section that takes more than half of the room waits for the shorter ones
KEY_AREAS = frozenset(
    ("contents", "table of contents", "toc", "overview", "summary", "目录", "概述", "概览")
)


class Cut(NamedTuple):
    """The part of a text that was kept, and how it was chosen."""

    text: str
    strategy: Strategy


class _Block(NamedTuple):
    """A heading and its own text, without the sections below it. Level 0 has no heading."""

    title: str
    level: int
    text: str
    rank: int


def line_count(text: str) -> int:
    """Return the number of lines; one without a final newline counts."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def head(text: str, chars: int) -> str:
    """Return the beginning of the text within a limit, up to a line end if one is near."""
    if len(text) <= chars:
        return text
    chars = max(chars, 0)
    end = text.rfind("\n", 0, chars) + 1
    return text[: end if end > chars // 2 else chars]


def pages(text: str, start_line: int, count: int | None) -> str:
    """Return the lines from `start_line` (counted from 1), at most `count` of them."""
    rows = text.split("\n")
    first = max(start_line, 1) - 1
    last = len(rows) if count is None else first + max(count, 0)
    chosen = "\n".join(rows[first:last])
    return chosen + "\n" if first < last < len(rows) else chosen


def key_area(text: str) -> Section | None:
    """Return the section that lists the contents of the text, if there is one."""
    found = sections(text)
    return next((section for section in found if folded(section.title) in KEY_AREAS), None)


def cut_body(text: str, max_lines: int, max_chars: int, hint: str = "") -> Cut:
    """Cut a text to both limits: whole sections, the most important ones first.

    A last line names what was left out, followed by `hint`.
    """
    room = max_chars - _NOTE_CHARS - len(hint)
    blocks = _blocks(text)
    if len(blocks) < 2:
        kept = [_cut_at_paragraph(text, max_lines - 2, room)]
        note = _describe_rest(text, kept[0])
    else:
        chosen = _Choice(blocks, max_lines - 2, room).kept
        kept = [chosen[place] for place in sorted(chosen)]
        dropped = [block.title for place, block in enumerate(blocks) if place not in chosen]
        short = [blocks[at].title for at in sorted(chosen) if chosen[at] != blocks[at].text]
        note = " ".join(
            filter(None, (_list_titles("Left out", dropped), _list_titles("Cut short", short)))
        )
    whole = "".join(part if part.endswith("\n") else f"{part}\n" for part in kept if part)
    whole += f"\n[Cut to fit the limit. {note}{' ' + hint if hint else ''}]\n"
    return Cut(
        head(pages(whole, 1, max_lines), max_chars), "sections" if len(blocks) > 1 else "head"
    )


def _describe_rest(text: str, kept: str) -> str:
    """Say at which line the rest begins, unless that is inside a line."""
    if not kept.endswith("\n"):
        return "The rest is left out."
    # The last line may be a closing fence that is not in the text.
    return f"The rest is left out, from line {line_count(kept) + text.startswith(kept)} on."


def without_last_heading(text: str) -> str:
    """Return the beginning of a text without a last heading whose own text was cut off."""
    found = sections(text)
    return text[: found[-1].start] if found and _is_bare(text[found[-1].start :]) else text


def _is_bare(text: str) -> bool:
    """Return whether a block is only its heading, which may have an underline."""
    rows = [row for row in text.split("\n") if row.strip()]
    return len(rows) < 2 or (len(rows) == 2 and not rows[1].strip(" \t\r=-"))


def _list_titles(what: str, titles: list[str]) -> str:
    if not titles:
        return ""
    most = _MOST_NAMED if what == "Left out" else _MOST_SHORTENED
    names = [shorten(one_line(plain(one)), _NAME_CHARS) or _UNTITLED for one in titles[:most]]
    rest = len(titles) - len(names)
    return f"{what}: {', '.join(names)}{f' and {rest} more' if rest else ''}."


class _Choice:
    """Chooses what to keep of each block within a number of lines and characters.

    The introduction has a share of the room. Then come the important sections, the long ones last
    and in equal parts; then the other sections, the rest of the introduction, and the unimportant
    sections.
    """

    def __init__(self, blocks: list[_Block], max_lines: int, max_chars: int) -> None:
        self._blocks = blocks
        self._lines, self._chars = max_lines, max_chars
        self.kept: dict[int, str] = {}
        leads = self._of_rank(_LEAD)
        self._keep_leads(leads)
        keys = self._of_rank(_KEY)
        short = {one for one in keys if self._fits(one, _LONG_SHARE, max_lines, max_chars)}
        for place in keys:
            if place in short:
                self._keep(place, self._lines, self._chars)
        long = [place for place in keys if place not in short]
        for left, place in zip(range(len(long), 0, -1), long, strict=True):
            self._keep(place, self._lines // left, self._chars // left)
        self._keep_whole(self._of_rank(_PLAIN))
        for place in leads:
            self._grow(place)
        self._keep_whole(self._of_rank(_LAST))
        self._drop_bare()

    def _of_rank(self, rank: int) -> list[int]:
        return [place for place, block in enumerate(self._blocks) if block.rank == rank]

    def _fits(self, place: int, parts: int, max_lines: int, max_chars: int) -> bool:
        text = self._blocks[place].text
        return line_count(text) <= max_lines // parts and len(text) + 1 <= max_chars // parts

    def _keep_leads(self, places: list[int]) -> None:
        # If nothing else is kept, the share is everything.
        share = _LEAD_SHARE if len(places) < len(self._blocks) else 1
        rows, chars = self._lines // share, self._chars // share
        for place in places:
            text = self._keep(place, rows, chars)
            rows, chars = rows - line_count(text), chars - len(text) - 1

    def _keep(self, place: int, max_lines: int, max_chars: int) -> str:
        """Keep a block, or its beginning if it does not fit; never a heading alone."""
        block = self._blocks[place]
        text = block.text
        if not self._fits(place, 1, max_lines, max_chars):
            text = _cut_at_paragraph(text, max_lines, max_chars)
            text = "" if block.level and _is_bare(text) else text
        if text:
            self.kept[place] = text
            self._lines -= line_count(text)
            self._chars -= len(text) + 1
        return text

    def _keep_whole(self, places: list[int]) -> None:
        for place in places:
            if self._fits(place, 1, self._lines, self._chars):
                self._keep(place, self._lines, self._chars)

    def _grow(self, place: int) -> None:
        """Keep more of a block, if there is room."""
        before = self.kept.pop(place, "")
        self._lines += line_count(before)
        self._chars += len(before) + bool(before)
        self._keep(place, self._lines, self._chars)

    def _drop_bare(self) -> None:
        """Drop headings that have no text if no section below them was kept."""
        nearest = 0  # the lowest level up to the next kept block; 0 if there is none
        for place in range(len(self._blocks) - 1, -1, -1):
            block = self._blocks[place]
            if place in self.kept and block.level >= nearest and _is_bare(block.text):
                del self.kept[place]
            nearest = block.level if place in self.kept else min(nearest, block.level)


def _cut_at_paragraph(text: str, max_lines: int, max_chars: int) -> str:
    """Return the beginning up to the end of a paragraph; close an open code fence."""
    room = min(len(pages(text, 1, max(max_lines, 0))), max(max_chars, 0))
    if room < 1:
        return ""
    ends = (at for at, line, verbatim in lines(text[:room]) if not line.strip() and not verbatim)
    end = max(ends, default=0)
    if end > room // 2:
        return text[:end]
    return (
        _close_fence(head(pages(text, 1, max_lines - 1), max_chars - _FENCE_CHARS)) or text[:room]
    )


def _close_fence(text: str) -> str:
    whole = text if text.endswith("\n") or not text else f"{text}\n"
    opening, before = "", False
    for _, line, verbatim in lines(whole):
        opening = line if verbatim and not before else opening
        before = verbatim
    fence = _FENCE.match(opening)
    return f"{whole}{fence[1]}\n" if before and fence else text


def _blocks(text: str) -> list[_Block]:
    found = sections(text)
    starts = [section.start for section in found]
    ends = [*starts[1:], len(text)]
    before = text[: starts[0]] if starts else text
    ranks = _ranks(found, len(text))
    blocks = [_Block("", 0, before, _LEAD)] if before.strip() else []
    parts = zip(found, ranks, ends, strict=False)
    return blocks + [
        _Block(one.title, one.level, text[one.start : end], rank) for one, rank, end in parts
    ]


def _ranks(found: list[Section], size: int) -> list[int]:
    """Return the rank of each section's own text; a neutral one takes its parent's rank."""
    ranks: list[int] = []
    above: list[tuple[Section, int]] = []
    examples = 0
    for place, section in enumerate(found):
        while above and above[-1][0].end <= section.start:
            above.pop()
        title = plain(section.title)
        inherited = above[-1][1] if above else _PLAIN
        if place == 0 and section.end == size:
            rank, passed_on = _LEAD, _PLAIN  # the title of the whole
        elif _EXAMPLES.search(title) and inherited < _LAST:
            examples += 1
            rank = passed_on = _PLAIN if examples == 1 else _LAST
        else:
            rank = passed_on = _rank(title, inherited)
        ranks.append(rank)
        above.append((section, passed_on))
    return ranks


def _rank(title: str, inherited: int) -> int:
    if _DROPPED.search(title):
        return _LAST
    if _KEPT.search(title):
        return _KEY
    return _LEAD if _LEADING.search(title) else inherited
