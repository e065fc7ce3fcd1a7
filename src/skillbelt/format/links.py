"""Find the references in a skill's text: Markdown links, paths as code, and plain paths.

Reads only the text. Fenced blocks and HTML comments are left out: they are examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from skillbelt.records import NamedTuple
from skillbelt.text import Lazy

# The most references followed from one file; no author writes a longer list by hand.
MAX_REFERENCES = 1_000

# Quantifiers are bounded so that a hostile text costs time in proportion to its length.
_LINK = Lazy(r"\]\(\s{0,9}(<[^<>\n]{1,500}>|[^()\s<>]{1,500}+)(?=[\s)])")
_DEFINITION = Lazy(r" {0,3}\[[^\]\n]{1,200}\]:\s{1,9}(<[^<>\n]{1,500}>|[^\s<>]{1,500})")
_SPAN = Lazy(r"(?<!`)(`{1,2})(?!`)([^`\n]{1,300})\1(?!`)")
_SCHEME = Lazy(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_PLACEHOLDER = Lazy(r"[{}$*|\"'\\]|\.\.\.|…")
_FENCE = Lazy(r"\s{0,99}(`{3,}|~{3,})")
_MENTION = Lazy(r"(?:[\w.@+-]+/)+[\w.@+-]*\w\.[A-Za-z][A-Za-z0-9]{0,7}")
# Like a mention, but not inside a longer path or an address.
_PLAIN = Lazy(
    r"(?<![\w./:@~$\\-])(?:[\w@+-][\w.@+-]{0,99}/){1,20}[\w@+-][\w.@+-]{0,199}\.\w{1,8}(?![\w/])"
)
_LINE_SUFFIX = Lazy(r"(?::\d+(?:-\d+)?|#.*)$")
_ROOTS = ("${CLAUDE_SKILL_DIR}/", "{baseDir}/", "./")
# The folders that the format names, and the two other spellings that authors use most.
_FOLDERS = ("scripts", "references", "reference", "assets", "templates")


class Reference(NamedTuple):
    """One reference to a file in a text. A `link` is meant to be followed."""

    target: str
    line: int
    link: bool


def references(text: str, first_line: int = 1, *, most: int) -> Iterator[Reference]:
    """Return every relative link and every code path in the text, in order, up to a limit."""
    found = 0
    for number, line in enumerate(_prose(text), first_line):
        for reference in _in_line(line, number):
            yield reference
            found += 1
            if found == most:
                return


def plain_paths(text: str, *, most: int) -> Iterator[str]:
    """Return every word of the prose that looks like a path with a folder and an ending.

    The caller must check whether the file exists: prose also has words like `and/or.else`.
    """
    found = 0
    for line in _prose(text):
        for match in _PLAIN.finditer(line) if "/" in line else ():
            yield match[0]
            found += 1
            if found == most:
                return


def _in_line(line: str, number: int) -> Iterator[Reference]:
    spans = [match[2] for match in _SPAN.finditer(line)] if "`" in line else []
    bare = _SPAN.sub("", line) if spans else line
    if "](" in bare or "]:" in bare:
        definition = _DEFINITION.match(bare)
        targets = [definition[1]] if definition else [match[1] for match in _LINK.finditer(bare)]
        for target in filter(None, map(_relative, targets)):
            yield Reference(target, number, link=True)
    for span in spans:
        for target in filter(None, map(_mention, span.split())):
            yield Reference(target, number, link=False)


def _relative(target: str) -> str:
    """Return the path that a link names; "" if it leads to something other than a skill's file."""
    target = target.strip("<>")
    if _SCHEME.match(target) or _PLACEHOLDER.search(target):
        return ""
    path = unquote(re.split("[#?]", target, maxsplit=1)[0])
    return path if path.isprintable() else ""


def _mention(word: str) -> str:
    """Return the path that a word of code names, if it is in one of the format's folders."""
    for root in _ROOTS:
        word = word.removeprefix(root)
    word = _LINE_SUFFIX.sub("", word.strip("\"'(),;"))
    known = word.split("/", 1)[0] in _FOLDERS
    return word if known and _MENTION.fullmatch(word) else ""


def _prose(text: str) -> Iterator[str]:
    """Return the lines of the text, with those of fences and comments emptied."""
    fence = ""
    for line in _without_comments(text).split("\n"):
        mark = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            yield ""
        elif mark:
            fence = mark[1]
            yield ""
        else:
            yield line


def _without_comments(text: str) -> str:
    """Return the text with comments blanked; lines keep their numbers."""
    parts, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start)) >= 0:
        parts += [text[at:start], "\n" * text.count("\n", start, end)]
        at = end + 3
    return "".join([*parts, text[at:]])
