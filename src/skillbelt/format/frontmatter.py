"""Parse the head of a SKILL.md: strict YAML first, then `yaml_repair`.

No bytes make the parser raise: diagnostics say what is wrong with a file.
"""

from __future__ import annotations

import os
import re
from codecs import utf_8_decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from skillbelt.errors import PathEscape
from skillbelt.files.contain import Fence, read_handle
from skillbelt.format import yaml_fast
from skillbelt.format.bounds import (
    DERIVED_DESCRIPTION_CHARS,
    FIRST_READ_BYTES,
    MAX_FRONTMATTER_BYTES,
)
from skillbelt.format.fields import settle, skill_name
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, one_line, shorten
from skillbelt.values import DERIVED, INTERNAL, MODEL, SKIPPED, USER, Diagnostic, Severity

if TYPE_CHECKING:
    from skillbelt.format import yaml, yaml_repair
else:  # cost: 2 ms, only for YAML that is not plain
    yaml, yaml_repair = Late("skillbelt.format.yaml"), Late("skillbelt.format.yaml_repair")

# How much of a SKILL.md `check` and search read; a hundred times the size of a long one.
MAX_CHECKED_BYTES = 2 * 2**20

State = Literal["strict", "repaired", "derived", "skipped"]
_SLACK = 4096  # read beyond the largest frontmatter, to detect that it is too large


class Parsed(NamedTuple):
    """The parsed head of a SKILL.md.

    `fields` holds the frontmatter with its keys as written and is always JSON; `body_offset` is
    the byte the body starts at, and 0 when the whole file is body.
    """

    fields: dict[str, object]
    state: State
    body_offset: int = 0
    body_line: int = 1
    diagnostics: tuple[Diagnostic, ...] = ()


class Split(NamedTuple):
    """Byte offsets of the block between the `---` lines, and of the body after them."""

    start: int
    end: int
    body: int


class _SkillText(NamedTuple):
    """The file that the steps below work on."""

    data: bytes
    path: str
    folder: str
    derive: bool

    def diagnose(
        self, code: str, message: str, remedy: str, line: int = 1, severity: Severity = "warning"
    ) -> Diagnostic:
        return Diagnostic(
            code=code, severity=severity, path=self.path, line=line, message=message, remedy=remedy
        )


# --- splitting -----------------------------------------------------------------------------------

_OPENING = Lazy(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n")
_CLOSING = Lazy(rb"\n---[ \t]*(?:\r?\n|\r?\Z)")


def split(data: bytes) -> Split | None:
    """Find the frontmatter between two lines that are exactly `---`; None when there is none."""
    if data.startswith(b"---\n"):
        end = data.find(b"\n---", 3)
        if data[end + 4 : end + 5] == b"\n" and end > 0:
            return Split(4, end + 1, end + 5)
    opening = _OPENING.match(data)
    closing = opening and _CLOSING.search(data, opening.end() - 1)
    if not opening or not closing:
        return None
    return Split(opening.end(), closing.start() + 1, closing.end())


def needs_more(data: bytes) -> bool:
    """Whether the frontmatter does not end within these bytes, so that more must be read."""
    if not _OPENING.match(data) or len(data) >= MAX_FRONTMATTER_BYTES + _SLACK:
        return False
    found = split(data)
    return found is None or not data.endswith(b"\n", found.end, found.body)


# --- parsing -------------------------------------------------------------------------------------


def parse(data: bytes, *, path: str, folder: str, derive: bool = True) -> Parsed:
    """Parse the head of a SKILL.md. Never raises.

    `data` is the file's first `FIRST_READ_BYTES`, or more where `needs_more` said so. Without
    `derive`, a file that has no readable frontmatter is skipped.
    """
    file = _SkillText(data=data, path=path, folder=folder, derive=derive)
    found = split(data)
    if found is None or found.end - found.start > MAX_FRONTMATTER_BYTES:
        return _irregular(file, found)
    try:
        text = data[found.start : found.end].decode()
    except UnicodeDecodeError:
        return _not_utf8(file)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    fields = yaml_fast.read(text)
    if fields is None:
        return _parse_fully(file, found, text)
    if not fields:
        return _empty_block(file, found)
    diagnostics = settle(fields, path)
    line = data.count(b"\n", 0, found.body) + 1
    return Parsed(
        fields=fields,
        state="strict",
        body_offset=found.body,
        body_line=line,
        diagnostics=diagnostics,
    )


def written(data: bytes, *, core: bool = True) -> dict[str, object] | None:
    """Return the frontmatter as `yaml.verbatim` reads it; None if there is none."""
    found = split(data)
    if found is None or found.end - found.start > MAX_FRONTMATTER_BYTES:
        return None
    try:
        text = data[found.start : found.end].decode()
    except UnicodeDecodeError:
        return None
    return yaml.verbatim(text.replace("\r\n", "\n"), core=core)


def _parse_fully(file: _SkillText, found: Split, text: str) -> Parsed:
    """Parse a block that the fast reader does not support."""
    clean = yaml_repair.without_controls(text)
    loaded = yaml.full(clean)
    if isinstance(loaded, yaml.BrokenYaml):
        if loaded.guard:
            return _skip(_diagnostic(file, loaded.problem, 1, "error"))
        return _repair(file, found, clean, loaded.problem)
    if not loaded.fields:
        return _empty_block(file, found)
    notes = tuple(_diagnostic(file, problem, 1) for problem in loaded.problems)
    if clean == text:
        return _finish(file, loaded.fields, "strict", found.body, notes)
    line = next((at for at, (raw, kept) in enumerate(_pairs(text, clean), 2) if raw != kept), 1)
    note = file.diagnose(
        "control-characters",
        "the frontmatter holds control characters; they were left out",
        "remove them from the file",
        line,
    )
    return _finish(file, loaded.fields, "repaired", found.body, (note, *notes))


def _pairs(text: str, clean: str) -> list[tuple[str, str]]:
    return list(zip(text.split("\n"), clean.split("\n"), strict=False))


def _repair(file: _SkillText, found: Split, text: str, problem: yaml.Problem) -> Parsed:
    """Parse a closed block that is not YAML line by line."""
    raw = file.data[found.start : found.end].decode()
    repaired, ended = _by_line(raw, text)
    if not repaired.fields:
        note = file.diagnose(
            "yaml-unreadable",
            f"the frontmatter cannot be read ({problem.message}); the file is read as text",
            "write it as `key: value` lines between two `---` lines",
            problem.line + 1,
        )
        # A block of data does not describe the skill; prose between two rules is its text.
        data = text.lstrip().startswith(("-", "[", "{"))
        below = (_decode(file.data[found.body :]) or "") if data else ""
        return _derive(file, note, yaml_repair.derive(below, DERIVED_DESCRIPTION_CHARS))
    note = file.diagnose(
        "yaml-repaired",
        f"the frontmatter is not YAML ({problem.message}); it was read line by line",
        "put the value in quotes, or run `skillbelt check --fix`",
        problem.line + 1,
    )
    body = found.body if ended is None else found.start + len(raw[:ended].encode())
    notes = (_diagnostic(file, other, 1) for other in repaired.problems)
    return _finish(file, repaired.fields, "repaired", body, (note, *notes))


def _by_line(raw: str, text: str) -> tuple[yaml_repair.RepairedYaml, int | None]:
    """Read the lines; also return where in `raw` the body starts, if it starts inside."""
    ended = yaml_repair.inner_end(text)
    if ended is None:
        return yaml_repair.read(text), None
    line = text.count("\n", 0, ended[1])
    column = ended[1] - (text.rfind("\n", 0, ended[1]) + 1)
    before = sum(len(row) + 1 for row in raw.split("\n")[:line])
    return yaml_repair.read(text[: ended[0]]), before + column


def _irregular(file: _SkillText, found: Split | None) -> Parsed:
    """Parse a file without a proper block of allowed size."""
    data = file.data
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or _is_wide(data[:256]):
        return _not_utf8(file)
    if found or (_OPENING.match(data) and len(data) > MAX_FRONTMATTER_BYTES):
        return _too_large(file)
    text = _decode(data)
    if text is None:
        return _not_utf8(file)
    if not text.strip("\ufeff \t\r\n\0"):
        note = file.diagnose(
            "file-empty", "the file is empty", "write a name, a description and a body"
        )
        return _derive(file, note)
    if "\n" not in text and "\r" in text:
        text = text.replace("\r", "\n")
    return _parse_misplaced(file, text)


def _parse_misplaced(file: _SkillText, text: str) -> Parsed:
    """Parse a file that does not begin with `---`, or never closes it."""
    block = yaml_repair.find(text)
    if block is None or block.end - block.start > MAX_FRONTMATTER_BYTES:
        return _read_as_body(file, text)
    raw = text[block.start : block.end]
    inner = yaml_repair.without_controls(raw.replace("\r\n", "\n"))
    loaded = yaml.load(inner if inner.endswith("\n") else inner + "\n")
    body, repaired = block.body, yaml_repair.RepairedYaml({})
    if block.single:
        repaired = yaml_repair.one_line(inner)
    elif isinstance(loaded, yaml.LoadedYaml):
        repaired = yaml_repair.RepairedYaml(*loaded)
    elif loaded.guard:
        return _skip(_diagnostic(file, loaded.problem, 1, "error"))
    else:
        repaired, ended = _by_line(raw, inner)
        body = block.body if ended is None else block.start + ended
    if not repaired.fields:
        return _read_as_body(file, text)
    return _accept_misplaced(file, text, block, repaired, body)


def _accept_misplaced(
    file: _SkillText,
    text: str,
    block: yaml_repair.FrontmatterBlock,
    repaired: yaml_repair.RepairedYaml,
    body: int,
) -> Parsed:
    line = text.count("\n", 0, block.start) + 1
    note = file.diagnose(
        "yaml-repaired",
        f"{block.reason}; the block was read anyway",
        "begin the file with a line `---` and end the block with one",
        line,
    )
    notes = (_diagnostic(file, problem, line - 1) for problem in repaired.problems)
    offset = len(text[:body].encode())
    return _finish(file, repaired.fields, "repaired", offset, (note, *notes))


def _read_as_body(file: _SkillText, text: str) -> Parsed:
    """Return the result for a file whose whole text is body."""
    if _OPENING.match(file.data):
        note = file.diagnose(
            "frontmatter-unclosed",
            "the frontmatter is opened and never closed; the whole file is read as text",
            "end it with a line `---`",
        )
        return _derive(file, note, yaml_repair.open_description(text))
    note = file.diagnose(
        "frontmatter-missing",
        "there is no frontmatter; name and description are taken from folder and text",
        f"begin the file with `---`, `name: {one_line(file.folder)}`, `description: …`, `---`",
    )
    return _derive(file, note)


def _empty_block(file: _SkillText, found: Split) -> Parsed:
    note = file.diagnose(
        "frontmatter-missing",
        "the frontmatter is empty; name and description are taken from folder and text",
        f"write `name: {one_line(file.folder)}` and `description: …` in it",
    )
    parsed = _derive(file, note)
    if parsed.state == "skipped":
        return parsed
    line = file.data.count(b"\n", 0, found.body) + 1
    return parsed._replace(body_offset=found.body, body_line=line)


def _derive(file: _SkillText, note: Diagnostic, description: str = "") -> Parsed:
    """Return the whole file as body, described by `description` or its first paragraph."""
    if not file.derive:
        return _skip(note._replace(severity="error"))
    limit = DERIVED_DESCRIPTION_CHARS
    text = _decode(file.data)
    if text is None:
        return _not_utf8(file)
    if not description:
        description = yaml_repair.derive(_after_block(text), limit)
    return Parsed(
        fields={"description": shorten(description, limit)},
        state="derived",
        body_offset=0,
        body_line=1,
        diagnostics=(note,),
    )


def _after_block(text: str) -> str:
    """Return the text without the `---` line and the keys at its top."""
    text = text.removeprefix("\ufeff")
    return re.sub(r"\A---[ \t]*\r?\n(?:[\w-]+:.*\n|[ \t]+\S.*\n)*(?:---[ \t]*\r?\n)?", "", text)


def _finish(
    file: _SkillText,
    fields: dict[str, object],
    state: State,
    body: int,
    notes: tuple[Diagnostic, ...],
) -> Parsed:
    diagnostics = (*notes, *settle(fields, file.path))
    return Parsed(
        fields=fields,
        state=state,
        body_offset=body,
        body_line=file.data.count(b"\n", 0, body) + 1,
        diagnostics=diagnostics,
    )


def _skip(note: Diagnostic) -> Parsed:
    return Parsed(fields={}, state="skipped", body_offset=0, body_line=1, diagnostics=(note,))


def _not_utf8(file: _SkillText) -> Parsed:
    message, remedy = "the file is not UTF-8", "save it as UTF-8"
    return _skip(file.diagnose("not-utf8", message, remedy, severity="error"))


def _is_wide(head: bytes) -> bool:
    """Whether the bytes look like UTF-16 or UTF-32 without a mark."""
    return head.count(0) * 4 > len(head)


def _too_large(file: _SkillText) -> Parsed:
    message = f"the frontmatter is larger than {MAX_FRONTMATTER_BYTES} bytes"
    remedy = "move text to the body"
    return _skip(file.diagnose("frontmatter-too-large", message, remedy, severity="error"))


def _diagnostic(
    file: _SkillText, problem: yaml.Problem, offset: int, severity: Severity = "warning"
) -> Diagnostic:
    return file.diagnose(
        problem.code, problem.message, problem.remedy, problem.line + offset, severity
    )


def _decode(data: bytes) -> str | None:
    """Decode the bytes, or return None; a character cut off at the end is dropped."""
    try:
        return utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        return None


def key_lines(data: bytes) -> dict[str, int]:
    """Return the line of each top-level key of the frontmatter, counted from 1 in the file."""
    found = split(data)
    if not found:
        return {}
    text = data[found.start : found.end].decode("utf-8", "replace")
    lines = enumerate(text.split("\n"), 2)
    matches = ((number, yaml_repair.KEY_LINE.match(line)) for number, line in lines)
    return {match[2]: number for number, match in matches if match}


# --- the card of a skill -------------------------------------------------------------------------

OPEN = Fence()
_HEAD_SLACK = 64  # room for both delimiter lines
_NOT_FOR_MODEL = ("disable-model-invocation", "disable_model_invocation")
_FOR_USER = ("user-invocable", "user_invocable", "user-invokable", "user_invokable")
_YES = (True, *(word for word, value in yaml_fast.CONSTANTS.items() if value is True))
_FLAG_FIELDS = frozenset((*_NOT_FOR_MODEL, *_FOR_USER, "metadata"))


class Card(NamedTuple):
    """The part of a SKILL.md that a catalogue needs, independent of its location."""

    name: str
    title: str
    description: str
    when_to_use: str
    flags: int
    body_offset: int
    diagnostics: tuple[Diagnostic, ...]


def read_head(location: str, fence: Fence = OPEN) -> bytes:
    """Read a file up to the end of its frontmatter.

    Raises OSError if it cannot be read, PathEscape if it leads out of the fence.
    """
    handle = fence.open_file(location)
    try:
        data = os.read(handle, FIRST_READ_BYTES)
        if len(data) == FIRST_READ_BYTES and needs_more(data):
            # A little more than the limit, so that the parser detects a longer one.
            data += os.read(handle, max(MAX_FRONTMATTER_BYTES + _HEAD_SLACK - len(data), 0))
        return data
    finally:
        os.close(handle)


def read_card(data: bytes, location: str, folder: str, *, derive: bool = True) -> Card:
    """Return the card for the head of a SKILL.md. Never raises."""
    parsed = parse(data, path=location, folder=folder, derive=derive)
    fields = parsed.fields
    name = skill_name(fields, folder, location)
    return Card(
        name=name.id,
        title=name.title,
        description=_field_text(fields, "description"),
        when_to_use=_field_text(fields, "when_to_use") or _field_text(fields, "when-to-use"),
        flags=_flags(fields, parsed.state),
        body_offset=parsed.body_offset,
        diagnostics=(*parsed.diagnostics, *name.diagnostics),
    )


def _field_text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    return value.strip() if isinstance(value, str) else ""


def _flags(fields: Mapping[str, object], state: State) -> int:
    flags = USER | MODEL
    for key in _FLAG_FIELDS & fields.keys():
        if key == "metadata":
            flags |= _internal(fields[key])
        elif key in _NOT_FOR_MODEL and fields[key] is True:
            flags &= ~MODEL
        elif key in _FOR_USER and fields[key] is False:
            flags &= ~USER
    if state == "derived":
        flags |= DERIVED
    return flags | SKIPPED if state == "skipped" else flags


def _internal(metadata: object) -> int:
    marked = isinstance(metadata, dict) and metadata.get("internal") in _YES
    return INTERNAL if marked else 0


def with_policy(card: Card, location: str, path: str, fence: Fence = OPEN) -> Card:
    """Apply the Codex policy file beside the skill, which may hide the skill from models.

    An unreadable file hides it too, because hiding is its purpose.
    """
    policy = _read_policy(path, fence)
    if policy is None:
        message = f"{path} cannot be read as YAML, so the skill is hidden from models"
        note = Diagnostic(
            code="policy-unreadable",
            severity="error",
            path=location,
            line=None,
            message=message,
            remedy="fix that file",
        )
        return card._replace(flags=card.flags & ~MODEL, diagnostics=(*card.diagnostics, note))
    rule = policy.get("policy")
    implicit = rule.get("allow_implicit_invocation") if isinstance(rule, dict) else None
    return card._replace(flags=card.flags & ~MODEL) if implicit is False else card


def _read_policy(path: str, fence: Fence) -> dict[str, object] | None:
    try:
        data = read_handle(fence.open_file(path), MAX_FRONTMATTER_BYTES + 1)
        text = data.decode("utf-8") if len(data) <= MAX_FRONTMATTER_BYTES else None
    except (OSError, PathEscape, UnicodeDecodeError):
        return None
    loaded = yaml.full(text.replace("\r\n", "\n")) if text is not None else None
    return loaded.fields if isinstance(loaded, yaml.LoadedYaml) else None
