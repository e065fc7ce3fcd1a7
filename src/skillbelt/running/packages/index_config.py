"""The package indexes in the user's own configuration of uv, pip and npm.

No file of a skill or a project is read here. The installers themselves are not asked, because they
would run with the user's rights.
"""

from __future__ import annotations

import base64
import configparser
import netrc
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from skillbelt.errors import RunRefused
from skillbelt.hosts import origin
from skillbelt.text import one_line, read_toml

_MAX_BYTES = 2**20


class IndexAddress(NamedTuple):
    """The URL of an index, and the credentials for it."""

    url: str
    authorization: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return scheme, host and port."""
        return origin(self.url)


class IndexConfig(NamedTuple):
    """The configured indexes. Without `main`, the installer's default is used, unless `closed`.

    `first` are asked before `main`. `scopes` are for names like `@scope/name`. `links` are folders
    and pages with files. `authorities` are certificate files.
    """

    main: IndexAddress | None = None
    first: tuple[IndexAddress, ...] = ()
    scopes: Mapping[str, IndexAddress] = {}
    links: tuple[str, ...] = ()
    closed: bool = False
    authorities: tuple[str, ...] = ()
    before: str = ""  # no package newer than this
    auths: Mapping[str, str] = {}

    @property
    def address(self) -> list[object]:
        """Return an identifier of the configuration, without secrets."""
        scopes = sorted((scope, index.url) for scope, index in self.scopes.items())
        main = self.main.url if self.main else ""
        first = [index.url for index in self.first]
        return [main, first, scopes, [*map(without_user, self.links)], self.closed, self.before]

    def with_default(self, url: str) -> IndexConfig:
        """Return it with the installer's default where none is configured."""
        if self.main or self.closed:
            return self
        return self._replace(main=IndexAddress(url, self.auths.get(auth_key(url), "")))


def without_user(url: str) -> str:
    """Remove user name and password from a URL."""
    parts = urlsplit(url)
    if not parts.scheme or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _parse_index(text: str, environ: Mapping[str, str], where: str) -> IndexAddress:
    """Parse the URL of an index, optionally with a name (`name=url`)."""
    named = re.match(r"[A-Za-z0-9_.-]+=(?=[a-z]+:|/)", text)
    url = text[named.end() :] if named else text
    parts = urlsplit(url)
    if os.path.isabs(url):
        return IndexAddress(f"file://{url.rstrip('/')}")
    if parts.scheme not in ("http", "https", "file") or (
        parts.scheme != "file" and not parts.hostname
    ):
        raise RunRefused(
            f"{where}: {one_line(without_user(url))[:200]!r} is not the URL of an index"
        )
    bare = without_user(url).rstrip("/")
    user = unquote(parts.username or "")
    if named:
        word = re.sub(r"[^A-Z0-9]", "_", named[0][:-1].upper())
        user = environ.get(f"UV_INDEX_{word}_USERNAME", user)
        password = environ.get(f"UV_INDEX_{word}_PASSWORD", unquote(parts.password or ""))
        return IndexAddress(bare, _basic(user, password) if user or password else "")
    if user or parts.password:
        return IndexAddress(bare, _basic(user, unquote(parts.password or "")))
    return IndexAddress(bare, _from_netrc(parts.hostname or "", environ))


def _from_netrc(host: str, environ: Mapping[str, str]) -> str:
    path = environ.get("NETRC") or os.path.join(_home(environ), ".netrc")
    with suppress(OSError, netrc.NetrcParseError, ValueError):
        found = netrc.netrc(path).authenticators(host) if host else None
        return _basic(found[0], found[2] or "") if found else ""
    return ""


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return ""


def _authorities(environ: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(path for name in names if (path := environ.get(name, "")))


# Python


def python_indexes(environ: Mapping[str, str]) -> IndexConfig:
    """Return the indexes of Python packages: those of uv, else that of pip."""
    env, where = environ, "the environment"
    table = {} if env.get("UV_NO_CONFIG") in ("1", "true") else _uv_table(env)
    make: Callable[[str], IndexAddress] = lambda text: _parse_index(text, env, where)  # noqa: E731
    main = env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL")
    first = [*_split_words(env.get("UV_INDEX")), *_split_words(env.get("UV_EXTRA_INDEX_URL"))]
    links = [*re.split(r"[,\s]+", env.get("UV_FIND_LINKS", "").strip())]
    tables = [table, table.get("pip") if isinstance(table.get("pip"), dict) else {}]
    for one in tables:
        assert isinstance(one, dict)
        for entry in _dicts(one.get("index")):
            url = entry.get("url")
            if isinstance(url, str) and not entry.get("explicit"):
                named = f"{entry['name']}={url}" if isinstance(entry.get("name"), str) else url
                if entry.get("default") is True:
                    main = main or named
                else:
                    first.append(named)
        main = main or _string(one.get("index-url"))
        first += [text for text in _list(one.get("extra-index-url")) if text not in first]
        links += _list(one.get("find-links"))
    main = main or env.get("PIP_INDEX_URL") or _pip_index(env)
    closed = env.get("UV_NO_INDEX", "") in ("1", "true") or any(
        isinstance(one, dict) and one.get("no-index") is True for one in tables
    )
    return IndexConfig(
        make(main) if main and not closed else None,
        () if closed else tuple(map(make, first)),
        links=tuple(filter(None, links)),
        closed=closed,
        authorities=_authorities(env, ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")),
        before=env.get("UV_EXCLUDE_NEWER", ""),
    )


def _split_words(text: str | None) -> list[str]:
    return (text or "").split()


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _uv_table(environ: Mapping[str, str]) -> dict[str, Any]:
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(_home(environ), ".config")
    given = environ.get("UV_CONFIG_FILE")
    paths = [given] if given else ["/etc/uv/uv.toml", os.path.join(config, "uv", "uv.toml")]
    found: dict[str, Any] = {}
    for path in paths:
        text = _read_text(path)
        try:
            found |= read_toml(text) if text else {}
        except (ValueError, RecursionError) as error:
            raise RunRefused(f"{path} is not valid TOML: {one_line(str(error))[:200]}") from error
    return found


def _pip_index(environ: Mapping[str, str]) -> str:
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(_home(environ), ".config")
    paths = ["/etc/pip.conf", os.path.join(_home(environ), ".pip", "pip.conf"),
             os.path.join(config, "pip", "pip.conf"),
             environ.get("PIP_CONFIG_FILE", "")]  # fmt: skip
    found = ""
    for path in filter(None, paths):
        parser = configparser.RawConfigParser(strict=False)
        with suppress(configparser.Error):
            parser.read_string(_read_text(path))
            for section in ("global", "install"):
                found = parser.get(section, "index-url", fallback="").strip() or found
    return found


# Node.js


def node_indexes(environ: Mapping[str, str], npm: str = "") -> IndexConfig:
    """Return the registries of Node.js packages, from npm's user and system settings."""
    settings = dict(_npm_settings(environ, npm))
    auths = dict(_npm_auths(settings))

    def make(url: str) -> IndexAddress:
        made = _parse_index(url, environ, "registry of npm")
        return made._replace(authorization=auths.get(auth_key(url), made.authorization))

    main = settings.get("registry", "")
    scopes = {
        name.removesuffix(":registry"): make(url)
        for name, url in settings.items()
        if name.startswith("@") and name.endswith(":registry") and url
    }
    given = tuple(filter(None, (settings.get("cafile"),)))
    names = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
    return IndexConfig(
        make(main) if main else None,
        scopes=scopes,
        authorities=(*given, *_authorities(environ, names)),
        before=settings.get("before", ""),
        auths=auths,
    )


def auth_key(url: str) -> str:
    """Return the key of a registry's credentials in npm's settings."""
    return f"//{without_user(url).partition('://')[2].rstrip('/')}/"


def _npm_settings(environ: Mapping[str, str], npm: str) -> Iterator[tuple[str, str]]:
    """Yield each setting, in increasing precedence."""
    named = {
        name[len("npm_config_") :].lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.lower().startswith("npm_config_") and "/" not in name
    }
    root = os.path.dirname(os.path.dirname(os.path.realpath(npm))) if npm else ""
    prefix = named.get("prefix") or (os.path.dirname(os.path.dirname(npm)) if npm else "/usr")
    files = [
        os.path.join(root, "npmrc") if root else "",
        named.get("globalconfig") or os.path.join(prefix, "etc", "npmrc"),
        named.get("userconfig") or os.path.join(_home(environ), ".npmrc"),
    ]
    for path in filter(None, files):
        for line in _read_text(path).splitlines():
            name, equals, value = (part.strip() for part in line.partition("="))
            if equals and name and name[0] not in "#;[":
                yield name, _expand(_unquote(value), environ)
    yield from named.items()


def _unquote(value: str) -> str:
    with suppress(ValueError):
        if value[:1] in "'\"" and value[:1] == value[-1:]:
            return "".join(shlex.split(value))
    return value


def _expand(value: str, environ: Mapping[str, str]) -> str:
    return re.sub(r"\$\{([^}?]+)\??\}", lambda found: environ.get(found[1], ""), value)


def _npm_auths(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        place, _, kind = name.rpartition(":")
        if not place.startswith("//") or not value:
            continue
        key = f"{place.rstrip('/')}/"
        if kind == "_authToken":
            yield key, f"Bearer {value}"
        elif kind == "_auth":
            yield key, f"Basic {value}"
        elif kind == "username":
            with suppress(ValueError):
                secret = base64.b64decode(settings.get(f"{place}:_password", "")).decode()
                yield key, _basic(value, secret)
