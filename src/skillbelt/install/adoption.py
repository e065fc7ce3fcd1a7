"""Find skills that other tools installed, and record them in the lock with their sources.

`openskills` leaves `.openskills.json` in a skill, `clawhub` `.clawhub/origin.json`, `gh skill` keys
in the frontmatter, and `apm` lists the files that it wrote in `apm.lock.yaml`. All of it is
untrusted: a source in it is read as if it were typed. `skills` has the lock that is used here.

What is installed stays as it is. A skill in the folder of a client moves to where skills are
installed, and the client gets a link in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from skillbelt.discovery.clients import CLIENTS
from skillbelt.errors import ConfigError, PathEscape, SkillbeltError
from skillbelt.files.contain import Fence, check_relative, open_file, read_handle
from skillbelt.format import yaml
from skillbelt.format.frontmatter import parse, read_head
from skillbelt.install.content_store import keep_skill
from skillbelt.install.entries import entry_for
from skillbelt.install.hashes import hash_folder
from skillbelt.install.lock_file import SkillLock
from skillbelt.install.names import folder_name, lock_name, name_fault
from skillbelt.install.placing import client_folder, put_skill, skill_folder
from skillbelt.install.source_syntax import check_ref, parse_source
from skillbelt.install.sync import SyncRefusal, refusal_of
from skillbelt.install.values import FetchedSkill, InstallPlace, PlannedChange, SourceReference
from skillbelt.settings import Settings
from skillbelt.text import one_line
from skillbelt.untrusted_json import read_json
from skillbelt.values import SKILL_FILE

ToolName = Literal["openskills", "clawhub", "gh", "apm"]
TOOLS: tuple[ToolName, ...] = ("openskills", "clawhub", "gh", "apm")
CLAWHUB = "https://clawhub.ai"
_MAX_BYTES = 4 * 2**20
_MOST_SKILLS = 5_000
_APM_LOCK = "apm.lock.yaml"
_HASH_DIGITS = frozenset("0123456789abcdef")


class SkillRecord(NamedTuple):
    """A tool's record of a skill: where it came from."""

    tool: ToolName
    reference: SourceReference
    skill_path: str = ""
    commit: str = ""


class AdoptedSkill(NamedTuple):
    """A skill that another tool installed. `client` is the one whose folder it is in, or ""."""

    name: str
    folder: str
    record: SkillRecord
    client: str = ""


def find_adoptable(
    lock: SkillLock, settings: Settings, tools: Iterable[ToolName] = TOOLS
) -> Iterator[AdoptedSkill | SyncRefusal]:
    """Yield the skills of other tools that the lock does not have, and those that cannot be taken.

    Nothing is changed and nothing is fetched.
    """
    wanted, place = set(tools), lock.place
    apm = _read_apm(place) if "apm" in wanted else []
    seen: dict[str, str] = {}
    for client, folder in _list_folders(place, settings):
        name = os.path.basename(folder)
        try:
            record = _read_record(folder, place, apm, wanted)
            if record is None:
                continue
            skill = AdoptedSkill(_skill_name(folder), folder, record, client)
            if skill.name in lock.entries:
                continue
            _check_place(skill, place, seen)
        except (SkillbeltError, ValueError, OSError) as error:
            yield refusal_of(name, error)._replace(code="not-adopted")
        else:
            seen[skill.name] = folder
            yield skill


def adopt_skill(skill: AdoptedSkill, lock: SkillLock, settings: Settings) -> PlannedChange:
    """Record a skill in the lock; the caller holds the place. Raises SkillbeltError."""
    place = lock.place
    stored = keep_skill(skill.folder, settings)
    fetched = FetchedSkill(
        name=skill.name,
        folder=skill.folder,
        reference=skill.record.reference,
        skill_path=skill.record.skill_path,
        commit=skill.record.commit,
        provenance={"adoptedFrom": skill.record.tool},
    )
    clients = (skill.client,) if skill.client else ()
    entry = entry_for(fetched, stored, place, clients=clients)
    put_skill(place, entry, skill.folder, settings)
    return plan_adoption(skill, place)._replace(after=stored.content_digest)


def plan_adoption(skill: AdoptedSkill, place: InstallPlace) -> PlannedChange:
    """Return what adopting a skill does."""
    digest = hash_folder(skill.folder).content_digest
    return PlannedChange(
        action="link" if skill.client else "keep",
        name=skill.name,
        path=skill_folder(place, skill.name),
        before=digest,
        after=digest,
        reason="adopt",
    )


def _list_folders(place: InstallPlace, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the folders of skills where they are installed, then those of other clients."""
    places = {os.path.realpath(place.skills): ""}
    for client in CLIENTS:
        with suppress(ConfigError):
            places.setdefault(
                os.path.realpath(client_folder(place, client.name, settings)), client.name
            )
    count = 0
    for above, client_name in places.items():
        try:
            names = sorted(os.listdir(above))
        except OSError:
            continue
        for name in names:
            folder = os.path.join(above, name)
            if os.path.islink(folder) or not os.path.isfile(os.path.join(folder, SKILL_FILE)):
                continue
            count += 1
            if count > _MOST_SKILLS:
                raise ConfigError(f"there are more than {_MOST_SKILLS:,} skills; give their names")
            yield client_name, folder


def _skill_name(folder: str) -> str:
    """Return the name of the skill in a folder, which must be the one that it is installed in."""
    name = _read_fields(folder).get("name")
    name = lock_name(name) if isinstance(name, str) else ""
    if name_fault(name) or folder_name(name) != os.path.basename(folder):
        raise ConfigError(
            f"{folder}/{SKILL_FILE}: the name {one_line(str(name))!r} is not that of the folder; "
            "give both the same name"
        )
    return name


def _read_fields(folder: str) -> Mapping[str, object]:
    with Fence(folder) as fence:
        head = read_head(os.path.join(folder, SKILL_FILE), fence)
    return parse(head, path=folder, folder=os.path.basename(folder), derive=False).fields


def _check_place(skill: AdoptedSkill, place: InstallPlace, seen: Mapping[str, str]) -> None:
    other = seen.get(skill.name)
    target = skill_folder(place, skill.name)
    if other is None and skill.client and os.path.lexists(target):
        other = target
    if other is not None and hash_folder(other)[:2] != hash_folder(skill.folder)[:2]:
        raise ConfigError(f"{skill.folder} and {other} differ; remove one of them")
    if other is not None:
        raise ConfigError(
            f"{skill.folder} is a copy of {other}; remove it, then `skillbelt add --to` links it"
        )


# --- what each tool wrote ------------------------------------------------------------------------


def _read_record(
    folder: str, place: InstallPlace, apm: list[Mapping[str, Any]], wanted: set[ToolName]
) -> SkillRecord | None:
    readers: tuple[tuple[ToolName, Callable[[], SkillRecord | None]], ...] = (
        ("openskills", lambda: _read_openskills(folder, place)),
        ("clawhub", lambda: _read_clawhub(folder)),
        ("gh", lambda: _read_gh(folder)),
        ("apm", lambda: _read_apm_record(folder, place, apm)),
    )
    for tool, read in readers:
        if tool in wanted and (found := read()) is not None:
            return found
    return None


def _read_document(folder: str, name: str) -> Mapping[str, Any] | None:
    """Return a JSON file of a skill; ConfigError if it is not valid."""
    path = os.path.join(folder, name)
    if not os.path.lexists(path):
        return None
    try:
        document = read_json(read_handle(open_file(path, folder), _MAX_BYTES))
    except (ValueError, PathEscape) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is not a JSON object")
    return document


def _read_openskills(folder: str, place: InstallPlace) -> SkillRecord | None:
    document = _read_document(folder, ".openskills.json")
    if document is None:
        return None
    if document.get("sourceType") == "local":
        path = _read_text(document, "localPath")
        reference = parse_source(path if os.path.isabs(path) else f"./{path}", folder=place.base)
        return SkillRecord("openskills", reference, SKILL_FILE)
    reference = parse_source(_read_text(document, "repoUrl"))
    return SkillRecord("openskills", reference, _skill_path(document.get("subpath") or ""))


def _read_clawhub(folder: str) -> SkillRecord | None:
    document = _read_document(folder, ".clawhub/origin.json")
    if document is None:
        return None
    registry = document.get("registry", CLAWHUB)
    if not isinstance(registry, str) or registry.rstrip("/") != CLAWHUB:
        raise ConfigError(
            f"{folder} comes from the registry {one_line(str(registry))!r}, which is not known"
        )
    return SkillRecord(
        "clawhub", parse_source(f"clawhub:{_read_text(document, 'slug')}"), SKILL_FILE
    )


def _read_gh(folder: str) -> SkillRecord | None:
    metadata = _read_fields(folder).get("metadata")
    if not isinstance(metadata, dict) or "github-repo" not in metadata:
        return None
    reference = parse_source(_read_text(metadata, "github-repo"))
    ref = metadata.get("github-pinned") or metadata.get("github-ref") or ""
    if not isinstance(ref, str):
        raise ConfigError(f"{folder}/{SKILL_FILE}: `metadata.github-ref` is not a text")
    ref = ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
    if ref:
        reference = reference._replace(ref=check_ref(ref, reference.source))
    return SkillRecord("gh", reference, _skill_path(metadata.get("github-path") or ""))


def _read_apm(place: InstallPlace) -> list[Mapping[str, Any]]:
    path = os.path.join(place.base, _APM_LOCK)
    if not os.path.lexists(path):
        return []
    text = read_handle(open_file(path, place.base), _MAX_BYTES).decode("utf-8", "replace")
    loaded = yaml.load(text)
    fields = loaded.fields if isinstance(loaded, yaml.LoadedYaml) else {}
    listed = fields.get("dependencies")
    if not isinstance(listed, list):
        raise ConfigError(f"{path}: has no list `dependencies`; `apm install` writes it")
    return [one for one in listed if isinstance(one, dict)]


def _read_apm_record(
    folder: str, place: InstallPlace, dependencies: Iterable[Mapping[str, Any]]
) -> SkillRecord | None:
    relative = os.path.relpath(folder, os.path.realpath(place.base))
    for one in dependencies:
        files = one.get("deployed_files")
        written = files if isinstance(files, list) else []
        if not any(
            isinstance(file, str)
            and (file.rstrip("/") == relative or file.startswith(relative + "/"))
            for file in written
        ):
            continue
        reference = parse_source(_read_text(one, "repo_url"))
        ref, commit = one.get("resolved_ref"), one.get("resolved_commit")
        if isinstance(ref, str) and ref and ref != commit:
            reference = reference._replace(ref=check_ref(ref, reference.source))
        known = isinstance(commit, str) and len(commit) == 40 and _HASH_DIGITS.issuperset(commit)
        virtual = one.get("virtual_path")
        return SkillRecord(
            tool="apm",
            reference=reference,
            skill_path=_skill_path(virtual) if virtual else "",
            commit=str(commit) if known else "",
        )
    return None


def _read_text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"the tool's record has no text `{key}`")
    return value


def _skill_path(folder: object) -> str:
    """Return the path of the SKILL.md in a folder of the source."""
    if not isinstance(folder, str):
        raise ConfigError("the tool's record names no folder of the source")
    path = folder.strip("/").removesuffix(SKILL_FILE).rstrip("/")
    return check_relative(f"{path}/{SKILL_FILE}" if path else SKILL_FILE)
