"""Find the files of a skill that declare packages, and hold what those resolve to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from skillbelt.errors import PathEscape
from skillbelt.files.contain import read_handle
from skillbelt.files.tree import SkillTree, TreeEntry
from skillbelt.install.values import NO_VALUES, LockEntry
from skillbelt.records import NamedTuple

_BLOCK = b"# /// script"
_LISTS = ("pyproject.toml", "package.json")
_MAX_DECLARING = 50
_MAX_SCRIPT_BYTES = 256 * 2**10


class ResolvedPackages(NamedTuple):
    """The resolved packages of a skill, as the lock records them, or why they are unknown.

    Both are empty for a skill that declares none.
    """

    packages: Mapping[str, object] = NO_VALUES
    reason: str = ""


# Called with a name, a folder and what was locked before; it asks the index.
ResolvePackages = Callable[[str, str, Mapping[str, object]], ResolvedPackages]


def find_declaring(folder: str) -> list[str]:
    """Return scripts that a run would find declared packages for; "" means the whole skill.

    Those are scripts with their own block, and for each list one script that may be beside it.
    """
    try:
        with SkillTree(folder) as tree:
            entries = [one for one in tree.entries() if one.kind == "file" and not one.problem]
            blocks = [one.path for one in entries if _has_block(tree, one)]
    except (OSError, PathEscape):
        return []
    lists = [one.path for one in entries if _is_list(os.path.basename(one.path))]
    beside = [
        os.path.join(os.path.dirname(path), "main.js" if path.endswith(".json") else "main.py")
        for path in lists[:_MAX_DECLARING]
    ]
    return [*([""] if lists else ()), *beside, *blocks[:_MAX_DECLARING]]


def _is_list(name: str) -> bool:
    return name in _LISTS or (name.startswith("requirements") and name.endswith(".txt"))


def _has_block(tree: SkillTree, entry: TreeEntry) -> bool:
    if not entry.path.endswith(".py"):
        return False
    try:
        return _BLOCK in read_handle(tree.open(entry), _MAX_SCRIPT_BYTES)
    except (OSError, PathEscape):
        return False


def no_packages(name: str, folder: str, known: Mapping[str, object]) -> ResolvedPackages:
    """Ask no index; what is locked of the same content stays."""
    return ResolvedPackages()


def packages_of_same(before: LockEntry | None, after: LockEntry) -> Mapping[str, object]:
    """Return what was locked before, where the content is the same."""
    same = before is not None and before.content_digest == after.content_digest
    return before.packages if before is not None and same else NO_VALUES
