"""Scan roots: walk each, take known files from the index, read the heads of changed ones.

The work happens in its own thread, because a call into a dead mount may never return; the caller
waits only while there is progress.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from skillbelt.discovery.clients import Root
from skillbelt.discovery.index import Entry, Index, Row
from skillbelt.discovery.sources.folder import (
    LARGEST,
    Found,
    Walker,
    WalkProgress,
    WalkRules,
    link_outside,
)
from skillbelt.discovery.trusted import open_trust
from skillbelt.errors import PathEscape
from skillbelt.files.contain import Fence
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.trust import Trust
from skillbelt.untrusted_json import read_json
from skillbelt.values import DERIVED, INTERNAL, MODEL, SKILL_FILE, SKIPPED, USER, Diagnostic

# A root that does not respond for this long, such as a dead network mount, is left out.
SCAN_TIMEOUT_SECONDS = 10.0

POLICY_FILE = "agents/openai.yaml"
_NAME = -len(f"/{SKILL_FILE}")  # every spelling of the file's name has that length
# How many entries are written to the index at once.
_BATCH = 10_000
# How often the waiting thread checks for progress.
_LOOK_SECONDS = 0.25
# CLOCK_REALTIME_COARSE: Linux sets file times in ticks of a few milliseconds.
_FILE_CLOCK = 5 if sys.platform.startswith("linux") else time.CLOCK_REALTIME
_TICK_NS = 20_000_000
# Called now and then with a line of progress, to show to the user.
Progress = Callable[[str], None]


class Scan(NamedTuple):
    """The result of one root. `identities` are those of the skills' folders, in the same order."""

    root: Root
    exists: bool = False
    skills: tuple[Skill, ...] = ()
    identities: tuple[int, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    files_read: int = 0
    files_changed: int = 0
    files_gone: int = 0
    stalled: bool = False
    cpu_seconds: float = 0.0


def scan(
    roots: Sequence[Root],
    settings: Settings,
    index: Index,
    progress: Progress | None = None,
    *,
    reads_all: bool = False,
) -> list[Scan]:
    """Return the result of each root, in the order given; skip a root that makes no progress.

    With `reads_all`, files in the index are read too.
    """
    results: list[Scan] = []
    while len(results) < len(roots):
        worker = _Worker(roots[len(results) :], settings, index, reads_all=reads_all)
        worker.start()
        results += worker.wait(SCAN_TIMEOUT_SECONDS, progress)
    return results


class _Worker(threading.Thread):
    """Scans roots one after another until it is done or stopped."""

    def __init__(
        self, roots: Sequence[Root], settings: Settings, index: Index, *, reads_all: bool
    ) -> None:
        super().__init__(name="skillbelt-scan", daemon=True)
        self._roots, self._settings, self._index = roots, settings, index
        self._pulse, self._judge = WalkProgress(), _Judge(settings)
        self._reads_all = reads_all
        self._results: list[Scan] = []
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            for root in self._roots:
                began = time.thread_time()
                scanned = self._scan(root)
                if self._pulse.stopped:
                    return
                self._results.append(scanned._replace(cpu_seconds=time.thread_time() - began))
        except BaseException as error:  # passed to the waiting thread, not lost with this one
            self._failure = error

    def wait(self, patience: float, progress: Progress | None) -> list[Scan]:
        """Return the results so far: all, or up to and including a root that stalled."""
        beats, idle = -1, 0.0
        while self.is_alive():
            self.join(_LOOK_SECONDS)
            idle = 0.0 if self._pulse.beats != beats else idle + _LOOK_SECONDS
            beats = self._pulse.beats
            if progress is not None and self.is_alive():
                progress(f"{beats} folders, at {self._pulse.path}")
            if idle >= patience and self.is_alive():
                self._pulse.stopped = True
                done = list(self._results)
                return [
                    *done,
                    _describe_stalled(self._roots[len(done)], self._pulse.path, patience),
                ]
        if self._failure is not None:
            raise self._failure
        return self._results

    def _scan(self, root: Root) -> Scan:
        settings, index, pulse = self._settings, self._index, self._pulse
        pulse.beat(root.path)
        how = rules(settings)._replace(collection=bool(root.client), fence=root.fence)
        walker = Walker(root.path, how, pulse)
        walker.walk()
        if not walker.exists or pulse.stopped:
            return Scan(
                root,
                diagnostics=(*walker.diagnostics, *_diagnose_missing(root, walker.diagnostics)),
            )
        known = index.load(root.path) if walker.found else {}
        trusted = self._judge.trusts(root)
        reader = _Reader(root, settings, pulse, trusted, reads_all=self._reads_all)
        reader.diagnostics += self._judge.take_fault()
        try:
            # Release each entry once it is used: two copies of 100,000 skills are too many.
            walker.found.reverse()
            while walker.found:
                found = walker.found.pop()
                reader.take(found, known.pop(found.location, None))
                if len(reader.fresh) >= _BATCH:
                    index.save(reader.fresh, ())
                    reader.fresh.clear()
        finally:
            reader.close()
        if not pulse.stopped:
            index.save(reader.fresh, known if walker.complete else ())
        return Scan(
            root=root,
            exists=True,
            skills=tuple(reader.skills),
            identities=tuple(reader.identities),
            diagnostics=(*walker.diagnostics, *reader.diagnostics),
            files_read=reader.files_read,
            files_changed=reader.files_changed,
            files_gone=len(known) if walker.complete else 0,
        )


def _describe_stalled(root: Root, path: str, patience: float) -> Scan:
    problem = Diagnostic(
        code="root-stalled",
        severity="error",
        path=root.path,
        line=None,
        message=f"no response within {patience:g} s at {path}; the folder was left out",
        remedy="restore the mount or remove the folder from the settings, then refresh",
    )
    return Scan(root, exists=True, diagnostics=(problem,), stalled=True)


def rules(settings: Settings) -> WalkRules:
    """Return the settings for walking folders."""
    return WalkRules(
        limits=settings.limits,
        follow_symlinks=settings.follow_symlinks,
        nested=settings.nested,
        loose_file_name=settings.loose_file_name,
        skip_directories=settings.skip_directories,
    )


def _diagnose_missing(root: Root, diagnostics: Iterable[Diagnostic]) -> Iterable[Diagnostic]:
    if root.required and not any(True for _ in diagnostics):
        message = "skill path not found: there is no such folder"
        remedy = "create it, or remove it from the settings"
        yield Diagnostic(
            code="root-missing",
            severity="warning",
            path=root.path,
            line=None,
            message=message,
            remedy=remedy,
        )


class _Judge:
    """Decides whether the skills of a root are trusted.

    The user's trust file is read only for a root that needs it, and again for each scan.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trust: Trust | None = None
        self._reported = False

    def trusts(self, root: Root) -> bool:
        theirs = root.scope == "project" or root.by_project
        foreign = any(path == self._settings.project for path, _ in self._settings.strangers)
        gated = theirs and (foreign or self._settings.trust_project == "ask")
        if not (root.origin.remote or gated):
            return True
        if self._trust is None:
            self._trust = open_trust(self._settings)
        if root.origin.remote:
            return self._trust.origin(root.origin)
        # A folder that a project names is as trusted as the project, in any place.
        return self._trust.project(self._settings.project if root.by_project else root.path)

    def take_fault(self) -> tuple[Diagnostic, ...]:
        """Return the problem of the trust file, once."""
        if self._trust is None or self._reported:
            return ()
        self._reported = True
        return (*self._trust.diagnostics, *self._trust.exchanged(self._settings.project))


class _Reader:
    """Turns the files of a walk into skills, reading only what changed."""

    def __init__(
        self,
        root: Root,
        settings: Settings,
        pulse: WalkProgress,
        trusted: bool,
        *,
        reads_all: bool = False,
    ) -> None:
        self._root, self._pulse, self._trusted = root, pulse, trusted
        self._derive = not settings.strict
        self._hides = INTERNAL * (not settings.internal_skills)
        self._hides |= DERIVED * (settings.derived_descriptions == "hide")
        self.skills: list[Skill] = []
        self.identities: list[int] = []
        self.diagnostics: list[Diagnostic] = []
        self.fresh: list[Entry] = []
        self.files_read = self.files_changed = 0
        self._reads_all = reads_all
        self._fence: Fence | None = None

    def close(self) -> None:
        """Close open files."""
        if self._fence is not None:
            self._fence.close()

    def take(self, found: Found, known: Row | None) -> None:
        """Add a skill, or a diagnostic that says why not."""
        location = found.location
        folder = location[:_NAME]
        policy = f"{folder}/{POLICY_FILE}"
        policy_ns = _changed_at(policy) if os.access(os.path.dirname(policy), os.F_OK) else 0
        entry = problems = None
        stamp = (*found[1:5], policy_ns)
        if known is not None and known[1:6] == stamp and not self._reads_all:
            entry = Entry._make(known)
            problems = _load(entry)
        if entry is None or problems is None:
            self._pulse.beat(location)
            entry = self._read(found, folder, policy_ns)
            if entry is None:
                return
            self.files_changed += entry != known
            problems = _load(entry) or ()
        self._add(found, entry, problems)

    def _read(self, found: Found, folder: str, policy_ns: int) -> Entry | None:
        # cost: 5 ms for the parser, which a scan with a fresh index does not need
        from skillbelt.format import frontmatter

        fence = self._fence = self._fence or Fence(self._root.fence)
        _let_clock_pass(max(found.ctime_ns, policy_ns))
        try:
            data = frontmatter.read_head(found.location, fence)
        except PathEscape as escape:
            problem = link_outside(found.location, self._root.fence, escape.reason)
            self.diagnostics.append(problem)
            return None
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}"
            remedy = "fix its permissions, or remove it"
            self.diagnostics.append(
                Diagnostic(
                    code="unreadable",
                    severity="error",
                    path=found.location,
                    line=None,
                    message=message,
                    remedy=remedy,
                )
            )
            return None
        self.files_read += 1
        name = folder[folder.rindex("/") + 1 :]
        # Do not derive a description from a link's target that was never meant as a skill.
        derive = self._derive and not os.path.islink(found.location)
        card = frontmatter.read_card(data, found.location, name, derive=derive)
        if policy_ns:
            policy = f"{folder}/{POLICY_FILE}"
            card = frontmatter.with_policy(card, found.location, policy, fence)
        stored = _dump(card.diagnostics) if card.diagnostics else ""
        entry = Entry._make((*found[:5], policy_ns, *card[:-1], stored))
        self.fresh.append(entry)
        return entry

    def _add(self, found: Found, entry: Entry, diagnostics: tuple[Diagnostic, ...]) -> None:
        root, flags = self._root, entry.flags
        self.diagnostics += diagnostics
        if flags & SKIPPED:
            return
        hidden = bool(flags & self._hides)
        self.identities.append(found.identity)
        name = entry.name if root.origin.kind != "mcp" else _name_with_server(entry.path)
        self.skills.append(
            Skill(
                name=name,
                title=name if entry.title == name else entry.title,  # one string, not two
                description=entry.description,
                location=entry.path,
                scope=root.scope,
                origin=root.origin,
                when_to_use=entry.when_to_use,
                model_visible=bool(flags & MODEL and entry.description and not hidden),
                user_invocable=bool(flags & USER),
                hidden=hidden,
                trusted=self._trusted,
                derived=bool(flags & DERIVED),
                body_offset=entry.body_offset,
                mtime_ns=entry.mtime_ns,
                ctime_ns=entry.ctime_ns,
                diagnostics=diagnostics,
                fence=root.fence,
            )
        )


def _name_with_server(path: str) -> str:
    """Return the name of a skill of an MCP server: that of its parent folder."""
    return path.split("/")[-3]


def _changed_at(path: str) -> int:
    """Return when a policy file changed; 0 if there is none, 1 if that is unknown."""
    try:
        return min(os.stat(path).st_ctime_ns, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError:
        return 1  # then it is read, and an unreadable one hides the skill


def _let_clock_pass(ctime_ns: int) -> None:
    """Wait for the next tick of the file clock if the file changed in this one.

    Then a change after the read always has another time than the one before it.
    """
    while 0 <= ctime_ns - time.clock_gettime_ns(_FILE_CLOCK) < _TICK_NS:
        time.sleep(0.001)


def _dump(diagnostics: Iterable[Diagnostic]) -> str:
    return json.dumps([(d.code, d.severity, d.line, d.message, d.remedy) for d in diagnostics])


def _load(entry: Entry) -> tuple[Diagnostic, ...] | None:
    """Return the stored diagnostics of a file; None when they cannot be read."""
    if not entry.diagnostics:
        return ()

    try:
        return tuple(
            Diagnostic(
                code=code,
                severity=severity,
                path=entry.path,
                line=line,
                message=message,
                remedy=remedy,
            )
            for code, severity, line, message, remedy in read_json(entry.diagnostics)
        )
    except (ValueError, TypeError):
        return None
