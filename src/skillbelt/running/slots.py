"""Bound the number of parallel commands by the file handles that this process may have."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from skillbelt.errors import RunRefused, SkillbeltError
from skillbelt.files.handles import BUSY, is_shortage, spare_handles
from skillbelt.metrics import held

# A running command holds about ten; starting it takes a few more.
HANDLES_OF_A_RUN = 12


class RunSlots:
    """Slots for parallel commands: as many as half of this process's handles suffice for."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset: a forked process has none of the commands of its parent."""
        self._changed = threading.Condition()
        self._used = 0

    @contextmanager
    def hold(self, seconds: float) -> Iterator[None]:
        """Hold a slot while the block lasts; RunRefused if none is free within the time."""
        with held("runs_queued"), self._changed:
            if not self._changed.wait_for(lambda: self._used < _most(), seconds):
                raise RunRefused(BUSY)
            self._used += 1
        try:
            yield
        finally:
            with self._changed:
                self._used -= 1
                self._changed.notify()


def _most() -> int:
    return max(1, spare_handles() // 2 // HANDLES_OF_A_RUN)


SLOTS = RunSlots()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SLOTS.forget)


@contextmanager
def busy_without_handles() -> Iterator[None]:
    """Raise RunRefused, which says to try again, for an error that means: no handles left."""
    try:
        yield
    except (OSError, SkillbeltError) as error:
        if is_shortage(error):
            raise RunRefused(BUSY) from error
        raise
