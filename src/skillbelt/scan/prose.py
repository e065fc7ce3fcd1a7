"""Read prose: instructions to a model that act against the user.

The patterns (`prose_rules.py`, `prose_languages.py`) look for what is asked, in text that was freed
from disguises first. A text that describes such words, as skills for security do, counts for
less.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, reduce
from itertools import accumulate
from operator import or_
from typing import TYPE_CHECKING

from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import find_urls, host_in, is_known, words_of
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.places import find_paths, is_env_file, place_class
from skillbelt.scan.prose_elsewhere import ELSEWHERE_PATTERNS
from skillbelt.scan.prose_languages import OTHER_LANGUAGES
from skillbelt.scan.prose_more_languages import MORE_LANGUAGES
from skillbelt.scan.prose_policies import POLICY_PATTERNS
from skillbelt.scan.prose_rules import PATTERNS, STEM, ProsePattern, lengthen
from skillbelt.scan.prose_statements import STATEMENTS
from skillbelt.scan.prose_tasks import TASK_PATTERNS
from skillbelt.scan.values import KINDS, FindingKind
from skillbelt.text import Lazy

if TYPE_CHECKING:
    import html
else:
    html = Late("html")  # cost: 3 ms, only for text with entities

# Characters that are read at once; a longer text is read in pieces that overlap.
MAX_PARAGRAPH = 20_000
_OVERLAP = 1_000
# A pattern, and the bits of the groups of words that it needs.
_Plan = tuple[ProsePattern, int]

# Just before a match: the text quotes or describes such words and gives no order.
_ABOUT = Lazy(
    r"(?:\be\.?g\b\.?|such as|for example|examples?\b|detect\w*|flags?\b"
    r"|look(?:ing)? for|watch (?:out )?for|scan(?:s|ning)? for|contain(?:s|ing)?"
    r"|attempts?|attacks?|injections?|patterns?|phrases?|red flags?|payloads?|test(?:s|ing)? "
    r"|never follow|refuse|malicious|suspicious|adversar\w*"
    r"|attacker|threat|risk|vulnerab\w*|says?|tells? (?:the|you)|trying to|tries to|prevent"
    r"|guard against|defend|protect|anti-pattern|warning signs?)[^.!?]{0,80}$"
    # The sentence forbids it, or a word right before introduces it.
    r"|\b(?:avoid|do not|don't|never|must not|should not)\b[^.!?\n]{0,80}$|\blike\b[^.\w]{0,4}$"
)


def is_about_security(words: frozenset[str]) -> bool:
    """Whether a skill is about attacks, so that its text describes them."""
    return bool(words & _SECURITY) or words >= _RED_TEAM


_SECURITY = words_of(
    "security pentest threat vulnerability injection malware forensics exploit attack "
    "guardrail jailbreak owasp adversarial hardening"
)
_RED_TEAM = words_of("red team")
# Before a match: the sentence states what may happen and gives no order.
_STATED = Lazy(r"\b(?:can|may|could|might|which|that|would|often|sometimes|they|it) (?:\w+ )?$")
_NEGATED = Lazy(
    r"\b(?:never|do not|don't|must not|should not|cannot|avoid|refuse to|won't"
    r"|will not)\b[^.;:\n]{0,60}$"
)
_CONFUSABLE = str.maketrans(
    "аеорсухіјѕԁһӏοαενρτυικΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТХІЈЅԛԝɡɩ’‘“”‐‑–—ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢ",
    "aeopcyxijsdhloaevptuikABEZHIKMNOPTYXABEKMHOPCTXIJSqwgi''\"\"----abcdefghijklmnopqrstuvwyz",
)
_USUAL_FORMS = (*zip("’‘“”‐‑–—", "''\"\"----", strict=True), ("…", "..."), ("\ufe0f", ""))
_SPACED = Lazy(r"\b(?:(?:\w[ .\-_*]){4,}\w|[^\W\d_]([ .\-*])(?:[^\W\d_]\1){2}[^\W\d_])\b")
# A cheap test first: every text that has one matches it.
_SPACED_HINT = Lazy(
    r"[ .\-_*]\w[ .\-_*]\w[ .\-_*]\w[ .\-_*]\w"
    r"|([ .\-*])[^\W\d_]\1[^\W\d_]\1[^\W\d_]\b(?<=\b[^\W\d_].[^\W\d_].[^\W\d_].[^\W\d_])"
)
_INVISIBLE = Lazy(
    "[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f\ufe00-\ufe0f]"
)


# Whole runs, so that each is searched once.
_MARKUP = Lazy(r"[*_`>|]++")
_HAS_MARKUP = Lazy(r"[*_`>|]")
# A pattern that starts with the markup and looks back is faster.
_INSIDE = Lazy(r"[*~](?<=\w.)(?:(?<=\*)\*{0,2}|(?<=~)~)(?=\w)")
_TAG = Lazy(
    r"(?i)</?(?:b|i|u|s|em|strong|span|br|p|div|a|code|font|mark|wbr|small|sub|sup)\b[^>]{0,200}>"
)
# A line that begins a new item, and not the rest of a sentence.
_ITEM_END = r"\n(?=[ \t]*(?:[-*+>#|]|\d{1,3}[.)]))|\n[ \t]*\n"
_ITEM = Lazy(_ITEM_END)
# What ends a sentence or an item with any markup beside it; some ends are left out.
_PARTS = Lazy(rf"{_ITEM_END}| (?<=[A-Za-z0-9)\]\"'][.!?] )")
_BULLET = Lazy(r"(?m)^[ \t]*(?:[-*+>#|]+|\d{1,3}[.)]) *")
_SENTENCE = Lazy(r"(?<=[\w)\]\"'`][.!?。！？]) +|(?<=[。！？])")
_PLAIN_SENTENCE = Lazy(r" (?<=[\w)\]\"'`][.!?] ) *")
# Turns signs that end a word into spaces.
_BETWEEN_WORDS = bytes(
    code if chr(code).isalnum() or chr(code) in "_'-@\n" or code > 127 else 32
    for code in range(256)
)
_WORDS = Lazy(r"\w[\w'-]*")
# "end-user" has "user", and "n'informez" has "informez".
_PARTS_OF_WORD = Lazy(r"[^\W_]+")
_REST_OF_WORD = Lazy(r"[^\s\"'`)<>]{0,200}")
_ENTITY = Lazy(r"&#?\w")
# All but plain letters and the signs that people write between words.
_USUAL_SIGNS = "‘’“”‐‑–—…•·→←↑↓↔⇒×≈≠≥≤±°§✓✔✗✘✅❌⚠★│┌┐└┘├┤┬┴┼─▶▼●○■□"
_SELECTOR = "\ufe0f"
_ODD = Lazy(rf"[^\x00-\x7f{_USUAL_SIGNS}{_SELECTOR}]|(?<=\w){_SELECTOR}|{_SELECTOR}(?=\w)")
_NOT_ODD = frozenset(_USUAL_SIGNS)
_ASCII = bytes(range(128))
_OTHER_SCRIPT = Lazy(
    "[\u0370-\u03ff]{4}|[\u0400-\u06ff\u0900-\u0dff\u0e00-\u0e7f\u10a0-\u10ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)


def fold(text: str) -> str:
    """Return the text in its normal form: lower case, no disguises, one sentence per line."""
    plain = text[:MAX_PARAGRAPH]
    if not plain.isascii():
        plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", plain))
        plain = _straighten(plain) if _is_foreign(plain) else plain.translate(_CONFUSABLE)
    if "&" in plain and ";" in plain:
        plain = html.unescape(plain)
    if "<" in plain:
        plain = _TAG.sub("", plain)
    if _SPACED_HINT.search(plain):
        plain = _SPACED.sub(lambda match: re.sub(r"[ .\-_*]", "", match[0]), plain)
    return _split_sentences(_INSIDE.sub("", plain))


def _split_sentences(plain: str) -> str:
    """Return a text without disguises in lower case and without markup, one sentence a line."""
    if "~~" in plain:
        plain = plain.replace("~~", "")
    if "\n" in plain:
        plain = plain.replace("\\\n", "\n") if "\\\n" in plain else plain
        plain = _ITEM.sub("\0", plain).replace("\n", " ").replace("\0", "\n")
    plain = _BULLET.sub("", plain)
    if _HAS_MARKUP.search(plain):
        plain = _MARKUP.sub(_unmark, plain)
    plain = (_PLAIN_SENTENCE if plain.isascii() else _SENTENCE).sub("\n", plain.lower())
    return "\n".join([" ".join(line.split()) for line in plain.split("\n")])


def _unmark(match: re.Match[str]) -> str:
    """Return a space for markup at the edge of a word, otherwise the markup itself."""
    run, text, (start, end) = match[0], match.string, match.span()
    before = start > 0 and text[start - 1].isalnum()
    after = end < len(text) and text[end].isalnum()
    if run[0] == ">" and before:  # the end of a tag
        return ">" if len(run) == 1 else "> "
    inside = before and after and (len(run) == 1 or run.strip("_") == "")
    return run if inside or not (before or after) else " "


def _is_foreign(text: str) -> bool:
    """Whether a text is written in another alphabet, and not only with some of its letters."""
    return any(
        len(word) > 2 and not re.search("[a-zA-Z]", word)
        for word in re.findall("[\u0370-\u052f]+", text)
    )


def read_prose(text: str, line: int, ledger: Ledger) -> None:
    """Note what a paragraph tells a model to do.

    Patterns are tried only on sentences that have the words they need.
    """
    if len(text) > MAX_PARAGRAPH:
        for piece, at in _cut(text):
            read_prose(piece, line + at, ledger)
        return
    ledger.spend(1 + len(text) // 200)
    ascii_only = text.isascii()
    quick = (ascii_only or not _has_odd(text)) and not _is_disguised(text)
    plain = _straighten(text)
    folded = plain.lower() if quick else fold(text)
    seen = _find_bits(folded)
    found: Sequence[_Plan] = _choose(seen) if seen else ()
    if not ascii_only and _OTHER_SCRIPT.search(folded):
        found = (*found, *_WITHOUT_NEEDS)
    if quick:
        _try_sentences(found, text, plain, line, ledger)
    elif found:
        _try_patterns(found, text, folded, line, ledger)


def _cut(text: str) -> Iterator[tuple[str, int]]:
    """Yield pieces of a long text, each with the lines before it; they overlap, and end in blanks.

    So a sentence at the end of one is whole in the next one.
    """
    start = line = 0
    while start < len(text):
        end = start + MAX_PARAGRAPH
        if end < len(text):
            blank = max(text.rfind(" ", end - _OVERLAP, end), text.rfind("\n", end - _OVERLAP, end))
            end = blank + 1 if blank >= 0 else end
        yield text[start:end], line
        if end >= len(text):
            return
        after = max(text.find(" ", end - _OVERLAP, end), text.find("\n", end - _OVERLAP, end))
        after = after if after >= 0 else end - _OVERLAP
        line += text.count("\n", start, after)
        start = after


def read_skimmed(text: str, line: int, ledger: Ledger, skim: Skim, at: int) -> bool:
    """Note the orders in whole lines of a skimmed text; `at` is the first line.

    Return whether these lines hold nothing to look for, so that a copy of them can be skipped.
    """
    last = at + text.count("\n")
    if len(text) > MAX_PARAGRAPH or skim.is_odd(at, last):
        read_prose(text, line, ledger)
    elif found := skim.choose(at, last):
        ledger.spend(1 + len(text) // 200)
        _try_sentences(found, text, _straighten(text), line, ledger)
    else:
        return True
    return False


def _try_sentences(
    found: Sequence[_Plan], text: str, plain: str, line: int, ledger: Ledger
) -> None:
    """Try the patterns that match in a sentence of a text without disguises, if there are any."""
    matching = _find_matching(found, plain)
    if matching:
        _try_patterns(matching, text, _split_sentences(plain), line, ledger)


def _find_matching(found: Sequence[_Plan], plain: str) -> Sequence[_Plan]:
    """Return the patterns that match in some sentence, and those that span more than one.

    Only sentences with all words of a pattern are freed from markup: most have none.
    """
    parts = _PARTS.split(plain) if found else []
    if len(parts) < 2:
        return found
    # The bits of a pattern, which are its own, are compared faster than the pattern.
    wanted = {needed for one, needed in found if needed and not one.spans}
    for part in parts if wanted else ():
        seen = _find_bits(part.lower())
        likely = [one for one in _choose(seen) if one[1] in wanted] if seen else ()
        if likely:
            folded = _split_sentences(part)
            wanted.difference_update(
                [bits for one, bits in likely if one.may_match(folded) and one.form.search(folded)]
            )
    return [one for one in found if one[1] not in wanted]


def _try_patterns(
    found: Sequence[_Plan], text: str, folded: str, line: int, ledger: Ledger
) -> None:
    about = is_about_security(ledger.skill_words)
    sentences = _find_sentences(folded)
    for one, needed in found:
        match = _search(one, needed, folded, sentences, ledger)
        if match is not None:
            _note(one, match, text, folded, line=line, about=about, ledger=ledger)


class _Sentence(NamedTuple):
    """A sentence: its start (with the line break before it), its end, and its bits."""

    start: int
    end: int
    seen: int


# Signs between words and characters of words, as bytes of which a search takes little time.
# A byte above 127 and `?` may stand for a letter of another alphabet.
_KINDS_OF_BYTES = bytes(
    1 if chr(code) in " .-_*" else 2 if code > 127 or chr(code).isalnum() or code == 63 else 0
    for code in range(256)
)
_SPACED_BYTES = b"\1\2" * 3
# What `fold` removes, each with a sign without which there is none.
_DISGUISES = (("&", _ENTITY), ("<", _TAG), ("*", _INSIDE), ("~~", _INSIDE), ("", _SPACED_HINT))


def _find_sentences(folded: str) -> list[_Sentence]:
    """Return the sentences of a folded text; none if it is only one."""
    found: list[_Sentence] = []
    start = 0
    while "\n" in folded and start < len(folded):
        end = folded.find("\n", start + 1)
        end = len(folded) if end < 0 else end
        found.append(_Sentence(start, end, _find_bits(folded[start:end])))
        start = end
    return found


def _search(
    one: ProsePattern, needed: int, folded: str, sentences: list[_Sentence], ledger: Ledger
) -> re.Match[str] | None:
    if one.parts and not one.may_match(folded):
        return None
    if one.spans or not sentences:
        ledger.spend(1 + len(folded) // 50)
        return one.form.search(folded)
    for sentence in sentences:
        if sentence.seen & needed == needed:
            ledger.spend(1 + (sentence.end - sentence.start) // 50)
            match = one.form.search(folded, sentence.start, sentence.end)
            if match is not None:
                return match
    return None


def _is_disguised(text: str) -> bool:
    """Whether `fold` may change words of a text."""
    return bool(
        ("&" in text and _ENTITY.search(text))
        or ("<" in text and _TAG.search(text))
        or (("*" in text or "~~" in text) and _INSIDE.search(text))
        or (_may_be_spaced(text) and _SPACED_HINT.search(text))
    )


def _may_be_spaced(text: str) -> bool:
    """Whether a text may have words with a sign between their letters."""
    return _has_spaced_run(text) or _has_pair(text)


def _has_spaced_run(text: str) -> bool:
    data = text.encode("latin-1", "replace").translate(_KINDS_OF_BYTES)
    return _SPACED_BYTES in data


def _has_pair(text: str) -> bool:
    """Whether `_` stands behind a sign, as a letter does."""
    return "_" in text and any(pair in text for pair in (" _", "._", "-_", "__", "*_"))


class Skim:
    """The patterns that can match in each line of a text, found in one pass.

    Lines are counted from 0. `odd` lines have words that `fold` may change.
    """

    def __init__(self, text: str) -> None:
        self._odd = _find_odd_lines(text)
        self._lines = _separate_words(_straighten(text).lower()).split("\n")
        self._bits = [-1] * len(self._lines)  # of each line, once it was looked at

    def is_odd(self, first: int, last: int) -> bool:
        """Whether something in these lines may be disguised."""
        at = bisect_left(self._odd, first)
        return at < len(self._odd) and self._odd[at] <= last

    def choose(self, first: int, last: int) -> Sequence[_Plan]:
        """Return the patterns that have all words they need in these lines."""
        seen = 0
        for number in range(first, last + 1):
            bits = self._bits[number]
            if bits < 0:
                bits = self._bits[number] = _merge_bits(self._lines[number])
            seen |= bits
        return _choose(seen) if seen else ()


def _straighten(text: str) -> str:
    """Return a text with the usual form of quotes and dashes."""
    if not text.isascii():
        for sign, usual in _USUAL_FORMS:
            text = text.replace(sign, usual)
    return text


def _find_odd_lines(text: str) -> list[int]:
    odd: set[int] = set()
    signs = _find_signs(text)
    if len(signs) > _FEW_SIGNS:
        lines = text.split("\n")
        odd.update(n for n, one in enumerate(lines) if not one.isascii() and _ODD.search(one))
    else:
        for sign in signs:
            if sign == _SELECTOR:
                _mark_lines(_ODD, text, odd)
            else:
                _mark_lines_of(sign, text, odd)
    for sign, form in _DISGUISES:
        if sign and sign in text and (form is not _INSIDE or _has_markup_inside(text)):
            _mark_lines(form, text, odd)
    if _has_spaced_run(text):
        _mark_lines(_SPACED_HINT, text, odd)
    elif "_" in text:  # it is a letter behind a sign, and a sign elsewhere
        _mark_spaced_lines(text, odd)
    return sorted(odd)


# Signs that are looked for one by one.
_FEW_SIGNS = 8


def _find_signs(text: str) -> set[str]:
    """Return the characters of a text that may be odd, each once."""
    if text.isascii():
        return set()
    data = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return set(data.decode("utf-8", "surrogatepass")) - _NOT_ODD


def _has_odd(text: str) -> bool:
    signs = _find_signs(text)
    return bool(signs) and (signs != {_SELECTOR} or _ODD.search(text) is not None)


def _mark_spaced_lines(text: str, lines: set[int]) -> None:
    """Add the lines of words with a sign between their letters, of which one is `_`."""
    data = text.encode("latin-1", "replace").translate(_SIGNS_BEFORE)
    for pair in (b"\1\2", b"\2\2"):
        counted = line = 0
        at = data.find(pair)
        while at >= 0:
            if _SPACED_HINT.search(text, max(at - _SPACED_CHARS, 0), at + _SPACED_CHARS):
                line += text.count("\n", counted, at)
                lines.add(line)
                counted, end = at, text.find("\n", at)
                at = end if end >= 0 else len(text)
            at = data.find(pair, at + 1)


# Signs between words; `_` behind one of them is a letter.
_SIGNS_BEFORE = bytes(1 if code in b" .-*" else 2 if code == 95 else 0 for code in range(256))
# More characters than the pattern for such words looks at.
_SPACED_CHARS = 9


def _has_markup_inside(text: str) -> bool:
    data = text.encode("utf-8", "surrogatepass").translate(_MARKUP_BYTES)
    return b"\1\2\1" in data or b"\1\2\2\1" in data or b"\1\2\2\2\1" in data


# Characters of words, and signs that make them bold.
_MARKUP_BYTES = bytes(
    2 if code in b"*~" else 1 if code > 127 or chr(code).isalnum() or code == 95 else 0
    for code in range(256)
)


def _mark_lines(form: re.Pattern[str], text: str, lines: set[int]) -> None:
    """Add the lines of all matches; after a match, the rest of its line is passed over."""
    at = line = 0
    while (match := form.search(text, at)) is not None:
        line += text.count("\n", at, match.start())
        lines.add(line)
        for _ in range(match[0].count("\n")):
            line += 1
            lines.add(line)
        end = text.find("\n", match.end())
        if end < 0:
            return
        at, line = end + 1, line + 1


def _mark_lines_of(sign: str, text: str, lines: set[int]) -> None:
    """Add the lines that have a sign."""
    at, counted, line = text.find(sign), 0, 0
    while at >= 0:
        line += text.count("\n", counted, at)
        lines.add(line)
        counted, end = at, text.find("\n", at)
        at = text.find(sign, end) if end >= 0 else -1


def _separate_words(folded: str) -> str:
    """Return the text with a blank for each sign that ends a word."""
    if folded.isascii():
        return folded.encode().translate(_BETWEEN_WORDS).decode()
    data = folded.encode("utf-8", "surrogatepass").translate(_BETWEEN_WORDS)
    return data.decode("utf-8", "surrogatepass")


def _find_bits(folded: str) -> int:
    """Return the bits of all groups that have a word in the text."""
    return _merge_bits(_separate_words(folded))


def _merge_bits(separated: str) -> int:
    return reduce(or_, filter(None, map(_WORD_BITS.__getitem__, separated.split())), 0)


class _WordBits(dict[str, int]):
    """The bits of each word that was met; the same words come again and again."""

    def __missing__(self, word: str) -> int:
        bits = _bits_of(word)
        if len(self) >= _MAX_WORDS:
            self.clear()
        if len(word) < _MAX_WORD_CHARS:
            self[word] = bits
        return bits


def _bits_of(word: str) -> int:
    if word.isalnum():
        return _bits_of_part(word)
    if word.replace("_", "").isalnum():
        parts = {word, *filter(None, word.split("_"))}
        return reduce(or_, map(_bits_of_part, parts))
    bits = _bits_of_part("@") if "@" in word else 0
    for part in {*_WORDS.findall(word), *_PARTS_OF_WORD.findall(word)}:
        bits |= _bits_of_part(part)
    return bits


def _bits_of_part(word: str) -> int:
    bits = 0
    for begin, its_bits in _BITS[word[:STEM]]:
        if word.startswith(begin):
            bits |= its_bits
    return bits


_WORD_BITS = _WordBits()
_MAX_WORDS, _MAX_WORD_CHARS = 40_000, 24


def _choose(seen: int) -> tuple[_Plan, ...]:
    """Return the patterns that have all they need, with their bits."""
    # One added to a field of ones carries into the bit above it.
    complete = (seen + _FIRST_BITS) & _LAST_BITS
    return _choose_complete(complete) if complete else ()


@lru_cache(maxsize=4096)
def _choose_complete(complete: int) -> tuple[_Plan, ...]:
    return tuple([plan for plan, last in zip(_PLANS, _LASTS, strict=True) if complete & last])


_ALL = (
    *PATTERNS,
    *TASK_PATTERNS,
    *STATEMENTS,
    *ELSEWHERE_PATTERNS,
    *POLICY_PATTERNS,
    *OTHER_LANGUAGES,
    *MORE_LANGUAGES,
)


def _assign_bits() -> tuple[list[_Plan], dict[str, list[tuple[ProsePattern, int]]]]:
    """Give each group of stems a bit: return the bits that a pattern needs, those of the stems.

    The bits of a pattern stand together, and the one above them belongs to none.
    """
    plans: list[_Plan] = []
    stems: dict[str, list[tuple[ProsePattern, int]]] = {}
    groups = 0
    for one in _ALL:
        if not one.needs:
            continue
        first = groups
        for group in one.needs:
            for stem in group:
                stems.setdefault(stem, []).append((one, 1 << groups))
            groups += 1
        plans.append((one, (1 << groups) - (1 << first)))
        groups += 1
    return plans, stems


_PLANS, _STEMS = _assign_bits()


class _BeginningBits(dict[str, tuple[tuple[str, int], ...]]):
    """The beginnings of words with their bits, by the stem of a text's word."""

    def __missing__(self, start: str) -> tuple[tuple[str, int], ...]:
        if len(self) >= _MAX_WORDS:
            self.clear()
        found: dict[str, int] = {}
        for stem in accumulate(start):
            if stem in _STEMS:
                for begin, bits in _lengthen_all(stem).items():
                    # "key" begins "keys", too
                    if start in (begin[:STEM], begin + start[len(begin) :][:1]):
                        found[begin] = found.get(begin, 0) | bits
        return self.setdefault(start, tuple(found.items()))


@cache
def _lengthen_all(stem: str) -> dict[str, int]:
    """Return the words that a stem stands for in all patterns, with their bits.

    The forms of all patterns together are long, and a text has words of some.
    """
    found: dict[str, int] = {}
    for one, bit in _STEMS[stem]:
        for begin in lengthen(stem, one):
            found[begin] = found.get(begin, 0) | bit
    return found


_BITS = _BeginningBits()
_LASTS = [needed + (needed & -needed) for _, needed in _PLANS]
_FIRST_BITS = sum(needed & -needed for _, needed in _PLANS)
_LAST_BITS = sum(_LASTS)
# Patterns for scripts without spaces, or with words that change too much.
_WITHOUT_NEEDS = [(one, 0) for one in _ALL if not one.needs]


def _note(
    one: ProsePattern,
    match: re.Match[str],
    text: str,
    folded: str,
    *,
    line: int,
    about: bool,
    ledger: Ledger,
) -> None:
    chosen = _weaken(one, match, folded, about=about)
    # Add the rest of an address at which the pattern ended.
    whole = match[0] + _REST_OF_WORD.match(folded, match.end())[0]  # type: ignore[index]
    if one.rule in _BY_HOST and one not in _STRICT and _has_own_hosts_only(whole, ledger):
        chosen = "note"
    if one.rule == "secret-to-network":
        chosen = max(chosen, _judge_sent_key(whole, ledger), key=KINDS.index)
    if one.by_host and all(
        is_known(url.host) or ledger.is_own_host(url.host) for url in find_urls(whole)
    ):
        chosen = "note"
    at = line + _find_line(text, match, folded)
    shown = " ".join(whole.split()).strip(" .,;:!")
    ledger.can("instruction", f"{one.rule}: {shown}"[:160], at)
    ledger.find(one.rule, at, shown, chosen)


# Rules that ask nothing about a host of the skill's own subject.
# In data, a host that shares a word with the skill is still a host that steers.
_STRICT = frozenset(ELSEWHERE_PATTERNS)
_BY_HOST = ("send-instruction", "side-order", "follow-remote-text")


def _judge_sent_key(text: str, ledger: Ledger) -> FindingKind:
    """Return the kind of an order to send a key, by the key and the hosts that get it."""
    hosts = {one.host for one in find_urls(text)}
    words = [one for one in text.split() if "." in one]
    # Hosts without a scheme, and of e-mail addresses.
    found = [host_in(one.rpartition("@")[2]) for one in (words[-1:] if hosts else words)]
    hosts |= {one.host for one in found if one is not None and not place_class(one.host)}
    paths = [path for path, _ in find_paths(text) if place_class(path) or is_env_file(path)]
    kinds = [ledger.judge_named_key(host, paths, _KEY_NAME.findall(text)) for host in hosts]
    return min(kinds, key=KINDS.index) if kinds else "ask"


_KEY_NAME = Lazy(r"\b(?<!/)\w{1,40}_(?:token|key|secret|password|passwd)\b")


def _weaken(one: ProsePattern, match: re.Match[str], folded: str, *, about: bool) -> FindingKind:
    kind = one.kind
    before = folded[max(match.start() - 100, 0) : match.start() + 1].rstrip()
    quoted = before[-1:] in "\"'`(" and bool(before.strip())
    # Drop the first letter of the match, but keep a quote.
    about_it = bool(_ABOUT.search(before[:-1] if match[0][:1].isalnum() else before))
    negated = one.negatable and bool(_NEGATED.search(before))
    stated = one.rule == "harmful-order" and bool(_STATED.search(before))
    if negated or stated or (quoted and about_it):
        return "note"
    if quoted or about_it:
        # A skill that says that it is about security may quote orders.
        return "ask" if kind == "block" and not (about and quoted) else "note"
    return kind


def _has_own_hosts_only(text: str, ledger: Ledger) -> bool:
    """Whether all hosts of a text belong to the skill's subject."""
    hosts = [one.host for one in find_urls(text)]
    return bool(hosts) and all(map(ledger.is_own_host, hosts))


def _find_line(text: str, match: re.Match[str], folded: str) -> int:
    """Return about how many lines after the first one a match begins."""
    lines = text.count("\n")
    if not lines or not folded:
        return 0
    words = sorted(match[0].split()[:5], key=len)
    for number, one in enumerate(text.lower().split("\n")):
        if words and words[-1] in one:
            return number
    return min(lines, lines * match.start() // len(folded))
