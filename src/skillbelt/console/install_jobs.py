"""Jobs that add and update skills from a page: fetch, scan and show first, install on a click.

Each job is a thread. It fetches into a private folder, waits for a person's answer, and then does
the same as the commands `add` and `update`, through the same gate.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from skillbelt.console.approved import ApprovedChange, compare_files, read_files
from skillbelt.console.skill_facts import LockedSkill
from skillbelt.discovery.sources.failure import redact
from skillbelt.errors import SkillbeltError, log_warning
from skillbelt.format.skill import Skill
from skillbelt.install.add import (
    AddTarget,
    RefusedSkill,
    SkillChange,
    SkillOffer,
    ask_to_install,
    install_offers,
    offer_skills,
)
from skillbelt.install.content_store import incoming
from skillbelt.install.declaring import ResolvedPackages, ResolvePackages, find_declaring
from skillbelt.install.describe import describe_news, describe_offer
from skillbelt.install.entries import install_request
from skillbelt.install.fetching import OpenSource, open_source
from skillbelt.install.lock_file import find_place
from skillbelt.install.names import typed_name
from skillbelt.install.package_locks import packages_module
from skillbelt.install.placing import skill_folder
from skillbelt.install.policy import check_source
from skillbelt.install.source_syntax import parse_typed
from skillbelt.install.sync import SyncRefusal
from skillbelt.install.update import (
    NewVersion,
    apply_versions,
    find_versions,
    stored_version,
    with_packages,
)
from skillbelt.install.values import InstallScope
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Answer
from skillbelt.runtime.runtime import Runtime
from skillbelt.scan.values import Finding
from skillbelt.serving.answers import HttpRefusal
from skillbelt.settings import Settings
from skillbelt.text import one_line

# Jobs that are active at once, and that are listed; how long a job waits for its answer.
MAX_OPEN = 4
MAX_JOBS = 50
ANSWER_SECONDS = 900.0
_MAX_LINES = 200
_OPEN_STATES = ("fetching", "choose", "ready", "installing")


class OfferedSkill(NamedTuple):
    """A skill that can be installed, with everything that a person needs to decide."""

    name: str
    facts: tuple[tuple[str, str], ...]
    changes: tuple[ApprovedChange, ...]
    findings: tuple[Finding, ...]
    is_installed: bool


class JobResult(NamedTuple):
    """The result for one skill: an action, or the reason why nothing was done."""

    name: str
    action: str
    message: str = ""
    remedy: str = ""


class InstallJob:
    """One addition or update. Its states are `fetching`, `choose`, `ready` and `done`.

    In `choose` the source has several skills, and the person names some. A job may also end as
    `failed` or `cancelled`.
    """

    def __init__(self, id: str, by: str, source: str, scope: str) -> None:
        self.id, self.by, self.source, self.scope = id, by, source, scope
        self.time = time.time()
        self.state = "fetching"
        self.lines: list[str] = []
        self.message = ""
        self.choices: tuple[tuple[str, str], ...] = ()
        self.offers: tuple[OfferedSkill, ...] = ()
        self.results: tuple[JobResult, ...] = ()
        self.answered_by = by
        self._answered, self._lock = threading.Event(), threading.Lock()
        self._chosen: tuple[str, ...] = ()
        self._agreed = False

    @property
    def is_open(self) -> bool:
        """Whether the job is still active."""
        return self.state in _OPEN_STATES

    def answer(self, *, agreed: bool, chosen: Sequence[str] = (), by: str = "") -> None:
        """Continue, or cancel. Each state takes one answer.

        A choice of skills does not answer `ready`: the person has not yet seen what is installed.
        """
        with self._lock:
            waits = self.state in ("choose", "ready") and not self._answered.is_set()
            if not waits or (chosen and self.state == "ready"):
                raise HttpRefusal(
                    "wrong_arguments", f"this answer is not possible in the state {self.state}"
                )
            self._agreed, self._chosen, self.answered_by = agreed, tuple(chosen), by or self.by
            self._answered.set()

    def wait(self) -> tuple[bool, tuple[str, ...]]:
        """Wait for the person's answer; a timeout counts as no."""
        self._answered.wait(ANSWER_SECONDS)
        with self._lock:
            agreed = self._answered.is_set() and self._agreed
            self.state = "fetching"  # a second answer must not count for the next question
            self._answered.clear()
            return agreed, self._chosen

    def document(self) -> dict[str, object]:
        """Return it as a JSON document."""
        return {
            "id": self.id,
            "by": self.by,
            "source": self.source,
            "scope": self.scope,
            "time": self.time,
            "state": self.state,
            "progress": self.lines[-1] if self.lines else "",
            "message": self.message,
            "choices": [{"name": name, "description": text} for name, text in self.choices],
            "offers": [_offer_document(one) for one in self.offers],
            "results": [one._asdict() for one in self.results],
        }


class InstallDesk:
    """The installation jobs of one console."""

    def __init__(self, belt: Runtime, tell: Callable[[], None]) -> None:
        """`tell` is called whenever a job changes its state."""
        self._belt, self._tell, self._lock = belt, tell, threading.Lock()
        self._jobs: dict[str, InstallJob] = {}

    def jobs(self) -> list[InstallJob]:
        """Return the jobs, newest first."""
        return list(reversed(self._jobs.values()))

    def find(self, id: str) -> InstallJob:
        """Return the job of that id; HttpRefusal if there is none."""
        found = self._jobs.get(id)
        if found is None:
            raise HttpRefusal("not_found", "there is no such installation; begin again")
        return found

    def add(
        self, source: str, *, by: str, scope: InstallScope, names: Sequence[str] = ()
    ) -> InstallJob:
        """Start fetching a source."""
        # A source with a password is refused; the typed text is not shown to others.
        job = self._add_job(by, redact(source), scope)
        return self._start(job, lambda: self._add(job, source, tuple(names)))

    def update(self, locked: LockedSkill, *, by: str) -> InstallJob:
        """Start looking for a new version of a skill."""
        scope = locked.lock.place.scope
        job = self._add_job(by, locked.entry.source, scope)
        return self._start(job, lambda: self._update(job, locked))

    def close(self) -> None:
        """Cancel the jobs that wait for an answer."""
        for job in self.jobs():
            with suppress(HttpRefusal):  # it is not waiting, or was answered just now
                job.answer(agreed=False)

    def _add_job(self, by: str, source: str, scope: str) -> InstallJob:
        with self._lock:
            if sum(one.is_open for one in self._jobs.values()) >= MAX_OPEN:
                raise HttpRefusal("busy", "too many installations wait for an answer; end some")
            job = InstallJob(os.urandom(8).hex(), by, one_line(source), scope)
            self._jobs[job.id] = job
            for id in list(self._jobs)[: max(len(self._jobs) - MAX_JOBS, 0)]:
                if not self._jobs[id].is_open:
                    del self._jobs[id]
        return job

    def _start(self, job: InstallJob, work: Callable[[], None]) -> InstallJob:
        def run() -> None:
            try:
                work()
            except (SkillbeltError, OSError) as error:
                remedy = getattr(error, "remedy", "")
                own = remedy and remedy != SkillbeltError.remedy
                job.message = one_line(f"{error}{f'; {remedy}' if own else ''}")
                self._set(job, "failed")
            except Exception:
                log_warning("an installation from the console broke off", trace=True)
                job.message = "it broke off; see the log of the server"
                self._set(job, "failed")

        threading.Thread(target=run, name="skillbelt-install", daemon=True).start()
        return job

    def _set(self, job: InstallJob, state: str) -> None:
        job.state = state
        self._tell()

    def _report(self, job: InstallJob) -> Callable[[str], None]:
        def report(text: str) -> None:
            if text:
                job.lines = [*job.lines, one_line(text)][-_MAX_LINES:]
                self._tell()

        return report

    def _gate(self, job: InstallJob) -> Gate:
        """Return a gate for which the click on the page is the answer."""
        belt = self._belt
        return Gate(
            lambda: belt.settings,
            lambda: belt.store,
            ask=lambda _: Answer("once", by=job.answered_by),
        )

    def _resolver(self, job: InstallJob) -> ResolvePackages:
        """Return the resolver for the packages of a skill; its requests appear in the inbox."""
        belt, report = self._belt, self._report(job)

        def resolve(name: str, folder: str, known: Mapping[str, object]) -> ResolvedPackages:
            if not find_declaring(folder):
                return ResolvedPackages()
            found: ResolvedPackages = packages_module().resolve_packages(
                name, folder, belt.gate, belt.settings, known=known, progress=report
            )
            if found.reason:
                job.message = one_line(
                    f"{name}: its packages are not locked: {found.reason}; "
                    f"`skillbelt update --packages {typed_name(name)}` tries again"
                )
            return found

        return resolve

    # Adding

    def _add(self, job: InstallJob, given: str, names: tuple[str, ...]) -> None:
        settings, report = self._belt.settings, self._report(job)
        reference = parse_typed(one_line(given), folder=settings.project)
        if reference.kind != "marketplace":
            check_source(reference.skill or reference.source, reference.url, settings)
        scope: InstallScope = "user" if job.scope == "user" else "project"
        target = AddTarget(place=find_place(settings, scope))
        wanted = [*names, *([reference.skill] if reference.skill else [])]
        with incoming(settings) as folder:
            source = open_source(reference, settings, folder, wanted=wanted, progress=report)
            chosen = self._choose(job, source, wanted)
            if chosen is None:
                return
            offered = list(offer_skills(source, source.choose(chosen), target, settings))
            refused = [_refusal(one) for one in offered if isinstance(one, RefusedSkill)]
            offers = [one for one in offered if isinstance(one, SkillOffer)]
            job.results = tuple(refused)
            job.offers = tuple(_describe_offer(one, target) for one in offers)
            if not self._agree(job):
                return
            new = [one for one in offers if not one.is_installed]
            with closing(self._gate(job)) as gate:
                if new:
                    ask_to_install(new, target, gate)
            packages = self._resolver(job)
            done = install_offers(offers, target, settings, progress=report, packages=packages)
            job.results = (*refused, *map(_result, done))
            self._finish(job)

    def _choose(
        self, job: InstallJob, source: OpenSource, wanted: Sequence[str]
    ) -> list[str] | None:
        """Return the chosen skills of the source; None if the person cancelled."""
        every = source.found.skills
        if wanted or len(every) == 1:
            return list(wanted) or [every[0].name]
        job.choices = tuple((one.name, one.description) for one in every)
        self._set(job, "choose")
        agreed, chosen = job.wait()
        if not agreed or not chosen:
            self._set(job, "cancelled")
            return None
        self._set(job, "fetching")
        return list(chosen)

    def _agree(self, job: InstallJob) -> bool:
        """Show what would be installed, and return whether the person agrees."""
        if not job.offers:
            if not job.results and not job.message:
                job.message = "there is nothing to install"
            self._set(job, "failed" if job.results else "done")
            return False
        self._set(job, "ready")
        agreed, _ = job.wait()
        self._set(job, "installing" if agreed else "cancelled")
        return agreed

    def _finish(self, job: InstallJob) -> None:
        self._belt.catalog.refresh()
        failed = all(one.action == "refused" for one in job.results)
        self._set(job, "failed" if failed and job.results else "done")

    # Updating

    def _update(self, job: InstallJob, locked: LockedSkill) -> None:
        settings, report, lock = self._belt.settings, self._report(job), locked.lock
        found = find_versions(lock, [locked.entry.name], settings, report).hold_back()
        refused = tuple(map(_refusal, found.refused))
        job.results = refused
        folder = skill_folder(lock.place, locked.entry.name)
        job.offers = tuple(_describe_version(one, folder, settings) for one in found.new)
        if not found.new and not refused:
            job.message = "it is the newest version of its source"
        if not self._agree(job):
            return
        with closing(self._gate(job)) as gate:
            gate.require(install_request(one.after for one in found.new))
        packages = self._resolver(job)
        new = tuple(with_packages(one, settings, packages) for one in found.new)
        done = apply_versions(found._replace(new=new), lock, settings, report)
        changed = [JobResult(one.name, one.action) for one in done.changes]
        job.results = (*changed, *map(_refusal, done.refused))
        self._finish(job)


def _describe_offer(offer: SkillOffer, target: AddTarget) -> OfferedSkill:
    before = _read_folder(skill_folder(target.place, offer.name)) if offer.current else {}
    return OfferedSkill(
        name=offer.name,
        facts=tuple(describe_offer(offer)),
        changes=tuple(compare_files(before, _read_folder(offer.fetched.folder)))
        if not offer.is_installed
        else (),
        findings=offer.judged.scanned.findings,
        is_installed=offer.is_installed,
    )


def _describe_version(version: NewVersion, folder: str, settings: Settings) -> OfferedSkill:
    with stored_version(version, settings) as new:
        changes = compare_files(_read_folder(folder), _read_folder(new))
    return OfferedSkill(
        name=version.before.name,
        facts=tuple(describe_news(version, folder, settings)),
        changes=tuple(changes),
        findings=version.judged.scanned.findings,
        is_installed=False,
    )


def _read_folder(folder: str) -> Mapping[str, tuple[str, str | None]]:
    try:
        return read_files(Skill.from_folder(folder))
    except (OSError, SkillbeltError):
        return {}


def _refusal(one: RefusedSkill | SyncRefusal) -> JobResult:
    return JobResult(one.name, "refused", one.message, one.remedy)


def _result(done: SkillChange | RefusedSkill) -> JobResult:
    return JobResult(done.name, done.action) if isinstance(done, SkillChange) else _refusal(done)


def _offer_document(one: OfferedSkill) -> dict[str, object]:
    return {
        "name": one.name,
        "facts": [{"label": label, "text": text} for label, text in one.facts],
        "changes": [
            {"path": each.path, "kind": each.kind, "lines": [line.text for line in each.lines]}
            for each in one.changes
        ],
        "findings": [each._asdict() for each in one.findings],
        "installed": one.is_installed,
    }
