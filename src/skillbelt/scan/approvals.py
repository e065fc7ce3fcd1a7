"""Capabilities of a skill at its last approval, so that the next question says what is new.

Kept in the store beside the remembered answers: one entry for each skill of a project.
"""

from __future__ import annotations

import json

from skillbelt.records import NamedTuple
from skillbelt.scan.cache import capability
from skillbelt.scan.values import CapabilityStatement
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.untrusted_json import BadJson, read_json

APP = "skillbelt:approved-abilities"
_ENTRY = "last"
_MAX_ROWS = 2_000


class ApprovedAbilities(NamedTuple):
    """The content that was approved last, when, and what it could do."""

    digest: str
    time: float
    statement: CapabilityStatement


def note_approved(
    store: Store,
    project: str,
    skill: tuple[str, str],
    *,
    digest: str,
    statement: CapabilityStatement,
) -> None:
    """Remember what a person approved; `skill` is its name and its origin."""
    rows = [list(one) for one in statement.capabilities[:_MAX_ROWS]]
    entry = {"digest": digest, "time": store.now(), "capabilities": rows}
    store.append(
        _find_place(project, skill), [], {_ENTRY: json.dumps(entry, separators=(",", ":"))}
    )


def find_approved(store: Store, project: str, skill: tuple[str, str]) -> ApprovedAbilities | None:
    """Return what was approved last; None without one."""
    text = store.state(_find_place(project, skill)).get(_ENTRY)
    try:
        found = read_json(text) if text else None
        if not isinstance(found, dict):
            return None
        rows = tuple(capability(*row) for row in found["capabilities"])
        return ApprovedAbilities(
            digest=str(found["digest"]),
            time=float(found["time"]),
            statement=CapabilityStatement(capabilities=rows),
        )
    except (BadJson, KeyError, TypeError, ValueError):
        return None


def _find_place(project: str, skill: tuple[str, str]) -> SessionKey:
    return SessionKey(APP, project, json.dumps(skill))
