"""The folders of actors on a node: each is held by its actor, and swept when the actor was killed.

An actor that ends removes its folder. One that is killed, with its worker or with its node, cannot;
the next actor on the machine does, and so does `skillbelt fleet join`.
"""

from __future__ import annotations

import fcntl
import os

from skillbelt.files.locks import hold, release
from skillbelt.files.private import make_folder
from skillbelt.files.remove import remove_tree
from skillbelt.running.workspace import places

NODES = "nodes"  # in the state folder
_LOCK, _HELD = ".lock", ".held"


def take_folder(nodes: str, name: str) -> str:
    """Create the folder of an actor, held until this process ends; sweep those of killed ones."""
    make_folder(nodes)
    sweep_folders(nodes)
    alone = hold(os.path.join(nodes, _LOCK), fcntl.LOCK_EX)
    try:
        folder = os.path.join(nodes, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        hold(os.path.join(folder, _HELD), fcntl.LOCK_SH)  # the kernel lets go at the end
        return folder
    finally:
        release(alone)


def sweep_folders(nodes: str) -> list[str]:
    """Remove the folders that no living actor holds, with their workspaces; return their names."""
    if not os.path.isdir(nodes):
        return []
    removed = []
    # No actor creates its folder meanwhile, so one that is not held has none.
    alone = hold(os.path.join(nodes, _LOCK), fcntl.LOCK_EX)
    try:
        for entry in sorted(os.scandir(nodes), key=lambda one: one.name):
            if entry.is_dir(follow_symlinks=False) and _is_left(entry.path):
                for place in places(os.path.join(entry.path, "workspaces")):
                    remove_tree(place)
                remove_tree(entry.path)
                removed.append(entry.name)
    finally:
        release(alone)
    return removed


def _is_left(folder: str) -> bool:
    try:
        handle = hold(os.path.join(folder, _HELD), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    release(handle)
    return True
