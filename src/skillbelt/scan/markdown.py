"""Take Markdown apart: frontmatter left out, prose by paragraphs, code by blocks, comments.

A line reader and not a whole parser of CommonMark: it keeps the lines, takes time in proportion to
the text, and what it takes for prose instead of code is read as prose and as commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"[ \t>]{0,20}(`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)")
_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_LINK_COMMENT = re.compile(r"(?m)^\[(?://|comment|_)\]:\s*(?:#|<>)\s*[(\"'](.*)[)\"']\s*$")
_HIDDEN_HTML = re.compile(
    r"(?is)<(\w+)[^<>]*(?:<[^<>]*){0,3}?(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0"
    r"|opacity\s*:\s*0(?![.\d])"
    r"|color\s*:\s*(?:white|#fff(?:fff)?|transparent)|\bhidden\b)[^>]{0,200}>(.{1,2000}?)</\1>"
)
# Text that only a tool shows: the values of attributes.
_ATTRIBUTE = re.compile(
    r"(?i)<\w[^<>]{0,200}?[\s\"'](?:title|alt|aria-\w+|data-[\w-]{1,40}|content|value|placeholder"
    r"|summary)=(?:\"([^\"<>]{30,1000})\"|'([^'<>]{30,1000})')"
)
# One of these is in every text of which a part is hidden so.
_HIDING = ("display", "visibility", "font-size", "opacity", "color", "hidden")
_INLINE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{3,400})\1(?!`)")
# White space that pushes what stands behind it off the screen: lines, or characters of one line.
_BLANKS = re.compile(r"[ \t\u00a0\u3000\n]{41,}+")
_BLANK_LINES, _BLANK_CHARS = 41, 200
_PUSHED = re.compile(r"\S[^\n]{10,}")
_DATA_IMAGE = re.compile(r"!\[[^\]]*\]\((https?://[^)\s]+)\)")

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
    return ReadMarkdown(tuple(paragraphs), tuple(blocks), hidden)


def _find_fence(line: str) -> re.Match[str] | None:
    """Return the mark that opens or closes a block; one that does both opens nothing."""
    found = _FENCE.match(line) if "```" in line or "~~~" in line else None
    return None if found and found[1][0] in line[found.end(1) :] else found


def _flush(pending: list[str], start: int, heading: str, found: list[Paragraph]) -> None:
    if pending:
        found.append(Paragraph("\n".join(pending), start, heading))


def _hidden(text: str, first_line: int) -> Iterator[Paragraph]:
    """Yield what a rendered page does not show."""
    folded = text.lower() if "<" in text else ""
    for form, group in ((_COMMENT, 1), (_LINK_COMMENT, 1), (_HIDDEN_HTML, 2)):
        if ("]:" if form is _LINK_COMMENT else "<") not in text:
            continue
        if form is _HIDDEN_HTML and not any(word in folded for word in _HIDING):
            continue
        for match in form.finditer(text):
            line = first_line + text.count("\n", 0, match.start())
            yield Paragraph(match[group].strip(), line, "")


def find_attributes(text: str, first_line: int = 1) -> Iterator[Paragraph]:
    """Yield the long values of attributes of HTML."""
    for match in _ATTRIBUTE.finditer(text) if "<" in text and "=" in text else ():
        line = first_line + text.count("\n", 0, match.start())
        yield Paragraph(match[1] or match[2], line, "")


def find_padded(text: str, first_line: int = 1) -> Iterator[Paragraph]:
    """Yield text that stands behind a long run of blank space."""
    for blanks in _BLANKS.finditer(text):
        last = blanks[0].rpartition("\n")[2]
        pushes = len(last) >= _BLANK_CHARS or blanks[0].count("\n") >= _BLANK_LINES
        match = _PUSHED.match(text, blanks.end()) if pushes else None
        if match is not None:
            line = first_line + text.count("\n", 0, match.start())
            yield Paragraph(match[0], line, "")


def inline_code(text: str) -> Iterator[tuple[str, int]]:
    """Yield the code inside prose, with the line it stands in, counted from 0."""
    for match in _INLINE.finditer(text):
        code = match[2].strip()
        if len(match[1]) == 3:  # a block in one line has its language first
            first, _, rest = code.partition(" ")
            code = rest if _LANGUAGES.get(first.lower()) else code
        yield code, text.count("\n", 0, match.start())


def remote_images(text: str) -> Iterator[tuple[str, int]]:
    """Yield the addresses of images, which a page that shows them calls up."""
    for match in _DATA_IMAGE.finditer(text):
        yield match[1], text.count("\n", 0, match.start())
