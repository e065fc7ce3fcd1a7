"""The package index that an installer inside a sandbox sees: pages generated here.

It requests the pages of one index, at a reserved host name. They are generated from the user's own
index, parsed strictly; each file has a URL on the same host, so that a URL of any other host is
recognized as foreign. The user's credentials for the index are not in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from html import unescape
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit

from skillbelt.permission.packages import Lock, Package, normal
from skillbelt.running.packages.fetched import Fetched, IndexPage, NotFetched, page_of
from skillbelt.running.packages.index_config import IndexAddress, IndexConfig
from skillbelt.running.packages.index_fetcher import IndexFetcher, resolve_url
from skillbelt.running.packages.lockfiles import NODE_NAME, NOWHERE, file_url, is_range
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

_MAX_PAGE = 256 * 2**20
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_NODE_ACCEPT = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*"
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_HEX = re.compile(r"[0-9a-f]{64}")
# Links are found without an HTML parser, which needs hours for a few megabytes of `<!--`.
_LINK = re.compile(r"<a(?=[\s/>])", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"""[\s/]*([^\s=>/"'<]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'<]*)))?""",
)
_MAX_LINK, _MAX_ATTRIBUTES = 8_000, 20
_DEPENDENCIES = ("dependencies", "optionalDependencies", "peerDependencies")
# The fields that matter for resolving; all other metadata of a package is dropped.
_ABOUT = ("name", "version", "peerDependenciesMeta", "bundleDependencies", "bundledDependencies",
          "bin", "engines", "os", "cpu", "libc", "deprecated")  # fmt: skip


class SharedArchives(Protocol):
    """Archives that machines share by the hashes in locks."""

    def pass_on(self, hash: str, what: str, most: int, fetch: Callable[[], Fetched]) -> Fetched:
        """Return the archive of a hash, verified; else the result of `fetch`; raises NotFetched."""


class SharedSource(NamedTuple):
    """A source that an index asks before the user's: the archives of one lock."""

    archives: SharedArchives
    lock: Lock
    most: int  # bytes of one archive


def _json_page(value: object, type: str) -> IndexPage:
    data = json.dumps(value).encode()
    return page_of(200, type, data)


def _file_page(fetched: Fetched) -> IndexPage:
    return IndexPage(200, "application/octet-stream", fetched.size, fetched.pieces)


# Python


class IndexFile(NamedTuple):
    """One file of a package, as an index lists it."""

    name: str
    url: str
    sha256: str = ""
    pythons: str = ""
    yanked: bool | str = False
    metadata: bool | dict[str, str] = False
    uploaded: str = ""
    size: int = 0  # in bytes; 0 if the index does not say


def _version_in(file: str) -> str:
    """Return the version in the name of a wheel or of a source distribution."""
    if file.endswith(".whl"):
        return "".join(file.split("-")[1:2])
    return file.removesuffix(".zip").removesuffix(".tar.gz").rpartition("-")[2]


class PythonIndex:
    """The packages of the user's indexes, as one index: the first that has a name wins.

    With a lock in `only`, just its packages are offered. Files of a lock may be `shared`.
    """

    def __init__(
        self,
        indexes: IndexConfig,
        fetcher: IndexFetcher,
        only: Lock | None = None,
        shared: SharedSource | None = None,
    ) -> None:
        self._indexes, self._fetcher, self._shared = indexes, fetcher, shared
        locked = shared.lock.packages if shared else ()
        self._hashes = frozenset(hash for one in locked for hash in one.hashes)
        self._only = None if only is None else frozenset(one.name for one in only.packages)
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, IndexFile]] = {}
        self._turns: dict[str, threading.Lock] = {}

    def page(self, path: str) -> IndexPage:
        """Serve `/simple/NAME/`, and `/files/NAME/FILE`, optionally followed by `.metadata`."""
        kind, _, rest = unquote(path).lstrip("/").partition("/")
        name, _, file = rest.partition("/")
        known = self._only is None or name in self._only
        if not known or not _NAME.fullmatch(name) or normal("python", name) != name:
            raise NotFetched(404, f"there is no package {name[:100]!r}")
        if kind == "simple" and not file:
            return _json_page(_simple_json(name, self._files(name).values()), _JSON)
        if kind == "files":
            return self._file(name, file)
        raise NotFetched(404, "there is no such page")

    def expect(self, name: str, choose: Callable[[Iterable[IndexFile]], IndexFile | None]) -> None:
        """Fetch in a thread what an installer will ask for first, while it starts.

        That is the page of a package, and the file that `choose` returns, or its metadata.
        """

        def fetch() -> None:
            with suppress(NotFetched):
                found = choose(self._files(name, ahead=True).values())
                if found is not None:
                    url = f"{found.url}.metadata" if found.metadata else found.url
                    self._fetcher.get(url, ahead=True).pieces.close()

        threading.Thread(target=fetch, name="skillbelt-expect", daemon=True).start()

    def files(self, name: str) -> tuple[IndexFile, ...]:
        """Return the files of a package; raises NotFetched."""
        return tuple(self._files(name).values())

    def size(self, package: Package) -> int:
        """Return the download size of a package in bytes; 0 if it is unknown.

        Of several possible files, the largest counts.
        """
        with self._lock:
            files = list(self._known.get(package.name, {}).values())
        found = (one for one in files if f"sha256:{one.sha256}" in package.hashes)
        return max((one.size or self._fetcher.size(one.url) for one in found), default=0)

    def hashes_of_version(self, package: Package) -> tuple[str, ...]:
        """Return the hashes of all files of the same version: of every platform, and the source."""
        with self._lock:
            files = list(self._known.get(package.name, {}).values())
        versions = {
            _version_in(one.name) for one in files if f"sha256:{one.sha256}" in package.hashes
        }
        found = {one.sha256 for one in files if one.sha256 and _version_in(one.name) in versions}
        return tuple(sorted({*package.hashes, *(f"sha256:{one}" for one in found)}))

    def fetch(self, file: IndexFile) -> Fetched:
        """Fetch a listed file; raises NotFetched."""
        return self._fetcher.get(file.url)

    def _file(self, name: str, file: str) -> IndexPage:
        files = self._files(name)
        if file in files:
            hash, url = f"sha256:{files[file].sha256}", files[file].url
            if self._shared is None or hash not in self._hashes:
                return _file_page(self._fetcher.get(url))
            archives, most = self._shared.archives, self._shared.most
            return _file_page(archives.pass_on(hash, file, most, lambda: self._fetcher.get(url)))
        found = files.get(file.removesuffix(".metadata"))
        if found is None or not found.metadata:
            raise NotFetched(404, "there is no such file")
        return _file_page(self._fetcher.get(f"{found.url}.metadata"))

    def _files(self, name: str, ahead: bool = False) -> dict[str, IndexFile]:
        with self._lock:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:  # another request for the same page waits for it
            known = self._known.get(name)
            if known is None:
                listed = (*self._find_links(name), *self._fetch_listing(name, ahead))
                known = {one.name: one for one in listed}
                if not known:
                    raise NotFetched(404, f"no index has {name}")
                self._known[name] = known
        return known

    def _fetch_listing(self, name: str, ahead: bool) -> list[IndexFile]:
        every = (*self._indexes.first, *filter(None, (self._indexes.main,)))
        for index in every:
            try:
                fetched = self._fetcher.get(f"{index.url}/{name}/", _ACCEPT, ahead=ahead)
            except NotFetched as missing:
                if missing.status in (403, 404, 410):
                    continue
                raise
            return read_listing(fetched.url, fetched.type, fetched.whole(_MAX_PAGE))
        return []

    def _find_links(self, name: str) -> Iterator[IndexFile]:
        """Yield the files of that package in the folders and pages of find-links."""
        for place in self._indexes.links:
            if urlsplit(place).scheme in ("http", "https"):
                fetched = self._fetcher.get(place, "text/html")
                found = read_listing(fetched.url, fetched.type, fetched.whole(_MAX_PAGE))
            else:
                found = list(_list_folder(place.removeprefix("file://")))
            yield from (_add_hash(one) for one in found if _package_of(one.name) == name)


def _package_of(file: str) -> str:
    """Return the package that a file belongs to, by its name."""
    if file.endswith(".whl"):
        return normal("python", file.partition("-")[0])
    return normal("python", re.sub(r"\.(?:tar\.gz|zip)$", "", file).rpartition("-")[0])


def _list_folder(folder: str) -> Iterator[IndexFile]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise NotFetched(502, f"{folder}: {error.strerror}") from error
    for name in names:
        if _FILE.fullmatch(name) and name.endswith((".whl", ".tar.gz", ".zip")):
            yield IndexFile(name, f"file://{quote(os.path.abspath(os.path.join(folder, name)))}")


def _add_hash(file: IndexFile) -> IndexFile:
    """Compute the hash of a local file that has none."""
    if file.sha256 or urlsplit(file.url).scheme != "file":
        return file
    try:
        with open(unquote(urlsplit(file.url).path), "rb") as data:
            return file._replace(sha256=hashlib.file_digest(data, "sha256").hexdigest())
    except OSError as error:
        raise NotFetched(502, f"{file.name}: {error.strerror}") from error


def read_listing(url: str, type: str, data: bytes) -> list[IndexFile]:
    """Parse the files that a page of an index lists."""
    if type.endswith("json"):
        return list(_parse_json(url, data))
    found = _links(data.decode("utf-8", "replace"))
    return [one for words in found if (one := _parse_link(url, words)) is not None]


def _parse_json(url: str, data: bytes) -> Iterator[IndexFile]:
    try:
        files = read_json(data).get("files")
    except (ValueError, AttributeError) as error:
        raise NotFetched(502, f"{url} is not a page of an index") from error
    for about in files if isinstance(files, list) else ():
        name, where = (
            (about.get(key) for key in ("filename", "url")) if isinstance(about, dict) else ("", "")
        )
        if not isinstance(name, str) or not isinstance(where, str) or not _FILE.fullmatch(name):
            continue
        hashes, yanked = about.get("hashes"), about.get("yanked", False)
        metadata = about.get("core-metadata", about.get("dist-info-metadata", False))
        yield IndexFile(
            name=name,
            url=resolve_url(url, where).partition("#")[0],
            sha256=_sha256(hashes.get("sha256") if isinstance(hashes, dict) else ""),
            pythons=_short_text(about.get("requires-python")),
            yanked=yanked if isinstance(yanked, str) else yanked is True,
            metadata=_metadata(metadata),
            uploaded=_short_text(about.get("upload-time")),
            size=_size(about.get("size")),
        )


def _links(page: str) -> Iterator[dict[str, str]]:
    """Yield the attributes of each link of a page, which may be long and hostile."""
    for tag in _LINK.finditer(page):
        at, end = tag.end(), tag.end() + _MAX_LINK
        found: dict[str, str] = {}
        while len(found) < _MAX_ATTRIBUTES and (one := _ATTRIBUTE.match(page, at, end)):
            name, *values = one.groups()
            found.setdefault(name.lower(), unescape(next(filter(None, values), "")))
            at = one.end()
        yield found


def _parse_link(url: str, words: Mapping[str, str]) -> IndexFile | None:
    where, _, fragment = resolve_url(url, words.get("href", "")).partition("#")
    name = unquote(where.partition("?")[0].rpartition("/")[2])
    if not _FILE.fullmatch(name) or not name.endswith((".whl", ".tar.gz", ".zip")):
        return None
    declared = words.get("data-core-metadata", words.get("data-dist-info-metadata", ""))
    kind, _, hash = declared.partition("=")
    metadata: object = {kind: hash} if hash else declared == "true"
    return IndexFile(
        name=name,
        url=where,
        sha256=_sha256(fragment.removeprefix("sha256=")),
        pythons=_short_text(words.get("data-requires-python")),
        yanked=(words["data-yanked"] or True) if "data-yanked" in words else False,
        metadata=_metadata(metadata),
    )


def _sha256(value: object) -> str:
    return value if isinstance(value, str) and _HEX.fullmatch(value) else ""


def _size(value: object) -> int:
    return value if type(value) is int and 0 < value < 2**40 else 0


def _short_text(value: object) -> str:
    return value if isinstance(value, str) and len(value) < 500 else ""


def _metadata(value: object) -> bool | dict[str, str]:
    if isinstance(value, dict):
        sha256 = _sha256(value.get("sha256"))
        return {"sha256": sha256} if sha256 else True
    return value is True


def _simple_json(name: str, files: Any) -> dict[str, object]:
    return {
        "meta": {"api-version": "1.1"},
        "name": name,
        "files": [
            {
                "filename": one.name,
                "url": file_url("python", name, one.name),
                "hashes": {"sha256": one.sha256} if one.sha256 else {},
                "yanked": one.yanked,
                "core-metadata": one.metadata,
                **({"requires-python": one.pythons} if one.pythons else {}),
                **({"upload-time": one.uploaded} if one.uploaded else {}),
            }
            for one in files
        ],
    }


# Node.js


class NodeIndex:
    """The packages of the user's registries. `foreign` has those that need other places, and why.

    With a lock in `only`, just its versions are offered. Archives of a lock may be `shared`.
    """

    def __init__(
        self,
        indexes: IndexConfig,
        fetcher: IndexFetcher,
        only: Lock | None = None,
        shared: SharedSource | None = None,
    ) -> None:
        self._indexes, self._fetcher, self._shared = indexes, fetcher, shared
        locked = only.packages if only else ()
        self._only = None if only is None else {(one.name, one.version) for one in locked}
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        self.foreign: dict[tuple[str, str], str] = {}

    def page(self, path: str) -> IndexPage:
        """Serve `/NAME`, and `/-/NAME/VERSION.tgz`."""
        path = unquote(path.partition("?")[0]).lstrip("/")
        if path.startswith("-/") and path.endswith(".tgz"):
            name, _, version = path[2 : -len(".tgz")].rpartition("/")
            return self._file(name, version)
        return _json_page(self._package_json(path), "application/json")

    def _file(self, name: str, version: str) -> IndexPage:
        if not self._is_offered(name, version):
            raise NotFetched(404, f"there is no {name}@{version}")
        locked = self._shared.lock.packages if self._shared else ()
        wanted = (normal("node", name), version)
        hashes = {hash for one in locked if one[1:3] == wanted for hash in one.hashes}
        # Two hashes of one version: a package, and one that bundles it.
        if self._shared is None or len(hashes) != 1:
            return _file_page(self._fetch_file(name, version))
        archives, what = self._shared.archives, f"{name}@{version}"
        return _file_page(
            archives.pass_on(
                hashes.pop(), what, self._shared.most, lambda: self._fetch_file(name, version)
            )
        )

    def _fetch_file(self, name: str, version: str) -> Fetched:
        versions = self._fetch_metadata(name).get("versions")
        about = versions.get(version) if isinstance(versions, dict) else None
        dist = about.get("dist") if isinstance(about, dict) else None
        url = dist.get("tarball") if isinstance(dist, dict) else None
        if not isinstance(url, str):
            raise NotFetched(404, f"there is no {name}@{version}")
        return self._fetcher.get(resolve_url(f"{self._index(name).url}/", url))

    def _is_offered(self, name: str, version: str) -> bool:
        return self._only is None or (normal("node", name), version) in self._only

    def _index(self, name: str) -> IndexAddress:
        scope = name.partition("/")[0] if name.startswith("@") else ""
        found = self._indexes.scopes.get(scope) or self._indexes.main
        if found is None:
            raise NotFetched(404, "there is no registry")
        return found

    def _fetch_metadata(self, name: str) -> dict[str, Any]:
        if not NODE_NAME.fullmatch(name) or len(name) > 214:
            raise NotFetched(404, "that is not a package name")
        with self._lock:
            known = self._known.get(name)
        if known is None:
            url = f"{self._index(name).url}/{quote(name, safe='@')}"
            data = self._fetcher.get(url, _NODE_ACCEPT).whole(_MAX_PAGE)
            try:
                known = read_json(data)
            except ValueError as error:
                raise NotFetched(502, f"the registry's answer for {name} is not JSON") from error
            if not isinstance(known, dict):
                raise NotFetched(502, f"the registry's answer for {name} is not an object")
            with self._lock:
                self._known[name] = known
        return known

    def _package_json(self, name: str) -> dict[str, object]:
        """Return the registry's metadata of a package, with file URLs of this index."""
        known = self._fetch_metadata(name)
        versions, tags = known.get("versions"), known.get("dist-tags")
        return {
            "name": name,
            "dist-tags": tags if isinstance(tags, dict) else {},
            "versions": {
                version: self._version_json(name, version, about)
                for version, about in (versions.items() if isinstance(versions, dict) else ())
                if isinstance(about, dict) and self._is_offered(name, version)
            },
            **({"time": known["time"]} if isinstance(known.get("time"), dict) else {}),
        }

    def _version_json(self, name: str, version: str, about: Mapping[str, Any]) -> dict[str, object]:
        dist = about.get("dist") if isinstance(about.get("dist"), dict) else {}
        assert isinstance(dist, dict)
        kept: dict[str, object] = {key: about[key] for key in _ABOUT if key in about}
        kept |= {key: self._requirements(name, version, about.get(key)) for key in _DEPENDENCIES}
        hashes = {
            key: dist[key] for key in ("integrity", "shasum") if isinstance(dist.get(key), str)
        }
        if about.get("_hasShrinkwrap"):
            self.foreign[normal("node", name), version] = (
                "it has its own lock file (npm-shrinkwrap.json)"
            )
        return {
            **kept,
            "name": name,
            "version": version,
            "_hasShrinkwrap": False,
            "dist": {**hashes, "tarball": file_url("node", name, version)},
        }

    def _requirements(self, name: str, version: str, listed: object) -> dict[str, str]:
        """Return the requirements; one with a URL becomes a version that does not exist."""
        found = {}
        for one, wanted in listed.items() if isinstance(listed, dict) else ():
            found[one] = wanted if is_range(wanted) else NOWHERE
            if found[one] is not wanted:
                shown = shorten(one_line(str(wanted)), 200)
                self.foreign[normal("node", name), version] = (
                    f"it requires {shorten(one_line(one), 200)} from {shown}"
                )
        return found
