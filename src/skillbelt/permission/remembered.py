"""Remembered answers, in a store that all processes of the user share.

An entry is one key of the store, so that two processes that remember at the same time lose nothing.
The keys belong to the project and not to a session: deleting or expiring sessions leaves them
alone.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from skillbelt.errors import log_warning
from skillbelt.permission.rules import Request
from skillbelt.records import NamedTuple
from skillbelt.store.values import SessionKey
from skillbelt.untrusted_json import read_json

if TYPE_CHECKING:
    from skillbelt.store.protocol import Store

APP = "skillbelt:permission"
_PREFIX = "user:remembered:"
_ID_DIGITS = 12


class Remembered(NamedTuple):
    """One text that was approved for good, and everything that the approval is bound to.

    `pattern` is readable and compared literally, without wildcards; `exact` is the digest of the
    whole request. `id` is derived from what it is bound to.
    """

    id: str
    type: str
    pattern: str
    skill: str
    hash: str
    origin: str
    project: str
    time: float
    by: str
    exact: str = ""


class RememberedAnswers:
    """The permanent approvals of a project. ConfigError when the store cannot be used."""

    def __init__(self, store: Store, project: str) -> None:
        self.project = project
        self._store = store

    def remember(self, request: Request, by: str = "") -> list[Remembered]:
        """Approve each of the request's `always` texts; none when nothing can be remembered.

        This revokes approvals for another content of the same skill.
        """
        if not memorable(request):
            return []
        now = time.time()
        made = [self._entry(request, text, now, by) for text in dict.fromkeys(request.always)]
        self._change(_list_outdated(request, self.all()), made)
        return made

    def covering(self, request: Request) -> Remembered | None:
        """Return the first of the entries that cover the request; None unless they cover all of it.

        This revokes approvals for another content of the same skill, so that a skill that changed,
        then changed back, is asked for again.
        """
        wanted = texts(request)
        if not wanted or not known(request):
            return None
        entries = self.all()
        self._change(_list_outdated(request, entries))
        held = {entry.pattern: entry for entry in entries if _binding_of(entry) == binding(request)}
        found = [held.get(text) for text in wanted]
        return found[0] if None not in found else None

    def all(self, project: str | None = None) -> list[Remembered]:
        """Return every entry of the project, or of another one, oldest first."""
        project = self.project if project is None else project
        state = self._store.state(_store_key(project))
        return sorted(_entries(state, project), key=lambda entry: (entry.time, entry.id))

    def revoke(self, id: str) -> Remembered | None:
        """Forget one entry; None if no entry has that id."""
        for entry in self.all():
            if entry.id == id:
                self._change([entry])
                return entry
        return None

    def revoke_skill(self, skill: str) -> list[Remembered]:
        """Forget everything that was approved for a skill."""
        revoked = [entry for entry in self.all() if entry.skill == skill]
        self._change(revoked)
        return revoked

    def _entry(self, request: Request, text: str, now: float, by: str) -> Remembered:
        bound = (request.type, text, request.skill, request.hash, request.origin, self.project)
        return Remembered(
            id=_id((*bound, request.exact)),
            type=request.type,
            pattern=text,
            skill=request.skill,
            hash=request.hash,
            origin=request.origin,
            project=self.project,
            time=now,
            by=by,
            exact=request.exact,
        )

    def _change(self, gone: Iterable[Remembered], made: Iterable[Remembered] = ()) -> None:
        delta: dict[str, str | None] = {_PREFIX + entry.id: None for entry in gone}
        delta |= {_PREFIX + entry.id: _encode(entry) for entry in made}
        if delta:
            self._store.append(_store_key(self.project), [], delta)


def texts(request: Request) -> tuple[str, ...]:
    """Return the texts that must all be remembered for the request to be covered."""
    return request.always or request.patterns


def known(request: Request) -> bool:
    """Whether the subject of the request is certain: a skill without a hash may be any skill."""
    return bool(request.hash or not request.skill)


def memorable(request: Request) -> bool:
    """Whether "always" can be remembered for the request."""
    return bool(request.always) and known(request)


def binding(request: Request) -> tuple[str, str, str, str, str]:
    """Return what a remembered text is bound to, besides the project."""
    return request.type, request.skill, request.hash, request.origin, request.exact


def _binding_of(entry: Remembered) -> tuple[str, str, str, str, str]:
    return entry.type, entry.skill, entry.hash, entry.origin, entry.exact


def _list_outdated(request: Request, entries: Iterable[Remembered]) -> Iterator[Remembered]:
    """Return the entries for another content of the request's skill."""
    for entry in entries:
        same = entry.skill == request.skill and entry.origin == request.origin
        if request.skill and same and entry.hash != request.hash:
            yield entry


def _store_key(project: str) -> SessionKey:
    return SessionKey(APP, project, "ledger")


def _id(bound: tuple[str, ...]) -> str:
    """Return the id of what an entry is bound to; encoded as JSON, so that no two are ambiguous."""
    text = json.dumps(bound, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:_ID_DIGITS]


def _encode(entry: Remembered) -> str:
    return json.dumps(entry._asdict(), ensure_ascii=False, separators=(",", ":"))


def _entries(state: dict[str, str], project: str) -> Iterator[Remembered]:
    """Yield the project's entries in the state; other keys are ignored."""
    for key, value in state.items():
        if key.startswith(_PREFIX):
            entry = _decode(key.removeprefix(_PREFIX), value)
            if entry is None:
                log_warning(f"the remembered answer {key} is damaged and does not count")
            if entry is not None and entry.project == project:
                yield entry


def _decode(id: str, value: str) -> Remembered | None:

    try:
        fields = read_json(value)
        entry = Remembered(**{**fields, "id": id, "time": float(fields["time"])})
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    whole = all(isinstance(field, str) for field in (*entry[:7], entry.by, entry.exact))
    return entry if whole and abs(entry.time) < float("inf") else None
