from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from skillbelt.files import locks
from skillbelt.files.locks import held, hold, locked, release


def test_the_lock_of_a_removed_file_holds_nobody(tmp_path: Path) -> None:
    """A process that waited while the file was removed waits for the new one."""
    path = str(tmp_path / "lock")
    first = hold(path, fcntl.LOCK_EX)
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(hold(path, fcntl.LOCK_EX)))
    waiting.start()
    time.sleep(0.1)  # it waits by now; if not, the test only shows less
    os.unlink(path)
    release(first)
    waiting.join()
    with pytest.raises(BlockingIOError):
        hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    release(got[0])
    release(hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB))


def test_who_waits_for_a_lock_goes_on_when_it_is_free_or_gives_up(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = hold(path, fcntl.LOCK_EX)
    with pytest.raises(KeyError, match="late"), held(path, 0.1, KeyError("late")):
        pass
    threading.Timer(0.1, release, (first,)).start()
    with held(path, 50, KeyError("late")), pytest.raises(BlockingIOError):
        hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    release(hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB))


def test_readers_share_what_a_writer_has_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "lock")
    with locked(path):
        pass
    monkeypatch.setattr(locks, "_SHORT_SECONDS", 0.0)
    with (
        locked(path, shared=True),
        locked(path, shared=True),
        pytest.raises(TimeoutError, match=f"another process holds {path}"),
        locked(path),
    ):
        pass
    with locked(path), pytest.raises(TimeoutError), locked(path, shared=True):
        pass
