"""Split Markdown into paragraphs, blocks of code and comments, without the frontmatter.

A line reader and not a whole parser of CommonMark: it keeps the lines, takes time in proportion to
the text, and what it takes for prose instead of code is read as prose and as commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from skillbelt.records import NamedTuple
from skillbelt.text import Lazy

_FENCE = Lazy(r"[ \t>]{0,20}(`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)")
_COMMENT = Lazy(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_LINK_COMMENT = Lazy(r"(?m)^\[(?://|comment|_)\]:\s*(?:#|<>)\s*[(\"'](.*)[)\"']\s*$")
_HIDDEN_TAG = Lazy(
    r"(?i)<(\w++)[^<>]*(?:<[^<>]*){0,3}?(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0"
    r"|opacity\s*:\s*0(?![.\d])"
    r"|color\s*:\s*(?:white|#fff(?:fff)?|transparent)|\bhidden\b)[^>]{0,200}>"
)
_MAX_HIDDEN = 2_000
# The number of tags to try as the closing one: `</p` also begins `</pre>`.
_MAX_CLOSING = 8
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
# Text that only a tool shows: the values of attributes.
_ATTRIBUTE = Lazy(
    r"(?i)<\w[^<>]{0,200}?[\s\"'](?:title|alt|aria-\w+|data-[\w-]{1,40}|content|value|placeholder"
    r"|summary)=(?:\"([^\"<>]{30,1000})\"|'([^'<>]{30,1000})')"
)
# Every text with a part hidden in this way has one of these.
_HIDING = ("display", "visibility", "font-size", "opacity", "color", "hidden")
_INLINE = Lazy(r"(?<!`)(`{1,3})(?!`)([^`\n]{3,400})\1(?!`)")
# White space that pushes the text behind it off the screen: lines, or characters of one line.
_BLANKS = Lazy(r"[ \t\u00a0\u3000\n]{41,}+")
_BLANK_LINES, _BLANK_CHARS = 41, 200
# A search for a run of them is faster in bytes.
_IN_BLANKS = bytes(code in b" \t\n" for code in range(256))
_BLANK_RUN = b"\1" * _BLANK_LINES
_PUSHED = Lazy(r"\S[^\n]{10,}")
_IMAGE_ADDRESS = Lazy(r"\]\(\s{0,20}<?(https?://(?:[^)\s<>]|(?<==)<){1,1000})")

CodeLanguage = str
_LANGUAGES = {
    **dict.fromkeys(
        ("bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "shellscript", "ksh",
         "fish"), "shell"),
    **dict.fromkeys(("python", "py", "python3", "ipython", "pycon"), "python"),
    **dict.fromkeys(("javascript", "js", "jsx", "mjs", "cjs", "node"), "javascript"),
    **dict.fromkeys(("typescript", "ts", "tsx"), "typescript"),
    **dict.fromkeys(("powershell", "ps1", "pwsh", "posh"), "powershell"),
    **dict.fromkeys(("bat", "cmd", "batch"), "powershell"),
    **dict.fromkeys(("json", "yaml", "yml", "toml", "ini", "xml", "csv", "env", "dotenv"), "data"),
}  # fmt: skip


class ShownCode(NamedTuple):
    """A block of code: its language, text and first line, and the prose before it."""

    language: CodeLanguage
    text: str
    line: int
    before: str


class Paragraph(NamedTuple):
    """Prose without an empty line in it, its first line, and the heading above it."""

    text: str
    line: int
    heading: str


class ReadMarkdown(NamedTuple):
    """A Markdown text in parts."""

    paragraphs: tuple[Paragraph, ...]
    blocks: tuple[ShownCode, ...]
    hidden: tuple[Paragraph, ...]
    # All of it without the comments, on the same lines.
    shown: str


def read_markdown(text: str, first_line: int = 1) -> ReadMarkdown:
    """Return the parts of a text whose first line has that number."""
    hidden = tuple(_hidden(text, first_line))
    paragraphs: list[Paragraph] = []
    blocks: list[ShownCode] = []
    pending: list[str] = []
    start, heading, fence, language = first_line, "", "", ""
    shown = text
    if "<!--" in text:
        shown = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(shown.split("\n"), first_line):
        opened = _find_fence(line)
        if fence:
            if (
                opened
                and opened[1][0] == fence[0]
                and len(opened[1]) >= len(fence)
                and not opened[2]
            ):
                before = paragraphs[-1].text if paragraphs else ""
                blocks.append(
                    ShownCode(language, "\n".join(pending), start + 1, f"{heading}\n{before}")
                )
                pending, fence, start = [], "", number + 1
            else:
                pending.append(line)
        elif opened:
            _flush(pending, start, heading, paragraphs)
            pending, fence, start = [], opened[1], number
            language = _LANGUAGES.get(opened[2].lower(), opened[2].lower())
        elif not line.strip():
            _flush(pending, start, heading, paragraphs)
            pending = []
        else:
            if line.startswith("#"):
                heading = line.strip("# ")
            if not pending:
                start = number
            pending.append(line)
    if fence:
        blocks.append(ShownCode(language, "\n".join(pending), start + 1, heading))
    else:
        _flush(pending, start, heading, paragraphs)
    # A block that the last line opens has no line of its own.
    filled = tuple(one for one in blocks if one.text)
    return ReadMarkdown(tuple(paragraphs), filled, hidden, shown)


def _find_fence(line: str) -> re.Match[str] | None:
    """Return the mark that opens or closes a block; one that does both opens nothing."""
    found = _FENCE.match(line) if "```" in line or "~~~" in line else None
    return None if found and found[1][0] in line[found.end(1) :] else found


def _flush(pending: list[str], start: int, heading: str, found: list[Paragraph]) -> None:
    if pending:
        found.append(Paragraph("\n".join(pending), start, heading))


def _hidden(text: str, first_line: int) -> Iterator[Paragraph]:
    """Yield what a rendered page does not show."""
    for form, sign in ((_COMMENT, "<!--"), (_LINK_COMMENT, "]:")):
        found = form.finditer(text) if sign in text else iter(())
        for match, line in number_lines(found, text, first_line):
            yield Paragraph(match[1].strip(), line, "")
    folded = text.lower() if "</" in text else ""
    if not any(word in folded for word in _HIDING):
        return
    if len(folded) != len(
        text
    ):  # one letter became two in lower case, so the positions would differ
        folded = text.translate(_LOWER)
    at, counted, line = 0, 0, first_line
    while (tag := _HIDDEN_TAG.search(text, at)) is not None:
        end = _find_closing(folded, tag[1].lower(), tag.end() + 1)
        at = tag.start() + 1 if end < 0 else end
        if end >= 0:
            line += text.count("\n", counted, tag.start())
            counted = tag.start()
            yield Paragraph(text[tag.end() : end].strip(), line, "")


def _find_closing(folded: str, name: str, start: int) -> int:
    """Return where the tag that closes an element begins, -1 if there is none near."""
    mark = f"</{name}"
    end = start + _MAX_HIDDEN + len(mark)
    for _ in range(_MAX_CLOSING):
        at = folded.find(mark, start, end)
        if at < 0 or folded[at + len(mark) : at + len(mark) + 1] in (">", " ", "\t", "\n", "/"):
            return at
        start = at + 1
    return -1


def number_lines(
    matches: Iterable[re.Match[str]], text: str, first_line: int = 0
) -> Iterator[tuple[re.Match[str], int]]:
    """Yield matches in their order, each with the line it begins in; the text is counted once."""
    at, line = 0, first_line
    for match in matches:
        line += text.count("\n", at, match.start())
        at = match.start()
        yield match, line


def find_attributes(text: str, first_line: int = 1) -> Iterator[Paragraph]:
    """Yield the long values of attributes of HTML."""
    found = _ATTRIBUTE.finditer(text) if "<" in text and "=" in text else iter(())
    for match, line in number_lines(found, text, first_line):
        yield Paragraph(match[1] or match[2], line, "")


def find_padded(text: str, first_line: int = 1) -> Iterator[Paragraph]:
    """Yield text that stands behind a long run of blank space."""
    plain = text.replace("\u00a0", " ").replace("\u3000", " ")
    if _BLANK_RUN not in plain.encode("utf-8", "surrogatepass").translate(_IN_BLANKS):
        return
    for blanks, line in number_lines(_BLANKS.finditer(text), text, first_line):
        last = blanks[0].rpartition("\n")[2]
        pushes = len(last) >= _BLANK_CHARS or blanks[0].count("\n") >= _BLANK_LINES
        match = _PUSHED.match(text, blanks.end()) if pushes else None
        if match is not None:
            yield Paragraph(match[0], line + blanks[0].count("\n"), "")


def inline_code(text: str) -> Iterator[tuple[str, int]]:
    """Yield the code inside prose, with the line it stands in, counted from 0."""
    for match, line in number_lines(_INLINE.finditer(text), text):
        code = match[2].strip()
        if len(match[1]) == 3:  # a block in one line has its language first
            first, _, rest = code.partition(" ")
            code = rest if _LANGUAGES.get(first.lower()) else code
        yield code, line


def remote_images(text: str) -> Iterator[tuple[str, int]]:
    """Yield the addresses of images, which a page fetches when it is shown."""
    for match, line in number_lines(_IMAGE_ADDRESS.finditer(text), text):
        start = text.rfind("]", 0, match.start()) + 1
        opened = text.find("![", start, match.start())
        if opened >= 0:
            yield match[1], line - text.count("\n", opened, match.start())
