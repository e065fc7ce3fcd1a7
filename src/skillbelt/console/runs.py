"""The pages about runs: current and past runs, and one run with its output and files."""

from __future__ import annotations

import mimetypes
import os
import stat
import threading
from typing import BinaryIO, NamedTuple

from starlette.responses import Response

from skillbelt.console.downloads import attach, is_text
from skillbelt.console.plots import TimeSpan, draw_timeline
from skillbelt.console.render import show_duration
from skillbelt.console.terminal import render_output
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.errors import SkillbeltError, log_warning
from skillbelt.files.contain import READ_FILE, open_folder
from skillbelt.permission.audit_events import machine_name
from skillbelt.running.call import Asker, read_call
from skillbelt.running.history import PastRun, RunHistory
from skillbelt.running.workspace import open_inside
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpRefusal
from skillbelt.store import SessionKey

PAGE = 50
STATES = ("running", "ok", "failed")
MAX_TEXT_BYTES = 512 * 2**10
# The steps that matter most: waiting for a person, and the command itself.
_KINDS = {"ask": "asks", "run": "runs"}
_NOTICES = {
    "stopped": "The process was asked to end the run.",
    "ended": "That run has ended already.",
    "again": "Started again. If it needs a permission, the question is in the inbox.",
}


def show_all(visit: Visit) -> ShownPage:
    """List the runs of all processes that share the store, newest first."""
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
            "notice": _NOTICES.get(visit.query.get("notice", ""), ""),
        },
    )


def show_one(visit: Visit) -> ShownPage:
    """Show one run: its result, its output, its steps and its files."""
    run = _find(visit)
    parts = RunHistory(visit.parts.belt.store).output(run.id)
    spans = [
        TimeSpan(
            name=one.name,
            start=one.start_ms,
            length=one.duration_ms,
            title=f"{one.name}: {one.duration_ms} ms",
            kind=_KINDS.get(one.name, ""),
        )
        for one in run.steps
    ]
    return ShownPage(
        "run.html",
        {
            "run": run,
            "output": render_output(parts),
            "has_output": any(part.text for part in parts),
            "timeline": draw_timeline(spans, "How long each step took", show_duration)
            if spans
            else "",
            "notice": _NOTICES.get(visit.query.get("notice", ""), ""),
            "why_not_again": why_not_again(visit.parts.belt, run),
        },
    )


def stop(visit: Visit) -> Response:
    """Ask the process of a run to end it."""
    run = _find(visit)
    done = RunHistory(visit.parts.belt.store).stop(run.id, f"console {visit.person.name}")
    return visit.go_to(f"/runs/{run.id}", notice="stopped" if done else "ended")


def repeat(visit: Visit) -> Response:
    """Run the command again, as the user, with the permissions that it needs now."""
    start_again(visit.parts.belt, _find(visit))
    return visit.go_to("/runs", notice="again")


def start_again(belt: Runtime, run: PastRun) -> None:
    """Start the command of a run again, with its current inputs; HttpRefusal if that is impossible.

    It may need a permission, which a person gives in a console.
    """
    if why := why_not_again(belt, run):
        raise HttpRefusal("run_refused", f"this run cannot be repeated here: {why}")
    skill, call = belt.get_skill(run.skill), read_call(run.facts["call"])
    who = Asker(key=_key_of(run), initiator="user", agent=run.agent)

    def start() -> None:
        try:
            belt.background.start(skill, call, who)
        except SkillbeltError as error:
            log_warning(f"a run that was started again did not begin: {error}")

    threading.Thread(target=start, name="skillbelt-again", daemon=True).start()


def why_not_again(belt: Runtime, run: PastRun) -> str:
    """Return the reason why a run cannot be repeated here; "" if it can."""
    if run.state == "running":
        return "it is still running"
    if run.project != belt.settings.project:
        return "it belongs to another project"
    if run.skill not in belt.catalog.snapshot:
        return "its skill is not available here"
    if len(run.session.split("/")) != 3:
        return "it belongs to no conversation"
    try:
        read_call(run.facts.get("call") or {})
    except ValueError:
        return "its call had a secret value, a terminal or a long input, and was not kept"
    return ""


class RunFile(NamedTuple):
    """A file of a run that can be read. `state` is `kept` for an artifact, else `workspace`."""

    file: BinaryIO
    size: int
    mime: str
    state: str


def open_file(belt: Runtime, run: PastRun, name: str) -> RunFile:
    """Open a file of a run: an artifact, or an input or output while its workspace exists."""
    kept = [one for one in run.facts.get("artifacts") or () if one.get("name") == name]
    if kept:
        found = belt.workbench.artifacts(_key_of(run))
        version = int(kept[-1]["version"])
        entry = found.store.find(found.key, name, version)
        return RunFile(found.open(name, version), entry.size, entry.mime, "kept")
    listed = [str(one.get("name")) for one in run.facts.get("outputs") or ()]
    if name not in (*listed, *map(str, run.facts.get("inputs") or ())):
        raise HttpRefusal("not_found", "the run has no such file")
    return _open_in_workspace(belt, run, name)


def _open_in_workspace(belt: Runtime, run: PastRun, name: str) -> RunFile:
    gone = HttpRefusal("gone", "the file is gone with the workspace of its conversation")
    if run.project != belt.settings.project or run.machine != machine_name():
        raise HttpRefusal("gone", "the workspace of this run is elsewhere")
    for path in belt.workbench.workspaces(_key_of(run)):
        try:
            folder = open_folder(path)
        except OSError:
            continue
        try:
            handle = open_inside(folder, name, READ_FILE)
        except (OSError, SkillbeltError):
            continue
        finally:
            os.close(folder)
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            continue
        mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return RunFile(os.fdopen(handle, "rb"), found.st_size, mime, "workspace")
    raise gone


def show_file(visit: Visit) -> ShownPage | Response:
    """Show or send a file of a run."""
    run, name = _find(visit), visit.path["name"]
    found = open_file(visit.parts.belt, run, name)
    if "download" in visit.query:
        return attach(found.file, name, found.size)
    with found.file as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    return ShownPage(
        "run_file.html",
        {
            "run": run,
            "path": name,
            "entry": found,
            "text": data[:MAX_TEXT_BYTES].decode("utf-8", "replace") if is_text(data) else None,
            "is_cut": len(data) > MAX_TEXT_BYTES,
            "download": visit.url(f"/runs/{run.id}/files/{name}", download=1),
        },
    )


def _key_of(run: PastRun) -> SessionKey:
    parts = run.session.split("/")
    if len(parts) != 3:
        raise HttpRefusal("not_found", "the conversation of this run has no certain name")
    return SessionKey(*parts)


def _find(visit: Visit) -> PastRun:
    return find_run(visit.parts.belt, visit.path["id"])


def find_run(belt: Runtime, id: str) -> PastRun:
    """Return a run of the history; HttpRefusal if there is none."""
    run = RunHistory(belt.store).find(id)
    if run is None:
        raise HttpRefusal("not_found", "there is no such run; the oldest ones are forgotten")
    return run
