"""Judge texts that code puts together from constants, which a reader of the source does not see.

Readers of code call `judge_made_text` for each text that they could work out, in any language.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import add
from typing import Literal

from skillbelt.scan.addresses import HOLE, find_urls, is_reserved
from skillbelt.scan.command_names import COMMAND_NAMES
from skillbelt.scan.decoding import has_run
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
_SENTENCE_WORDS = """
the and to of in is are you your that this with for from not all any do it be as or must should
will then now when before after always never into on at by its have has
der die das und ist nicht ein eine mit von zu den dem auf für sie
le la les des et est une un pour dans avec que vous sur pas
el los las una por con para del su que no se il di che non per gli nel della
o os um uma de com não seu и в не на что с по для как это все или вы і та що
"""
_FUNCTION_WORDS = frozenset(_SENTENCE_WORDS.split())
_MIN_WORDS = 5
_SAMPLE, _SAMPLES = 10, 4
_HOLE_OR_END = Lazy(rf"[\n\r\t{HOLE}]")
# Letters of scripts that are written without blanks.
_UNSPACED = Lazy(r"[\u2e80-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")
_MIN_UNSPACED = 10


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


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
    if _JUDGES[seen](text):
        ledger.find("assembled-text", line, text)


def find_visibility(text: str, source: str) -> Visibility:
    """Return how much of a text a reader of the source sees: by its words, and by pairs of them."""
    parts = [_WORD.findall(one) for one in text.lower().split(HOLE)]
    words = [one for part in parts for one in part]
    if not words or _is_written(text, source):
        return "plain"
    shown, shown_pairs = _find_words(source)
    if sum(one in shown for one in words) * 2 < len(words):
        return "hidden"
    pairs = [pair for part in parts for pair in itertools.pairwise(part)]
    together = sum(pair in shown_pairs for pair in pairs)
    return "scattered" if together * 3 < len(pairs) else "plain"


def _is_written(text: str, source: str) -> bool:
    """Whether samples of a text stand in the source; a cheap test for what is mostly so."""
    lines = [one for one in _HOLE_OR_END.split(text) if len(one) >= _SAMPLE]
    if not lines or sum(map(len, lines)) * 2 < len(text):
        return False
    step = max(len(lines) // _SAMPLES, 1)
    samples = [part for one in lines[::step] for part in (one[:_SAMPLE], one[-_SAMPLE:])]
    return sum(one in source for one in samples) * 5 >= len(samples) * 4


@lru_cache(maxsize=2)
def _find_words(source: str) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Return the words of a source, and those that stand beside each other."""
    words = _WORD.findall(_ESCAPED_END.sub(" ", source.lower()))
    return frozenset(words), frozenset(itertools.pairwise(words))


def reads_like_order(text: str) -> bool:
    """Whether a text is a command line, an address or a sentence."""
    named = any(not is_reserved(one.host) for one in find_urls(text, 5))
    return named or is_command_line(text) or _is_prose(text)


def is_command_line(text: str) -> bool:
    """Whether a text holds a command with something that it acts on."""
    return any(_ACTED_ON.search(one[1]) for one in _COMMAND_LINE.finditer(text))


_JUDGES: dict[Visibility, Callable[[str], bool]] = {
    "hidden": reads_like_order,
    "scattered": lambda text: _is_prose(text),
    # Taken apart and put together again, for no other reason than to confuse.
    "plain": is_command_line,
}


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


# What decodes, or works on single signs, and is seldom in honest code. Those with a pattern are
# also the end of other names; it begins with the text itself, which makes it fast.
_RARE_MEANS: tuple[tuple[str, re.Pattern[str] | None], ...] = (
    *((f"{one}(", Lazy(rf"{one}\((?<![\w.]{one}\()"))
      for one in ("chr", "bytes", "bytearray", "reduce")),
    ("chr", Lazy(r"chr(?<=[(,= ]chr)[,)]")),
    *((one, None) for one in _split("""maketrans fromhex unhexlify a2b_ 16decode 32decode
        64decode 85decode hexdecode decodebytes decodestring rot13 rot_13 rot-13 decompress
        to_bytes( codecs ::- (reversed( swapcase marshal""")),
    ("unquote", Lazy(r"(?:%[0-9a-fA-F]{2}){6}")),
    ("unescape", Lazy(r"(?:&#\w{1,6};){4}")),
    # The first letters of words, and parts in another order.
    ("] for", Lazy(r"\] for(?<=\d\] for)(?<=join\(\w\[\d\] for)")),
    ("{1}", Lazy(r"(?:\{\d{1,3}\}[^{}\n]{0,9}){6}")),
)  # fmt: skip
# Many `\\x` and `\\u`, which spell what they do not show.
_ESCAPES = Lazy(r"(?:\\{1,2}(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0-7]{3})){6}")
_ESCAPE_SIGNS = ("\\x", "\\u", "\\1", "\\0")
_LITERAL = Lazy(r"[\"']([^\"'\n]{25,})[\"']")
# Literals of one or two signs, one beside the other, when blanks are left out.
_IN_LITERALS = bytes(1 if code in b"\"'" else 2 if code in b",:" else 3 for code in range(256))
_BLANKS = b" \t\n"
_RUNS_OF_LITERALS = (b"\1\3\3\1\2" * 10, b"\1\3\1\2\1\3\3\1\2" * 5)
_SHORT_LITERAL, _MANY_LITERALS = b"\1\3\1\2", 20
_JOINS_SIGNS = ("''.join(", '"".join(')
_PAIRS = frozenset(
    _split("""
re on er in at es ti th en or te he st se nt an de co io al le it ed ta nd ar ro ra me ng ri li ec
is to et ns ve as ct ce il ne ca ge tr ic si ma pr ea om pe fi ch ac ll lo us el fo ou pa ut ur di
la ss ts nc po id pl ex am na un mp ha da no im ot ag od rt ad ap ie ol oc em ho mo do vi ep ul rs
ai va op ef su ev so if ow ty ck be ab mi os sk ig bl hi ru cr fe ly wi sc ke pt sh ni ir ue cu ry
tu cl lu qu pu ia iv ba sp ci ki ls rm ip um pi wh ee tt sa rc lt ui au gr oo pp fr
""")
)
_IN_NUMBERS = bytes(code in b"0123456789abcdefABCDEFxX ,;:\n" for code in range(256))
_RUN_OF_NUMBERS = b"\1" * 24
_NUMBERS = Lazy(r"(?:\b(?:0[xX][0-9a-fA-F]{1,6}|\d{1,6})[\s,;:]{1,9}){8}|\d{24}")
_FIELD = Lazy(r"\{\w{1,40}\}")
_MAX_LITERALS = 300
_MIN_PAIRS = 24
_SAMPLED = 100
# Of the pairs of letters in words, in per cent; signs that were moved have fewer.
_USUAL_SHARE = 64


def may_put_together(source: str) -> bool:
    """Whether code has the means to put a text together, and something to make it from."""
    for sign, form in _RARE_MEANS:
        if sign in source and (form is None or form.search(source)):
            return True
    if any(one in source for one in _ESCAPE_SIGNS) and _ESCAPES.search(source):
        return True
    if has_run(source, _IN_NUMBERS, _RUN_OF_NUMBERS) and _NUMBERS.search(source):
        return True
    data = source.encode("utf-8", "surrogatepass").translate(_IN_LITERALS, _BLANKS)
    if data.count(_SHORT_LITERAL) >= _MANY_LITERALS or any(
        run in data for run in _RUNS_OF_LITERALS
    ):
        return True
    literals = _LITERAL.findall(source)[:_MAX_LITERALS]
    if any(one in source for one in _JOINS_SIGNS) and any(map(is_command_line, literals)):
        return True
    return any(map(says_nothing, literals))


def find_means(source: str) -> Iterator[int]:
    """Yield where code has means to put a text together, or something to make it from."""
    for sign, form in _RARE_MEANS:
        if form is None:
            yield from itertools.islice(_find_all(sign, source), _MAX_LITERALS)
        elif sign in source:
            found = itertools.islice(form.finditer(source), _MAX_LITERALS)
            yield from (match.start() for match in found)
    if any(one in source for one in _ESCAPE_SIGNS):
        yield from (match.start() for match in itertools.islice(_ESCAPES.finditer(source), 50))
    if has_run(source, _IN_NUMBERS, _RUN_OF_NUMBERS):
        yield from (match.start() for match in itertools.islice(_NUMBERS.finditer(source), 50))
    for match in itertools.islice(_LITERAL.finditer(source), _MAX_LITERALS):
        if says_nothing(match[1]):
            yield match.start()


def _find_all(sign: str, source: str) -> Iterator[int]:
    at = source.find(sign)
    while at >= 0:
        yield at
        at = source.find(sign, at + 1)


def says_nothing(literal: str) -> bool:
    """Whether the letters of a literal do not follow each other as in words."""
    if literal.count("\\") > 2 or literal.startswith("/"):  # a pattern, or a path
        return False
    middle = max(len(literal) // 2 - _SAMPLED // 2, 0)
    sample = literal[middle : middle + _SAMPLED].lower()
    return _is_odd(sample) and ("{" not in sample or _is_odd(_FIELD.sub("", sample)))


def _is_odd(folded: str) -> bool:
    pairs = list(map(add, folded, folded[1:]))
    in_words = sum(map(str.isalpha, pairs))
    if in_words < _MIN_PAIRS:
        return False
    usual = sum(map(_PAIRS.__contains__, pairs))
    backwards = sum(map(_PAIRS.__contains__, map(add, folded[1:], folded)))
    return usual * 100 < in_words * _USUAL_SHARE or usual * 10 < backwards * 9
