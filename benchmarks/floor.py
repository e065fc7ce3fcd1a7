"""The floor every figure is divided by: walk all folders, read the first 8 KiB of each SKILL.md."""

from __future__ import annotations

import os

HEAD_BYTES = 8 * 2**10


def floor(root: str) -> int:
    """Count the SKILL.md files below `root`, without parsing them."""
    found = 0
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name == "SKILL.md":
                    with open(entry.path, "rb") as file:
                        file.read(HEAD_BYTES)
                    found += 1
    return found
