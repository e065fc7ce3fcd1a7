"""Every rule of the format, as functions that yield diagnostics.

The parser's diagnostics are passed on; the rules here add what needs more than parsing. `rules.py`
has the severity and the explanation of each rule.
"""

from __future__ import annotations

import os
import re
from codecs import utf_8_decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from unicodedata import normalize

from skillbelt.check.danger import check_content, is_placeholder
from skillbelt.check.folder import UnusableFile, check_entries, read
from skillbelt.check.rules import finding, harden
from skillbelt.files.contain import inside, is_device
from skillbelt.format import yaml as strict
from skillbelt.format import yaml_repair
from skillbelt.format.bounds import MAX_FRONTMATTER_BYTES
from skillbelt.format.fields import (
    KNOWN,
    SPECIFIED,
    closest_field,
    correct_spelling,
    skill_name,
)
from skillbelt.format.frontmatter import (
    MAX_CHECKED_BYTES,
    Parsed,
    key_lines,
    parse,
    split,
)
from skillbelt.format.links import MAX_REFERENCES, references
from skillbelt.format.yaml_fast import AsWritten
from skillbelt.records import NamedTuple
from skillbelt.text import hidden, one_line, shorten, tokens
from skillbelt.values import SKILL_FILE, Diagnostic, Limits

# How much of a linked document is read to find its own links.
MAX_LINKED_BYTES = 256 * 2**10
# Linked documents that are read; each costs one open file.
MAX_LINKED_DOCUMENTS = 100

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
MAX_COMPATIBILITY_CHARS = 500
ADVISED_BODY_LINES = 500
ADVISED_BODY_TOKENS = 5_000
_SHOWN_CHARS = 60
_BOM = b"\xef\xbb\xbf"
_VENDORS = frozenset(("anthropic", "claude"))


class Subject(NamedTuple):
    """One SKILL.md as the rules see it. `raw` holds the fields before they were typed."""

    path: str
    folder: str
    data: bytes
    parsed: Parsed
    raw: Mapping[str, object]
    body: str
    lines: Mapping[str, int]
    strict: bool

    def text(self, field: str) -> str:
        """Return the field as text; "" when it is absent or not text."""
        value = self.parsed.fields.get(field)
        return value if isinstance(value, str) else ""

    def says(self, code: str, field: str, message: str, remedy: str = "") -> Diagnostic:
        """Return a finding at the line of a field."""
        return finding(code, self.path, self.lines.get(field), message, remedy)


class CheckedSkill(NamedTuple):
    """The findings about one skill, and its id ("" when it has none)."""

    path: str
    name: str
    diagnostics: tuple[Diagnostic, ...]


# --- entry points --------------------------------------------------------------------------------


def check_all(
    paths: Iterable[str],
    *,
    strict: bool = False,
    limits: Limits | None = None,
    fence: Callable[[str], str] = lambda _: "",
) -> tuple[Diagnostic, ...]:
    """Check all these SKILL.md files, and that no two have the same name.

    `fence` returns for each path the folder that no link may lead out of; "" for none. `limits`
    has no effect any more.
    """
    checked = [check_file(path, strict=strict, fence=fence(path)) for path in paths]
    together = tuple(check_duplicates(checked))
    found = tuple(diagnostic for one in checked for diagnostic in one.diagnostics)
    return found + (harden(together) if strict else together)


def check_file(
    path: str, *, strict: bool = False, limits: Limits | None = None, fence: str = ""
) -> CheckedSkill:
    """Check the skill of this SKILL.md. Never raises, never blocks.

    Nothing outside the fence is read, if there is one. `limits` has no effect any more.
    """
    path = os.path.abspath(path)
    try:
        content = read(path, MAX_CHECKED_BYTES, fence)
    except UnusableFile as error:
        message = f"{os.path.basename(path)} cannot be read: {error}"
        unusable = finding(error.code, path, None, message)
        return CheckedSkill(path, "", (unusable._replace(severity="error"),))
    subject = _subject(content.data, path, strict)
    found = [*_check_subject(subject), *check_references(subject)]
    if content.size > len(content.data):
        message = f"only the first {len(content.data):,} of {content.size:,} bytes were checked"
        found.append(finding("file-cut", path, None, message))
    found += check_entries(subject.folder)
    return _finish(subject, found)


def check_bytes(data: bytes, path: str, *, strict: bool = False) -> CheckedSkill:
    """Check bytes as the SKILL.md at `path`, without reading the disk."""
    subject = _subject(data, os.path.abspath(path), strict)
    return _finish(subject, list(_check_subject(subject)))


def check_duplicates(checked: Iterable[CheckedSkill]) -> Iterator[Diagnostic]:
    """Yield a finding for every skill whose name an earlier one has; a link to it is the same."""
    first: dict[str, str] = {}
    for one in checked:
        other = first.setdefault(one.name, one.path)
        if one.name and other != one.path and os.path.realpath(other) != os.path.realpath(one.path):
            message = f"the name {one.name!r} is taken by {one_line(first[one.name])}"
            yield finding("name-duplicate", one.path, None, message)


def raw_fields(data: bytes) -> dict[str, object]:
    """Return the fields of a well-placed block as they are written, before they are typed."""
    found = split(data)
    if not found or found.end - found.start > MAX_FRONTMATTER_BYTES:
        return {}
    text = data[found.start : found.end].decode("utf-8", "replace").replace("\r\n", "\n")
    text = yaml_repair.without_controls(text)
    loaded = strict.load(text)
    return loaded.fields if isinstance(loaded, strict.LoadedYaml) else yaml_repair.read(text).fields


def _subject(data: bytes, path: str, to_the_letter: bool) -> Subject:
    folder = os.path.dirname(path)
    parsed = parse(data, path=path, folder=os.path.basename(folder))
    usable = parsed.state in ("strict", "repaired")
    return Subject(
        path=path,
        folder=folder,
        data=data,
        parsed=parsed,
        raw=(raw_fields(data) or parsed.fields) if usable else {},
        body=data[parsed.body_offset :].decode("utf-8", "replace"),
        lines=key_lines(data) if usable else {},
        strict=to_the_letter,
    )


def _check_subject(subject: Subject) -> Iterator[Diagnostic]:
    for found in subject.parsed.diagnostics:
        # The parser reports a wrong type without a line; the message begins with the field.
        line = subject.lines.get(found.message.partition(" ")[0])
        yield found._replace(line=line) if found.line is None else found
    for rule in FILE_RULES:
        yield from rule(subject)
    if subject.parsed.state in ("strict", "repaired"):
        for rule in FIELD_RULES:
            yield from rule(subject)
    if subject.parsed.state != "skipped":
        for rule in BODY_RULES:
            yield from rule(subject)


def _finish(subject: Subject, found: list[Diagnostic]) -> CheckedSkill:
    found.sort(key=lambda one: (one.path != subject.path, one.path, one.line or 0))
    folder = os.path.basename(subject.folder)
    skipped = subject.parsed.state == "skipped"
    name = "" if skipped else skill_name(subject.parsed.fields, folder).id
    return CheckedSkill(subject.path, name, harden(found) if subject.strict else tuple(found))


# --- the file ------------------------------------------------------------------------------------


def check_file_name(subject: Subject) -> Iterator[Diagnostic]:
    """The file is named exactly SKILL.md."""
    name = os.path.basename(subject.path)
    if name != SKILL_FILE:
        message = f"the file is called {one_line(name)}, not {SKILL_FILE}"
        yield finding("file-name", subject.path, None, message)


def check_encoding(subject: Subject) -> Iterator[Diagnostic]:
    """No byte-order mark, LF endings, and a body that is UTF-8 as well."""
    if subject.data.startswith(_BOM):
        yield finding("byte-order-mark", subject.path, 1, "the file begins with a byte-order mark")
    ends, lines = subject.data.count(b"\r\n"), subject.data.count(b"\n")
    if ends:
        message = f"{ends:,} of {lines:,} lines end with CR LF"
        yield finding("line-endings", subject.path, 1, message)
    if subject.parsed.state != "skipped":
        yield from _check_body_bytes(subject)


def _check_body_bytes(subject: Subject) -> Iterator[Diagnostic]:
    try:
        utf_8_decode(subject.data, "strict", len(subject.data) < MAX_CHECKED_BYTES)
    except UnicodeDecodeError as error:
        line = subject.data.count(b"\n", 0, error.start) + 1
        message = f"byte {error.start:,} of the file is not UTF-8"
        yield finding("body-encoding", subject.path, line, message)


# --- name and description ------------------------------------------------------------------------


def check_name(subject: Subject) -> Iterator[Diagnostic]:
    """The name is there, has 1 to 64 allowed characters, and is the folder's."""
    name, folder = subject.text("name"), os.path.basename(subject.folder)
    if not name:
        yield subject.says("name-missing", "name", f"there is no name; {folder!r} is used")
        return
    if len(name) > MAX_NAME_CHARS:
        message = f"the name has {len(name)} characters; the limit is {MAX_NAME_CHARS}"
        yield subject.says("name-length", "name", message)
    yield from _check_name_characters(subject, name)
    if name.startswith("-") or name.endswith("-") or "--" in name:
        message = f"the name {_quote(name)} begins or ends with a hyphen, or has two in a row"
        yield subject.says("name-hyphens", "name", message)
    if normalize("NFC", name) != normalize("NFC", folder):
        message = f"the name {_quote(name)} differs from its folder {_quote(folder)}"
        yield subject.says("name-folder", "name", message)


def _check_name_characters(subject: Subject, name: str) -> Iterator[Diagnostic]:
    allowed = _ascii_name_character if subject.strict else _name_character
    written = name if subject.strict else normalize("NFKC", name)
    wrong = sorted({character for character in written if not allowed(character)})
    if not wrong:
        return
    listed = " ".join(ascii(character) for character in wrong[:8])
    more = " and more" if len(wrong) > 8 else ""
    used = skill_name(subject.parsed.fields, os.path.basename(subject.folder)).id
    called = "" if used == name else f"; the skill is called {used!r}"
    message = f"the name {_quote(name)} holds {listed}{more}{called}"
    yield subject.says("name-characters", "name", message)


def _ascii_name_character(character: str) -> bool:
    return character in "abcdefghijklmnopqrstuvwxyz0123456789-"


def _name_character(character: str) -> bool:
    """Whether a lenient reader accepts it: a digit or a lower-case letter of any script."""
    return character == "-" or (character.isalnum() and character == character.lower())


def reserved_word(name: str) -> str:
    """Return the word of a name that a client or a system reserves; "" for none."""
    words = sorted(_VENDORS & set(re.split(r"[\W_]+", name.lower())))
    return words[0] if words else name if is_device(name) else ""


def check_reserved(subject: Subject) -> Iterator[Diagnostic]:
    """The name contains no word that a client or a system reserves."""
    name = subject.text("name")
    if reserved := reserved_word(name):
        message = f"the name {_quote(name)} uses the reserved word {reserved!r}"
        yield subject.says("name-reserved", "name", message)


def check_description(subject: Subject) -> Iterator[Diagnostic]:
    """At most 1,024 characters; angle brackets are a warning, as the specification allows them."""
    description = subject.text("description")
    if len(description) > MAX_DESCRIPTION_CHARS:
        size = f"{len(description):,} characters; the limit is {MAX_DESCRIPTION_CHARS:,}"
        yield subject.says("description-length", "description", f"the description has {size}")
    if is_placeholder(description):
        message = f"the description {_quote(description)} is that of a template"
        yield subject.says("description-placeholder", "description", message)
    if "<" in description or ">" in description:
        at = min(place for mark in "<>" if (place := description.find(mark)) >= 0)
        message = f"the description holds an angle bracket at {_quote(description[at:], 20)}"
        yield subject.says("description-tags", "description", message)


def check_hidden(subject: Subject) -> Iterator[Diagnostic]:
    """Name and description contain no invisible characters."""
    for field in ("name", "description"):
        found = sorted(set(hidden(subject.text(field))))
        if found:
            listed = ", ".join(f"U+{ord(character):04X}" for character in found[:8])
            yield subject.says("hidden-text", field, f"the {field} holds hidden text: {listed}")


# --- other fields --------------------------------------------------------------------------------


def check_compatibility(subject: Subject) -> Iterator[Diagnostic]:
    """When it is given, 1 to 500 characters."""
    if "compatibility" not in subject.parsed.fields:
        return
    size = len(subject.text("compatibility"))
    if size > MAX_COMPATIBILITY_CHARS:
        limit = f"the limit is {MAX_COMPATIBILITY_CHARS}"
        message = f"compatibility has {size:,} characters; {limit}"
        yield subject.says("compatibility-length", "compatibility", message)
    elif not size and subject.parsed.fields["compatibility"] in ("", None):
        yield subject.says("compatibility-length", "compatibility", "compatibility is empty")


def check_metadata(subject: Subject) -> Iterator[Diagnostic]:
    """A map whose values are all text."""
    metadata = subject.parsed.fields.get("metadata")
    if not isinstance(metadata, dict):
        return
    wrong = [
        key
        for key, value in metadata.items()
        if not isinstance(value, str) or isinstance(value, AsWritten)
    ]
    if wrong:
        listed = ", ".join(_quote(key, 30) for key in wrong[:5]) + (", …" if len(wrong) > 5 else "")
        yield subject.says("metadata-values", "metadata", f"metadata values are not text: {listed}")


def check_tools(subject: Subject) -> Iterator[Diagnostic]:
    """The tools are one string with blanks between them."""
    value = subject.raw.get("allowed-tools")
    if isinstance(value, list):
        yield subject.says("allowed-tools-form", "allowed-tools", "allowed-tools is a list")
    elif isinstance(value, str) and "," in re.sub(r"\([^()]*\)", "", value):
        message = "allowed-tools has commas between the tools"
        yield subject.says("allowed-tools-form", "allowed-tools", message)


def check_fields(subject: Subject) -> Iterator[Diagnostic]:
    """Every field is one the format has; in normal mode also one this runtime knows."""
    known = SPECIFIED if subject.strict else KNOWN
    for key in subject.parsed.fields:
        if key in known:
            continue
        fields = subject.parsed.fields
        meant = correct_spelling(key, fields) or closest_field(key, fields)
        if meant and key not in KNOWN:
            message = f"the field {_quote(key)} looks like `{meant}` spelled wrongly"
            remedy = f"write `{meant}` (--fix --unsafe-fixes does)"
            yield subject.says("field-misspelled", key, message, remedy)
        else:
            message = f"the field {_quote(key)} is not part of the specification"
            yield subject.says("field-unknown", key, message)


# --- body ----------------------------------------------------------------------------------------


def check_body(subject: Subject) -> Iterator[Diagnostic]:
    """There is a body, of at most 500 lines and about 5,000 tokens."""
    line = subject.parsed.body_line
    if not subject.body.strip():
        yield finding("body-empty", subject.path, None, "there is no text after the frontmatter")
        return
    lines, cost = len(subject.body.rstrip().splitlines()), tokens(subject.body)
    if lines > ADVISED_BODY_LINES or cost > ADVISED_BODY_TOKENS:
        size = f"{lines:,} lines and about {cost:,} tokens"
        advice = f"{ADVISED_BODY_LINES} lines and {ADVISED_BODY_TOKENS:,} tokens are advised"
        yield finding("body-long", subject.path, line, f"the body has {size}; at most {advice}")


def check_danger(subject: Subject) -> Iterator[Diagnostic]:
    """The file holds no secret, and no command that runs what it fetches."""
    yield from check_content(subject.data, subject.path)


def check_references(subject: Subject) -> Iterator[Diagnostic]:
    """The files that the body names exist, are inside the skill, and need no second document."""
    if subject.parsed.state == "skipped":
        return
    linked: dict[str, int] = {}
    for target, line, link in references(
        subject.body, subject.parsed.body_line, most=MAX_REFERENCES
    ):
        path = os.path.normpath(os.path.join(subject.folder, target))
        if path in linked:
            continue
        linked[path] = line
        if fault := _fault(path, target, subject.folder, link):
            yield finding(fault, subject.path, line, _FAULTS[fault].format(_quote(target)))
    yield from _check_chains(subject, linked)


_FAULTS = {
    "reference-outside": "the link {} leads out of the skill",
    "reference-missing": "the link {} leads to a file that is not there",
    "mention-missing": "the text names {}, which is not there",
}


def _fault(path: str, target: str, folder: str, link: bool) -> str:
    """Return the code of what is wrong with a reference, without touching files outside."""
    if os.path.isabs(target) or not (path == folder or path.startswith(os.path.join(folder, ""))):
        return "reference-outside" if link else ""
    if not os.path.lexists(path):
        return "reference-missing" if link else "mention-missing"
    return ""


def _check_chains(subject: Subject, linked: Mapping[str, int]) -> Iterator[Diagnostic]:
    documents = [path for path in linked if path.lower().endswith(".md")]
    for path in documents[:MAX_LINKED_DOCUMENTS]:
        if path == subject.path:
            continue
        try:
            text = read(path, MAX_LINKED_BYTES, subject.folder).data.decode("utf-8", "replace")
        except UnusableFile:
            continue
        for target, line, link in references(text, most=MAX_REFERENCES):
            further = _document(target, path, subject.folder) if link else ""
            if further and further not in linked and further != subject.path:
                here = os.path.relpath(path, subject.folder)
                message = (
                    f"{one_line(here)} leads on to {_quote(target)}, which SKILL.md does not name"
                )
                yield finding("reference-chain", path, line, message)


def _document(target: str, source: str, folder: str) -> str:
    """Return the Markdown file a link means: relative to the document, or to the skill's folder."""
    if not target.lower().endswith(".md"):
        return ""
    for base in (os.path.dirname(source), folder):
        path = os.path.normpath(os.path.join(base, target))
        if inside(path, folder) and os.path.isfile(path):
            return path
    return ""


def _quote(text: str, width: int = _SHOWN_CHARS) -> str:
    return repr(shorten(one_line(text), width))


Check = Callable[[Subject], Iterator[Diagnostic]]
FILE_RULES: tuple[Check, ...] = (check_file_name, check_encoding)
FIELD_RULES: tuple[Check, ...] = (
    check_name,
    check_reserved,
    check_description,
    check_hidden,
    check_compatibility,
    check_metadata,
    check_tools,
    check_fields,
)
BODY_RULES: tuple[Check, ...] = (check_body, check_danger)
