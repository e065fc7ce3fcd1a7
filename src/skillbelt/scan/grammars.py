"""The parsers of the extra `scan`: tree-sitter with the grammars of shell and JavaScript.

Everything of the extra is imported here. tree-sitter was chosen over bashlex: it parses on after an
error instead of raising, knows all of bash's syntax, has no recursion of its own in Python, and one
library serves shell, JavaScript and TypeScript.
"""

from __future__ import annotations

import threading
import warnings
from functools import cache

import tree_sitter_bash
import tree_sitter_javascript
import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

_GRAMMARS = {
    "shell": tree_sitter_bash.language,
    "javascript": tree_sitter_javascript.language,
    "typescript": tree_sitter_typescript.language_tsx,
}


# The grammar of the shell looks characters up in tables of C, which end at 255: a character beyond
# reads foreign memory or ends the process. To the shell it is a part of a word.
_IN_ASCII = bytes(code if code < 128 else ord(".") for code in range(256))


@cache
def _load_language(name: str) -> Language:
    return Language(_GRAMMARS[name]())


class Parsers(threading.local):
    """The parsers of one thread, by language."""

    def __init__(self) -> None:
        self.made: dict[str, Parser] = {}

    def find(self, language: str) -> Parser:
        """Return the parser of a language."""
        if language not in self.made:
            # The replacement of this bound crashes the process in every version of the binding.
            warnings.filterwarnings("ignore", "Use the progress_callback", DeprecationWarning)
            most = int(PARSE_SECONDS * 1_000_000)
            self.made[language] = Parser(_load_language(language), timeout_micros=most)
        return self.made[language]


# For one text. Honest code takes 0.3 seconds per 500 kB; other text can take quadratic time.
PARSE_SECONDS = 2.0
_parsers = Parsers()


def parse_tree(text: bytes, language: str) -> Node | None:
    """Return the root of the syntax tree, None if that takes too long.

    The tree of a shell text has the places of the text, and a dot for each byte that is not ASCII.
    """
    if language == "shell":
        text = text.translate(_IN_ASCII)
    parser = _parsers.find(language)
    try:
        return parser.parse(text).root_node
    except ValueError:
        parser.reset()
        return None
