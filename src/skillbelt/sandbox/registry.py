"""Which sandbox to use. What is asked for is what is used, or nothing runs."""

from skillbelt.errors import ConfigError, SandboxUnavailable
from skillbelt.sandbox.landlock import LandlockSandbox
from skillbelt.sandbox.linux import LinuxSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Sandbox
from skillbelt.sandbox.sandlock import SandlockSandbox
from skillbelt.sandbox.seatbelt import SeatbeltSandbox
from skillbelt.settings import Settings

AUTO = "auto"


def sandboxes() -> tuple[Sandbox, ...]:
    """Every sandbox there is, the strongest first, whether it can be used here or not."""
    return LinuxSandbox(), SandlockSandbox(), LandlockSandbox(), SeatbeltSandbox(), NoSandbox()


def choose(wanted: str = AUTO, settings: Settings | None = None) -> Sandbox:
    """The sandbox of that name; with `auto` the strongest that works here.

    SandboxUnavailable, with the cause and the remedy, when it can not be used. Another is never
    taken in its place, and one that holds nothing back only when it is asked for by its name.
    """
    known = {sandbox.name: sandbox for sandbox in sandboxes()}
    if wanted == AUTO:
        return _strongest([sandbox for sandbox in known.values() if sandbox.level > 0])
    if wanted not in known:
        raise ConfigError(f"no sandbox named {wanted!r}; there are: {AUTO}, {', '.join(known)}")
    reason = known[wanted].unavailable()
    if reason is not None:
        raise SandboxUnavailable(f"the sandbox {wanted!r} can not be used: {reason}")
    return known[wanted]


def _strongest(candidates: list[Sandbox]) -> Sandbox:
    reasons = []
    for sandbox in candidates:
        reason = sandbox.unavailable()
        if reason is None:
            return sandbox
        reasons.append(f"{sandbox.name}: {reason}")
    raise SandboxUnavailable("no sandbox can be used here; " + "; ".join(reasons))
