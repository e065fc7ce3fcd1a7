"""Packages as values: names, locks, and the folders of their environments.

Nothing here reads a file. `lockfiles` reads locks, `environments` installs from them.
"""

from __future__ import annotations

import os
import re
from typing import Literal

from skillbelt.records import NamedTuple

Kind = Literal["python", "node"]
# The folder of all environments, and the names of other files in it.
FOLDER, HALF_MADE, LOCK = "environments", ".part-", ".lock"
# The part of an environment that we create; packages have no files in it.
INTERPRETER = "interpreter"
# The prefix of a skill that is to be installed; no package name has it.
SKILL_PREFIX = "skill:"
_NAMED = re.compile(r"(@?[^@=<>!~;\[(\s]*)(.*)", re.DOTALL)


class Package(NamedTuple):
    """One package to install, with its name in normal form; `hashes` are like `sha256:00ff`."""

    kind: Kind
    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text of the request, as rules are matched against it."""
        sign = "==" if self.kind == "python" else "@"
        return " ".join((f"{self.name}{sign}{self.version}", *self.hashes))


class Lock(NamedTuple):
    """All packages that will be installed, and the same as the installer's input."""

    kind: Kind
    packages: tuple[Package, ...]
    text: str


class LockedPackages(NamedTuple):
    """The packages that a skill's lock gives for the requirements of one of its files.

    `packages` have the hashes of all platforms; `text` is the lock for npm.
    """

    kind: Kind
    requirements: tuple[str, ...]
    packages: tuple[Package, ...]
    text: str = ""


class Environment(NamedTuple):
    """The folder of the installed packages, the packages, and the hash of the request."""

    path: str
    hash: str
    installed: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> str:
        """The folder with the packages for Node.js; "" for Python."""
        node = os.path.join(self.path, "node_modules")
        return node if os.path.isdir(node) else ""

    @property
    def bin(self) -> str:
        """The folder with the programs of the packages."""
        return f"{self.modules}/.bin" if self.modules else f"{self.path}/bin"

    @property
    def interpreter(self) -> str:
        """The folder that holds only the interpreter; "" for Node.js, which has none."""
        return "" if self.modules else os.path.join(self.path, INTERPRETER)


def normal(kind: Kind, name: str) -> str:
    """Return a name in normal form."""
    return re.sub(r"[-_.]+", "-", name).lower() if kind == "python" else name.lower()


def asked_texts(text: str) -> tuple[str, ...]:
    """Return the texts that rules are matched against; without a version it may be either kind."""
    name, equals, rest = text.partition("==")
    if equals:
        return (f"{normal('python', name)}{equals}{rest}",)
    name, at, rest = text[1:].partition("@")
    node = normal("node", text[:1] + name)
    if at:
        return (f"{node}{at}{rest}",)
    return tuple(dict.fromkeys((normal("python", text), node)))


def rule_patterns(pattern: str, *, allows: bool) -> tuple[str, ...]:
    """Return the patterns of a rule for packages, with names in normal form.

    A name alone means every version. Only exact versions are installed, so an allow rule for a
    range matches nothing, and a deny or ask rule for one counts for every version.
    """
    if pattern == f"{SKILL_PREFIX}*":
        return (f"{SKILL_PREFIX}?*",)  # else a final `:*` would mean a command's arguments
    found = _NAMED.fullmatch(pattern.removesuffix(":*") if pattern != ":*" else pattern)
    head, rest = found.groups() if found else (pattern, "")
    rest = rest.strip()
    python, node = normal("python", head), normal("node", head)
    if rest.startswith("==") and not rest.startswith("==="):
        exact = f"{python}=={rest[2:].strip()}"
        return exact, f"{exact} *"
    if rest.startswith("@"):
        exact = f"{node}@{rest[1:].strip()}"
        return exact, f"{exact} *"
    if rest not in ("", "*") and allows:
        return ()
    if head.endswith("*"):  # the wildcard also matches the version
        return tuple(dict.fromkeys((python, node)))
    return tuple(dict.fromkeys((python, f"{python}==*", node, f"{node}@*")))
