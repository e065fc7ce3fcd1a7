"""Collect the files that a run leaves: match patterns, read within limits, save on request.

The content of a workspace is hostile: only regular files are opened, never through a link, and a
file that changes meanwhile cannot exceed a limit.
"""

from __future__ import annotations

import errno
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
    create_beneath,
    open_folder,
    read_handle,
)
from skillbelt.files.globs import Globs, State, alternatives
from skillbelt.files.manifest import kind_of
from skillbelt.running.cleanup import COPIES, METADATA
from skillbelt.running.workspace import (
    OUT,
    PRIVATE,
    SKILLS,
    expanded,
    open_inside,
    placed,
    plain,
)
from skillbelt.settings import is_settings_file
from skillbelt.text import exact, one_line, shorten
from skillbelt.values import Limits

# The bounds on the files that one run returns, each and together, unless the call sets others.
MAX_OUTPUT_FILES = 100
OUTPUT_FILE_BYTES = 4 * 2**20
# Also the bound on text in one result, which is held in memory; a call cannot ask for more.
MAX_OUTPUT_BYTES = 64 * 2**20
# The primary output goes to the model as text.
MAX_PRIMARY_BYTES = 32 * 2**10
# Files that are candidates for the primary output.
MAX_PRIMARY_FILES = 20

SCHEME = "workspace://"
HINT = f"names are relative to the workspace; give the ref ({SCHEME}...) to name a file again"
# Saves bytes under a name with a MIME type and returns the version. See `artifacts`.
Save = Callable[[str, bytes, str], int]
# Writes bytes to a folder of the host under a name, and returns the path; raises OSError.
Write = Callable[[str, bytes], str]

_LIMITS = Limits()
_MAX_WARNINGS = 20
_OLDER = "older"
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
    """The files to collect, and how. A limit of 0 means the default.

    A larger one is possible up to the settings: see `MOST`.
    """

    globs: tuple[str, ...] = ()
    inline: bool = False
    save: bool = False
    name_template: str = ""
    max_files: int = 0
    max_file_bytes: int = 0
    max_total_bytes: int = 0


# The most that a call may ask for: the setting for each limit.
MOST = {
    "max_files": "max_workspace_files",
    "max_file_bytes": "max_output_file_bytes",
    "max_total_bytes": "max_workspace_bytes",
}


class OutputFile(NamedTuple):
    """One file. `content` is empty unless it is text and was asked for; later calls use its `ref`.

    `size_bytes` is its size in the workspace; `truncated` says that it exceeds a limit.
    """

    name: str
    ref: str
    content: str
    mime_type: str
    size_bytes: int
    truncated: bool = False


class Saved(NamedTuple):
    """An artifact saved from a file."""

    name: str
    version: int


class Written(NamedTuple):
    """A file that was copied to a folder of the host."""

    name: str
    path: str


class Collected(NamedTuple):
    """The collected files, sorted by name. `primary` is the first small text among them.

    `limits_hit` names fields of `Limits`; `errors` says which files could not be saved or written.
    """

    files: tuple[OutputFile, ...] = ()
    primary: OutputFile | None = None
    saved: tuple[Saved, ...] = ()
    written: tuple[Written, ...] = ()
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
    may_be_empty: bool = False,
    save: Save | None = None,
    write: Write | None = None,
    since: int = 0,
) -> Collected:
    """Return the wanted files of a workspace. Hostile content makes it neither raise nor hang.

    `run` is the folder of the run, for `$RUN_DIR`, and `homes` are the copies of skills that it saw
    as `skills/<name>`; no others are searched. After a failed command, empty files are left out:
    redirections create them. So are files that were last changed before the time `since`, in
    nanoseconds of the file system's clock. With `may_be_empty` a pattern without a match is not
    reported.
    """
    report = _Report()
    try:
        root = open_folder(workspace)
    except OSError as error:
        return Collected(warnings=(f"the workspace cannot be read: {error.strerror}",))
    try:
        reading = _Reading(
            root=root, wanted=wanted, limits=limits, report=report, homes=homes,
            save=save, write=write,
        )  # fmt: skip
        globs = _patterns(wanted.globs, run, report)
        found = _find(root, globs, limits, report=report, homes=homes, since=since)
        if not may_be_empty:
            for glob in found.unmatched:
                report.warn(f"no file matches {_shorten_name(glob)!r}")
        reading.read(found.names, exit_code)
    finally:
        os.close(root)
    return reading.result(omit_content)


def primary(
    workspace: str, limits: Limits = _LIMITS, *, omit_content: bool = False, since: int = 0
) -> OutputFile | None:
    """Return the first small text below `out`, for a run that named no outputs.

    `since` is the beginning of the run: files that earlier ones left do not count.
    """
    most = MAX_PRIMARY_BYTES
    wanted = Wanted((f"{OUT}/**",), inline=True, max_files=MAX_PRIMARY_FILES, max_file_bytes=most)
    return collect(workspace, wanted, limits, omit_content=omit_content, since=since).primary


# Arguments


def parse_outputs(given: Mapping[str, object]) -> Wanted:
    """Parse the argument `outputs`, in snake_case or CamelCase; RunRefused names a wrong field."""
    if not isinstance(given, Mapping):
        raise RunRefused("outputs must be an object with globs")
    fields: dict[str, object] = {}
    for key, value in given.items():
        name = _FIELDS.get(str(key).replace("_", "").lower())
        if name is None:
            known = ", ".join(_FIELDS.values())
            raise RunRefused(f"outputs has no field {one_line(str(key))[:80]!r}; it has: {known}")
        # The snake_case spelling wins.
        if value is not None and (name not in fields or key == name):
            fields[name] = _check(f"outputs.{name}", _DEFAULTS[name], value)
    return Wanted(**fields)  # type: ignore[arg-type]


def parse_output_files(given: object, *, save: bool = False, prefix: str = "") -> Wanted:
    """Parse the argument `output_files`: every file is returned with its content."""
    globs = _check("output_files", (), given)
    return Wanted(globs, inline=True, save=save, name_template=prefix)  # type: ignore[arg-type]


_DEFAULTS = Wanted()._asdict()
_FIELDS = {name.replace("_", ""): name for name in _DEFAULTS}


def _check(field: str, default: object, value: object) -> object:
    """Return the value if it has the type of the default; RunRefused otherwise."""
    if isinstance(default, tuple):
        return _check_globs(field, value)
    if isinstance(default, bool):
        right, kind = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        right, kind = type(value) is int and value >= 0, "a whole number that is not negative"
    else:
        right, kind = isinstance(value, str), "text"
    if not right:
        raise RunRefused(f"{field} must be {kind}")
    return value


def _check_globs(field: str, value: object) -> tuple[str, ...]:
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


def _patterns(globs: tuple[str, ...], run: str, report: _Report) -> dict[str, str]:
    """Map each pattern, relative to the workspace, to its original text; warn of unusable ones."""
    found: dict[str, str] = {}
    for glob in globs:
        path = expanded(glob, run)
        if path != glob:
            path = path.lstrip("/")
        if fault := _fault(path):
            report.warn(f"{_shorten_name(glob)!r} collects nothing: {fault}")
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


# Find


class _Report:
    """Limits hit and warnings. Only the first warnings are kept: there may be a million."""

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


class _Found(NamedTuple):
    """The matching files, sorted, and the patterns without a match."""

    names: list[str]
    unmatched: tuple[str, ...] = ()


def _find(
    root: int,
    globs: dict[str, str],
    limits: Limits,
    *,
    report: _Report,
    homes: Mapping[str, str],
    since: int,
) -> _Found:
    """Return the regular files that match; warn of other matches."""
    try:
        patterns = Globs(list(globs))
    except ValueError as error:
        report.warn(f"nothing is collected: {error}")
        return _Found([])
    names, matched = [], set[int]()
    for kind, name, state in _walk(root, patterns, limits, report=report, homes=homes, since=since):
        numbers = patterns.accepted(state)
        if kind == _OLDER:
            continue
        if numbers and kind != "file":
            report.warn(f"{_shorten_name(name)!r} is left out: it is {kind}")
        elif numbers:
            matched |= numbers
            names.append(name)
    if report.limits or patterns.exhausted:
        report.warn("there is too much to look through; not all files were found")
        return _Found(sorted(names))
    texts = tuple(glob for number, glob in enumerate(globs.values()) if number not in matched)
    return _Found(sorted(names), texts)


def _walk(
    root: int,
    patterns: Globs,
    limits: Limits,
    *,
    report: _Report,
    homes: Mapping[str, str],
    since: int,
) -> Iterator[tuple[str, str, State]]:
    """Yield the kind and the path of every candidate, up to `max_workspace_files` entries."""
    pending = [("", patterns.start), *_skills(patterns, homes)]
    left = limits.max_workspace_files
    while pending:
        below, state = pending.pop()
        for entry in _entries(root, placed(below, homes), report):
            left -= 1
            if left < 0:
                report.limits["max_workspace_files"] = None
            if left < 0 or patterns.exhausted:
                return
            reached = patterns.step(state, entry.name)
            if not reached or (not below and _is_own(entry.name)):
                continue
            path = f"{below}{entry.name}"
            if _CONTROL.search(entry.name) or not _is_unicode(entry.name):
                report.warn(f"{_shorten_name(path)!r} is left out: its name is not plain text")
            elif (kind := _kind(entry, since)) != "folder":
                yield kind, path, reached
            elif patterns.goes_on(reached):
                if path.count("/") < MAX_PATH_PARTS:
                    pending.append((f"{path}/", reached))
                else:
                    report.warn(f"{_shorten_name(path)!r} is left out: it is too deep")


def _skills(patterns: Globs, homes: Mapping[str, str]) -> Iterator[tuple[str, State]]:
    """Yield the folders of the skills that the run saw, where a pattern leads there."""
    skills = patterns.step(patterns.start, SKILLS)
    for name in homes if skills else ():
        reached = patterns.step(skills, name)
        if reached and patterns.goes_on(reached):
            yield f"{SKILLS}/{name}/", reached


def _entries(root: int, below: str, report: _Report) -> Iterator[os.DirEntry[str]]:
    try:
        # A trailing slash would follow a link.
        handle = open_inside(root, below.rstrip("/") or ".", READ_FOLDER)
        try:
            with os.scandir(handle) as listing:
                yield from listing
        finally:
            os.close(handle)
    except (OSError, PathEscape) as error:
        report.warn(f"{_shorten_name(below)!r} cannot be read: {_reason(error)}")


def _is_own(name: str) -> bool:
    """Whether a top-level entry belongs to the runtime."""
    return name in (METADATA, PRIVATE) or name.startswith(COPIES)


def _kind(entry: os.DirEntry[str], since: int) -> str:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        # Unlike the other times of a file, no program sets this one.
        if since and entry.stat(follow_symlinks=False).st_ctime_ns < since:
            return _OLDER
        if entry.is_file(follow_symlinks=False):
            return "file"
        return "a link" if entry.is_symlink() else "neither a file nor a folder"
    except OSError:
        return "unreadable"


# Read


class _Read(NamedTuple):
    """A file. `data` is None when its bytes are not needed, and never exceeds the limit."""

    kind: str
    size: int
    truncated: bool
    data: bytes | None


class _Reading:
    """The state of one collection."""

    def __init__(
        self,
        root: int,
        wanted: Wanted,
        limits: Limits,
        report: _Report,
        homes: Mapping[str, str],
        save: Save | None,
        write: Write | None,
    ) -> None:
        self._root, self._wanted, self._limits, self._homes = root, wanted, limits, homes
        self._report, self._save = report, save if wanted.save else None
        self._write = write
        self._bounds: dict[str, int] = {}
        self._max_files = self._most("max_files", MAX_OUTPUT_FILES)
        self._max_bytes = self._most("max_file_bytes", OUTPUT_FILE_BYTES)
        self._left = self._most("max_total_bytes", MAX_OUTPUT_BYTES)
        self._text_left = MAX_OUTPUT_BYTES
        self._files: list[OutputFile] = []
        self._primary: OutputFile | None = None
        self._saved: list[Saved] = []
        self._written: list[Written] = []
        self._errors: list[str] = []

    def _most(self, field: str, usual: int) -> int:
        """Return a limit of the call, or the default; warn if the settings allow less."""
        asked: int = getattr(self._wanted, field)
        most: int = getattr(self._limits, MOST[field])
        if asked > most:
            self._report.warn(
                f"{field} was lowered from {asked:,} to {most:,}, the maximum: {MOST[field]} of "
                "the settings"
            )
        self._bounds[field] = min(asked or usual, most)
        return self._bounds[field]

    def read(self, names: list[str], exit_code: int) -> None:
        """Read the files in order until a limit is reached."""
        for at, name in enumerate(names):
            full = "max_output_files" if len(self._files) >= self._max_files else ""
            full = full or ("max_output_bytes" if self._left <= 0 else "")
            if full:
                self._report.limits[full] = None
                rest = f" and {len(names) - at - 1} more" if at + 1 < len(names) else ""
                self._report.warn(f"left out: {_shorten_name(name)!r}{rest} ({full})")
                break
            found = self._open(name)
            if found is not None and exit_code and not found.size:
                self._report.warn(
                    f"{_shorten_name(name)!r} is left out: it is empty, and the command failed"
                )
            elif found is not None:
                self._add(name, found)

    def result(self, omit_content: bool) -> Collected:
        files, best = self._files, self._primary
        if omit_content:
            best = best and best._replace(content="")
        if omit_content or not self._wanted.inline:
            files = [file._replace(content="") for file in files]
        if files and self._wanted.save and self._save is None:
            self._report.warn("the files were not saved: there is no artifact store")
        if files and not self._saved:
            self._report.warn(HINT)
        report = self._report.all()
        return Collected(
            files=tuple(files),
            primary=best,
            saved=tuple(self._saved),
            written=tuple(self._written),
            limits_hit=tuple(self._report.limits),
            warnings=tuple(report),
            errors=tuple(self._errors),
        )

    def _open(self, name: str) -> _Read | None:
        try:
            handle = open_inside(self._root, placed(name, self._homes), READ_FILE)
        except (OSError, PathEscape) as error:
            self._report.warn(f"{_shorten_name(name)!r} cannot be read: {_reason(error)}")
            return None
        try:
            return self._read_file(name, handle)
        except OSError as error:
            self._report.warn(f"{_shorten_name(name)!r} cannot be read: {_reason(error)}")
        finally:
            os.close(handle)
        return None

    def _read_file(self, name: str, handle: int) -> _Read | None:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            self._report.warn(f"{_shorten_name(name)!r} is left out: it is not a file any more")
            return None
        most = min(self._max_bytes, self._left)
        kind = kind_of(name, os.pread(handle, _SNIFFED, 0))
        if not self._needs_bytes(kind, info.st_size):
            return _Read(kind, info.st_size, info.st_size > most, None)
        data = _bytes(handle, info.st_size, most + 1)
        if len(data) <= most:
            return _Read(kind, len(data), False, data)
        return _Read(kind, max(info.st_size, len(data)), True, data[:most])

    def _needs_bytes(self, kind: str, size: int) -> bool:
        """Whether the bytes of such a file are needed."""
        kept = self._save is not None or self._write is not None
        return kept or self._shows(kind, size)

    def _shows(self, kind: str, size: int) -> bool:
        """Whether the text of such a file may be in the result."""
        fits = min(size, self._max_bytes) <= self._text_left
        return self._wanted.inline and fits and _is_text(kind)

    def _add(self, name: str, found: _Read) -> None:
        if found.truncated:
            by_total = self._left < self._max_bytes
            limit = "max_output_bytes" if by_total else "max_output_file_bytes"
            self._report.limits[limit] = None
        content = ""
        if self._shows(found.kind, found.size):
            content = _content(found)
            self._text_left -= min(found.size, self._max_bytes)
        elif self._wanted.inline and _is_text(found.kind):
            self._report.limits["max_output_bytes"] = None
            most = f"{MAX_OUTPUT_BYTES:,} bytes of text in one result"
            self._report.warn(f"the text of {_shorten_name(name)!r} is left out: more than {most}")
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
            self._save_file(self._save, name, found)
        if self._write is not None:
            self._write_file(self._write, name, found)
        self._left -= min(found.size, self._max_bytes)

    def _remedy(self, field: str) -> str:
        setting = MOST[field]
        most: int = getattr(self._limits, setting)
        if self._bounds[field] < most:
            return f"; ask for more with outputs.{field}, up to {most:,}"
        return f"; {setting} of the settings is the maximum"

    def _is_primary(self, file: OutputFile) -> bool:
        small = not file.truncated and file.size_bytes <= MAX_PRIMARY_BYTES
        return small and not file.content.isspace() and file.content != ""

    def _too_large(self, found: _Read) -> str:
        field = "max_total_bytes" if self._left < self._max_bytes else "max_file_bytes"
        most = f"{min(self._max_bytes, self._left):,}"
        why = f"it has {found.size:,} bytes, and only {most} may be collected"
        return why + self._remedy(field)

    def _write_file(self, write: Write, name: str, found: _Read) -> None:
        why = ""
        if found.truncated or found.data is None:
            why = self._too_large(found)
        else:
            try:
                self._written.append(Written(name, write(name, found.data)))
            except OSError as error:
                why = error.strerror or str(error)
        if why:
            self._errors.append(f"{_shorten_name(name)!r} was not written: {why}")

    def _save_file(self, save: Save, name: str, found: _Read) -> None:
        if found.truncated or found.data is None:
            self._errors.append(f"{_shorten_name(name)!r} was not saved: {self._too_large(found)}")
            return
        kept = f"{self._wanted.name_template}{name}"
        try:
            self._saved.append(Saved(kept, save(kept, found.data, found.kind)))
        except ArtifactError as error:
            self._errors.append(f"{_shorten_name(name)!r} was not saved: {error}")


def _bytes(handle: int, size: int, most: int) -> bytes:
    """Read at most `most` bytes; one system call unless the size has changed."""
    data = os.read(handle, min(size + 1, most))
    if len(data) == size:
        return data
    return data + read_handle(os.dup(handle), most - len(data))


def _content(found: _Read) -> str:
    """Return the text, cut between characters; "" for binary data."""
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


def _shorten_name(name: str) -> str:
    return shorten(one_line(name), 200)


def _reason(error: OSError | PathEscape) -> str:
    return (error.strerror or "an error") if isinstance(error, OSError) else "it is a link"


# A folder of the host for the output files


def check_folder(path: str) -> None:
    """Raise RunRefused for a path that cannot be written to; a missing folder is fine."""
    if not path:
        return
    if "\0" in path or not os.path.isabs(path):
        raise RunRefused(f"output_dir: {one_line(path)[:200]!r} is not an absolute path")
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise RunRefused(f"output_dir: {one_line(there)[:200]!r} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunRefused(f"output_dir: {one_line(there)[:200]!r} cannot be written")


class OutputFolder:
    """Writes files below one folder of the host, which is created for the first of them.

    The names come from the run, so they are hostile: no existing file is replaced, no link is
    followed, and no hidden file is created, nor one with settings. Tools of the user act on hidden
    files unasked, and so do we on settings: in a trusted project they hold rules.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, name: str, data: bytes) -> str:
        """Write a new file and return its path; `out/` at the start of the name is left out."""
        relative = name.removeprefix(f"{OUT}/")
        if any(part.startswith(".") for part in relative.split("/")):
            raise OSError(errno.EPERM, "its name begins with a dot")
        if exact(relative) != relative:  # hidden characters can make it look like another file
            raise OSError(errno.EPERM, "its name has characters that cannot be seen")
        if is_settings_file(relative, data):
            raise OSError(errno.EPERM, "it would be read as settings and rules of a project")
        os.makedirs(self._path, exist_ok=True)
        top = open_folder(self._path)
        try:
            handle = create_beneath(top, relative)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
            except OSError:  # mostly a full disk: no partial file is left
                os.unlink(relative, dir_fd=top)
                raise
        except FileExistsError as error:
            raise OSError(error.errno, "there is such a file already") from error
        except PathEscape as error:
            raise OSError(errno.ELOOP, "a link is in the way, or its name is unsafe") from error
        finally:
            os.close(top)
        return os.path.join(self._path, relative)
