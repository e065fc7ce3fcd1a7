"""The report of a node about itself: its facts and its disk usage. Runs on the node."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from typing import NamedTuple

from skillbelt.files.usage import measure_folder
from skillbelt.fleet.facts import find_facts
from skillbelt.permission.packages import FOLDER
from skillbelt.running.cleanup import LOCKS
from skillbelt.running.workspace import places
from skillbelt.settings import Settings, load_settings

# Enough to see what fills a disk; a walk without a bound would delay the answer.
_MOST_BYTES, _MOST_FILES = 2**50, 200_000


class Held(NamedTuple):
    """The content of a folder on a node: entries, bytes, and whether the walk was cut short."""

    entries: int = 0
    bytes: int = 0
    cut: bool = False


def report_node() -> dict[str, object]:
    """Return the facts and the disk usage of this machine, as plain values."""
    settings = load_settings()
    return {"facts": find_facts(settings).to_json(), **report_disk(settings)}


def report_disk(settings: Settings) -> dict[str, object]:
    """Return the disk usage of workspaces and environments, and the free disk space."""
    workspaces = places(os.path.join(settings.state_dir, "workspaces"))
    packages = places(os.path.join(settings.cache_dir, "packages"))
    return {
        "workspaces": _measure(workspaces)._asdict(),
        "environments": _measure([os.path.join(one, FOLDER) for one in packages])._asdict(),
        "free_bytes": _free_bytes(settings.state_dir),
        "time": time.time(),
    }


def _measure(folders: Sequence[str]) -> Held:
    total = Held()
    for folder in folders:
        try:
            entries = sum(one.name != LOCKS for one in os.scandir(folder))
        except OSError:
            continue
        usage = measure_folder(folder, _MOST_BYTES, _MOST_FILES)
        cut = total.cut or usage.hidden or usage.files > _MOST_FILES
        total = Held(total.entries + entries, total.bytes + usage.bytes, cut=cut)
    return total


def _free_bytes(folder: str) -> int:
    """Return the free space on the disk of a folder, which need not exist yet."""
    while folder and not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder or "/").free
