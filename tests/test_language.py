"""The words of the product: plain English, in code and on the pages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.source_code import statements

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "skillbelt"
# The cache key of the WASM interpreter is a hash over its guest files, so that a changed comment
# rebuilds the component, which needs the network: they wait for the next change of their code.
GUESTS = SOURCE / "sandbox" / "wasm" / "guests"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if GUESTS not in path.parents)
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "design").glob("*.md")),
]
# Words that hide who does what, or that an engineer would not search for. The right column says
# what to write.
BANNED = {
    r"whoever|somebody|nobody|anybody": "name the subject: the caller, the user, the process",
    r"(?:is|are|was|were|be|being) told": "say who reports what, and where",
    r"wherever|whatever|whichever|whomever": "name what is meant: any folder, every value",
    r"as good as new": "say what state it is in",
    r"keeps? house|keeping house": "delegate, clean up",
    r"mend|mends|mended|mending": "fix",
    r"can not": "cannot",
    r"(?:has|have|had) not (?:the|a|an|its|their|any)": "does not have",
    r"(?:be|is|are) had": "is available, can be found",
    r"thereby|thereof|therein|wherein|whereby": "say what does it",
    r"for the occasion": "temporary",
    r"the one who|such one|one and the same": "name the subject: the requester, the same process",
    r"parted|parting": "separate",
    r"hence|whence|thence|hither|thither|whilst|amongst": "so, from there, while, among",
    r"hands? down|handed down": "delegate, pass on",
    r"(?:bring|brings|brought|come|comes|came) along": "contains, arrives with",
    r"(?:hang|hangs|hung) on": "depends on, waits for",
}
VALUES = {'"nobody"', "`nobody`"}  # a value in documents that programs read, and its mention
# Code does without these words too; pages may have them.
BANNED_IN_CODE = {
    r"who (?:waits|watches|asks|needs|uses|has|gets|reads|gives|enters|misses|wants)": "the caller",
    r"for ever": "forever",
    r"that which|as good as|none of ours|if need be": "name what is meant",
    r"let go of|lets go of": "close, release",
    r"time-outs?": "timeout",
    r"small letters": "lower case",
}
QUESTION_WORDS = {"What", "Who", "Whose", "How", "Where", "Which", "As", "That", "Those", "Such"}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _compile(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\b(?:" + "|".join(words).replace(" ", r"\s+") + r")\b", re.IGNORECASE)


_PATTERN = _compile(BANNED)
_PATTERN_IN_CODE = _compile(BANNED_IN_CODE)


def texts(module: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each comment and string, if the module has a word to find."""
    source = module.read_text("utf-8")
    if not pattern.search(source):
        return  # most modules; to split one into tokens takes long
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) and token.string not in VALUES:
            yield token.start[0], token.string


def banned(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line offset and the word of each banned word."""
    for match in _PATTERN.finditer(text):
        if text[max(match.start() - 1, 0) : match.end() + 1] in VALUES:
            continue
        yield text.count("\n", 0, match.start()), match[0]


def _blank(block: re.Match[str]) -> str:
    """Replace a block of code by as many empty lines."""
    return "\n" * block[0].count("\n")


def test_code_speaks_plain_english() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{line + offset}: {word!r}"
        for module in MODULES
        for line, text in texts(module, _PATTERN)
        for offset, word in banned(text)
    ]
    assert not found


def test_pages_speak_plain_english() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{1 + offset}: {word!r}"
        for page in PAGES
        for offset, word in banned(_FENCE.sub(_blank, page.read_text("utf-8")))
    ]
    assert not found


def test_code_does_without_further_words() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{line + text.count(chr(10), 0, match.start())}: {match[0]!r}"
        for module in MODULES
        for line, text in texts(module, _PATTERN_IN_CODE)
        for match in _PATTERN_IN_CODE.finditer(text)
    ]
    assert not found


def docstrings(module: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring of a module."""
    tree = ast.parse(module.read_text("utf-8"))
    for node in (tree, *statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for module in MODULES
        for line, text in docstrings(module)
        if text.split()[0] in QUESTION_WORDS
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "Nobody can do this.",
        "It is\n told so.",
        "mended",
        "It can not be read.",
        "It is to be had there.",
    ],
)
def test_banned_words_are_found(text: str) -> None:
    assert list(banned(text))


@pytest.mark.parametrize("text", ["Recommend a skill.", "It cannot be read.", "amended"])
def test_other_words_are_not(text: str) -> None:
    assert not list(banned(text))
