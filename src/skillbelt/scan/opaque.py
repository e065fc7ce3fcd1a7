"""Find text that prose tells a model to decode: a reader does not see what it says.

An order to decode, and a text near it that is not of words, are a question by themselves. Where
decoding is cheap, the result is read like any other text.
"""

from __future__ import annotations

import binascii
import quopri
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest

from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import words_of
from skillbelt.scan.decoding import decode_bytes, has_run
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.made_texts import judge_made_text, reads_like_order
from skillbelt.scan.markdown import ReadMarkdown
from skillbelt.text import Lazy

_MAX_TEXT = 256 * 2**10
# Lines between an order and the text that it speaks of.
_NEAR_BEFORE, _NEAR_AFTER = 25, 40
_MAX_ORDERS, _MAX_HIDDEN = 20, 30
# Words of which one is in every line with an order; a cheap test first.
_ORDER_HINTS = (
    "decod", "decrypt", "decipher", "xor", "revers", "backward", "scrambl", "obfusc", "interleav",
    "mod ", "modulo", "mod(", "% 2", "in order", "alternat", "right to left", "right-to-left",
    "stands for", "maps to", "represents", "corresponds", "points to", "translate", "substitut",
    "replace e", "look up", "shuffl", "rotate", "shift", "interpret", "unmask", "mirror", "in turn",
    "round robin", "round-robin", "letter",
)  # fmt: skip
_PICK_HINTS = ("letter", "acrostic", "character", "every other", "initials", "-char", " word ")
_CODEC = (
    r"base ?-?(?:16|32|36|45|58|62|64|85|91|92|122)|ascii ?-?85|\ba85\b|rot ?-?\d{1,2}\b|caesar"
    r"|atbash|vigen[eè]re|\bxor(?:ed|ing)?\b|morse|uu-?encod\w*|quoted-printable|punycode"
    r"|affine|url-?encod\w*|percent-?encod\w*|\bhex(?:adecimal)?\b|modular inverse|\bgzip|\bzlib"
    r"|run-length|bacon(?:ian)? cipher|substitution cipher|polybius|pig latin|leet"
)
_UNDO = (
    r"decode|decrypt|decipher|unscramble|de-?obfuscate|descramble|un-?mask|de-?interleave"
    r"|interleave|un-?shuffle"
)
_OBJECT = (
    r"(?:payload|texts?|strings?|messages?|blocks?|bytes?|letters?|characters?|chars|words?|lines?"
    r"|instructions?|numbers?|integers?|digits?|values?|below|following|blob|data|sequence|symbols?"
    r"|parts?|pieces|fragments|chunks|list|codes?|steps|commands?|it|them|this|each|here)\b"
)
# Orders that a text nearby must go with.
_ORDER = Lazy(
    rf"(?i)\b(?:{_UNDO})\b[^.\n]{{0,80}}\b{_OBJECT}"
    rf"|\b(?:{_UNDO})\b[^.\n]{{0,60}}(?:{_CODEC})|(?:{_CODEC})[^.\n]{{0,60}}\b(?:{_UNDO})\b"
    r"|\bxor(?:ing)? (?:each|every|all|the|it|with|bytes?|them)\b"
    r"|\b(?:shift|rotate|move|advance)\b[^.\n]{0,30}\b(?:each|every|all)\b[^.\n]{0,20}\b(?:letter"
    r"|character|char|byte)s?\b"
    r"|\b(?:revers(?:e|ing|ed)|flip|invert|mirror)\b[^.\n]{0,40}\b(?:string|text|words?|letters?"
    r"|characters?|chars|payload|message|sequence|lines?|bytes?)\b"
    r"|\bread\b[^.\n]{0,60}\b(?:backwards?|right[- ]to[- ]left|in reverse|from the end|upside down)"
    r"|\b[a-z]\(?[^=\n]{0,40}\)\s{0,3}(?:mod(?:ulo)?|%)\s{0,3}(?:26|36|9[456]|12[78]|25[67])\b"
    r"|\b(?:chars?|characters?|letters?|bytes|parts?|part\d|pieces|fragments|chunks|strings)\b"
    r"[^.\n]{0,60}\b(?:alternat\w*|interleav\w*|round[- ]robin|zip(?:ped|ping)? together"
    r"|turn by turn|in (?:this |the |that )?order:? ?\w{1,20}\[|in turn)"
    r"|\beach (?:number|digit|symbol|emoji|word|pair|integer|code|token|value)\b[^.\n]{0,30}"
    r"\b(?:is|stands for|maps to|represents|corresponds to|means|points? to|gives)\b[^.\n]{0,30}"
    r"\b(?:letters?|characters?|position|index|byte|alphabet|word)\b"
    r"|\b(?:table|mapping|codebook|alphabet|legend|lookup|key)\b[^.\n]{0,40}\b(?:to (?:translate"
    r"|decode|decipher|recover|read)|substitut\w+|replace (?:each|every))\b"
    r"|\b(?:translate|substitute|replace|look up)\b[^.\n]{0,40}\b(?:each|every)\b[^.\n]{0,20}\b"
    r"(?:symbol|number|emoji|letter|token|character)s?\b"
    r"|\binterpret\b[^.\n]{0,40}\bas (?:utf-?8|ascii|unicode|character codes?)"
)
# Orders to read only some signs of an ordinary text.
_PICK = Lazy(
    r"(?i)\b(?:the )?(?:first|last|second|third|initial|\w{3,9}th|\d{1,3}(?:st|nd|rd|th))[- ]"
    r"(?:letters?|characters?|chars?|words?)\b[^.\n]{0,40}\b(?:of|in|from) (?:each|every|all)\b"
    r"|\b(?:every|each) (?:other|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
    r"|\d{1,3}(?:st|nd|rd|th))[- ](?:letter|character|char|word)\b|\bacrostic\b"
    r"|\b(?:initials|first letters)\b[^.\n]{0,30}\b(?:of|from)\b[^.\n]{0,30}\b"
    r"(?:lines?|items?|words?|sentences?|bullets?|rows?|paragraphs?)\b"
)
_EVERY = {
    "other": 2, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10,
}  # fmt: skip

# --- texts that are not of words -----------------------------------------------------------------

_NUMBERS = Lazy(
    r"(?<![\w.])(?:(?:(?:0x)?[0-9a-fA-F]{1,4}|[A-Za-z]{1,2}\d{1,3})[ \t,;|\[\]\-]{1,3}){16,4000}+"
    r"[0-9a-zA-Z]{0,4}"
)
_IN_NUMBERS = bytes(chr(code).isalnum() or code in b" ,;|[]-\t" for code in range(128)) + bytes(128)
_TOKEN = Lazy(r"(?<!\S)\S{40,8000}(?!\S)|(?<=['\"])[^\s'\"]{40,8000}(?=['\"])")
_PLAIN_TOKEN = Lazy(
    r"(?i)://|\]\(|\\\w+\\\w|^[0-9a-f]{32,128}$|sha\d{3}[-:=]|^eyJ|^data:|mailto:|^\W*--\w|\?\w+=\w*&"
    r"|(?-i:^[A-Z][A-Z_0-9]{3,40}=)"
)
_LONG_RUN = Lazy(r"[A-Za-z0-9+/=]{30,}")
_ODD_SIGNS = Lazy(r"[<>?^~!@$%&*|;{}=+#`]")
_PAIRS = """
re in er th on at he es ti or en te an st se nt de co io le al ng it nd ed ar ro is ra ta to me ri
li ec ve ns ne ce ct il fo as us ch ea et om fi ic ma pr ac ou ge ll ca si tr el lo pe la nc ts di
ut pa ha ur no pl ex un ot po id ss na mp ai da od ef em mo do ag ad ep ly if am hi vi ol fe ap im
ow su ul rs rt op ie oc ho ru cr so be ck ev pt mi wi ab ir ni os sc ig bl ry va ke wh cu ee sk ci
ip cl qu tu sp ty ue sh iv ia pu au ui rm of lu fa ki
"""
_LETTER_PAIRS = frozenset(_PAIRS.split())
_SMALL_WORD = Lazy(r"[a-z]{2,40}")
_MIN_LINE = 40
# A line that ends with a text in quotes.
_LITERAL = Lazy(r"\A[^'\"`\n]{0,100}+(['\"`])([^\n]{12,2000})\1[\s,;\])]{0,9}\Z")


class _Hidden(NamedTuple):
    """A text that is not of words, and its line, counted from 0."""

    text: str
    line: int


def read_opaque(parts: ReadMarkdown, ledger: Ledger) -> None:
    """Note orders to decode a text that stands near, and what that text says.

    Code is not searched: what it puts together is followed by the readers of its language.
    """
    folded = parts.shown[:_MAX_TEXT].lower()
    picking, ordering = _find_lines(_PICK_HINTS, folded), _find_lines(_ORDER_HINTS, folded)
    if not (picking or ordering):
        return
    ledger.spend(1 + len(folded) // 100)
    rows = _leave_out_code(parts)
    picks = list(_find_orders(_PICK, rows, picking))
    orders = list(_find_orders(_ORDER, rows, ordering))
    if picks:
        _read_picked(picks, rows, ledger)
    hidden = _find_hidden(rows, [at for _, at in orders]) if orders else []
    found = [
        (at, order, one)
        for order, at in orders
        for one in hidden
        if -_NEAR_BEFORE <= one.line - at <= _NEAR_AFTER
    ]
    if found:
        at, order, _ = found[0]
        _judge_hidden({one for _, _, one in found}, [(order, at), *orders], rows, ledger)


def _leave_out_code(parts: ReadMarkdown) -> list[str]:
    """Return the lines of a text, those of blocks of code empty."""
    rows = parts.shown[:_MAX_TEXT].split("\n")
    for block in parts.blocks:
        if block.language not in _PROSE_BLOCKS:
            start, end = block.line - 1, min(block.line + block.text.count("\n"), len(rows))
            rows[start:end] = [""] * max(end - start, 0)
    return rows


_PROSE_BLOCKS = ("", "text", "plaintext", "markdown", "md", "prompt", "txt", "data")


def _judge_hidden(
    hidden: set[_Hidden], orders: Sequence[tuple[str, int]], rows: Sequence[str], ledger: Ledger
) -> None:
    order, at = orders[0]
    source = "\n".join(rows)
    said = "\n".join("\n".join(rows[max(at - 2, 0) : at + 8]) for _, at in orders)
    readable = [made for one in sorted(hidden) for made in _decode(one.text, said, source)]
    for made in readable[:_MAX_HIDDEN]:
        judge_made_text(made, source, at + 1, ledger, spelled=True)
    teaches = bool(ledger.skill_words & _ABOUT_CODES)
    ledger.find("opaque-instructions", at + 1, order, "note" if teaches else None)


_ABOUT_CODES = words_of(
    "encoding encode decode decoding decoder cipher ciphers ctf cryptography crypto cryptographic "
    "cryptanalysis base64 codec puzzle puzzles forensics steganography obfuscation deobfuscation "
    "malware reversing encryption checksum firmware protocol serialization compression barcode "
    "unicode binary bioinformatics genomics dna rna protein sequencing molecular chemistry"
)


def _find_lines(hints: Sequence[str], folded: str) -> list[int]:
    """Return the lines, counted from 0, that have one of the words."""
    places: set[int] = set()
    for hint in hints:
        at = folded.find(hint)
        while at >= 0:
            places.add(at)
            end = folded.find("\n", at)
            at = folded.find(hint, end) if end >= 0 else -1
    lines: set[int] = set()
    counted = line = 0
    for at in sorted(places):
        line += folded.count("\n", counted, at)
        counted = at
        lines.add(line)
    return sorted(lines)


def _find_orders(
    form: re.Pattern[str], rows: Sequence[str], lines: Sequence[int]
) -> Iterator[tuple[str, int]]:
    number = 0
    for line in lines:
        row = rows[line] if line < len(rows) else ""
        # An order may go on in the next line.
        after = rows[line + 1][:200] if line + 1 < len(rows) else ""
        match = form.search(f"{row[:_MAX_ROW]} {after}") if row else None
        if match is not None and match.start() < len(row):
            number += 1
            yield match[0], line
        if number >= _MAX_ORDERS:
            return


_MAX_ROW = 4_000


def _find_hidden(rows: Sequence[str], orders: Sequence[int]) -> list[_Hidden]:
    """Return texts of numbers, of long tokens, and of letters that make no words."""
    found: list[_Hidden] = []
    near = sorted({n for at in orders for n in range(at - _NEAR_BEFORE, at + _NEAR_AFTER + 1)})
    for number in near:
        if 0 <= number < len(rows) and len(rows[number]) >= _MIN_LINE:
            found += [_Hidden(one, number) for one in _find_in_row(rows[number])]
        if len(found) >= _MAX_HIDDEN:
            break
    return found[:_MAX_HIDDEN]


def _find_in_row(row: str) -> list[str]:
    numbers = [one[0] for one in _NUMBERS.finditer(row)] if has_run(row, _IN_NUMBERS, _RUN) else []
    numbers = [one for one in numbers if len(set(re.findall(r"[0-9a-fA-F]+", one))) > 5]
    if numbers:
        return numbers
    tokens = [one[0] for one in _TOKEN.finditer(row[:20_000]) if _is_random(one[0])]
    if tokens:
        return tokens
    return [row] if _is_scrambled(row) else []


_RUN = b"\1" * 32


def _is_random(token: str) -> bool:
    """Whether a long word is of letters, digits and signs that make no names."""
    plain = token.strip("`'\"()[]{}.,;:")
    if _PLAIN_TOKEN.search(token) or len(plain) < _MIN_TOKEN:
        return False
    digits, upper = sum(map(str.isdigit, plain)), sum(map(str.isupper, plain))
    mixed = min(digits, upper, sum(map(str.islower, plain))) > 2
    run = _LONG_RUN.search(plain)
    if run is not None and run[0].count("/") * 20 < len(run[0]):
        few = _share_of_pairs(re.sub(r"[^a-z]", "", run[0].lower())) < _FEW_PAIRS
        return few or (mixed and digits * 20 > len(plain))
    if mixed and len(_ODD_SIGNS.findall(plain)) * 10 > len(plain):
        return True
    return not re.search(r"[_./#\\-]", plain) and _share_of_pairs(plain.lower()) < _FEW_PAIRS


_MIN_TOKEN = 36
_FEW_PAIRS, _MIN_PAIRS = 0.64, 30


def _share_of_pairs(folded: str) -> float:
    """Return how many pairs of letters are usual ones, of 1; 1 for a text of few letters."""
    pairs = [
        word[at : at + 2] for word in _SMALL_WORD.findall(folded) for at in range(len(word) - 1)
    ]
    if len(pairs) < _MIN_PAIRS:
        return 1.0
    return sum(one in _LETTER_PAIRS for one in pairs) / len(pairs)


def _is_scrambled(row: str) -> bool:
    """Whether a line has letters in an order that no language has."""
    if row.lstrip()[:1] in ("|", "├", "│", "└") or "`" in row or re.search("https?://", row):
        return False
    letters = sum(map(str.isalpha, row))
    if letters * 2 < len(row) or reads_like_order(row) or _USUAL_WORD.search(row):
        return False
    # Words in capitals are names.
    small = " ".join(one for one in row.split() if sum(map(str.isupper, one)) * 2 < len(one))
    return _share_of_pairs(small.lower()) < _FEW_PAIRS


_USUAL_WORD = Lazy(r"(?i)\b(?:the|and|for|with|from|this|that|you|are|your|not|when)\b")


# --- decoding ------------------------------------------------------------------------------------

_CODECS = (
    ("base64", Lazy(r"(?i)base ?-?64")),
    ("base32", Lazy(r"(?i)base ?-?32")),
    ("base85", Lazy(r"(?i)base ?-?85|\bb85\b")),
    ("ascii85", Lazy(r"(?i)ascii ?-?85|\ba85\b")),
    ("hex", Lazy(r"(?i)\bhex|base ?-?16")),
    ("base58", Lazy(r"(?i)base ?-?58")),
)
_XOR = Lazy(r"(?i)\bxor[^\n]{0,60}?\b(0x[0-9a-f]{1,2}|\d{1,3})\b")
_SHIFT = Lazy(r"(?i)\b(?:rot ?-?|(?:shift|rotate)[^\n]{0,40}?\bby |caesar[^\n]{0,30}?)(\d{1,2})\b")
_AFFINE = Lazy(r"(\d{1,3})\s?\*?\s?x\s?\+\s?(\d{1,3})\)?\s?(?:mod|%)\s?(\d{2,3})")
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_MORSE_SIGNS = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- "
    "-..- -.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----."
)
_MORSE = dict(zip(_MORSE_SIGNS.split(), "abcdefghijklmnopqrstuvwxyz0123456789", strict=True))


def _decode(hidden: str, spoken: str, source: str) -> list[str]:
    """Return what a text may say, by the ways to decode that are named near it."""
    hidden = hidden[:_MAX_DECODED]
    made: list[str] = []
    raw = list(_find_bytes(hidden.strip("`'\" \t"), spoken))
    key = _XOR.search(spoken)
    for data in raw:
        made.append(data.decode("utf-8", "replace"))
        if key is not None:
            number = int(key[1], 0) if key[1][:2].lower() == "0x" else int(key[1])
            made.append(bytes(one ^ (number & 255) for one in data).decode("utf-8", "replace"))
    made += _undo_formula(hidden, spoken)
    folded = spoken.lower()
    if "revers" in folded or "backward" in folded or "right to left" in folded:
        made += [one[::-1] for one in (*made, hidden)]
        made.append(" ".join(reversed(hidden.split())))
    for shift in sorted({int(one[1]) for one in _SHIFT.finditer(spoken)})[:_MAX_SHIFTS]:
        made += [_rotate(hidden, shift), _rotate(hidden, -shift)]
    if "atbash" in folded:
        made.append(hidden.lower().translate(_ATBASH))
    made += _join_parts(source)
    return [one for one in dict.fromkeys(made) if _is_readable(one)]


_MAX_SHIFTS, _MAX_DECODED = 4, 8_000
_ATBASH = str.maketrans("abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba")


def _find_bytes(hidden: str, spoken: str) -> Iterator[bytes]:
    for form, named in _CODECS:
        if named.search(spoken):
            data = _decode_base58(hidden) if form == "base58" else decode_bytes(form, hidden)
            if data:
                yield data
    folded = spoken.lower()
    if "uuencod" in folded or "uu-encod" in folded:
        with suppress(binascii.Error, ValueError):
            yield b"".join(binascii.a2b_uu(one) for one in hidden.split("\n"))
    if "quoted-printable" in folded:
        yield quopri.decodestring(hidden.encode("utf-8", "replace"))
    if "morse" in folded:
        words = hidden.replace("/", " / ").split(" ")
        yield "".join(_MORSE.get(one, " " if one == "/" else "") for one in words).encode()
    for base in (10, 16, 8, 2):
        numbers = _list_numbers(hidden, base)
        if numbers and max(numbers) < 256:
            yield bytes(numbers)


def _list_numbers(hidden: str, base: int) -> list[int]:
    digits = re.findall(r"(?:0[xX])?([0-9a-fA-F]{1,8})", hidden)[:8_000]
    try:
        return [int(one, base) for one in digits] if len(digits) > 11 else []
    except ValueError:
        return []


def _decode_base58(text: str) -> bytes:
    number = 0
    for one in text[:600]:
        if one not in _BASE58:
            return b""
        number = number * 58 + _BASE58.index(one)
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _undo_formula(hidden: str, spoken: str) -> Iterator[str]:
    """Yield what `f(x) = (a * x + b) mod m` was made of."""
    match = _AFFINE.search(spoken)
    numbers = _list_numbers(hidden, 10) if match is not None else []
    if match is None or not numbers:
        return
    a, b, size = (int(one) for one in match.groups())
    try:
        inverse = pow(a, -1, size)
    except ValueError:
        return
    codes = [inverse * (one - b) % size for one in numbers]
    if size == 26:
        yield "".join(chr(one + 97) for one in codes)
    yield bytes(one & 255 for one in codes).decode("utf-8", "replace")


def _rotate(text: str, by: int) -> str:
    made = []
    for one in text:
        start = 97 if "a" <= one <= "z" else 65 if "A" <= one <= "Z" else 0
        made.append(chr((ord(one) - start + by) % 26 + start) if start else one)
    return "".join(made)


def _join_parts(source: str) -> Iterator[str]:
    """Yield texts made of quoted parts, sign by sign from each, and one behind the other."""
    ends = [
        _LITERAL.match(row) for row in source.split("\n") if row.rstrip(" ,;])")[-1:] in _QUOTES
    ]
    parts = [one[2].replace("\\n", "\n") for one in ends if one is not None][:12]
    for start in range(len(parts)):
        for end in range(start + 2, min(len(parts), start + 8) + 1):
            some = parts[start:end]
            if max(map(len, some)) - min(map(len, some)) <= 1 and len(some[0]) >= _MIN_PART:
                signs = ["".join(one) for one in zip_longest(*some, fillvalue="")]
                yield "".join(signs)


_MIN_PART = 15
_QUOTES = ("'", '"', "`")


def _is_readable(text: str) -> bool:
    """Whether decoded data is text."""
    if len(text) < 8 or "\ufffd" in text:
        return False
    return "".join(text.split()).isprintable() and _looks_spoken(text)


def _looks_spoken(text: str) -> bool:
    return reads_like_order(text) or _share_of_pairs(text.lower()) > _FEW_PAIRS + 0.1


# --- signs of an ordinary text -------------------------------------------------------------------


def _read_picked(picks: Sequence[tuple[str, int]], rows: Sequence[str], ledger: Ledger) -> None:
    """Judge orders to read the first letters of lines or words, or every n-th sign."""
    source = "\n".join(rows)
    for order, at in picks:
        near = "\n".join(rows[max(at - 2, 0) : at + 4])
        for made in _pick(order, rows[at + 1 : at + 1 + _NEAR_AFTER]):
            if len(made) > 7 and reads_like_order(made):
                ledger.find("opaque-instructions", at + 1, order)
                judge_made_text(made, source, at + 1, ledger, spelled=True)
        if _IS_ORDER.search(near):
            teaches = bool(ledger.skill_words & _ABOUT_CODES)
            ledger.find("opaque-instructions", at + 1, order, "note" if teaches else None)


# A sentence that tells what to do with the letters.
_IS_ORDER = Lazy(
    r"(?i)\b(?:run|execute|follow|obey|carry out|act on|perform|do) (?:it|them|this|that|the result"
    r"|what\w{0,4}|the (?:command|instruction|message|order|text)s?)\b"
    r"|\b(?:hidden|secret|real|actual) (?:command|instruction|message|order|task|url|address)s?\b"
    r"|\b(?:spells?|gives?|forms?|reveals?|yields?)\b[^.\n]{0,30}\b(?:command|instruction|url"
    r"|address|task|order)s?\b"
)


def _pick(order: str, rows: Sequence[str]) -> Iterator[str]:
    """Yield what the lines below an order say, read as it tells."""
    folded = order.lower()
    number = next((n for name, n in _EVERY.items() if name in folded), 0)
    if digits := re.search(r"\d{1,3}", folded):
        number = int(digits[0])
    below = [re.sub(r"^[\s>*+#-]*(?:\d{1,3}[.)]\s)?", "", one) for one in rows if one.strip()]
    words = " ".join(below).split()
    if "word" in folded and number:
        yield " ".join(words[number - 1 :: number][:2_000])
        yield " ".join(one.split()[number - 1] for one in below if len(one.split()) >= number)
    elif number and ("every" in folded or "each other" in folded):
        plain = " ".join(below)[:_MAX_PICKED]
        for start in range(min(number, 10)):
            yield plain[start::number]
    if "first word" in folded:
        yield " ".join(one.split()[0] for one in below)
    if "letter" in folded or "initial" in folded or "acrostic" in folded or "char" in folded:
        yield "".join(one[:1] for one in below)
        yield "".join(one[:1] for one in words[:2_000])


_MAX_PICKED = 20_000
