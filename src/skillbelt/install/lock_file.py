"""The lock files: `skills-lock.json` of a project and `.skill-lock.json` of a user.

Both are those of `skills` 1.7.4, byte for byte, so that either tool can continue with the files
of the other. What this product adds is inside the entries, where the other tool keeps it; it drops
these keys from an entry that it writes anew, which is how that is noticed.

A file that is not a lock is an error and is never written to.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from skillbelt.errors import ConfigError, PathEscape
from skillbelt.files.contain import check_relative, open_file, read_handle
from skillbelt.files.locks import held
from skillbelt.files.private import create_file, make_folder, replace_file
from skillbelt.install.names import folder_name, name_fault
from skillbelt.install.values import NO_VALUES, InstallPlace, InstallScope, LockEntry
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings, upward
from skillbelt.text import Lazy, one_line
from skillbelt.untrusted_json import BadJson, read_json
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    import datetime
else:  # cost: 1 ms, only for a user's lock
    datetime = Late("datetime")

PROJECT_LOCK = "skills-lock.json"
SKILLS_FOLDER = ".agents/skills"
MAX_LOCK_BYTES = 4 * 2**20
MAX_LOCK_ENTRIES = 5_000
_MAX_TEXT = 4_096
_VERSIONS: dict[InstallScope, int] = {"project": 1, "user": 3}
_WAIT_SECONDS = 30.0
_MERGE = Lazy(rb"^(?:<{7}|={7}|>{7}|\|{7})(?: .*)?\r?$", re.MULTILINE)
_CLIENT = Lazy(r"[^\W_][\w.-]{0,127}\Z")
_HEX = Lazy(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_SHA256 = Lazy(r"[0-9a-f]{64}\Z")
_DIGEST = Lazy(r"sha256:[0-9a-f]{64}\Z")
_LONE = Lazy("[\ud800-\udfff]")
_written: list[SkillLock] = []  # what this process wrote last
# Field of LockEntry, key in the file; in the order in which `skills` writes them, then ours.
_KEYS: dict[InstallScope, tuple[tuple[str, str], ...]] = {
    "project": (
        ("source", "source"),
        ("source_url", "sourceUrl"),
        ("ref", "ref"),
        ("source_type", "sourceType"),
        ("skill_path", "skillPath"),
        ("computed_hash", "computedHash"),
        ("well_known_digest", "wellKnownDigest"),
    ),
    "user": (
        ("source", "source"),
        ("source_type", "sourceType"),
        ("source_url", "sourceUrl"),
        ("ref", "ref"),
        ("skill_path", "skillPath"),
        ("folder_hash", "skillFolderHash"),
        ("plugin_name", "pluginName"),
        ("well_known_digest", "wellKnownDigest"),
        ("installed_at", "installedAt"),
        ("updated_at", "updatedAt"),
    ),
}
OUR_KEYS = (
    ("commit", "commit"),
    ("tree_sha", "treeSha"),
    ("content_digest", "contentDigest"),
    ("clients", "clients"),
    ("packages", "packages"),
    ("scan", "scan"),
    ("provenance", "provenance"),
    ("unsigned", "unsigned"),
)
_SHAPES = {
    "commit": _HEX,
    "tree_sha": _HEX,
    "content_digest": _DIGEST,
    "computed_hash": _SHA256,
}
# Written even when it is empty: `skills` does.
_ALWAYS = frozenset(("source", "source_type", "folder_hash"))


class RefusedEntry(NamedTuple):
    """An entry that stays in the file but is never used, and why."""

    name: str
    message: str


class SkillLock(NamedTuple):
    """A lock file as it was read. `data` are its bytes, None without a file.

    `texts` are the texts of entries that this process has encoded before.
    """

    place: InstallPlace
    entries: Mapping[str, LockEntry]
    refused: tuple[RefusedEntry, ...] = ()
    document: Mapping[str, Any] = NO_VALUES
    data: bytes | None = None
    texts: Mapping[str, str] = MappingProxyType({})

    def find(self, name: str) -> LockEntry | None:
        """Return the entry of a skill by its name, or by that of its folder."""
        found = self.entries.get(name)
        if found is None and folder_name(name) == name:
            same = (one for one in self.entries.values() if folder_name(one.name) == name)
            found = next(same, None)
        return found

    @property
    def ours(self) -> bool:
        """Whether any entry has what this product adds."""
        return any(entry.content_digest for entry in self.entries.values())


def find_place(settings: Settings, scope: InstallScope) -> InstallPlace:
    """Return where skills are installed: the nearest lock above, or the worktree, or the home."""
    if scope == "user":
        return InstallPlace(
            scope="user",
            base=settings.home,
            skills=os.path.join(settings.home, SKILLS_FOLDER),
            lock=settings.skills_lock,
        )
    folders = upward(settings.project, settings.worktree)
    found = (one for one in folders if os.path.lexists(os.path.join(one, PROJECT_LOCK)))
    base = next(found, "") or settings.worktree or settings.project
    return InstallPlace(
        scope="project",
        base=base,
        skills=os.path.join(base, SKILLS_FOLDER),
        lock=os.path.join(base, PROJECT_LOCK),
    )


def read_lock(place: InstallPlace) -> SkillLock:
    """Read a lock; a missing one has no entries.

    ConfigError, with the line and what to do, for a file that is not a lock.
    """
    data = _read(place.lock)
    if data is None:
        return SkillLock(place=place, entries={})
    for lock in _written:
        if (lock.place, lock.data) == (place, data):
            return lock
    return _decode(place, data)


@lru_cache(maxsize=1)  # one command reads the same file several times for each skill
def _decode(place: InstallPlace, data: bytes) -> SkillLock:
    return _lock_of(place, _parse(place, data), data)


def _lock_of(
    place: InstallPlace,
    document: dict[str, Any],
    data: bytes,
    known: Mapping[str, LockEntry] = MappingProxyType({}),
) -> SkillLock:
    """Return the lock of a document; `known` are entries of it that were read before."""
    entries: dict[str, LockEntry] = {}
    refused = []
    folders: dict[str, str] = {}
    for name, written in document["skills"].items():
        try:
            entry = known.get(name) or _read_entry(name, written, place)
            other = folders.setdefault(folder_name(name), name)
            if other != name:
                raise ValueError(f"has the same folder as {other!r}")
        except ValueError as error:
            refused.append(RefusedEntry(name, str(error)))
        else:
            entries[name] = entry
    return SkillLock(place, entries, tuple(refused), document)._replace(data=data)


def _read(path: str) -> bytes | None:
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise _make_fault(path, 0, "is a link", "put the file itself there")
        data = read_handle(open_file(path), MAX_LOCK_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _make_fault(
            path, 0, f"cannot be read: {error.strerror or error}", "see its mode"
        ) from error
    if len(data) > MAX_LOCK_BYTES:
        raise _make_fault(
            path, 0, f"is longer than {MAX_LOCK_BYTES:,} bytes", "restore it from git"
        )
    return data


def _parse(place: InstallPlace, data: bytes) -> dict[str, Any]:
    path = place.lock
    marker = _MERGE.search(data)
    if marker:
        line = data.count(b"\n", 0, marker.start()) + 1
        remedy = f"resolve it, then {place.command('sync --check')}"
        raise _make_fault(path, line, "has merge conflicts", remedy)
    try:
        document = read_json(data, unique=True)
    except BadJson as error:
        raise _make_fault(
            path, *_locate_error(data, error), "restore it from git or correct it"
        ) from error
    if not isinstance(document, dict) or not isinstance(document.get("skills"), dict):
        raise _make_fault(path, 1, "has no object `skills`", "restore it from git, or move it away")
    version, wanted = document.get("version"), _VERSIONS[place.scope]
    if type(version) is not int or version != wanted:
        shown = shown_value(version)
        raise _make_fault(
            path,
            _line_of(data, b'"version"'),
            f"has version {shown}, and this skillbelt knows {wanted}",
            "use the tool that wrote it, or a newer skillbelt",
        )
    if len(document["skills"]) > MAX_LOCK_ENTRIES:
        raise _make_fault(
            path, 0, f"has more than {MAX_LOCK_ENTRIES:,} skills", "split the project"
        )
    return document


def shown_value(value: object) -> str:
    """Return a value of an untrusted document for a message: one short line."""
    return one_line(repr(value))[:80]


def _locate_error(data: bytes, error: BadJson) -> tuple[int, str]:
    """Return the line of a parse error, 0 if unknown, and the message without it."""
    if error.key:
        key = json.dumps(error.key, ensure_ascii=False).encode("utf-8", "replace")
        second = data.find(key, data.find(key) + 1)
        return (data.count(b"\n", 0, second) + 1 if second >= 0 else 0), str(error)
    found = re.search(r": line (\d+) column", str(error))
    reason = re.sub(r": line \d+ column.*", "", str(error))
    return (int(found[1]) if found else 0), f"is not JSON: {reason}"


def _line_of(data: bytes, text: bytes) -> int:
    return data.count(b"\n", 0, max(data.find(text), 0)) + 1


def _make_fault(path: str, line: int, reason: str, remedy: str) -> ConfigError:
    where = f"{path}:{line}" if line else path
    error = ConfigError(f"{where}: the lock {reason}; {remedy}. Nothing was written.")
    error.remedy = remedy
    return error


def _read_entry(name: str, written: object, place: InstallPlace) -> LockEntry:
    """Return an entry; ValueError, with the reason, for an entry that no command may use."""
    if fault := name_fault(name):
        raise ValueError(f"is not the name of a skill: it {fault}")
    if not isinstance(written, dict):
        raise ValueError("is not an object")
    values: dict[str, Any] = {}
    for field, key in (*_KEYS[place.scope], *OUR_KEYS):
        if key in written:
            values[field] = _read_value(field, key, written[key])
    if not values.get("source") or not values.get("source_type"):
        raise ValueError("has no `source` or no `sourceType`")
    if values.get("skill_path"):
        _check_skill_path(values["skill_path"])
    return LockEntry(name=name, written=written, **values)


def _read_value(field: str, key: str, value: object) -> Any:
    if field == "unsigned":
        if not isinstance(value, bool):
            raise ValueError(f"`{key}` is not true or false")
    elif field in ("packages", "scan", "provenance"):
        if not isinstance(value, dict):
            raise ValueError(f"`{key}` is not an object")
    elif field == "clients":
        if not isinstance(value, list) or not all(
            isinstance(one, str) and _CLIENT.match(one) for one in value
        ):
            raise ValueError(f"`{key}` is not a list of names")
        return tuple(value)
    elif not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
        raise ValueError(f"`{key}` is not a text of one line")
    elif field in _SHAPES and value and not _SHAPES[field].match(value):
        raise ValueError(f"`{key}` is not a hash")
    return value


def _check_skill_path(path: str) -> None:
    try:
        check_relative(path)
    except PathEscape as error:
        raise ValueError(f"`skillPath` {error.reason}") from error
    if path.rpartition("/")[2] != SKILL_FILE:
        raise ValueError(f"`skillPath` does not end in {SKILL_FILE}")


class LockChanges:
    """The pending changes of a lock; nothing is written before the end of `change_lock`."""

    def __init__(self, lock: SkillLock) -> None:
        self.lock = lock
        self._put: dict[str, LockEntry | None] = {}

    def __bool__(self) -> bool:
        return bool(self._put)

    def put(self, entry: LockEntry) -> None:
        """Write the entry; keys of it that this version does not know stay."""
        self._put[entry.name] = entry

    def remove(self, name: str) -> None:
        """Remove an entry, also one that is refused."""
        self._put[name] = None

    def changed(self) -> SkillLock:
        """Return the changed lock, with the bytes of its file.

        What did not change is neither encoded nor read again, so that many changes of a long lock,
        one after the other, take no more for each of them.
        """
        lock, place = self.lock, self.lock.place
        document = dict(lock.document) or _make_empty(place.scope)
        skills, texts = dict(document["skills"]), dict(lock.texts)
        try:
            for name, entry in self._put.items():
                texts.pop(name, None)
                if entry is None:
                    skills.pop(name, None)
                else:
                    texts[name] = _dump(_encode_entry(entry, place))
                    skills[name] = read_json(texts[name])
            texts |= {name: _dump(skills[name]) for name in skills.keys() - texts.keys()}
            document["skills"] = sort_as_javascript(skills) if place.scope == "project" else skills
            data = _file_data(document, texts, place.scope)
        except (RecursionError, BadJson) as error:
            raise _make_fault(
                place.lock, 0, "is nested too deeply", "restore it from git"
            ) from error
        known = {name: entry for name, entry in lock.entries.items() if name not in self._put}
        return _lock_of(place, document, data, known)._replace(texts=texts)


def write_lock(changes: LockChanges) -> None:
    """Write the changed lock; the caller holds `locked_place`. The file is untouched if equal."""
    lock, path = changes.lock, changes.lock.place.lock
    changed = changes.changed()
    if lock.data == changed.data or (lock.data is None and not changes):
        return
    if _read(path) != lock.data:
        raise _make_fault(
            path, 0, "was changed by another program meanwhile", "run the command again"
        )
    parent = os.path.dirname(path)
    mode = 0o644
    if lock.data is not None:
        mode = stat.S_IMODE(os.stat(path).st_mode) & 0o666
    elif not os.path.isdir(parent):
        os.makedirs(parent, exist_ok=True)
    replace_file(path, changed.data or b"", mode=mode)
    if len(changed.document["skills"]) <= MAX_LOCK_ENTRIES:  # a longer one is an error to read
        _written[:] = [changed]


class NotWritable(ConfigError):
    """A state or cache folder that cannot be written."""

    def __init__(self, folder: str, error: OSError, variable: str) -> None:
        super().__init__(
            f"{error.filename or folder} cannot be written: {error.strerror or error}; set "
            f"{variable} to a folder that can"
        )


@contextmanager
def locked_place(place: InstallPlace, settings: Settings) -> Iterator[None]:
    """Lock the place against other processes of this product."""
    folder = os.path.join(settings.state_dir, "install")
    try:
        make_folder(folder)
        create_file(os.path.join(folder, f"{place_id(place)}.lock"))
    except OSError as error:
        raise NotWritable(folder, error, "XDG_STATE_HOME") from error
    name = place_id(place)
    busy = ConfigError(
        f"another skillbelt has been changing {place.lock} for {_WAIT_SECONDS:.0f} seconds; "
        "wait for it, then try again"
    )
    with held(os.path.join(folder, f"{name}.lock"), _WAIT_SECONDS, busy):
        yield


def journal_path(place: InstallPlace, settings: Settings) -> str:
    """Return the path of the place's journal, from which an interrupted change is finished."""
    return os.path.join(settings.state_dir, "install", f"{place_id(place)}.journal")


def pinned_names(place: InstallPlace, settings: Settings) -> frozenset[str]:
    """Return the skills whose entries this product wrote on this machine.

    One of them without our keys was written anew by another tool.
    """
    try:
        names = read_json(read_handle(open_file(_names_path(place, settings)), MAX_LOCK_BYTES))
    except (OSError, BadJson):
        return frozenset()
    return frozenset(names) if isinstance(names, list) else frozenset()


def remember_pinned(place: InstallPlace, settings: Settings, name: str) -> None:
    """Remember that this product wrote an entry; the caller holds `locked_place`."""
    names = pinned_names(place, settings)
    if name not in names:
        replace_file(_names_path(place, settings), json.dumps(sorted({*names, name})).encode())


def _names_path(place: InstallPlace, settings: Settings) -> str:
    return os.path.join(settings.state_dir, "install", f"{place_id(place)}.names")


def place_id(place: InstallPlace) -> str:
    """Return a hex id of the place, for file names."""
    return hashlib.sha256(os.fsencode(os.path.realpath(place.lock))).hexdigest()[:32]


def _make_empty(scope: InstallScope) -> dict[str, Any]:
    made: dict[str, Any] = {"version": _VERSIONS[scope], "skills": {}}
    return made | ({"dismissed": {}} if scope == "user" else {})


def _encode_entry(entry: LockEntry, place: InstallPlace) -> dict[str, Any]:
    """Return the entry as the file has it: known keys in their order, then all others."""
    known = (*_KEYS[place.scope], *OUR_KEYS)
    made: dict[str, Any] = {}
    for field, key in known:
        value = getattr(entry, field)
        if field in ("installed_at", "updated_at") and not value:
            value = _format_now()
        if value or (field in _ALWAYS and any(key == one for _, one in _KEYS[place.scope])):
            made[key] = _to_json(value)
    names = {key for _, key in known}
    made |= {key: value for key, value in entry.written.items() if key not in names}
    if made.keys() == entry.written.keys():  # then in the order of the file
        return {key: made[key] for key in entry.written}
    return made


def _to_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _format_now() -> str:
    return (
        datetime.datetime.now(datetime.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def sort_as_javascript(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sort keys as an object of JavaScript has them: whole numbers first, then by UTF-16."""
    numbers = [key for key in values if _is_index(key)]
    texts = sorted(values.keys() - set(numbers))
    if not all(map(str.isascii, texts)):
        texts.sort(key=lambda key: key.encode("utf-16-be", "replace"))
    return {key: values[key] for key in (*sorted(numbers, key=int), *texts)}


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and str(int(key[:11])) == key and int(key) < 2**32 - 1


def _dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _file_data(document: Mapping[str, Any], texts: Mapping[str, str], scope: InstallScope) -> bytes:
    """Return a lock as `_dump` has it, with the given texts for its entries."""
    parts = []
    for key, value in document.items():
        text = _dump_object(value, texts) if key == "skills" else _dump(value)
        parts.append((key, text))
    text = _dump_object([key for key, _ in parts], dict(parts))
    text += "\n" if scope == "project" else ""
    if not text.isascii():
        text = _LONE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.encode()


def _dump_object(keys: Iterable[str], texts: Mapping[str, str]) -> str:
    """Return the text of an object whose values are encoded already."""
    # No string holds a line feed as such: JSON escapes them.
    lines = [f"{_dump(key)}: {texts[key]}".replace("\n", "\n  ") for key in keys]
    return "{\n  " + ",\n  ".join(lines) + "\n}" if lines else "{}"
