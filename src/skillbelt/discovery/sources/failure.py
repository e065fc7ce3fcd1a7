"""Failures of sources: one exception with a code and a remedy, and its diagnostic."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from skillbelt.discovery.sources.address import MCP_COMMAND
from skillbelt.errors import ArchiveRefused, SourceError
from skillbelt.text import one_line, shorten
from skillbelt.values import Diagnostic

if TYPE_CHECKING:
    from skillbelt.values import Severity

_MESSAGE_CHARS = 400


class SourceFailure(SourceError):
    """A source cannot be read now. `code` is the diagnostic's, `status` the HTTP status or 0."""

    def __init__(
        self, source: str, reason: str, *, code: str, remedy: str = "", status: int = 0
    ) -> None:
        self.code, self.remedy, self.status = code, remedy, status
        super().__init__(redact(source), reason)


class OutOfTime(SourceFailure):
    """A source was not done at its deadline."""

    def __init__(
        self,
        source: str,
        reason: str,
        remedy: str = "check the server, or raise http_timeout_seconds",
    ) -> None:
        super().__init__(source, reason, code="remote-timeout", remedy=remedy)


def too_large(source: str, reason: Exception | str) -> SourceFailure:
    """Return the failure of a source that exceeded a limit."""
    return SourceFailure(source, str(reason), code="remote-too-large", remedy="publish it in parts")


def redact(url: str) -> str:
    """Remove user name and password from a URL that is shown or stored.

    For an MCP server that is a command, keep the label only: the command may contain secrets.
    """
    if url.lower().startswith(MCP_COMMAND):
        return url.partition("?")[0]
    try:
        parts = urlsplit(url)
        if "@" not in parts.netloc:
            return url
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    except ValueError:
        return url.rpartition("@")[2]


def diagnose(error: Exception, source: str, *, copy: bool) -> Diagnostic:
    """Return the diagnostic for the error; a warning while an earlier copy is still in use."""
    code, reason, remedy = _explain(error, redact(source))
    if copy:
        reason += "; the last good copy is in use"
    return report(code, "warning" if copy else "error", source, reason, remedy)


def report(code: str, severity: Severity, source: str, message: str, remedy: str) -> Diagnostic:
    """Return a diagnostic about a source; text from the server is made safe to print."""
    text = shorten(one_line(message), _MESSAGE_CHARS)
    return Diagnostic(
        code=code,
        severity=severity,
        path=one_line(redact(source)),
        line=None,
        message=text,
        remedy=remedy,
    )


def _explain(error: Exception, source: str) -> tuple[str, str, str]:
    if isinstance(error, SourceFailure):
        # A redirect or an entry may fail at another address than the source.
        elsewhere = "" if error.source == source else f"{error.source}: "
        return error.code, elsewhere + error.reason, error.remedy
    if isinstance(error, ArchiveRefused):
        remedy = error.remedy
        return "archive-refused", error.reason, remedy
    if isinstance(error, OSError):
        return "cache-unusable", str(error), "check the folder given as cache_dir"
    return "remote-failed", f"{type(error).__name__}: {error}", "check the address"
