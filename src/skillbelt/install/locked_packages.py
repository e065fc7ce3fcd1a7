"""The packages of installed skills: resolved when a skill is locked, enforced when it runs.

The key `packages` of an entry has, for each file of the skill that declares packages, its
requirements and all that they came to: versions, and the hashes of every platform.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from skillbelt.errors import PathEscape, PermissionDenied, RunRefused
from skillbelt.format.skill import Skill
from skillbelt.install.declaring import ResolvedPackages, find_declaring
from skillbelt.install.lock_file import find_place, read_lock
from skillbelt.install.names import typed_name
from skillbelt.install.placing import skill_folder
from skillbelt.install.values import NO_VALUES, InstallPlace, LockEntry
from skillbelt.permission.gate import Gate
from skillbelt.permission.packages import LockedPackages
from skillbelt.permission.rules import Request
from skillbelt.running.packages.declared import Needs, needs_of
from skillbelt.running.packages.locked import from_json, to_json
from skillbelt.running.provide_packages import PackageProvider, named_request
from skillbelt.settings import Settings
from skillbelt.text import one_line


def declared_needs(folder: str) -> dict[str, Needs]:
    """Return what the files of a skill declare, each by its path.

    RunRefused and PathEscape for what a run would not accept either.
    """
    found: dict[str, Needs] = {}
    for script in find_declaring(folder):
        needs = needs_of(folder, script or None)
        if needs is not None and needs.requirements:
            found.setdefault(needs.source_path, needs)
    return dict(sorted(found.items()))


def resolve_packages(
    name: str,
    folder: str,
    gate: Gate,
    settings: Settings,
    *,
    known: Mapping[str, object] = NO_VALUES,
    progress: Callable[[str], None] | None = None,
) -> ResolvedPackages:
    """Resolve the packages of a skill with the index. Nothing is installed.

    What is `known` of the same requirements stays. What a rule denies is not looked up.
    """
    made: dict[str, object] = {}
    cache = os.path.join(settings.cache_dir, "packages")
    provider = PackageProvider(gate, settings, cache, progress)
    try:
        for path, needs in declared_needs(folder).items():
            if _is_for(known.get(path), needs):
                made[path] = known[path]
                continue
            asked = named_request(Request("install", (), initiator="user", skill=name), needs)
            if gate.rules.decide(asked)[0] == "deny":
                raise PermissionDenied(name, "a rule denies the packages")
            made[path] = to_json(needs, provider.plan(needs, portable=True).lock)
    except (RunRefused, PathEscape, PermissionDenied, OSError) as error:
        return ResolvedPackages(reason=one_line(str(error)))
    return ResolvedPackages(made)


def _is_for(known: object, needs: Needs) -> bool:
    try:
        locked = from_json(known)
    except ValueError:
        return False
    return (locked.kind, locked.requirements) == (needs.kind, needs.requirements)


def find_package_fault(entry: LockEntry, folder: str, place: InstallPlace) -> str:
    """Say how the locked packages do not fit the skill; "" where they do, or there are none."""
    if not entry.packages:
        return ""
    try:
        locked = read_packages(entry, place)
        declared = declared_needs(folder)
    except (RunRefused, PathEscape, OSError) as error:
        return one_line(str(error))
    wanted = {path: (one.kind, one.requirements) for path, one in declared.items()}
    known = {path: (one.kind, one.requirements) for path, one in locked.items()}
    other = sorted(
        path for path in wanted.keys() | known.keys() if wanted.get(path) != known.get(path)
    )
    return f"the locked packages do not fit {one_line(', '.join(other))}" if other else ""


def read_packages(entry: LockEntry, place: InstallPlace) -> dict[str, LockedPackages]:
    """Return the locked packages of an entry, by the file that declares them; RunRefused."""
    found = {}
    for path, value in entry.packages.items():
        try:
            found[path] = from_json(value)
        except ValueError as error:
            name = typed_name(entry.name)
            raise RunRefused(
                f"the lock: `packages` of {name}, {one_line(path)}: {one_line(str(error))}; "
                f"{place.command(f'update --packages {name}')} writes them anew"
            ) from error
    return found


def locked_files(skill: Skill, settings: Settings) -> Mapping[str, LockedPackages]:
    """Return what the lock says of a skill's packages; nothing for a skill that no lock has.

    ConfigError for an invalid lock file, RunRefused for packages that cannot be read.
    """
    if not skill.dir or skill.origin.remote:
        return {}
    folder = os.path.realpath(skill.dir)
    for place in (find_place(settings, "project"), find_place(settings, "user")):
        if folder == os.path.realpath(skill_folder(place, skill.name)):
            entry = read_lock(place).find(skill.name)
            if entry is not None:
                return read_packages(entry, place)
    return {}
