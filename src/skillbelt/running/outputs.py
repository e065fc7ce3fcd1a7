"""The files that a run leaves: found by patterns, read within limits, saved when that is wanted.

What lies in a workspace is hostile: nothing but regular files is opened, through no link, and no
file that changes meanwhile gets past a limit.
"""

from __future__ import annotations

import os
import re
import stat
from codecs import utf_8_decode
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from skillbelt.errors import ArtifactError, PathEscape, RunRefused
from skillbelt.files.contain import (
    MAX_PATH_PARTS,
    READ_FILE,
    READ_FOLDER,
    open_beneath,
    open_folder,
    read_handle,
)
from skillbelt.files.globs import Globs, State, alternatives
from skillbelt.files.manifest import kind_of
from skillbelt.running.cleanup import COPIES, METADATA
from skillbelt.running.workspace import OUT, PRIVATE, SKILLS, expanded, placed, plain
from skillbelt.text import one_line, shorten
from skillbelt.values import Limits

# Files that one run gives back; a call can ask for fewer.
MAX_OUTPUT_FILES = 100
# Those files together: they are held in memory.
MAX_OUTPUT_BYTES = 64 * 2**20
# The primary output goes to the model as text.
MAX_PRIMARY_BYTES = 32 * 2**10
# Files that are candidates for the primary output.
MAX_PRIMARY_FILES = 20

SCHEME = "workspace://"
HINT = f"names are relative to the workspace; give the ref ({SCHEME}...) to name a file again"
# Keeps the bytes under a name and a MIME type; the number of the version. See `artifacts`.
Save = Callable[[str, bytes, str], int]

_LIMITS = Limits()
_MAX_WARNINGS = 20
_SNIFFED = 4096
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NONE: Mapping[str, str] = MappingProxyType({})
_TEXT = frozenset(
    f"application/{kind}"
    for kind in (
        "ecmascript", "graphql", "javascript", "json", "ld+json", "sql", "toml", "x-ndjson",
        "x-httpd-php", "x-sh", "x-csh", "x-tex", "x-latex", "x-yaml", "xml", "yaml",
    )
)  # fmt: skip


class Wanted(NamedTuple):
    """Which files are wanted, and what for. A limit of 0 is the one of the settings."""

    globs: tuple[str, ...] = ()
    inline: bool = False
    save: bool = False
    name_template: str = ""
    max_files: int = 0
    max_file_bytes: int = 0
    max_total_bytes: int = 0


class OutputFile(NamedTuple):
    """One file. `content` is empty unless it is text and was wanted; `name` leads to it by `ref`.

    `size_bytes` is its size in the workspace; `truncated` says that it is beyond a limit.
    """

    name: str
    ref: str
    content: str
    mime_type: str
    size_bytes: int
    truncated: bool = False


class Saved(NamedTuple):
    """An artifact that was made of a file."""

    name: str
    version: int


class Collected(NamedTuple):
    """What was found, in order of the names. `primary` is a small text among it.

    `limits_hit` names the limits, as in `Limits`; `errors` says what was to be saved and is not.
    """

    files: tuple[OutputFile, ...] = ()
    primary: OutputFile | None = None
    saved: tuple[Saved, ...] = ()
    limits_hit: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def collect(
    workspace: str,
    wanted: Wanted,
    limits: Limits = _LIMITS,
    *,
    run: str = "",
    homes: Mapping[str, str] = _NONE,
    exit_code: int = 0,
    omit_content: bool = False,
    save: Save | None = None,
) -> Collected:
    """The wanted files of a workspace. Whatever lies there, this neither raises nor hangs.

    `run` is the folder of the run, for `$RUN_DIR`, and `homes` are the copies of skills that it
    saw as `skills/<name>`: no others are looked at. Empty files are left out after a failed
    command: they are what its redirections leave.
    """
    said = _Said()
    try:
        root = open_folder(workspace)
    except OSError as error:
        return Collected(warnings=(f"the workspace can not be read: {error.strerror}",))
    try:
        reading = _Reading(
            root=root, wanted=wanted, limits=limits, said=said, save=save, homes=homes
        )
        globs = _patterns(wanted.globs, run, said)
        reading.read(_found(root, globs, limits, said, homes), exit_code)
    finally:
        os.close(root)
    return reading.collected(omit_content)


def primary(
    workspace: str, limits: Limits = _LIMITS, *, omit_content: bool = False
) -> OutputFile | None:
    """The first small text below `out`, for a run that named no outputs."""
    wanted = Wanted((f"{OUT}/**",), max_files=MAX_PRIMARY_FILES)
    return collect(workspace, wanted, limits, omit_content=omit_content).primary


# What is asked for


def parse_outputs(given: Mapping[str, object]) -> Wanted:
    """The argument `outputs`, spelt in snake_case or as in Go; RunRefused names a wrong field."""
    if not isinstance(given, Mapping):
        raise RunRefused("outputs must be an object with globs")
    fields: dict[str, object] = {}
    for key, value in given.items():
        name = _FIELDS.get(str(key).replace("_", "").lower())
        if name is None:
            known = ", ".join(_FIELDS.values())
            raise RunRefused(f"outputs has no field {one_line(str(key))[:80]!r}; it has: {known}")
        # What is spelt as it should be wins.
        if value is not None and (name not in fields or key == name):
            fields[name] = _checked(f"outputs.{name}", _DEFAULTS[name], value)
    return Wanted(**fields)  # type: ignore[arg-type]


def parse_output_files(given: object, *, save: bool = False, prefix: str = "") -> Wanted:
    """The argument `output_files`: every file is given with its content."""
    globs = _checked("output_files", (), given)
    return Wanted(globs, inline=True, save=save, name_template=prefix)  # type: ignore[arg-type]


_DEFAULTS = Wanted()._asdict()
_FIELDS = {name.replace("_", ""): name for name in _DEFAULTS}


def _checked(field: str, default: object, value: object) -> object:
    """The value, when it is of the kind of the default."""
    if isinstance(default, tuple):
        return _checked_globs(field, value)
    if isinstance(default, bool):
        right, kind = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        right, kind = type(value) is int and value >= 0, "a whole number that is not negative"
    else:
        right, kind = isinstance(value, str), "text"
    if not right:
        raise RunRefused(f"{field} must be {kind}")
    return value


def _checked_globs(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise RunRefused(f"{field} must be a list of patterns such as 'out/*.txt'")
    globs = tuple(glob for one in value if (glob := one.strip()))
    for glob in globs:
        shown = shorten(one_line(glob), 80)
        if _URI.match(glob):
            example = "give a path in the workspace, such as out/*.txt"
            raise RunRefused(f"{field}: {shown!r} is a URI; {example}")
        try:
            alternatives(glob)
        except ValueError as error:
            raise RunRefused(f"{field}: {shown!r} is not accepted: {error}") from error
    return globs


def _patterns(globs: tuple[str, ...], run: str, said: _Said) -> dict[str, str]:
    """Each pattern relative to the workspace, with what was given; why one is not used is said."""
    found: dict[str, str] = {}
    for glob in globs:
        path = expanded(glob, run)
        if path != glob:
            path = path.lstrip("/")
        if fault := _fault(path):
            said.warn(f"{_shown(glob)!r} collects nothing: {fault}")
        else:
            found.setdefault(plain(path), glob)
    return found


def _fault(path: str) -> str:
    if _URI.match(path):
        return "it is a URI, not a path in the workspace"
    if path.startswith("/"):
        return "it is absolute; patterns are relative to the workspace"
    try:
        leads_out = any(".." in one.split("/") for one in alternatives(path))
    except ValueError as error:
        return str(error)
    return "it leads out of the workspace" if leads_out else ""


# Finding


class _Said:
    """What there is to say. Of the warnings only the first are kept: there may be a million."""

    def __init__(self) -> None:
        self.limits: dict[str, None] = {}
        self._kept: list[str] = []
        self._more = 0

    def warn(self, text: str) -> None:
        if len(self._kept) < _MAX_WARNINGS:
            self._kept.append(text)
        else:
            self._more += 1

    def all(self) -> list[str]:
        return self._kept + ([f"and {self._more} more of the kind"] if self._more else [])


def _found(
    root: int, globs: dict[str, str], limits: Limits, said: _Said, homes: Mapping[str, str]
) -> list[str]:
    """The regular files that match, sorted; what else matches is said."""
    try:
        patterns = Globs(list(globs))
    except ValueError as error:
        said.warn(f"nothing is collected: {error}")
        return []
    names, matched = [], set[int]()
    for kind, name, state in _walked(root, patterns, limits, said, homes):
        numbers = patterns.accepted(state)
        if numbers and kind != "file":
            said.warn(f"{_shown(name)!r} is left out: it is {kind}")
        elif numbers:
            matched |= numbers
            names.append(name)
    if said.limits or patterns.exhausted:
        said.warn("there is too much to look through; not all files were found")
        return sorted(names)
    for number, glob in enumerate(globs.values()):
        if number not in matched:
            said.warn(f"no file matches {_shown(glob)!r}")
    return sorted(names)


def _walked(
    root: int, patterns: Globs, limits: Limits, said: _Said, homes: Mapping[str, str]
) -> Iterator[tuple[str, str, State]]:
    """The kind and the path of what the patterns may match. Only so much is looked at."""
    pending = [("", patterns.start), *_skills(patterns, homes)]
    left = limits.max_workspace_files
    while pending:
        below, state = pending.pop()
        for entry in _entries(root, placed(below, homes), said):
            left -= 1
            if left < 0:
                said.limits["max_workspace_files"] = None
            if left < 0 or patterns.exhausted:
                return
            reached = patterns.step(state, entry.name)
            if not reached or (not below and _is_own(entry.name)):
                continue
            path = f"{below}{entry.name}"
            if _CONTROL.search(entry.name) or not _is_unicode(entry.name):
                said.warn(f"{_shown(path)!r} is left out: its name is not plain text")
            elif (kind := _kind(entry)) != "folder":
                yield kind, path, reached
            elif patterns.goes_on(reached):
                if path.count("/") < MAX_PATH_PARTS:
                    pending.append((f"{path}/", reached))
                else:
                    said.warn(f"{_shown(path)!r} is left out: it is too deep")


def _skills(patterns: Globs, homes: Mapping[str, str]) -> Iterator[tuple[str, State]]:
    """The folders of skills that a run saw, where a pattern leads there."""
    skills = patterns.step(patterns.start, SKILLS)
    for name in homes if skills else ():
        reached = patterns.step(skills, name)
        if reached and patterns.goes_on(reached):
            yield f"{SKILLS}/{name}/", reached


def _entries(root: int, below: str, said: _Said) -> Iterator[os.DirEntry[str]]:
    try:
        # With a slash at its end, a link would be followed after all.
        handle = open_beneath(root, below.rstrip("/") or ".", READ_FOLDER)
        try:
            with os.scandir(handle) as listing:
                yield from listing
        finally:
            os.close(handle)
    except (OSError, PathEscape) as error:
        said.warn(f"{_shown(below)!r} can not be read: {_reason(error)}")


def _is_own(name: str) -> bool:
    """Whether what lies there at the top is the runtime's own."""
    return name in (METADATA, PRIVATE) or name.startswith(COPIES)


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        if entry.is_file(follow_symlinks=False):
            return "file"
        return "a link" if entry.is_symlink() else "neither a file nor a folder"
    except OSError:
        return "not to be read"


# Reading


class _Read(NamedTuple):
    """A file. `data` is None when nobody needs its bytes, and never more than may be kept."""

    kind: str
    size: int
    truncated: bool
    data: bytes | None


class _Reading:
    """One collection, as far as it has come."""

    def __init__(
        self,
        root: int,
        wanted: Wanted,
        limits: Limits,
        said: _Said,
        save: Save | None,
        homes: Mapping[str, str],
    ) -> None:
        self._root, self._wanted, self._limits, self._homes = root, wanted, limits, homes
        self._said, self._save = said, save if wanted.save else None
        self._max_files = _lower(wanted.max_files, MAX_OUTPUT_FILES)
        self._max_bytes = _lower(wanted.max_file_bytes, limits.max_output_file_bytes)
        self._left = _lower(wanted.max_total_bytes, MAX_OUTPUT_BYTES)
        self._files: list[OutputFile] = []
        self._primary: OutputFile | None = None
        self._saved: list[Saved] = []
        self._errors: list[str] = []

    def read(self, names: list[str], exit_code: int) -> None:
        """Read the files in turn, until a limit is reached."""
        for at, name in enumerate(names):
            full = "max_output_files" if len(self._files) >= self._max_files else ""
            full = full or ("max_output_bytes" if self._left <= 0 else "")
            if full:
                self._said.limits[full] = None
                rest = f" and {len(names) - at - 1} more" if at + 1 < len(names) else ""
                self._said.warn(f"left out: {_shown(name)!r}{rest} ({full})")
                break
            found = self._opened(name)
            if found is not None and exit_code and not found.size:
                self._said.warn(
                    f"{_shown(name)!r} is left out: it is empty, and the command failed"
                )
            elif found is not None:
                self._take(name, found)

    def collected(self, omit_content: bool) -> Collected:
        files, best = self._files, self._primary
        if omit_content:
            best = best and best._replace(content="")
        if omit_content or not self._wanted.inline:
            files = [file._replace(content="") for file in files]
        if files and self._wanted.save and self._save is None:
            self._said.warn("the files were not saved: there is no artifact store")
        if files and not self._saved:
            self._said.warn(HINT)
        said = self._said.all()
        return Collected(
            files=tuple(files),
            primary=best,
            saved=tuple(self._saved),
            limits_hit=tuple(self._said.limits),
            warnings=tuple(said),
            errors=tuple(self._errors),
        )

    def _opened(self, name: str) -> _Read | None:
        try:
            handle = open_beneath(self._root, placed(name, self._homes), READ_FILE)
        except (OSError, PathEscape) as error:
            self._said.warn(f"{_shown(name)!r} can not be read: {_reason(error)}")
            return None
        try:
            return self._contents(name, handle)
        except OSError as error:
            self._said.warn(f"{_shown(name)!r} can not be read: {_reason(error)}")
        finally:
            os.close(handle)
        return None

    def _contents(self, name: str, handle: int) -> _Read | None:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            self._said.warn(f"{_shown(name)!r} is left out: it is not a file any more")
            return None
        most = min(self._max_bytes, self._left)
        kind = kind_of(name, os.pread(handle, _SNIFFED, 0))
        if not self._needed(kind, info.st_size):
            return _Read(kind, info.st_size, info.st_size > most, None)
        data = _bytes(handle, info.st_size, most + 1)
        if len(data) <= most:
            return _Read(kind, len(data), False, data)
        return _Read(kind, max(info.st_size, len(data)), True, data[:most])

    def _needed(self, kind: str, size: int) -> bool:
        """Whether anybody wants the bytes of such a file."""
        return self._save is not None or self._shows(kind, size)

    def _shows(self, kind: str, size: int) -> bool:
        """Whether such a file may be given with its text, as itself or as the primary one."""
        small = self._primary is None and size <= MAX_PRIMARY_BYTES
        return _is_text(kind) and (self._wanted.inline or small)

    def _take(self, name: str, found: _Read) -> None:
        if found.truncated:
            by_total = self._left < self._max_bytes
            limit = "max_output_bytes" if by_total else "max_output_file_bytes"
            self._said.limits[limit] = None
        content = _content(found) if self._shows(found.kind, found.size) else ""
        ref = f"{SCHEME}{name}"
        file = OutputFile(
            name=name,
            ref=ref,
            content=content,
            mime_type=found.kind,
            size_bytes=found.size,
            truncated=found.truncated,
        )
        self._files.append(file)
        if self._primary is None and self._is_primary(file):
            self._primary = file
        if self._save is not None:
            self._keep(self._save, name, found)
        self._left -= min(found.size, self._max_bytes)

    def _is_primary(self, file: OutputFile) -> bool:
        small = not file.truncated and file.size_bytes <= MAX_PRIMARY_BYTES
        return small and not file.content.isspace() and file.content != ""

    def _keep(self, save: Save, name: str, found: _Read) -> None:
        if found.truncated or found.data is None:
            most = f"{min(self._max_bytes, self._left):,}"
            why = f"it has {found.size:,} bytes, and only {most} may be collected"
            self._errors.append(f"{_shown(name)!r} was not saved: {why}")
            return
        kept = f"{self._wanted.name_template}{name}"
        try:
            self._saved.append(Saved(kept, save(kept, found.data, found.kind)))
        except ArtifactError as error:
            self._errors.append(f"{_shown(name)!r} was not saved: {error}")


def _bytes(handle: int, size: int, most: int) -> bytes:
    """What the file has, at most so many bytes; one read, unless its size has changed."""
    data = os.read(handle, min(size + 1, most))
    if len(data) == size:
        return data
    return data + read_handle(os.dup(handle), most - len(data))


def _lower(wanted: int, limit: int) -> int:
    return min(wanted, limit) if wanted > 0 else limit


def _content(found: _Read) -> str:
    """The text, cut between two characters; "" for what is not text."""
    if found.data is None or b"\0" in found.data:
        return ""
    try:
        return utf_8_decode(found.data, "strict", not found.truncated)[0]
    except UnicodeDecodeError:
        return ""


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in _TEXT or kind.endswith(("+json", "+xml"))


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return shorten(one_line(name), 200)


def _reason(error: OSError | PathEscape) -> str:
    return (error.strerror or "an error") if isinstance(error, OSError) else "it is a link"
