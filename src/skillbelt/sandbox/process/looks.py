"""The thread that looks after the limits of a run.

What it looks at is the run's own doing, and may take as long as the run likes. So whoever keeps the
deadline and hears of an end must not be the one who looks.
"""

from collections.abc import Callable
from threading import Event, Thread

TICK_SECONDS = 0.02


class Looks:
    """Looks again and again until a limit is passed or it is told to end."""

    def __init__(self, look: Callable[[], str | None], tell: Callable[[], None]) -> None:
        """`tell` wakes up whoever waits, when there is a limit."""
        self._look, self._tell = look, tell
        self._over = Event()
        self._limit: str | None = None
        self._error: BaseException | None = None
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start; a run that is over sooner needs no thread."""
        self._thread = Thread(target=self._work, name="skillbelt-look", daemon=True)
        self._thread.start()

    def limit(self) -> str | None:
        """The limit that was passed; raises what a look has raised."""
        if self._error is not None:
            raise self._error
        return self._limit

    def end(self) -> None:
        """No look is under way any more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            while self._limit is None and not self._over.is_set():
                self._limit = self._look()
                if self._limit is None:
                    self._over.wait(TICK_SECONDS)
        except BaseException as error:
            self._error = error
        finally:
            self._tell()
