"""Following a run while it lasts: its output, and the handle to end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from skillbelt.sandbox.protocol import Listener, Running


class Watch(NamedTuple):
    """What follows a run: `listener` gets its output, `started` the command once it runs."""

    listener: Listener | None = None
    started: Callable[[Running], None] | None = None


UNWATCHED = Watch()
