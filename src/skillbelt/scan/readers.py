"""Read one file of a skill: choose its readers by its name and its first bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from posixpath import basename, splitext
from typing import TYPE_CHECKING

from skillbelt.check.danger import find_secrets
from skillbelt.late import Late
from skillbelt.scan.addresses import find_urls, is_known, is_reserved
from skillbelt.scan.command_names import COMMAND_NAMES, LATER_COMMAND
from skillbelt.scan.decoding import decode_text, find_spelled, has_run, is_sentence
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.markdown import (
    Paragraph,
    ShownCode,
    find_attributes,
    find_padded,
    inline_code,
    number_lines,
    read_markdown,
    remote_images,
)
from skillbelt.scan.patterns import search_code, search_plainly
from skillbelt.scan.places import find_paths, place_class
from skillbelt.scan.prose import Skim, fold, is_about_security, read_prose, read_skimmed
from skillbelt.scan.prose_more_languages import judge_foreign_address
from skillbelt.scan.self_reading import search_self_reading
from skillbelt.scan.values import KINDS, FindingKind
from skillbelt.text import Lazy, hidden
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt.scan import (
        data_values,
        embedded,
        javascript,
        machine_settings,
        make_values,
        opaque,
        package_names,
        powershell,
        python_code,
        settings_files,
        shell,
        tool_descriptions,
    )
else:  # cost: 10 ms, each only for files or blocks in its language
    data_values = Late("skillbelt.scan.data_values")
    embedded = Late("skillbelt.scan.embedded")
    machine_settings = Late("skillbelt.scan.machine_settings")
    make_values = Late("skillbelt.scan.make_values")
    package_names = Late("skillbelt.scan.package_names")
    opaque = Late("skillbelt.scan.opaque")
    powershell = Late("skillbelt.scan.powershell")
    javascript = Late("skillbelt.scan.javascript")
    python_code = Late("skillbelt.scan.python_code")
    settings_files = Late("skillbelt.scan.settings_files")
    shell = Late("skillbelt.scan.shell")
    tool_descriptions = Late("skillbelt.scan.tool_descriptions")

MAX_TEXT = 512 * 2**10

_BY_ENDING = {
    ".md": "markdown", ".mdx": "markdown", ".markdown": "markdown", ".rst": "markdown",
    ".txt": "text", ".py": "python", ".pyw": "python", ".sh": "shell", ".bash": "shell",
    ".fish": "shell", ".ksh": "shell", ".bats": "shell", ".envrc": "shell", ".mk": "makefile",
    ".dockerfile": "dockerfile", ".ipynb": "notebook", ".pth": "pth", ".cts": "typescript",
    ".vbs": "powershell", ".vba": "powershell", ".psd1": "powershell", ".applescript": "other",
    ".r": "other", ".jl": "other", ".kt": "other", ".cs": "other", ".scala": "other",
    ".groovy": "other", ".gradle": "other", ".awk": "other", ".tcl": "other", ".ex": "other",
    ".exs": "other", ".dart": "other", ".nim": "other", ".cpp": "other", ".m": "other",
    ".zsh": "shell", ".command": "shell", ".js": "javascript", ".mjs": "javascript",
    ".cjs": "javascript", ".jsx": "javascript", ".ts": "typescript", ".mts": "typescript",
    ".tsx": "typescript", ".ps1": "powershell", ".psm1": "powershell", ".bat": "powershell",
    ".cmd": "powershell", ".rb": "other", ".pl": "other", ".php": "other", ".go": "other",
    ".pm": "other", ".rake": "other", ".gemspec": "other", ".php5": "other", ".phtml": "other",
    ".rmd": "markdown", ".qmd": "markdown", ".hta": "powershell", ".wsf": "powershell",
    ".scpt": "other", ".jxa": "javascript", ".hs": "other", ".clj": "other", ".erl": "other",
    ".kts": "other", ".cr": "other", ".el": "other", ".vim": "other", ".zig": "other",
    ".rs": "other", ".lua": "other", ".swift": "other", ".c": "other", ".java": "other",
    ".json": "data", ".yaml": "data", ".yml": "data", ".toml": "data", ".ini": "data",
    ".cfg": "data", ".csv": "data", ".xml": "data", ".html": "markdown", ".htm": "markdown",
    ".svg": "markdown", ".env": "data", ".plist": "data", ".service": "data",
}  # fmt: skip
TEXT_ENDINGS = frozenset(_BY_ENDING)
_SHEBANG = Lazy(r"#!.*?\b(?:(python)|(node|deno|bun)|((?:ba|z|da|k)?sh))")
# A block without a language is shell if it begins like a command.
_COMMAND = Lazy(rf"(?m)^[^\S\n]*{COMMAND_NAMES}")
# A cheap test first: every paragraph with a command between backquotes matches it.
_INLINE_COMMAND = Lazy(rf"`[^\S\n]*+(?:[\w+#-]++[^\S\n]++)??{COMMAND_NAMES}")
# Another command behind the first one of a line, of which prose names fewer.
_LATER_COMMAND = Lazy(LATER_COMMAND)
_PROMPT = Lazy(r"(?m)^[^\S\n]*(?:\$|%|❯|>)[ \t]+(?=\S)")
# Signs of a command in prose that does more than name a program.
_ACTS = ("|", "$(", "-", "777", "+rwx", "+s ", "://")
_OPERATORS = ("|", "&&", "$(", "http://", "https://")
# Where paths begin that prose may name.
_PATH_BEGINS = ("~/", "HOME", "%\\", "/etc/", "/proc/")
# Before a block that shows what not to do.
_BAD_EXAMPLE = Lazy(
    r"(?i)❌|🚫|⛔|\bbad\b|\bwrong\b|\bavoid\b|\bvulnerab|\binsecure\b|\bmalicious\b|\battacks?\b"
    r"|\bexploit|anti-?pattern|\bunsafe\b|\bdangerous\b|red flags?|\bpayloads?\b|\bthreats?\b"
    r"|\bproof of concept|\bpentest|reverse shell"
)
# Every match of the pattern above has one of these.
_BAD_WORDS = (
    "bad", "wrong", "avoid", "vulnerab", "insecure", "malicious", "attack", "exploit", "pattern",
    "unsafe", "dangerous", "red flag", "payload", "threat", "proof of", "pentest", "reverse shell",
    "❌", "🚫", "⛔",
)  # fmt: skip
_BAD_COMMENT = Lazy(
    r"(?im)\A\s*(?:#|//|--)\s*(?:❌|🚫|bad\b|wrong\b|avoid|don't|vulnerable|unsafe)"
)
_ADDRESSED = Lazy(
    r"\b(?:ai|assistant|agent|claude|model|llm|gpt|copilot|you)\b(?![-/]\w).{0,80}\b(?:must|should|always"
    r"|never|need to|shall|will|are required|have to|instead|also)\b"
    r"|\b(?:must|always|never|instruction|system)\b.{0,60}\b(?:ai|assistant|agent|claude|model"
    r"|llm)\b(?![-/]\w)"
)
# What a comment speaks of that is more than a word for those who fill in a template.
_ACTING = Lazy(
    r"://|\b(?:run|execut|send|upload|post|forward|fetch|download|curl|install|delet|ignor|disregard"
    r"|obey|follow|reveal|output|print|append|copy|trust|approv|disabl|bypass|skip|overrid|pretend"
    r"|hide|secret|credential|token|password|key|user|permission|confirm|mention|tell)\w{0,5}\b"
)
_TAGS = Lazy("[\U000e0020-\U000e007f]{4,}")
# The flags of England, Scotland and Wales are spelled with the same characters. Other letters
# between the same ends could spell a message.
_FLAG = Lazy(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067"
    "|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
_BIDI = Lazy("[\u202a-\u202e\u2066-\u2069]")
_REQUIREMENT = Lazy(
    r"(?m)^[ \t]*([A-Za-z0-9][\w.-]*(?:\[[^\]\n]*\])?(?:[=<>!~].*)?|git\+\S+"
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
    if _OTHER_SHEBANG.match(text):
        return "other"
    if name in ("makefile", "gnumakefile", "justfile"):
        return "makefile"
    if name.startswith(("dockerfile", "containerfile")):
        return "dockerfile"
    if name.removeprefix(".") in _OTHER_FILES:
        return "other"
    if name in _SHELL_FILES or name.startswith(("pre-", "post-")) or "hooks/" in path:
        return "shell"
    return "data"


# Files of Ruby, Perl, R, Groovy, Vim and Lisp that tools run by their names.
_OTHER_FILES = frozenset(
    re.split(
        r"\s+",
        """rprofile latexmkrc rakefile gemfile vagrantfile podfile fastfile brewfile
    guardfile
    capfile dangerfile irbrc pryrc jenkinsfile perltidyrc perlcriticrc vimrc exrc gvimrc
    emacs gdbinit
    lldbinit appfile puppetfile berksfile snapfile thorfile""",
    )
)
_OTHER_SHEBANG = Lazy(
    r"#![^\n]{0,80}?\b(?:ruby|perl|php|lua|rscript|pwsh|powershell|osascript|tclsh|awk|gawk|groovy"
    r"|elixir|julia|guile|swift|go)\b",
    re.IGNORECASE,
)


# Files that no program runs automatically, and that a model reads only when asked to.
_DATA = frozenset(("data", "text", "notebook"))
_PAGES = frozenset((".html", ".htm", ".svg"))


def is_acted_on(path: str, text: str) -> bool:
    """Whether a file is code, or a document that a model reads, by its name and beginning."""
    is_page = splitext(path)[1].lower() in _PAGES
    return not is_page and kind_of_text(path, text) not in _DATA


# Files without an ending that a shell reads, and hooks of git.
_SHELL_FILES = frozenset(
    (".envrc", ".bashrc", ".bash_profile", ".bash_login", ".zshrc", ".zshenv", ".zprofile",
     ".profile", "commit-msg", "prepare-commit-msg", "applypatch-msg", "pre-commit")
)  # fmt: skip


def read_text_file(path: str, text: str, ledger: Ledger, *, first_line: int = 1) -> None:
    """Note what one text file of a skill holds."""
    ledger.path, ledger.first_line = path, first_line
    kind = kind_of_text(path, text)
    # No model reads the data of tests, and no user runs the steps inside a container.
    asked = _QUESTIONS.search(path) or (kind == "data" and _TEST_DATA.search(path))
    with _Weakened(ledger, kind == "dockerfile" or bool(asked)):
        _read_text_file(kind, text, ledger)


_QUESTIONS = Lazy(r"(?i)(?:^|/)(?:evals?|benchmarks?)/[^/]+\.jsonl?$")
_TEST_DATA = Lazy(r"(?i)(?:^|/)tests?/(?!package\.json|settings)[\w.-]+\.jsonl?$")


def _read_text_file(kind: str, text: str, ledger: Ledger) -> None:
    find_hidden_characters(text, ledger)
    for line, what in find_secrets(text.encode("utf-8", "replace")):
        ledger.find("secret-in-text", line, what)
    if kind == "markdown":
        read_document(text, ledger)
        if splitext(ledger.path)[1].lower() in _PAGES:
            _read_page_scripts(text, ledger)
    elif kind == "text":
        read_plain(text, ledger)
    elif kind in ("data", "requirements", "package", "notebook"):
        _read_data(text, kind, ledger)
    elif kind in _REWRITTEN:
        language, rewrite = _REWRITTEN[kind]
        read_code(rewrite(text), language, 1, ledger)
        if kind == "makefile":
            make_values.read_make(text, ledger)
        machine_settings.read_settings_in_code(text, 1, ledger)
        _read_commands(text, 1, ledger)
        ledger.names_url(text, 1)
        _read_comments(text, 1, ledger, None)
    else:
        read_code(text, kind, 1, ledger)
        _read_comments(text, 1, ledger, None)
        if kind in _WITH_SETTINGS:
            machine_settings.read_settings_in_code(text, 1, ledger)


# Code in which people set where packages come from.
_WITH_SETTINGS = frozenset(("other", "shell", "powershell"))
_PAGE_SCRIPT = Lazy(r"(?i)<script\b[^>]{0,500}>")


def _read_page_scripts(text: str, ledger: Ledger) -> None:
    """Note what the scripts of a page do."""
    folded = text.lower() if "</" in text else ""
    at = counted = 0
    line = 1
    while (opened := _PAGE_SCRIPT.search(text, at)) is not None:
        end = folded.find("</script", opened.end())
        at = end if end >= 0 else len(text)
        line += text.count("\n", counted, opened.end())
        counted = opened.end()
        if "json" not in opened[0]:
            read_code(text[opened.end() : at], "javascript", line, ledger)


# Files of which only some lines are code.
_REWRITTEN: dict[str, tuple[str, Callable[[str], str]]] = {
    "makefile": ("shell", lambda text: embedded.find_recipes(text)),
    "make": ("shell", lambda text: embedded.find_recipes(text)),
    "dockerfile": ("shell", lambda text: embedded.find_image_steps(text)),
    "pth": ("python", lambda text: embedded.find_path_imports(text)),
}


def _may_hide(text: str) -> bool:
    """Whether a text may have characters that are not seen, found without looking at each."""
    if not text.replace("\n", " ").replace("\t", " ").replace("\u00a0", " ").isprintable():
        return True
    # Selectors of forms count as printable; those of this plane begin with the same bytes.
    return b"\xf3\xa0" in text.encode("utf-8", "surrogatepass")


def find_hidden_characters(text: str, ledger: Ledger) -> None:
    """Note characters that a reader does not see, and what they spell."""
    if text.isascii() or not _may_hide(text):
        return
    text = _FLAG.sub("", text)
    for match in _TAGS.finditer(text):
        spelled = "".join(chr(ord(one) - 0xE0000) for one in match[0])
        ledger.find("hidden-characters", text.count("\n", 0, match.start()) + 1, repr(spelled))
        read_prose(spelled, text.count("\n", 0, match.start()) + 1, ledger)
        return
    # Each white space would be checked, and there is much of it.
    squeezed = text.removeprefix("\ufeff")
    squeezed = squeezed.replace("\n", " ").replace("\t", " ")
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
    with _Weakened(ledger, teaches):
        _read_document(text, ledger)


def _read_document(text: str, ledger: Ledger) -> None:
    parts = read_markdown(text)
    look = _Look(parts.shown, ledger)
    for paragraph in parts.paragraphs:
        _read_paragraph(paragraph, ledger, look)
    for block in parts.blocks:
        _read_block(block, ledger, look)
    for paragraph in parts.hidden:
        read_hidden(paragraph, ledger)
    for paragraph in find_attributes(text):
        read_prose(paragraph.text, paragraph.line, ledger)
    _read_encoded(text, ledger)
    opaque.read_opaque(parts, ledger)
    for paragraph in find_padded(text):
        if not re.match(r"[|+\-=]", paragraph.text):
            ledger.find("padded-text", paragraph.line, paragraph.text)


_ENCODED = Lazy(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{60,}+={0,2}")
_IN_ENCODED = bytes(chr(code).isalnum() or code in b"+/" for code in range(128)) + bytes(128)
_RUN_OF_ENCODED = b"\1" * 60
_MAX_ENCODED = 20_000
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def _read_encoded(text: str, ledger: Ledger) -> None:
    """Note instructions that a text holds in base64 or in hexadecimal digits."""
    encoded = has_run(text, _IN_ENCODED, _RUN_OF_ENCODED)
    for match, line in number_lines(_ENCODED.finditer(text), text, 1) if encoded else ():
        for at in range(0, len(match[0]), _MAX_ENCODED):
            part = match[0][at : at + _MAX_ENCODED]
            form = "hex" if set(part) <= _HEX_DIGITS else "base64"
            _read_decoded(decode_text(form, part) or "", line, ledger)
    for plain, line in find_spelled(text):
        _read_decoded(plain, line + 1, ledger)


def _read_decoded(plain: str, line: int, ledger: Ledger) -> None:
    """Note instructions in decoded text, all on the line of what it was decoded from."""
    if is_sentence(plain):
        read_prose(" ".join(plain.split()), line, ledger)


# Words in which digits stand for letters.
_LEET_HINT = Lazy(r"[013457](?<=[A-Za-z].)[A-Za-z]")
_LEET = Lazy(
    r"(?<![\w./-])(?=[013457]{0,9}[A-Za-z])[A-Za-z]{0,20}[013457][A-Za-z013457]{2,20}(?![\w./-])"
)
_LETTERS = str.maketrans("013457", "oieast")


class _Look:
    """Features of a whole text, found once, to skip searches of its parts that cannot match.

    A part that is not made of whole lines of the text has no use for it.
    """

    def __init__(self, text: str, ledger: Ledger, first_line: int = 1) -> None:
        ledger.spend(1 + len(text) // 500)
        self._skim, self._first_line = Skim(text), first_line
        folded = text.lower()
        self.is_turned = any(word in folded for word in ("rot13", "rot-13", "backward", "revers"))
        self.has_paths = any(begin in text for begin in _PATH_BEGINS)
        self.is_leet = _has_leet(text[:MAX_TEXT])
        self.has_commands = any(sign in text for sign in _OPERATORS)

    def read_prose(self, text: str, line: int, ledger: Ledger) -> bool:
        """Note what lines of the text tell a model to do; return whether that is nothing at all."""
        return read_skimmed(text, line, ledger, self._skim, line - self._first_line)

    def is_dull(self, text: str, line: int) -> bool:
        """Whether no reader can find anything in these lines."""
        first = line - self._first_line
        last = first + text.count("\n")
        return (
            not (self.is_turned or self.is_leet or "`" in text or "://" in text or "![" in text)
            and not (self.has_commands and any(sign in text for sign in _OPERATORS))
            and not (self.has_paths and any(begin in text for begin in _PATH_BEGINS))
            and not (self._skim.is_odd(first, last) or self._skim.choose(first, last))
        )


def _has_leet(text: str) -> bool:
    """Whether digits stand inside more than two words; most texts have none in any."""
    return has_run(text, _IN_LEET, b"\1\2\1") and len(_LEET_HINT.findall(text)) > 2


# Letters, and digits that stand for one.
_IN_LEET = bytes(
    2 if code in b"013457" else 1 if code < 128 and chr(code).isalpha() else 0
    for code in range(256)
)


def _read_reversed(text: str, line: int, ledger: Ledger) -> None:
    """Note instructions that a paragraph says to read backwards or with other letters."""
    folded = text.lower()
    if "rot13" in folded or "rot-13" in folded:
        read_prose(decode_text("rot13", text) or "", line, ledger)
    if "backward" in folded or "revers" in folded:
        read_prose(text[::-1], line, ledger)


def _read_paragraph(paragraph: Paragraph, ledger: Ledger, look: _Look) -> None:
    """Note what prose says, what code in it does, and which addresses it names."""
    text, line = paragraph.text, paragraph.line
    look.read_prose(text, line, ledger)
    if look.is_turned:
        _read_reversed(text, line, ledger)
    if look.is_leet and len(_LEET.findall(text)) > 2:
        read_prose(_LEET.sub(lambda match: match[0].translate(_LETTERS), text), line, ledger)
    if "://" in text:
        ledger.names_url(text, line, all_hosts=bool(_REACHES.search(text)))
        judge_foreign_address(text, line, ledger)
    if look.has_paths:
        _note_paths(text, line, ledger)
    if "`" in text and (_INLINE_COMMAND.search(text) or _goes_on(text)):
        _read_inline_code(paragraph, ledger)
    if (
        look.has_commands
        and any(sign in text for sign in _OPERATORS)
        and _COMMAND.match(_PROMPT.sub("", text.partition("\n")[0]))
    ):
        with _Weakened(ledger, _introduces_bad_example(paragraph.heading)), _MaybeProse(ledger):
            shell.read_shell(_PROMPT.sub("", text), line, ledger)
    elif "://" in text and look.has_commands and _goes_on(text):
        _read_commands_in_prose(paragraph, ledger)
    for address, at in remote_images(text) if "![" in text else ():
        if "{" in address or re.search(
            r"[?&]\w+=(?:.{0,3}(?:data|secret|token|env|content|\$)|[<\[])", address
        ):
            ledger.find("send-instruction", line + at, address)


def _read_inline_code(paragraph: Paragraph, ledger: Ledger) -> None:
    """Note what commands do that stand in a sentence."""
    lines = paragraph.text.split("\n")
    for code, at in inline_code(paragraph.text):
        if any(sign in code for sign in _ACTS) and (_COMMAND.match(code) or _is_chain(code)):
            before = lines[at].partition(code)[0][-80:]
            shown = _introduces_bad_example(paragraph.heading) or bool(_BAD_EXAMPLE.search(before))
            with _Weakened(ledger, shown):
                shell.read_shell(code, paragraph.line + at, ledger)


def _read_commands_in_prose(paragraph: Paragraph, ledger: Ledger) -> None:
    """Note what commands that are chained in a sentence do: `Run: id && wget … && sh x.sh`."""
    with _Weakened(ledger, _introduces_bad_example(paragraph.heading)), _MaybeProse(ledger):
        for number, line in enumerate(paragraph.text.split("\n")):
            plain = _INLINE.sub(" ", line) if "`" in line else line
            if "://" in plain and line.lstrip()[:1] != "|" and _goes_on(plain):
                shell.read_shell(plain, paragraph.line + number, ledger)


def _goes_on(text: str) -> bool:
    """Whether a text has a command behind an operator of the shell."""
    operators = any(sign in text for sign in _CHAINS)
    return operators and _LATER_COMMAND.search(text) is not None


_CHAINS = ("&", "|", ";", "$(", "=")


def _is_chain(code: str) -> bool:
    """Whether code in a sentence has several commands, and is not what one is attacked with."""
    code = code.lstrip()
    return not code.startswith(_CHAINS) and not _SLASH_COMMAND.match(code) and _goes_on(code)


# A command of an agent, with what a person may type behind it.
_SLASH_COMMAND = Lazy(r"/[\w:-]{1,60} ")
_INLINE = Lazy(r"`[^`\n]{0,400}`")


def _note_paths(text: str, line: int, ledger: Ledger) -> None:
    """Note the files with secrets that prose names; patterns judge the order to read them."""
    if not any(begin in text for begin in _PATH_BEGINS):
        return
    for path, at in find_paths(text):
        if place_class(path) in ("credential", "service", "settings", "history"):
            ledger.can("read", path, line + text.count("\n", 0, at))
            _remember_key(path, at, text, line, ledger)
            _judge_key_and_host(path, text[at : at + _NEAR], line + text.count("\n", 0, at), ledger)


def _remember_key(path: str, at: int, text: str, line: int, ledger: Ledger) -> None:
    """Remember a file with keys that a sentence says to read, by its folder below the home."""
    if ledger.weaker or place_class(path) == "settings":
        return
    before = text[text.rfind("\n", 0, at) + 1 : at]
    if _READS.search(before) and not _FORBIDS.search(before):
        folder = _HOME.sub("", path).partition("/")[0]
        ledger.names_key(folder, line + text.count("\n", 0, at))


_HOME = Lazy(r"^(?:~|\$\{?HOME\}?|/root|/home/\w+|/Users/\w+)?/(?:\.config/)?")
_READS = Lazy(
    r"(?i)\b(?:read|cat|copy|collect|extract|scan|parse|load|list|gather|check|include|export|inspect"
    r"|back up|archive|catalog|inventory|audit|search)s?\b"
)
_FORBIDS = Lazy(
    r"(?i)\b(?:never|not|don't|cannot|avoid|refuse|den(?:y|ies|ied)|block(?:s|ed)?|exclud|protect|without"
    r"|forbid|prevent|detect|flag|attempts?|malicious|attack|instead of|ignore)"
)


def _judge_key_and_host(path: str, after: str, line: int, ledger: Ledger) -> None:
    """Note a key and an unknown host right behind it in text that is not English.

    For English text, patterns find the order itself.
    """
    if "://" not in after or place_class(path) == "settings" or _ENGLISH.search(after):
        return
    for found in find_urls(after, 3):
        if not is_known(found.host) and not is_reserved(found.host):
            ledger.find("send-instruction", line, f"{path} … {found.host}")


_NEAR = 200
_ENGLISH = Lazy(r"(?i)\b(?:the|and|to|with|your|see|for|from|is|are|of|this|at)\b")


@lru_cache(maxsize=256)
def _introduces_bad_example(text: str) -> bool:
    """Whether the text before a part says that it shows what not to do."""
    folded = text.lower()
    return any(word in folded for word in _BAD_WORDS) and bool(_BAD_EXAMPLE.search(text))


# Prose in which an address is more than a reference.
_REACHES = Lazy(
    r"(?i)\b(?:fetch|download|curl|wget|post|send|upload|call|request|query|api|endpoint|install"
    r"|visit)"
)


class _Weakened:
    """Weaken all findings by one kind while it is open: the text only shows an example."""

    def __init__(self, ledger: Ledger, shown: bool) -> None:
        self.ledger, self.shown, self.before = ledger, shown, ledger.weaker

    def __enter__(self) -> None:
        self.ledger.weaker = self.before or self.shown

    def __exit__(self, *_: object) -> None:
        self.ledger.weaker = self.before


class _MaybeProse:
    """Mark lines that are read as shell as possible sentences while it is open."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.before = ledger, ledger.may_be_prose

    def __enter__(self) -> None:
        self.ledger.may_be_prose = True

    def __exit__(self, *_: object) -> None:
        self.ledger.may_be_prose = self.before


# Blocks inside of blocks.
_MAX_FENCES = 3


_PROSE_BLOCKS = ("", "text", "plaintext", "markdown", "md", "prompt", "txt")


def _read_block(block: ShownCode, ledger: Ledger, look: _Look, *, depth: int = 0) -> None:
    shown = _introduces_bad_example(block.before[-300:]) or bool(_BAD_COMMENT.match(block.text))
    with _Weakened(ledger, shown):
        if block.language in _PROSE_BLOCKS:
            _read_prose_block(block, ledger, look, depth)
        elif block.language == "data":
            ledger.names_url(block.text, block.line)
            _read_values(block.text, block.line, ledger, look)
        else:
            _read_code_block(block, ledger, look)


def _read_prose_block(block: ShownCode, ledger: Ledger, look: _Look, depth: int) -> None:
    text = block.text
    if _COMMAND.search(text) and block.language in ("", "text", "plaintext", "txt"):
        with _MaybeProse(ledger):
            read_code(text, "shell", block.line, ledger)
    ledger.names_url(text, block.line)
    inner = read_markdown(text, block.line)
    if inner.shown != text:  # the rest of a nested comment is a comment again
        look = _Look(inner.shown, ledger, block.line)
        for paragraph in inner.hidden:
            read_hidden(paragraph, ledger)
    for paragraph in inner.paragraphs:
        look.read_prose(paragraph.text, paragraph.line, ledger)
    for one in inner.blocks if depth < _MAX_FENCES else ():
        _read_block(one, ledger, look, depth=depth + 1)


def _read_code_block(block: ShownCode, ledger: Ledger, look: _Look) -> None:
    language, text = block.language, block.text
    if language in _REWRITTEN:
        inside, rewrite = _REWRITTEN[language]
        read_code(rewrite(text), inside, block.line, ledger)
    read_code(text, language, block.line, ledger)
    if not look.is_dull(text, block.line):
        _read_prose_in_code(block, ledger, look)
    if any(mark in text for mark in ('"""', "'''", "/*")):
        _read_comments(text, block.line, ledger, look)
    if language not in _PARSED:
        _read_lines(text, block.line, ledger, look)


_PARSED = frozenset(("shell", "python", "javascript", "typescript", "powershell"))


def _read_lines(text: str, line: int, ledger: Ledger, look: _Look) -> None:
    """Note instructions in the lines of a diagram, a formula or code that is not parsed."""
    for number, one in enumerate(text.split("\n")):
        if len(one) > 40:
            look.read_prose(one, line + number, ledger)


# A line of a block that is a sentence or a comment, and no code.
_SENTENCE_LINE = Lazy(
    r"(?m)^[ \t]*(?:(?:#+|//+|--|\*+|%+|;+|\d{1,2}[.)]|-)[ \t]*)?"
    r"(?:[*_>]{0,3}[A-Za-z'][\w',:;!`-]*[*_]{0,3}[ \t]+){5,}[^\n]*$"
)


def _read_prose_in_code(block: ShownCode, ledger: Ledger, look: _Look) -> None:
    """Note instructions between the lines of a block, which a model reads too."""
    lines: list[str] = []
    start = last = -1
    for match, at in number_lines(_SENTENCE_LINE.finditer(block.text), block.text):
        if lines and at > last + 1:
            paragraph = Paragraph("\n".join(lines), block.line + start, "")
            _read_paragraph(paragraph, ledger, look)
            lines = []
        start = start if lines else at
        lines.append(match[0])
        last = at
    if lines:
        _read_paragraph(Paragraph("\n".join(lines), block.line + start, ""), ledger, look)


def read_made_text(text: str, line: int, ledger: Ledger) -> None:
    """Note what a text says and shows that code puts together and may print."""
    look = _Look(text, ledger, line)
    parts = read_markdown(text, line)
    for paragraph in parts.paragraphs:
        _read_paragraph(paragraph, ledger, look)
    for block in parts.blocks:
        _read_block(block, ledger, look)
    if _COMMAND.search(text):
        with _MaybeProse(ledger):
            shell.read_shell(_PROMPT.sub("", text), line, ledger)
        search_code(text, line, ledger, parsed=False)
    _read_commands(text, line, ledger)


def read_code(text: str, language: str, line: int, ledger: Ledger) -> None:
    """Note what code of a language does."""
    parsed = False
    if language == "shell":
        if not shell.read_shell(_PROMPT.sub("", text), line, ledger):
            ledger.find("unseen-part", line, "a statement with thousands of parts")
        parsed = True
    elif language == "python":
        parsed = python_code.read_python(text, line, ledger)
        if not parsed and _COMMAND.search(text):  # a command under the wrong name
            shell.read_shell(text, line, ledger)
    elif language in ("javascript", "typescript"):
        parsed = javascript.read_javascript(text, language, line, ledger)
    elif language == "powershell":
        text = powershell.read_powershell(text, line, ledger)
    search_code(text, line, ledger, parsed=parsed, shell=language == "shell")
    search_self_reading(text, line, ledger)
    if not parsed:
        _read_commands(text, line, ledger)


def _read_commands(text: str, line: int, ledger: Ledger, *, is_data: bool = False) -> None:
    """Note what the commands in strings, and behind keys, do."""
    with _MaybeProse(ledger):
        for command, at in embedded.find_command_strings(text, is_data=is_data):
            shell.read_shell(command, line + at, ledger)


def read_head(head: str, ledger: Ledger) -> None:
    """Note instructions in the frontmatter, except in fields that are read as a whole."""
    key = ""
    value, begun = "", 0  # what goes on below a key
    for number, line in enumerate((*head.split("\n"), "---")):
        named = _HEAD_KEY.match(line)
        key = named[1].lower() if named is not None else key
        is_comment = line.lstrip().startswith("#")
        goes_on = line.startswith(" ") and not is_comment and not _NESTED_KEY.match(line)
        if not goes_on:
            if value.count("\n") > 1:
                read_prose(value, begun, ledger)
            value, begun = "", number + 1
        if len(line) > 40 and (is_comment or key not in _WHOLE_KEYS):
            read_prose(line, number + 1, ledger)
        if key not in _WHOLE_KEYS:
            value += f"{line.strip()}\n"


_NESTED_KEY = Lazy(r"\s*(?:- )?[\w-]{1,60}:(?:\s|\Z)")
_HEAD_KEY = Lazy(r"([\w-]{1,60})\s*:")
_WHOLE_KEYS = ("description", "when_to_use", "when-to-use")


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
    elif _ADDRESSED.search(folded := fold(text)):
        fills_in = "template" in ledger.path.lower() and not _ACTING.search(folded)
        kind: FindingKind = "note" if fills_in else "ask"
        ledger.find("hidden-comment", paragraph.line, text, kind)
    if _COMMAND.search(text) and "://" in text:
        with _MaybeProse(ledger):
            shell.read_shell(text, paragraph.line, ledger)


def read_plain(text: str, ledger: Ledger) -> None:
    """Note what a plain text says."""
    parts = read_markdown(text)
    look = _Look(parts.shown, ledger)
    for paragraph in parts.paragraphs:
        _read_paragraph(paragraph, ledger, look)
    opaque.read_opaque(parts, ledger)
    for paragraph in find_padded(text):
        ledger.find("padded-text", paragraph.line, paragraph.text)
    settings_files.read_settings(text, 1, ledger)
    data_values.read_data_file(text, ledger)


def _read_data(text: str, kind: str, ledger: Ledger) -> None:
    ledger.names_url(text, 1, used=True)
    if ledger.path.lower().endswith(".pdf"):  # its text is read by `documents`
        return
    if kind == "requirements":
        for match, line in number_lines(_REQUIREMENT.finditer(text), text, 1):
            package_names.judge_package("pip", match[1], line, ledger)
    elif kind == "package":
        _read_package(text, ledger)
    elif kind == "notebook":
        _read_notebook(text, ledger)
    _read_values(text, 1, ledger, _Look(text, ledger))
    data_values.read_data_file(text, ledger)


_HOOK = Lazy(r'"((?:pre|post)?(?:install|prepare|publish))"\s*:\s*"((?:[^"\\]|\\.)*)"')
_DEPENDENCY = Lazy(
    r'"(@?[\w./-]{2,80})"\s*:\s*"([~^]?\d[\w.+-]*|latest|\*|(?:git\+|https?:)[^"]{1,200})"'
)


def _read_package(text: str, ledger: Ledger) -> None:
    scripts = embedded.find_scripts(text)
    for one in scripts or ():
        shell.read_shell(one.text, one.line, ledger)
    for match, line in number_lines(_HOOK.finditer(text), text, 1):
        if match[1] in ("preinstall", "install", "postinstall", "prepare"):
            if scripts is None:
                shell.read_shell(match[2].replace('\\"', '"'), line, ledger)
            ledger.find("dynamic-code", line, match[0], "note")
            machine_settings.note_automatic(match[2], "a script that an install runs", ledger)
    for match, line in number_lines(_DEPENDENCY.finditer(text), text, 1):
        if match[1] != "version":
            package_names.judge_package("npm", match[1], line, ledger)


def _read_notebook(text: str, ledger: Ledger) -> None:
    """Note what the cells of a notebook do and say."""
    for one in embedded.find_cells(text):
        if one.language == "markdown":
            ledger.first_line = one.line
            _read_document(one.text, ledger)
            ledger.first_line = 1
        else:
            read_code(one.text, one.language, one.line, ledger)


# An editor's task that runs as soon as the folder is opened.
_OPENS_FOLDER = '"folderOpen"'


def _read_values(text: str, line: int, ledger: Ledger, look: _Look) -> None:
    """Note instructions and commands in the long texts of a data file."""
    dull: set[str] = set()  # lines that come again and again
    for number, one in enumerate(text.split("\n")):
        if len(one) > 40 and one not in dull and look.read_prose(one, line + number, ledger):
            dull.add(one)
    _read_commands(text, line, ledger, is_data=True)
    for command, at in embedded.find_tex_commands(text):
        shell.read_shell(command, line + at, ledger)
    for command, at in embedded.find_command_values(text):
        shell.read_shell(command, line + at, ledger)
    search_plainly(text, line, ledger)
    settings_files.read_settings(text, line, ledger)
    for command, at in embedded.find_programs(text):
        shell.read_shell(command, line + at, ledger)
    for code in embedded.find_code_words(text):
        read_code(code.text, code.language, line + code.line, ledger)
    if '"description"' in text:
        tool_descriptions.judge_descriptions(text, line, ledger)
    if _OPENS_FOLDER in text:
        at = line + text.count("\n", 0, text.index(_OPENS_FOLDER))
        ledger.can("persistence", _OPENS_FOLDER, at)
        ledger.find("persistence", at, _OPENS_FOLDER)


# Lines of comments behind a line break, or the mark that opens a longer one.
_COMMENT = Lazy(r'(?:\n[ \t]*+(?:#|//)[^\n]{20,}+){1,40}+|"""|\'\'\'|/\*')
_MIN_COMMENT = 20


def _find_comments(text: str) -> Iterator[tuple[str, int]]:
    """Yield the long comments and docstrings of a source, with their lines counted from 0."""
    text = f"\n{text}"  # so that each line begins with a line break, which is fast to find
    at, counted, line = 0, 0, -1
    unclosed: set[str] = set()
    while (opened := _COMMENT.search(text, at)) is not None:
        start, at = opened.span()
        if opened[0][0] == "\n":
            start += 1
        else:
            mark = "*/" if opened[0] == "/*" else opened[0]
            end = -1 if mark in unclosed else text.find(mark, at)
            if end < 0:
                unclosed.add(mark)
                continue
            at = end + len(mark)
        if at - start >= _MIN_COMMENT:
            line += text.count("\n", counted, start)
            counted = start
            yield text[start : at + (opened[0][0] == "\n")], line


def _read_comments(text: str, line: int, ledger: Ledger, look: _Look | None) -> None:
    """Note instructions to a model in the comments of a script."""
    for comment, at in _find_comments(text[:MAX_TEXT]):
        plain = re.sub(r"(?m)^[ \t]*(?:#|//|\*)+", "", comment)
        read = read_prose if look is None else look.read_prose
        read(plain, line + at, ledger)
