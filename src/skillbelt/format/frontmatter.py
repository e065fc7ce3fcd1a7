"""SKILL.md -> frontmatter, body offset and diagnostics; strict first, then repair, then derive.

Nothing here raises, whatever the bytes are: what is wrong with a file is told in diagnostics.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from skillbelt.format import yaml, yaml_fast, yaml_repair
from skillbelt.format.fields import settle
from skillbelt.text import one_line, shorten
from skillbelt.values import Diagnostic, Limits, Severity

# Enough for nearly every frontmatter, so that a scan needs one read a file.
FIRST_READ_BYTES = 8 * 2**10
# Far beyond any honest frontmatter; parsing more would cost time and memory.
MAX_FRONTMATTER_BYTES = 64 * 2**10
# A description taken from the body: about what authors write themselves.
DERIVED_DESCRIPTION_CHARS = 300
# Read of a SKILL.md by `check` and by search; a hundred times a long one.
MAX_CHECKED_BYTES = 2 * 2**20

State = Literal["strict", "repaired", "derived", "skipped"]
_LIMITS = Limits()
_SLACK = 4096  # what a reader fetches beyond the largest frontmatter, to see that it is too large


class Parsed(NamedTuple):
    """What the head of a SKILL.md says.

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


class _File(NamedTuple):
    """What every step below needs to know about the file at hand."""

    data: bytes
    path: str
    folder: str
    limits: Limits
    derive: bool

    def says(
        self, code: str, message: str, remedy: str, line: int = 1, severity: Severity = "warning"
    ) -> Diagnostic:
        return Diagnostic(
            code=code, severity=severity, path=self.path, line=line, message=message, remedy=remedy
        )


# --- splitting -----------------------------------------------------------------------------------

_OPENING = yaml_fast.Lazy(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n")
_CLOSING = yaml_fast.Lazy(rb"\n---[ \t]*(?:\r?\n|\r?\Z)")


def split(data: bytes) -> Split | None:
    """The frontmatter between two lines that are exactly `---`; None when there is none."""
    if data.startswith(b"---\n"):
        end = data.find(b"\n---", 3)
        if data[end + 4 : end + 5] == b"\n" and end > 0:
            return Split(4, end + 1, end + 5)
    opening = _OPENING.match(data)
    closing = opening and _CLOSING.search(data, opening.end() - 1)
    if not opening or not closing:
        return None
    return Split(opening.end(), closing.start() + 1, closing.end())


def needs_more(data: bytes, limits: Limits = _LIMITS) -> bool:
    """Whether frontmatter begins in this head and does not end in it, so that more must be read."""
    if not _OPENING.match(data) or len(data) >= MAX_FRONTMATTER_BYTES + _SLACK:
        return False
    found = split(data)
    return found is None or not data.endswith(b"\n", found.end, found.body)


# --- parsing -------------------------------------------------------------------------------------


def parse(
    data: bytes, *, path: str, folder: str, limits: Limits = _LIMITS, derive: bool = True
) -> Parsed:
    """What the head of a SKILL.md says. Never raises.

    `data` is the file's first `FIRST_READ_BYTES`, or more where `needs_more` said so. Without
    `derive`, a file that has no readable frontmatter is skipped.
    """
    found = split(data)
    if found is None or found.end - found.start > MAX_FRONTMATTER_BYTES:
        return _irregular(
            _File(data=data, path=path, folder=folder, limits=limits, derive=derive), found
        )
    try:
        text = data[found.start : found.end].decode()
    except UnicodeDecodeError:
        return _not_utf8(_File(data=data, path=path, folder=folder, limits=limits, derive=derive))
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    fields = yaml_fast.read(text)
    if fields is None:
        return _slow(
            _File(data=data, path=path, folder=folder, limits=limits, derive=derive), found, text
        )
    if not fields:
        return _empty_block(
            _File(data=data, path=path, folder=folder, limits=limits, derive=derive), found
        )
    diagnostics = settle(fields, path)
    line = data.count(b"\n", 0, found.body) + 1
    return Parsed(
        fields=fields,
        state="strict",
        body_offset=found.body,
        body_line=line,
        diagnostics=diagnostics,
    )


def written(
    data: bytes, limits: Limits = _LIMITS, *, core: bool = True
) -> dict[str, object] | None:
    """The frontmatter to the letter, as `strict.verbatim` reads it; None where there is none."""
    found = split(data)
    if found is None or found.end - found.start > MAX_FRONTMATTER_BYTES:
        return None
    try:
        text = data[found.start : found.end].decode()
    except UnicodeDecodeError:
        return None
    return yaml.verbatim(text.replace("\r\n", "\n"), limits, core=core)


def _slow(file: _File, found: Split, text: str) -> Parsed:
    """A block that the fast reader left alone."""
    clean = yaml_repair.without_controls(text)
    loaded = yaml.full(clean, file.limits)
    if isinstance(loaded, yaml.Broken):
        if loaded.guard:
            return _skipped(_diagnostic(file, loaded.problem, 1, "error"))
        return _repaired(file, found, clean, loaded.problem)
    if not loaded.fields:
        return _empty_block(file, found)
    notes = tuple(_diagnostic(file, problem, 1) for problem in loaded.problems)
    if clean == text:
        return _done(file, loaded.fields, "strict", found.body, notes)
    line = next((n for n, (a, b) in enumerate(_pairs(text, clean), 2) if a != b), 1)
    note = file.says(
        "control-characters",
        "the frontmatter holds control characters; they were left out",
        "remove them from the file",
        line,
    )
    return _done(file, loaded.fields, "repaired", found.body, (note, *notes))


def _pairs(text: str, clean: str) -> list[tuple[str, str]]:
    return list(zip(text.split("\n"), clean.split("\n"), strict=False))


def _repaired(file: _File, found: Split, text: str, problem: yaml.Problem) -> Parsed:
    """A closed block that YAML refuses: its lines one by one."""
    raw = file.data[found.start : found.end].decode()
    mended, ended = _by_line(raw, text, file.limits)
    if not mended.fields:
        note = file.says(
            "yaml-unreadable",
            f"the frontmatter can not be read ({problem.message}); the file is taken as text",
            "write it as `key: value` lines between two `---` lines",
            problem.line + 1,
        )
        # A block of data says nothing about the skill; prose between two rules is its text.
        data = text.lstrip().startswith(("-", "[", "{"))
        below = (_text(file.data[found.body :]) or "") if data else ""
        return _derived(file, note, yaml_repair.derive(below, DERIVED_DESCRIPTION_CHARS))
    note = file.says(
        "yaml-repaired",
        f"the frontmatter is not YAML ({problem.message}); it was read line by line",
        "put the value in quotes, or run `skillbelt check --fix`",
        problem.line + 1,
    )
    body = found.body if ended is None else found.start + len(raw[:ended].encode())
    notes = (_diagnostic(file, other, 1) for other in mended.problems)
    return _done(file, mended.fields, "repaired", body, (note, *notes))


def _by_line(raw: str, text: str, limits: Limits) -> tuple[yaml_repair.Mended, int | None]:
    """What the lines say, and the character of `raw` the body starts at if that is inside it."""
    ended = yaml_repair.inner_end(text)
    if ended is None:
        return yaml_repair.read(text, limits), None
    line = text.count("\n", 0, ended[1])
    column = ended[1] - (text.rfind("\n", 0, ended[1]) + 1)
    before = sum(len(row) + 1 for row in raw.split("\n")[:line])
    return yaml_repair.read(text[: ended[0]], limits), before + column


def _irregular(file: _File, found: Split | None) -> Parsed:
    """A file without a proper block of bearable size."""
    data = file.data
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or _is_wide(data[:256]):
        return _not_utf8(file)
    if found or (_OPENING.match(data) and len(data) > MAX_FRONTMATTER_BYTES):
        return _too_large(file)
    text = _text(data)
    if text is None:
        return _not_utf8(file)
    if not text.strip("\ufeff \t\r\n\0"):
        note = file.says(
            "file-empty", "the file is empty", "write a name, a description and a body"
        )
        return _derived(file, note)
    if "\n" not in text and "\r" in text:
        text = text.replace("\r", "\n")
    return _misplaced(file, text)


def _misplaced(file: _File, text: str) -> Parsed:
    """A file that does not open with `---`, or never closes with it."""
    block = yaml_repair.find(text)
    if block is None or block.end - block.start > MAX_FRONTMATTER_BYTES:
        return _bodily(file, text)
    raw = text[block.start : block.end]
    inner = yaml_repair.without_controls(raw.replace("\r\n", "\n"))
    loaded = yaml.load(inner if inner.endswith("\n") else inner + "\n", file.limits)
    body, mended = block.body, yaml_repair.Mended({})
    if block.single:
        mended = yaml_repair.one_line(inner, file.limits)
    elif isinstance(loaded, yaml.Loaded):
        mended = yaml_repair.Mended(*loaded)
    elif loaded.guard:
        return _skipped(_diagnostic(file, loaded.problem, 1, "error"))
    else:
        mended, ended = _by_line(raw, inner, file.limits)
        body = block.body if ended is None else block.start + ended
    if not mended.fields:
        return _bodily(file, text)
    return _moved(file, text, block, mended, body)


def _moved(
    file: _File, text: str, block: yaml_repair.Block, mended: yaml_repair.Mended, body: int
) -> Parsed:
    line = text.count("\n", 0, block.start) + 1
    note = file.says(
        "yaml-repaired",
        f"{block.reason}; the block was read all the same",
        "begin the file with a line `---` and end the block with one",
        line,
    )
    notes = (_diagnostic(file, problem, line - 1) for problem in mended.problems)
    offset = len(text[:body].encode())
    return _done(file, mended.fields, "repaired", offset, (note, *notes))


def _bodily(file: _File, text: str) -> Parsed:
    """A file whose whole text is body."""
    if _OPENING.match(file.data):
        note = file.says(
            "frontmatter-unclosed",
            "the frontmatter is opened and never closed; the whole file is taken as text",
            "end it with a line `---`",
        )
        return _derived(file, note, yaml_repair.open_description(text, file.limits))
    note = file.says(
        "frontmatter-missing",
        "there is no frontmatter; name and description are taken from folder and text",
        f"begin the file with `---`, `name: {one_line(file.folder)}`, `description: …`, `---`",
    )
    return _derived(file, note)


def _empty_block(file: _File, found: Split) -> Parsed:
    note = file.says(
        "frontmatter-missing",
        "the frontmatter is empty; name and description are taken from folder and text",
        f"write `name: {one_line(file.folder)}` and `description: …` in it",
    )
    parsed = _derived(file, note)
    if parsed.state == "skipped":
        return parsed
    line = file.data.count(b"\n", 0, found.body) + 1
    return parsed._replace(body_offset=found.body, body_line=line)


def _derived(file: _File, note: Diagnostic, description: str = "") -> Parsed:
    """The whole file as body, described by its first paragraph or by `description`."""
    if not file.derive:
        return _skipped(note._replace(severity="error"))
    limit = DERIVED_DESCRIPTION_CHARS
    text = _text(file.data)
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
    """The text without the `---` line, and the keys below it, at its top."""
    text = text.removeprefix("\ufeff")
    return re.sub(r"\A---[ \t]*\r?\n(?:[\w-]+:.*\n|[ \t]+\S.*\n)*(?:---[ \t]*\r?\n)?", "", text)


def _done(
    file: _File, fields: dict[str, object], state: State, body: int, notes: tuple[Diagnostic, ...]
) -> Parsed:
    diagnostics = (*notes, *settle(fields, file.path))
    return Parsed(
        fields=fields,
        state=state,
        body_offset=body,
        body_line=file.data.count(b"\n", 0, body) + 1,
        diagnostics=diagnostics,
    )


def _skipped(note: Diagnostic) -> Parsed:
    return Parsed(fields={}, state="skipped", body_offset=0, body_line=1, diagnostics=(note,))


def _not_utf8(file: _File) -> Parsed:
    message, remedy = "the file is not UTF-8", "save it as UTF-8"
    return _skipped(file.says("not-utf8", message, remedy, severity="error"))


def _is_wide(head: bytes) -> bool:
    """Whether the bytes look like UTF-16 or UTF-32 without a mark."""
    return head.count(0) * 4 > len(head)


def _too_large(file: _File) -> Parsed:
    message = f"the frontmatter is larger than {MAX_FRONTMATTER_BYTES} bytes"
    remedy = "move text to the body"
    return _skipped(file.says("frontmatter-too-large", message, remedy, severity="error"))


def _diagnostic(
    file: _File, problem: yaml.Problem, offset: int, severity: Severity = "warning"
) -> Diagnostic:
    return file.says(problem.code, problem.message, problem.remedy, problem.line + offset, severity)


def _text(data: bytes) -> str | None:
    """The bytes as text, or None; a character cut off at the end of the head is left out."""
    from codecs import utf_8_decode

    try:
        return utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        return None


def key_lines(data: bytes) -> dict[str, int]:
    """The line of each top-level key of the frontmatter, counted from 1 in the file."""
    found = split(data)
    if not found:
        return {}
    text = data[found.start : found.end].decode("utf-8", "replace")
    lines = enumerate(text.split("\n"), 2)
    matches = ((number, yaml_repair.KEY_LINE.match(line)) for number, line in lines)
    return {match[2]: number for number, match in matches if match}
