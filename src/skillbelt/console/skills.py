"""The pages about skills: the catalogue with its search, one skill, its files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response

from skillbelt.console.abilities import (
    GainedAbility,
    describe_abilities,
    find_gained,
    list_abilities,
    scan_of,
)
from skillbelt.console.approved import compare_files, find_approved, list_approved, read_files
from skillbelt.console.catalogue import (
    check_switch,
    read_cases,
    show_document,
    switch,
)
from skillbelt.console.downloads import attach, is_text
from skillbelt.console.markdown import render_markdown
from skillbelt.console.skill_facts import find_locked, measure_route
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.discovery.catalog import find_any
from skillbelt.discovery.describe import clients_of
from skillbelt.errors import SkillbeltError
from skillbelt.evals.last_results import last_results
from skillbelt.format.skill import Skill
from skillbelt.permission.judging import judge_by_rules
from skillbelt.permission.remembered import RememberedAnswers
from skillbelt.runtime.runtime import Runtime
from skillbelt.search.protocol import Result
from skillbelt.serving.answers import HttpRefusal
from skillbelt.text import tokens, tokens_of_bytes
from skillbelt.values import SKILL_FILE

PAGE = 50
MAX_TEXT_BYTES = 512 * 2**10
_NOTICES = {
    "enabled": "Enabled.",
    "disabled": "Disabled: models, commands and servers no longer get it.",
    "revoked": "What was approved for this skill is forgotten.",
}


class SkillRow(NamedTuple):
    """A skill in the catalogue; `reason` says where a search matched."""

    skill: Skill
    client: str
    marks: tuple[tuple[str, str], ...]
    overview_tokens: int
    body_tokens: int
    problems: int
    last: float
    reason: str = ""
    strength: str = ""


def show_all(visit: Visit) -> ShownPage:
    """Show the catalogue, or the results of a search."""
    belt, words = visit.parts.belt, visit.query.get("q", "").strip()[:500]
    visit.parts.usage.start()
    snapshot = belt.look()
    shadowed = {one.location for one in belt.catalog.shadowed}
    if words:
        found = [one for one in belt.search(words, PAGE) if one.strength != "noise"]
        rows = [
            row._replace(
                reason=_describe_match(one),
                strength=one.strength,
            )
            for one, row in zip(
                found, _list_rows(visit, [one.skill for one in found], shadowed), strict=True
            )
        ]
        return ShownPage("skills.html", _facts(visit, rows, words, len(rows), 0))
    every = snapshot.derive("console-skills", lambda: _list(visit))
    kind = visit.query.get("show", "")
    chosen = [one for one in every if _fits(visit, one, kind, shadowed)] if kind else every
    start = visit.number("from", 0, len(chosen))
    rows = _list_rows(visit, chosen[start : start + PAGE], shadowed)
    return ShownPage("skills.html", _facts(visit, rows, "", len(chosen), start))


def _describe_match(result: Result) -> str:
    """Return where a search matched; "" if the row shows that anyway."""
    found = result.snippet.strip("… ")
    return result.field if found in result.skill.description else f"{result.field}: {found}"


def _list_rows(visit: Visit, skills: Sequence[Skill], shadowed: set[str]) -> list[SkillRow]:
    belt = visit.parts.belt
    clients = belt.catalog.snapshot.derive("console-clients", lambda: clients_of(belt.catalog))
    _, denied = judge_by_rules(belt.settings, skills)
    return [
        _row(visit, skill, clients.get(skill.location, ""))._replace(
            marks=tuple(list_marks(visit, skill, shadowed, denied=skill.name in denied))
        )
        for skill in skills
    ]


def _list(visit: Visit) -> list[Skill]:
    catalog = visit.parts.belt.catalog
    disabled = [skill for skill, _ in catalog.snapshot.disabled.values()]
    every = [*catalog.snapshot.values(), *disabled, *catalog.shadowed]
    return sorted(every, key=lambda skill: (skill.name, skill.location))


def _facts(
    visit: Visit, rows: list[SkillRow], words: str, total: int, start: int
) -> Mapping[str, object]:
    kind = visit.query.get("show", "")
    return {
        "rows": rows,
        "words": words,
        "total": total,
        "start": start,
        "kind": kind,
        "previous": visit.url("/skills", show=kind, **{"from": max(0, start - PAGE) or ""})
        if start
        else "",
        "next": visit.url("/skills", show=kind, **{"from": start + PAGE})
        if not words and start + PAGE < total
        else "",
    }


def _fits(visit: Visit, skill: Skill, kind: str, shadowed: set[str]) -> bool:
    if kind == "problems":
        return bool(skill.diagnostics)
    if kind == "shadowed":
        return skill.location in shadowed
    if kind == "untrusted":
        return not skill.trusted
    return kind != "disabled" or not visit.parts.belt.settings.for_skill(skill.name).enabled


def _row(visit: Visit, skill: Skill, client: str) -> SkillRow:
    use = visit.parts.usage.find(skill.name)
    try:
        size = os.stat(skill.location).st_size
    except OSError:
        size = len(skill.source)
    return SkillRow(
        skill=skill,
        client=client,
        marks=(),
        overview_tokens=tokens(f"- {skill.name}: {skill.description}\n"),
        body_tokens=tokens_of_bytes(max(size - skill.body_offset, 0)),
        problems=len(skill.diagnostics),
        last=use.last if use else 0.0,
    )


def list_marks(
    visit: Visit, skill: Skill, shadowed: set[str], *, denied: bool
) -> list[tuple[str, str]]:
    """Return labels for the state of a skill, each with a kind for its colour."""
    said = visit.parts.belt.settings.for_skill(skill.name)
    marks = [
        ("denied", "bad", denied),
        ("disabled", "bad", not said.enabled),
        ("shadowed", "warn", skill.location in shadowed),
        ("not trusted", "warn", not skill.trusted),
        ("hidden", "", skill.hidden),
        ("user only", "", not skill.model_visible and not skill.hidden),
        ("pinned", "good", said.pin),
        ("required", "good", said.required),
    ]
    return [(word, kind) for word, kind, holds in marks if holds]


def show_one(visit: Visit) -> ShownPage:
    """Show one skill with everything that is known about it."""
    belt, skill = visit.parts.belt, _find(visit)
    visit.parts.usage.start()
    ruled, denied = judge_by_rules(belt.settings, [skill])
    cases = read_cases(skill)
    results = last_results(belt.settings, skill, cases)
    document = show_document(belt.catalog, skill, ruled, results, denied=skill.name in denied)
    files = visit.url(f"/skills/{skill.name}/files")
    text = _read_text(skill, SKILL_FILE) if skill.origin.kind != "mcp" else skill.source
    body = text.encode("utf-8", "replace")[skill.body_offset :].decode("utf-8", "replace")
    use = visit.parts.usage.find(skill.name)
    shadowed = {one.location for one in belt.catalog.shadowed}
    scanned = scan_of(belt, skill)
    return ShownPage(
        "skill.html",
        {
            "skill": skill,
            "about": document,
            "marks": list_marks(visit, skill, shadowed, denied=skill.name in denied),
            "body": render_markdown(body, files),
            "files": files,
            "use": use.document() if use else None,
            "scanned": scanned,
            "abilities": describe_abilities(scanned),
            "notice": _NOTICES.get(visit.query.get("notice", ""), ""),
            **_describe_versions(visit, skill, str(document["hash"])),
            "cases": cases,
            "results": results,
            "routed": measure_route(belt, skill, cases) if "measure" in visit.query else None,
        },
    )


def _describe_versions(visit: Visit, skill: Skill, now: str) -> Mapping[str, object]:
    """Return the other versions, and how the selected one differs from the current one."""
    belt = visit.parts.belt
    project = belt.gate.project_key
    versions = list_approved(belt.store, project, skill.name)
    last = find_approved(belt.store, project, skill.name)
    wanted = visit.query.get("against", "")
    chosen = next((one for one in versions if one.hash == wanted), last)
    differs = chosen is not None and chosen.hash != now
    gained: tuple[GainedAbility, ...] = ()
    if differs and chosen is not None and chosen.abilities is not None:
        gained = find_gained(chosen.abilities, list_abilities(belt, skill))
    answers = RememberedAnswers(belt.store, project).all()
    return {
        "locked": find_locked(skill, belt.settings),
        "versions": versions,
        "now": now,
        "approved": chosen,
        "is_changed": differs,
        "gained": gained,
        "changes": compare_files(chosen.files, read_files(skill))
        if chosen is not None and differs
        else (),
        "remembered": [one for one in answers if one.skill == skill.name],
    }


def show_file(visit: Visit) -> ShownPage | Response:
    """Show or download a file of a skill."""
    skill, path = _find(visit), visit.path["path"]
    known = {entry.path: entry for entry in skill.files.manifest().files}
    if path not in known:
        raise HttpRefusal("not_found", "the skill has no such file")
    if "download" in visit.query:
        return attach(skill.files.open(path), path, known[path].size)
    with skill.files.open(path) as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    return ShownPage(
        "file.html",
        {
            "skill": skill,
            "path": path,
            "entry": known[path],
            "text": data[:MAX_TEXT_BYTES].decode("utf-8", "replace") if is_text(data) else None,
            "is_cut": len(data) > MAX_TEXT_BYTES,
            "download": visit.url(f"/skills/{skill.name}/files/{path}", download=1),
        },
    )


def change(visit: Visit) -> Response:
    """Enable or disable a skill, or forget what was approved for it."""
    skill, what = _find(visit), visit.form.get("change", "")
    if what in ("enable", "disable"):
        catalog = visit.parts.belt.catalog
        check_switch(switch(catalog, skill.name, what == "enable"), skill.name)
        return visit.go_to(f"/skills/{skill.name}", notice=f"{what}d")
    if what == "revoke":
        forget_answers(visit.parts.belt, skill, f"console {visit.person.name}")
        return visit.go_to(f"/skills/{skill.name}", notice="revoked")
    raise HttpRefusal("wrong_arguments", "the change is enable, disable or revoke")


def forget_answers(belt: Runtime, skill: Skill, by: str) -> None:
    """Revoke the approvals of a skill, and log each."""
    for one in belt.gate.ledger.revoke_skill(skill.name):
        request = belt.gate.load_request(skill, "user")._replace(type=one.type)
        belt.gate.record("revoked", request, {"id": one.id, "text": one.pattern, "by": by})


def _find(visit: Visit) -> Skill:
    visit.parts.belt.look()
    return find_any(visit.parts.belt.catalog, visit.path["name"])


def _read_text(skill: Skill, path: str) -> str:
    try:
        with skill.files.open(path) as file:
            return file.read(MAX_TEXT_BYTES).decode("utf-8", "replace")
    except (OSError, SkillbeltError) as error:
        return f"The file cannot be read: {error}"
