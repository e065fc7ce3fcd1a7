"""Fetch skills from any kind of source into a private folder: the single entry point."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from skillbelt.discovery.sources.bounds import Deadline, PullBudget, Refusal
from skillbelt.discovery.sources.failure import SourceFailure, redact
from skillbelt.errors import SourceError, closest
from skillbelt.install import git
from skillbelt.install.content_store import remedy_of
from skillbelt.install.find_skills import (
    FoundSkill,
    SkippedSkill,
    SourceSkills,
    choose_skills,
    find_skills,
    read_skill,
)
from skillbelt.install.git import GitFetch, GitTree, RedirectedRepository, fetch_tree, scheme_of
from skillbelt.install.names import typed_name
from skillbelt.install.source_tree import FolderTree, SourceTree, export_skill, join
from skillbelt.install.values import FetchedSkill, SourceReference
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.text import shell_word
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt.install import marketplaces
else:
    marketplaces = Late("skillbelt.install.marketplaces")  # cost: 1 ms, only for plugins

Progress = Callable[[str], None]
_GIT_KINDS = ("github", "gitlab", "git")
_PULLED = ("well-known", "download", "mcp")
_MAX_NAMED = 12
_LATEST = 253_402_300_799  # the last second of the year 9999


class OpenSource(NamedTuple):
    """A source whose skills are known, and from which each can be copied.

    Everything is written below `into`, a folder of the caller.
    """

    reference: SourceReference
    tree: SourceTree
    found: SourceSkills
    into: str
    budget: PullBudget
    commit: str = ""
    digests: Mapping[str, str] = {}
    provenance: Mapping[str, object] = {}

    def choose(self, names: Iterable[str]) -> list[FoundSkill]:
        """Return the skills with these names; raise SourceFailure for a name that none has."""
        wanted = list(names)
        chosen = choose_skills(self.found.skills, wanted)
        for name in wanted:
            if name != "*" and not choose_skills(chosen, [name]):
                self.tree.rest()
                raise self._refuse_name(name)
        return chosen

    def take_alone(self, skill: FoundSkill) -> FetchedSkill:
        """Copy one skill, and leave nothing running."""
        try:
            return self.take(skill)
        finally:
            self.tree.rest()

    def take(self, skill: FoundSkill) -> FetchedSkill:
        """Copy one skill into a separate folder; raises SourceFailure.

        The source stays open: the caller ends with `tree.rest()`.
        """
        # The folder has the name of the skill, since the checks compare both.
        name = typed_name(skill.name)
        folder = os.path.join(self.into, f"{len(os.listdir(self.into))}-taken", name)
        os.makedirs(folder, 0o700)
        source = redact(self.reference.url or self.reference.source)
        if self.reference.kind == "mcp":
            whole = FolderTree(_load("pulled").fetch_listed(self.tree, skill, source))
            export_skill(whole, "", folder, source=source, budget=self.budget)
        else:
            export_skill(self.tree, skill.folder, folder, source=source, budget=self.budget)
        tree_sha = self.tree.tree_of(skill.folder) if isinstance(self.tree, GitTree) else ""
        return FetchedSkill(
            name=skill.name,
            folder=folder,
            reference=self.reference,
            skill_path=skill.skill_path,
            commit=self.commit,
            tree_sha=tree_sha,
            well_known_digest=self.digests.get(skill.folder, ""),
            plugin_name=skill.plugin,
            provenance=self.provenance,
        )

    def _refuse_name(self, name: str) -> SourceFailure:
        known = [skill.name for skill in self.found.skills]
        near = closest(name, known)
        word = shell_word(self.reference.typed or self.reference.source)
        there = f"it has {', '.join(known[:_MAX_NAMED])}" if known else "it has no skill"
        if near:
            there = f"did you mean {' or '.join(map(repr, near))}?"
        return SourceFailure(
            self.reference.source,
            f"has no skill {name!r}; {there}",
            code="source-no-skill",
            remedy=f"`skillbelt add {word} --list` shows all of them",
        )


def fetch_skills(
    reference: SourceReference,
    settings: Settings,
    into: str,
    *,
    commit: str = "",
    skill_path: str = "",
    progress: Progress | None = None,
) -> tuple[FetchedSkill, ...]:
    """Fetch the skills of a source into the private folder `into`; raise SourceError if it fails.

    `commit` is the only one that may come. `skill_path` is the SKILL.md that is wanted, otherwise
    the reference says which skill, or all.
    """
    source = open_source(
        reference, settings, into, commit=commit, skill_path=skill_path, progress=progress
    )
    chosen = source.choose([reference.skill or "*"]) if not skill_path else source.found.skills
    try:
        return tuple(source.take(skill) for skill in chosen)
    finally:
        source.tree.rest()


def open_source(
    reference: SourceReference,
    settings: Settings,
    into: str,
    *,
    commit: str = "",
    skill_path: str = "",
    wanted: Iterable[str] = (),
    progress: Progress | None = None,
) -> OpenSource:
    """Fetch what is needed to know the skills of a source. Raises SourceError.

    With `wanted` names, skills that have none of them need not be among those that are found, and
    the source stays open for `take`. Without them a choice may follow, and nothing is left running.
    """
    if reference.kind == "marketplace":
        found = marketplaces.resolve_plugin(reference, settings)
        reference, commit = found.reference, commit or found.commit
    say, names = progress or (lambda _: None), tuple(wanted)
    try:
        opened = _open_reference(reference, settings, into, commit, say)
        skills = SourceSkills(())
        try:
            skills = _find(opened.tree, reference, skill_path, names)
        finally:
            if not (names and skills.skills):
                opened.tree.rest()
    except Refusal as error:
        raise SourceFailure(
            reference.source, str(error), code="remote-too-large", remedy="give a part of it"
        ) from error
    except SourceError as error:
        error.remedy = remedy_of(error)
        raise
    if not skills.skills:
        raise _refuse_empty(reference, skills)
    return opened._replace(found=skills)


def _find(
    tree: SourceTree, reference: SourceReference, skill_path: str, wanted: Iterable[str]
) -> SourceSkills:
    if skill_path:
        folder = join(skill_path).rpartition("/")[0]
        if not tree.is_file(join(folder, SKILL_FILE)):
            return SourceSkills((), (SkippedSkill(skill_path, "it is no longer there"),))
        skill = read_skill(tree, folder)
        if isinstance(skill, SkippedSkill):
            return SourceSkills((), (skill,))
        return SourceSkills((skill,))
    return find_skills(tree, reference.subpath, internal=bool(reference.skill), wanted=wanted)


def _refuse_empty(reference: SourceReference, found: SourceSkills) -> SourceFailure:
    why = "; ".join(f"{one.path}: {one.reason}" for one in found.skipped[:3])
    where = f" in {reference.subpath!r}" if reference.subpath else ""
    if reference.kind == "local" and _is_bare(reference.url):
        address = shell_word(f"file://{reference.url}")
        return SourceFailure(
            reference.source,
            "is a repository without files",
            code="source-no-skill",
            remedy=f"`skillbelt add {address}` reads its commits",
        )
    return SourceFailure(
        reference.source,
        f"no skill was found{where}" + (f" ({why})" if why else ""),
        code="source-no-skill",
        remedy=f"a skill is a folder with a {SKILL_FILE} that has a name and a description",
    )


def _open_reference(
    reference: SourceReference, settings: Settings, into: str, commit: str, say: Progress
) -> OpenSource:
    if reference.kind == "local":
        return _open_folder(reference, reference.url, into)
    if settings.offline and not os.path.exists(reference.url):
        raise SourceFailure(
            reference.source,
            "the setting offline allows no request",
            code="remote-offline",
            remedy="set offline = false, or give a folder or an archive of this machine",
        )
    if reference.kind in _GIT_KINDS:
        folder = git.local_repository(reference.url)
        if folder and os.path.isdir(folder) and not _is_repository(folder):
            return _open_folder(reference, folder, into)
        return _open_git(reference, settings, into, commit, say)
    if reference.kind in _PULLED:
        say(f"fetching {redact(reference.url)}")
        pulled = _load("pulled").pull_source(reference, settings, into)
        return _make_source(pulled.reference, FolderTree(pulled.folder), into)._replace(
            digests=pulled.digests
        )
    if reference.kind in ("oci", "clawhub"):
        say(f"fetching {reference.source}")
        fetched = _load("online").fetch(reference, settings, into)
        return _make_source(reference, FolderTree(fetched.folder), into)._replace(
            provenance=fetched.provenance
        )
    raise SourceFailure(
        reference.source,
        f"skills of the kind {reference.kind!r} are not fetched",
        code="source-syntax",
        remedy="give the address that they are published at",
    )


def _make_source(reference: SourceReference, tree: SourceTree, into: str) -> OpenSource:
    deadline = Deadline(reference.source, git.GIT_TIMEOUT_SECONDS)
    return OpenSource(
        reference=reference,
        tree=tree,
        found=SourceSkills(()),
        into=into,
        budget=PullBudget(deadline),
    )


def _open_folder(reference: SourceReference, folder: str, into: str) -> OpenSource:
    if os.path.basename(folder) == SKILL_FILE and os.path.isfile(folder):
        folder = os.path.dirname(folder)
        reference = reference._replace(source=folder, url=folder)
    if not os.path.isdir(folder):
        raise SourceFailure(
            reference.source,
            "there is no such folder",
            code="source-unreadable",
            remedy="check the path; a repository on GitHub is written owner/repo",
        )
    return _make_source(reference, FolderTree(folder), into)


def _is_repository(folder: str) -> bool:
    return _is_bare(folder) or os.path.exists(os.path.join(folder, ".git"))


def _is_bare(folder: str) -> bool:
    return all(os.path.exists(os.path.join(folder, part)) for part in ("HEAD", "objects"))


# --- git -----------------------------------------------------------------------------------------


def _open_git(
    reference: SourceReference, settings: Settings, into: str, commit: str, say: Progress
) -> OpenSource:
    deadline = Deadline(reference.source, git.GIT_TIMEOUT_SECONDS)
    wanted = GitFetch(url=reference.url, ref=reference.ref, commit=commit)
    say(f"fetching {redact(reference.url)}")
    for number, one in enumerate(_list_addresses(wanted, settings, deadline)):
        folder = os.path.join(into, f"git-{number}")
        os.mkdir(folder, 0o700)
        try:
            tree = fetch_tree(one, folder, deadline)
            break
        except RedirectedRepository:
            if number:
                raise
    return _make_source(reference, tree, into)._replace(
        commit=tree.commit, budget=PullBudget(deadline), provenance=_make_provenance(tree)
    )


def _make_provenance(tree: GitTree) -> Mapping[str, object]:
    if not tree.time:
        return {}
    when = time.gmtime(min(tree.time, _LATEST))
    return {"committedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", when)}


def _list_addresses(wanted: GitFetch, settings: Settings, deadline: Deadline) -> Iterator[GitFetch]:
    """Yield the address with its host checked, then the one that its server redirects to.

    Git's own redirects are off: it would follow them to any host.
    """
    if scheme_of(wanted.url) not in ("http", "https"):
        # ssh identifies hosts by their keys, and resolves aliases from its configuration.
        yield wanted
        return
    online, private = _load("online"), settings.private_sources
    yield wanted._replace(resolved=online.pin_host(wanted.url, private))
    target = online.redirected(wanted.url, private, settings.limits, deadline)
    pinned = online.pin_host(target, private, source=wanted.url)
    yield wanted._replace(url=target, resolved=pinned)


def _load(name: Literal["online", "pulled"]) -> ModuleType:
    """Return a module that a repository on this disk does not need: httpx2 alone takes 60 ms."""
    return import_module(f"skillbelt.install.{name}")
