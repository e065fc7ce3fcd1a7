"""Sources reached by our own requests: OCI registries, ClawHub, and the hosts that git may reach.

There is no agreed media type: any manifest counts whose layers are tar files, gzipped or not, that
together have a SKILL.md. Every document and layer must have the digest that names it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx2

from skillbelt.discovery.sources.archive import unpack_into
from skillbelt.discovery.sources.bounds import MAX_DOWNLOAD_BYTES, Deadline, PullBudget
from skillbelt.discovery.sources.failure import SourceFailure, too_large
from skillbelt.discovery.sources.http import ClientPool, HttpClient, redirect_target
from skillbelt.discovery.sources.source_hosts import SourceHosts, uses_proxy
from skillbelt.files.contain import FOLLOW_FILE
from skillbelt.hosts import origin
from skillbelt.install.source_syntax import OCI_LAYOUT
from skillbelt.install.values import SourceReference
from skillbelt.settings import Settings
from skillbelt.text import Lazy, one_line, shell_word
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

TIMEOUT_SECONDS = 120.0
CLAWHUB_URL = "https://clawhub.ai/api/v1/download"
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MAX_MANIFEST_BYTES = 4 * 2**20
_MAX_LAYERS = 100
_MAX_NESTED = 3
_MAX_NAMED = 12
_MAX_REDIRECTS = 5
_DIGEST = Lazy(r"sha256:[0-9a-f]{64}")
_CHALLENGE = Lazy(r'(\w+)="([^"]*)"')
_REFS = "/info/refs"
_QUERY = "?service=git-upload-pack"
_MAX_REFS_BYTES = 64 * 2**20
_REF_NAME = "org.opencontainers.image.ref.name"
T = TypeVar("T")


class FetchedFolder(NamedTuple):
    """A folder of files from a registry, and their origin."""

    folder: str
    provenance: Mapping[str, object]


def fetch(reference: SourceReference, settings: Settings, into: str) -> FetchedFolder:
    """Fetch a skill from a registry, a layout or ClawHub. Raises SourceError."""
    deadline = Deadline(reference.source, TIMEOUT_SECONDS)
    folder = os.path.join(into, "registry")
    os.mkdir(folder, 0o700)
    if reference.kind == "clawhub":
        return _fetch_clawhub(reference, settings, folder, deadline)
    if not reference.url.startswith("oci://"):
        return _fetch_layers(_Layout(reference), folder, deadline)
    registry = _Registry(reference, settings, deadline)
    try:
        return _fetch_layers(registry, folder, deadline)
    finally:
        registry.close()


def _fetch_clawhub(
    reference: SourceReference, settings: Settings, folder: str, deadline: Deadline
) -> FetchedFolder:
    url = reference.url
    if not url.startswith(("http://", "https://")):
        query = {"slug": reference.source}
        if reference.ref:
            query["version"] = reference.ref
        url = f"{CLAWHUB_URL}?{urlencode(query)}"

    async def download(file: IO[bytes]) -> str:
        http = HttpClient(settings.limits, deadline, SourceHosts(url, settings.private_sources))
        try:
            return (await http.get(url, file.write, most=MAX_DOWNLOAD_BYTES)).sha256
        finally:
            await http.close()

    with tempfile.TemporaryFile() as file:
        digest = asyncio.run(_limit_time(download(file), deadline))
        file.seek(0)
        unpack_into(folder, file, url, PullBudget(deadline))
    return FetchedFolder(folder, {"archiveDigest": f"sha256:{digest}"})


async def _limit_time(work: Awaitable[T], deadline: Deadline) -> T:
    try:
        async with asyncio.timeout(deadline.left()):
            return await work
    except TimeoutError as error:
        raise deadline.expired() from error


def _fetch_layers(store: _Layout | _Registry, folder: str, deadline: Deadline) -> FetchedFolder:
    """Unpack the layers of a manifest into the folder."""
    digest, manifest = store.manifest()
    for _ in range(_MAX_NESTED):
        nested = manifest.get("manifests")
        if not isinstance(nested, list):
            break
        digest = _digest_of(_choose_manifest(nested, store.source), store.source)
        manifest = _parse(store.read(digest, _MAX_MANIFEST_BYTES, manifest=True), store.source)
    layers = manifest.get("layers")
    if not isinstance(layers, list) or not layers or len(layers) > _MAX_LAYERS:
        raise _refuse(store.source, "its manifest has no layers, or too many")
    budget = PullBudget(deadline)
    for layer in layers:
        if "tar" not in str(layer.get("mediaType") if isinstance(layer, dict) else ""):
            continue
        with tempfile.TemporaryFile() as file:
            store.copy(_digest_of(layer, store.source), file)
            file.seek(0)
            unpack_into(folder, file, store.source, budget)
    if not os.listdir(folder):
        raise _refuse(store.source, "it has no layer that is a tar file")
    return FetchedFolder(folder, {"digest": digest})


def _choose_manifest(manifests: list[Any], source: str) -> Any:
    real = [one for one in manifests if isinstance(one, dict)]
    if not real:
        raise _refuse(source, "its index is empty")
    return real[0]


def _digest_of(descriptor: Any, source: str) -> str:
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _refuse(source, "a part of it has no sha256 digest")
    return digest


def _parse(data: bytes, source: str) -> dict[str, Any]:
    try:
        document = read_json(data)
    except ValueError as error:
        raise _refuse(source, "its manifest is not JSON") from error
    if not isinstance(document, dict):
        raise _refuse(source, "its manifest is not a JSON object")
    return document


def _check(digest: str, found: str, source: str) -> None:
    if digest != f"sha256:{found}":
        raise SourceFailure(
            source,
            f"the content under {digest} has the digest sha256:{found}",
            code="remote-digest-mismatch",
            remedy="it was discarded; ask its publisher",
        )


def _refuse(source: str, reason: str) -> SourceFailure:
    remedy = "give the reference of a skill: layers that are tar files with a SKILL.md"
    return SourceFailure(source, reason, code="oci-refused", remedy=remedy)


class _Layout:
    """An OCI image layout in a folder: `index.json`, and `blobs/sha256/` by digest."""

    def __init__(self, reference: SourceReference) -> None:
        self.source, self._ref = reference.source, reference.ref
        self._folder = reference.url.removeprefix(OCI_LAYOUT)

    def manifest(self) -> tuple[str, dict[str, Any]]:
        index = _parse(self._read_file("index.json", _MAX_MANIFEST_BYTES), self.source)
        found = index.get("manifests")
        named = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        fit = [one for one in named if not self._ref or self._ref in _list_names(one)]
        if len(fit) != 1:
            raise self._refuse_ambiguous(named, len(fit))
        digest = _digest_of(fit[0], self.source)
        return digest, _parse(self.read(digest, _MAX_MANIFEST_BYTES), self.source)

    def _refuse_ambiguous(self, named: Sequence[Mapping[str, Any]], fit: int) -> SourceFailure:
        """Return the failure of a reference that does not say which manifest is meant."""
        texts = [
            next((name for name in _list_names(one) if isinstance(name, str)), "") for one in named
        ]
        known = [one_line(text)[:100] for text in texts if text][:_MAX_NAMED]
        if not known:
            return _refuse(self.source, "its index names no manifest")
        what = f"has no {self._ref!r}" if not fit else f"has {fit} manifests, and one is needed"
        word = shell_word(f"{self.source}#{known[0]}")
        remedy = f"give one, such as `skillbelt add {word}`"
        reason = f"{what}: {', '.join(known)}"
        return SourceFailure(self.source, reason, code="oci-refused", remedy=remedy)

    def read(self, digest: str, most: int, *, manifest: bool = False) -> bytes:
        data = self._read_file(f"blobs/sha256/{digest.removeprefix('sha256:')}", most)
        _check(digest, hashlib.sha256(data).hexdigest(), self.source)
        return data

    def copy(self, digest: str, file: IO[bytes]) -> None:
        file.write(self.read(digest, MAX_DOWNLOAD_BYTES))

    def _read_file(self, name: str, most: int) -> bytes:
        try:
            with os.fdopen(os.open(os.path.join(self._folder, name), FOLLOW_FILE), "rb") as file:
                data = file.read(most + 1)
        except OSError as error:
            raise _refuse(self.source, f"{name} cannot be read: {error.strerror}") from error
        if len(data) > most:
            raise too_large(self.source, f"{name} has more than {most} bytes")
        return data


def _list_names(descriptor: Mapping[str, Any]) -> tuple[object, ...]:
    notes = descriptor.get("annotations")
    name = notes.get(_REF_NAME) if isinstance(notes, dict) else None
    return (name, descriptor.get("digest"))


class _Registry:
    """A registry over HTTP, read only; plain HTTP for this machine alone."""

    def __init__(self, reference: SourceReference, settings: Settings, deadline: Deadline) -> None:
        self.source = reference.source
        host, _, name = reference.url.removeprefix("oci://").partition("/")
        name, _, digest = name.partition("@")
        name, _, tag = name.partition(":")
        self._name, self._ref = name, reference.ref or digest or tag or "latest"
        bare = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        local = bare in ("localhost", "127.0.0.1", "[::1]")
        self._base = f"{'http' if local else 'https'}://{host}"
        self._deadline, self._token = deadline, ""
        allowed = SourceHosts(self._base, settings.private_sources)
        self._pool = ClientPool(allowed, settings.limits.http_timeout_seconds)
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.run_until_complete(self._pool.close())
        self._loop.close()

    def manifest(self) -> tuple[str, dict[str, Any]]:
        data = self.read(self._ref, _MAX_MANIFEST_BYTES, manifest=True)
        return f"sha256:{hashlib.sha256(data).hexdigest()}", _parse(data, self.source)

    def read(self, digest: str, most: int, *, manifest: bool = False) -> bytes:
        body = bytearray()
        place = "manifests" if manifest else "blobs"
        found = self._get(f"{place}/{quote(digest, safe=':')}", body.extend, most)
        if _DIGEST.fullmatch(digest):
            _check(digest, found, self.source)
        return bytes(body)

    def copy(self, digest: str, file: IO[bytes]) -> None:
        _check(digest, self._get(f"blobs/{digest}", file.write, MAX_DOWNLOAD_BYTES), self.source)

    def _get(self, path: str, write: Callable[[bytes], object], most: int) -> str:
        url = f"{self._base}/v2/{self._name}/{path}"
        work = self._request(url, write, most)
        try:
            return self._loop.run_until_complete(_limit_time(work, self._deadline))
        except httpx2.HTTPError as error:
            remedy = "check the reference and the network"
            reason = str(error) or type(error).__name__
            raise SourceFailure(
                self.source, reason, code="remote-unreachable", remedy=remedy
            ) from error

    async def _request(self, url: str, write: Callable[[bytes], object], most: int) -> str:
        here, asked = url, False
        for _ in range(_MAX_REDIRECTS + 2):
            headers = {"Accept": ", ".join(_MANIFESTS) + ", */*"}
            if self._token and origin(here) == origin(url):
                headers["Authorization"] = f"Bearer {self._token}"
            client = await self._pool.find(here)
            async with client.stream("GET", here, headers=headers) as answer:
                if answer.status_code == 401 and not asked:
                    asked = True
                    self._token = await self._ask_token(answer.headers.get("www-authenticate", ""))
                elif answer.is_redirect:
                    here = redirect_target(here, answer.headers.get("location", ""))
                elif answer.status_code == 200:
                    return await self._receive(answer, write, most)
                else:
                    raise self._refuse_status(answer.status_code)
        raise _refuse(self.source, "is redirected too often")

    async def _receive(
        self, answer: httpx2.Response, write: Callable[[bytes], object], most: int
    ) -> str:
        digest, count = hashlib.sha256(), 0
        async for chunk in answer.aiter_raw():
            count += len(chunk)
            if count > most:
                raise too_large(self.source, f"has more than {most} bytes")
            digest.update(chunk)
            write(chunk)
        return digest.hexdigest()

    async def _ask_token(self, challenge: str) -> str:
        """Return a token for anyone, from where the registry says; it is only for reading."""
        facts = dict(_CHALLENGE.findall(challenge))
        realm = urljoin(self._base, facts.get("realm", ""))
        if not challenge.lower().startswith("bearer") or urlsplit(realm).scheme not in (
            "http",
            "https",
        ):
            raise self._refuse_status(401)
        if urlsplit(realm).scheme == "http" and not self._base.startswith("http:"):
            raise self._refuse_status(401)
        scope = facts.get("scope") or f"repository:{self._name}:pull"
        query = {"service": facts.get("service", ""), "scope": scope}
        client, body = await self._pool.find(realm), bytearray()
        async with client.stream("GET", realm, params=query) as answer:
            if answer.status_code != 200:
                raise self._refuse_status(answer.status_code)
            await self._receive(answer, body.extend, _MAX_MANIFEST_BYTES)
        document = _parse(bytes(body), self.source)
        token = document.get("token") or document.get("access_token")
        return token if isinstance(token, str) and token.isascii() and token.isprintable() else ""

    def _refuse_status(self, status: int) -> SourceFailure:
        remedy = "check the reference; a registry that needs a login is not supported"
        reason = f"the registry answered {status}"
        return SourceFailure(
            self.source, reason, code="remote-status", remedy=remedy, status=status
        )


# --- the hosts that git may reach -----------------------------------------------------------------


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
        raise _refuse_unknown(url, error) from error
    except SourceFailure:
        raise
    except Exception as error:  # httpx2.ConnectError, for a name without an address
        raise _refuse_unknown(url, error) from error
    texts = [f"[{one}]" if one.version == 6 else str(one) for one in found]
    return f"{host.strip('[]')}:{port}:{','.join(texts)}"


def _refuse_unknown(url: str, error: Exception) -> SourceFailure:
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
        raise SourceFailure(url, "is not a repository", code="remote-redirect", remedy=remedy)
    return found._replace(path=found.path.removesuffix(_REFS), query="").geturl()
