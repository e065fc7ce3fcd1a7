"""Fetching the skills of a list: each one whole or not at all, what did not change not again."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from skillbelt.discovery.sources.bounds import MAX_DOWNLOAD_BYTES, MAX_EXTRACTED_FILE_BYTES, Refusal
from skillbelt.discovery.sources.cache import link_tree
from skillbelt.discovery.sources.failure import SourceFailure, diagnose, report
from skillbelt.discovery.sources.http import Validators
from skillbelt.discovery.sources.index import digest_of
from skillbelt.discovery.sources.transfer import (
    Update,
    check_encoding,
    check_text,
    too_large,
    unpack_into,
)
from skillbelt.errors import SourceError
from skillbelt.files.contain import open_beneath, open_folder
from skillbelt.values import SKILL_FILE, Diagnostic

if TYPE_CHECKING:
    from collections.abc import Callable

    from skillbelt.discovery.sources.index import Item, Listing
    from skillbelt.discovery.sources.transfer import Web

_SKILLS_AT_A_TIME = 4
_FILES_AT_A_TIME = 8
_SHARE_OF_TIME = 0.9  # the rest is for putting the copy together
_CHUNK = 64 * 2**10


class _Outcome(NamedTuple):
    """What became of one skill: a new part, or the old copy if there is one."""

    name: str
    state: Literal["new", "same", "failed", "late"]
    part: str = ""
    entry: dict[str, Any] = {}  # noqa: RUF012 - never written to
    problem: Diagnostic | None = None


async def pull_listing(web: Web, listing: Listing) -> Update:
    """Every skill of the list in the stage, if any of them changed."""
    fetch = _Fetch(web)
    outcomes = await fetch.all(listing.items)
    entries = {}
    for outcome in outcomes:
        if outcome.state == "new":
            entries[outcome.name] = outcome.entry
        elif outcome.name in fetch.old:
            entries[outcome.name] = fetch.old[outcome.name]
    changed = (
        any(outcome.state == "new" for outcome in outcomes) or entries.keys() != fetch.old.keys()
    )
    if changed:
        fetch.assemble([outcome for outcome in outcomes if outcome.name in entries])
    found = tuple(outcome.problem for outcome in outcomes if outcome.problem)
    finished = all(outcome.state != "late" for outcome in outcomes)
    problems = listing.problems + found
    return Update(listing.kind, changed, finished=finished, problems=problems, entries=entries)


class _Fetch:
    """The skills of one list on their way into a stage."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._skills = asyncio.Semaphore(_SKILLS_AT_A_TIME)
        self._files = asyncio.Semaphore(_FILES_AT_A_TIME)
        self._folder = web.entry.folder(web.old) if web.old else ""
        entries = web.entry.entries(web.old) if web.old else {}
        self.old = {name: entry for name, entry in entries.items() if self._whole(name, entry)}

    def _whole(self, name: str, entry: object) -> bool:
        return isinstance(entry, dict) and os.path.isdir(os.path.join(self._folder, name))

    async def all(self, items: tuple[Item, ...]) -> list[_Outcome]:
        """What became of each, in order; those not done in time keep their old copy."""
        tasks = [asyncio.ensure_future(self._one(item)) for item in items]
        if tasks:
            seconds = self._web.budget.deadline.left() * _SHARE_OF_TIME
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        return [
            self._late(item) if task.cancelled() else task.result()
            for item, task in zip(items, tasks, strict=True)
        ]

    def assemble(self, outcomes: list[_Outcome]) -> None:
        """Put new parts and old copies together as one copy."""
        stage, budget = self._web.stage, self._web.budget
        for outcome in outcomes:
            part = outcome.part
            if outcome.state != "new":
                part = stage.part()
                os.rmdir(part)
                size = link_tree(os.path.join(self._folder, outcome.name), part)
                _spend(self._web.url, budget.spend, size)
            stage.adopt(part, outcome.name)

    def _late(self, item: Item) -> _Outcome:
        message = f"{item.name!r} was not fetched in the time there was"
        remedy = "the next refresh goes on with it"
        problem = report("remote-timeout", "warning", item.url, message, remedy)
        return _Outcome(item.name, "late", problem=problem)

    async def _one(self, item: Item) -> _Outcome:
        async with self._skills:
            old = self.old.get(item.name, {})
            if item.key and old.get("key") == item.key:
                return _Outcome(item.name, "same")
            part = self._web.stage.part()
            try:
                entry = await self._fetched(item, part, old)
            except SourceError as error:
                problem = diagnose(error, item.url, copy=bool(old))
                return _Outcome(item.name, "failed", problem=problem)
            if not item.key and _hashes(entry) == _hashes(old):
                return _Outcome(item.name, "same")
            return _Outcome(item.name, "new", part, entry)

    async def _fetched(self, item: Item, part: str, old: dict[str, Any]) -> dict[str, Any]:
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

    async def _fetch_artifact(self, item: Item, part: str, folder: int) -> None:
        web = self._web
        with web.stage.spool() as spool:
            most = MAX_DOWNLOAD_BYTES
            answer = await web.http.get(item.url, spool.write, most=most)
            if answer.sha256 != digest_of(item):
                raise SourceFailure(
                    item.url,
                    f"{item.name!r} has the digest sha256:{answer.sha256}, not the one published",
                    code="remote-digest-mismatch",
                    remedy="nothing of it was kept; ask its publisher to mend the index",
                )
            spool.seek(0)
            if item.kind == "archive":
                unpack_into(part, spool, item.url, web.limits, web.budget)
                return
            with web.budget.file(folder, SKILL_FILE) as write:
                _copy(spool.read, write)

    async def _fetch_files(self, item: Item, folder: int, old: dict[str, Any]) -> dict[str, Any]:
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
        self, item: Item, file: str, folder: int, old: dict[str, Any]
    ) -> list[str]:
        url, web = item.file_url(file), self._web
        known = old.get("files", {}).get(file, ["", "", ""])
        async with self._files:
            with web.budget.file(folder, file) as write:
                answer = await web.http.get(
                    url,
                    write,
                    most=MAX_EXTRACTED_FILE_BYTES,
                    known=Validators(known[0], known[1]),
                    same_origin=True,
                )
                if answer.unchanged:
                    self._copy_old(f"{item.name}/{file}", write)
                    return list(known)
        if file == SKILL_FILE:
            check_text(url, answer)
        check_encoding(url, answer)
        return [answer.etag, answer.modified, answer.sha256]

    def _copy_old(self, relative: str, write: Callable[[bytes], None]) -> None:
        folder = open_folder(self._folder)
        try:
            fd = open_beneath(folder, relative, os.O_RDONLY | os.O_NOFOLLOW)
        finally:
            os.close(folder)
        with os.fdopen(fd, "rb") as file:
            _copy(file.read, write)


def _hashes(entry: dict[str, Any]) -> dict[str, str]:
    return {file: facts[2] for file, facts in entry.get("files", {}).items()}


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], None]) -> None:
    while chunk := read(_CHUNK):
        write(chunk)


def _spend(url: str, spend: Callable[[int], None], size: int) -> None:
    try:
        spend(size)
    except Refusal as refusal:
        raise too_large(url, refusal) from refusal
