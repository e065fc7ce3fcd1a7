"""Kills the children of a bubblewrap that was killed while it started.

Bubblewrap creates its child, prepares it, and then lets it continue; only afterwards does the child
ask the kernel to die with its parent. If bubblewrap is killed before, because the process that
started it was killed, its child waits forever: it runs no command, but it stays.
"""

import os
import signal
from contextlib import suppress

from skillbelt.sandbox.inside.entry import PLACE


def end_stuck() -> int:
    """Kill the children of a bubblewrap that is gone; return how many there were."""
    return sum(_end_if_stuck(int(name)) for name in os.listdir("/proc") if name.isdigit())


def _end_if_stuck(pid: int) -> bool:
    if not _waits_alone(pid):
        return False
    try:
        # The pid may belong to another process by now: the pidfd does not.
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _waits_alone(pid):
            return False
        with suppress(OSError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    finally:
        os.close(process)


def _waits_alone(pid: int) -> bool:
    """Whether it is the first process of a namespace whose bubblewrap is gone."""
    found = _status(pid)
    _, _, number = found.get("NSpid", "").rpartition("\t")
    if found.get("Name") != "bwrap" or number != "1" or found["NSpid"] == f"{pid}":
        return False
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        ours = os.fsencode(PLACE) in file.read()
        return ours and _status(int(found["PPid"])).get("Name") != "bwrap"
    return False


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
            pairs = (line.rstrip("\n").split(":\t", 1) for line in lines)
            return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    except OSError:
        return {}
