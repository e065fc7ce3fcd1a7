"""The limits of a WASM run that neither the engine nor the kernel keeps."""

from skillbelt.sandbox.process.watch import DiskWatch, Guard
from skillbelt.values import Limits

_DISK = {"max_workspace_bytes", "max_workspace_files"}
# Beside the memory of a guest, which the engine holds to the limit exactly and tells the guest of.
# Without room for its own, it depends on the moment whether the guest is told or the worker ended.
_ENGINE_BYTES = 32 * 2**20


class WasmWatch:
    """Looks after one worker: its memory and time, the workspace, and its temporary files."""

    def __init__(self, limits: Limits, workspace: str, temporary: str) -> None:
        whole = limits._replace(max_memory_bytes=limits.max_memory_bytes + _ENGINE_BYTES)
        self._guard = Guard(whole, workspace, members=lambda pid: [pid])
        # The folder lies on a disk, not in a memory of a fixed size.
        bounds = limits._replace(max_workspace_bytes=limits.max_temporary_bytes)
        self._temporary = DiskWatch(temporary, bounds)

    def look(self, pid: int) -> str | None:
        """The limit that was passed, so that the run must end."""
        limit = self._guard.look(pid)
        if limit is None and self._temporary.look() is not None:
            limit = "max_temporary_bytes"
        return limit

    def finish(self, exit_code: int, cpu_seconds: float) -> tuple[str, ...]:
        """All limits that fired."""
        hits = set(self._guard.finish(exit_code, cpu_seconds))
        self._temporary.finish()
        seen = self._temporary.seen
        return tuple(hits | (seen - _DISK) | ({"max_temporary_bytes"} if seen & _DISK else set()))
