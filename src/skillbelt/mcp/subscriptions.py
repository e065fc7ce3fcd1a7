"""The files that clients want to hear about, and which of them are others than they were."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from skillbelt.mcp.published import Offer

MOST = 1_000  # addresses of one client


class Subscriptions:
    """Who subscribed to which addresses. Safe to use from threads."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._owners: dict[str, set[str]] = {}
        self._digests: dict[str, str] = {}

    def add(self, owner: str, uris: Iterable[str]) -> bool:
        """Note what the owner wants to hear about; False when that is too much, and nothing is."""
        wanted = set(uris)
        if len(wanted) > MOST:
            return False
        now = self._offer.digests(wanted - self._digests.keys())
        with self._lock:
            whole = self._owners.get(owner, set()) | wanted
            if len(whole) > MOST:
                return False
            self._owners[owner] = whole
            self._digests = {**now, **self._digests}
        return True

    def remove(self, owner: str, uris: Iterable[str]) -> None:
        """Forget that the owner wants to hear about these."""
        with self._lock:
            self._owners.get(owner, set()).difference_update(uris)
            self._tidy()

    def drop(self, owner: str) -> None:
        """Forget the owner."""
        with self._lock:
            self._owners.pop(owner, None)
            self._tidy()

    def of(self, owner: str) -> frozenset[str]:
        """What the owner wants to hear about."""
        with self._lock:
            return frozenset(self._owners.get(owner, ()))

    def there(self, uri: str) -> bool:
        """Whether there is a file at the address; of what is subscribed to, that is known."""
        return bool(self._digests.get(uri) or self._offer.digests([uri])[uri])

    def changed(self) -> list[str]:
        """The addresses whose file came, went or is another since this was asked last."""
        with self._looking:
            now = self._offer.digests(list(self._digests))
            with self._lock:
                found = [uri for uri, mark in now.items() if self._digests.get(uri, mark) != mark]
                self._digests |= {uri: now[uri] for uri in found}
        return sorted(found)

    def _tidy(self) -> None:
        wanted = set().union(*self._owners.values()) if self._owners else set()
        self._digests = {uri: mark for uri, mark in self._digests.items() if uri in wanted}
