"""Scan one skill: read its files, note what it can do, judge it. Never raises, never blocks.

No network and no model are needed, and nothing of a skill is run or unpacked to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from posixpath import dirname, join, normpath, splitext
from typing import TYPE_CHECKING

from skillbelt.errors import SkillbeltError
from skillbelt.files.manifest import holds
from skillbelt.files.tree import TreeEntry
from skillbelt.format.frontmatter import split
from skillbelt.format.skill import Skill
from skillbelt.late import Late
from skillbelt.scan.addresses import words_of
from skillbelt.scan.cache import find_result, keep
from skillbelt.scan.declared import declared_capabilities, judge_word
from skillbelt.scan.ledger import Ledger, ScanExhausted
from skillbelt.scan.lock_files import is_lock_file, judge_lock_file
from skillbelt.scan.parsers import WITHOUT, has_parsers
from skillbelt.scan.prose import read_prose
from skillbelt.scan.readers import (
    MAX_TEXT,
    TEXT_ENDINGS,
    find_hidden_characters,
    is_acted_on,
    read_code,
    read_head,
    read_made_text,
    read_text_file,
)
from skillbelt.scan.values import KINDS, CapabilityStatement, ScannedSkill
from skillbelt.text import Lazy
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt.scan import binary_files, shell, together
else:
    binary_files = Late("skillbelt.scan.binary_files")  # cost: 1 ms, only for what is no text
    shell = Late("skillbelt.scan.shell")  # cost: 4 ms, only for shell commands
    together = Late("skillbelt.scan.together")  # cost: 1 ms, only for files that act together

MAX_FILES = 1_000
MAX_BYTES = 32 * 2**20
MAX_FILE_BYTES = 8 * 2**20
_MAX_SIBLING = 16 * 2**10
_MAX_AGAIN = 64 * 2**10
_CATCH_ALL = Lazy(
    r"(?i)\b(?:use (?:this )?(?:skill )?for|handles?|whenever|on|before|invoke (?:this )?(?:for"
    r"|on)) (?:any|every|all)(?: and (?:all|every))? (?:\w+ )?(?:tasks?|requests?|questions?"
    r"|messages?|prompts?|conversations?|situations?|interactions?)\b"
    r"|\balways (?:use|load|invoke|activate|run) this (?:skill )?(?:first|before)"
    r"|\bmust (?:always )?be (?:used|loaded|invoked) (?:first|before (?:any|every))"
)
_ENGLISH = Lazy(r"(?i)\b(?:the|and|with|your|for|from|use|when)\b")
# A cheap test first: each match has one of these, in this spelling.
_CATCHING = (" any ", " every ", " all ", "alway", " be ")


def scan_skill(skill: Skill, *, cache_dir: str = "") -> ScannedSkill:
    """Return what a skill can do and what was found in it. The same content is scanned once.

    With `cache_dir`, the user's cache folder, that holds for all processes.
    """
    digest, found = find_result(skill, cache_dir)
    return found or scan_content(skill, digest, cache_dir)


def scan_content(skill: Skill, digest: str, cache_dir: str) -> ScannedSkill:
    """Return the result for a content whose digest is known, and of which none is kept yet."""
    found, is_whole = _scan(skill, digest)
    if is_whole:  # else the next scan may read more, or other content
        keep(found, cache_dir)
    return found


def _scan(skill: Skill, digest: str) -> tuple[ScannedSkill, bool]:
    """Return the result, and whether it is that of the whole content of the digest."""
    words = words_of(skill.name) | words_of(skill.description[:2_000])
    ledger = Ledger(words)
    ledger.is_english = bool(_ENGLISH.search(skill.description[:2_000]))
    ledger.read_shell = lambda text, line, book: shell.read_shell(text, line, book)
    ledger.read_code = lambda text, language, line, book: read_code(text, language, line, book)
    ledger.read_text = lambda text, line, book: read_made_text(text, line, book)
    reading = _Reading(skill, ledger)
    # The files of a skill that a server lists are fetched together, not one by one; and none of
    # them if the SKILL.md is not what the list says: such a skill is never used.
    if fetch_ahead := getattr(skill.files, "fetch_ahead", None):
        skill.files.open(SKILL_FILE).close()
        fetch_ahead(MAX_BYTES)
    try:
        reading.run()
    except ScanExhausted:
        ledger.path, ledger.first_line, ledger.weaker = SKILL_FILE, 1, False
        ledger.find("unseen-part", 1, "it takes more work than a scan may do")
        ledger.miss("the rest of the skill: it takes more work than a scan may do")
    if not has_parsers():
        ledger.miss(WITHOUT)
    findings = sorted(
        ledger.findings,
        key=lambda one: (KINDS.index(one.kind), one.path != SKILL_FILE, one.path, one.line or 0),
    )
    statement = CapabilityStatement(
        capabilities=(*declared_capabilities(skill, reading.head), *ledger.capabilities.values()),
    )
    scanned = ScannedSkill(
        name=skill.name,
        digest=digest,
        findings=tuple(findings),
        statement=statement,
        unseen=tuple(ledger.unseen),
    )
    return scanned, reading.is_whole and not ledger.is_late and reading.has_read(digest)


class _Reading:
    """One pass through the files of a skill, within bounds."""

    def __init__(self, skill: Skill, ledger: Ledger) -> None:
        self.skill, self.ledger = skill, ledger
        self._left = MAX_BYTES
        self.is_whole = True
        self.head = ""
        self._paths: frozenset[str] = frozenset()
        self._read: dict[str, str] = {}  # files that were read to their end, and their SHA-256

    def run(self) -> None:
        """Read the SKILL.md first, then what programs and models act on, then data.

        So data cannot use up what a scan may read. Within each kind, the nearest files come first.
        """
        entries = list(self.skill.files.entries())
        self._paths = frozenset(one.path for one in entries if one.kind == "file")
        self.ledger.own_modules = _find_own_modules(self._paths)
        self.ledger.read_sibling = self._read_sibling
        self._read_safely(SKILL_FILE, self._read_skill_text)
        self._read_safely(SKILL_FILE, self._read_head)
        others = self._order_files(entries)
        for entry in others[:MAX_FILES]:
            self._read_entry(entry)
        if len(others) > MAX_FILES:
            self.ledger.miss(f"{len(others) - MAX_FILES:,} files after the first {MAX_FILES:,}")
            if _is_acted_on(others[MAX_FILES]):
                self._report_unread(others[MAX_FILES].path, f"it comes after {MAX_FILES:,} files")
        self.ledger.judge_named_keys()
        if self.ledger.data_values or self.ledger.automatic or self.ledger.packed:
            scripts = [one.path for one in others if _is_acted_on(one)]
            together.judge_together(self.ledger, scripts, self._read_again)
        judge_word(self.skill, self.ledger.used_hosts, self.ledger)

    def has_read(self, digest: str) -> bool:
        """Whether the files that were read are those of the digest: none changed in between."""
        if all(holds(digest, path, sha) for path, sha in self._read.items()):
            return True
        try:
            manifest = self.skill.files.manifest()
        except (SkillbeltError, OSError):
            return False
        known = {one.path: one.sha256 for one in manifest.files}
        same = (known.get(path) == sha for path, sha in self._read.items())
        return manifest.hash == digest and all(same)

    def _order_files(self, entries: Iterable[TreeEntry]) -> list[TreeEntry]:
        others = [one for one in entries if one.path != SKILL_FILE and one.kind != "folder"]
        return sorted(others, key=lambda one: not _is_acted_on(one))

    def _report_unread(self, path: str, why: str) -> None:
        """Note a finding for a file that was not read."""
        self.ledger.path, self.ledger.first_line, self.ledger.weaker = path, 1, False
        self.ledger.find("unseen-part", 1, f"{path}: {why}")

    def _read_skill_text(self) -> None:
        if self.skill.source:
            data = self.skill.source.encode("utf-8", "surrogatepass")
        else:
            data = self._load(self.skill.location.rpartition("/")[2])
        text = _decode(data)
        block = split(data)
        body = text
        first = 1
        if block is not None:
            self.head = head = _decode(data[: block.end])
            body, first = text[len(head) :], head.count("\n") + 1
            self.ledger.path = SKILL_FILE
            find_hidden_characters(head, self.ledger)
            read_head(head, self.ledger)
        read_text_file(SKILL_FILE, body, self.ledger, first_line=first)

    def _read_head(self) -> None:
        """Note instructions in the description, and commands that the head declares as hooks."""
        ledger, skill = self.ledger, self.skill
        ledger.path, ledger.first_line = SKILL_FILE, 1
        described = f"{skill.description}\n{skill.when_to_use}"
        line = self._find_line("description")
        read_prose(described, line, ledger)
        lower = described.lower()
        if any(word in lower for word in _CATCHING) and (match := _CATCH_ALL.search(described)):
            ledger.find("catch-all-trigger", line, match[0])
        try:
            hooks = skill.frontmatter.hooks
        except SkillbeltError:
            return
        for command in _find_commands(hooks, 0):
            ledger.can("persistence", f"hook: {command}", self._find_line("hooks"))
            shell.read_shell(command, self._find_line("hooks"), ledger)

    def _find_line(self, key: str) -> int:
        """Return the line of a key of the head, 1 if it is not found."""
        starts = (line.startswith(f"{key}:") for line in self.head.split("\n"))
        return next((number for number, found in enumerate(starts, 1) if found), 1)

    def _read_entry(self, entry: TreeEntry) -> None:
        self.ledger.path, self.ledger.first_line = entry.path, 1
        if entry.problem == "link-outside":
            self.ledger.find("link-outside", 1, f"{entry.path} leads to {entry.target}")
        elif entry.problem:
            self.ledger.miss(f"{entry.path}: {entry.reason}")
        elif entry.kind == "file":
            path = entry.path
            self._read_safely(path, lambda: self._read_data(path, self._load(path), 0))
            if path not in self._read and _is_acted_on(entry) and self.is_whole:
                self._report_unread(path, "only a part of it was read")

    def _read_safely(self, path: str, read: Callable[[], None]) -> None:
        """Read a part; when its reader fails, note a finding instead."""
        try:
            read()
        except ScanExhausted:
            raise
        except Exception as error:
            self._report_unread(path, type(error).__name__)
            self.ledger.miss(f"{path}: a reader failed with {type(error).__name__}")

    def _load(self, path: str) -> bytes:
        try:
            with self.skill.files.open(path) as file:
                data = file.read(min(MAX_FILE_BYTES, max(self._left, 0)) + 1) or b""
        except (SkillbeltError, OSError) as error:
            self.ledger.miss(f"{path}: {error}")
            self.is_whole = False
            # A server could hold back a file until after the scan.
            if self.skill.origin.remote:
                self.ledger.find("unseen-part", 1, f"{path}: {error}")
            return b""
        self._left -= len(data)
        if self._left < 0 or len(data) > MAX_FILE_BYTES:
            self.ledger.miss(f"{path}: only a part of it was read")
        else:
            self._read[path] = sha256(data).hexdigest()
        return data

    def _read_sibling(self, path: str) -> str:
        """Return the beginning of a file that a script names; "" if there is none."""
        for folder in (dirname(self.ledger.path), ""):
            found = normpath(join(folder, path)) if path else ""
            if found in self._paths:
                with suppress(SkillbeltError, OSError), self.skill.files.open(found) as file:
                    return _decode(file.read(_MAX_SIBLING) or b"")
        return ""

    def _read_again(self, path: str) -> str:
        """Return the beginning of a file that was read before."""
        with suppress(SkillbeltError, OSError), self.skill.files.open(path) as file:
            return _decode(file.read(_MAX_AGAIN) or b"")
        return ""

    def _read_data(self, path: str, data: bytes, depth: int) -> None:
        """Read a file, or a member of an archive."""
        if not data:
            return
        self.ledger.spend(10)
        if _is_packed(data) or b"\0" in data[:4096]:
            binary_files.read_binary(path, data, self.ledger, self._read_data, depth)
            if not _may_be_text(path, data):
                return
        text = _decode(data[:MAX_TEXT])
        read_text_file(path, text, self.ledger)
        if is_lock_file(path):
            judge_lock_file(path, data, self.ledger)
        if len(data) > MAX_TEXT:
            self.ledger.miss(f"{path}: only the first {MAX_TEXT:,} bytes were read")
            if is_acted_on(path, text):
                self._report_unread(path, f"only the first {MAX_TEXT:,} bytes were read")


def _find_own_modules(paths: Iterable[str]) -> frozenset[str]:
    """Return the paths of the modules and packages of Python among files, without the ending."""
    found = set[str]()
    for path in paths:
        if path.endswith(".py"):
            found.add(path[:-3])
            while path := dirname(path):
                found.add(path)
    return frozenset(found)


def _is_acted_on(entry: TreeEntry) -> bool:
    """Whether a file is a script or a document, as far as its name and mode say."""
    return entry.executable or is_acted_on(entry.path, "")


def _decode(data: bytes) -> str:
    """Return the text of a file without bytes that interpreters and models ignore."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\0", "")


def _may_be_text(path: str, data: bytes) -> bool:
    """Whether a shell or a model takes a file for text, in spite of what it begins with or holds.

    They ignore zero bytes, and a shell ignores a first line that is no command.
    """
    if data.startswith(b"#!") or splitext(path)[1].lower() in TEXT_ENDINGS:
        return True
    head = data[:4096]
    plain = head.replace(b"\0", b"")
    strange = len(plain) - len(plain.translate(None, _CONTROLS))
    return len(head) - len(plain) <= len(head) // 10 and strange <= len(head) // 50


# Bytes besides zero that texts do not have.
_CONTROLS = bytes(set(range(1, 32)) - set(b"\t\n\v\f\r\x1b"))


def _is_packed(data: bytes) -> bool:
    return data.startswith(
        (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x89PNG", b"\xff\xd8", b"GIF8", b"%PDF")
    )


def _find_commands(value: object, depth: int) -> Iterable[str]:
    """Yield the commands of hooks, which are nested lists and maps."""
    if depth > 6:
        return
    if isinstance(value, dict) or hasattr(value, "items"):
        for key, one in value.items():
            if key == "command" and isinstance(one, str):
                yield one
            else:
                yield from _find_commands(one, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value[:100]:
            yield from _find_commands(one, depth + 1)
