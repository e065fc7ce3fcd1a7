"""Which sandbox to use. What is asked for is what is used, or nothing runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from skillbelt.errors import ConfigError, RunRefused, SandboxUnavailable
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import NOT_HELD, LandlockSandbox
from skillbelt.sandbox.macos.seatbelt import SeatbeltSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Sandbox
from skillbelt.text import one_line

if TYPE_CHECKING:
    from skillbelt.format.skill import Skill
    from skillbelt.settings import Settings

AUTO, WASM, CONTAINER = "auto", "wasm", "container"
# What a skill may ask for itself: never less than it would get anyway.
_RUNTIMES = {"native": "", WASM: WASM}
# What the stronger one holds that stands before it.
_NOT_HELD = {LandlockSandbox.name: NOT_HELD}
Progress = Callable[[str], None]


class Choice(NamedTuple):
    """A sandbox, and what is to be said when it is not the one that should have been."""

    sandbox: Sandbox
    warning: str = ""


def sandboxes(
    settings: Settings | None = None, progress: Progress | None = None
) -> tuple[Sandbox, ...]:
    """Every sandbox there is, whether it can be used here or not: the native ones first.

    `auto` is for the native ones. The others need what not every command brings: a module or a
    script in a language they know, or an engine with all the rights of root.
    """
    from skillbelt.sandbox.container.sandbox import ContainerSandbox
    from skillbelt.sandbox.wasm.sandbox import WasmSandbox

    others = WasmSandbox(settings, progress), ContainerSandbox(settings, progress)
    return *native_sandboxes(), *others, NoSandbox()


def native_sandboxes() -> tuple[Sandbox, ...]:
    """Those that run any command by what the system itself has, the strongest first."""
    return LinuxSandbox(), LandlockSandbox(), SeatbeltSandbox()


def choose(
    wanted: str = AUTO, settings: Settings | None = None, progress: Progress | None = None
) -> Sandbox:
    """The sandbox of that name; with `auto` the strongest native one that works here."""
    return choice_of(wanted, settings, progress).sandbox


def choice_of(
    wanted: str = AUTO, settings: Settings | None = None, progress: Progress | None = None
) -> Choice:
    """As `choose`, and a word when `auto` had to go down to one that holds less.

    SandboxUnavailable, with the cause and the remedy, when it can not be used. Another is never
    taken in its place, and one that holds nothing back only when it is asked for by its name.
    """
    if wanted == AUTO:
        return _strongest(native_sandboxes())
    known = {sandbox.name: sandbox for sandbox in sandboxes(settings, progress)}
    if wanted not in known:
        raise ConfigError(f"no sandbox named {wanted!r}; there are: {AUTO}, {', '.join(known)}")
    reason = known[wanted].unavailable()
    if reason is not None:
        raise SandboxUnavailable(f"the sandbox {wanted!r} can not be used: {reason}")
    return Choice(known[wanted])


def not_held(sandbox: Sandbox) -> str:
    """What it does not hold that the sandbox before it would; empty when that is nothing."""
    return _NOT_HELD.get(sandbox.name, "")


def _strongest(candidates: tuple[Sandbox, ...]) -> Choice:
    reasons: list[str] = []
    for sandbox in candidates:
        reason = sandbox.unavailable()
        if reason is None:
            lost = not_held(sandbox) if reasons else ""
            why = f"{'; '.join(reasons)}; held by {sandbox.name} instead, without: {lost}"
            return Choice(sandbox, why if lost else "")
        reasons.append(f"{sandbox.name}: {reason}")
    raise SandboxUnavailable("no sandbox can be used here; " + "; ".join(reasons))


class Sandboxes:
    """The sandboxes that the runs of a project use, each opened once. Safe to use from threads."""

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self._settings, self._progress = settings, progress
        self._lock = threading.Lock()
        self._open: dict[str, Choice] = {}

    def of(self, skill: Skill, needs: str = "") -> Sandbox:
        """Where a run of the skill goes; SandboxUnavailable when it can not be used here."""
        name = name_for(skill, self._settings, needs)
        with self._lock:
            if name not in self._open:
                self._open[name] = choice_of(name, self._settings, self._progress)
            return self._open[name].sandbox

    def warnings(self, sandbox: Sandbox) -> tuple[str, ...]:
        """What is to be said of a run that goes there."""
        with self._lock:
            found = [one.warning for one in self._open.values() if one.sandbox is sandbox]
        return tuple(filter(None, found))

    def close(self) -> None:
        """Let go of what they keep ready; they can be used again all the same."""
        with self._lock:
            used = [choice.sandbox for choice in self._open.values()]
        for sandbox in used:
            sandbox.close()


def name_for(skill: Skill, settings: Settings, needs: str = "") -> str:
    """The name of the sandbox for a run of the skill.

    The host's settings come first, then what the run `needs`, then what the skill says of itself
    (`metadata.skillbelt.runtime`). SandboxUnavailable when the first two do not agree.
    """
    setting, wanted = "sandbox", settings.sandbox
    if wanted == AUTO and not skill.trusted:
        setting, wanted = "untrusted_sandbox", settings.untrusted_sandbox or AUTO
    if wanted == AUTO:
        return needs or _declared(skill) or AUTO
    if needs and needs != wanted:
        raise SandboxUnavailable(
            f"skill {skill.name!r} needs the sandbox {needs!r} for this, and {setting} is "
            f"{wanted!r}; set it to {needs!r}, or name a script of the skill that can run there"
        )
    return wanted


def _declared(skill: Skill) -> str:
    value = skill.told("runtime")
    if value is None:
        return ""
    if not isinstance(value, str) or value not in _RUNTIMES:
        known = ", ".join(_RUNTIMES)
        raise RunRefused(
            f"{skill.location}: metadata.skillbelt.runtime is {one_line(str(value))[:80]!r}; "
            f"it can be: {known}"
        )
    return _RUNTIMES[value]
