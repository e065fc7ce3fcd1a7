"""Snapshots of workspaces in the object store, so that any server can continue a conversation."""

from __future__ import annotations

from skillbelt.errors import ObjectError, RunRefused, log_warning
from skillbelt.objects.space import Objects
from skillbelt.running.cleanup import Cleaned
from skillbelt.running.snapshots import clean_deleted, forget_snapshots, restore, snapshot
from skillbelt.running.workspace import Workspace
from skillbelt.settings import Settings
from skillbelt.store.protocol import SessionKey
from skillbelt.text import one_line


class WorkspaceKeeper:
    """Restores a workspace before it is used, and saves it after each run. Thread-safe."""

    def __init__(self, settings: Settings, project: str) -> None:
        self._objects, self._project = Objects.from_settings(settings), project
        self._limits = settings.limits

    def restore(self, workspace: Workspace, key: SessionKey) -> None:
        """Restore the content of its last snapshot, if another machine made that.

        RunRefused when the snapshot is not available: a run with old files would be wrong.
        """
        if workspace.has_others():
            return
        try:
            restore(workspace, self._objects, key, project=self._project, limits=self._limits)
        except ObjectError as error:
            raise RunRefused(
                f"the workspace of this conversation cannot be restored: {one_line(str(error))}; "
                "nothing was run"
            ) from error

    def keep(self, workspace: Workspace, key: SessionKey) -> str:
        """Put the files of runs into the object store.

        Return why that failed, "" when it did not.
        """
        try:
            snapshot(workspace, self._objects, key, project=self._project, limits=self._limits)
        except ObjectError as error:
            return (
                "the workspace was not kept for other machines, only on this one: "
                f"{one_line(str(error))}"
            )
        return ""

    def forget(self, key: SessionKey) -> int:
        """Remove the snapshots of a conversation; return how many were removed."""
        return forget_snapshots(self._objects, key)

    def clean(self, folder: str) -> list[Cleaned]:
        """Remove the local workspaces of conversations that were deleted on other machines."""
        try:
            return clean_deleted(self._objects, folder)
        except ObjectError as error:
            log_warning(f"workspaces of deleted conversations stay for now: {error}")
            return []
