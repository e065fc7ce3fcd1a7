"""What the ways of pulling share: the source at hand, the outcome, and checks of what came."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from skillbelt.discovery.sources import archive
from skillbelt.discovery.sources.bounds import Budget, Refusal
from skillbelt.discovery.sources.failure import SourceFailure, redact
from skillbelt.discovery.sources.http import Answer, Http, Validators
from skillbelt.files.contain import open_folder
from skillbelt.values import Diagnostic, OriginKind

if TYPE_CHECKING:
    from skillbelt.discovery.sources.cache import Entry, Ready, Stage
    from skillbelt.values import Limits


class Update(NamedTuple):
    """What a pull found out. The stage holds a whole new copy if `changed`."""

    kind: OriginKind
    changed: bool
    document: str = ""
    etag: str = ""
    modified: str = ""
    finished: bool = True  # nothing was put off for want of time
    problems: tuple[Diagnostic, ...] = ()
    entries: dict[str, Any] = {}  # noqa: RUF012 - never written to


class Web(NamedTuple):
    """One source being pulled: its place, its means and the copy that is there already."""

    url: str
    entry: Entry
    old: Ready | None
    stage: Stage
    http: Http
    limits: Limits
    budget: Budget

    def known(self, document: str) -> Validators:
        """What to revalidate with, if the copy in use was made from that document."""
        if self.old is None or self.old.document != redact(document):
            return Validators()
        return Validators(self.old.etag, self.old.modified)


def unpack_into(part: str, file: IO[bytes], url: str, limits: Limits, budget: Budget) -> None:
    """Unpack an archive below the folder; raises ArchiveRefused."""
    folder = open_folder(part)
    try:
        archive.unpack(file, folder, source=url, limits=limits, budget=budget)
    finally:
        os.close(folder)


def check_text(url: str, answer: Answer) -> None:
    """Raise SourceFailure for a page about the file, or for bytes that are not the file's own."""
    if answer.content_type == "text/html":
        raise SourceFailure(
            url, "is an HTML page", code="remote-not-a-skill", remedy="give the raw file's address"
        )
    check_encoding(url, answer)


def check_encoding(url: str, answer: Answer) -> None:
    """Raise SourceFailure for bytes that were encoded on the way."""
    if answer.encoding:
        raise SourceFailure(
            url,
            f"was sent as {answer.encoding!r} though nothing but 'identity' was asked for",
            code="remote-encoding",
            remedy="have the server send it as it is",
        )


def too_large(url: str, refusal: Refusal) -> SourceFailure:
    """The failure of a source that broke a bound."""
    return SourceFailure(url, str(refusal), code="remote-too-large", remedy="publish it in parts")
