"""Pulling sources side by side: cache first, then file or web, and always an answer in time."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from skillbelt.discovery.sources.bounds import (
    REMOTE_REFRESH_SECONDS,
    SOURCE_TIMEOUT_SECONDS,
    Budget,
    Deadline,
)
from skillbelt.discovery.sources.cache import Entry, Ready
from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure, diagnose, redact, report
from skillbelt.discovery.sources.located import (
    Located,
    Pulled,
    at_home,
    is_mcp,
    label_of,
    origin_of,
)
from skillbelt.values import Origin

if TYPE_CHECKING:
    from skillbelt.discovery.sources.addresses import Door
    from skillbelt.discovery.sources.cache import Stage
    from skillbelt.discovery.sources.transfer import Update
    from skillbelt.values import Diagnostic, Limits

_PAUSE_SECONDS = 60.0  # between attempts at a server that timed out
_GRACE_SECONDS = 0.5  # a worker ends itself at its deadline; this is for one that can not


class Job(NamedTuple):
    """One source to be pulled."""

    source: str
    cache_dir: str
    limits: Limits
    refresh: bool
    offline: bool
    private: tuple[str, ...] = ()  # what inside may be reached
    named: bool = True  # by the user, and not by a project

    @property
    def url(self) -> str:
        """The source as a URL; a plain path becomes a file URL."""
        source = self.source.strip()
        if "://" in source:
            return source
        return "file://" + quote(os.fsencode(os.path.abspath(at_home(source))))

    @property
    def local(self) -> bool:
        """Whether it lies on this machine."""
        return self.url.lower().startswith("file:")

    def door(self) -> Door:
        """Where it may lead; SourceFailure when that is set wrongly."""
        from skillbelt.discovery.sources.addresses import Door

        return Door(self.url, self.private, named=self.named)


# By their place in the cache: whom to ask for the files of skills that MCP servers list.
SERVERS: dict[str, Job] = {}


def run(jobs: list[Job]) -> list[Pulled]:
    """Every job's result, in order; each in a thread of its own unless the cache has it."""
    clashes = _clashes(jobs)
    workers = {job: _Worker(job) for job in jobs if label_of(job.url) not in clashes}
    return [
        workers[job].result() if job in workers else _unclear(job, clashes[label_of(job.url)])
        for job in jobs
    ]


def _clashes(jobs: list[Job]) -> dict[str, int]:
    """The names that several MCP servers would have, with how many have them.

    None of them gets it: what was allowed by that name may have been meant for any of them.
    """
    counted = Counter(label_of(url) for url in {job.url for job in jobs})
    return {label: count for label, count in counted.items() if label and count > 1}


def _unclear(job: Job, count: int) -> Pulled:
    message = f"{count} MCP servers are called {label_of(job.url)!r}; none of them is asked"
    remedy = "give each a name of its own: after the # of its address, or in mcp_commands"
    return Pulled((), (report("mcp-name-taken", "error", job.source, message, remedy),))


class _Worker:
    """A job under way. Its thread is left behind when it does not end by itself."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._deadline = Deadline(job.url, SOURCE_TIMEOUT_SECONDS)
        self._entry = Entry(job.cache_dir, job.url)
        if is_mcp(job.url):
            SERVERS[self._entry.path] = job
        self._result = _from_cache(job, self._entry)
        # Not a pool: its threads would be waited for when the interpreter ends.
        self._thread = threading.Thread(target=self._run, daemon=True)
        if self._result is None:
            self._thread.start()

    def result(self) -> Pulled:
        if self._result is None:
            self._thread.join(self._deadline.left() + _GRACE_SECONDS)
        return self._result or _fallback(self._job, self._entry, self._deadline.expired())

    def _run(self) -> None:
        try:
            self._result = _pull(self._job, self._entry, self._deadline)
        except Exception as error:
            # Whatever a source does to us, it must not take the others with it.
            self._result = _fallback(self._job, self._entry, error)


def _from_cache(job: Job, entry: Entry) -> Pulled | None:
    """The answer for which nobody has to be asked, if there is one."""
    if job.local:
        return None
    ready = entry.read()
    if job.offline:
        return _given(entry, ready) if ready else _offline(job, entry)
    if ready is None or job.refresh:
        return None
    entry.tidy(ready)
    if _recent(ready, REMOTE_REFRESH_SECONDS):
        return _given(entry, ready)
    if 0 <= time.time() - ready.gave_up < _pause(job):
        return _given(entry, ready, ready.trouble)
    return None


def _pause(job: Job) -> float:
    return min(_PAUSE_SECONDS, REMOTE_REFRESH_SECONDS)


def _recent(ready: Ready, seconds: float) -> bool:
    return 0 <= time.time() - ready.checked < seconds


def _given(entry: Entry, ready: Ready, more: tuple[Diagnostic, ...] = ()) -> Pulled:
    located = Located(entry.folder(ready), origin_of(ready.kind, redact(entry.url)))
    return Pulled((located,), ready.problems + more)


def _offline(job: Job, entry: Entry) -> Pulled:
    failure = SourceFailure(
        job.url,
        "no copy is in the cache and nobody may be asked",
        code="remote-offline",
        remedy="pull it once while online",
    )
    return _fallback(job, entry, failure)


def _fallback(job: Job, entry: Entry, error: Exception) -> Pulled:
    """The last good copy, if there is one, and why there is nothing newer."""
    ready = entry.read()
    problem = diagnose(error, job.source, copy=ready is not None)
    return _given(entry, ready, (problem,)) if ready else Pulled((), (problem,))


def _pull(job: Job, entry: Entry, deadline: Deadline) -> Pulled:
    if job.local and (folder := _local_folder(job.url)):
        return Pulled((Located(folder, Origin()),), ())
    started = time.time()
    with entry.locked(deadline):
        old = entry.read()
        if old and not job.local and _settled_by_another(job, old, started):
            return _given(entry, old)
        try:
            return _updated(job, entry, old, deadline)
        except (TimeoutError, OutOfTime) as error:
            late = error if isinstance(error, OutOfTime) else deadline.expired()
            return _given_up(job, entry, old, late)
        except Exception as error:
            return _fallback(job, entry, error)


def _given_up(job: Job, entry: Entry, old: Ready | None, error: OutOfTime) -> Pulled:
    """The last good copy; a server that costs its whole time is not asked on every call."""
    if old and not job.local:
        trouble = (diagnose(error, job.source, copy=True),)
        entry.write(old._replace(gave_up=time.time(), trouble=trouble))
    return _fallback(job, entry, error)


def _local_folder(url: str) -> str:
    from skillbelt.discovery.sources.local import path_of

    path = path_of(url)
    return os.path.abspath(path) if os.path.isdir(path) else ""


def _settled_by_another(job: Job, old: Ready, started: float) -> bool:
    """Whether another process did the work while this one waited for the lock."""
    if started <= old.checked <= time.time():
        return True
    return not job.refresh and _recent(old, REMOTE_REFRESH_SECONDS)


def _updated(job: Job, entry: Entry, old: Ready | None, deadline: Deadline) -> Pulled:
    with entry.stage() as stage:
        take = _from_file if job.local else _from_mcp if is_mcp(job.url) else _from_web
        found = take(job, entry, old, stage, deadline)
        deadline.check()
        return _published(entry, old, stage, found)


def _published(entry: Entry, old: Ready | None, stage: Stage, found: Update) -> Pulled:
    ready = Ready(
        url=redact(entry.url),
        kind=found.kind,
        generation=old.generation if old else "",
        previous=old.previous if old else "",
        checked=time.time() if found.finished else 0.0,
        document=redact(found.document),
        etag=found.etag,
        modified=found.modified,
        problems=found.problems,
    )
    if found.changed:
        ready = entry.publish(stage, ready, found.entries)
    elif old:
        entry.write(ready)
    else:
        return Pulled((), found.problems)
    return _given(entry, ready)


def _from_file(
    job: Job, entry: Entry, old: Ready | None, stage: Stage, deadline: Deadline
) -> Update:
    from skillbelt.discovery.sources.local import update

    return update(entry.url, old, stage, job.limits, Budget(job.limits, deadline))


def _from_mcp(
    job: Job, entry: Entry, old: Ready | None, stage: Stage, deadline: Deadline
) -> Update:
    from skillbelt.discovery.sources.mcp import update

    return update(job.url, entry, old, stage, job.limits, deadline, job.door())


def _from_web(
    job: Job, entry: Entry, old: Ready | None, stage: Stage, deadline: Deadline
) -> Update:
    import asyncio

    from skillbelt.discovery.sources.http import Http
    from skillbelt.discovery.sources.transfer import Web
    from skillbelt.discovery.sources.web import update

    async def bounded() -> Update:
        async with asyncio.timeout(deadline.left()):
            http = Http(job.limits, deadline, job.door())
            budget = Budget(job.limits, deadline)
            try:
                return await update(
                    Web(
                        url=job.url,
                        entry=entry,
                        old=old,
                        stage=stage,
                        http=http,
                        limits=job.limits,
                        budget=budget,
                    )
                )
            finally:
                await http.close()

    return asyncio.run(bounded())
