"""HTTP for sources: one GET, bounded in time, bytes and redirects, revalidated where it can be."""

from __future__ import annotations

import asyncio
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin, urlsplit

import httpx2

from skillbelt.discovery.sources.addresses import Pinned, proxied
from skillbelt.discovery.sources.bounds import Refusal
from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from skillbelt.discovery.sources.addresses import Door
    from skillbelt.discovery.sources.bounds import Deadline
    from skillbelt.values import Limits

# Each hop is checked again; honest servers need one or two.
MAX_REDIRECTS = 5

_REDIRECTS = (301, 302, 303, 307, 308)
# Caps and digests are of the bytes as they were published, so nothing may be compressed on the way.
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "skillbelt"}
_MAX_VALIDATOR_CHARS = 1024


class Answer(NamedTuple):
    """What a GET gave: the bytes went to the writer, unless `unchanged`."""

    url: str  # after redirects
    unchanged: bool
    etag: str
    modified: str
    content_type: str
    encoding: str
    sha256: str


class Validators(NamedTuple):
    """What an earlier answer said about itself, to ask whether it still holds."""

    etag: str = ""
    modified: str = ""

    def headers(self) -> dict[str, str]:
        """The request's headers; an entity tag is enough where there is one."""
        if self.etag:
            return {"If-None-Match": self.etag}
        return {"If-Modified-Since": self.modified} if self.modified else {}


class Http:
    """A connection pool for one source, which goes nowhere but through its door."""

    def __init__(self, limits: Limits, deadline: Deadline, door: Door) -> None:
        self._limits, self._deadline, self._door = limits, deadline, door
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    async def close(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            await client.aclose()

    async def _client(self, url: str) -> httpx2.AsyncClient:
        """Who asks for the address: ourselves, or the proxy of the user's environment."""
        by_proxy = proxied(url)
        if by_proxy:
            _, host, port = origin(url)
            await self._door.check_proxied(host, port)
        if by_proxy not in self._clients:
            self._clients[by_proxy] = httpx2.AsyncClient(
                headers=_HEADERS,
                timeout=self._limits.http_timeout_seconds,
                follow_redirects=False,
                verify=trusted(),
                transport=None if by_proxy else Pinned(self._door, trusted()),
            )
        return self._clients[by_proxy]

    async def get(
        self,
        url: str,
        write: Callable[[bytes], object],
        *,
        most: int,
        known: Validators | None = None,
        same_origin: bool = False,
    ) -> Answer:
        """Send the body to `write`; raises SourceFailure, or what `write` raises.

        With `same_origin` no redirect may leave the URL's scheme, host and port.
        """
        headers = (known or Validators()).headers()
        try:
            return await self._follow(url, write, most, headers, same_origin)
        except (SourceFailure, Refusal):
            raise
        except httpx2.TimeoutException as error:
            what = type(error).__name__.removesuffix("Timeout").lower()
            seconds = self._limits.http_timeout_seconds
            raise OutOfTime(url, f"no answer within {seconds:g} s ({what})") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise _unreachable(url, error) from error

    async def _follow(
        self,
        url: str,
        write: Callable[[bytes], object],
        most: int,
        headers: dict[str, str],
        same_origin: bool,
    ) -> Answer:
        here = _web_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            client = await self._client(here)
            request = client.build_request("GET", here, headers=headers)
            response = await client.send(request, stream=True)
            try:
                if response.status_code not in _REDIRECTS:
                    return await self._receive(here, response, write, most)
                here = redirected(here, response.headers.get("location", ""))
            finally:
                await response.aclose()
            if same_origin and origin(here) != origin(url):
                raise _bad_redirect(url, "is redirected to another host")
        raise _bad_redirect(url, f"has more than {MAX_REDIRECTS} redirects")

    async def _receive(
        self, url: str, response: httpx2.Response, write: Callable[[bytes], object], most: int
    ) -> Answer:
        asked = "if-none-match" in response.request.headers
        asked = asked or "if-modified-since" in response.request.headers
        if response.status_code != 200 and not (asked and response.status_code == 304):
            raise _status(url, response.status_code)
        digest = hashlib.sha256()
        if response.status_code == 200:
            count = 0
            async for chunk in response.aiter_raw():
                count += len(chunk)
                if count > most:
                    raise _too_large(url, most)
                digest.update(chunk)
                write(chunk)
                self._deadline.check()
                # A peer that always has data ready would otherwise never let the others run.
                await asyncio.sleep(0)
        return _answer(url, response, digest.hexdigest())


@lru_cache(maxsize=1)
def trusted() -> ssl.SSLContext:
    """The authorities to trust, shared: reading them takes longer than most requests."""
    return httpx2.create_ssl_context()


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what "the same site" means."""
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname or "", parts.port or default


def _answer(url: str, response: httpx2.Response, sha256: str) -> Answer:
    def header(name: str) -> str:
        value = str(response.headers.get(name, ""))
        return value if len(value) <= _MAX_VALIDATOR_CHARS else ""

    encoding = header("content-encoding").lower()
    return Answer(
        url=url,
        unchanged=response.status_code == 304,
        etag=header("etag"),
        modified=header("last-modified"),
        content_type=header("content-type").partition(";")[0].strip().lower(),
        encoding="" if encoding == "identity" else encoding,
        sha256=sha256,
    )


def _web_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise SourceFailure(
            url, "is not an http or https address", code="remote-address", remedy="mend the address"
        )
    return url


def redirected(url: str, location: str) -> str:
    """Where a redirect leads; raises SourceFailure when it may not be followed."""
    target = urljoin(url, location)
    # What was asked for over TLS is not taken from a line that anybody may write to.
    allowed = ("https",) if urlsplit(url).scheme.lower() == "https" else ("http", "https")
    if not location or urlsplit(target).scheme.lower() not in allowed:
        raise _bad_redirect(url, f"is redirected to {location[:200]!r}")
    return target


def _bad_redirect(url: str, reason: str) -> SourceFailure:
    return SourceFailure(url, reason, code="remote-redirect", remedy="use the final address")


def _status(url: str, status: int) -> SourceFailure:
    remedy = "check the address" if status < 500 else "try again later with `skillbelt refresh`"
    reason = f"the server answered {status}"
    return SourceFailure(url, reason, code="remote-status", remedy=remedy, status=status)


def _too_large(url: str, most: int) -> SourceFailure:
    reason = f"has more than {most} bytes"
    return SourceFailure(url, reason, code="remote-too-large", remedy="publish it in parts")


def _unreachable(url: str, error: Exception) -> SourceFailure:
    reason = str(error) or type(error).__name__
    remedy = "check the network and the address, then `skillbelt refresh`"
    return SourceFailure(url, reason, code="remote-unreachable", remedy=remedy)
