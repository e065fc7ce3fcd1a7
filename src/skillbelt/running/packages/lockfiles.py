"""Parse the lock files of installers strictly: packages of the index with a hash, nothing else.

An installer wrote them from untrusted metadata. A package from anywhere but the index is refused by
name, before any of it is fetched. The lock that is installed is generated here.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import Lock, Package, normal
from skillbelt.running.packages.fetched import HOST
from skillbelt.text import one_line, read_toml, shorten
from skillbelt.untrusted_json import read_json

# The index as an installer sees it. The name is reserved, so that no real host can have it.
BASE = f"http://{HOST}"
# A version that does not exist, replacing a requirement with a URL.
NOWHERE = "0.0.0-not-from-the-index"
MAX_BYTES = 32 * 2**20
MAX_PACKAGES = 5_000
NODE_NAME = re.compile(r"(?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_][A-Za-z0-9._~-]*")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}")
_MODULE = r"node_modules/(?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_][A-Za-z0-9._~-]*"
_MODULES = re.compile(rf"{_MODULE}(?:/{_MODULE})*")
# The versions of the C library that these platform names mean.
_OLD_NAMES = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}
_DIGITS = {"sha256": 32, "sha384": 48, "sha512": 64}
# A requirement on a package of the registry; anything else names another place.
_RANGE = re.compile(r"[A-Za-z0-9.^~<>=|*+, _-]*")
_ALIAS = re.compile(rf"npm:({NODE_NAME.pattern})(?:@({_RANGE.pattern}))?")
_DEPENDENCIES = ("dependencies", "optionalDependencies", "peerDependencies")
_FLAGS = ("optional", "peer", "dev", "devOptional", "inBundle", "extraneous")
_LISTS = ("os", "cpu", "libc", "bundleDependencies")


class Platform(NamedTuple):
    """The platform of wheels: the minor version of Python 3, the processor and the C library."""

    minor: int
    machine: str
    libc: str  # glibc, musl or ""
    system: str = "linux"
    libc_version: tuple[int, ...] = ()


def file_url(kind: str, name: str, file: str) -> str:
    """Return the URL of a file of a package, as an installer sees it."""
    return f"{BASE}/files/{name}/{file}" if kind == "python" else f"{BASE}/-/{name}/{file}.tgz"


def refuse(what: str, why: str) -> RunRefused:
    """Return the refusal of one package."""
    shown = shorten(one_line(what), 200)
    return RunRefused(f"{shown} is not installed: {why}; only packages of your own index are")


def is_range(wanted: object) -> bool:
    """Whether a Node.js requirement names a package of the registry."""
    if not isinstance(wanted, str) or len(wanted) > 500:
        return False
    return bool(_RANGE.fullmatch(wanted) or _ALIAS.fullmatch(wanted))


# Python


def read_python(
    data: bytes,
    requirements: Iterable[str],
    platform: Platform,
    *,
    builds: bool = False,
    built: Collection[str] = (),
) -> Lock:
    """Parse uv's `pylock.toml`; raises RunRefused, which names the package.

    With `builds`, a package without a wheel may be built; those in `built` are.
    """
    try:
        listed = read_toml(data.decode("utf-8")).get("packages", [])
    except (ValueError, RecursionError) as error:
        raise _invalid_lock(error) from error
    declared = dict(_read_hashes(requirements))
    if not isinstance(listed, list) or len(listed) > MAX_PACKAGES:
        raise _invalid_lock("it lists no packages, or too many")
    found = [_python_package(one, declared, platform, builds, built) for one in listed]
    return python_lock(found)


def python_lock(packages: Iterable[Package]) -> Lock:
    """Return the lock of these packages."""
    ordered = tuple(sorted(packages))
    if len({one.name for one in ordered}) != len(ordered):
        raise _invalid_lock("it lists a package twice")
    lines = (
        " ".join((f"{one.name}=={one.version}", *(f"--hash={hash}" for hash in one.hashes)))
        for one in ordered
    )
    return Lock("python", ordered, "".join(f"{line}\n" for line in lines))


def _invalid_lock(why: object) -> RunRefused:
    return RunRefused(f"the packages could not be resolved: {shorten(one_line(str(why)), 200)}")


def _read_hashes(requirements: Iterable[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the declared hashes by package name."""
    for one in requirements:
        wanted, *hashes = re.split(r"\s+--hash[= ]\s*", one)
        if hashes:
            name = re.split(r"[^A-Za-z0-9._-]", wanted, maxsplit=1)[0]
            yield normal("python", name), frozenset(hash.lower() for hash in hashes)


def _python_package(
    about: Any,
    declared: Mapping[str, frozenset[str]],
    platform: Platform,
    builds: bool,
    built: Collection[str],
) -> Package:
    name = about.get("name") if isinstance(about, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _invalid_lock(f"{name!r} is not a package name")
    for key, place in (("vcs", "a repository"), ("directory", "a folder"), ("archive", "a file")):
        if key in about:
            raise refuse(name, f"it comes from {place}")
    version = about.get("version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise refuse(name, "it has no version")
    files = [*_files(name, about.get("wheels", []), platform)]
    if "sdist" in about and (name in built or (builds and not files)):
        files = [_file(name, about["sdist"])]
    if not files:
        raise refuse(f"{name}=={version}", "it has no wheel for this machine")
    hashes = {hash for _, hash in files}
    if name in declared:
        hashes &= declared[name]
        if not hashes:
            why = "the index has no file with a hash that is declared or locked"
            raise refuse(f"{name}=={version}", why)
    return Package("python", name, version, tuple(sorted(hashes)))


def _files(name: str, wheels: Any, platform: Platform) -> Iterator[tuple[str, str]]:
    """Yield the wheels for this machine; all of them when none is known to fit."""
    if not isinstance(wheels, list):
        raise refuse(name, "its files are not listed")
    found = [_file(name, wheel) for wheel in wheels]
    yield from [one for one in found if fits(one[0], platform)] or found


def _file(name: str, about: Any) -> tuple[str, str]:
    """Return the name of a file of the index, and its hash."""
    url = about.get("url") if isinstance(about, dict) else None
    start = file_url("python", name, "")
    file = url[len(start) :] if isinstance(url, str) and url.startswith(start) else ""
    if not _FILE.fullmatch(file):
        raise refuse(name, f"it comes from {shorten(one_line(str(url)), 200)}")
    hashes = about.get("hashes")
    sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise refuse(name, f"the index gives no sha256 for {file}")
    return file, f"sha256:{sha256}"


def fits(wheel: str, platform: Platform) -> bool:
    """Whether the tags of a wheel may fit this machine. The installer decides."""
    parts = wheel.removesuffix(".whl").split("-")
    if len(parts) < 5:
        return False
    pythons, abis, systems = (part.split(".") for part in parts[-3:])
    return any(
        _python_fits(python, abi, platform.minor) for python in pythons for abi in abis
    ) and any(_system_fits(system, platform) for system in systems)


def _python_fits(python: str, abi: str, minor: int) -> bool:
    found = re.fullmatch(r"(py|cp)3(\d*)", python)
    if not found:
        return False
    number = int(found[2]) if found[2] else 0
    if abi == "none" and found[1] == "py":
        return number <= minor
    if abi == "abi3":
        return found[1] == "cp" and number <= minor
    return found[1] == "cp" and number == minor and abi in ("none", f"cp3{minor}")


def _system_fits(system: str, platform: Platform) -> bool:
    if system == "any":
        return True
    if platform.system != "linux":
        return not system.startswith(("linux", "manylinux", "musllinux", "win"))
    start = "musllinux" if platform.libc == "musl" else "manylinux"
    return system.endswith(f"_{platform.machine}") and system.startswith((start, "linux_"))


def is_sure(wheel: str, platform: Platform) -> bool:
    """Whether a wheel certainly fits this machine; `fits` leaves doubts to the installer."""
    return bool(preference(wheel, platform))


def preference(wheel: str, platform: Platform) -> tuple[int, ...]:
    """Return a rank among wheels of one version, the highest wins; empty if it may not fit.

    The order is that of all installers: for this very Python, then for the stable ABI, then for any
    Python; for a newer system before an older one, and for any system last.
    """
    parts = wheel.removesuffix(".whl").split("-")
    if len(parts) != 5:  # a build number would count too
        return ()
    pythons, abis, systems = (part.split(".") for part in parts[-3:])
    ranks = [
        (*_level(python, abi, platform.minor), *needed)
        for python in pythons
        for abi in abis
        if _python_fits(python, abi, platform.minor)
        for needed in (_needed_libc(system, platform) for system in systems)
        if needed is not None
    ]
    return max(ranks, default=())


def _level(python: str, abi: str, minor: int) -> tuple[int, int]:
    number = int(python[3:] or 0)
    return (2, 0) if abi == f"cp3{minor}" else (1, number) if abi == "abi3" else (0, 0)


def _needed_libc(system: str, platform: Platform) -> tuple[int, ...] | None:
    """Return the version of the C library that a wheel needs; None if it may not fit."""
    if system == "any":
        return (0, 0)
    if platform.system != "linux" or platform.libc != "glibc":
        return None
    old = re.fullmatch(r"manylinux(1|2010|2014)_(\w+)", system)
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", system)
    if old:
        needed, machine = _OLD_NAMES[old[1]], old[2]
    elif found:
        needed, machine = (int(found[1]), int(found[2])), found[3]
    else:
        return None
    return needed if machine == platform.machine and needed <= platform.libc_version else None


# Node.js


def read_node(data: bytes, *, fill: bool = False) -> Lock:
    """Parse a `package-lock.json`; raises RunRefused, which names the package.

    With `fill`, a package without a URL comes from the index.
    """
    try:
        whole = read_json(data)
        listed = whole["packages"]
        root = listed[""].get("dependencies") or {}
        version = whole["lockfileVersion"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _invalid_lock(error) from error
    if version not in (2, 3) or len(listed) > MAX_PACKAGES:
        raise _invalid_lock("it is not a lock of version 2 or 3, or lists too many packages")
    kept: dict[str, dict[str, Any]] = {"": _dependencies("the skill", {"dependencies": root})}
    packages: dict[str, Package] = {}
    for path, about in sorted(listed.items()):
        if path:
            kept[path], package = _node_package(path, about, kept, fill)
            if _is_for_here(about):
                packages[path] = package
    text = {"name": "skill", "version": "0.0.0", "lockfileVersion": 3, "requires": True}
    lock = json.dumps({**text, "packages": kept}, indent=1, sort_keys=True)
    return Lock("node", tuple(sorted(set(packages.values()))), lock)


def _node_package(
    path: str, about: Any, kept: Mapping[str, dict[str, Any]], fill: bool
) -> tuple[dict[str, Any], Package]:
    """Return the checked entry, and its package."""
    shown = path.rpartition("node_modules/")[2]
    if not isinstance(about, dict) or not _MODULES.fullmatch(path) or about.get("link"):
        raise refuse(shown or path, "it is a folder or a link, not a package")
    name, version = about.get("name", shown), about.get("version")
    if not isinstance(name, str) or not NODE_NAME.fullmatch(name):
        raise refuse(shown, "it has no valid name")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise refuse(shown, f"it comes from {shorten(one_line(str(about.get('resolved'))), 200)}")
    if about.get("hasShrinkwrap"):
        raise refuse(f"{name}@{version}", "it has its own lock file (npm-shrinkwrap.json)")
    entry: dict[str, Any] = {"version": version, **_dependencies(f"{name}@{version}", about)}
    if name != shown:
        entry["name"] = name
    entry |= {key: True for key in _FLAGS if about.get(key) is True}
    entry |= {key: about[key] for key in _LISTS if _is_string_list(about.get(key))}
    entry |= {key: about[key] for key in ("bin", "engines") if _is_string_map(about.get(key))}
    if about.get("inBundle") and "resolved" not in about:
        digest = _bundle_hash(path, kept)
    else:
        wanted = file_url("node", name, version)
        if about.get("resolved", wanted if fill else None) != wanted:
            where = shorten(one_line(str(about.get("resolved"))), 200)
            raise refuse(f"{name}@{version}", f"it comes from {where}")
        entry |= {"resolved": wanted, "integrity": about.get("integrity")}
        digest = _digest(f"{name}@{version}", about.get("integrity"))
    return entry, Package("node", normal("node", name), version, (digest,))


def _dependencies(what: str, about: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the requirements of a package, each for a package of the registry."""
    found = {}
    for key in _DEPENDENCIES:
        listed = about.get(key) or {}
        if not isinstance(listed, dict):
            raise refuse(what, f"its {key} are not an object")
        for name, wanted in listed.items():
            if not NODE_NAME.fullmatch(name) or not is_range(wanted):
                where = shorten(one_line(str(wanted)), 200)
                raise refuse(shorten(one_line(name), 200), f"{what} requires it from {where}")
        if listed:
            found[key] = dict(listed)
    meta = about.get("peerDependenciesMeta")
    if isinstance(meta, dict) and "peerDependencies" in found:
        optional = {
            name: {"optional": True}
            for name, one in meta.items()
            if isinstance(one, dict) and one.get("optional") is True
        }
        return {**found, "peerDependenciesMeta": optional}
    return found


def _digest(what: str, integrity: object) -> str:
    """Return the strongest hash of an integrity value; weak ones are ignored."""
    found = {}
    for one in integrity.split() if isinstance(integrity, str) else ():
        kind, _, text = one.partition("-")
        try:
            digest = base64.b64decode(text.partition("?")[0], validate=True)
        except (binascii.Error, ValueError):
            continue
        if len(digest) == _DIGITS.get(kind):
            found[kind] = digest.hex()
    if not found:
        raise refuse(what, "the registry has no hash for it stronger than sha1")
    best = max(found)
    return f"{best}:{found[best]}"


def _bundle_hash(path: str, kept: Mapping[str, dict[str, Any]]) -> str:
    """Return the hash of the package that bundles it."""
    outer = path
    while outer := outer.rpartition("/node_modules/")[0]:
        integrity = kept.get(outer, {}).get("integrity")
        if integrity:
            return _digest(outer, integrity)
    raise refuse(path.rpartition("node_modules/")[2], "no package of the registry bundles it")


def _is_for_here(about: Mapping[str, Any]) -> bool:
    """Whether a package is installed here: an optional one may be for other platforms."""
    if not about.get("optional"):
        return True
    machine = os.uname().machine
    cpu = {"x86_64": "x64", "aarch64": "arm64", "i686": "ia32"}.get(machine, machine)
    return _matches(about.get("os"), sys.platform) and _matches(about.get("cpu"), cpu)


def _matches(names: Any, own: str) -> bool:
    if not _is_string_list(names):
        return True
    if f"!{own}" in names:
        return False
    return own in names or "any" in names or all(name.startswith("!") for name in names)


def _is_string_list(value: Any) -> bool:
    return bool(isinstance(value, list) and value and all(isinstance(one, str) for one in value))


def _is_string_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
