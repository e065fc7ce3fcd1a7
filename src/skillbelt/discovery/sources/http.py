"""HTTP for sources: GET with limits on time, bytes and redirects, revalidated where possible."""

from __future__ import annotations

import asyncio
import hashlib
import time
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin, urlsplit

import httpx2

from skillbelt.discovery.sources.bounds import Refusal
from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure, too_large
from skillbelt.discovery.sources.source_hosts import PinnedTransport, uses_proxy
from skillbelt.hosts import origin

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from skillbelt.discovery.sources.bounds import Deadline
    from skillbelt.discovery.sources.source_hosts import SourceHosts
    from skillbelt.values import Limits

# Each hop is checked again; honest servers need one or two.
MAX_REDIRECTS = 5
# A server that gives a longer time by mistake must not keep its skills outdated forever.
MAX_FRESH_SECONDS = 86_400.0

_REDIRECTS = (301, 302, 303, 307, 308)
# Limits and digests apply to the published bytes, so nothing may be compressed in transit.
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "skillbelt"}
_MAX_VALIDATOR_CHARS = 1024


class HttpResponse(NamedTuple):
    """The response to a GET; the body went to the writer, unless `unchanged`."""

    url: str  # after redirects
    unchanged: bool
    etag: str
    modified: str
    content_type: str
    encoding: str
    sha256: str
    # For how many seconds it may be used without asking; below 0 if the server gives no time.
    fresh_seconds: float = -1.0


class Validators(NamedTuple):
    """The validators of an earlier response, for a conditional request."""

    etag: str = ""
    modified: str = ""

    def headers(self) -> dict[str, str]:
        """Return the request's headers; an entity tag takes precedence over a date."""
        if self.etag:
            return {"If-None-Match": self.etag}
        return {"If-Modified-Since": self.modified} if self.modified else {}


class ClientPool:
    """Clients that connect to the allowed hosts of one source only, and follow no redirect."""

    def __init__(self, allowed: SourceHosts, timeout_seconds: float) -> None:
        self._allowed, self._seconds = allowed, timeout_seconds
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    async def close(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            await client.aclose()

    async def find(self, url: str) -> httpx2.AsyncClient:
        """Return the client for the address: direct, or through the environment's proxy."""
        by_proxy = uses_proxy(url)
        if by_proxy:
            _, host, port = origin(url)
            await self._allowed.check_proxied(host, port)
        if by_proxy not in self._clients:
            self._clients[by_proxy] = httpx2.AsyncClient(
                headers=_HEADERS,
                timeout=self._seconds,
                follow_redirects=False,
                verify=tls_context(),
                transport=None if by_proxy else PinnedTransport(self._allowed, tls_context()),
            )
        return self._clients[by_proxy]


class HttpClient:
    """Requests to one source, with its limits."""

    def __init__(self, limits: Limits, deadline: Deadline, allowed: SourceHosts) -> None:
        self._limits, self._deadline = limits, deadline
        self._pool = ClientPool(allowed, limits.http_timeout_seconds)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    async def get(
        self,
        url: str,
        write: Callable[[bytes], object],
        *,
        most: int,
        known: Validators | None = None,
        same_origin: bool = False,
    ) -> HttpResponse:
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
    ) -> HttpResponse:
        here = _check_web_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            client = await self._pool.find(here)
            request = client.build_request("GET", here, headers=headers)
            response = await client.send(request, stream=True)
            try:
                if response.status_code not in _REDIRECTS:
                    return await self._receive(here, response, write, most)
                here = redirect_target(here, response.headers.get("location", ""))
            finally:
                await response.aclose()
            if same_origin and origin(here) != origin(url):
                raise _bad_redirect(url, "is redirected to another host")
        raise _bad_redirect(url, f"has more than {MAX_REDIRECTS} redirects")

    async def _receive(
        self, url: str, response: httpx2.Response, write: Callable[[bytes], object], most: int
    ) -> HttpResponse:
        asked = "if-none-match" in response.request.headers
        asked = asked or "if-modified-since" in response.request.headers
        if response.status_code != 200 and not (asked and response.status_code == 304):
            raise _bad_status(url, response.status_code)
        digest = hashlib.sha256()
        if response.status_code == 200:
            count = 0
            async for chunk in response.aiter_raw():
                count += len(chunk)
                if count > most:
                    raise too_large(url, f"has more than {most} bytes")
                digest.update(chunk)
                write(chunk)
                self._deadline.check()
                # Otherwise a peer that always has data ready would starve the other downloads.
                await asyncio.sleep(0)
        return _to_response(url, response, digest.hexdigest())


@lru_cache(maxsize=1)
def tls_context() -> ssl.SSLContext:
    """Return the shared TLS context: reading the authorities takes longer than most requests."""
    return httpx2.create_ssl_context()


def _to_response(url: str, response: httpx2.Response, sha256: str) -> HttpResponse:
    def header(name: str) -> str:
        value = str(response.headers.get(name, ""))
        return value if len(value) <= _MAX_VALIDATOR_CHARS else ""

    encoding = header("content-encoding").lower()
    return HttpResponse(
        url=url,
        unchanged=response.status_code == 304,
        etag=header("etag"),
        modified=header("last-modified"),
        content_type=header("content-type").partition(";")[0].strip().lower(),
        encoding="" if encoding == "identity" else encoding,
        sha256=sha256,
        fresh_seconds=fresh_seconds(response.headers),
    )


def fresh_seconds(headers: Mapping[str, str]) -> float:
    """Return for how long a response may be used; below 0 if it does not say.

    Like a browser, not like a shared proxy, so `private` and `s-maxage` do not matter.
    """
    control = headers.get("cache-control", "").lower()
    rules = [rule.strip() for rule in control.split(",")]
    if any(rule.partition("=")[0] in ("no-cache", "no-store") for rule in rules):
        return 0.0
    ages = [rule.partition("=")[2].strip('" ') for rule in rules if rule.startswith("max-age")]
    if ages:
        age = _seconds(ages[0]) - _seconds(headers.get("age", ""))
        return min(max(age, 0.0), MAX_FRESH_SECONDS)
    return _until(headers.get("expires", ""), headers.get("date", ""))


def _seconds(text: str) -> float:
    """Return a number of seconds; 0 for anything else, so that the server is asked again."""
    text = text.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0.0


def _until(expires: str, date: str) -> float:
    if not expires:
        return -1.0
    try:
        end = parsedate_to_datetime(expires).timestamp()
        begin = parsedate_to_datetime(date).timestamp() if date else time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(end - begin, 0.0), MAX_FRESH_SECONDS)


def _check_web_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise SourceFailure(
            url, "is not an http or https address", code="remote-address", remedy="fix the address"
        )
    return url


def redirect_target(url: str, location: str) -> str:
    """Return the target of a redirect; raises SourceFailure when it may not be followed."""
    target = urljoin(url, location)
    # A request over TLS is never redirected to plain HTTP.
    allowed = ("https",) if urlsplit(url).scheme.lower() == "https" else ("http", "https")
    if not location or urlsplit(target).scheme.lower() not in allowed:
        raise _bad_redirect(url, f"is redirected to {location[:200]!r}")
    return target


def _bad_redirect(url: str, reason: str) -> SourceFailure:
    return SourceFailure(url, reason, code="remote-redirect", remedy="use the final address")


def _bad_status(url: str, status: int) -> SourceFailure:
    remedy = "check the address" if status < 500 else "try again later with `skillbelt refresh`"
    reason = f"the server answered {status}"
    return SourceFailure(url, reason, code="remote-status", remedy=remedy, status=status)


def _unreachable(url: str, error: Exception) -> SourceFailure:
    reason = str(error) or type(error).__name__
    remedy = "check the network and the address, then `skillbelt refresh`"
    return SourceFailure(url, reason, code="remote-unreachable", remedy=remedy)
