"""The pages about runs: what runs now and what ran, one run with its output and its files."""

from __future__ import annotations

import shlex
import threading

from starlette.responses import Response

from skillbelt.artifacts import SessionArtifacts
from skillbelt.console.downloads import attach, is_text
from skillbelt.console.plots import TimeSpan, draw_timeline
from skillbelt.console.terminal import render_output
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.errors import SkillbeltError, log_warning
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.history import PastRun, RunHistory
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpRefusal
from skillbelt.store import SessionKey

PAGE = 50
STATES = ("running", "ok", "failed")
MAX_TEXT_BYTES = 512 * 2**10
_TOLD = {
    "stopped": "The process was asked to end the run.",
    "ended": "That run has ended already.",
    "again": "Started again. If it needs a permission, the question is in the inbox.",
}


def show_all(visit: Visit) -> ShownPage:
    """Show the runs of every process that shares the store, the newest first."""
    history = RunHistory(visit.parts.belt.store)
    skill, state = visit.query.get("skill", "").strip(), visit.query.get("state", "")
    state = state if state in STATES else ""
    session = visit.query.get("session", "")
    runs, after = history.select(
        skill=skill, state=state, session=session, after=visit.query.get("after", ""), limit=PAGE
    )
    older = visit.url("/runs", skill=skill, state=state, session=session, after=after)
    return ShownPage(
        "runs.html",
        {
            "runs": runs,
            "skill": skill,
            "state": state,
            "session": session,
            "states": STATES,
            "older": older if after else "",
            "told": _TOLD.get(visit.query.get("told", ""), ""),
        },
    )


def show_one(visit: Visit) -> ShownPage:
    """Show one run: how it went, what it printed, its steps and its files."""
    run = _find(visit)
    parts = RunHistory(visit.parts.belt.store).output(run.id)
    spans = [
        TimeSpan(one.name, one.start_ms, one.duration_ms, f"{one.name}: {one.duration_ms} ms")
        for one in run.steps
    ]
    return ShownPage(
        "run.html",
        {
            "run": run,
            "output": render_output(parts),
            "has_output": any(part.text for part in parts),
            "timeline": draw_timeline(spans, "How long each step took") if spans else "",
            "told": _TOLD.get(visit.query.get("told", ""), ""),
            "can_repeat": _can_repeat(visit.parts.belt, run),
        },
    )


def stop(visit: Visit) -> Response:
    """Ask the process of a run to end it."""
    run = _find(visit)
    done = RunHistory(visit.parts.belt.store).stop(run.id, f"console {visit.person.name}")
    return visit.go_to(f"/runs/{run.id}", told="stopped" if done else "ended")


def repeat(visit: Visit) -> Response:
    """Run the command again, as the user, with the permissions that it needs now."""
    run, belt = _find(visit), visit.parts.belt
    if not _can_repeat(belt, run):
        raise HttpRefusal(
            "run_refused",
            "this run cannot be repeated here: it is of another project, had inputs, or its "
            "command has a secret",
        )
    skill = belt.get_skill(run.skill)
    shell = bool(run.facts.get("shell"))
    command: str | tuple[str, ...] = run.command if shell else tuple(shlex.split(run.command))
    who = Asker(key=_key_of(run), initiator="user", agent=run.agent)

    def start() -> None:
        try:
            belt.background.start(skill, RunCall(command), who)
        except SkillbeltError as error:
            log_warning(f"a run that was started again did not begin: {error}")

    # It may wait for an answer, which comes from this console.
    threading.Thread(target=start, name="skillbelt-again", daemon=True).start()
    return visit.go_to("/runs", told="again")


def show_file(visit: Visit) -> ShownPage | Response:
    """Show or send a file that a run kept as an artifact."""
    run, name = _find(visit), visit.path["name"]
    kept = [one for one in run.facts.get("artifacts", ()) if one.get("name") == name]
    if not kept:
        raise HttpRefusal("not_found", "the run kept no such file")
    found = _artifacts(visit.parts.belt, run)
    version = int(kept[-1]["version"])
    entry = found.store.find(found.key, name, version)
    if "download" in visit.query:
        return attach(found.open(name, version), name, entry.size)
    with found.open(name, version) as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    return ShownPage(
        "run_file.html",
        {
            "run": run,
            "path": name,
            "entry": entry,
            "text": data[:MAX_TEXT_BYTES].decode("utf-8", "replace") if is_text(data) else None,
            "is_cut": len(data) > MAX_TEXT_BYTES,
            "download": visit.url(f"/runs/{run.id}/files/{name}", download=1),
        },
    )


def _artifacts(belt: Runtime, run: PastRun) -> SessionArtifacts:
    return belt.workbench.artifacts(_key_of(run))


def _key_of(run: PastRun) -> SessionKey:
    parts = run.session.split("/")
    if len(parts) != 3:
        raise HttpRefusal("not_found", "the conversation of this run has no certain name")
    return SessionKey(*parts)


def _can_repeat(belt: Runtime, run: PastRun) -> bool:
    here = run.project == belt.settings.project and run.skill in belt.catalog.snapshot
    plain = not run.facts.get("secrets") and not run.facts.get("inputs")
    return here and plain and run.state != "running" and len(run.session.split("/")) == 3


def _find(visit: Visit) -> PastRun:
    run = RunHistory(visit.parts.belt.store).find(visit.path["id"])
    if run is None:
        raise HttpRefusal("not_found", "there is no such run; the oldest ones are forgotten")
    return run
