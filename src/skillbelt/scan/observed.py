"""Behaviour observed in runs, kept in the store by the digest of the skill's content.

Machines that share the store share it. A host that the proxy saw is certain. What a command printed
is a report: the skill, or a text that it was given, chose the words. So reports are kept apart, and
no number of them takes the place of what is certain. Nor does any number of hosts that were refused
take the place of one that was reached.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from skillbelt.errors import SkillbeltError, log_warning
from skillbelt.files.manifest import is_complete
from skillbelt.format.allowed_tools import KINDS, host_of, tool_name, tool_pattern
from skillbelt.format.skill import Skill
from skillbelt.hosts import names_host
from skillbelt.scan.values import Capability, CapabilityKind, ObservedUse
from skillbelt.store.values import SessionKey
from skillbelt.text import Lazy, one_line, shorten
from skillbelt.untrusted_json import BadJson, read_json

if TYPE_CHECKING:
    from skillbelt.store.protocol import Store

APP = "skillbelt:observed"
# The bounds for one content: reached, refused (as many), and only printed.
MAX_CERTAIN = 200
MAX_REPORTED = 50
_ROOM: Mapping[str, int] = MappingProxyType(
    {"allowed": MAX_CERTAIN, "refused": MAX_CERTAIN, "reported": MAX_REPORTED}
)
# The number of contents; the one that ran longest ago is dropped first.
MAX_CONTENTS = 5_000
MAX_VALUE_CHARS = 200
# More hosts of one domain are stored as `*.domain`.
_MOST_OF_DOMAIN = 10
_ORDER = tuple(_ROOM)
_OWNER, _PREFIX = "all", "seen:"
_PRUNED_ONE_IN = 64
_KINDS = get_args(CapabilityKind)
_HOME = Lazy(r"/(?:home/[^/]+|Users/[^/]+|root)(?=/|\Z)")


def bound_observed(found: Iterable[Capability]) -> tuple[Capability, ...]:
    """Return what a run tried as it may be kept: each once, short, on one line, not too many."""
    cleaned = [
        one._replace(value=_clean(one.kind, one.value), origin="observed", path="", line=0)
        for one in found
        if one.value.strip()
    ]
    certain = _fold_domains([one for one in cleaned if one.outcome != "reported"])
    sure = {(one.kind, one.value) for one in certain}
    reported = [
        one for one in cleaned if one.outcome == "reported" and (one.kind, one.value) not in sure
    ]
    every = tuple(dict.fromkeys((*certain, *reported)))
    return tuple(
        one
        for outcome, most in _ROOM.items()
        for one in islice((each for each in every if each.outcome == outcome), most)
    )


def _clean(kind: CapabilityKind, value: str) -> str:
    text = shorten(one_line(value), MAX_VALUE_CHARS)
    if kind == "host":
        return text.lower().rstrip(".")
    return spell_home(text) if kind in ("read", "write") else text


def spell_home(path: str) -> str:
    """Return a path with `~` for the home of any user."""
    found = _HOME.match(path)
    return f"~{path[found.end() :]}" if found else path


def _fold_domains(found: list[Capability]) -> list[Capability]:
    """Replace many hosts of one domain by `*.domain`: each name could carry data."""
    hosts = {one.value for one in found if one.kind == "host"}
    many = {
        domain for domain, count in Counter(map(_domain, hosts)).items() if count > _MOST_OF_DOMAIN
    }
    return [
        one._replace(value=f"*.{_domain(one.value)}")
        if one.kind == "host" and _domain(one.value) in many
        else one
        for one in found
    ]


def _domain(host: str) -> str:
    is_address = host.replace(".", "").isdigit() or ":" in host
    return host if is_address else ".".join(host.split(".")[-2:])


def declared_by_tools(skill: Skill) -> tuple[str, ...]:
    """Return the hosts that a skill's `allowed-tools` name."""
    try:
        tools = skill.frontmatter.allowed_tools
    except SkillbeltError:
        return ()
    named = (tool_pattern(tool) for tool in tools if KINDS.get(tool_name(tool)) == "network")
    return tuple(host_of(pattern) for pattern in named if pattern)


def host_alone(value: str) -> str:
    """Return the host without its port."""
    return value.partition(":")[0] if value.count(":") == 1 else value


def find_declared(skill: Skill, observed: tuple[Capability, ...]) -> tuple[ObservedUse, ...] | None:
    """Return what a run tried if its tools declare all of it, which needs no scan; else None."""
    hosts = declared_by_tools(skill)
    if not all(one.kind == "host" and names_host(hosts, host_alone(one.value)) for one in observed):
        return None
    return tuple(
        ObservedUse(kind=one.kind, value=one.value, outcome=one.outcome, stated="declared")
        for one in observed
    )


def note_observed(store: Store, digest: str, observed: Iterable[Capability]) -> None:
    """Keep what a run of this content tried. A store that fails is logged and stops no run."""
    found = bound_observed(observed)
    if not found or not digest or not is_complete(digest):
        return
    try:
        kept = store.state(_place(digest))
        known = read_entries(kept)
        room = dict(_ROOM)
        for one in known:
            room[one.outcome] -= 1
        delta: dict[str, str | None] = {}
        for one in found:
            key = _key(one)
            if key not in kept and room[one.outcome] > 0:
                room[one.outcome] -= 1
                delta[key] = json.dumps([one.kind, one.value, one.outcome])
        if delta:
            store.append(_place(digest), [], delta)
        if delta and not known and os.urandom(1)[0] % _PRUNED_ONE_IN == 0:
            _prune(store)
    except SkillbeltError as error:
        log_warning(f"what a run tried cannot be kept: {error}")


def read_observed(store: Store, digest: str) -> tuple[Capability, ...]:
    """Return what runs of this content tried, certain entries first."""
    if not digest or not is_complete(digest):
        return ()
    return read_entries(store.state(_place(digest)))


def read_entries(state: dict[str, str]) -> tuple[Capability, ...]:
    """Return the entries of a state, reached hosts first, without damaged ones."""
    found = [one for key, text in state.items() if key.startswith(_PREFIX) for one in _decode(text)]
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.outcome), one.kind, one.value)))


def _decode(text: str) -> Iterator[Capability]:
    try:
        kind, value, outcome = read_json(text)
    except (BadJson, ValueError, TypeError):
        return
    if kind in _KINDS and outcome in _ORDER and isinstance(value, str):
        yield Capability(kind=kind, value=value, origin="observed", outcome=outcome)


def _key(one: Capability) -> str:
    text = json.dumps([one.kind, one.value, one.outcome])
    return _PREFIX + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _prune(store: Store) -> None:
    kept = store.sessions(APP, _OWNER)
    if len(kept) > MAX_CONTENTS:
        for info in sorted(kept, key=lambda one: one.updated)[: len(kept) - MAX_CONTENTS]:
            store.delete(info.key)


def _place(digest: str) -> SessionKey:
    return SessionKey(APP, _OWNER, digest)
