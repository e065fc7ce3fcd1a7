"""Judge texts that code puts together from constants, which a reader of the source does not see.

Readers of code call `judge_made_text` for each text that they could work out, in any language.
"""

from __future__ import annotations

import re
from typing import Literal

from skillbelt.scan.addresses import HOLE, find_urls, is_reserved
from skillbelt.scan.command_names import COMMAND_NAMES
from skillbelt.scan.ledger import MAX_NESTING, Ledger
from skillbelt.text import Lazy

# How much of a text stands in the source: all of it; its words, in another order; less than that.
Visibility = Literal["plain", "scattered", "hidden"]

MIN_MADE = 12
MAX_MADE = 64 * 2**10
_CHARS_OF_A_STEP = 10
_WORD = Lazy(r"[^\W\d_]{2,}")
_ESCAPED_END = Lazy(r"\\[abfnrtv0]")
_COMMAND_LINE = Lazy(
    rf"(?m)(?:^|[;&|`:(]|\b(?:run|execute|then|and)\b)[^\S\n]{{0,9}}{COMMAND_NAMES}([^\n]{{0,400}})"
)
# What a command acts on, behind its name.
_ACTED_ON = Lazy(r"://|(?:^|\s)(?:[~.]{0,2}/\w|-{1,2}\w)|\.(?:sh|py|js|exe|ps1)\b|\|\s{0,9}\w")
# Words that every sentence has some of.
_FUNCTION_WORDS = frozenset(
    """the and to of in is are you your that this with for from not all any do it be as or must
    should will then now when before after always never into on at by its have has
    der die das und ist nicht ein eine mit von zu den dem auf für sie
    le la les des et est une un pour dans avec que vous sur pas
    el los las una por con para del su que no se
    il di che non per con una gli nel della
    o os as um uma de com não para seu
    и в не на что с по для как это все или вы
    і та не що для""".split()
)
_MIN_WORDS = 5
# Letters of scripts that are written without blanks.
_UNSPACED = Lazy(r"[\u2e80-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")
_MIN_UNSPACED = 10


def judge_made_text(
    text: str, source: str, line: int, ledger: Ledger, *, spelled: bool = False
) -> None:
    """Note what a text says and does that code puts together.

    `source` is the code, `line` the place in it. `spelled` says that the text is made sign by
    sign: then it is read even if it also stands in the source.
    """
    text = text[:MAX_MADE]
    ledger.spend(1 + (len(text) + len(source)) // _CHARS_OF_A_STEP // 10)
    if len(text) < MIN_MADE or not _is_text(text):
        return
    seen = find_visibility(text, source)
    if seen == "plain" and not spelled:
        return
    if ledger.nesting < MAX_NESTING:
        ledger.reads_made_text(text, line)
    if seen == "hidden" and reads_like_order(text):
        ledger.find("assembled-text", line, text)
    elif seen == "scattered" and not is_command_line(text) and _is_prose(text):
        ledger.find("assembled-text", line, text)


def find_visibility(text: str, source: str) -> Visibility:
    """Return how much of a text a reader of the source sees: by its words, and by pairs of them."""
    words = _WORD.findall(text.lower())
    if not words:
        return "plain" if text in source else "hidden"
    shown = f" {' '.join(_WORD.findall(_ESCAPED_END.sub(' ', source.lower())))} "
    there = sum(f" {one} " in shown for one in words)
    if there * 2 < len(words):
        return "hidden"
    pairs = sum(f" {one} {other} " in shown for one, other in zip(words, words[1:], strict=False))
    return "scattered" if pairs * 2 < len(words) - 1 else "plain"


def reads_like_order(text: str) -> bool:
    """Whether a text is a command line, an address or a sentence."""
    named = any(not is_reserved(one.host) for one in find_urls(text, 5))
    return named or is_command_line(text) or _is_prose(text)


def is_command_line(text: str) -> bool:
    """Whether a text holds a command with something that it acts on."""
    return any(_ACTED_ON.search(one[1]) for one in _COMMAND_LINE.finditer(text))


def _is_text(text: str) -> bool:
    """Whether nearly all of a text is printable."""
    if "".join(text.split()).isprintable():
        return True
    strange = sum(not (one.isprintable() or one.isspace() or one == HOLE) for one in text)
    return strange * 50 < len(text)


def _is_prose(text: str) -> bool:
    """Whether a text has sentences in a language with spaces, or enough signs of another one."""
    if len(_UNSPACED.findall(text)) >= _MIN_UNSPACED:
        return True
    words = _WORD.findall(text.lower())
    letters = sum(map(len, words))
    if len(words) < _MIN_WORDS or letters * 10 < len(re.sub(r"\s+", "", text)) * 6:
        return False
    usual = sum(one in _FUNCTION_WORDS for one in words)
    return usual >= 2 and usual * 8 >= len(words)
