"""The user's trust: project folders, and origins of skills.

Kept in one small file in the state folder. Trust is bound to the folder itself: another folder at
the same path is not trusted. If the file cannot be read, or another user could have written it,
nothing is trusted.

Trusted origins may also be shared by all machines of a team. Folders are not: a path says nothing
about its content on another machine, and no machine can check who may write to it there.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, Protocol

from skillbelt.errors import ConfigError
from skillbelt.files.contain import FOLLOW_FILE
from skillbelt.files.locks import locked
from skillbelt.files.owners import folder_identity, stranger
from skillbelt.files.private import make_folder, replace_file
from skillbelt.records import NamedTuple
from skillbelt.text import file_url, percent_decode, shell_line
from skillbelt.untrusted_json import read_json
from skillbelt.values import Diagnostic, Origin

FILE = "trust.json"
_FORMAT = 1
_MAX_BYTES = 4 * 2**20
_MAX_URL_CHARS = 4_096
_PORTS = {"http": "80", "https": "443"}
_KINDS = ("archive:", "index:", "well-known:", "url:", "mcp:")
_REMEDY = "fix it or move it away, and add again what you trust with `skillbelt trust add`"


class TrustEntry(NamedTuple):
    """A trusted folder or origin, and since when (Unix seconds).

    `identity` identifies the folder. A folder without one was trusted by its path alone, which is
    no longer enough. `place` is where an entry is kept that counts on every machine, and `by` is
    the user who added it; both are "" for this machine's own.
    """

    kind: Literal["project", "origin"]
    value: str
    time: float
    identity: str = ""
    place: str = ""
    by: str = ""


class SharedOrigins(Protocol):
    """Trusted origins that several machines share. ConfigError when they cannot be used."""

    place: str

    def entries(self) -> list[TrustEntry]:
        """Return the origins in the order they were added."""

    def add(self, entry: TrustEntry) -> None:
        """Trust the origin of the entry; an existing entry is kept."""

    def remove(self, url: str) -> None:
        """Stop trusting an origin."""


# Called with a change before it is made; when it raises, nothing changes.
Record = Callable[[TrustEntry], None]


class Trust:
    """The trusted folders and origins.

    Each query rereads the file if it changed, and asks `shared`. While the shared origins cannot be
    read, none of them is trusted.
    """

    def __init__(self, state_dir: str, shared: SharedOrigins | None = None) -> None:
        self.path = os.path.join(os.path.abspath(state_dir), FILE)
        self._shared = shared
        self._away = ""
        self._stamp: tuple[int, ...] | None = None
        self._entries: list[TrustEntry] = []
        self._trouble = ""

    def entries(self) -> list[TrustEntry]:
        """Return everything that is trusted, in the order it was added; [] if it cannot be read."""
        self._reload()
        return [*self._entries, *self._shared_entries()]

    def project(self, folder: str) -> bool:
        """Whether the folder, with all links resolved, is trusted or lies below a trusted one.

        A different folder at the path of a trusted one is not trusted.
        """
        return self._find_covering("project", os.path.realpath(folder)) is not None

    def origin(self, origin: Origin) -> bool:
        """Whether the origin is a trusted one or lies below one, on the same host and port."""
        return self._find_covering("origin", normal_url(origin.url)) is not None

    def covering(self, value: str) -> TrustEntry | None:
        """Return the entry that makes this path or URL trusted: its own, or that of a parent."""
        if "://" in value:
            return self._find_covering("origin", normal_url(_url(value)))
        return self._find_covering("project", os.path.realpath(value))

    def add(self, value: str, record: Record | None = None) -> TrustEntry:
        """Trust a folder, or an origin by its URL; an existing entry is kept as it is.

        An origin is trusted on every machine where origins are shared, unless it is a file of this
        one. ConfigError when there is no such folder, when the URL is not plain, or when the file
        is damaged.
        """
        kind, plain = _target(value)
        if self._shared is not None and kind == "origin" and not plain.startswith("file:"):
            return self._add_shared(self._shared, plain, record)
        with self._locked_entries() as entries:
            for entry in entries:
                if (entry.kind, entry.value) == (kind, plain) and _is_there(entry):
                    return entry
            identity = folder_identity(plain) if kind == "project" else ""
            added = TrustEntry(kind, plain, time.time(), identity)
            if record is not None:
                record(added)
            others = [one for one in entries if (one.kind, one.value) != (kind, plain)]
            self._write([*others, added])
        return added

    def remove(self, value: str, record: Record | None = None) -> TrustEntry | None:
        """Stop trusting a folder or an origin; return the entry it had, if any.

        An origin that is trusted here and on every machine is trusted nowhere afterwards.
        """
        spellings = _spellings(value)
        with self._locked_entries() as entries:
            gone = next((entry for entry in entries if entry[:2] in spellings), None)
            if gone is not None:
                if record is not None:
                    record(gone)
                self._write([entry for entry in entries if entry != gone])
        if self._shared is not None:
            for entry in self._shared.entries():
                if entry[:2] in spellings:
                    if record is not None:
                        record(entry)
                    self._shared.remove(entry.value)
                    gone = entry
        return gone

    def _add_shared(self, shared: SharedOrigins, url: str, record: Record | None) -> TrustEntry:
        for entry in shared.entries():
            if entry.value == url:
                return entry
        who = f"{_user_name()}@{os.uname().nodename}"
        added = TrustEntry(kind="origin", value=url, time=time.time(), place=shared.place, by=who)
        if record is not None:
            record(added)
        shared.add(added)
        return added

    def _shared_entries(self) -> list[TrustEntry]:
        """Return the shared origins; [] if they cannot be read, and why in the diagnostics."""
        self._away = ""
        if self._shared is None:
            return []
        try:
            return self._shared.entries()
        except ConfigError as error:
            self._away = str(error)
            return []

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return why nothing is trusted although a file exists, or why no shared origin is."""
        self._reload()
        self._shared_entries()
        found = []
        if self._trouble:
            message = f"{self._trouble}; nothing is trusted"
            found.append(_unusable(self.path, message, _REMEDY))
        if self._away and self._shared is not None:
            message = f"{self._away}; no origin that is trusted there is trusted now"
            found.append(_unusable(self._shared.place, message, "bring the server back"))
        return tuple(found)

    def exchanged(self, folder: str | None = None) -> tuple[Diagnostic, ...]:
        """Return entries that are not trusted because another folder is at their path now.

        Given a folder, return only those that would cover it.
        """
        self._reload()
        above = None if folder is None else set(_upward("project", os.path.realpath(folder)))
        return tuple(
            _diagnose_exchange(entry, self.path)
            for entry in self._entries
            if (above is None or entry.value in above) and _is_exchanged(entry)
        )

    def _find_covering(self, kind: str, value: str) -> TrustEntry | None:
        self._reload()
        entries = self._entries
        if kind == "origin" and value:
            entries = [*self._shared_entries(), *entries]
        if value and entries:
            known = {entry.value: entry for entry in entries if entry.kind == kind}
            above = (known[one] for one in _upward(kind, value) if one in known)
            return next(filter(_is_there, above), None)
        return None

    def _reload(self) -> None:
        """Read the file if it changed since the last time."""
        try:
            handle = os.open(self.path, FOLLOW_FILE)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            self._forget("" if missing else f"cannot be read: {error.strerror}")
            return
        try:
            info = os.fstat(handle)
            stamp = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            if stamp != self._stamp:
                self._forget(_unsafe(info))
                if not self._trouble:
                    self._entries = _parse(_read(handle))
                self._stamp = stamp
        except (OSError, ValueError) as error:
            self._forget(f"is damaged: {error}")
        finally:
            os.close(handle)

    def _forget(self, trouble: str) -> None:
        self._stamp, self._entries, self._trouble = None, [], trouble

    @contextmanager
    def _locked_entries(self) -> Iterator[list[TrustEntry]]:
        """Yield the entries while a lock keeps other processes from changing them."""
        try:
            make_folder(os.path.dirname(self.path))
            with locked(f"{self.path}.lock"):
                self._reload()
                entries = list(self._entries)
                if self._trouble:
                    raise ConfigError(f"{self.path}: {self._trouble}; {_REMEDY}")
                yield entries
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be written: {error.strerror or error}; "
                "make its folder writable, or set state_dir to another"
            ) from error

    def _write(self, entries: list[TrustEntry]) -> None:
        """Replace the file by a new one."""
        kept = ("kind", "value", "time", "identity")
        listed = [{name: getattr(entry, name) for name in kept} for entry in entries]
        document = {"version": _FORMAT, "trusted": listed}
        text = json.dumps(document, indent=2)
        replace_file(self.path, f"{text}\n".encode("ascii"))


class Neighbours:
    """Decides which folders and files of other users may be used like the user's own."""

    def __init__(self, state_dir: Callable[[], str], env: Mapping[str, str]) -> None:
        self._state_dir, self._env = state_dir, env
        self.found: dict[str, str] = {}

    def is_own(self, folder: str) -> bool:
        """Whether the folder and its repository belong to the user, or are trusted."""
        git = os.path.join(folder, ".git")
        owner = stranger(folder, self._env) or stranger(git, self._env)
        if owner and not self._trusts(folder):
            self.found[folder] = owner
        return folder not in self.found

    def without_theirs(self, paths: Iterable[str], leave: bool) -> list[str]:
        """Return the settings files without those of other users that are not trusted.

        ConfigError for such a file, unless `leave` says to leave it out.
        """
        found = []
        for path in paths:
            folder, owner = os.path.dirname(path), stranger(path, self._env)
            if not owner or self._trusts(folder):
                found.append(path)
            elif not leave:
                raise ConfigError(
                    f"{path}: belongs to {owner}, so it is not read as your project's; look at it, "
                    f"then take its folder as yours with `{trust_command(folder)}`"
                )
        return found

    def _trusts(self, folder: str) -> bool:
        return Trust(self._state_dir()).project(folder)


def trust_command(folder: str) -> str:
    """Return the command that trusts a folder."""
    return f"skillbelt trust add {shell_line([folder])}"


def _unusable(path: str, message: str, remedy: str) -> Diagnostic:
    return Diagnostic(
        code="trust-unusable",
        severity="error",
        path=path,
        line=None,
        message=message,
        remedy=remedy,
    )


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _is_there(entry: TrustEntry) -> bool:
    """Whether the path still holds the folder that was trusted; always true for an origin."""
    if entry.kind == "origin":
        return True
    return bool(entry.identity) and folder_identity(entry.value) == entry.identity


def _is_exchanged(entry: TrustEntry) -> bool:
    """Whether another folder is at the path of the trusted one; False if there is none."""
    return os.path.isdir(entry.value) and not _is_there(entry)


def _diagnose_exchange(entry: TrustEntry, path: str) -> Diagnostic:
    if entry.identity:
        message = f"{entry.value} is not the folder that was trusted at this path"
    else:
        message = f"{entry.value} was trusted by its path alone, which another folder may have"
    remedy = f"look at it, then trust it again with `{trust_command(entry.value)}`"
    return Diagnostic(
        code="trust-exchanged",
        severity="warning",
        path=path,
        line=None,
        message=f"{message}; not trusted",
        remedy=remedy,
    )


def normal_url(url: str) -> str:
    """Return the URL in its normal spelling, for comparison; "" if it could mean another place.

    The host is lower case, without a default port or a slash at the end. A user name, `..` in any
    escaping, and invisible characters are refused.
    """
    if len(url) > _MAX_URL_CHARS or not url.isprintable() or " " in url or "\\" in url:
        return ""
    scheme, mark, rest = url.partition("://")
    if not (mark and scheme.isascii() and scheme.isalnum()):
        return ""
    scheme = scheme.lower()
    place, path, extra = _split(rest)
    place = _normal_place(scheme, place)
    if not (place or (scheme == "file" and rest.startswith("/"))) or not _plain_path(path):
        return ""
    return f"{scheme}://{place}{path.rstrip('/')}{extra}"


def _split(rest: str) -> tuple[str, str, str]:
    """Split the part after the scheme into host and port, path, and the rest from `?` or `#` on."""
    end = min((at for mark in "?#" if (at := rest.find(mark)) >= 0), default=len(rest))
    before, extra = rest[:end], rest[end:]
    place, slash, path = before.partition("/")
    return place, slash + path, extra


def _normal_place(scheme: str, place: str) -> str:
    """Return host and port; "" for a user name, an escape, or an impossible port."""
    if "@" in place or "%" in place:
        return ""
    # The colons of an IPv6 address are in brackets.
    end = place.find(":", place.rfind("]") + 1)
    host, digits = (place[:end], place[end + 1 :]) if end >= 0 else (place, "")
    host = host.lower() if host.isascii() else host
    if digits and not (digits.isascii() and digits.isdigit()):
        return ""
    number = digits.lstrip("0")
    if not host or len(number) > 5 or (digits and not number):
        return ""
    return f"{host}:{number}" if number and number != _PORTS.get(scheme) else host


def _plain_path(path: str) -> bool:
    """Whether no part of the path is `.` or `..`, even after unescaping it any number of times."""
    return all(_plain_part(part) for part in path.split("/"))


def _plain_part(part: str) -> bool:
    while "%" in part and (once := percent_decode(part)) != part:
        part = once
    # Some servers remove a path parameter first.
    name = part.partition(";")[0]
    return name not in (".", "..") and part.isprintable() and not ("/" in part or "\\" in part)


def _upward(kind: str, value: str) -> Iterator[str]:
    """Yield the value and its parents, nearest first."""
    yield value
    if kind == "project":
        while (parent := os.path.dirname(value)) != value:
            value = parent
            yield value
    elif "?" not in value and "#" not in value:
        # A query may select any content, so such a URL is trusted only as a whole.
        start = value.index("://") + 3
        while (end := value.rfind("/", start)) >= 0:
            value = value[:end]
            yield value


def _target(value: str) -> tuple[Literal["project", "origin"], str]:
    """Return the kind and the value of an argument; ConfigError if it cannot be trusted."""
    if "://" in value:
        url = normal_url(_url(value))
        if not url:
            raise ConfigError(
                f"{value!r} cannot be trusted: write a plain URL, without a user name, spaces, "
                "backslashes or `..`, such as https://skills.example/team"
            )
        return "origin", url
    path = os.path.realpath(value) if value and "\0" not in value else ""
    if path and os.path.isdir(path):
        return "project", path
    if path and os.path.isfile(path):
        return "origin", file_url(path)
    raise ConfigError(
        f"{value!r}: no such folder; give an existing one, or the URL of an origin with its "
        "scheme: https://..."
    )


def _spellings(value: str) -> set[tuple[str, str]]:
    """Return the entries that a value may mean, even when the folder no longer exists."""
    if "://" in value:
        return {("origin", normal_url(_url(value)) or value)}
    if not value or "\0" in value:
        return set()
    paths = {value, os.path.abspath(value), os.path.realpath(value)}
    return {(kind, v) for p in paths for kind, v in (("project", p), ("origin", file_url(p)))}


def _url(value: str) -> str:
    """Strip the kind that `skillbelt list` prints before the URL of an origin."""
    for kind in _KINDS:
        if value.startswith(kind):
            return value[len(kind) :]
    return value


def _unsafe(info: os.stat_result) -> str:
    """Return why the file is not safe to use; "" if it is."""
    if not stat.S_ISREG(info.st_mode):
        return "is not a file"
    if info.st_uid not in (os.getuid(), 0):
        return "belongs to another user"
    return "can be written by other users" if info.st_mode & 0o022 else ""


def _read(handle: int) -> bytes:
    with open(os.dup(handle), "rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"has more than {_MAX_BYTES} bytes")
    return data


def _parse(data: bytes) -> list[TrustEntry]:
    """Return the entries of a file; ValueError unless it is exactly what `add` writes."""
    document = read_json(data.decode("utf-8"))
    if not isinstance(document, dict) or document.get("version") != _FORMAT:
        raise ValueError(f"is not of format {_FORMAT}")
    listed = document.get("trusted")
    if not isinstance(listed, list):
        raise ValueError("has no list of what is trusted")
    return [_entry(item) for item in listed]


def _entry(item: object) -> TrustEntry:
    match item:
        case {"kind": "project", "value": str(path), "time": int() | float() as since, **rest}:
            identity = rest.get("identity", "")
            if os.path.isabs(path) and os.path.normpath(path) == path and isinstance(identity, str):
                return TrustEntry("project", path, float(since), identity)
        case {"kind": "origin", "value": str(url), "time": int() | float() as since}:
            if url and normal_url(url) == url:
                return TrustEntry("origin", url, float(since))
    raise ValueError(f"{item!r} is not an entry")
