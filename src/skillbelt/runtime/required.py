"""Skills that the settings require: whether each can be used, and why not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from shutil import which

from skillbelt.discovery.catalog import Snapshot
from skillbelt.errors import RequiredSkillUnusable, SkillbeltError, SkillDisabled
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Gate
from skillbelt.permission.packages import Kind
from skillbelt.permission.rules import Request
from skillbelt.running.packages.declared import given_needs, names_of, needs_of
from skillbelt.running.secret_store import SecretStore, refuse_name
from skillbelt.sandbox import registry
from skillbelt.settings import Settings, split_place
from skillbelt.text import one_line
from skillbelt.values import Diagnostic

_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".bash", ".wasm")
_SYSTEMS = {"darwin": ("darwin", "macos", "mac"), "win32": ("win32", "windows")}
_LIST = "`skillbelt list --all` shows what there is"


def find_unusable(
    snapshot: Snapshot, settings: Settings, gate: Gate, agent: str | None = None
) -> Iterator[RequiredSkillUnusable]:
    """Yield an error for each required skill that cannot be used here, by this agent."""
    for name in settings.required_skills():
        found = next(_find_faults(name, snapshot, settings, gate, agent), None)
        if found is not None:
            reason, remedy = found
            by = settings.for_skill(name).sources["required"]
            yield RequiredSkillUnusable(name=name, reason=reason, by=by, remedy=remedy)


def check_required(
    snapshot: Snapshot, settings: Settings, gate: Gate, agent: str | None = None
) -> None:
    """Raise RequiredSkillUnusable for the first required skill that cannot be used."""
    for error in find_unusable(snapshot, settings, gate, agent):
        raise error


def diagnose_required(snapshot: Snapshot, settings: Settings, gate: Gate) -> list[Diagnostic]:
    """Return the same errors as diagnostics."""
    found = ((error, *split_place(error.by)) for error in find_unusable(snapshot, settings, gate))
    return [
        Diagnostic(
            code="required-skill",
            severity="error",
            path=path,
            line=line,
            message=f"the skill {error.name!r} is required, but {error.reason}",
            remedy=f"{error.remedy}; no session begins before",
        )
        for error, path, line in found
    ]


def _find_faults(
    name: str, snapshot: Snapshot, settings: Settings, gate: Gate, agent: str | None
) -> Iterator[tuple[str, str]]:
    """Yield each reason why the skill cannot be used, with the remedy.

    The cheapest checks first.
    """
    skill = snapshot.get(name)
    if skill is None:
        yield _explain_missing(name, snapshot)
        return
    if (broken := snapshot.broken.get(skill.location)) is not None:
        yield f"its SKILL.md is broken: {one_line(str(broken._replace(remedy='')))}", broken.remedy
    if skill.hidden:
        yield (
            f"it is hidden ({skill.location})",
            "see INSTALL_INTERNAL_SKILLS and derived_descriptions",
        )
    for other in snapshot.shadowed:
        if other.name == name and _differs(other, skill):
            yield (
                f"two skills have the name: {skill.location} ({skill.scope}) shadows "
                f"{other.location} ({other.scope})",
                "remove or rename the wrong one",
            )
    if not gate.permit(agent, skill):
        whom = f" for the agent {agent!r}" if agent else ""
        yield (
            f"a rule denies it{whom}",
            f"`skillbelt permissions why {name}` shows the rule",
        )
    yield from _unmet_needs(skill)
    yield from _missing_secrets(skill, settings)
    if _runs(skill, settings):
        yield from _denied_packages(skill, settings, gate, agent)
        try:
            with closing(registry.Sandboxes(settings)) as sandboxes:
                sandboxes.of(skill, said=settings.for_skill(name))
        except SkillbeltError as error:
            yield f"its commands cannot run: {one_line(str(error))}", error.remedy


def _explain_missing(name: str, snapshot: Snapshot) -> tuple[str, str]:
    error = snapshot.missing(name)
    if isinstance(error, SkillDisabled):
        return f"it is disabled by {error.by}", error.remedy
    for path, broken in snapshot.broken.items():
        if os.path.basename(os.path.dirname(path)) == name:
            shown = one_line(str(broken._replace(remedy="")))
            return f"its SKILL.md is broken: {shown}", broken.remedy or _LIST
    return "there is no such skill", error.remedy if error.closest else _LIST


def _differs(one: Skill, other: Skill) -> bool:
    """Whether they come from different places and are not copies of each other."""
    if (one.scope, one.origin) == (other.scope, other.origin):
        return False
    return "mcp" in (one.origin.kind, other.origin.kind) or (
        one.files.digest() != other.files.digest()
    )


def _unmet_needs(skill: Skill) -> Iterator[tuple[str, str]]:
    """Yield the requirements of the skill that this machine does not meet."""
    needs = skill.requirements
    for program in needs.bins:
        if which(program) is None:
            yield f"the program {one_line(program)!r} that it needs is missing", "install it"
    if needs.any_bins and not any(map(which, needs.any_bins)):
        names = ", ".join(map(one_line, needs.any_bins))
        yield f"it needs one of these programs, and all are missing: {names}", "install one"
    systems = _SYSTEMS.get(sys.platform, (sys.platform,))
    if needs.os and not {one.lower() for one in needs.os} & {*systems}:
        yield f"it is for {', '.join(map(one_line, needs.os))} only", "do not require it here"


def _missing_secrets(skill: Skill, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the secrets that the skill or the settings require and that are not set."""
    switches = settings.for_skill(skill.name)
    wanted = dict.fromkeys((*switches.env, *skill.requirements.env))
    names = [one for one in wanted if one not in switches.values and not refuse_name(one)]
    store = SecretStore(settings) if names else None
    for name in names:
        if store and store.find(name, skill.name) is None:
            yield (
                f"the secret {name} that it needs is not set",
                f"`skillbelt secrets set {name} --skill {skill.name}`",
            )


def _denied_packages(
    skill: Skill, settings: Settings, gate: Gate, agent: str | None
) -> Iterator[tuple[str, str]]:
    """Yield the packages that the skill or the settings name, and that a rule denies."""
    try:
        named = list(_packages_of(skill, settings.for_skill(skill.name).packages))
    except SkillbeltError as error:
        yield f"its packages cannot be read: {one_line(str(error))}", error.remedy
        return
    for kind, names in named:
        for name in names:
            asked = Request(
                type="install",
                patterns=(name,),
                agent=agent or "",
                skill=skill.name,
                trusted=skill.trusted,
            )
            if gate.rules.decide(asked)[0] == "deny":
                about = "Python" if kind == "python" else "Node.js"
                yield (
                    f"a rule denies the {about} package {one_line(name)} that it needs",
                    f"`skillbelt permissions why {name} --type install` shows the rule",
                )


def _packages_of(skill: Skill, given: tuple[str, ...]) -> Iterator[tuple[Kind, tuple[str, ...]]]:
    """Yield the names of the packages that the skill declares, and those of the settings."""
    declared = needs_of(skill.dir, None) if skill.origin.kind != "mcp" else None
    if declared is not None:
        yield declared.kind, names_of(declared)
    if given:
        kind = declared.kind if declared is not None else "python"
        yield kind, names_of(given_needs(kind, given, "packages"))


def _runs(skill: Skill, settings: Settings) -> bool:
    """Whether the skill has anything to run, as far as is known without asking its server."""
    switches = settings.for_skill(skill.name)
    if switches.sandbox or switches.packages:
        return True
    if skill.origin.kind == "mcp" or not os.path.isabs(skill.location):
        return False
    return any(one.path.lower().endswith(_SCRIPTS) for one in skill.files.entries())
