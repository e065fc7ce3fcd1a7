"""The keyring of the system, through the package `keyring`, if there is a safe one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from skillbelt.errors import ConfigError
from skillbelt.text import one_line

# A locked keyring asks for its password, and there may be no one to type it.
WAIT_SECONDS = 120.0
_SERVICE = "skillbelt"
_NO_KEYRING = ("keyring.backends.fail", "keyring.backends.null")
_CHAINER = "keyring.backends.chainer"
_PLAIN = "plaintext"
_LEAST_PRIORITY = 1  # the minimum that the package recommends; one with plain text has less


class SystemKeyring:
    """A keyring; ConfigError when it is locked or fails."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        """Return the name that a person knows."""
        return one_line(str(self._backend.name))

    def get(self, key: str) -> str | None:
        """Return the value of the key; None without one."""
        return self._call("get_password", key)

    def set(self, key: str, value: str) -> None:
        """Store a value under the key."""
        self._call("set_password", key, value)

    def remove(self, key: str) -> None:
        """Remove the value of the key, if there is one."""
        if self.get(key) is not None:
            self._call("delete_password", key)

    def _call(self, method: str, *words: str) -> str | None:
        """Call the back end, which may wait for a person to unlock it; the wait is bounded."""
        answers: list[str | None] = []
        faults = ["it did not answer"]

        def call() -> None:
            try:
                answers.append(getattr(self._backend, method)(_SERVICE, *words))
            except BaseException as error:
                # A back end raises the errors of its own library. Their text may hold the value.
                faults.append(type(error).__name__)

        waiting = threading.Thread(target=call, name="skillbelt-keyring", daemon=True)
        waiting.start()
        waiting.join(WAIT_SECONDS)
        if answers:
            return answers[0]
        raise ConfigError(
            f"the keyring {self.name} failed ({faults[-1]}); unlock it and try again, or set "
            'secrets_store = "file" and set the secret again'
        )


def find_keyring() -> SystemKeyring | None:
    """Return the keyring of this system; None without one that protects its content.

    A back end that does nothing, always fails or stores plain text does not count.
    """
    try:
        given = import_module("keyring").get_keyring()  # extra: secrets
    except Exception:  # not installed, or the back end that the user chose cannot be loaded
        return None
    return next((SystemKeyring(one) for one in _list_backends(given) if _counts(one)), None)


def _list_backends(backend: Any) -> Iterator[Any]:
    """Yield the keyrings behind one that only tries others in turn."""
    if type(backend).__module__ == _CHAINER:
        yield from backend.backends
    else:
        yield backend


def _counts(backend: Any) -> bool:
    kind = type(backend)
    module = str(kind.__module__)
    if module.startswith(_NO_KEYRING) or _PLAIN in f"{module}.{kind.__qualname__}".lower():
        return False
    try:
        return float(backend.priority) >= _LEAST_PRIORITY
    except Exception:  # it says so itself by raising
        return False
