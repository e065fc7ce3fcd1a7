"""The pages that add and update skills: what was fetched, what it can do, and the button."""

from __future__ import annotations

from starlette.responses import Response

from skillbelt.console.install_jobs import InstallDesk, InstallJob
from skillbelt.console.parts import ConsoleParts
from skillbelt.console.skill_facts import find_locked
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.discovery.catalog import find_any
from skillbelt.install.values import InstallScope
from skillbelt.serving.answers import HttpRefusal

MAX_SOURCE_CHARS = 2_000
_NEWS = "installs"


def desk_of(parts: ConsoleParts) -> InstallDesk:
    """Return the installation jobs of this console."""
    with parts.lock:
        if parts.installs is None:
            parts.installs = InstallDesk(parts.belt, lambda: parts.live.tell(_NEWS, {}))
        return parts.installs


def begin_add(
    parts: ConsoleParts, source: str, *, scope: str, by: str, names: tuple[str, ...] = ()
) -> InstallJob:
    """Start fetching a source; HttpRefusal if the form names none."""
    source = source.strip()
    if not source or len(source) > MAX_SOURCE_CHARS:
        raise HttpRefusal("wrong_arguments", "name a source: a folder, owner/repo or an address")
    where: InstallScope = "user" if scope == "user" else "project"
    return desk_of(parts).add(source, by=by, scope=where, names=names)


def begin_update(parts: ConsoleParts, name: str, *, by: str) -> InstallJob:
    """Start looking for a new version; HttpRefusal if the skill is in no lock file."""
    parts.belt.look()
    skill = find_any(parts.belt.catalog, name)
    locked = find_locked(skill, parts.belt.settings)
    if locked is None:
        raise HttpRefusal("wrong_arguments", f"{name} is in no lock, so it has no source to ask")
    return desk_of(parts).update(locked, by=by)


def show_all(visit: Visit) -> ShownPage:
    """Show the form and the current jobs."""
    return ShownPage("installs.html", {"jobs": desk_of(visit.parts).jobs()})


def begin(visit: Visit) -> Response:
    """Start fetching a source, or looking for a new version."""
    by = _name_visitor(visit)
    if name := visit.form.get("update", ""):
        job = begin_update(visit.parts, name, by=by)
    else:
        source, scope = visit.form.get("source", ""), visit.form.get("scope", "")
        job = begin_add(visit.parts, source, scope=scope, by=by)
    return visit.go_to(f"/install/{job.id}")


def show_one(visit: Visit) -> ShownPage:
    """Show what was fetched, what it can do, and the button."""
    return ShownPage("install.html", {"job": desk_of(visit.parts).find(visit.path["id"])})


def answer(visit: Visit) -> Response:
    """Choose skills, install what is shown, or cancel."""
    job = desk_of(visit.parts).find(visit.path["id"])
    kind = visit.form.get("answer", "")
    if kind not in ("go", "stop"):
        raise HttpRefusal("wrong_arguments", "the answer is go or stop")
    chosen = [name for name, _ in job.choices if visit.form.get(f"skill {name}")]
    job.answer(agreed=kind == "go", chosen=chosen, by=_name_visitor(visit))
    return visit.go_to(f"/install/{job.id}")


def _name_visitor(visit: Visit) -> str:
    return f"console {visit.person.name}"
