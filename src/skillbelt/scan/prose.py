"""Read prose: instructions to a model that act against the user.

The patterns (`prose_rules.py`, `prose_languages.py`) look for what is asked, in text that was freed
from disguises first. A text that speaks *about* such words, as skills for security do, counts for
less.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from skillbelt.scan.addresses import find_urls, words_of
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.prose_languages import OTHER_LANGUAGES
from skillbelt.scan.prose_rules import PATTERNS, STEM, ProsePattern
from skillbelt.scan.prose_tasks import TASK_PATTERNS
from skillbelt.scan.values import FindingKind

MAX_PARAGRAPH = 20_000

# Just before a match: the text speaks about such words instead of saying them.
_ABOUT = re.compile(
    r"(?:\be\.?g\.?\b|such as|for example|examples?\b|detect\w*|flags?\b"
    r"|look(?:ing)? for|watch (?:out )?for|scan(?:s|ning)? for|contain(?:s|ing)?"
    r"|attempts?|attacks?|injections?|patterns?|phrases?|red flags?|payloads?|test(?:s|ing)? "
    r"|never follow|refuse|malicious|suspicious|adversar\w*"
    r"|attacker|threat|risk|vulnerab\w*|says?|tells? (?:the|you)|trying to|tries to|prevent"
    r"|guard against|defend|protect|anti-pattern|warning signs?)[^.!?]{0,80}$"
    # What the sentence itself forbids, and what a word right before shows.
    r"|\b(?:avoid|do not|don't|never|must not|should not)\b[^.!?\n]{0,80}$|\blike\b[^.\w]{0,4}$"
)


def is_about_security(words: frozenset[str]) -> bool:
    """Whether a skill is about attacks, and so speaks of them."""
    return bool(words & _SECURITY)


_SECURITY = words_of(
    "security pentest red-team threat vulnerability injection malware forensics exploit attack "
    "guardrail jailbreak owasp adversarial hardening"
)
# Before a match: the sentence states what may happen, and orders nothing.
_STATED = re.compile(
    r"\b(?:can|may|could|might|which|that|would|often|sometimes|they|it) (?:\w+ )?$"
)
_NEGATED = re.compile(
    r"\b(?:never|do not|don't|must not|should not|cannot|avoid|refuse to|won't"
    r"|will not)\b[^.;:\n]{0,60}$"
)
_CONFUSABLE = str.maketrans(
    "аеорсухіјѕԁһӏοαενρτυικΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТХІЈЅԛԝɡɩ’‘“”‐‑–—",
    "aeopcyxijsdhloaevptuikABEZHIKMNOPTYXABEKMHOPCTXIJSqwgi''\"\"----",
)
_QUOTES = {**str.maketrans("’‘“”‐‑–—", "''\"\"----"), 0x2026: "...", 0xFE0F: None}
_SPACED = re.compile(r"\b(?:\w[ .\-_*]){4,}\w\b")
# In every text that has one, and cheaper to look for.
_SPACED_HINT = re.compile(r"[ .\-_*]\w[ .\-_*]\w[ .\-_*]\w[ .\-_*]\w")
_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f\ufe00-\ufe0f]"
)


# Whole runs, so that a long one is looked at once.
_MARKUP = re.compile(r"[*_`>|]++")
_HAS_MARKUP = re.compile(r"[*_`>|]")
# A form that begins with its own characters, and looks back from there, is found faster.
_INSIDE = re.compile(r"[*~](?<=\w.)(?:(?<=\*)\*{0,2}|(?<=~)~)(?=\w)")
_TAG = re.compile(
    r"(?i)</?(?:b|i|u|s|em|strong|span|br|p|div|a|code|font|mark|wbr|small|sub|sup)\b[^>]{0,200}>"
)
# A line that begins something new, unlike one that only goes on below.
_ITEM = re.compile(r"\n(?=[ \t]*(?:[-*+>#|]|\d{1,3}[.)]))|\n[ \t]*\n")
_BULLET = re.compile(r"(?m)^[ \t]*(?:[-*+>#|]+|\d{1,3}[.)]) *")
_SENTENCE = re.compile(r"(?<=[\w)\]\"'`][.!?。！？]) +|(?<=[。！？])")
_PLAIN_SENTENCE = re.compile(r" (?<=[\w)\]\"'`][.!?] ) *")
# Turns signs that end a word into spaces.
_BETWEEN_WORDS = bytes(
    code if chr(code).isalnum() or chr(code) in "_'-@\n" or code > 127 else 32
    for code in range(256)
)
# The beginning of each word.
_STEMS = re.compile(rf"(\w[\w'-]{{0,{STEM - 1}}})[\w'-]*")
_REST_OF_WORD = re.compile(r"[^\s\"'`)<>]{0,200}")
_ENTITY = re.compile(r"&#?\w")
# All but plain letters and the signs that people write between words.
_ODD = re.compile(
    "[^\x00-\x7f‘’“”‐‑–—…•·→←↑↓↔⇒×≈≠≥≤±°§✓✔✗✘✅❌⚠★│┌┐└┘├┤┬┴┼─▶▼●○■□\ufe0f]"
    r"|(?<=\w)\ufe0f|\ufe0f(?=\w)"
)
_OTHER_SCRIPT = re.compile(
    "[\u0400-\u052f\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)


def fold(text: str) -> str:
    """Return the text as it is compared: lower case, without disguises, one sentence a line."""
    plain = text[:MAX_PARAGRAPH]
    if not plain.isascii():
        plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", plain))
        plain = plain.translate(_QUOTES) if _is_foreign(plain) else plain.translate(_CONFUSABLE)
    if "&" in plain and ";" in plain:
        plain = html.unescape(plain)
    if "<" in plain:
        plain = _TAG.sub("", plain)
    if _SPACED_HINT.search(plain):
        plain = _SPACED.sub(lambda match: re.sub(r"[ .\-_*]", "", match[0]), plain)
    return _split_sentences(_INSIDE.sub("", plain))


def _split_sentences(plain: str) -> str:
    """Return a text without disguises in lower case and without markup, one sentence a line."""
    if "\n" in plain:
        plain = _ITEM.sub("\0", plain).replace("\n", " ").replace("\0", "\n")
    plain = _BULLET.sub("", plain)
    if _HAS_MARKUP.search(plain):
        plain = _MARKUP.sub(_unmark, plain)
    plain = (_PLAIN_SENTENCE if plain.isascii() else _SENTENCE).sub("\n", plain.lower())
    return "\n".join([" ".join(line.split()) for line in plain.split("\n")])


def _unmark(match: re.Match[str]) -> str:
    """Return what markup stands for: a space at the edge of a word, itself elsewhere."""
    run, text, (start, end) = match[0], match.string, match.span()
    before = start > 0 and text[start - 1].isalnum()
    after = end < len(text) and text[end].isalnum()
    if run[0] == ">" and before:  # the end of a tag
        return ">" if len(run) == 1 else "> "
    inside = before and after and (len(run) == 1 or run.strip("_") == "")
    return run if inside or not (before or after) else " "


def _is_foreign(text: str) -> bool:
    """Whether a text is written in another alphabet, and does not only borrow its letters."""
    return any(
        len(word) > 2 and not re.search("[a-zA-Z]", word)
        for word in re.findall("[\u0370-\u052f]+", text)
    )


def read_prose(text: str, line: int, ledger: Ledger, *, is_plain: bool = False) -> None:
    """Note what a paragraph tells a model to do; `is_plain` says that nothing in it is disguised.

    Patterns are tried only on sentences that have the words they need.
    """
    ledger.spend(1 + len(text) // 200)
    ascii_only = text.isascii()
    quick = is_plain or ((ascii_only or not _ODD.search(text)) and not _is_disguised(text))
    plain = text if ascii_only else text.translate(_QUOTES)
    folded = plain.lower() if quick else fold(text)
    seen = _seen(folded)
    found = _choose(seen) if seen else ()
    if not ascii_only and _OTHER_SCRIPT.search(folded):
        found = (*found, *_WITHOUT_NEEDS)
    if not found:
        return
    if quick:
        folded = _split_sentences(plain[:MAX_PARAGRAPH])
    about = is_about_security(ledger.skill_words)
    sentences = _sentences(folded)
    for one, needed in found:
        match = _search(one, needed, folded, sentences, ledger)
        if match is not None:
            _note(one, match, text, folded, line=line, about=about, ledger=ledger)


def is_plain(text: str) -> bool:
    """Whether nothing in a text is disguised, so that its parts need not be looked at for that."""
    return (text.isascii() or not _ODD.search(text)) and not _is_disguised(text)


class _Sentence(NamedTuple):
    """Where a sentence begins (with the line break before it) and ends, and the bits it has."""

    start: int
    end: int
    seen: int


def _sentences(folded: str) -> list[_Sentence]:
    """Return the sentences of a folded text; none if it is only one."""
    found: list[_Sentence] = []
    start = 0
    while "\n" in folded and start < len(folded):
        end = folded.find("\n", start + 1)
        end = len(folded) if end < 0 else end
        found.append(_Sentence(start, end, _seen(folded[start:end])))
        start = end
    return found


def _search(
    one: ProsePattern, needed: int, folded: str, sentences: list[_Sentence], ledger: Ledger
) -> re.Match[str] | None:
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
    """Whether words of a text could be others after `fold` than before."""
    return bool(
        ("&" in text and _ENTITY.search(text))
        or ("<" in text and _TAG.search(text))
        or (("*" in text or "~~" in text) and _INSIDE.search(text))
        or _SPACED_HINT.search(text)
    )


def _seen(folded: str) -> int:
    """Return the bits of the groups of which a text has a word."""
    if folded.isascii():
        folded = folded.encode().translate(_BETWEEN_WORDS).decode()
    if len(_WORD_BITS) > _MAX_WORDS:
        _WORD_BITS.clear()
    seen = 0
    for bits in set(map(_WORD_BITS.__getitem__, folded.split())):
        seen |= bits
    return seen


class _WordBits(dict[str, int]):
    """The bits of each word that was met; the same words come again and again."""

    def __missing__(self, word: str) -> int:
        bits = _bits_of(word)
        if len(word) < _MAX_WORD_CHARS:
            self[word] = bits
        return bits


def _bits_of(word: str) -> int:
    if word.isalnum():
        return _BITS.get(word[:STEM], 0)
    stems = {*_STEMS.findall(word), *_STEMS.findall(word.replace("_", " "))}
    if "@" in word:
        stems.add("@")
    bits = 0
    for stem in stems & _KNOWN_STEMS:
        bits |= _BITS[stem]
    return bits


_WORD_BITS = _WordBits()
_MAX_WORDS, _MAX_WORD_CHARS = 20_000, 40


@lru_cache(maxsize=4096)
def _choose(seen: int) -> tuple[tuple[ProsePattern, int], ...]:
    """Return the patterns that have all they need, with their bits."""
    return tuple([plan for plan in _PLANS if seen & plan[1] == plan[1]])


_ALL = (*PATTERNS, *TASK_PATTERNS, *OTHER_LANGUAGES)


def _plan() -> tuple[list[tuple[ProsePattern, int]], dict[str, int]]:
    """Give each group of stems a bit: return the bits that a pattern needs, those of a stem."""
    plans: list[tuple[ProsePattern, int]] = []
    bits: dict[str, int] = {}
    groups = 0
    for one in _ALL:
        if not one.needs:
            continue
        first = groups
        for group in one.needs:
            for stem in group:
                bits[stem] = bits.get(stem, 0) | 1 << groups
            groups += 1
        plans.append((one, (1 << groups) - (1 << first)))
    return plans, bits


_PLANS, _BITS = _plan()
_KNOWN_STEMS = frozenset(_BITS)
# Those of scripts that have no spaces, or whose words change too much.
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
    # With the rest of an address, at which a pattern may end.
    whole = match[0] + _REST_OF_WORD.match(folded, match.end())[0]  # type: ignore[index]
    if one.rule in ("send-instruction", "side-order") and _own_host(whole, ledger):
        chosen = "note"
    at = line + _line_of(text, match, folded)
    shown = " ".join(whole.split()).strip(" .,;:!")
    ledger.can("instruction", f"{one.rule}: {shown}"[:160], at)
    ledger.find(one.rule, at, shown, chosen)


def _weaken(one: ProsePattern, match: re.Match[str], folded: str, *, about: bool) -> FindingKind:
    kind = one.kind
    before = folded[max(match.start() - 100, 0) : match.start() + 1].rstrip()
    quoted = before[-1:] in "\"'`(" and bool(before.strip())
    negated = one.negatable and bool(_NEGATED.search(before))
    stated = one.rule == "harmful-order" and bool(_STATED.search(before))
    if negated or stated or (quoted and _ABOUT.search(before)):
        return "note"
    if quoted or about or _ABOUT.search(before):
        # A skill that says that it is about security may speak of orders, and not give them.
        return "ask" if kind == "block" and not (about and quoted) else "note"
    return kind


def _own_host(text: str, ledger: Ledger) -> bool:
    """Whether all hosts of a text belong to the skill's subject."""
    hosts = [one.host for one in find_urls(text)]
    return bool(hosts) and all(map(ledger.is_own_host, hosts))


def _line_of(text: str, match: re.Match[str], folded: str) -> int:
    """Return how many lines after the first one a match begins, about."""
    lines = text.count("\n")
    if not lines or not folded:
        return 0
    words = sorted(match[0].split()[:5], key=len)
    for number, one in enumerate(text.lower().split("\n")):
        if words and words[-1] in one:
            return number
    return min(lines, lines * match.start() // len(folded))
