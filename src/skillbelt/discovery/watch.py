"""Decide when to scan again: yield the moments at which folders may have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator


def ticks(
    folders: Callable[[], list[str]], seconds: float, stop: threading.Event | None = None
) -> Iterator[bool]:
    """Yield True whenever something in the folders changed, and False every `seconds` otherwise.

    The steady tick finds folders that did not exist before. Without watchfiles there is no other.
    """
    stop = stop or threading.Event()
    try:
        from watchfiles import watch  # extra: watch
    except ImportError:
        while not stop.wait(seconds):
            yield False
        return
    while not stop.is_set():
        watched = folders()
        if not watched:
            if not stop.wait(seconds):
                yield False
            continue
        until = time.monotonic() + seconds
        for changes in watch(
            *watched,
            stop_event=stop,
            rust_timeout=max(int(seconds * 1000), 1),
            yield_on_timeout=True,
            debounce=200,
            step=50,
            ignore_permission_denied=True,
            raise_interrupt=True,
        ):
            yield bool(changes)
            if folders() != watched or time.monotonic() > until + 60:
                break
