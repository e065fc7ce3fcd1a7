"""Pull from the web: an archive, one SKILL.md, or a published list of skills.

Everything is written into a staged copy, which the caller publishes or deletes.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from skillbelt.discovery.sources import archive, skill_index
from skillbelt.discovery.sources.address import ARCHIVE_ENDINGS
from skillbelt.discovery.sources.archive import adopt_archive, skill_name, unpack_into
from skillbelt.discovery.sources.bounds import (
    MAX_DOWNLOAD_BYTES,
    MAX_EXTRACTED_FILE_BYTES,
    MAX_REMOTE_INDEX_BYTES,
    Deadline,
    PullBudget,
    Refusal,
)
from skillbelt.discovery.sources.cache import Update, copy_chunks, link_tree
from skillbelt.discovery.sources.failure import (
    SourceFailure,
    diagnose,
    redact,
    report,
    too_large,
)
from skillbelt.discovery.sources.http import HttpClient, HttpResponse, Validators
from skillbelt.discovery.sources.source_hosts import SourceHosts
from skillbelt.errors import SourceError
from skillbelt.files.contain import READ_FILE, open_beneath, open_folder
from skillbelt.values import SKILL_FILE, Diagnostic, OriginKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from skillbelt.discovery.sources.cache import CachedSource, CopyState, Generation
    from skillbelt.discovery.sources.skill_index import IndexItem, SkillIndex
    from skillbelt.values import Limits

_INDEX_PATHS = (
    "/.well-known/agent-skills/index.json",
    "/.well-known/skills/index.json",
    "/index.json",
)
_SKILLS_AT_A_TIME = 4
_FILES_AT_A_TIME = 8
_SHARE_OF_TIME = 0.9  # the rest is for assembling the copy


class WebPull(NamedTuple):
    """One source being pulled: its URL, the HTTP client, the stage and the copy in use."""

    url: str
    cached: CachedSource
    old: CopyState | None
    stage: Generation
    http: HttpClient
    limits: Limits
    budget: PullBudget

    def known(self, document: str) -> Validators:
        """Return the validators, if the copy in use was made from that document."""
        if self.old is None or self.old.document != redact(document):
            return Validators()
        return Validators(self.old.etag, self.old.modified)


def pull_web(
    url: str,
    *,
    cached: CachedSource,
    old: CopyState | None,
    stage: Generation,
    limits: Limits,
    deadline: Deadline,
    allowed: SourceHosts,
) -> Update:
    """Update the stage from the web; raises SourceError, or TimeoutError at the deadline."""

    async def bounded() -> Update:
        async with asyncio.timeout(deadline.left()):
            http = HttpClient(limits, deadline, allowed)
            web = WebPull(
                url=url,
                cached=cached,
                old=old,
                stage=stage,
                http=http,
                limits=limits,
                budget=PullBudget(deadline),
            )
            try:
                return await _pull(web)
            finally:
                await http.close()

    return asyncio.run(bounded())


async def _pull(web: WebPull) -> Update:
    path = urlsplit(web.url).path.lower()
    if path.endswith(ARCHIVE_ENDINGS):
        return await _pull_archive(web)
    if path.endswith(".md"):
        return await _pull_skill_file(web)
    if path.endswith(".json"):
        return await _pull_index(web, web.url)
    return await _pull_site(web)


async def _pull_archive(web: WebPull) -> Update:
    known = web.known(web.url)
    with web.stage.spool() as spool:
        response = await web.http.get(
            web.url,
            _stop_unless_archive(spool.write, web.url),
            most=MAX_DOWNLOAD_BYTES,
            known=known,
        )
        if _is_same(web, response):
            return _keep_unchanged(web, "archive", response)
        spool.seek(0)
        if archive.detect(spool.read(archive.SNIFF_BYTES)) is None:
            raise _make_not_archive(web.url)
        spool.seek(0)
        part = web.stage.part()
        unpack_into(part, spool, web.url, web.budget)
    adopt_archive(web.stage, part, web.url)
    return _new_copy("archive", web.url, response)


def _stop_unless_archive(write: Callable[[bytes], object], url: str) -> Callable[[bytes], None]:
    """Wrap `write` to stop a download as soon as its first bytes are not those of an archive."""
    head = b""

    def checked(data: bytes) -> None:
        nonlocal head
        if len(head) < archive.SNIFF_BYTES:
            head += data[: archive.SNIFF_BYTES]
            if len(head) >= archive.SNIFF_BYTES and archive.detect(head) is None:
                raise _make_not_archive(url)
        write(data)

    return checked


def _make_not_archive(url: str) -> SourceFailure:
    reason = "is neither zip nor tar nor gzipped tar"
    return SourceFailure(url, reason, code="archive-unknown", remedy="give an archive's address")


async def _pull_skill_file(web: WebPull) -> Update:
    part = web.stage.part()
    folder = open_folder(part)
    try:
        with web.budget.file(folder, SKILL_FILE) as write:
            response = await web.http.get(
                web.url, write, most=MAX_DOWNLOAD_BYTES, known=web.known(web.url)
            )
    except Refusal as refusal:
        raise too_large(web.url, refusal) from refusal
    finally:
        os.close(folder)
    if _is_same(web, response):
        return _keep_unchanged(web, "url", response)
    check_text(web.url, response)
    web.stage.adopt(part, skill_name(web.url))
    return _new_copy("url", web.url, response)


def _new_copy(kind: OriginKind, url: str, response: HttpResponse) -> Update:
    entries = {"": {"key": response.sha256}}
    return Update(
        kind=kind,
        changed=True,
        document=url,
        etag=response.etag,
        modified=response.modified,
        entries=entries,
        fresh_seconds=response.fresh_seconds,
    )


def _is_same(web: WebPull, response: HttpResponse) -> bool:
    """Whether the copy in use was made from these bytes."""
    if web.old is None or web.old.document != redact(web.url):
        return False
    return response.unchanged or web.cached.entries(web.old).get("") == {"key": response.sha256}


def _keep_unchanged(web: WebPull, kind: OriginKind, response: HttpResponse) -> Update:
    known = web.known(web.url)
    return Update(
        kind=kind,
        changed=False,
        document=web.url,
        etag=response.etag or known.etag,
        modified=response.modified or known.modified,
        fresh_seconds=response.fresh_seconds,
    )


async def _pull_site(web: WebPull) -> Update:
    """Try each place that may hold a list, and last the address itself as an archive."""
    tried: list[SourceFailure] = []
    for place in index_urls(web.url):
        try:
            return await _pull_index(web, place)
        except SourceFailure as failure:
            if not _try_next(failure):
                raise
            tried.append(failure)
    try:
        return await _pull_archive(web)
    except SourceFailure as failure:
        if not _try_next(failure):
            raise
        raise _make_not_found(web.url, tried) from failure


def _try_next(failure: SourceFailure) -> bool:
    # An error of the server does not mean that there is no list; trying the next place could
    # replace the right list by another.
    if failure.code in ("remote-index-invalid", "archive-unknown"):
        return True
    return 400 <= failure.status < 500


def index_urls(url: str) -> list[str]:
    """Return where a site may publish its list: below the address first, then at its root."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    paths = [path + place for place in _INDEX_PATHS]
    if path:
        paths += _INDEX_PATHS[:2]
    return [urlunsplit((parts.scheme, parts.netloc, place, "", "")) for place in paths]


def _make_not_found(url: str, tried: list[SourceFailure]) -> SourceFailure:
    reasons = "; ".join(f"{urlsplit(failure.source).path} {failure.reason}" for failure in tried)
    return SourceFailure(
        url,
        f"has no list of skills and is not an archive ({reasons})",
        code="remote-no-skills",
        remedy="give the address of an archive, a SKILL.md or a folder with an index.json",
    )


async def _pull_index(web: WebPull, document: str) -> Update:
    body = bytearray()
    response = await web.http.get(
        document, body.extend, most=MAX_REMOTE_INDEX_BYTES, known=web.known(document)
    )
    if response.unchanged and web.old:
        return Update(
            kind=web.old.kind,
            changed=False,
            document=document,
            etag=web.old.etag,
            modified=web.old.modified,
            fresh_seconds=response.fresh_seconds,
        )
    found = await _pull_skills(web, skill_index.parse(bytes(body), response.url))
    # A 304 may cover the whole source only when no skill has to be requested again.
    settled = (
        found.finished
        and not found.problems
        and all(entry.get("key") for entry in found.entries.values())
    )
    found = found._replace(fresh_seconds=response.fresh_seconds)
    if not settled:
        return found._replace(document=document)
    return found._replace(document=document, etag=response.etag, modified=response.modified)


def check_text(url: str, response: HttpResponse) -> None:
    """Raise SourceFailure for an HTML page in place of the file, or for encoded bytes."""
    if response.content_type == "text/html":
        raise SourceFailure(
            url, "is an HTML page", code="remote-not-a-skill", remedy="give the raw file's address"
        )
    check_encoding(url, response)


def check_encoding(url: str, response: HttpResponse) -> None:
    """Raise SourceFailure for bytes that were encoded in transit."""
    if response.encoding:
        raise SourceFailure(
            url,
            f"was sent as {response.encoding!r} although only 'identity' was accepted",
            code="remote-encoding",
            remedy="have the server send it without encoding",
        )


# The skills of a list


class _Outcome(NamedTuple):
    """The outcome for one skill: a new part, or the old copy if there is one."""

    name: str
    state: Literal["new", "same", "failed", "late"]
    part: str = ""
    entry: dict[str, Any] = {}  # noqa: RUF012 - never written to
    problem: Diagnostic | None = None


async def _pull_skills(web: WebPull, index: SkillIndex) -> Update:
    """Stage every skill of the list, if any of them changed."""
    downloads = _SkillDownloads(web)
    outcomes = await downloads.run(index.items)
    entries = {}
    for outcome in outcomes:
        if outcome.state == "new":
            entries[outcome.name] = outcome.entry
        elif outcome.name in downloads.old:
            entries[outcome.name] = downloads.old[outcome.name]
    changed = (
        any(outcome.state == "new" for outcome in outcomes)
        or entries.keys() != downloads.old.keys()
    )
    if changed:
        downloads.assemble([outcome for outcome in outcomes if outcome.name in entries])
    found = tuple(outcome.problem for outcome in outcomes if outcome.problem)
    finished = all(outcome.state != "late" for outcome in outcomes)
    problems = index.problems + found
    return Update(index.kind, changed, finished=finished, problems=problems, entries=entries)


class _SkillDownloads:
    """Downloads the skills of one list into a stage: each complete, and only what changed."""

    def __init__(self, web: WebPull) -> None:
        self._web = web
        self._skill_slots = asyncio.Semaphore(_SKILLS_AT_A_TIME)
        self._file_slots = asyncio.Semaphore(_FILES_AT_A_TIME)
        self._folder = web.cached.folder(web.old) if web.old else ""
        entries = web.cached.entries(web.old) if web.old else {}
        self.old = {name: entry for name, entry in entries.items() if self._is_present(name, entry)}

    def _is_present(self, name: str, entry: object) -> bool:
        return isinstance(entry, dict) and os.path.isdir(os.path.join(self._folder, name))

    async def run(self, items: tuple[IndexItem, ...]) -> list[_Outcome]:
        """Return the outcome of each, in order; those not done in time keep their old copy."""
        tasks = [asyncio.ensure_future(self._pull_one(item)) for item in items]
        if tasks:
            seconds = self._web.budget.deadline.left() * _SHARE_OF_TIME
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        return [
            self._report_late(item) if task.cancelled() else task.result()
            for item, task in zip(items, tasks, strict=True)
        ]

    def assemble(self, outcomes: list[_Outcome]) -> None:
        """Assemble one copy from new parts and old copies."""
        stage, budget = self._web.stage, self._web.budget
        for outcome in outcomes:
            part = outcome.part
            if outcome.state != "new":
                part = stage.part()
                os.rmdir(part)
                size = link_tree(os.path.join(self._folder, outcome.name), part)
                try:
                    budget.spend(size)
                except Refusal as refusal:
                    raise too_large(self._web.url, refusal) from refusal
            stage.adopt(part, outcome.name)

    def _report_late(self, item: IndexItem) -> _Outcome:
        message = f"{item.name!r} was not fetched in time"
        remedy = "the next refresh continues with it"
        problem = report("remote-timeout", "warning", item.url, message, remedy)
        return _Outcome(item.name, "late", problem=problem)

    async def _pull_one(self, item: IndexItem) -> _Outcome:
        async with self._skill_slots:
            old = self.old.get(item.name, {})
            if item.key and old.get("key") == item.key:
                return _Outcome(item.name, "same")
            part = self._web.stage.part()
            try:
                entry = await self._fetch(item, part, old)
            except SourceError as error:
                problem = diagnose(error, item.url, copy=bool(old))
                return _Outcome(item.name, "failed", problem=problem)
            if not item.key and _hashes(entry) == _hashes(old):
                return _Outcome(item.name, "same")
            return _Outcome(item.name, "new", part, entry)

    async def _fetch(self, item: IndexItem, part: str, old: dict[str, Any]) -> dict[str, Any]:
        folder = open_folder(part)
        try:
            if item.kind == "files":
                return {"key": item.key, "files": await self._fetch_files(item, folder, old)}
            await self._fetch_artifact(item, part, folder)
            return {"key": item.key, "files": {}}
        except Refusal as refusal:
            raise too_large(item.url, refusal) from refusal
        finally:
            os.close(folder)

    async def _fetch_artifact(self, item: IndexItem, part: str, folder: int) -> None:
        web = self._web
        with web.stage.spool() as spool:
            most = MAX_DOWNLOAD_BYTES
            response = await web.http.get(item.url, spool.write, most=most)
            if response.sha256 != item.digest:
                raise SourceFailure(
                    item.url,
                    f"{item.name!r} has the digest sha256:{response.sha256}, not the one published",
                    code="remote-digest-mismatch",
                    remedy="it was discarded; ask its publisher to fix the index",
                )
            spool.seek(0)
            if item.kind == "archive":
                unpack_into(part, spool, item.url, web.budget)
                return
            with web.budget.file(folder, SKILL_FILE) as write:
                copy_chunks(spool.read, write)

    async def _fetch_files(
        self, item: IndexItem, folder: int, old: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    file: group.create_task(self._fetch_file(item, file, folder, old))
                    for file in item.files
                }
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return {file: task.result() for file, task in tasks.items()}

    async def _fetch_file(
        self, item: IndexItem, file: str, folder: int, old: dict[str, Any]
    ) -> list[str]:
        url, web = item.file_url(file), self._web
        known = old.get("files", {}).get(file, ["", "", ""])
        async with self._file_slots:
            with web.budget.file(folder, file) as write:
                response = await web.http.get(
                    url,
                    write,
                    most=MAX_EXTRACTED_FILE_BYTES,
                    known=Validators(known[0], known[1]),
                    same_origin=True,
                )
                if response.unchanged:
                    self._copy_old(f"{item.name}/{file}", write)
                    return list(known)
        if file == SKILL_FILE:
            check_text(url, response)
        check_encoding(url, response)
        return [response.etag, response.modified, response.sha256]

    def _copy_old(self, relative: str, write: Callable[[bytes], None]) -> None:
        folder = open_folder(self._folder)
        try:
            fd = open_beneath(folder, relative, READ_FILE)
        finally:
            os.close(folder)
        with os.fdopen(fd, "rb") as file:
            copy_chunks(file.read, write)


def _hashes(entry: dict[str, Any]) -> dict[str, str]:
    return {file: facts[2] for file, facts in entry.get("files", {}).items()}
