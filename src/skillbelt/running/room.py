"""Whether a workspace has room for one more run.

A run is looked after while it lasts, but many short ones can add up unseen. So each leaves a note
of what the disk lost meanwhile, and when the notes say that it may matter, the workspace is
measured before the next one starts.

    <all>/<id>/written      one note for each run since the last measurement; never seen by a run
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from skillbelt.errors import RunRefused
from skillbelt.files.contain import APPEND_FILE, READ_FILE
from skillbelt.files.usage import measure_folder
from skillbelt.running.workspace import Workspace
from skillbelt.sandbox.process.usage import Space, free_space
from skillbelt.values import Limits

_NOTES = "written"
_NOTE = struct.Struct("<qq")
_SHARE = 64  # of the limit may be written, or so many runs be over, until it is measured again


@contextmanager
def room_for_a_run(workspace: Workspace, limits: Limits) -> Iterator[None]:
    """Refuse a run in a workspace that is full; note at the end what the run has written."""
    if _is_due(_noted(workspace.handle), limits):
        _check(workspace, limits)
    before = free_space(workspace.path)
    try:
        yield
    finally:
        with suppress(OSError):
            after = free_space(workspace.path)
            _note(workspace.handle, Space(before.bytes - after.bytes, before.files - after.files))


def _is_due(notes: list[Space], limits: Limits) -> bool:
    # Others on the same disk may have given back what a run took, so their number counts too.
    return (
        len(notes) >= _SHARE
        or sum(max(0, one.bytes) for one in notes) > limits.max_workspace_bytes // _SHARE
        or sum(max(0, one.files) for one in notes) > limits.max_workspace_files // _SHARE
    )


def _check(workspace: Workspace, limits: Limits) -> None:
    found = measure_folder(workspace.path, limits.max_workspace_bytes, limits.max_workspace_files)
    for name, taken in (("max_workspace_bytes", found.bytes), ("max_workspace_files", found.files)):
        most = getattr(limits, name)
        if taken > most:
            raise RunRefused(
                f"the workspace of this session is full: {workspace.path} is beyond {name} "
                f"({most:,}); delete the session (skillbelt sessions delete), remove files there, "
                f"or raise {name} in the settings"
            )
    with suppress(FileNotFoundError):
        os.unlink(_NOTES, dir_fd=workspace.handle)


def _noted(folder: int) -> list[Space]:
    try:
        handle = os.open(_NOTES, READ_FILE, dir_fd=folder)
    except FileNotFoundError:
        return []
    try:
        data = os.read(handle, _NOTE.size * _SHARE)
    finally:
        os.close(handle)
    return [Space(*one) for one in _NOTE.iter_unpack(data[: len(data) // _NOTE.size * _NOTE.size])]


def _note(folder: int, lost: Space) -> None:
    handle = os.open(_NOTES, APPEND_FILE, 0o600, dir_fd=folder)
    try:
        os.write(handle, _NOTE.pack(*lost))
    finally:
        os.close(handle)
