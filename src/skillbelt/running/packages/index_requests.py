"""One request over HTTP or HTTPS, with the user's certificate authorities and proxies.

A separate module, since `ssl` and `urllib.request` take 13 ms to import, and most runs with
packages find theirs installed.
"""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPException, HTTPResponse
from urllib.error import URLError
from urllib.parse import urlsplit


class IndexResponse:
    """The response of a server; its errors are OSErrors."""

    def __init__(self, found: HTTPResponse) -> None:
        self._found = found
        self.status = found.status
        length = found.headers.get("content-length", "")
        self.size = int(length) if length.isdigit() else None
        self.type = found.headers.get_content_type()
        self.location = found.headers.get("location", "")

    def read(self, most: int) -> bytes:
        """Read the available bytes without waiting for more; empty at the end."""
        try:
            return self._found.read1(most)
        except HTTPException as error:
            raise ConnectionError(None, str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close the connection."""
        self._found.close()


class Requester:
    """Sends requests with the certificate files and proxies of the user."""

    def __init__(
        self, authorities: tuple[str, ...], proxies: Mapping[str, str], seconds: float
    ) -> None:
        self._authorities, self._proxies, self._seconds = authorities, proxies, seconds
        # Valid as long as every server's authority is in the system's folder of authorities.
        self._folder_is_enough = True

    def open(self, url: str, headers: Mapping[str, str]) -> IndexResponse:
        """Return the response, of any status; raises OSError or ValueError without one."""
        try:
            if self._folder_is_enough:
                with suppress(ssl.SSLCertVerificationError):
                    return self._send(url, headers, _folder_context())
                self._folder_is_enough = False
            return self._send(url, headers, _context(self._authorities))
        except HTTPException as error:
            raise ConnectionError(None, str(error) or type(error).__name__) from error

    def _send(self, url: str, headers: Mapping[str, str], context: ssl.SSLContext) -> IndexResponse:
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.ProxyHandler(_for_host(self._proxies, url)),
            urllib.request.HTTPSHandler(context=context),
            _Plain(),
        ]
        opener = urllib.request.OpenerDirector()
        for handler in (*handlers, urllib.request.HTTPHandler(), urllib.request.UnknownHandler()):
            opener.add_handler(handler)
        request = urllib.request.Request(url, headers=dict(headers))
        try:
            found = opener.open(request, timeout=self._seconds)
        except URLError as error:
            if isinstance(error.reason, OSError):
                raise error.reason from error
            raise ValueError(str(error.reason)) from error
        if found is None:
            raise ValueError("it cannot be requested")
        return IndexResponse(found)


class _Plain(urllib.request.BaseHandler):
    """Passes every response on: redirects and errors are handled by the caller."""

    def http_response(self, request: object, response: object) -> object:
        """Return the response."""
        return response

    https_response = http_response


def _for_host(proxies: Mapping[str, str], url: str) -> dict[str, str]:
    host = urlsplit(url).netloc.rpartition("@")[2]
    with suppress(ValueError):
        if urllib.request.proxy_bypass_environment(host, dict(proxies)):  # type: ignore[attr-defined]
            return {}
    return {name: value for name, value in proxies.items() if name != "no"}


@lru_cache(maxsize=1)
def _folder_context() -> ssl.SSLContext:
    """Return a context with the system's folder of authorities, of which it reads only one file.

    The default context trusts that folder too; it also reads the file of all authorities, which
    takes 25 ms.
    """
    return ssl.create_default_context(capath=ssl.get_default_verify_paths().capath or os.devnull)


@lru_cache(maxsize=4)
def _context(authorities: tuple[str, ...]) -> ssl.SSLContext:
    """Return the context of all requests: reading the certificates takes longer than a request."""
    context = ssl.create_default_context()
    read = {_real_path(ssl.get_default_verify_paths().cafile)}
    for path in authorities:
        if _real_path(path) not in read:  # several variables often name the same file
            read.add(_real_path(path))
            with suppress(OSError, ssl.SSLError):
                context.load_verify_locations(cafile=path)
    return context


def _real_path(path: str | None) -> str:
    return os.path.realpath(path) if path else ""
