"""Tiers two and three: the body of a skill and its documents, bounded, contained, with a report.

Only this module reads a whole body. Every file is opened relative to a file descriptor of the
skill's folder, so that no name and no link, even one created meanwhile, leads out of it.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import BinaryIO, Literal

from skillbelt.disclosure.excerpt import (
    Strategy,
    cut_body,
    head,
    key_area,
    line_count,
    pages,
    without_last_heading,
)
from skillbelt.disclosure.overflow import Storage
from skillbelt.errors import (
    FileTooLarge,
    FileTypeRefused,
    FileUnreadable,
    InvalidFrontmatter,
    PathEscape,
    SectionNotFound,
    closest,
)
from skillbelt.files.contain import check_relative, name_fault
from skillbelt.files.manifest import kind_of, too_large
from skillbelt.format.arguments import appended, substitute
from skillbelt.format.bounds import FIRST_READ_BYTES, MAX_FRONTMATTER_BYTES, MAX_RESOURCE_FILE_BYTES
from skillbelt.format.fields import to_frontmatter
from skillbelt.format.frontmatter import (
    Parsed,
    needs_more,
    parse,
)
from skillbelt.format.links import MAX_REFERENCES, plain_paths, references
from skillbelt.format.sections import find, sections
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple
from skillbelt.text import one_line, shorten
from skillbelt.values import SKILL_FILE, Limits

# Files named beside a body: a hint to the model, not a listing.
MAX_SAMPLED_FILES = 10

Overflow = Literal["cut", "refuse"]

MAX_BODY_FILE_BYTES = 4 * 2**20
RESOURCE_ENDINGS = (".md", ".txt", ".json", ".yaml", ".yml")
DOCUMENT_ENDINGS = (".md", ".txt")
_LIMITS = Limits()
_SLACK = 64  # room for both delimiter lines, as the catalogue reads a head
_SNIFFED = 4096
_MAX_COMPARED = 1_000  # names that are compared with a missing file's
_MOST_TITLES = 10


class Report(NamedTuple):
    """A report on a document: what was read, and which part of it was returned.

    `sha256` is that of the whole file, `excerpt_sha256` that of the given text. `truncated` says
    that a limit left something out; `storage_ref` is then the place of the whole text, if it was
    stored.
    """

    path: str
    size: int
    sha256: str
    excerpt_sha256: str
    bytes_read: int
    chars_returned: int
    truncated: bool
    strategy: Strategy
    references: tuple[str, ...]
    storage_ref: str = ""
    section_missed: bool = False


class Loaded(NamedTuple):
    """A text for a model, and the report on how it was read; `path` is below the folder."""

    name: str
    path: str
    text: str
    report: Report


class _Chosen(NamedTuple):
    text: str
    strategy: Strategy
    truncated: bool
    section_missed: bool = False


# --- the body ------------------------------------------------------------------------------------


def load_skill_body(
    skill: Skill,
    limits: Limits = _LIMITS,
    *,
    overflow: Overflow = "cut",
    storage: Storage | None = None,
    arguments: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Loaded:
    """Return the text of a SKILL.md without its frontmatter, cut to the limits or refused.

    `arguments` and `variables` fill the placeholders in it. Raises LoadError or PathEscape if there
    is no text to return.
    """
    data = _body_data(skill)
    parsed = _parse(skill, data)
    path = os.path.basename(skill.location)
    body = _decode(data[parsed.body_offset :], path)
    if overflow == "refuse" and _exceeds(body, limits):
        raise _refusal(path, body, limits)
    text, tail = _fill(body, parsed, arguments, variables or {})
    if not _exceeds(text + tail, limits):
        return _make_loaded(skill, path, data, _Chosen(text + tail, "whole", False))
    ref = _store(storage, text + tail)
    return _make_loaded(skill, path, data, _cut(text, tail, ref, limits), ref)


def _fill(
    body: str, parsed: Parsed, arguments: str | None, variables: Mapping[str, str]
) -> tuple[str, str]:
    """Return the body with its placeholders filled, and what was appended to it."""
    if arguments is None and (not variables or "$" not in body):
        return body, ""
    names = to_frontmatter(parsed.fields).arguments if arguments is not None else ()
    text = substitute(body, arguments, names=names, variables=variables)
    tail = appended(arguments) if arguments else ""
    return (text.removesuffix(tail), tail) if tail and text.endswith(tail) else (text, "")


def _body_data(skill: Skill) -> bytes:
    if os.path.isabs(skill.location):
        return read_file(skill, os.path.basename(skill.location), MAX_BODY_FILE_BYTES)
    data = skill.source.encode("utf-8", "surrogatepass")
    if len(data) > MAX_BODY_FILE_BYTES:
        raise too_large(skill.location, len(data), MAX_BODY_FILE_BYTES)
    return data


def _parse(skill: Skill, data: bytes) -> Parsed:
    """Parse the frontmatter as the catalogue does; the file may have changed since."""
    parsed = _parse_head(data[: MAX_FRONTMATTER_BYTES + _SLACK], skill.location)
    if parsed.state == "skipped":
        reasons = [one.message for one in parsed.diagnostics if one.severity == "error"]
        reason = "; ".join(reasons) or "the frontmatter cannot be read"
        raise InvalidFrontmatter(os.path.basename(skill.location), f"{reason}; fix the file")
    return parsed


@lru_cache(maxsize=64)
def _parse_head(head: bytes, location: str) -> Parsed:
    begin = head[:FIRST_READ_BYTES]
    if needs_more(begin):
        begin = head
    folder = os.path.basename(os.path.dirname(location))
    return parse(begin, path=location, folder=folder)


def _exceeds(text: str, limits: Limits) -> bool:
    if len(text) > limits.max_skill_body_chars:
        return True
    # There is at most one line more than line breaks; only a long text is counted exactly.
    return (
        text.count("\n") >= limits.max_skill_body_lines
        and line_count(text) > limits.max_skill_body_lines
    )


def _refusal(path: str, body: str, limits: Limits) -> FileTooLarge:
    return FileTooLarge(
        path,
        f"the body has {line_count(body):,} lines and {len(body):,} characters; the limits are "
        f"{limits.max_skill_body_lines:,} and {limits.max_skill_body_chars:,}: move what is not "
        "always needed into files below reference/ and name them in the body",
    )


def _cut(text: str, tail: str, ref: str, limits: Limits) -> _Chosen:
    """Leave out the least important sections; arguments may take up to half of the limit."""
    rows, chars = limits.max_skill_body_lines, limits.max_skill_body_chars
    tail = head(pages(tail, 1, rows // 2), chars // 2)
    kept = cut_body(text, rows - line_count(tail), chars - len(tail), _name_stored(ref))
    return _Chosen(kept.text + tail, kept.strategy, truncated=True)


def _name_stored(ref: str) -> str:
    return f"The whole text is stored: {one_line(ref)}" if ref else ""


# --- resources -----------------------------------------------------------------------------------


def load_resource(
    skill: Skill,
    relative_path: str,
    section_hint: str | None = None,
    limits: Limits = _LIMITS,
    *,
    full: bool = False,
    start_line: int | None = None,
    lines: int | None = None,
    strict_section: bool = False,
    storage: Storage | None = None,
    endings: Sequence[str] = RESOURCE_ENDINGS,
) -> Loaded:
    """Return one text file of a skill: all of a short one, an excerpt of a long one.

    A `section_hint` returns that section (see `sections.find`), `start_line` and `lines` a range,
    `full` the beginning up to the limit of a body. A hint that matches no heading is ignored, and
    the report says so; with `strict_section` it is SectionNotFound. Raises PathEscape for a path
    that leads out and LoadError for a file that cannot be returned.
    """
    path = check_relative(relative_path, skill.dir)
    data, text = _resource_text(skill, path, endings)
    if start_line is not None or lines is not None:
        wanted = pages(text, start_line or 1, lines)
        chosen = _excerpt(wanted, "lines", limits.max_resource_excerpt_chars)
    elif section_hint and section_hint.strip():
        chosen = _section(text, path, section_hint, strict_section, limits)
    else:
        chosen = _opening(text, limits, full)
    ref = _store(storage, text) if chosen.truncated else ""
    return _make_loaded(skill, path, data, chosen, ref)


def resource_text(skill: Skill, relative_path: str) -> str:
    """Return the whole text of a file of which `load_resource` would return a part."""
    path = check_relative(relative_path, skill.dir)
    return _resource_text(skill, path, RESOURCE_ENDINGS)[1]


def load_document(
    skill: Skill,
    relative_path: str,
    limits: Limits = _LIMITS,
    *,
    storage: Storage | None = None,
) -> Loaded:
    """Return a whole document to add to a body; one that is too long is cut like a body.

    Its last line then says what was left out, and where the whole text is stored.
    """
    path = check_relative(relative_path, skill.dir)
    data, text = _resource_text(skill, path, RESOURCE_ENDINGS)
    most = limits.max_skill_body_chars
    if len(text) <= most:
        chosen = _Chosen(text, "whole", truncated=False)
        return _make_loaded(skill, path, data, chosen)
    ref = _store(storage, text)
    kept = cut_body(text, len(text), most, _name_stored(ref))
    chosen = _Chosen(kept.text, kept.strategy, truncated=True)
    return _make_loaded(skill, path, data, chosen, ref)


def _resource_text(skill: Skill, path: str, endings: Sequence[str]) -> tuple[bytes, str]:
    """Return the bytes and the text of a file that a model may get."""
    _check_ending(path, endings)
    data = read_file(skill, path, MAX_RESOURCE_FILE_BYTES)
    _check_kind(path, data)
    return data, _decode(data, path)


def _excerpt(wanted: str, strategy: Strategy, most: int) -> _Chosen:
    given = head(wanted, most)
    if len(given) < len(wanted) and strategy != "lines":
        # Unless the file has nothing else.
        given = without_last_heading(given) or given
    return _Chosen(given, strategy, truncated=len(given) < len(wanted))


def _section(text: str, path: str, hint: str, strict: bool, limits: Limits) -> _Chosen:
    found = find(text, hint)
    if found is not None:
        wanted = text[found.start : found.end]
        return _excerpt(wanted, "section", limits.max_resource_excerpt_chars)
    if strict:
        titles = [shorten(one_line(one.title), 60) for one in sections(text)[:_MOST_TITLES]]
        known = f"its headings begin with: {', '.join(titles)}" if titles else "it has no headings"
        raise SectionNotFound(path, f"no heading matches {hint[:100]!r}; {known}")
    return _opening(text, limits, full=False)._replace(section_missed=True)


def _opening(text: str, limits: Limits, full: bool) -> _Chosen:
    """Return the beginning, or the table of contents if the beginning does not include it."""
    most = limits.max_skill_body_chars if full else limits.max_resource_excerpt_chars
    if len(text) <= most:
        return _Chosen(text, "whole", truncated=False)
    area = None if full else key_area(text)
    if area is not None and area.start > 0 and area.end > most:
        return _Chosen(head(text[area.start : area.end], most), "section", truncated=True)
    return _excerpt(text, "head", most)


def _check_ending(path: str, endings: Sequence[str]) -> None:
    ending = os.path.splitext(path)[1].lower()
    if ending not in endings:
        kind = f"a file ending in {ending!r}" if ending else "a file without an ending"
        reason = f"{kind} is not given to a model; these are: {', '.join(endings)}"
        raise FileTypeRefused(path, reason)


def _check_kind(path: str, data: bytes) -> None:
    """Refuse a file whose content is not text, even if its name says so."""
    kind = kind_of("", data[:_SNIFFED])
    if kind != "text/plain":
        raise FileTypeRefused(path, f"its content is {kind}, though its name says text")
    if b"\0" in data:
        raise FileTypeRefused(path, "it is binary: it holds NUL bytes; save it as UTF-8 text")


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 text (line {line}); save it in that encoding"
        raise FileUnreadable(path, reason) from error


# --- files ---------------------------------------------------------------------------------------


def read_file(skill: Skill, path: str, most: int) -> bytes:
    """Return all bytes of a regular file of the skill, if it has at most `most`.

    Raises PathEscape when the path leads out, FileTooLarge, FileTypeRefused or FileUnreadable.
    """
    try:
        with skill.files.open(path, most) as file:
            mode, size = _stat(file, most)
            # Reading one byte more than its size shows whether the file grew since.
            data = file.read(size + 1)
            if len(data) > size:
                data += file.read(most + 1 - len(data))
    except PathEscape as escape:
        raise PathEscape(path, skill.dir, "leads out of the skill's folder") from escape
    except OSError as error:
        raise FileUnreadable(path, _explain(skill, path, error)) from error
    if len(data) > most:
        raise too_large(path, len(data), most)
    if mode & 0o111 and data.startswith(b"#!"):
        raise FileTypeRefused(path, "is an executable script")
    return data


def nameable(path: str) -> bool:
    """Whether a file of that name can be requested."""
    return not name_fault(path.removeprefix("./"))


def walk(skill: Skill) -> Iterator[str]:
    """Yield the paths of the skill's files that can be requested, the nearest folders first."""
    for entry in skill.files.entries():
        if entry.kind == "file" and nameable(entry.path):
            yield entry.path


def _stat(file: BinaryIO, most: int) -> tuple[int, int]:
    """Return the mode of a file and its size, at most `most`."""
    try:
        info = os.fstat(file.fileno())
    except io.UnsupportedOperation:  # listed by a server, which reports no modes
        return 0, most
    return info.st_mode, min(info.st_size, most)


def _explain(skill: Skill, path: str, error: OSError) -> str:
    reason = f"cannot be read: {(error.strerror or str(error)).lower()}"
    if not isinstance(error, FileNotFoundError):
        return reason
    known = closest(path, islice(walk(skill), _MAX_COMPARED), cutoff=0.4)
    return f"{reason}; closest: {', '.join(known)}" if known else reason


# --- lists ---------------------------------------------------------------------------------------


def list_docs(skill: Skill, limits: Limits | None = None) -> list[str]:
    """Return every .md and .txt file of the skill except SKILL.md, sorted, as paths to load.

    `limits` has no effect any more.
    """
    own = os.path.basename(skill.location)
    found = (path for path in walk(skill) if path.lower().endswith(DOCUMENT_ENDINGS))
    return sorted(path for path in found if path != own and os.path.basename(path) != SKILL_FILE)


def sample_files(skill: Skill, limits: Limits | None = None) -> list[str]:
    """Return some files of the skill with their folder, hidden ones too, but no SKILL.md.

    `limits` has no effect any more.
    """
    found = (path for path in walk(skill) if SKILL_FILE not in path)
    return [f"{place_of(skill)}/{path}" for path in islice(found, MAX_SAMPLED_FILES)]


def place_of(skill: Skill) -> str:
    """Return where a model finds the skill's files: its folder, or a URI if they are remote."""
    return f"skill://{skill.name}" if skill.origin.kind == "mcp" else skill.dir


# --- reports --------------------------------------------------------------------------------------


def injection_block(skill: Skill, loaded: Loaded) -> str:
    """Return the text for a prompt, after lines that give its source and constraints.

    The fourth line is there only for a skill that declares tools or that no model may invoke.
    """
    report = loaded.report
    facts = {
        "sha256": report.sha256,
        "truncated": "true" if report.truncated else "false",
        "bytes_read": str(report.bytes_read),
        "storage_ref": report.storage_ref,
    }
    line = " ".join(f"{key}={one_line(value)}" for key, value in facts.items() if value)
    source = skill.scope if not skill.origin.remote else str(skill.origin)
    return "\n".join(
        [
            f"[Skill: {one_line(skill.name)} | source={one_line(source)}]",
            f"[Skill Path: {one_line(report.path)}]",
            f"[Load Report: {line}]",
            *_constraints(skill),
            loaded.text,
        ]
    )


def _constraints(skill: Skill) -> list[str]:
    """Return the line about the declared tools and about who may invoke the skill."""
    front = skill.frontmatter
    parts = []
    if front.allowed_tools:
        parts.append(f"allowed-tools={' '.join(map(one_line, front.allowed_tools))}")
    if front.disable_model_invocation:
        parts.append("disable-model-invocation=true")
    return [f"[Constraints: {' | '.join(parts)}]"] if parts else []


def _make_loaded(skill: Skill, path: str, data: bytes, chosen: _Chosen, ref: str = "") -> Loaded:
    text = _name_server(skill) + chosen.text
    report = Report(
        path=os.path.join(skill.dir, path),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        excerpt_sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        bytes_read=len(data),
        chars_returned=len(text),
        truncated=chosen.truncated,
        strategy=chosen.strategy,
        references=_list_references(skill, text),
        storage_ref=ref,
        section_missed=chosen.section_missed,
    )
    return Loaded(skill.name, path, text, report)


def _name_server(skill: Skill) -> str:
    """Return a note that names the MCP server of a text, so that a model can tell."""
    if skill.origin.kind != "mcp":
        return ""
    return f"(Text of the MCP server {one_line(skill.origin.url)}, as it was sent.)\n\n"


def _list_references(skill: Skill, text: str) -> tuple[str, ...]:
    """Return the files that the text refers to, each once; a plain word only if the file exists."""
    named, words = _named_files(text, MAX_REFERENCES)
    # Most texts have no such word; then the folder is not walked.
    there = set(walk(skill)) if words else ()
    return (*named, *(word for word in words if word in there))


@lru_cache(maxsize=64)
def _named_files(text: str, most: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the links and code spans of the text, and plain words that may be paths."""
    targets = (one.target for one in references(text, most=most))
    named = dict.fromkeys(one.removeprefix("./") for one in targets if nameable(one))
    words = dict.fromkeys(plain_paths(text, most=most))
    return tuple(named), tuple(word for word in words if word not in named)


def _store(storage: Storage | None, text: str) -> str:
    """Store the text and return its path; "" if that fails: a full disk must not prevent a load."""
    try:
        return storage.keep(text) if storage is not None else ""
    except OSError:
        return ""
