"""Convert a fetched skill to its lock entry, and an entry back to its source."""

from __future__ import annotations

import os
from collections.abc import Iterable

from skillbelt.errors import SourceError
from skillbelt.install.content_store import StoredSkill
from skillbelt.install.hashes import computed_hash
from skillbelt.install.names import typed_name
from skillbelt.install.source_syntax import OCI_LAYOUT, parse_source
from skillbelt.install.values import FetchedSkill, InstallPlace, LockEntry, SourceReference
from skillbelt.permission.rules import Request
from skillbelt.text import Lazy, one_line

# `skills` needs the URL of the first kinds to fetch them again; for the second it writes no path.
_WITH_URL = ("git", "gitlab", "well-known", "mcp", "oci", "clawhub")
_WITHOUT_PATH = ("local", "well-known")
_DIGEST = Lazy(r"sha256:[0-9a-f]{64}")


def entry_for(
    fetched: FetchedSkill,
    stored: StoredSkill,
    place: InstallPlace,
    *,
    clients: tuple[str, ...] = (),
    before: LockEntry | None = None,
) -> LockEntry:
    """Return the entry of a fetched skill; keys of the entry before that others wrote stay.

    SourceError for names of files that the hash of `skills` cannot be made of.
    """
    reference = fetched.reference
    user = place.scope == "user"
    folder_hash = computed_hash(fetched.folder, reference.source)
    source, url = portable_source(reference, place), reference.url
    if url.startswith(OCI_LAYOUT):
        url = source
    return LockEntry(
        name=fetched.name,
        source=source,
        source_type=reference.kind,
        source_url=url if user or reference.kind in _WITH_URL else "",
        ref=reference.ref,
        skill_path="" if reference.kind in _WITHOUT_PATH else fetched.skill_path,
        computed_hash=folder_hash,
        folder_hash=fetched.tree_sha if reference.kind == "github" else folder_hash,
        well_known_digest=fetched.well_known_digest,
        plugin_name=fetched.plugin_name,
        installed_at=before.installed_at if before else "",
        commit=fetched.commit,
        tree_sha=stored.tree_sha,
        content_digest=stored.content_digest,
        clients=clients,
        provenance=fetched.provenance,
        written=before.written if before else {},
    )


def portable_source(reference: SourceReference, place: InstallPlace) -> str:
    """Return the source as a lock has it: a path of this disk relative to the project."""
    path = reference.url or reference.source
    mark = OCI_LAYOUT if path.startswith(OCI_LAYOUT) else ""
    is_path = reference.kind == "local" or bool(mark)
    is_path = is_path or (reference.kind == "download" and os.path.isabs(reference.url))
    if not is_path or place.scope == "user":
        return reference.source
    relative = os.path.relpath(path.removeprefix(mark), place.base)
    here = relative == "." or relative.split("/")[0] == ".."
    return f"{mark}{relative}" if here else f"{mark}./{relative}"


def reference_of(entry: LockEntry, place: InstallPlace) -> SourceReference:
    """Return where the skill of an entry comes from; SourceError for an invalid source.

    A lock may come from a stranger: its texts are read as if they were typed.
    """
    kind = entry.source_type
    if kind == "local":
        folder = os.path.abspath(os.path.join(place.base, entry.source))
        return SourceReference(
            kind="local",
            source=entry.source,
            url=folder,
            skill="" if entry.skill_path else entry.name,
            typed=entry.source,
        )
    if kind == "node_modules":
        raise SourceError(entry.source, "was linked from an npm package, which only `skills` does")
    short = kind in ("github", "gitlab") and "://" not in entry.source and "@" not in entry.source
    shorthand = f"{kind}:{entry.source}" if short else entry.source
    found = parse_source(entry.source_url or shorthand, folder=place.base)
    return found._replace(
        source=entry.source,
        ref=entry.ref or found.ref,
        skill="" if entry.skill_path else entry.name,
    )


def scan_target(reference: SourceReference, name: str, commit: str, skill_path: str) -> str:
    """Return what `skillbelt scan` takes for one version of one skill of a source."""
    if reference.kind == "local":
        return os.path.join(reference.url, os.path.dirname(skill_path)).rstrip("/")
    if reference.kind in ("git", "github", "gitlab") and (commit or reference.ref):
        return f"{reference.url}#{commit or reference.ref}@{typed_name(name)}"
    return reference.typed or reference.source


def locked_reference(entry: LockEntry, place: InstallPlace) -> SourceReference:
    """Return where the locked version comes from: in a registry by its digest, not by its tag."""
    found = reference_of(entry, place)
    digest = entry.provenance.get("digest")
    if found.kind == "oci" and isinstance(digest, str) and _DIGEST.fullmatch(digest):
        return found._replace(ref=digest)
    return found


def install_request(entries: Iterable[LockEntry]) -> Request:
    """Return the one question about installing skills: each with its content and its source."""
    wanted = tuple(entries)
    names = ", ".join(entry.name for entry in wanted)
    what = "the skill" if len(wanted) == 1 else "the skills"
    sources = ", ".join(dict.fromkeys(_describe_source(entry) for entry in wanted))
    return Request(
        type="install",
        patterns=tuple(
            f"skill:{typed_name(entry.name)}@{entry.content_digest}" for entry in wanted
        ),
        summary=one_line(f"install {what} {names} from {sources}"),
        initiator="user",
    )


def _describe_source(entry: LockEntry) -> str:
    """Return the source of an entry, with the address that is opened if that is different.

    A lock may come from a stranger, and can give any address a good name.
    """
    url, source = entry.source_url.removesuffix(".git"), entry.source.removesuffix(".git")
    usual = (source, f"https://{source}", f"https://{entry.source_type}.com/{source}")
    return entry.source if not url or url in usual else f"{entry.source} ({entry.source_url})"


def stored_of(entry: LockEntry) -> StoredSkill | None:
    """Return the store key of an entry; None for an entry that another tool wrote."""
    if not entry.content_digest or not entry.tree_sha:
        return None
    return StoredSkill(entry.content_digest, entry.tree_sha)
