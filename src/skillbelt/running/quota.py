"""The quota of a workspace, checked before a run.

The sandbox watches each run, but many short runs can add up unseen. So each run appends to a file
how much disk space was lost meanwhile, and once the sum may matter, the workspace is measured
before the next run.

    <all>/<id>/written      one record for each run since the last measurement; hidden from runs
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

_RECORDS = "written"
_RECORD = struct.Struct("<qq")
_SHARE = 64  # measure again after 1/64 of the limit was written, or after 64 runs


@contextmanager
def quota_for_run(workspace: Workspace, limits: Limits) -> Iterator[None]:
    """Refuse a run in a full workspace; at the end record how much the run has written."""
    if _is_due(_read_records(workspace.handle), limits):
        _check(workspace, limits)
    before = free_space(workspace.path)
    try:
        yield
    finally:
        with suppress(OSError):
            after = free_space(workspace.path)
            lost = Space(before.bytes - after.bytes, before.files - after.files)
            _append_record(workspace.handle, lost)


def _is_due(records: list[Space], limits: Limits) -> bool:
    # Others may free space on the same disk meanwhile, so the number of runs counts too.
    return (
        len(records) >= _SHARE
        or sum(max(0, one.bytes) for one in records) > limits.max_workspace_bytes // _SHARE
        or sum(max(0, one.files) for one in records) > limits.max_workspace_files // _SHARE
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
        os.unlink(_RECORDS, dir_fd=workspace.handle)


def _read_records(folder: int) -> list[Space]:
    try:
        handle = os.open(_RECORDS, READ_FILE, dir_fd=folder)
    except FileNotFoundError:
        return []
    try:
        data = os.read(handle, _RECORD.size * _SHARE)
    finally:
        os.close(handle)
    whole = len(data) // _RECORD.size * _RECORD.size
    return [Space(*one) for one in _RECORD.iter_unpack(data[:whole])]


def _append_record(folder: int, lost: Space) -> None:
    handle = os.open(_RECORDS, APPEND_FILE, 0o600, dir_fd=folder)
    try:
        os.write(handle, _RECORD.pack(*lost))
    finally:
        os.close(handle)
