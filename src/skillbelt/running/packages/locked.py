"""Packages in a lock of skills: parse them strictly, and check that a resolution keeps to them.

A lock comes with a project and is untrusted. It can only narrow the choice of the index: to
versions and hashes of packages that the skill's own requirements resolve to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import Kind, Lock, LockedPackages, Package, normal
from skillbelt.running.packages.declared import MAX_REQUIREMENTS, Needs
from skillbelt.running.packages.lockfiles import MAX_PACKAGES, python_lock, read_node, refuse
from skillbelt.untrusted_json import read_json

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,199}")
_MAX_TEXT = 1000
_RESOLVED = "resolved"


def to_json(needs: Needs, lock: Lock) -> dict[str, object]:
    """Return the packages that some needs resolved to, for a lock of skills."""
    return {
        "kind": needs.kind,
        "requirements": list(needs.requirements),
        "packages": _node_entries(lock) if needs.kind == "node" else _python_entries(lock),
    }


def _python_entries(lock: Lock) -> dict[str, object]:
    return {one.name: {"version": one.version, "hashes": list(one.hashes)} for one in lock.packages}


def _node_entries(lock: Lock) -> dict[str, object]:
    """Return the entries of npm's lock without the addresses, which are rebuilt from names."""
    listed: dict[str, dict[str, Any]] = read_json(lock.text)["packages"]
    return {
        path: {key: value for key, value in about.items() if key != _RESOLVED}
        for path, about in listed.items()
    }


def from_json(value: object) -> LockedPackages:
    """Return the locked packages of one file's requirements; ValueError for an invalid value."""
    if not isinstance(value, dict) or value.get("kind") not in ("python", "node"):
        raise ValueError("it has no `kind` that is python or node")
    kind: Kind = value["kind"]
    wanted, listed = value.get("requirements"), value.get("packages")
    if not isinstance(wanted, list) or len(wanted) > MAX_REQUIREMENTS:
        raise ValueError("its `requirements` are not a list")
    if not all(isinstance(one, str) and len(one) <= _MAX_TEXT for one in wanted):
        raise ValueError("its `requirements` are not texts")
    if not isinstance(listed, dict) or len(listed) > MAX_PACKAGES:
        raise ValueError("its `packages` are not an object")
    lock = _read_node(listed) if kind == "node" else _read_python(listed)
    return LockedPackages(
        kind=kind,
        requirements=tuple(wanted),
        packages=lock.packages,
        text=lock.text if kind == "node" else "",
    )


def _read_python(listed: Mapping[str, object]) -> Lock:
    return python_lock(_python_package(name, about) for name, about in listed.items())


def _python_package(name: str, about: object) -> Package:
    version, hashes = (
        (about.get("version"), about.get("hashes")) if isinstance(about, dict) else (None, None)
    )
    if not _NAME.fullmatch(name) or normal("python", name) != name:
        raise ValueError("it names a package as no index does")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise ValueError(f"{name} has no version")
    if not isinstance(hashes, list) or not hashes:
        raise ValueError(f"{name} has no hashes")
    if not all(isinstance(one, str) and _HASH.fullmatch(one) for one in hashes):
        raise ValueError(f"{name} has a hash that is not a SHA-256")
    return Package("python", name, version, tuple(hashes))


def _read_node(listed: Mapping[str, object]) -> Lock:
    whole = {"lockfileVersion": 3, "packages": listed}
    try:
        return read_node(json.dumps(whole).encode(), fill=True)
    except RunRefused as error:
        raise ValueError(str(error)) from error


def constraints_of(locked: LockedPackages) -> bytes:
    """Return the versions as a constraints file."""
    return "".join(f"{one.name}=={one.version}\n" for one in locked.packages).encode()


def hashed_lines(needs: Needs) -> tuple[str, ...]:
    """Return the locked Python packages as requirements with hashes."""
    if needs.locked is None:
        return ()
    return tuple(python_lock(needs.locked.packages).text.splitlines())


def check_kept(lock: Lock, needs: Needs) -> Lock:
    """Return the lock; RunRefused if it has another version or file than the locked ones.

    Where there are more requirements than the locked ones, further packages may be added.
    """
    locked = needs.locked
    if locked is None:
        return lock
    more = not set(needs.requirements) <= set(locked.requirements)
    names = {one.name for one in locked.packages}
    known: dict[tuple[str, str], set[str]] = {}
    for one in locked.packages:
        known.setdefault((one.name, one.version), set()).update(one.hashes)
    for one in lock.packages:
        if one.name in names:
            if not set(one.hashes) <= known.get((one.name, one.version), set()):
                raise refuse(f"{one.name} {one.version}", "the lock has another version or file")
        elif not more:
            raise refuse(
                f"{one.name} {one.version}",
                "it is needed on this machine and not in the lock; `skillbelt update --packages` "
                "locks it",
            )
    return lock
