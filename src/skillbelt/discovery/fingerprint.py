"""One text that stands for everything in a skill: another as soon as anything in it is another.

What people allow is bound to it. To ask again costs a walk of stats, not a reading of the files.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from skillbelt.errors import LoadError
from skillbelt.files.manifest import (
    MAX_MANIFEST_BYTES,
    MAX_MANIFEST_FILES,
    SKIPPED,
    build_manifest,
    is_skill_file,
)
from skillbelt.format.skill import Skill
from skillbelt.values import Limits, Manifest

# The end of the fingerprint of a skill of which not all could be read.
PARTIAL = "+partial"
_MOST_KEPT = 4_096
# Two writes within a tick of the file system's clock leave the same times behind.
_TICK_NS = 2_000_000_000
_INCOMPLETE = ("skill-too-large", "unreadable")
_cache: dict[tuple[str, str, int, int], tuple[bytes, str]] = {}


class _Seen(NamedTuple):
    """One thing in the folder. `fact` is what of it belongs to the hash beside its content."""

    path: str
    info: os.stat_result | None
    fact: str = ""
    known: bool = True


class _Look(NamedTuple):
    """What a walk of stats saw: what to compare, what belongs to the hash, the newest time."""

    stamp: bytes
    facts: tuple[str, ...]
    newest_ns: int
    complete: bool


def fingerprint(skill: Skill, limits: Limits) -> str:
    """The hash over all of the skill's files, links and executable bits; never an exception.

    The same for equal skills wherever they lie. For one without links and executable files it is
    the `hash` that `skillbelt show` prints. It ends with `PARTIAL` when something could not be
    read or there was too much: then what was not seen may change unnoticed.
    """
    if not os.path.isabs(skill.location):
        return f"sha256:{hashlib.sha256(skill.source.encode('utf-8', 'surrogatepass')).hexdigest()}"
    if skill.origin.kind == "mcp":
        return _listed(skill)
    key = (skill.dir, skill.fence, MAX_MANIFEST_FILES, MAX_MANIFEST_BYTES)
    began = time.time_ns()
    look = _look(skill.dir, MAX_MANIFEST_FILES)
    stamp, known = _cache.get(key, (b"", ""))
    if stamp == look.stamp:
        return known
    manifest = build_manifest(skill.dir, limits, skill.fence)
    made = _combined(manifest, look, skill.dir)
    old = began - look.newest_ns >= _TICK_NS
    if old and _readable(manifest) and _look(skill.dir, MAX_MANIFEST_FILES).stamp == look.stamp:
        _keep(key, look.stamp, made)
    return made


def manifest_of(skill: Skill, limits: Limits) -> Manifest:
    """The files of a skill: those in its folder, or those that its server lists."""
    if skill.origin.kind != "mcp":
        return build_manifest(skill.dir, limits, skill.fence)
    from skillbelt.discovery.listed_files import manifest

    return manifest(skill)


def _listed(skill: Skill) -> str:
    """The hash that the files of a skill will have, once they are fetched as they are listed."""
    from skillbelt.discovery.listed_files import manifest

    try:
        return manifest(skill).hash
    except LoadError:
        return f"sha256:{hashlib.sha256(b'').hexdigest()}{PARTIAL}"


def is_complete(mark: str) -> bool:
    """Whether the fingerprint covers all of the skill."""
    return not mark.endswith(PARTIAL)


def _readable(manifest: Manifest) -> bool:
    """Whether everything was; a failure may pass without a trace in the stats."""
    return all(diagnostic.code != "unreadable" for diagnostic in manifest.diagnostics)


def _keep(key: tuple[str, str, int, int], stamp: bytes, made: str) -> None:
    # Each step is whole by itself, so threads and forks need no lock.
    if len(_cache) >= _MOST_KEPT:
        _cache.clear()
    _cache[key] = stamp, made


def _combined(manifest: Manifest, look: _Look, folder: str) -> str:
    missed = [
        f"{d.code}\0{os.path.relpath(d.path, folder)}"
        for d in manifest.diagnostics
        if d.code in _INCOMPLETE
    ]
    made = combined(manifest.hash, look.facts, sorted(missed))
    return made if look.complete and not missed else made + PARTIAL


def combined(files: str, facts: Iterable[str], missed: Iterable[str] = ()) -> str:
    """The hash over the files together with what else belongs to it, whatever its order."""
    more = (*sorted(facts), *missed)
    if not more:
        return files
    text = "\0\0".join((files, *more))
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def executable_fact(path: str) -> str:
    """What the hash has of a file that can be executed, beside its content."""
    return f"{path}\0executable"


def link_fact(path: str, target: str) -> str:
    """What the hash has of a link."""
    return f"{path}\0link\0{target}"


def _look(folder: str, most: int) -> _Look:
    """Go through the folder as the manifest does, reading nothing but stats and links."""
    stamp = hashlib.sha256()
    facts: list[str] = []
    newest, complete = 0, True
    for path, info, fact, known in islice(_walk(folder), most + 1):
        times = info and (info.st_mtime_ns, info.st_ctime_ns)
        where = info and (info.st_dev, info.st_ino, info.st_mode, info.st_size)
        stamp.update(repr((path, times, where, fact)).encode("utf-8", "surrogatepass"))
        newest = max(newest, *(times or (0,)))
        complete = complete and known
        if fact:
            facts.append(fact)
    return _Look(stamp.digest(), tuple(facts), newest, complete)


def _walk(folder: str) -> Iterator[_Seen]:
    # A list and not recursion: folders may be nested deeper than calls.
    pending = [""]
    while pending:
        below = pending.pop()
        folders = []
        for name in _names(os.path.join(folder, below)):
            seen = _seen(folder, f"{below}{name}")
            if seen.info and stat.S_ISDIR(seen.info.st_mode) and name not in SKIPPED:
                folders.append(f"{seen.path}/")
            yield seen
        pending += reversed(folders)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _seen(folder: str, path: str) -> _Seen:
    full = os.path.join(folder, path)
    try:
        info = os.lstat(full)
        if stat.S_ISLNK(info.st_mode) and is_skill_file(path):
            info = os.stat(full)  # what it leads to is part of the skill, and may change by itself
        elif stat.S_ISLNK(info.st_mode):
            to = link_fact(path, os.readlink(full))
            return _Seen(path, info, to, not _hides(full, folder))
    except OSError:
        # Gone between two calls, or forbidden: the manifest says which.
        return _Seen(path, None, known=False)
    if stat.S_ISREG(info.st_mode):
        return _Seen(path, info, executable_fact(path) if info.st_mode & 0o111 else "")
    if stat.S_ISDIR(info.st_mode):
        return _Seen(path, info)
    return _Seen(path, info, f"{path}\0other\0{stat.S_IFMT(info.st_mode)}")


def _hides(link: str, folder: str) -> bool:
    """Whether the link leads to a part of the skill's folder that no hash covers."""
    real, root = os.path.realpath(link), os.path.join(os.path.realpath(folder), "")
    return real.startswith(root) and not SKIPPED.isdisjoint(real[len(root) :].split("/"))
