"""Read one file of a skill: choose its readers by its name and its first bytes."""

from __future__ import annotations

import re
from functools import lru_cache
from posixpath import basename, splitext

from skillbelt.check.danger import find_secrets
from skillbelt.scan.decoding import decode_text
from skillbelt.scan.javascript import read_javascript
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.markdown import (
    Paragraph,
    ShownCode,
    find_attributes,
    find_padded,
    inline_code,
    read_markdown,
    remote_images,
)
from skillbelt.scan.package_names import judge_package
from skillbelt.scan.patterns import search_code
from skillbelt.scan.places import find_paths, place_class
from skillbelt.scan.prose import fold, is_about_security, is_plain, read_prose
from skillbelt.scan.python_code import read_python
from skillbelt.scan.shell import read_shell
from skillbelt.scan.values import KINDS
from skillbelt.text import hidden
from skillbelt.values import SKILL_FILE

MAX_TEXT = 512 * 2**10

_BY_ENDING = {
    ".md": "markdown", ".mdx": "markdown", ".markdown": "markdown", ".rst": "markdown",
    ".txt": "text", ".py": "python", ".pyw": "python", ".sh": "shell", ".bash": "shell",
    ".zsh": "shell", ".command": "shell", ".js": "javascript", ".mjs": "javascript",
    ".cjs": "javascript", ".jsx": "javascript", ".ts": "typescript", ".mts": "typescript",
    ".tsx": "typescript", ".ps1": "powershell", ".psm1": "powershell", ".bat": "powershell",
    ".cmd": "powershell", ".rb": "other", ".pl": "other", ".php": "other", ".go": "other",
    ".rs": "other", ".lua": "other", ".swift": "other", ".c": "other", ".java": "other",
    ".json": "data", ".yaml": "data", ".yml": "data", ".toml": "data", ".ini": "data",
    ".cfg": "data", ".csv": "data", ".xml": "data", ".html": "markdown", ".htm": "markdown",
    ".svg": "markdown", ".env": "data", ".plist": "data", ".service": "data",
}  # fmt: skip
_SHEBANG = re.compile(r"#!.*?\b(?:(python)|(node|deno|bun)|((?:ba|z|da|k)?sh))")
# A block without a language is shell if it begins like a command.
_COMMAND = re.compile(
    r"(?m)^[^\S\n]*(?:\$ |# |> )?(?:sudo |env )?(?:curl|wget|bash|sh|npm|npx|pip3?|python3?|node"
    r"|git|cat|echo|cd|rm|chmod|mkdir|brew|apt(?:-get)?|docker|export|uvx?|powershell|eval|nc|base64"
    r"|openssl|crontab|scp|ssh|tar|unzip|xattr|osascript|launchctl)\b"
)
_PROMPT = re.compile(r"(?m)^[^\S\n]*(?:\$|%|❯|>)[ \t]+(?=\S)")
# What a command in prose has that does more than name a program.
_ACTS = ("|", "$(", "-", "777", "+rwx", "+s ", "://")
_OPERATORS = ("|", "&&", "$(", "http://", "https://")
# Before a block that shows what not to do.
_BAD_EXAMPLE = re.compile(
    r"(?i)❌|🚫|⛔|\bbad\b|\bwrong\b|\bavoid\b|\bvulnerab|\binsecure\b|\bmalicious\b|\battacks?\b"
    r"|\bexploit|anti-?pattern|\bunsafe\b|\bdangerous\b|red flags?|\bpayloads?\b|\bthreats?\b"
    r"|\bproof of concept|\bpentest|reverse shell"
)
_BAD_COMMENT = re.compile(
    r"(?im)\A\s*(?:#|//|--)\s*(?:❌|🚫|bad\b|wrong\b|avoid|don't|vulnerable|unsafe)"
)
_ADDRESSED = re.compile(
    r"\b(?:ai|assistant|agent|claude|model|llm|gpt|copilot|you)\b.{0,80}\b(?:must|should|always"
    r"|never|need to|shall|will|are required|have to|instead|also)\b"
    r"|\b(?:must|always|never|instruction|system)\b.{0,60}\b(?:ai|assistant|agent|claude|model"
    r"|llm)\b"
)
_TAGS = re.compile("[\U000e0020-\U000e007f]{4,}")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_REQUIREMENT = re.compile(
    r"(?m)^[ \t]*([A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?(?:[=<>!~].*)?|git\+\S+"
    r"|https?://\S+)[ \t]*(?:#.*)?$"
)


def kind_of_text(path: str, text: str) -> str:
    """Return which readers a text needs."""
    name, ending = basename(path).lower(), splitext(path)[1].lower()
    if name.startswith("requirements") and ending in (".txt", ".in"):
        return "requirements"
    if name == "package.json":
        return "package"
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    match = _SHEBANG.match(text)
    if match:
        return "python" if match[1] else "javascript" if match[2] else "shell"
    if name in ("makefile", "dockerfile", "justfile") or name.startswith(("pre-", "post-")):
        return "shell"
    return "data"


def read_text_file(path: str, text: str, ledger: Ledger, *, first_line: int = 1) -> None:
    """Note what one text file of a skill holds."""
    ledger.path, ledger.first_line = path, first_line
    with _Shown(ledger, bool(_ASIDE.search(path))):
        _read_text_file(path, text, ledger)


# What no model is given and no user runs: questions for tests, and what is inside a container.
_ASIDE = re.compile(r"(?i)(?:^|/)(?:evals?|benchmarks?)/[^/]+\.jsonl?$|(?:^|/)dockerfile[^/]*$")


def _read_text_file(path: str, text: str, ledger: Ledger) -> None:
    find_hidden_characters(text, ledger)
    for line, what in find_secrets(text.encode("utf-8", "replace")):
        ledger.find("secret-in-text", line, what)
    kind = kind_of_text(path, text)
    if kind == "markdown":
        read_document(text, ledger)
    elif kind == "text":
        read_plain(text, ledger)
    elif kind in ("data", "requirements", "package"):
        _read_data(text, kind, ledger)
    else:
        read_code(text, kind, 1, ledger)
        _read_comments(text, 1, ledger)


def find_hidden_characters(text: str, ledger: Ledger) -> None:
    """Note characters that a reader does not see, and what they spell."""
    if text.isascii():
        return
    for match in _TAGS.finditer(text):
        spelled = "".join(chr(ord(one) - 0xE0000) for one in match[0])
        ledger.find("hidden-characters", text.count("\n", 0, match.start()) + 1, repr(spelled))
        read_prose(spelled, text.count("\n", 0, match.start()) + 1, ledger)
        return
    # White space is looked at one by one, and there is much of it.
    squeezed = text.removeprefix("\ufeff").replace("\n", " ").replace("\t", " ")
    odd = [one for one in hidden(squeezed) if ord(one) > 0xA0]
    spread = [one for one in odd if one not in "\u200e\u200f\ufeff\u00ad"]
    if not spread:
        return
    line = text.count("\n", 0, text.index(spread[0])) + 1
    bidi = _BIDI.search(text)
    listed = ", ".join(f"U+{ord(one):04X}" for one in sorted(set(spread))[:6])
    many = len(spread) >= 8
    ledger.find("hidden-characters", line, listed, "ask" if bidi or many else "note")


def read_document(text: str, ledger: Ledger) -> None:
    """Note what a Markdown text says and shows.

    What a skill about security shows in its references counts for less: it teaches.
    """
    teaches = ledger.path != SKILL_FILE and is_about_security(ledger.skill_words)
    with _Shown(ledger, teaches):
        _read_document(text, ledger)


def _read_document(text: str, ledger: Ledger) -> None:
    parts = read_markdown(text)
    plain = is_plain(text)
    for paragraph in parts.paragraphs:
        _read_paragraph(paragraph, ledger, plain=plain)
    for block in parts.blocks:
        _read_block(block, ledger, plain=plain)
    for paragraph in parts.hidden:
        read_hidden(paragraph, ledger)
    for paragraph in find_attributes(text):
        read_prose(paragraph.text, paragraph.line, ledger)
    _read_encoded(text, ledger)
    for paragraph in find_padded(text):
        if not re.match(r"[|+\-=]", paragraph.text):
            ledger.find("padded-text", paragraph.line, paragraph.text)


_ENCODED = re.compile(r"[A-Za-z0-9+/]{60,20000}+={0,2}")


def _read_encoded(text: str, ledger: Ledger) -> None:
    """Note instructions that a text holds in base64 or in hexadecimal digits."""
    for number, match in enumerate(_ENCODED.finditer(text)):
        if number > 20:
            return
        is_hex = all(one in "0123456789abcdefABCDEF" for one in match[0])
        plain = decode_text("hex" if is_hex else "base64", match[0]) or ""
        if plain.isprintable() and " " in plain:
            read_prose(plain, text.count("\n", 0, match.start()) + 1, ledger)


def _read_turned(text: str, line: int, ledger: Ledger) -> None:
    """Note instructions that a paragraph says to read backwards or with other letters."""
    folded = text.lower()
    if "rot13" in folded or "rot-13" in folded:
        read_prose(decode_text("rot13", text) or "", line, ledger)
    if "backward" in folded or "revers" in folded:
        read_prose(text[::-1], line, ledger)


def _read_paragraph(paragraph: Paragraph, ledger: Ledger, *, plain: bool) -> None:
    """Note what prose says, what code in it does, and which addresses it names."""
    text, line = paragraph.text, paragraph.line
    read_prose(text, line, ledger, is_plain=plain)
    _read_turned(text, line, ledger)
    if "://" in text:
        ledger.names_url(text, line, told=bool(_REACHES.search(text)))
    _note_paths(text, line, ledger)
    for code, at in inline_code(text) if "`" in text else ():
        if _COMMAND.match(code) and any(sign in code for sign in _ACTS):
            before = text.split("\n")[at].partition(code)[0][-80:]
            shown = _announces_bad(paragraph.heading) or bool(_BAD_EXAMPLE.search(before))
            with _Shown(ledger, shown):
                read_shell(code, line + at, ledger)
    if any(sign in text for sign in _OPERATORS) and _COMMAND.match(
        _PROMPT.sub("", text.partition("\n")[0])
    ):
        with _Shown(ledger, _announces_bad(paragraph.heading)):
            read_shell(_PROMPT.sub("", text), line, ledger)
    for address, at in remote_images(text) if "![" in text else ():
        if "{" in address or re.search(
            r"[?&]\w+=.{0,3}(?:data|secret|token|env|content|\$)", address
        ):
            ledger.find("send-instruction", line + at, address)


def _note_paths(text: str, line: int, ledger: Ledger) -> None:
    """Note the files with secrets that prose names; whether they are to be read is prose, too."""
    if not any(begin in text for begin in ("~/", "HOME", "%\\", "/etc/", "/proc/")):
        return
    for path, at in find_paths(text):
        if place_class(path) in ("credential", "service", "settings", "history"):
            ledger.can("read", path, line + text.count("\n", 0, at))


@lru_cache(maxsize=256)
def _announces_bad(text: str) -> bool:
    """Whether the text before a part says that it shows what not to do."""
    return bool(_BAD_EXAMPLE.search(text))


# Prose in which an address is more than a reference.
_REACHES = re.compile(
    r"(?i)\b(?:fetch|download|curl|wget|post|send|upload|call|request|query|api|endpoint|install|visit)"
)


class _Shown:
    """While it is open, what is found counts for one kind less: the text only shows it."""

    def __init__(self, ledger: Ledger, shown: bool) -> None:
        self.ledger, self.shown, self.before = ledger, shown, ledger.weaker

    def __enter__(self) -> None:
        self.ledger.weaker = self.before or self.shown

    def __exit__(self, *_: object) -> None:
        self.ledger.weaker = self.before


# Blocks inside of blocks.
_MAX_FENCES = 3


def _read_block(block: ShownCode, ledger: Ledger, *, plain: bool, depth: int = 0) -> None:
    language, text = block.language, block.text
    shown = _announces_bad(block.before[-300:]) or bool(_BAD_COMMENT.match(text))
    with _Shown(ledger, shown):
        if language in ("", "text", "plaintext", "markdown", "md", "prompt", "txt"):
            if _COMMAND.search(text) and language in ("", "text", "plaintext", "txt"):
                read_code(text, "shell", block.line, ledger)
            ledger.names_url(text, block.line)
            inner = read_markdown(text, block.line)
            for paragraph in inner.paragraphs:
                read_prose(paragraph.text, paragraph.line, ledger, is_plain=plain)
            for one in inner.blocks if depth < _MAX_FENCES else ():
                _read_block(one, ledger, plain=plain, depth=depth + 1)
        elif language == "data":
            ledger.names_url(text, block.line)
            _read_values(text, block.line, ledger, plain=plain)
        else:
            read_code(text, language, block.line, ledger)
            _read_prose_in_code(block, ledger, plain=plain)
            if '"""' in text or "/*" in text:
                _read_comments(text, block.line, ledger)


# A line of a block that is a sentence or a comment, and no code.
_SENTENCE_LINE = re.compile(
    r"(?m)^[ \t]*(?:(?:#+|//+|--|\*+|\d{1,2}[.)]|-)[ \t]*)?"
    r"(?:[*_>]{0,3}[A-Za-z'][\w',:;!`-]*[*_]{0,3}[ \t]+){5,}[^\n]*$"
)


def _read_prose_in_code(block: ShownCode, ledger: Ledger, *, plain: bool) -> None:
    """Note instructions between the lines of a block: a model reads them like all others."""
    lines: list[str] = []
    start = last = -1
    for match in _SENTENCE_LINE.finditer(block.text):
        at = block.text.count("\n", 0, match.start())
        if lines and at > last + 1:
            paragraph = Paragraph("\n".join(lines), block.line + start, "")
            _read_paragraph(paragraph, ledger, plain=plain)
            lines = []
        start = start if lines else at
        lines.append(match[0])
        last = at
    if lines:
        _read_paragraph(Paragraph("\n".join(lines), block.line + start, ""), ledger, plain=plain)


def read_code(text: str, language: str, line: int, ledger: Ledger) -> None:
    """Note what code of a language does."""
    parsed = False
    if language == "shell":
        read_shell(_PROMPT.sub("", text), line, ledger)
        parsed = True
    elif language == "python":
        parsed = read_python(text, line, ledger)
        if not parsed and _COMMAND.search(text):  # a command under the wrong name
            read_shell(text, line, ledger)
    elif language in ("javascript", "typescript"):
        parsed = read_javascript(text, language, line, ledger)
    search_code(text, line, ledger, parsed=parsed)


def read_hidden(paragraph: Paragraph, ledger: Ledger) -> None:
    """Note instructions in what a rendered page does not show."""
    text = paragraph.text
    if len(text) < 20:
        return
    before = len(ledger.findings)
    read_prose(text, paragraph.line, ledger)
    strong = any(one.kind != KINDS[-1] for one in ledger.findings[before:])
    if strong:
        ledger.find("hidden-comment", paragraph.line, text)
    elif _ADDRESSED.search(fold(text)):
        ledger.find("hidden-comment", paragraph.line, text, "ask")
    if _COMMAND.search(text) and "://" in text:
        read_shell(text, paragraph.line, ledger)


def read_plain(text: str, ledger: Ledger) -> None:
    """Note what a plain text says."""
    plain = is_plain(text)
    for paragraph in read_markdown(text).paragraphs:
        _read_paragraph(paragraph, ledger, plain=plain)
    for paragraph in find_padded(text):
        ledger.find("padded-text", paragraph.line, paragraph.text)


def _read_data(text: str, kind: str, ledger: Ledger) -> None:
    ledger.names_url(text, 1, used=True)
    if kind == "requirements":
        for match in _REQUIREMENT.finditer(text):
            judge_package("pip", match[1], text.count("\n", 0, match.start()) + 1, ledger)
    elif kind == "package":
        _read_package(text, ledger)
    _read_values(text, 1, ledger, plain=is_plain(text))


_HOOK = re.compile(r'"((?:pre|post)?(?:install|prepare|publish))"\s*:\s*"((?:[^"\\]|\\.)*)"')
_DEPENDENCY = re.compile(
    r'"(@?[\w./-]{2,80})"\s*:\s*"([~^]?\d[\w.+-]*|latest|\*|(?:git\+|https?:)[^"]{1,200})"'
)


def _read_package(text: str, ledger: Ledger) -> None:
    for match in _HOOK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1] in ("preinstall", "install", "postinstall", "prepare"):
            read_shell(match[2].replace('\\"', '"'), line, ledger)
            ledger.find("dynamic-code", line, match[0], "note")
    for match in _DEPENDENCY.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1] != "version":
            judge_package("npm", match[1], line, ledger)


def _read_values(text: str, line: int, ledger: Ledger, *, plain: bool) -> None:
    """Note instructions and commands in the long texts of a data file."""
    for number, one in enumerate(text.split("\n")[:5_000]):
        if len(one) > 40:
            read_prose(one[:4_000], line + number, ledger, is_plain=plain)
            if any(sign in one for sign in _RUN_SIGNS) and _RUN_VALUE.search(one):
                read_shell(one.strip().strip("-,").strip().strip('"'), line + number, ledger)


_RUN_SIGNS = ("|", "/dev/tcp", "base64 -")
_RUN_VALUE = re.compile(r"(?:curl|wget|bash|sh|python3?|node|powershell)\b.*\||/dev/tcp|base64 -")


_LONG_COMMENT = re.compile(
    r'(?m)(?:^[ \t]*(?:#|//)[^\n]{20,}\n?){1,40}|"""[\s\S]{20,3000}?"""|/\*[\s\S]{20,3000}?\*/'
)


def _read_comments(text: str, line: int, ledger: Ledger) -> None:
    """Note instructions to a model in the comments of a script."""
    for number, match in enumerate(_LONG_COMMENT.finditer(text[:MAX_TEXT])):
        if number > 200:
            return
        plain = re.sub(r"(?m)^[ \t]*(?:#|//|\*)+", "", match[0])
        read_prose(plain, line + text.count("\n", 0, match.start()), ledger)
