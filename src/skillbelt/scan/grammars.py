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


@cache
def _language(name: str) -> Language:
    return Language(_GRAMMARS[name]())


def parse_tree(text: bytes, language: str) -> Node:
    """Return the root of the syntax tree. A parser of its own for each call: threads share none."""
    return Parser(_language(language)).parse(text).root_node
