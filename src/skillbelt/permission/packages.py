"""Packages as values: how one is named, what a lock holds, where an environment of them lies.

Nothing here reads a file. `lockfiles` reads locks, `environments` makes what they say.
"""

from __future__ import annotations

import os
import re
from typing import Literal, NamedTuple

Kind = Literal["python", "node"]
# The folder of all environments, and the names of what lies there beside them.
FOLDER, HALF_MADE, LOCK = "environments", ".part-", ".lock"
# Of our own making in an environment: nothing of a package is in there.
INTERPRETER = "interpreter"
# What stands before the name of a skill that is to be installed; a package has no such name.
SKILL_PREFIX = "skill:"
_NAMED = re.compile(r"(@?[^@=<>!~;\[(\s]*)(.*)", re.DOTALL)


class Package(NamedTuple):
    """One package that will come, by its one spelling; `hashes` are like `sha256:00ff`."""

    kind: Kind
    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it is asked for, and as rules are matched with it."""
        sign = "==" if self.kind == "python" else "@"
        return " ".join((f"{self.name}{sign}{self.version}", *self.hashes))


class Lock(NamedTuple):
    """All packages that will be installed, and the same as the installer's input."""

    kind: Kind
    packages: tuple[Package, ...]
    text: str


class LockedPackages(NamedTuple):
    """What the lock of a skill says that the requirements of one of its files come to.

    `packages` have the hashes of all platforms; `text` is the lock for npm.
    """

    kind: Kind
    requirements: tuple[str, ...]
    packages: tuple[Package, ...]
    text: str = ""


class Environment(NamedTuple):
    """Where the packages lie, what they are, and the hash of what was asked for."""

    path: str
    hash: str
    installed: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> str:
        """The folder with the packages for Node.js; "" when these are for Python."""
        node = os.path.join(self.path, "node_modules")
        return node if os.path.isdir(node) else ""

    @property
    def bin(self) -> str:
        """The folder with the programs of the packages."""
        return f"{self.modules}/.bin" if self.modules else f"{self.path}/bin"

    @property
    def interpreter(self) -> str:
        """The folder with the interpreter and nothing else; "" for Node.js, which has none."""
        return "" if self.modules else os.path.join(self.path, INTERPRETER)


def normal(kind: Kind, name: str) -> str:
    """The one spelling of a name."""
    return re.sub(r"[-_.]+", "-", name).lower() if kind == "python" else name.lower()


def asked_texts(text: str) -> tuple[str, ...]:
    """What a package that is asked for is matched as; without a version it may be of either kind"""
    name, equals, rest = text.partition("==")
    if equals:
        return (f"{normal('python', name)}{equals}{rest}",)
    name, at, rest = text[1:].partition("@")
    node = normal("node", text[:1] + name)
    if at:
        return (f"{node}{at}{rest}",)
    return tuple(dict.fromkeys((normal("python", text), node)))


def rule_patterns(pattern: str, *, allows: bool) -> tuple[str, ...]:
    """What a rule for packages is matched as: by the name, however that is spelled.

    A name alone means every version of it. A range of versions is never what comes; so it allows
    nothing, and stands for the name where it does not allow.
    """
    if pattern == f"{SKILL_PREFIX}*":
        return (f"{SKILL_PREFIX}?*",)  # as it stands, `:*` at the end means a command's arguments
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
    if head.endswith("*"):  # it matches any suffix of the name
        return tuple(dict.fromkeys((python, node)))
    return tuple(dict.fromkeys((python, f"{python}==*", node, f"{node}@*")))
