"""Fetch from the user's package index, and from no other host.

This runs outside any sandbox, so that the user's credentials stay outside. Responses are bytes, and
a redirect is followed only to hosts that files may come from.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import closing
from ipaddress import ip_address
from urllib.parse import unquote, urljoin, urlsplit

from skillbelt.errors import RunRefused
from skillbelt.hosts import Address, HostRule, Private, address_of, host_name, origin, parse_rule
from skillbelt.late import made_once
from skillbelt.running.packages.fetched import BodyChunks, Fetched, KeptPages, NotFetched
from skillbelt.running.packages.index_config import IndexAddress, IndexConfig, without_user
from skillbelt.running.packages.index_requests import IndexResponse, Requester
from skillbelt.text import one_line, shorten

_MAX_REDIRECTS = 5
_UNUSABLE = "unusable"
_REDIRECTS = (301, 302, 303, 307, 308)


class IndexFetcher:
    """Fetches for one configuration. `hosts` are further ones that files may come from."""

    def __init__(
        self,
        indexes: IndexConfig,
        *,
        hosts: Iterable[str] = (),
        environ: Mapping[str, str],
        timeout_seconds: float = 60.0,
        open_default: bool = False,
        kept: KeptPages | None = None,
    ) -> None:
        every = [*indexes.first, *indexes.scopes.values(), *filter(None, (indexes.main,))]
        pages = [
            IndexAddress(one) for one in indexes.links if urlsplit(one).scheme in ("http", "https")
        ]
        self._origins = {index.origin: index.authorization for index in (*pages, *every)}
        self._rules = tuple(map(_parse_host, hosts))
        # The installer's default index may serve its files from another host, which it names.
        self._anywhere = open_default
        self._seconds = timeout_seconds
        self._proxies = _proxies(environ)
        self._authorities = indexes.authorities
        self._kept = KeptPages() if kept is None else kept
        self._safe: set[tuple[str, int]] = set()
        self.faults: list[str] = []

    def get(self, url: str, accept: str = "*/*", *, ahead: bool = False) -> Fetched:
        """Fetch the URL; raises NotFetched when it is missing or not allowed.

        Any reason but a plain 404 is added to `faults`, unless the URL is fetched `ahead` of a
        request.
        """
        try:
            with self._kept.turn(url, accept):
                return self._kept.find(url, accept) or self._keep(url, accept)
        except NotFetched as missing:
            if missing.status not in (404, 410) and not ahead:
                self.faults.append(str(missing))
            raise

    def size(self, url: str) -> int:
        """Return the size of a file that was fetched; 0 for any other."""
        return self._kept.size(url)

    def _keep(self, url: str, accept: str) -> Fetched:
        return self._kept.add(url, accept, self._get(url, accept))

    def _get(self, url: str, accept: str) -> Fetched:
        if urlsplit(url).scheme == "file":
            return _open_local(unquote(urlsplit(url).path))
        for _ in range(_MAX_REDIRECTS + 1):
            self._check(url)
            response = self._open(url, accept)
            if response.status not in _REDIRECTS:
                return self._to_fetched(url, response)
            with closing(response):
                url = resolve_url(url, response.location)
        raise NotFetched(502, f"{_display(url)} has more than {_MAX_REDIRECTS} redirects")

    def _check(self, url: str) -> None:
        """Raise NotFetched unless files may come from that host."""
        if origin(url) in self._origins:
            return
        scheme, host, port = origin(url)
        try:
            name = host_name(host)
        except ValueError as error:
            raise NotFetched(403, f"{_display(url)} has no valid host") from error
        if scheme in ("http", "https") and any(rule.covers(name, port) for rule in self._rules):
            return
        if not (self._anywhere and scheme == "https" and self._is_safe(name, port)):
            raise NotFetched(
                403,
                f"{name} is not your package index; if that serves files from there, "
                f"set package_hosts to {name}",
            )

    def _is_safe(self, host: str, port: int) -> bool:
        """Whether every address of the host is public, or an address of an index itself."""
        if (host, port) in self._safe:
            return True
        own = {address for origin in self._origins for address in _addresses(*origin[1:])}
        # A resolver may fail now and then; that is not the host's fault.
        found = _addresses(host, port) or _addresses(host, port)
        safe = bool(found) and not any(
            Private().fault(address) for address in found if address not in own
        )
        if safe:
            self._safe.add((host, port))
        return safe

    def _open(self, url: str, accept: str) -> IndexResponse:
        headers = {"Accept": accept, "User-Agent": "skillbelt", "Accept-Encoding": "identity"}
        authorization = self._origins.get(origin(url), "")
        if authorization:
            headers["Authorization"] = authorization
        try:
            return self._requester.open(url, headers)
        except (OSError, ValueError) as error:
            reason = shorten(one_line(str(error)), 200)
            raise NotFetched(502, f"{_display(url)}: {reason}") from error

    @made_once
    def _requester(self) -> Requester:
        return Requester(self._authorities, self._proxies, self._seconds)

    def _to_fetched(self, url: str, response: IndexResponse) -> Fetched:
        if response.status != 200:
            response.close()
            raise NotFetched(response.status, f"{_display(url)} answered {response.status}")
        return Fetched(url, response.type, response.size, BodyChunks(response))


def resolve_url(page: str, where: str) -> str:
    """Return the URL that a page or a redirect names; it may be invalid.

    Only a page on this machine may name files of it.
    """
    try:
        url = urljoin(page, where)
        if urlsplit(url).scheme != "file" or urlsplit(page).scheme == "file":
            return url
    except ValueError:
        pass
    return f"{_UNUSABLE}:{where}"


def _open_local(path: str) -> Fetched:
    try:
        if os.path.isdir(path):
            path = os.path.join(path, "index.html")
        file = open(path, "rb")  # noqa: SIM115 - closed when it is read
    except OSError as error:
        raise NotFetched(404, f"{path}: {error.strerror}") from error
    kind = "text/html" if path.endswith((".html", ".htm")) else "application/octet-stream"
    return Fetched(f"file://{path}", kind, os.fstat(file.fileno()).st_size, BodyChunks(file))


def _parse_host(text: str) -> HostRule:
    try:
        return parse_rule(text)
    except ValueError as error:
        raise RunRefused(f"package_hosts: {text!r} is not a host: {error}") from error


def _addresses(host: str, port: int) -> list[Address]:
    literal = address_of(host)
    if literal:
        return [literal]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [ip_address(str(entry[4][0])) for entry in found]
    except (OSError, ValueError):
        return []


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name in ("http", "https", "no"):
        key = f"{name}_proxy"
        value = environ.get(key) or environ.get(key.upper()) or ""
        if not value and name != "no":
            value = environ.get("all_proxy") or environ.get("ALL_PROXY") or ""
        if value:
            found[name] = value
    return found


def _display(url: str) -> str:
    return shorten(one_line(without_user(url)), 200)
