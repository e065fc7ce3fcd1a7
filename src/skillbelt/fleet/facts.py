"""The capabilities of a machine, as a value, and the Ray resources that announce them.

Does not import Ray. A resource says that a node can do something, not how often: processors, memory
and GPUs bound how much runs at once. So each has `UNITS`, of which a run takes `SHARE`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from glob import glob
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from skillbelt import __version__
from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox import registry
from skillbelt.sandbox.linux import cgroups
from skillbelt.sandbox.linux.identity import interpreter, trusted_program
from skillbelt.sandbox.wasm.interpreters import is_python_built
from skillbelt.settings import USER_ONLY, Settings
from skillbelt.text import one_line
from skillbelt.untrusted_json import BadJson, read_json

UNITS, SHARE = 1000.0, 0.001
PRODUCT = "skillbelt"
VERSION_LABEL, SETTINGS_LABEL, START_LABEL = (
    "skillbelt-version",
    "skillbelt-settings",
    "skillbelt-start",
)
PYTHON = "python"
# Interpreters of skill scripts, besides Python. Each prints its version.
INTERPRETERS = ("bash", "node", "deno", "bun", "ruby", "perl", "php", "Rscript", "java", "go")
_VERSION = re.compile(r"\d+(?:\.\d+){1,3}|\d+")
# Scripts name two numbers of these versions, and one of the others.
_BY_TWO_NUMBERS = (PYTHON, "ruby")
_PROBE_SECONDS = 10.0
# Without a built interpreter, each run of Python would fail.
_UNPROVED = (
    "its interpreter of Python is not built here; `skillbelt doctor --sandbox` builds and attacks "
    "it, then join again"
)
# Settings of one machine: its folders, its programs, and how it is used.
_OWN = frozenset(
    ("cache_dir", "container_engine", "executor", "host_roots", "mcp_commands", "model",
     "program_folders", "ray_address", "secrets_store", "state_dir")
)  # fmt: skip
# Settings that only some machines have: the head needs neither, a node needs no store. Machines
# that have one must agree.
_WHERE_SET = frozenset(("objects", "store"))
_NOT_LABEL = re.compile(r"[^A-Za-z0-9._-]")


class SandboxFact(NamedTuple):
    """A sandbox of a machine: its level, and why it cannot be used there; "" when it can."""

    name: str
    level: int
    reason: str = ""

    @property
    def works(self) -> bool:
        """Whether runs can use it, and it enforces something."""
        return not self.reason and self.level > 0


class NodeFacts(NamedTuple):
    """The capabilities of a machine.

    `settings` has a digest of each setting that must agree, by name. `auto` is the sandbox of a run
    there that names none; "" when none works.
    """

    version: str
    python: str
    system: str
    processors: float
    memory_bytes: int
    gpus: int
    sandboxes: tuple[SandboxFact, ...]
    auto: str
    memory_limited: bool
    interpreters: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def settings_digest(self) -> str:
        """Return one digest of all settings that must agree on every node."""
        shared = {name: one for name, one in self.settings.items() if name not in _WHERE_SET}
        return _digest(dict(sorted(shared.items())))

    def resources(self) -> dict[str, float]:
        """Return the Ray resources that announce these facts."""
        names = [PRODUCT, *(f"{PRODUCT}_sandbox_{one.name}" for one in self.sandboxes if one.works)]
        if self.auto:
            names.append(f"{PRODUCT}_sandbox_{registry.AUTO}")
        for name, version in self.interpreters.items():
            names += [f"{PRODUCT}_{name}", f"{PRODUCT}_{name}{_shorten(name, version)}"]
        return dict.fromkeys(names, UNITS)

    def labels(self) -> dict[str, str]:
        """Return the Ray labels with the version of the product and the digest of the settings."""
        return {
            VERSION_LABEL: label_of(self.version),
            SETTINGS_LABEL: self.settings_digest,
        }

    def to_json(self) -> dict[str, object]:
        """Return it as plain values, for another machine or for --json."""
        return {
            **self._asdict(),
            "sandboxes": [{**one._asdict(), "works": one.works} for one in self.sandboxes],
            "interpreters": dict(self.interpreters),
            "settings": dict(self.settings),
            "settings_digest": self.settings_digest,
            "resources": self.resources(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> NodeFacts:
        """Return the facts that `to_json` wrote; ValueError for any other document."""
        try:
            values = {name: document[name] for name in cls._fields}
            listed = values.pop("sandboxes")
            if not isinstance(listed, list):
                raise TypeError("sandboxes is not a list")
            found = tuple(
                SandboxFact(name=one["name"], level=one["level"], reason=one["reason"])
                for one in listed
            )
            return cls(sandboxes=found, **values)  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise ValueError(f"no facts of a node: {error}") from error


def read_facts(text: str) -> NodeFacts:
    """Return the facts that another machine sent as JSON; ValueError when they are invalid."""
    try:
        document = read_json(text)
    except BadJson as error:
        raise ValueError(f"no facts of a node: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("no facts of a node: no object")
    return NodeFacts.from_json(document)


def label_of(version: str) -> str:
    """Return a version as a Ray label."""
    return _NOT_LABEL.sub("-", version)


def needs_of(sandbox: str = registry.AUTO, interpreters: Iterable[str] = ()) -> dict[str, float]:
    """Return the Ray resources that a run needs: a sandbox and interpreters, by their names.

    An interpreter may have a version: `python3.11`, `node22`.
    """
    names = [PRODUCT, f"{PRODUCT}_sandbox_{sandbox}", *(f"{PRODUCT}_{one}" for one in interpreters)]
    return dict.fromkeys(names, SHARE)


def find_facts(settings: Settings) -> NodeFacts:
    """Examine this machine: try every sandbox, and ask every interpreter for its version."""
    return NodeFacts(
        version=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processors=_processors(),
        memory_bytes=_memory_bytes(),
        gpus=len(glob("/proc/driver/nvidia/gpus/*")),
        sandboxes=_sandboxes(settings),
        auto=_find_auto(settings),
        memory_limited=cgroups.hierarchy() is not None,
        interpreters=_interpreters(),
        settings=settings_digests(settings),
    )


def settings_digests(settings: Settings) -> dict[str, str]:
    """Return a digest of each setting that must be the same on every node, by its name.

    A digest shows that two values differ, without the value. Passwords in URLs are ignored.
    """
    values: dict[str, object] = {**settings._asdict(), **settings.limits._asdict()}
    left_out = _OWN | {name for name in _WHERE_SET if not values[name]}
    names = sorted((USER_ONLY - left_out | {"offline", "require_load"}) & set(values))
    return {name: _digest(_without_password(values[name])) for name in names}


def differing(facts: Mapping[str, NodeFacts]) -> list[str]:
    """Return the differences between nodes that should be alike, one sentence for each."""
    found = []
    for what in ("version", "python"):
        by_value: dict[str, list[str]] = {}
        for node, one in facts.items():
            by_value.setdefault(str(getattr(one, what)), []).append(node)
        if len(by_value) > 1:
            shown = "; ".join(f"{value} on {', '.join(on)}" for value, on in by_value.items())
            label = PRODUCT if what == "version" else "Python"
            found.append(f"the versions of {label} differ: {shown}")
    names = sorted({name for one in facts.values() for name in one.settings})
    for name in names:
        by_digest: dict[str, list[str]] = {}
        for node, one in facts.items():
            if name in one.settings or name not in _WHERE_SET:
                by_digest.setdefault(one.settings.get(name, "absent"), []).append(node)
        if len(by_digest) > 1:
            groups = " / ".join(", ".join(on) for on in by_digest.values())
            found.append(f"the setting {name} differs: {groups}")
    return found


def _sandboxes(settings: Settings) -> tuple[SandboxFact, ...]:
    found = []
    for sandbox in registry.sandboxes(settings, install=install_tools):
        reason = sandbox.unavailable()
        if reason is None and sandbox.name == registry.WASM and not is_python_built(settings):
            reason = _UNPROVED
        sandbox.close()
        text = "" if reason is None else one_line(reason)
        found.append(SandboxFact(name=sandbox.name, level=sandbox.level, reason=text))
    return tuple(found)


def _find_auto(settings: Settings) -> str:
    for sandbox in registry.auto_sandboxes(settings):
        if sandbox.unavailable() is None:
            return sandbox.name
    return ""


def _interpreters() -> dict[str, str]:
    """Return the version of each interpreter that runs can start, by its name."""
    found = {}
    python = interpreter()
    if python is not None:
        found[PYTHON] = _version_of(python.path)
    for name in INTERPRETERS:
        path = trusted_program(name)
        if path is not None:
            found[name] = _version_of(path, "version" if name == "go" else "--version")
    return found


def _version_of(path: str, option: str = "--version") -> str:
    """Return the version that a program of the system prints; "" when it prints none."""
    try:
        done = subprocess.run(
            [path, option],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = _VERSION.findall((done.stdout or done.stderr).decode("utf-8", "replace"))
    return max(said[:3], key=lambda one: "." in one, default="")


def _shorten(name: str, version: str) -> str:
    """Return the part of a version that scripts name: 3.11 of Python, 22 of Node."""
    return ".".join(version.split(".")[: 2 if name in _BY_TWO_NUMBERS else 1])


def _processors() -> float:
    """Return how many processors this process may use: its CPU affinity, or its cgroup's quota."""
    bound = getattr(os, "sched_getaffinity", None)
    found = float(len(bound(0)) if bound else os.cpu_count() or 1)
    words = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdecimal() and int(words[1]):
        found = min(found, int(words[0]) / int(words[1]))
    return found


def _memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, or the limit of its cgroup."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _first_line("/sys/fs/cgroup/memory.max")
    return min(total, int(limit)) if limit.isdecimal() else total


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _without_password(value: object) -> object:
    if not isinstance(value, str) or "://" not in value:
        return value
    parts = urlsplit(value)
    if "@" not in parts.netloc:
        return value
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
