"""Choose the sandbox of a run: the one that was asked for, or none at all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from skillbelt.errors import ConfigError, RunRefused, SandboxUnavailable
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import NOT_HELD, LandlockSandbox
from skillbelt.sandbox.macos.seatbelt import NOT_VERIFIED, SeatbeltSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Sandbox
from skillbelt.text import one_line
from skillbelt.values import SkillSettings

if TYPE_CHECKING:
    from skillbelt.format.skill import Skill
    from skillbelt.sandbox.wasm.interpreters import InstallTools
    from skillbelt.settings import Settings

_NOTHING_SAID = SkillSettings()
AUTO, WASM, CONTAINER = "auto", "wasm", "container"
# The sandboxes that a skill may ask for: never weaker than the default.
_RUNTIMES = {"native": "", WASM: WASM}
# Isolation that a sandbox lacks and the stronger one before it has.
_NOT_HELD = {LandlockSandbox.name: NOT_HELD}
Progress = Callable[[str], None]


class Choice(NamedTuple):
    """A sandbox, and the warning for each run that uses it."""

    sandbox: Sandbox
    warning: str = ""


def sandboxes(
    settings: Settings | None = None,
    progress: Progress | None = None,
    install: InstallTools | None = None,
) -> tuple[Sandbox, ...]:
    """Return all sandboxes, whether usable here or not; native ones first.

    `install` installs the tools that WASM builds its Python interpreter with.
    """
    native = LinuxSandbox(), LandlockSandbox(), SeatbeltSandbox()
    container, wasm = _other_sandboxes(settings, progress, install)
    return *native, wasm, container, NoSandbox()


def auto_sandboxes(
    settings: Settings | None = None,
    progress: Progress | None = None,
    install: InstallTools | None = None,
) -> tuple[Sandbox, ...]:
    """Return the sandboxes that `auto` tries, the strongest first.

    On macOS these are containers and WASM: no Mac has run the attacks against seatbelt.
    """
    if sys.platform == "darwin":
        return _other_sandboxes(settings, progress, install)
    return LinuxSandbox(), LandlockSandbox()


def _other_sandboxes(
    settings: Settings | None, progress: Progress | None, install: InstallTools | None
) -> tuple[Sandbox, Sandbox]:
    """Return the sandboxes for containers and for WASM."""
    from skillbelt.sandbox.optional import optional_sandboxes  # cost: 30 ms, by name only

    return optional_sandboxes(settings, progress, install)


def choose(
    wanted: str = AUTO, settings: Settings | None = None, progress: Progress | None = None
) -> Sandbox:
    """Return the sandbox of that name; for `auto` the strongest that works here."""
    return choice_of(wanted, settings, progress).sandbox


def named_sandbox(
    wanted: str,
    settings: Settings | None = None,
    progress: Progress | None = None,
    install: InstallTools | None = None,
) -> Sandbox:
    """Return the sandbox of that name, usable or not; ConfigError if there is none."""
    known = {sandbox.name: sandbox for sandbox in sandboxes(settings, progress, install)}
    if wanted not in known:
        raise ConfigError(f"no sandbox named {wanted!r}; there are: {AUTO}, {', '.join(known)}")
    return known[wanted]


def choice_of(
    wanted: str = AUTO,
    settings: Settings | None = None,
    progress: Progress | None = None,
    install: InstallTools | None = None,
) -> Choice:
    """Choose as `choose` does, with a warning when `auto` took a weaker or unverified one.

    Raises SandboxUnavailable, with the cause and the remedy, when it cannot be used. There is no
    fallback to another sandbox, and one without isolation is used only by its name.
    """
    if wanted == AUTO:
        return _strongest(auto_sandboxes(settings, progress, install))
    found = named_sandbox(wanted, settings, progress, install)
    reason = found.unavailable()
    if reason is not None:
        raise SandboxUnavailable(f"the sandbox {wanted!r} cannot be used: {reason}")
    warning = NOT_VERIFIED if wanted == SeatbeltSandbox.name else ""
    return Choice(found, warning)


def missing_isolation(sandbox: Sandbox) -> str:
    """Return the isolation that it lacks and the sandbox before it has; "" for none."""
    return _NOT_HELD.get(sandbox.name, "")


def _strongest(candidates: tuple[Sandbox, ...]) -> Choice:
    reasons: list[str] = []
    for sandbox in candidates:
        reason = sandbox.unavailable()
        if reason is None:
            lost = missing_isolation(sandbox) if reasons else ""
            why = f"{'; '.join(reasons)}; {sandbox.name} is used instead, without: {lost}"
            return Choice(sandbox, why if lost else "")
        reasons.append(f"{sandbox.name}: {reason}")
    if sys.platform == "darwin":
        reasons.append("install Docker or Podman, or set sandbox to 'seatbelt', not verified")
    raise SandboxUnavailable("no sandbox can be used here; " + "; ".join(reasons))


class Sandboxes:
    """The sandboxes that the runs of a project use, each opened once. Safe to use from threads."""

    def __init__(
        self,
        settings: Settings,
        progress: Progress | None = None,
        install: InstallTools | None = None,
    ) -> None:
        self._open_named: Callable[[str], Choice] = partial(
            choice_of, settings=settings, progress=progress, install=install
        )
        self._settings = settings
        self._lock = threading.Lock()
        self._open: dict[str, Choice] = {}

    def of(self, skill: Skill, needs: str = "", said: SkillSettings = _NOTHING_SAID) -> Sandbox:
        """Return the sandbox for a run of the skill; SandboxUnavailable when it cannot be used.

        The setting of this skill replaces the general one, unless it is weaker: another skill could
        take the same name.
        """
        name = name_for(skill, self._settings, needs)
        if said.sandbox in ("", AUTO, name):
            return self._open_once(name)
        if needs and needs != said.sandbox:
            raise _disagree(skill, needs, "its sandbox in the settings", said.sandbox)
        own = self._open_once(said.sandbox)
        try:
            usual = self._open_once(name)
        except SandboxUnavailable:
            least, than = 1, "one that confines anything"
        else:
            least, than = usual.level, repr(usual.name)
        if own.level < least:
            raise SandboxUnavailable(
                f"{said.sources['sandbox']}: the sandbox {own.name!r} for the skill {skill.name!r} "
                f"is weaker than {than}; name another, or change the setting sandbox for all skills"
            )
        return own

    def _open_once(self, name: str) -> Sandbox:
        with self._lock:
            if name not in self._open:
                self._open[name] = self._open_named(name)
            return self._open[name].sandbox

    def warnings(self, sandbox: Sandbox) -> tuple[str, ...]:
        """Return the warnings for each run in the sandbox."""
        with self._lock:
            found = [one.warning for one in self._open.values() if one.sandbox is sandbox]
        return tuple(filter(None, found))

    def close(self) -> None:
        """Release everything kept ready; the sandboxes can still be used."""
        with self._lock:
            used = [choice.sandbox for choice in self._open.values()]
        for sandbox in used:
            sandbox.close()


def name_for(skill: Skill, settings: Settings, needs: str = "") -> str:
    """Return the name of the sandbox for a run of the skill.

    The host's settings come first, then the sandbox that the run `needs`, then the one that the
    skill declares (`metadata.skillbelt.runtime`). SandboxUnavailable when the first two do not
    agree.
    """
    setting, wanted = "sandbox", settings.sandbox
    if wanted == AUTO and not skill.trusted:
        setting, wanted = "untrusted_sandbox", settings.untrusted_sandbox or AUTO
    if wanted == AUTO:
        return needs or _declared_runtime(skill) or AUTO
    if needs and needs != wanted:
        raise _disagree(skill, needs, setting, wanted)
    return wanted


def _disagree(skill: Skill, needs: str, setting: str, wanted: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"skill {skill.name!r} needs the sandbox {needs!r} for this, and {setting} is "
        f"{wanted!r}; set it to {needs!r}, or name a script of the skill that can run there"
    )


def _declared_runtime(skill: Skill) -> str:
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
