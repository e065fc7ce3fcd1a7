"""Skills and problems as JSON documents: the same in `--json`, in the HTTP API and on its pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skillbelt.format.skill import Skill
from skillbelt.settings import NO_SWITCHES
from skillbelt.values import Diagnostic, SkillSettings

if TYPE_CHECKING:
    from skillbelt.discovery.catalog import Catalog


def skill_json(skill: Skill, switches: SkillSettings = NO_SWITCHES) -> dict[str, object]:
    """Return a skill as `list --json` prints it, with its settings."""
    return {
        "name": skill.name,
        "description": skill.description,
        "location": skill.location,
        "scope": skill.scope,
        "origin": str(skill.origin),
        "model_visible": skill.model_visible,
        "user_invocable": skill.user_invocable,
        "trusted": skill.trusted,
        "enabled": switches.enabled,
        "disabled_by": "" if switches.enabled else switches.sources["enabled"],
        "visible": switches.visible,
        "pinned": switches.pin,
        "required": switches.required,
        "shadows": list(skill.shadows),
    }


def switches_json(switches: SkillSettings) -> dict[str, dict[str, object]]:
    """Return the settings for a skill, with the source of each; variables by name only."""
    shown: dict[str, object] = {**switches._asdict(), "values": tuple(sorted(switches.values))}
    # One key of a file sets both.
    left_out = [key for key in ("values", "env") if not shown[key]][:1]
    return {
        key: {"value": list(value) if isinstance(value, tuple) else value, "source": source}
        for key, source in switches.sources.items()
        if key not in left_out
        for value in (shown[key],)
    }


def clients_of(catalog: Catalog) -> dict[str, str]:
    """Return the client whose folder holds each skill, by location; "" for other folders."""
    return {one.location: scan.root.client for scan in catalog.scans for one in scan.skills}


def diagnostics_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    """Return diagnostics as every --json document has them."""
    return [diagnostic._asdict() for diagnostic in diagnostics]
