"""The thread that checks the limits of a run.

A command can make a check slow, so the thread that enforces the deadline must not be the one that
checks.
"""

from collections.abc import Callable
from threading import Event, Thread

TICK_SECONDS = 0.02


class LimitChecks:
    """Polls until a limit is exceeded or `end` is called."""

    def __init__(self, look: Callable[[], str | None], tell: Callable[[], None]) -> None:
        """Call `look` every TICK_SECONDS, and `tell` when it returned a limit or raised."""
        self._look, self._tell = look, tell
        self._over = Event()
        self._limit: str | None = None
        self._error: BaseException | None = None
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start the thread; a run that ends sooner needs none."""
        thread = Thread(target=self._poll, name="skillbelt-look", daemon=True)
        thread.start()  # if this fails, there is no thread to wait for
        self._thread = thread

    def limit(self) -> str | None:
        """Return the limit that was exceeded; raise the exception of a check."""
        if self._error is not None:
            raise self._error
        return self._limit

    def end(self) -> None:
        """Stop, and wait for a running check."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _poll(self) -> None:
        try:
            while self._limit is None and not self._over.is_set():
                self._limit = self._look()
                if self._limit is None:
                    self._over.wait(TICK_SECONDS)
        except BaseException as error:
            self._error = error
        finally:
            self._tell()
