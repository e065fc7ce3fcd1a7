"""The catalogue: every skill from every root, merged by precedence, and kept up to date."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from skillbelt.discovery import sources
from skillbelt.discovery.clients import Root, fence_of, local_roots
from skillbelt.discovery.index import Index, MemoryIndex, SqliteIndex
from skillbelt.discovery.scan import Progress, Scan, scan
from skillbelt.discovery.watch import ticks
from skillbelt.errors import (
    ConfigError,
    SkillDisabled,
    SkillNotFound,
    closest,
    log_warning,
)
from skillbelt.format.bounds import (
    DERIVED_DESCRIPTION_CHARS,
    FIRST_READ_BYTES,
    MAX_FRONTMATTER_BYTES,
    MAX_YAML_ALIASES,
    MAX_YAML_DEPTH,
)
from skillbelt.format.skill import Skill, Skills
from skillbelt.records import NamedTuple
from skillbelt.settings import (
    Settings,
    file_stamps,
    load_settings,
    reload_settings,
    resolve,
    split_place,
    watched_files,
)
from skillbelt.trust import Trust, trust_command
from skillbelt.values import SKILL_FILE, Diagnostic, Scope, SkillSettings

if TYPE_CHECKING:
    from skillbelt.search.engine import Searcher
    from skillbelt.search.protocol import Result

# A scan this fast is repeated for every request.
_CHEAP_SECONDS = 0.1
# The share of time that repeated slow scans may take: a listing in each turn of a conversation must
# not occupy a core.
MAX_SCAN_SHARE = 0.05
# Warnings about a SKILL.md whose frontmatter could not be read: only its text is used.
_UNREADABLE = ("file-empty", "frontmatter-missing", "frontmatter-unclosed", "yaml-unreadable")
# Whether an agent (None: any) may use a skill at all.
Permit = Callable[[str | None, Skill], bool]


class Changes(NamedTuple):
    """The changes that a refresh found, by name.

    `broken` has the problem of each SKILL.md that can no longer be read, with the remedy; `fixed`
    are the files that can be read again.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    broken: tuple[Diagnostic, ...] = ()
    fixed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self)


class Snapshot(Skills):
    """The result of one scan: the skills in name order, those they shadow, and the diagnostics.

    `disabled` are the skills that the settings switch off, with the place that does; they are in no
    other field. A later scan with the same result returns the same object, so that values derived
    from it stay cached.
    """

    __slots__ = ("diagnostics", "disabled", "shadowed")

    def __init__(
        self,
        skills: Mapping[str, Skill],
        shadowed: tuple[Skill, ...] = (),
        diagnostics: tuple[Diagnostic, ...] = (),
        disabled: Mapping[str, tuple[Skill, str]] = MappingProxyType({}),
    ) -> None:
        super().__init__(skills)
        self.shadowed, self.diagnostics, self.disabled = shadowed, diagnostics, disabled

    def missing(self, name: str, admits: Callable[[Skill], bool] | None = None) -> SkillNotFound:
        """Return the error for a name that no skill has.

        Its hints name only skills that `admits` accepts.
        """
        switched_off, where = self.disabled.get(name, (None, ""))
        if switched_off is not None and (admits is None or admits(switched_off)):
            return SkillDisabled(name, where)
        return SkillNotFound(
            name, [known for known, one in self.items() if admits is None or admits(one)]
        )

    @property
    def broken(self) -> Mapping[str, Diagnostic]:
        """The problem of each SKILL.md that cannot be read, by its path."""
        return self.derive("broken", lambda: dict(_find_broken(self.diagnostics)))

    def same_as(self, other: Snapshot | None) -> bool:
        """Whether nothing differs, not even a diagnostic."""
        return (
            other is not None
            and self.diagnostics == other.diagnostics
            and self.shadowed == other.shadowed
            and self.disabled == other.disabled
            and self == other
        )


def _find_broken(diagnostics: Iterable[Diagnostic]) -> Iterator[tuple[str, Diagnostic]]:
    for one in diagnostics:
        named = os.path.basename(one.path).lower() == SKILL_FILE.lower()
        if named and (one.severity == "error" or one.code in _UNREADABLE):
            yield one.path, one


class Filters(NamedTuple):
    """Filters for a search; skills that they exclude have no influence on it.

    `agent` selects those that a model working as this agent may see ("" for any agent), None all
    that are not hidden. `scopes` are the scopes to search, none for all; `keep` is the caller's own
    filter.
    """

    agent: str | None = None
    scopes: tuple[Scope, ...] = ()
    keep: Callable[[Skill], bool] | None = None


EVERYTHING = Filters()


class Catalog(Mapping[str, Skill]):
    """Every skill by name. Nothing is read before the first use, and never a body.

    As a mapping it is the state of the last scan; `all()` scans again first. A skill that cannot be
    read is a diagnostic, never an exception.
    """

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        permit: Permit | None = None,
        index: Index | None = None,
        progress: Progress | None = None,
        reload: Callable[[], Settings] | None = None,
        **overrides: object,
    ) -> None:
        """Load the settings of the project folder unless given; `overrides` are settings too.

        When a settings file changes they are loaded again; given ones by `reload`, if there is one.
        """
        if settings is None:
            reload = partial(load_settings, project, overrides=_normalize_overrides(overrides))
            settings = reload()
        elif project is not None or overrides:
            raise TypeError("give settings, or a project and single settings, not both")
        self.settings = settings
        self._reload = reload
        self._settings_files = watched_files(settings) if reload else ()
        self._stamps = file_stamps(self._settings_files)
        self._renewed = False  # whether values derived from the last snapshot are outdated
        self._wrong_settings: Diagnostic | None = None
        self._permit = permit
        self._progress = progress
        self._index = index or _index(settings)
        self._scans: list[Scan] = []
        self._lock = threading.Lock()  # one scan at a time, in any thread
        self._scanned_at = 0.0
        self._searcher: Searcher | None = None
        self._searched: list[Scan] | None = None

    # Contents

    def __getitem__(self, name: str) -> Skill:
        return self.snapshot[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot)

    def __len__(self) -> int:
        return len(self.snapshot)

    def __repr__(self) -> str:
        known = self._last_snapshot
        count = "not scanned yet" if known is None else f"{len(known)} skills"
        return f"<Catalog of {self.settings.project}: {count}>"

    def find(self, name: str) -> Skill:
        """Return the skill of that name; raise SkillNotFound with the closest names."""
        try:
            return self[name]
        except KeyError:
            raise self.snapshot.missing(name) from None

    def all(self) -> list[Skill]:
        """Return every current skill, in name order."""
        return list(self.current().values())

    def current(self) -> Snapshot:
        """Return every current skill by name; scan if the last one is `rescan_seconds` old."""
        age = time.monotonic() - self._scanned_at
        if (
            self.take_over_settings()
            or self._renewed
            or self._last_snapshot is None
            or age >= max(self.settings.rescan_seconds, self._pause())
        ):
            self._rescan(refresh=False)
        return self.snapshot

    def take_over_settings(self) -> bool:
        """Reload the settings if one of their files changed; return whether they differ now."""
        if self._reload is None or (stamps := file_stamps(self._settings_files)) == self._stamps:
            return False
        with self._lock:
            if stamps == self._stamps:
                return False
            self._stamps = stamps
            try:
                new = self._reload()
            except ConfigError as error:
                # Rules and limits stay as they were.
                log_warning(f"the changed settings are not taken over: {error}")
                self._wrong_settings = _diagnose_reload(self.settings.project, error)
            else:
                self._wrong_settings = None
                self.settings, kept = reload_settings(self.settings, new)
                self._settings_files = watched_files(self.settings)
                self._stamps = file_stamps(self._settings_files)
                for key in kept:
                    log_warning(f"the setting {key} changed; it counts after a restart")
            self._renewed = True
        return True

    @cached_property
    def snapshot(self) -> Snapshot:
        """The skills as of the last scan; every scan with another result replaces it."""
        self._rescan(refresh=False)
        found: Snapshot = self.__dict__["snapshot"]
        return found

    def available(self, agent: str | None = None) -> list[Skill]:
        """Return the skills that a model working as this agent may see."""
        seen = [skill for skill in self.all() if skill.model_visible]
        return [one for one in seen if self._permit(agent, one)] if self._permit else seen

    def dirs(self) -> list[str]:
        """Return the folders of all skills, sorted."""
        return sorted({skill.dir for skill in self.values()})

    @property
    def shadowed(self) -> tuple[Skill, ...]:
        """The skills that another one of the same name shadows."""
        return self.snapshot.shadowed

    @property
    def scans(self) -> tuple[Scan, ...]:
        """The result of each root, in order of precedence."""
        _ = self.snapshot
        return tuple(self._scans)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything that was skipped, repaired or shadowed, or is wrong."""
        return self.snapshot.diagnostics

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that need action: errors and warnings."""
        return tuple(one for one in self.diagnostics if one.severity != "info")

    # Search

    def search(
        self,
        query: str,
        limit: int = 10,
        filters: Filters = EVERYTHING,
        *,
        wait_seconds: float | None = None,
    ) -> list[Result]:
        """Return the best skills for a request of any length, best first, and why.

        The whole text counts. The index is built on first use; `wait_seconds` limits how long the
        search waits for it. Skills that are not indexed yet are not found.
        """
        self.current()
        return self.search_in(query, self.findable(filters), limit, wait_seconds=wait_seconds)

    def search_in(
        self, query: str, skills: Skills, limit: int = 10, *, wait_seconds: float | None = None
    ) -> list[Result]:
        """Return the best of these skills.

        Other skills have no influence, not even on the statistics.
        """
        searcher = self.searcher
        self.index_for_search(wait_seconds)
        return searcher.search(query, skills, limit)

    @property
    def searcher(self) -> Searcher:
        """The search engine, created on first use."""
        if self._searcher is None:
            from skillbelt.search.engine import Searcher  # cost: 25 ms, only for a search

            self._searcher = Searcher(self.settings, progress=self._progress)
        return self._searcher

    def close(self) -> None:
        """Close the search index and stop building it; the next search opens it again."""
        searcher, self._searcher, self._searched = self._searcher, None, None
        if searcher is not None:
            searcher.close()

    def index_for_search(self, wait_seconds: float | None = None) -> bool:
        """Update the search index to the last scan; return whether it is complete."""
        snapshot, scans = self.snapshot, self._scans
        if self._searched is scans:
            return True
        groups: dict[str, list[Skill]] = {}
        for scanned in scans:
            mine = groups.setdefault(scanned.root.path, [])
            for skill in scanned.skills:
                winner = snapshot.get(skill.name)
                if winner is not None and winner.location == skill.location:
                    mine.append(winner)
        done = self.searcher.sync(groups, wait_seconds)
        if done:
            self._searched = scans
        return done

    def findable(self, filters: Filters = EVERYTHING) -> Skills:
        """Return the skills that a search with these filters covers, as of the last scan."""
        snapshot = self.snapshot

        def make() -> Skills:
            return Skills.of(one for one in snapshot.values() if self._may_find(one, filters))

        # A caller's own filter may answer differently next time.
        return make() if filters.keep else snapshot.derive(("findable", filters), make)

    def _may_find(self, skill: Skill, filters: Filters) -> bool:
        if filters.scopes and skill.scope not in filters.scopes:
            return False
        shown = not skill.hidden if filters.agent is None else skill.model_visible
        if not shown or (self._permit and not self._permit(filters.agent or None, skill)):
            return False
        return filters.keep is None or filters.keep(skill)

    # Scans

    def discover(self) -> list[Skill]:
        """Scan every root now; return the skills in name order."""
        self._rescan(refresh=False)
        return list(self.snapshot.values())

    def refresh(self) -> Changes:
        """Read every file again, ask remote sources again, and return what changed."""
        before = self._last_snapshot or Snapshot({})
        self._rescan(refresh=True)
        return _changes(before, self.snapshot)

    def watch(self, stop: threading.Event | None = None) -> Iterator[Changes]:
        """Yield the changes on disk as they happen, until `stop` is set."""
        before = self.snapshot
        signalled, followed = False, -float("inf")
        for changed in ticks(self._watched_folders, self.settings.watch_seconds, stop):
            # The pause after a periodic scan does not delay a change that was signalled.
            signalled = self.take_over_settings() or signalled or changed
            now = time.monotonic()
            if now - (followed if signalled else self._scanned_at) < self._pause():
                continue  # skip this tick: watching must not take more than its share
            if signalled:
                signalled, followed = False, now
            self._rescan(refresh=False)
            changes = _changes(before, self.snapshot)
            before = self.snapshot
            if changes:
                yield changes

    @property
    def _last_snapshot(self) -> Snapshot | None:
        """The last snapshot; None before the first scan."""
        return self.__dict__.get("snapshot")

    def _pause(self) -> float:
        """Return the seconds between scans, so that they take no more than their share."""
        cost = sum(scanned.cpu_seconds for scanned in self._scans)
        if cost <= _CHEAP_SECONDS:
            return 0.0
        return cost / MAX_SCAN_SHARE

    def _watched_folders(self) -> list[str]:
        return [one.root.path for one in self._scans if one.exists and not one.stalled]

    def _rescan(self, *, refresh: bool) -> None:
        with self._lock:
            self._scan(refresh=refresh)

    def _scan(self, *, refresh: bool) -> None:
        diagnostics: list[Diagnostic] = [self._wrong_settings] if self._wrong_settings else []
        diagnostics += [_foreign_project(path, owner) for path, owner in self.settings.strangers]
        roots = self._roots(diagnostics, refresh=refresh)
        # A root that stalled is skipped until the next refresh.
        stalled = {one.root: one for one in self._scans if one.stalled and not refresh}
        waiting = [root for root in roots if root not in stalled]
        try:
            fresh = iter(
                scan(waiting, self.settings, self._index, self._progress, reads_all=refresh)
            )
        finally:
            self._index.close()
        if self._index.trouble:
            message = f"the index cannot be used now: {self._index.trouble}"
            remedy = "every scan reads all files until it can; see cache_dir"
            diagnostics.append(
                Diagnostic(
                    code="index-unusable",
                    severity="info",
                    path=self.settings.cache_dir,
                    line=None,
                    message=message,
                    remedy=remedy,
                )
            )
        self._scans = [stalled[root] if root in stalled else next(fresh) for root in roots]
        found = merge(self._scans, diagnostics, self.settings)
        if self._renewed or not found.same_as(self._last_snapshot):
            self.snapshot = found
            self._renewed = False
        self._scanned_at = time.monotonic()

    def _roots(self, diagnostics: list[Diagnostic], *, refresh: bool) -> list[Root]:
        settings = self.settings
        named = [path for path in (*settings.all_paths, settings.skills_root) if path]
        explicit = [path if "://" in path else resolve(path, settings) for path in named]
        remote = [path for path in explicit if sources.is_remote(path)] + list(settings.all_urls)
        remote = self._with_commands(remote, diagnostics)
        roots = local_roots(settings, [path for path in explicit if not sources.is_remote(path)])
        remote = self._without_untrusted(remote, diagnostics)
        if remote:
            roots += self._remote_roots(remote, diagnostics, refresh=refresh)
        place = settings.scope_order.index
        return sorted(roots, key=lambda root: place(root.scope))

    def _with_commands(self, remote: list[str], diagnostics: list[Diagnostic]) -> list[str]:
        """Add the MCP servers to start, which are in a separate setting."""
        wrong = [url for url in remote if url.lower().startswith(sources.MCP_COMMAND)]
        commands = []
        for text in self.settings.mcp_commands:
            _, made = sources.read_command(text)
            commands += [made] if made else []
            wrong += [] if made else [text]
        for text in wrong:
            message = f"{text!r} is not an MCP server to start"
            remedy = "write it into mcp_commands as NAME=COMMAND"
            diagnostics.append(
                Diagnostic(
                    code="mcp-command-wrong",
                    severity="error",
                    path="mcp_commands",
                    line=None,
                    message=message,
                    remedy=remedy,
                )
            )
        return [url for url in remote if url not in wrong] + commands

    def _without_untrusted(self, remote: list[str], diagnostics: list[Diagnostic]) -> list[str]:
        """Leave out the sources that only an untrusted project names.

        Otherwise a checkout could make this machine contact any host.
        """
        settings, theirs = self.settings, self._named_by_project()
        asked = [url for url in remote if url in theirs]
        if not asked or self._project_is_trusted():
            return remote
        message = f"the project names {len(asked)} remote sources; they are not used"
        remedy = "trust it with `skillbelt trust add`, or set them in your own config file"
        diagnostics.append(
            Diagnostic(
                code="untrusted-source",
                severity="warning",
                path=settings.project,
                line=None,
                message=message,
                remedy=remedy,
            )
        )
        return [url for url in remote if url not in theirs]

    def _named_by_project(self) -> set[str]:
        """Return the sources that only a file of the project names."""
        settings = self.settings
        return settings.only_by_project("paths") | settings.only_by_project("urls")

    def _project_is_trusted(self) -> bool:
        return Trust(self.settings.state_dir).project(self.settings.project)

    def _remote_roots(
        self, remote: Sequence[str], collected: list[Diagnostic], *, refresh: bool
    ) -> Iterator[Root]:
        if self._progress:
            self._progress(f"asking {len(set(remote))} remote sources")
        theirs = self._named_by_project()
        pulled = sources.pull_all(
            list(dict.fromkeys(remote)),
            cache_dir=os.path.join(self.settings.cache_dir, "remote"),
            limits=self.settings.limits,
            refresh=refresh,
            offline=self.settings.offline,
            private=self.settings.private_sources,
            strangers=theirs,
        )
        for source, (located, diagnostics) in zip(dict.fromkeys(remote), pulled, strict=True):
            collected += diagnostics
            for folder, origin in located:
                far = _is_over_network(source) or source in self.settings.urls
                scope: Scope = "remote" if far else "explicit"
                own = origin.kind == "local" and source not in theirs
                fence = fence_of(folder, self.settings) if own else folder
                yield Root(folder, scope, "", origin, fence=fence)


def _diagnose_reload(project: str, error: ConfigError) -> Diagnostic:
    return Diagnostic(
        code="settings-wrong",
        severity="error",
        path=project,
        line=None,
        message=f"the changed settings are not taken over: {error}",
        remedy="fix the file; until then the settings from before count",
    )


def _foreign_project(path: str, owner: str) -> Diagnostic:
    message = f"belongs to {owner}, so it does not count as your project"
    remedy = f"inspect it, then trust it with `{trust_command(path)}`"
    return Diagnostic(
        code="foreign-project",
        severity="warning",
        path=path,
        line=None,
        message=message,
        remedy=remedy,
    )


def merge(
    scans: Iterable[Scan], earlier: Iterable[Diagnostic] = (), settings: Settings | None = None
) -> Snapshot:
    """Merge scans: the first skill of each name wins and shadows the others.

    Then the settings for single skills apply to the winners.
    """
    winners: dict[str, Skill] = {}
    losers: dict[str, list[Skill]] = {}
    folders: set[int] = set()
    diagnostics = list(earlier)
    scanned_roots = list(scans)
    # One walk visits each folder once; only several walks can reach the same one.
    several = sum(bool(scanned.skills) for scanned in scanned_roots) > 1
    for scanned in scanned_roots:
        diagnostics += scanned.diagnostics
        for skill, identity in zip(scanned.skills, scanned.identities, strict=True):
            if several:
                if identity in folders:
                    diagnostics.append(_same_folder(skill))
                    continue
                folders.add(identity)
            if winners.setdefault(skill.name, skill) is not skill:
                losers.setdefault(skill.name, []).append(skill)
    for name, shadowed in losers.items():
        diagnostics += (_note_shadowed(loser, winners[name]) for loser in shadowed)
        winners[name] = winners[name]._replace(shadows=tuple(one.location for one in shadowed))
    names = sorted(winners)
    ordered = winners if names == list(winners) else {name: winners[name] for name in names}
    lost = tuple(skill for name in sorted(losers) for skill in losers[name])
    if settings is None or not settings.skills:
        return Snapshot(ordered, lost, tuple(diagnostics))
    switches = {name: settings.for_skill(name) for name in ordered}
    kept, disabled = _switch(ordered, switches)
    diagnostics += _diagnose_switches(switches, settings)
    return Snapshot(kept, lost, tuple(diagnostics), disabled)


def _switch(
    skills: Mapping[str, Skill], switches: Mapping[str, SkillSettings]
) -> tuple[dict[str, Skill], dict[str, tuple[Skill, str]]]:
    """Apply the settings for single skills; return the skills, and the disabled ones."""
    kept: dict[str, Skill] = {}
    disabled: dict[str, tuple[Skill, str]] = {}
    for name, skill in skills.items():
        own = switches[name]
        shown = skill.model_visible and own.enabled and own.visible != "manual"
        made = skill._replace(model_visible=shown, visible=own.visible, pinned=own.pin)
        if own.enabled:
            kept[name] = made
        else:
            disabled[name] = made, own.sources["enabled"]
    return kept, disabled


def _diagnose_switches(
    switches: Mapping[str, SkillSettings], settings: Settings
) -> Iterator[Diagnostic]:
    """Yield settings that match no skill, and those that a project may not loosen."""
    for one in settings.skills:
        if one.places and not any(map(one.covers, switches)):
            close = closest(one.pattern, switches, most=1)
            path, line = split_place(next(iter(one.places.values())))
            yield Diagnostic(
                code="settings-unused",
                severity="info",
                path=path,
                line=line,
                message=f"no skill is called {one.pattern!r}, so its settings have no effect",
                remedy=f"did you mean {close[0]!r}?" if close else "remove them, or add the skill",
            )
    ignored = {
        (key, place): name for name, own in switches.items() for key, place in own.ignored.items()
    }
    for (key, place), name in ignored.items():
        path, line = split_place(place)
        yield Diagnostic(
            code="project-setting",
            severity="warning",
            path=path,
            line=line,
            message=f"{key} of {name!r} does not count: a project cannot loosen your settings",
            remedy="set it in your own config file",
        )


def find_any(catalog: Catalog, name: str) -> Skill:
    """Return the skill of that name, even if it is disabled; raises SkillNotFound."""
    switched_off = catalog.snapshot.disabled.get(name)
    return switched_off[0] if switched_off else catalog.find(name)


def discover_skills(
    project: str | os.PathLike[str] | None = None, *, settings: Settings | None = None
) -> list[Skill]:
    """Return every skill for a project folder, in name order; no body is read."""
    return Catalog(project, settings=settings).discover()


def _same_folder(skill: Skill) -> Diagnostic:
    message = f"is the folder {os.path.realpath(skill.dir)}, which was found before; it counts once"
    return Diagnostic(
        code="same-folder", severity="info", path=skill.location, line=None, message=message
    )


def _note_shadowed(loser: Skill, winner: Skill) -> Diagnostic:
    return Diagnostic(
        code="shadowed",
        severity="warning",
        path=loser.location,
        line=None,
        message=f"duplicate skill name {loser.name!r}: {winner.location} ({winner.scope}) shadows "
        f"{loser.location} ({loser.scope})",
        remedy="rename one of them, or remove the one you do not need",
    )


def _changes(before: Snapshot, after: Snapshot) -> Changes:
    was, now = before.broken, after.broken
    read = {skill.location for skill in (*after.values(), *after.shadowed)}
    return Changes(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name in after if name in before and after[name] != before[name]),
        removed=tuple(name for name in before if name not in after),
        broken=tuple(one for path, one in now.items() if was.get(path) != one),
        fixed=tuple(path for path in was if path not in now and path in read),
    )


def _index(settings: Settings) -> Index:
    if not settings.use_index:
        return MemoryIndex()
    # The limits that affect what is read from a SKILL.md: entries read under other limits do not
    # count.
    rules = (
        FIRST_READ_BYTES,
        MAX_FRONTMATTER_BYTES,
        MAX_YAML_DEPTH,
        MAX_YAML_ALIASES,
        DERIVED_DESCRIPTION_CHARS,
    )
    return SqliteIndex(settings.index_file, "-".join(map(str, (*rules, int(settings.strict)))))


def _normalize_overrides(overrides: Mapping[str, object]) -> dict[str, object]:
    """Convert path objects and single paths to the types of settings."""
    plain = dict(overrides)
    paths = plain.get("paths")
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if isinstance(paths, Iterable):
        plain["paths"] = [os.fspath(path) for path in paths]
    if isinstance(plain.get("cache_dir"), os.PathLike):
        plain["cache_dir"] = os.fspath(plain["cache_dir"])  # type: ignore[call-overload]
    return plain


def _is_over_network(source: str) -> bool:
    return source.startswith(("http://", "https://", "mcp+"))
