"""The skills as JSON documents: what `list --json` and `show --json` print."""

from __future__ import annotations

from collections.abc import Iterable

from skillbelt.check.check import check_file
from skillbelt.discovery.catalog import Catalog
from skillbelt.discovery.describe import (
    clients_of,
    diagnostics_json,
    skill_json,
    switches_json,
)
from skillbelt.errors import ConfigError, SkillbeltError, log_warning
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.last_results import LastResult, last_results
from skillbelt.evals.read import read_evals
from skillbelt.format.skill import Skill
from skillbelt.settings import Settings, switch_skills
from skillbelt.text import tokens, tokens_of_bytes
from skillbelt.values import SKILL_FILE, Diagnostic, Manifest, SkillSettings

_DOCUMENTS = (".md", ".txt")


def show_document(
    catalog: Catalog,
    skill: Skill,
    ruled: list[Diagnostic],
    results: Iterable[LastResult],
    *,
    denied: bool,
) -> dict[str, object]:
    """Return the document of `show --json`."""
    listing, client = skill.files.manifest(), clients_of(catalog).get(skill.location, "")
    said = catalog.settings.for_skill(skill.name)
    found = [*find_problems(skill), *listing.diagnostics, *ruled]
    return {
        **describe_skill(skill, listing, found, said),
        "denied": denied,
        "client": client,
        "evaluations": [one.document() for one in results],
    }


def find_results(skill: Skill, settings: Settings) -> tuple[LastResult, ...]:
    """Return the last evaluation results with a model for the current version of the skill."""
    return last_results(settings, skill, read_cases(skill))


def read_cases(skill: Skill) -> EvalSet:
    """Return the evaluation cases of a skill; none if they cannot be read."""
    try:
        return read_evals(skill) if skill.origin.kind != "mcp" else EvalSet(skill.name)
    except (OSError, SkillbeltError) as error:
        log_warning(f"{skill.location}: the evaluations cannot be read: {error}")
        return EvalSet(skill.name)


def find_problems(skill: Skill) -> tuple[Diagnostic, ...]:
    """Return the findings of `check`; for a skill of an MCP server, of its frontmatter only."""
    if skill.origin.kind == "mcp":
        return ()
    return tuple(check_file(skill.location, fence=skill.fence).diagnostics)


def describe_skill(
    skill: Skill, listing: Manifest, diagnostics: list[Diagnostic], said: SkillSettings
) -> dict[str, object]:
    """Return the document of a skill, without the decisions of rules."""
    return {
        **skill_json(skill, said),
        "title": skill.title,
        "dir": skill.dir,
        "derived": skill.derived,
        "frontmatter": skill.fields,
        "files": [entry._asdict() for entry in listing.files],
        "requires": skill.requirements._asdict(),
        "hash": listing.hash,
        "tokens": estimate_tokens(skill, listing),
        "diagnostics": diagnostics_json(diagnostics),
        "settings": switches_json(said),
    }


def estimate_tokens(skill: Skill, listing: Manifest) -> dict[str, int]:
    """Estimate the tokens of a skill: in the overview, its body, its documents."""
    sizes = {entry.path: entry.size for entry in listing.files}
    body = max(sizes.pop(SKILL_FILE, 0) - skill.body_offset, 0)
    documents = sum(size for path, size in sizes.items() if path.lower().endswith(_DOCUMENTS))
    return {
        "overview": tokens(f"- {skill.name}: {skill.description}\n"),
        "body": tokens_of_bytes(body),
        "documents": tokens_of_bytes(documents),
    }


def switch(catalog: Catalog, name: str, on: bool) -> str:
    """Enable or disable a skill in the user's settings; return what overrides it, or ""."""
    switch_skills(catalog.settings, {name: None})
    catalog.take_over_settings()
    if catalog.settings.for_skill(name).enabled != on:
        switch_skills(catalog.settings, {name: on})
        catalog.take_over_settings()
    said = catalog.settings.for_skill(name)
    if said.enabled == on:
        catalog.refresh()
        return ""
    return said.sources.get("enabled", "another file")


def check_switch(where: str, name: str) -> None:
    """Raise ConfigError if another file decides about the skill."""
    if where:
        raise ConfigError(
            f"{name}: {where} decides, which counts more than your settings file; change it there"
        )
