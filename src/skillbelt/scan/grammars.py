"""The parsers of the extra `scan`: tree-sitter with the grammars of shell and JavaScript.

Everything of the extra is imported here. tree-sitter was chosen over bashlex: it parses on after an
error instead of raising, knows all of bash's syntax, has no recursion of its own in Python, and one
library serves shell, JavaScript and TypeScript.
"""

from __future__ import annotations

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


# The grammar of the shell looks characters up in tables of C, which end at 255: what lies beyond is
# read from anywhere, or ends the process. To the shell such a character is a part of a word.
_IN_ASCII = bytes(code if code < 128 else ord(".") for code in range(256))


@cache
def _language(name: str) -> Language:
    return Language(_GRAMMARS[name]())


def parse_tree(text: bytes, language: str) -> Node:
    """Return the root of the syntax tree. A parser of its own for each call: threads share none.

    The tree of a shell text has the places of the text, and a dot for each byte that is not ASCII.
    """
    if language == "shell":
        text = text.translate(_IN_ASCII)
    return Parser(_language(language)).parse(text).root_node
