"""What the pages of the console work with."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from skillbelt.console.live import Live
from skillbelt.console.usage_book import UsageBook
from skillbelt.permission.waiting import EveryRequest
from skillbelt.runtime.runtime import Runtime

if TYPE_CHECKING:
    from skillbelt.console.installs import InstallDesk

_OPEN: WeakValueDictionary[int, ConsoleParts] = WeakValueDictionary()


class ConsoleParts:
    """The runtime of a project, the requests of all projects in its store, and the news."""

    def __init__(self, belt: Runtime, *, listens: bool) -> None:
        """With `listens`, processes of every project that share the store are answered here."""
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
        """End the streams of news, and stop answering."""
        self.live.close()
        if self.installs is not None:
            self.installs.close()
        self.usage.close()
        self.requests.close()


def parts_of(belt: Runtime) -> ConsoleParts:
    """Return what the console of this runtime works with, for the JSON API beside it."""
    return _OPEN[id(belt)]
