"""Split shell into commands by words, quotes and operators alone, where no parser is installed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_MAX_LINE = 4_000
_MAX_LINES = 5_000
_BREAKS = frozenset((";", "&&", "||", "&", ";;", "(", ")", "{", "}"))
_WORDS = frozenset(("then", "do", "else", "if", "while", "until", "elif", "!"))


def split_pipelines(text: str) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield for each pipeline its line, counted from 0, and the words of its commands."""
    joined = re.sub(r"\\\n", "  ", text)
    for at, line in enumerate(joined.split("\n")[:_MAX_LINES]):
        words = _split_words(line[:_MAX_LINE])
        pipeline: list[list[str]] = [[]]
        for word in words:
            if word in _BREAKS or word in _WORDS:
                yield from _close_pipeline(at, pipeline)
                pipeline = [[]]
            elif word in ("|", "|&"):
                pipeline.append([])
            else:
                pipeline[-1].append(word)
        yield from _close_pipeline(at, pipeline)


def _close_pipeline(at: int, pipeline: list[list[str]]) -> Iterator[tuple[int, list[list[str]]]]:
    commands = [words for words in pipeline if words]
    if commands:
        yield at, commands


def _split_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quote that does not end
        return line.split()
