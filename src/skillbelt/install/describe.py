"""Describe what a skill can do, for the person who decides about installing it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from skillbelt.check.check import check_file
from skillbelt.errors import PathEscape, RunRefused, SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.install.add import SkillOffer, compare_files
from skillbelt.install.hashes import hash_folder
from skillbelt.install.policy import JudgedSkill
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.running.packages.declared import needs_of
from skillbelt.scan.declared import declared_hosts
from skillbelt.scan.report import summarize
from skillbelt.scan.scanner import scan_skill
from skillbelt.settings import Settings
from skillbelt.text import one_line
from skillbelt.values import SKILL_FILE, Diagnostic

if TYPE_CHECKING:
    from skillbelt.install import update
else:
    update = Late("skillbelt.install.update")  # cost: 1 ms, only for a new version of a skill

_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".ps1", ".lua")
_MOST_LISTED = 20


class SkillAbilities(NamedTuple):
    """The capabilities of a skill, from its files and its declarations."""

    files: int = 0
    bytes: int = 0
    scripts: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


def check_offer(offer: SkillOffer) -> tuple[Diagnostic, ...]:
    """Return what the rules of the format say about a skill that can be installed."""
    return check_file(os.path.join(offer.fetched.folder, SKILL_FILE)).diagnostics


def describe_abilities(folder: str) -> SkillAbilities:
    """Return what a skill can do, by its files and its declarations. Never raises."""
    try:
        skill = Skill.from_folder(folder)
        needs, front = skill.requirements, skill.frontmatter
        files = hash_folder(folder).files
    except SkillbeltError:
        return SkillAbilities()
    plain = [file for file in files if file.kind == "file"]
    return SkillAbilities(
        files=len(files),
        bytes=sum(file.size for file in plain),
        scripts=tuple(one.path for one in plain if _is_script(one.path, one.executable)),
        programs=_unique_lines((*needs.bins, *needs.any_bins)),
        packages=_unique_lines(_read_packages(folder)),
        secrets=_unique_lines((*needs.env, *needs.optional_env)),
        hosts=_unique_lines(declared_hosts(skill)),
        tools=_unique_lines(front.allowed_tools),
        links=tuple(file.path for file in files if file.kind == "link"),
    )


def _is_script(path: str, executable: bool) -> bool:
    return executable or path.lower().endswith(_SCRIPTS)


def _unique_lines(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one_line(text) for text in texts))


def _read_packages(folder: str) -> Sequence[str]:
    try:
        needs = needs_of(folder)
    except (RunRefused, PathEscape, OSError) as error:
        return (f"unreadable: {error}",)
    return needs.requirements if needs is not None else ()


def describe_offer(offer: SkillOffer) -> Iterator[tuple[str, str]]:
    """Yield what a person reads before the question: a label and a text for each line."""
    folder = offer.fetched.folder
    can, files = describe_abilities(folder), offer.difference
    findings = check_offer(offer)
    commit = f" at {offer.fetched.commit[:12]}" if offer.fetched.commit else ""
    yield "from", f"{offer.fetched.reference.source}{commit} ({offer.fetched.skill_path})"
    yield from _describe_judged(offer.judged)
    yield "files", f"{_count_noun(can.files, 'file')}, {_count_noun(can.bytes, 'byte')}"
    for label, values in (
        ("scripts", can.scripts),
        ("programs", can.programs),
        ("packages", can.packages),
        ("secrets", can.secrets),
        ("hosts", can.hosts),
        ("tools", can.tools),
        ("links", can.links),
    ):
        if values:
            yield label, _join_names(values)
    if not any((can.scripts, can.programs, can.packages, can.secrets, can.hosts, can.tools)):
        yield "can", "only give instructions: it has no scripts and declares no needs"
    errors = sum(one.severity == "error" for one in findings)
    warnings = sum(one.severity == "warning" for one in findings)
    can_do = summarize(offer.judged.scanned.statement)
    if can_do:
        yield "undeclared", can_do
    said = f"{_count_noun(errors, 'error')}, {_count_noun(warnings, 'warning')}"
    yield "check", said if errors or warnings else "passed"
    if offer.current and not offer.is_installed:
        for label, values in (
            ("changed", files.changed),
            ("added", files.added),
            ("removed", files.removed),
        ):
            if values:
                yield label, _join_names(values)


def _describe_judged(judged: JudgedSkill) -> Iterator[tuple[str, str]]:
    if judged.signer is not None:
        yield "signed", f"by {judged.signer.text}"
    for warning in judged.warnings:
        yield "WARNING", warning


def describe_news(
    version: update.NewVersion, place_folder: str, settings: Settings
) -> Iterator[tuple[str, str]]:
    """Yield what is new in a version before the question: a label and a text for each line."""
    commit = f" at {version.after.commit[:12]}" if version.after.commit else ""
    yield "from", f"{one_line(version.after.source)}{commit}"
    yield from _describe_judged(version.judged)
    is_there = os.path.isdir(place_folder)
    with update.stored_version(version, settings) as folder:
        old = hash_folder(place_folder, partial=True) if is_there else None
        files = compare_files(old, hash_folder(folder))
        now = describe_abilities(folder)
    before = describe_abilities(place_folder) if is_there else SkillAbilities()
    for label, names in zip(files._fields, files, strict=True):
        if names:
            yield label, _join_names(names)
    for label in ("scripts", "programs", "packages", "secrets", "hosts", "tools", "links"):
        known = set(getattr(before, label))
        new = [one for one in getattr(now, label) if one not in known]
        if new:
            yield f"new {label}", _join_names(new)
    if can_do := _summarize_new(version, place_folder if is_there else "", settings):
        yield "new" if is_there else "undeclared", can_do


def _summarize_new(version: update.NewVersion, place_folder: str, settings: Settings) -> str:
    """Return what the new version can do by its scan and the one in this place could not."""
    statement = version.judged.scanned.statement
    try:
        old = Skill.from_folder(place_folder) if place_folder else None
    except SkillbeltError:
        old = None
    if old is None:
        return summarize(statement)
    known = scan_skill(old, cache_dir=settings.cache_dir).statement
    return summarize(statement, known).removeprefix("New: ")  # the label says it


def _count_noun(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _join_names(values: Sequence[str]) -> str:
    more = f" and {len(values) - _MOST_LISTED} more" if len(values) > _MOST_LISTED else ""
    return ", ".join(map(one_line, values[:_MOST_LISTED])) + more
