"""The values that the parts of an installation pass to each other. All are frozen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from skillbelt.records import NamedTuple

# As `skills` writes them into a lock; it does not know the last four kinds, and a
# marketplace only leads to a source of another kind.
SourceKind = Literal[
    "github",
    "gitlab",
    "git",
    "local",
    "well-known",
    "download",
    "node_modules",
    "mcp",
    "oci",
    "clawhub",
    "marketplace",
]
InstallScope = Literal["project", "user"]
ChangeAction = Literal["install", "replace", "remove", "link", "unlink", "keep"]
# What differs between the lock and the disk. `rewritten`: another tool changed the entry.
DriftKind = Literal[
    "missing",
    "missing-file",
    "extra-file",
    "changed-file",
    "changed-mode",
    "changed-link",
    "unsafe",
    "not-locked",
    "rewritten",
    "no-digest",
    "client-link",
    "packages",
    "policy",
]

NO_VALUES: Mapping[str, object] = MappingProxyType({})


class SourceReference(NamedTuple):
    """A source of a skill, as the user typed it or as a lock records it.

    `source` is the text that the lock has (`owner/repo`, a URL, `./folder`), `url` what is opened:
    the URL of a clone or a download, or an absolute folder. `subpath` is a folder below the source,
    `skill` the name of the one that is wanted, "" for all.
    """

    kind: SourceKind
    source: str
    url: str = ""
    ref: str = ""
    subpath: str = ""
    skill: str = ""
    typed: str = ""


class FetchedSkill(NamedTuple):
    """A skill in a private folder outside every folder that is searched for skills.

    `skill_path` is its SKILL.md below the source, with `/`. `commit` and `tree_sha` are 40 or 64
    hex digits, "" where the source has none. `provenance` says where it came from, as it is put
    into the lock.
    """

    name: str
    folder: str
    reference: SourceReference
    skill_path: str = "SKILL.md"
    commit: str = ""
    tree_sha: str = ""
    well_known_digest: str = ""
    plugin_name: str = ""
    provenance: Mapping[str, object] = NO_VALUES


class LockEntry(NamedTuple):
    """One skill of a lock file. Empty values are not written.

    `computed_hash` is the hash of `skills` over the source folder, `folder_hash` the
    `skillFolderHash` of a user's lock. `content_digest` covers what is installed, `clients` are
    the other clients that get a link to it. `written` is the entry as the file has it: its order
    and the keys that this version does not know.
    """

    name: str
    source: str
    source_type: str
    source_url: str = ""
    ref: str = ""
    skill_path: str = ""
    computed_hash: str = ""
    folder_hash: str = ""
    well_known_digest: str = ""
    plugin_name: str = ""
    installed_at: str = ""
    updated_at: str = ""
    commit: str = ""
    tree_sha: str = ""
    content_digest: str = ""
    clients: tuple[str, ...] = ()
    packages: Mapping[str, object] = NO_VALUES
    scan: Mapping[str, object] = NO_VALUES
    provenance: Mapping[str, object] = NO_VALUES
    unsigned: bool = False
    written: Mapping[str, object] = NO_VALUES


class InstallPlace(NamedTuple):
    """A place where skills are installed: a project or the user's home.

    `skills` is the folder of the copies, `lock` the lock file, `base` the folder that links of
    other clients and local sources are relative to.
    """

    scope: InstallScope
    base: str
    skills: str
    lock: str

    def command(self, words: str) -> str:
        """Return what to type for this place, as advice shows it."""
        name, blank, rest = words.partition(" ")
        return f"`skillbelt {name}{' -g' if self.scope == 'user' else ''}{blank}{rest}`"


class Installed(NamedTuple):
    """A skill in its place, and the folders of other clients that lead to it or hold a copy."""

    name: str
    folder: str
    content_digest: str
    links: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


class Drift(NamedTuple):
    """One difference between the lock and the disk, and what to do about it."""

    name: str
    kind: DriftKind
    path: str
    message: str
    remedy: str = ""


class PlannedChange(NamedTuple):
    """One change of the disk. `before` and `after` are content digests, "" for nothing there.

    `edited` are the files with local edits that stay in the new version.
    """

    action: ChangeAction
    name: str
    path: str
    before: str = ""
    after: str = ""
    reason: str = ""
    edited: tuple[str, ...] = ()
