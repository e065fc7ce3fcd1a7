"""The objects that all pages of the console share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from skillbelt.console.live import Live
from skillbelt.console.usage_book import UsageBook
from skillbelt.permission.waiting import EveryRequest
from skillbelt.runtime.runtime import Runtime

if TYPE_CHECKING:
    from skillbelt.console.install_jobs import InstallDesk

_OPEN: WeakValueDictionary[int, ConsoleParts] = WeakValueDictionary()


class ConsoleParts:
    """The runtime of a project, the requests of all projects in its store, the event streams."""

    def __init__(self, belt: Runtime, *, listens: bool) -> None:
        """With `listens`, this console answers requests of all projects that share the store."""
        self.belt = belt
        self.requests = EveryRequest(belt.store)
        if listens:
            self.requests.listen()
        self.live = Live(belt, self.requests)
        self.usage = UsageBook(belt.gate.audit)
        self.lock = threading.Lock()
        self.examiner: object = None  # made by the page that needs it
        self.installs: InstallDesk | None = None  # made by the page that needs it
        _OPEN[id(belt)] = self

    def close(self) -> None:
        """End the event streams, and stop answering requests."""
        self.live.close()
        if self.installs is not None:
            self.installs.close()
        self.usage.close()
        self.requests.close()


def parts_of(belt: Runtime) -> ConsoleParts:
    """Return the parts of the console of this runtime, for the JSON API."""
    return _OPEN[id(belt)]
