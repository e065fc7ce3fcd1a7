"""Judge the discovered skills by the rules of the settings, for lists and pages."""

from __future__ import annotations

from collections.abc import Iterable

from skillbelt.errors import ConfigError
from skillbelt.format.skill import Skill
from skillbelt.settings import Settings
from skillbelt.trust import Trust
from skillbelt.values import Diagnostic


def judge_by_rules(
    settings: Settings, skills: Iterable[Skill]
) -> tuple[list[Diagnostic], frozenset[str]]:
    """Return the problems of the rules, and the names of the skills that every model is denied."""
    if not settings.rule_tables:
        return [], frozenset()
    # cost: 10 ms, only with rules
    from skillbelt.permission.rule_files import denied_skills, read_policy

    trusted = Trust(settings.state_dir).project(settings.project)
    try:
        policy = read_policy(settings, project_trusted=trusted)
        named = {skill.name: skill.trusted for skill in skills}
        return list(policy.diagnostics), denied_skills(policy, settings, named)
    except ConfigError as error:
        place, _, message = str(error).partition(": ")
        path, _, line = place.rpartition(":")
        known = line.isdigit()
        return [
            Diagnostic(
                code="rules-wrong",
                severity="error",
                path=path if known else place,
                line=int(line) if known else None,
                message=message,
                remedy="fix the rule: no command that needs permission works before",
            )
        ], frozenset()
