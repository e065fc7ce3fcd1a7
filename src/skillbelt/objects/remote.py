"""Open an object store through obstore, with bounded retries, and report its failures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from skillbelt.errors import ConfigError, MissingExtra, ObjectsAway
from skillbelt.files.private import make_folder
from skillbelt.metrics import count

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# obstore retries for three minutes by default, during which a run would hang silently.
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}
_VARIABLES = (
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
)  # fmt: skip
_CLIENT = {"connect_timeout": "5s", "timeout": "60s"}


def load_obstore(purpose: str) -> Any:
    """Return the library; MissingExtra without it."""
    try:
        import obstore.store  # extra: s3
    except ImportError as error:
        raise MissingExtra("s3", purpose) from error
    return obstore


def open_store(url: str, **config: Any) -> ObjectStore:
    """Open the store at `s3://bucket/prefix`, `file:///folder` or the like; ConfigError if invalid.

    Nothing is contacted yet. `config` is passed to obstore; options that it does not set come from
    the environment, such as AWS_ENDPOINT_URL.
    """
    obstore = load_obstore("keeping objects in an object store")
    kind = urlsplit(url).scheme
    _refuse_empty(kind)
    if urlsplit(url).password is not None:  # obstore ignores it, and messages would show it
        raise ConfigError(
            "objects: the URL has a password in it, which is not used; keep it in a variable such"
            " as AWS_SECRET_ACCESS_KEY"
        )
    try:
        if kind == "file":
            make_folder(unquote(urlsplit(url).path))
        elif kind != "memory":
            config = {"retry_config": _RETRIES, **config}
            own = config.get("client_options")
            config["client_options"] = {**_client_options(), **(own or {})}
        return obstore.store.from_url(url, **config)  # type: ignore[no-any-return]
    except (obstore.exceptions.BaseError, OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"objects = {url!r} cannot be used: {first_line(error)}; "
            "give a URL such as s3://bucket/prefix or file:///folder"
        ) from error


def _refuse_empty(kind: str) -> None:
    """Raise ConfigError for a variable that is set to "": obstore takes it for a value.

    With an empty AWS_ENDPOINT_URL obstore panics, which callers do not expect as an exception.
    """
    for name in _VARIABLES if kind in ("s3", "s3a") else ():
        if os.environ.get(name) == "":
            raise ConfigError(f"{name} is empty; give it a value, or unset it")


@lru_cache(maxsize=16)
def open_once(url: str) -> ObjectStore:
    """Open the store at the URL; all callers share one, with its connections."""
    return open_store(url)


def _client_options() -> dict[str, Any]:
    """Return the options of the HTTP client; plain HTTP only where the environment allows it."""
    plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
    return {**_CLIENT, "allow_http": True} if plain else dict(_CLIENT)


@contextmanager
def convert_errors(what: str) -> Iterator[None]:
    """Turn the failures of obstore into ObjectsAway; a missing object stays FileNotFoundError."""
    failed = load_obstore("keeping objects in an object store").exceptions.BaseError
    try:
        yield
    except failed as error:
        count("object_store_errors", operation="objects")
        raise ObjectsAway(f"{what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of the reason; obstore adds its structures below."""
    return str(error).strip().partition("\n")[0]
