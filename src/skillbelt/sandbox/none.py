"""No sandbox: run the command unconfined. Used only when the user asks for it by name."""

import sys

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.process.run import ProcessRun
from skillbelt.sandbox.process.supervised import supervised_plan
from skillbelt.sandbox.protocol import Job, Keepless, Listener, Running

_ENFORCED = {
    "files": "not enforced: no sandbox",
    "file modes": "not enforced: no sandbox",
    "network": "not enforced: no sandbox",
    "other processes": "not enforced: no sandbox",
    "system calls": "not enforced: no sandbox",
    "child processes": "not enforced: no sandbox",
    "other programs": "not enforced: no sandbox",
}


class NoSandbox(Keepless):
    """Runs commands with limits only; still never as root."""

    name = "none"
    level = 0
    remaps = False

    def unavailable(self) -> str | None:
        """Return why it cannot be used here; None when it can."""
        return None if sys.platform == "linux" else "this system is not Linux"

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the launcher cannot be started."""
        reason = self.unavailable()
        if reason is not None:
            raise SandboxUnavailable(reason)
        return ProcessRun(supervised_plan(job, _ENFORCED), job, listener)
