"""Pull sources in parallel: from the cache, a file, the web or an MCP server, within a deadline."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import Counter
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

from skillbelt.discovery.sources.address import (
    Pulled,
    SourceFolder,
    expand_home,
    is_mcp,
    origin_of,
)
from skillbelt.discovery.sources.archive import adopt_archive, skill_name, unpack_into
from skillbelt.discovery.sources.bounds import (
    MAX_DOWNLOAD_BYTES,
    REMOTE_REFRESH_SECONDS,
    SOURCE_TIMEOUT_SECONDS,
    Deadline,
    PullBudget,
    Refusal,
)
from skillbelt.discovery.sources.cache import (
    CachedSource,
    CopyState,
    Generation,
    Update,
    copy_chunks,
)
from skillbelt.discovery.sources.failure import (
    OutOfTime,
    SourceFailure,
    diagnose,
    redact,
    report,
    too_large,
)
from skillbelt.discovery.sources.mcp import pull_mcp
from skillbelt.discovery.sources.mcp_address import label_of
from skillbelt.files.contain import FOLLOW_FILE, open_folder
from skillbelt.values import SKILL_FILE, Origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from skillbelt.discovery.sources.source_hosts import SourceHosts
    from skillbelt.values import Diagnostic, Limits

_PAUSE_SECONDS = 60.0  # between attempts at a server that timed out
_GRACE_SECONDS = 0.5  # for a worker that cannot stop itself at its deadline


class PullJob(NamedTuple):
    """One source to pull."""

    source: str
    cache_dir: str
    limits: Limits
    refresh: bool
    offline: bool
    private: tuple[str, ...] = ()  # private hosts and networks it may reach
    named: bool = True  # by the user, not by a project

    @property
    def url(self) -> str:
        """The source as a URL; a plain path becomes a file URL."""
        source = self.source.strip()
        if "://" in source:
            return source
        return "file://" + quote(os.fsencode(os.path.abspath(expand_home(source))))

    @property
    def local(self) -> bool:
        """Whether it is a file or folder on this machine."""
        return self.url.lower().startswith("file:")

    def source_hosts(self) -> SourceHosts:
        """Return the hosts it may be fetched from; SourceFailure when they are set wrongly."""
        hosts: SourceHosts = _web().SourceHosts(self.url, self.private, named=self.named)
        return hosts


def _web() -> ModuleType:
    from skillbelt.discovery.sources import web  # cost: httpx2 and asyncio, 90 ms

    return web


# The MCP servers that list skills, by their folder in the cache: their files are fetched later.
SERVERS: dict[str, PullJob] = {}


def run(jobs: list[PullJob]) -> list[Pulled]:
    """Return every job's result, in order; each in its own thread unless the cache has it."""
    clashes = _label_clashes(jobs)
    workers = {job: _PullThread(job) for job in jobs if label_of(job.url) not in clashes}
    return [
        workers[job].result() if job in workers else _refuse_clash(job, clashes[label_of(job.url)])
        for job in jobs
    ]


def _label_clashes(jobs: list[PullJob]) -> dict[str, int]:
    """Return the labels that several MCP servers share, with how many share each.

    None of these servers gets the label: a rule that names it could mean any of them.
    """
    counted = Counter(label_of(url) for url in {job.url for job in jobs})
    return {label: count for label, count in counted.items() if label and count > 1}


def _refuse_clash(job: PullJob, count: int) -> Pulled:
    message = f"{count} MCP servers are called {label_of(job.url)!r}; none of them is asked"
    remedy = "give each its own name: after the # of its address, or in mcp_commands"
    return Pulled((), (report("mcp-name-taken", "error", job.source, message, remedy),))


class _PullThread:
    """A job in progress. Its thread is abandoned when it does not stop by itself."""

    def __init__(self, job: PullJob) -> None:
        self._job = job
        self._deadline = Deadline(job.url, SOURCE_TIMEOUT_SECONDS)
        self._cached = CachedSource(job.cache_dir, job.url)
        if is_mcp(job.url):
            SERVERS[self._cached.path] = job
        self._result = _from_cache(job, self._cached)
        # Not a thread pool: the interpreter would wait for its threads at exit.
        self._thread = threading.Thread(target=self._run, daemon=True)
        if self._result is None:
            self._thread.start()

    def result(self) -> Pulled:
        if self._result is None:
            self._thread.join(self._deadline.left() + _GRACE_SECONDS)
        return self._result or _fallback(self._job, self._cached, self._deadline.expired())

    def _run(self) -> None:
        try:
            self._result = _pull(self._job, self._cached, self._deadline)
        except Exception as error:
            # One hostile source must not break the others; the diagnostic shows the error.
            self._result = _fallback(self._job, self._cached, error)


def _from_cache(job: PullJob, cached: CachedSource) -> Pulled | None:
    """Return the result that needs no request, if there is one."""
    if job.local:
        return None
    state = cached.read()
    if job.offline:
        return _use_copy(cached, state) if state else _offline(job, cached)
    if state is None or job.refresh:
        return None
    cached.tidy(state)
    if _is_recent(state):
        return _use_copy(cached, state)
    pause = min(_PAUSE_SECONDS, REMOTE_REFRESH_SECONDS)
    if 0 <= time.time() - state.gave_up < pause:
        return _use_copy(cached, state, state.trouble)
    return None


def _is_recent(state: CopyState) -> bool:
    """Whether the copy may be used without a request: for the server's time, or a default one."""
    seconds = state.fresh_seconds
    return 0 <= time.time() - state.checked < (REMOTE_REFRESH_SECONDS if seconds < 0 else seconds)


def _use_copy(cached: CachedSource, state: CopyState, more: tuple[Diagnostic, ...] = ()) -> Pulled:
    folder = SourceFolder(cached.folder(state), origin_of(state.kind, redact(cached.url)))
    return Pulled((folder,), state.problems + more)


def _offline(job: PullJob, cached: CachedSource) -> Pulled:
    failure = SourceFailure(
        job.url,
        "no copy is in the cache, and offline no request is made",
        code="remote-offline",
        remedy="pull it once while online",
    )
    return _fallback(job, cached, failure)


def _fallback(job: PullJob, cached: CachedSource, error: Exception) -> Pulled:
    """Return the last good copy, if there is one, and why there is nothing newer."""
    state = cached.read()
    problem = diagnose(error, job.source, copy=state is not None)
    return _use_copy(cached, state, (problem,)) if state else Pulled((), (problem,))


def _pull(job: PullJob, cached: CachedSource, deadline: Deadline) -> Pulled:
    if job.local and os.path.isdir(path := path_of(job.url)):
        return Pulled((SourceFolder(os.path.abspath(path), Origin()),), ())
    started = time.time()
    with cached.locked(deadline):
        old = cached.read()
        if old and not job.local and _pulled_meanwhile(job, old, started):
            return _use_copy(cached, old)
        try:
            with cached.stage() as stage:
                take = _from_file if job.local else _from_server
                update = take(job, cached, old, stage, deadline)
                deadline.check()
                return _publish(cached, old, stage, update)
        except (TimeoutError, OutOfTime) as error:
            late = error if isinstance(error, OutOfTime) else deadline.expired()
            return _give_up(job, cached, old, late)
        except Exception as error:
            return _fallback(job, cached, error)


def _give_up(job: PullJob, cached: CachedSource, old: CopyState | None, error: OutOfTime) -> Pulled:
    """Return the last good copy, and remember not to ask a slow server on every call."""
    if old and not job.local:
        trouble = (diagnose(error, job.source, copy=True),)
        cached.write(old._replace(gave_up=time.time(), trouble=trouble))
    return _fallback(job, cached, error)


def _pulled_meanwhile(job: PullJob, old: CopyState, started: float) -> bool:
    """Whether another process pulled it while this one waited for the lock."""
    if started <= old.checked <= time.time():
        return True
    return not job.refresh and _is_recent(old)


def _publish(
    cached: CachedSource, old: CopyState | None, stage: Generation, update: Update
) -> Pulled:
    state = CopyState(
        url=redact(cached.url),
        kind=update.kind,
        generation=old.generation if old else "",
        previous=old.previous if old else "",
        checked=time.time() if update.finished else 0.0,
        document=redact(update.document),
        etag=update.etag,
        modified=update.modified,
        problems=update.problems,
        fresh_seconds=update.fresh_seconds,
    )
    if update.changed:
        state = cached.publish(stage, state, update.entries)
    elif old:
        cached.write(state)
    else:
        return Pulled((), update.problems)
    return _use_copy(cached, state)


def _from_server(
    job: PullJob,
    cached: CachedSource,
    old: CopyState | None,
    stage: Generation,
    deadline: Deadline,
) -> Update:
    pull: Callable[..., Update] = pull_mcp if is_mcp(job.url) else _web().pull_web
    return pull(
        job.url,
        cached=cached,
        old=old,
        stage=stage,
        limits=job.limits,
        deadline=deadline,
        allowed=job.source_hosts(),
    )


# Archives and single SKILL.md files on this machine


def path_of(url: str) -> str:
    """Return the path of a file URL; raises SourceFailure for one on another machine."""
    parts = urlsplit(url)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.netloc not in ("", "localhost") or not path or "\0" in path:
        reason = "is not the address of a file on this machine"
        raise _unreadable(url, reason, "write it as file:///absolute/path")
    return path


def _from_file(
    job: PullJob,
    cached: CachedSource,
    old: CopyState | None,
    stage: Generation,
    deadline: Deadline,
) -> Update:
    """Take the file when its size, times or inode changed."""
    url, budget = cached.url, PullBudget(deadline)
    path = path_of(url)
    single = path.lower().endswith(".md")
    with _open_regular(url, path) as file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_DOWNLOAD_BYTES:
            raise too_large(url, Refusal(f"has more than {MAX_DOWNLOAD_BYTES} bytes"))
        mark = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"
        update = Update("url" if single else "archive", True, url, mark)
        if old and old.etag == mark:
            return update._replace(changed=False)
        part = stage.part()
        if single:
            folder = open_folder(part)
            try:
                with budget.file(folder, SKILL_FILE) as write:
                    copy_chunks(file.read, write)
            finally:
                os.close(folder)
            stage.adopt(part, skill_name(url))
        else:
            unpack_into(part, file, url, budget)
            adopt_archive(stage, part, url)
    return update


def _open_regular(url: str, path: str) -> IO[bytes]:
    """Open a regular file; a FIFO or a device could block or never end."""
    try:
        fd = os.open(path, FOLLOW_FILE)
    except OSError as error:
        reason = f"cannot be opened: {error.strerror}"
        raise _unreadable(url, reason, "check the path") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _unreadable(url, "is not a regular file", "give an archive, a SKILL.md or a folder")
    return os.fdopen(fd, "rb")


def _unreadable(url: str, reason: str, remedy: str) -> SourceFailure:
    return SourceFailure(url, reason, code="source-unreadable", remedy=remedy)
