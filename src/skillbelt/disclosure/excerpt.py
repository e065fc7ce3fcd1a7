"""Choose which part of a text to give when the whole is too long. Everything here is pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from skillbelt.format.sections import Section, folded, lines, plain, sections
from skillbelt.text import one_line, shorten

Strategy = Literal["whole", "sections", "head", "section", "lines"]

_MOST_NAMED = 8
_NAME_CHARS = 40
_NOTE_CHARS = _MOST_NAMED * (_NAME_CHARS + 2) + 80
# Headings of what a reader needs: when to use it, what to do, when it is done, where more is.
_KEPT = re.compile(
    r"\b(?:when|triggers?|activation|use cases?|steps?|usage|use|using|workflows?|process|procedure"
    r"|instructions?|how to|quick ?start|getting started|rules?|guidelines?|requirements?"
    r"|constraints?|output|acceptance|verif\w*|validat\w*|check ?lists?|self[- ]?(?:check|review)"
    r"|success criteria|definition of done|resources?|references?|index|contents|overview|summary"
    r"|files|documents?|documentation)\b"
    r"|触发|何时|使用|适用|步骤|用法|流程|工作流|操作|指令|指南|规则|要求|输出|验收|验证|校验|自检"
    r"|检查|资源|参考|引用|索引|目录|概述|概览|总览",
    re.IGNORECASE,
)
_EXAMPLES = re.compile(r"\b(?:examples?|samples?|demos?)\b|示例|例子|样例|案例|举例", re.IGNORECASE)
_DROPPED = re.compile(
    r"\b(?:background|history|motivation|rationale|philosophy|change ?log|release notes|credits"
    r"|acknowledge?ments?|licen[cs]e|authors?|about|trivia|further reading|appendix)\b"
    r"|背景|历史|动机|缘由|更新日志|致谢|许可|作者|附录",
    re.IGNORECASE,
)
_FENCE = re.compile(r"[ \t]*+(`{3,8}|~{3,8})(?![`~])")
_FENCE_CHARS = 10  # room for the longest of them and two ends of lines
_FIRST, _KEY, _PLAIN, _LAST = range(4)
KEY_AREAS = frozenset(
    ("contents", "table of contents", "toc", "overview", "summary", "目录", "概述", "概览")
)


class Cut(NamedTuple):
    """The part that was kept of a text, and how it was chosen."""

    text: str
    strategy: Strategy


class _Block(NamedTuple):
    """A heading and its own text, without the sections below it."""

    title: str
    text: str
    rank: int


def line_count(text: str) -> int:
    """Return how many lines the text has; one without a final newline counts."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def head(text: str, chars: int) -> str:
    """Return the beginning of the text within a limit, up to the end of a line if one is near."""
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
    """Cut a text to both limits: whole sections, the ones a reader needs most before others.

    What was left out is named in a last line, followed by `hint`.
    """
    room = max_chars - _NOTE_CHARS - len(hint)
    blocks = _blocks(text)
    if len(blocks) < 2:
        kept, dropped = [_beginning(text, max_lines - 2, room)], []
    else:
        chosen = _chosen(blocks, max_lines - 2, room)
        kept = [chosen[place] for place in sorted(chosen)]
        dropped = [block.title for place, block in enumerate(blocks) if place not in chosen]
    whole = "".join(part if part.endswith("\n") else f"{part}\n" for part in kept if part)
    whole += _note(dropped, hint)
    return Cut(
        head(pages(whole, 1, max_lines), max_chars), "sections" if len(blocks) > 1 else "head"
    )


def _note(dropped: list[str], hint: str) -> str:
    titles = dropped[:_MOST_NAMED]
    named = [shorten(one_line(plain(title)), _NAME_CHARS) or "untitled" for title in titles]
    rest = len(dropped) - len(named)
    words = ", ".join(named) + (f" and {rest} more" if rest else "")
    what = f"Left out: {words}." if words else "The rest is left out."
    return f"\n[Cut to fit the limit. {what}{' ' + hint if hint else ''}]\n"


def _chosen(blocks: list[_Block], lines_left: int, chars_left: int) -> dict[int, str]:
    """Return the text to keep of each block that is kept, by its position."""
    kept: dict[int, str] = {}
    for place in sorted(range(len(blocks)), key=lambda place: (blocks[place].rank, place)):
        block = blocks[place]
        text = block.text
        if line_count(text) > lines_left or len(text) + 1 > chars_left:
            # The beginning of an important section is more useful than all of another.
            text = _beginning(text, lines_left, chars_left) if block.rank <= _KEY else ""
        if text:
            kept[place] = text
            lines_left -= line_count(text)
            chars_left -= len(text) + 1
    return kept


def _beginning(text: str, max_lines: int, max_chars: int) -> str:
    """Return the beginning up to the end of a paragraph; close a code fence that stays open."""
    room = min(len(pages(text, 1, max(max_lines, 0))), max(max_chars, 0))
    if room < 1:
        return ""
    ends = (at for at, line, verbatim in lines(text[:room]) if not line.strip() and not verbatim)
    end = max(ends, default=0)
    if end > room // 2:
        return text[:end]
    return _closed(head(pages(text, 1, max_lines - 1), max_chars - _FENCE_CHARS)) or text[:room]


def _closed(text: str) -> str:
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
    blocks = [_Block("", before, _FIRST)] if before.strip() else []
    parts = zip(found, ranks, ends, strict=False)
    return blocks + [_Block(one.title, text[one.start : end], rank) for one, rank, end in parts]


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
            rank, passed_on = _FIRST, _PLAIN  # the title of the whole
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
    return _KEY if _KEPT.search(title) else inherited
