"""Which host git may reach: checked by the rules of other sources, and pinned for git."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from skillbelt.discovery.sources.bounds import Deadline
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.discovery.sources.http import HttpClient
from skillbelt.discovery.sources.source_hosts import SourceHosts, uses_proxy
from skillbelt.hosts import origin
from skillbelt.values import Limits

_REFS = "/info/refs"
_QUERY = "?service=git-upload-pack"
_MAX_REFS_BYTES = 64 * 2**20


def pin_host(url: str, private: Sequence[str], *, source: str = "") -> str:
    """Return `http.curloptResolve` for the host; raise SourceFailure for one that is private.

    With a proxy, which resolves names itself, "". `source` is what the user named, if another.
    """
    allowed = SourceHosts(source or url, private)
    _, host, port = origin(url)
    if uses_proxy(url):
        asyncio.run(allowed.check_proxied(host, port))
        return ""
    try:
        found = asyncio.run(allowed.addresses(host, port))
    except OSError as error:
        raise _unknown(url, error) from error
    except SourceFailure:
        raise
    except Exception as error:  # httpx2.ConnectError, for a name without an address
        raise _unknown(url, error) from error
    texts = [f"[{one}]" if one.version == 6 else str(one) for one in found]
    return f"{host.strip('[]')}:{port}:{','.join(texts)}"


def _unknown(url: str, error: Exception) -> SourceFailure:
    remedy = "check the address and the network"
    return SourceFailure(url, str(error), code="remote-unreachable", remedy=remedy)


def redirected(url: str, private: Sequence[str], limits: Limits, deadline: Deadline) -> str:
    """Return the address of the repository that the server redirects to; raises SourceFailure."""

    async def ask() -> str:
        http = HttpClient(limits, deadline, SourceHosts(url, private))
        try:
            answer = await http.get(
                url.rstrip("/") + _REFS + _QUERY, lambda _: None, most=_MAX_REFS_BYTES
            )
            return answer.url
        finally:
            await http.close()

    found = urlsplit(asyncio.run(ask()))
    if not found.path.endswith(_REFS):
        remedy = "use the address of the repository itself"
        raise SourceFailure(url, "is no repository", code="remote-redirect", remedy=remedy)
    return found._replace(path=found.path.removesuffix(_REFS), query="").geturl()
