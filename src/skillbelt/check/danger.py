"""Rules about dangerous content: secrets, and commands that run what they download.

They find mistakes and obvious cases, not what a skill hides on purpose: the sandbox confines a run,
not these rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log2

from skillbelt.check.rules import finding
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, one_line, shorten
from skillbelt.values import Diagnostic

# How much of each file is read, and the most findings of a kind in one file.
MAX_SEARCHED_BYTES = 256 * 2**10
_MAX_OF_A_KIND = 5
_SHOWN_CHARS = 80

_PLACEHOLDERS = Lazy(
    r"""
    \A\W*(?:todo|tbd|fixme|xxx+|placeholder|description|skill\ description|test|n/?a|lorem)\W*\Z
    | \b(?:todo|fixme|tbd)\s*[:\]]
    | \blorem\ ipsum\b
    | \A\W*(?:a|an)\ (?:brief|short|clear|concise)\ (?:description|summary)\ of\ (?:what|the|this)\b
    | \A\W*(?:brief|short)\ description\b
    | \A\W*(?:replace|complete|fill)\b.{0,40}\b(?:description|explanation)\b
    | \A\W*(?:your|the|add|insert|enter)\W+(?:\w+\W+){0,3}description\b.{0,20}\Z
    | \A\W*(?:describe|explain)\ (?:what|when|how|your|the|this)\b.{0,30}\bskill\b
    | \A\W*what\ (?:it|this\ skill|the\ skill)\ does\b.{0,30}\bwhen\ to\ use\ it\W*\Z
    | \{\{\s*\w*description\w*\s*\}\} | \A\W*<\w*description\w*>\W*\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)


class _SecretKind(NamedTuple):
    """A kind of secret: its name, a part of a word that each one contains, and its pattern."""

    name: str
    hint: bytes
    form: re.Pattern[bytes]


def _secret(name: str, hint: str, form: str) -> _SecretKind:
    return _SecretKind(name, hint.encode(), Lazy(rf"(?<![A-Za-z0-9_]){form}".encode()))


_SECRETS = (
    _secret("an API key of Anthropic", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{24,200}"),
    _secret(
        "an API key of OpenAI or a service like it",
        "sk-",
        r"sk-(?!ant-)(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{40,200}",
    ),
    _secret("a live key of Stripe", "k_live_", r"[sr]k_live_[A-Za-z0-9]{20,200}"),
    *(
        _secret("a token of GitHub", f"gh{kind}_", rf"gh{kind}_[A-Za-z0-9]{{36,200}}")
        for kind in "pousr"
    ),
    _secret("a token of GitHub", "github_pat_", r"github_pat_[A-Za-z0-9_]{40,200}"),
    _secret("a token of GitLab", "glpat-", r"glpat-[A-Za-z0-9_-]{20,200}"),
    _secret("an access key of AWS", "AKIA", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _secret("an access key of AWS", "ASIA", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _secret("an API key of Google", "AIza", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _secret("a token of Slack", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{20,200}"),
    _secret("a token of Hugging Face", "hf_", r"hf_[A-Za-z]{34}(?![A-Za-z0-9])"),
    _secret("a token of npm", "npm_", r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _secret("a token of PyPI", "pypi-AgEI", r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,300}"),
    _secret("an API key of SendGrid", "SG.", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _secret(
        "a private key",
        "PRIVATE",
        r"-----BEGIN (?:[A-Z]{2,9} )?PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{100}",
    ),
)
# Hints of secrets that are no long word; all others have as many of these characters.
_IN_SHORT_WORDS = (b"SG.", b"PRIVATE")
_IN_SECRETS = bytes(code < 128 and (chr(code).isalnum() or code in b"_-") for code in range(256))
_LEAST_SECRET = b"\1" * 20
# The number of characters before a hint in a secret, -1 if it differs.
_BEFORE = {b"k_live_": 1, b"PRIVATE": -1}
_EXAMPLE = Lazy(
    rb"example|sample|dummy|fake|your|placeholder|redacted|test|1234567|abcdef|xxxx|0000|\.\.\.",
    re.IGNORECASE,
)
# Bits per character: keys are random, and placeholders are not.
_LEAST_ENTROPY = 3.2

_AS = r"(?:sudo\s+(?:-\S+\s+){0,3})?(?:env\s+(?:\S+=\S*\s+){0,3})?(?:/\S{0,40}/)?"
# Programs that run their standard input: a shell without -c, an interpreter without a program.
_RUNNER = (
    rf"{_AS}(?:(?:ba|z|da|k|fi)?sh(?![\w./-])(?!\s+-c)"
    r"|(?:python[0-9.]*|node|perl|ruby|php)(?:[ \t]+-(?=\s)|[ \t]*(?=$|[\n;&|)\"'`#])))"
)
# With an address: a text that only mentions `curl | sh` has none.
_FETCH = r"\b(?:curl|wget)(?=\s[^\n|;]{0,300}(?:://|\$|\w\.\w|localhost))"
_WEB = r"\b(?:irm|iwr|invoke-restmethod|invoke-webrequest)\s"
# Each pattern with words, one of which is in every text that it matches.
_FETCHED = tuple(
    (tuple(word.encode() for word in words), Lazy(form.encode(), re.IGNORECASE))
    for words, form in (
        # curl ... | sh
        (("curl", "wget"), rf"{_FETCH}(?:[^\n|;]{{0,300}}\|(?!\|)){{1,3}}&?\s*{_RUNNER}"),
        # bash <(curl ...), sh -c "$(curl ...)", eval "$(curl ...)"
        (
            ("curl", "wget"),
            r"(?:\b(?:ba|z|da|k)?sh(?:\s+-\w{1,5}){0,3}|\beval|\bsource|(?<![\w.])\.)\s+[\"']?"
            r"(?:<\(|\$\(|`)\s*(?:curl|wget)\s",
        ),
        # curl -o x ... && sh x
        (
            ("curl", "wget"),
            rf"{_FETCH}[^\n|;]{{0,200}}\s(?:-o|-O|--output|>)\s*(?P<file>[\w./-]{{2,80}})"
            r"[^\n|;]{0,200}(?:&&|;)\s*(?:chmod\s[^\n|;&]{0,80}(?:&&|;)\s*)?"
            r"(?:(?:ba|z|da)?sh\s+|\./)?(?P=file)(?![\w./-])",
        ),
        # irm ... | iex
        (("iex", "invoke-expression"), rf"{_WEB}[^\n|]{{0,300}}\|\s*(?:iex|invoke-expression)\b"),
        (
            ("iex", "invoke-expression"),
            rf"\b(?:iex|invoke-expression)\s*[(\"' ]{{1,4}}"
            rf"(?:{_WEB}|[^\n]{{0,60}}downloadstring\()",
        ),
        # exec(requests.get(...).text)
        (
            ("exec", "eval"),
            r"\b(?:exec|eval)\s*\(\s*(?:compile\s*\(\s*)?(?:await\s+)?"
            r"(?:requests\.|httpx\.|urllib\.|urlopen\(|fetch\()",
        ),
        # base64 -d | sh
        (("base64",), rf"\bbase64\s+(?:-d|--decode)\b[^\n|;]{{0,100}}\|\s*{_RUNNER}"),
    )
)


def is_placeholder(description: str) -> bool:
    """Whether a description is a template's placeholder."""
    return bool(_PLACEHOLDERS.search(description))


def check_content(data: bytes, path: str) -> Iterator[Diagnostic]:
    """Yield the secrets in a text, and the commands that run what they download."""
    data = data[:MAX_SEARCHED_BYTES]
    if b"\0" in data:
        return
    yield from list(_find_secrets(data, path))[:_MAX_OF_A_KIND]
    yield from list(_find_fetched(data, path))[:_MAX_OF_A_KIND]


def _find_secrets(data: bytes, path: str) -> Iterator[Diagnostic]:
    for line, what in find_secrets(data):
        yield finding("secret-in-text", path, line, f"the text holds {what}")


def find_secrets(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the line of each secret in a text, and what it is."""
    words = _find_long_words(data)
    for name, hint, form in _SECRETS:
        is_there = hint in (data if hint in _IN_SHORT_WORDS else words)
        for match in _find_all(hint, form, data) if is_there else ():
            value = match[0]
            private = value.startswith(b"-----")
            if _EXAMPLE.search(value) or (not private and _entropy(value) < _LEAST_ENTROPY):
                continue
            # Only the beginning: more people read a report than the file.
            begin = "" if private else f" ({value[:7].decode('ascii')}…)"
            yield _line(data, match.start()), f"{name}{begin}"


def _find_long_words(data: bytes) -> bytes:
    """Return the words that may be a secret, with a blank between them."""
    kinds = data.translate(_IN_SECRETS)
    found: list[bytes] = []
    at = kinds.find(_LEAST_SECRET)
    while at >= 0:
        end = kinds.find(b"\0", at)
        end = end if end >= 0 else len(kinds)
        found.append(data[at:end])
        at = kinds.find(_LEAST_SECRET, end)
    return b" ".join(found)


def _find_all(hint: bytes, form: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the matches of a pattern; the hint, with which most begin, is found faster."""
    before = _BEFORE.get(hint, 0)
    at = data.find(hint) if before >= 0 else -1
    while at >= 0:
        if match := form.match(data, max(at - before, 0)):
            yield match
        at = data.find(hint, match.end() if match else at + 1)
    if before < 0:
        yield from form.finditer(data)


def _find_fetched(data: bytes, path: str) -> Iterator[Diagnostic]:
    folded = data.lower()
    if not any(word in folded for words, _ in _FETCHED for word in words):
        return
    # A command may continue on the next line; the offsets stay the same.
    joined = data.replace(b"\\\r\n", b"   ").replace(b"\\\n", b"  ")
    reported: set[int] = set()
    for words, form in _FETCHED:
        for match in form.finditer(joined) if any(word in folded for word in words) else ():
            line = _line(data, match.start())
            if line not in reported:
                reported.add(line)
                text = shorten(one_line(_redact(match[0]).decode("utf-8", "replace")), _SHOWN_CHARS)
                message = f"a program is fetched and run at once: {text!r}"
                yield finding("fetch-and-run", path, line, message)


def _redact(text: bytes) -> bytes:
    for _, _, form in _SECRETS:
        text = form.sub(b"...", text)
    return text


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def _entropy(value: bytes) -> float:
    counts = [value.count(byte) for byte in set(value)]
    return -sum(n / len(value) * log2(n / len(value)) for n in counts)
