"""Keep the results of scans in the user's cache folder, by content and by the rules.

No skill and no project can write there. The key depends on the rules, on Python and on whether the
parsers are there; a damaged result is ignored.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, get_args

from skillbelt.errors import SkillbeltError
from skillbelt.files.manifest import is_complete
from skillbelt.files.result_cache import ResultCache
from skillbelt.format.skill import Skill
from skillbelt.scan.parsers import has_parsers
from skillbelt.scan.values import (
    KINDS,
    Capability,
    CapabilityKind,
    CapabilityOrigin,
    CapabilityStatement,
    Finding,
    ScannedSkill,
)

FOLDER = "scans"
# Results that are kept, and the bytes of one: a skill with a larger result is scanned each time.
MAX_RESULTS = 30_000
MAX_RESULT_BYTES = 256 * 2**10
_FORM = 1
_CAPABILITY_KINDS, _ORIGINS = get_args(CapabilityKind), get_args(CapabilityOrigin)


def find_result(skill: Skill, cache_dir: str = "") -> tuple[str, ScannedSkill | None]:
    """Return the digest of a skill, and its result if that is known without reading more."""
    try:
        digest = skill.files.digest()
    except (SkillbeltError, OSError) as error:
        failure = f"the folder: {error}"
        return "", ScannedSkill(name=skill.name, digest="", unseen=(failure,))
    return digest, find_kept(digest, skill.name, cache_dir)


def find_kept(digest: str, name: str, cache_dir: str = "") -> ScannedSkill | None:
    """Return the result for a content; None if there is none. Without a `cache_dir`: of this run.

    The name counts too: a host of that name is taken for the skill's own.
    """
    if not is_complete(digest):
        return None
    memory = _remember(digest, name, has_parsers())
    if not memory and cache_dir:
        kept = _open(cache_dir).get(_make_key(digest, name))
        with suppress(KeyError, TypeError, ValueError):
            memory += [] if kept is None else [_decode(kept, digest, name)]
    return memory[0] if memory else None


def keep(scanned: ScannedSkill, cache_dir: str = "") -> None:
    """Keep a result, in memory and in the cache folder."""
    if not is_complete(scanned.digest):
        return
    _remember(scanned.digest, scanned.name, has_parsers())[:] = [scanned]
    if cache_dir:
        results = _open(cache_dir)
        # A cache that cannot be written only costs time.
        with suppress(OSError):
            results.put(_make_key(scanned.digest, scanned.name), _encode(scanned))
        # About one time in 256.
        if os.urandom(1)[0] == 0:
            results.tidy()


@lru_cache(maxsize=512)
def _remember(digest: str, name: str, parsers: bool) -> list[ScannedSkill]:
    """Return the place of a result, empty until there is one."""
    return []


def _open(cache_dir: str) -> ResultCache:
    folder = os.path.join(cache_dir, FOLDER)
    return ResultCache(folder, most=MAX_RESULTS, most_bytes=MAX_RESULT_BYTES)


def _make_key(digest: str, name: str) -> str:
    parts = (digest, name, str(has_parsers()), rules_version())
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


@cache
def rules_version() -> str:
    """Return a digest of the code and data that scan, so that no result outlives its rules."""
    folder, made = os.path.dirname(os.path.abspath(__file__)), sha256()
    made.update(f"{_FORM} {sys.version}".encode())
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                made.update(f"\0{name}\0".encode() + file.read())
    return made.hexdigest()


def _encode(scanned: ScannedSkill) -> dict[str, object]:
    return {
        "findings": [list(one) for one in scanned.findings],
        "capabilities": [list(one) for one in scanned.statement.capabilities],
        "closed": list(scanned.statement.closed),
        "unseen": list(scanned.unseen),
    }


def _decode(kept: dict[str, Any], digest: str, name: str) -> ScannedSkill:
    return ScannedSkill(
        name=name,
        digest=digest,
        findings=tuple(_read_finding(*row) for row in kept["findings"]),
        statement=CapabilityStatement(
            capabilities=tuple(capability(*row) for row in kept["capabilities"]),
            closed=tuple(_one_of(one, _CAPABILITY_KINDS) for one in kept["closed"]),
        ),
        unseen=tuple(map(_check_text, kept["unseen"])),
    )


def _read_finding(
    rule: object, kind: object, path: object, line: object, message: object, remedy: object
) -> Finding:
    if not (line is None or isinstance(line, int)):
        raise TypeError("a line is a number")
    return Finding(
        rule=_check_text(rule),
        kind=_one_of(kind, KINDS),
        path=_check_text(path),
        line=line,
        message=_check_text(message),
        remedy=_check_text(remedy),
    )


def capability(
    kind: object, value: object, origin: object, path: object, line: object, outcome: object
) -> Capability:
    """Return a capability from JSON; TypeError or ValueError for anything else."""
    if not isinstance(line, int):
        raise TypeError("a line is a number")
    return Capability(
        kind=_one_of(kind, _CAPABILITY_KINDS),
        value=_check_text(value),
        origin=_one_of(origin, _ORIGINS),
        path=_check_text(path),
        line=line,
        outcome=_one_of(outcome, ("", "allowed", "refused", "reported")),
    )


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is needed")
    return value


def _one_of(value: object, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise ValueError("the word is not known")
    return value
