"""Pulling from the web: an archive, one SKILL.md, or a list of skills that has to be found first.

Everything is written into a stage; the caller publishes it or throws it away.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from skillbelt.discovery.sources import archive, index
from skillbelt.discovery.sources.bounds import MAX_DOWNLOAD_BYTES, MAX_REMOTE_INDEX_BYTES, Refusal
from skillbelt.discovery.sources.failure import SourceFailure, redact
from skillbelt.discovery.sources.listing import pull_listing
from skillbelt.discovery.sources.located import ARCHIVE_ENDINGS
from skillbelt.discovery.sources.transfer import Update, Web, check_text, too_large, unpack_into
from skillbelt.files.contain import open_folder
from skillbelt.values import SKILL_FILE, OriginKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from skillbelt.discovery.sources.cache import Stage
    from skillbelt.discovery.sources.http import Answer

_SAFE_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PLACES = ("/.well-known/agent-skills/index.json", "/.well-known/skills/index.json", "/index.json")


async def update(web: Web) -> Update:
    """Bring the stage up to date with the web; raises SourceError."""
    path = urlsplit(web.url).path.lower()
    if path.endswith(ARCHIVE_ENDINGS):
        return await _archive(web)
    if path.endswith(".md"):
        return await _single(web)
    if path.endswith(".json"):
        return await _list(web, web.url)
    return await _site(web)


async def _archive(web: Web) -> Update:
    known = web.known(web.url)
    with web.stage.spool() as spool:
        answer = await web.http.get(
            web.url, _sniffed(spool.write, web.url), most=MAX_DOWNLOAD_BYTES, known=known
        )
        if _is_same(web, answer):
            return _same(web, "archive", answer)
        spool.seek(0)
        if archive.detect(spool.read(archive.SNIFF_BYTES)) is None:
            raise _no_archive(web.url)
        spool.seek(0)
        part = web.stage.part()
        unpack_into(part, spool, web.url, web.limits, web.budget)
    adopt_archive(web.stage, part, web.url)
    return _whole("archive", web.url, answer)


def _sniffed(write: Callable[[bytes], object], url: str) -> Callable[[bytes], None]:
    """`write`, which stops a download as soon as its first bytes show that it is no archive."""
    head = b""

    def checked(data: bytes) -> None:
        nonlocal head
        if len(head) < archive.SNIFF_BYTES:
            head += data[: archive.SNIFF_BYTES]
            if len(head) >= archive.SNIFF_BYTES and archive.detect(head) is None:
                raise _no_archive(url)
        write(data)

    return checked


def _no_archive(url: str) -> SourceFailure:
    reason = "is neither zip nor tar nor gzipped tar"
    return SourceFailure(url, reason, code="archive-unknown", remedy="give an archive's address")


def adopt_archive(stage: Stage, part: str, url: str) -> None:
    """Make the part what is scanned; an archive that is itself a skill gets a folder's name."""
    if os.path.isfile(os.path.join(part, SKILL_FILE)):
        stage.adopt(part, archive_name(url))
    else:
        stage.adopt(part)


def archive_name(url: str) -> str:
    """A folder name for an archive: its file name without the ending."""
    last = unquote(urlsplit(url).path).rpartition("/")[2]
    for ending in sorted(ARCHIVE_ENDINGS, key=len, reverse=True):
        if last.lower().endswith(ending):
            last = last[: -len(ending)]
            break
    return last if _SAFE_WORD.fullmatch(last) else _host_slug(url)


def skill_name(url: str) -> str:
    """A folder name for a single SKILL.md: the folder it is published in."""
    parent = unquote(urlsplit(url).path).rpartition("/")[0].rpartition("/")[2]
    return parent if _SAFE_WORD.fullmatch(parent) else _host_slug(url)


def _host_slug(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return re.sub(r"[^a-z0-9]+", "-", host.lower()).strip("-") or "skill"


async def _single(web: Web) -> Update:
    part = web.stage.part()
    folder = open_folder(part)
    try:
        with web.budget.file(folder, SKILL_FILE) as write:
            answer = await web.http.get(
                web.url, write, most=MAX_DOWNLOAD_BYTES, known=web.known(web.url)
            )
    except Refusal as refusal:
        raise too_large(web.url, refusal) from refusal
    finally:
        os.close(folder)
    if _is_same(web, answer):
        return _same(web, "url", answer)
    check_text(web.url, answer)
    web.stage.adopt(part, skill_name(web.url))
    return _whole("url", web.url, answer)


def _whole(kind: OriginKind, url: str, answer: Answer) -> Update:
    entries = {"": {"key": answer.sha256}}
    return Update(
        kind=kind,
        changed=True,
        document=url,
        etag=answer.etag,
        modified=answer.modified,
        entries=entries,
    )


def _is_same(web: Web, answer: Answer) -> bool:
    """Whether the copy in use was made from these very bytes."""
    if web.old is None or web.old.document != redact(web.url):
        return False
    return answer.unchanged or web.entry.entries(web.old).get("") == {"key": answer.sha256}


def _same(web: Web, kind: OriginKind, answer: Answer) -> Update:
    known = web.known(web.url)
    return Update(
        kind=kind,
        changed=False,
        document=web.url,
        etag=answer.etag or known.etag,
        modified=answer.modified or known.modified,
    )


async def _site(web: Web) -> Update:
    """The first place that holds a list; at last the address itself, if an archive is there."""
    tried: list[SourceFailure] = []
    for place in places(web.url):
        try:
            return await _list(web, place)
        except SourceFailure as failure:
            if not _moves_on(failure):
                raise
            tried.append(failure)
    try:
        return await _archive(web)
    except SourceFailure as failure:
        if not _moves_on(failure):
            raise
        raise _nothing_found(web.url, tried) from failure


def _moves_on(failure: SourceFailure) -> bool:
    # A server in trouble says nothing about where its list is; taking the next place could put
    # another list in the place of the right one.
    if failure.code in ("remote-index-invalid", "archive-unknown"):
        return True
    return 400 <= failure.status < 500


def places(url: str) -> list[str]:
    """Where a site may publish its list: below the address first, then at its root."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    paths = [path + place for place in _PLACES]
    if path:
        paths += _PLACES[:2]
    return [urlunsplit((parts.scheme, parts.netloc, place, "", "")) for place in paths]


def _nothing_found(url: str, tried: list[SourceFailure]) -> SourceFailure:
    reasons = "; ".join(f"{urlsplit(failure.source).path} {failure.reason}" for failure in tried)
    return SourceFailure(
        url,
        f"no list of skills and no archive there ({reasons})",
        code="remote-no-skills",
        remedy="give the address of an archive, a SKILL.md or a folder with an index.json",
    )


async def _list(web: Web, document: str) -> Update:
    body = bytearray()
    answer = await web.http.get(
        document, body.extend, most=MAX_REMOTE_INDEX_BYTES, known=web.known(document)
    )
    if answer.unchanged and web.old:
        return Update(
            kind=web.old.kind,
            changed=False,
            document=document,
            etag=web.old.etag,
            modified=web.old.modified,
        )
    found = await pull_listing(web, index.parse(bytes(body), answer.url, web.limits))
    # Only when no skill has to be asked about again does "unchanged" mean that all is.
    settled = found.finished and not found.problems and all(map(_keyed, found.entries.values()))
    if not settled:
        return found._replace(document=document)
    return found._replace(document=document, etag=answer.etag, modified=answer.modified)


def _keyed(entry: dict[str, Any]) -> bool:
    return bool(entry.get("key"))
