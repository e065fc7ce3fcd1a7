"""The operations of the JSON API for everything that the pages show and do.

They cover the conversations of all users, so they need a token that is not bound to a user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

from skillbelt.console.abilities import scan_of
from skillbelt.console.catalogue import (
    check_switch,
    find_results,
    show_document,
    switch,
)
from skillbelt.console.conversations import list_talks, read_address, talk_document
from skillbelt.console.health import examiner_of, health_document
from skillbelt.console.inbox import card_document, describe_card, give_answer
from skillbelt.console.install_pages import begin_add, begin_update, desk_of
from skillbelt.console.parts import ConsoleParts, parts_of
from skillbelt.console.runs import find_run, open_file, start_again
from skillbelt.console.sent_requests import find_request
from skillbelt.console.skill_facts import evals_document, versions_document
from skillbelt.console.skills import forget_answers
from skillbelt.conversation.requests import RequestLog
from skillbelt.discovery.catalog import find_any
from skillbelt.discovery.describe import clients_of, skill_json
from skillbelt.format.skill import Skill
from skillbelt.permission.audit_events import TYPES
from skillbelt.permission.audit_words import event_json
from skillbelt.permission.judging import judge_by_rules
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Posted
from skillbelt.running.history import RunHistory
from skillbelt.running.question_facts import facts
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpRefusal
from skillbelt.serving.endpoints import (
    ENDPOINTS,
    ApiRequest,
    Download,
    Endpoint,
    Schema,
    closed,
    page_size,
)
from skillbelt.store import SessionKey

# How long a request for usage figures waits while a long log is read.
USAGE_SECONDS = 30.0
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}
_LIST: Schema = {"type": "array", "items": _OBJECT}
_ANSWERS = ("once", "conversation", "always", "reject")


def list_catalog(request: ApiRequest) -> object:
    """List every skill with its client and its state, as `list --json`."""
    belt = _require_operator(request)
    catalog, after = belt.catalog, request.query.get("after", "")
    clients = clients_of(catalog)
    every = sorted(
        (*belt.look().values(), *(one for one, _ in catalog.snapshot.disabled.values())),
        key=lambda skill: skill.name,
    )
    left, most = [one for one in every if one.name > after], page_size(request)
    _, denied = judge_by_rules(belt.settings, left[:most])
    found = [
        {
            **skill_json(one, belt.settings.for_skill(one.name)),
            "denied": one.name in denied,
            "client": clients.get(one.location, ""),
        }
        for one in left[:most]
    ]
    return {"skills": found, **({"next": left[most - 1].name} if len(left) > most else {})}


def show_skill(request: ApiRequest) -> object:
    """Show one skill with its files and findings, as `show --json`."""
    belt, skill = _find_skill(request)
    ruled, denied = judge_by_rules(belt.settings, [skill])
    results = find_results(skill, belt.settings)
    return show_document(belt.catalog, skill, ruled, results, denied=skill.name in denied)


def scan_one(request: ApiRequest) -> object:
    """Say what a skill can do and what a scan finds, as `show --capabilities --json`."""
    belt, skill = _find_skill(request)
    found = scan_of(belt, skill)
    if found is None:
        raise HttpRefusal("not_found", "the files of this skill are elsewhere")
    return found.to_json()


def list_versions(request: ApiRequest) -> object:
    """List the versions of a skill: now, in the lock, and those that were approved."""
    return versions_document(*_find_skill(request))


def show_evals(request: ApiRequest) -> object:
    """Count the evaluation cases of a skill, with its last results; `measure` searches for them."""
    belt, skill = _find_skill(request)
    return evals_document(belt, skill, measured=request.query.get("measure") == "true")


def read_skill_file(request: ApiRequest) -> object:
    """Give the bytes of a file of a skill."""
    _, skill = _find_skill(request)
    path = request.path["path"]
    known = {entry.path: entry for entry in skill.files.manifest().files}
    if path not in known:
        raise HttpRefusal("not_found", "the skill has no such file")
    return _download(skill.files.open(path), known[path].size)


def change_skill(request: ApiRequest) -> object:
    """Enable or disable a skill, or forget what was approved for it."""
    belt, body = _answering(request), request.body
    belt.look()
    skill = find_any(belt.catalog, request.path["name"])
    if "enabled" in body:
        check_switch(switch(belt.catalog, skill.name, body["enabled"]), skill.name)
    if body.get("forget"):
        forget_answers(belt, skill, _name_caller(request))
    return {"name": skill.name, "enabled": belt.settings.for_skill(skill.name).enabled}


def _find_skill(request: ApiRequest) -> tuple[Runtime, Skill]:
    belt = _require_operator(request)
    belt.look()
    return belt, find_any(belt.catalog, request.path["name"])


def _download(file: BinaryIO, size: int) -> Download:
    facts = {"content-disposition": "attachment"}
    return Download(file, size, "application/octet-stream", facts)


def add_skills(request: ApiRequest) -> object:
    """Begin to fetch a source, or a new version of a skill; nothing is installed yet."""
    belt, body = _answering(request), request.body
    if "update" in body:
        job = begin_update(parts_of(belt), body["update"], by=_name_caller(request))
    else:
        names = tuple(body.get("skills", ()))
        job = begin_add(
            parts_of(belt),
            body.get("source", ""),
            scope=body.get("scope", "project"),
            by=_name_caller(request),
            names=names,
        )
    return job.document()


def list_installs(request: ApiRequest) -> object:
    """List what is being added and updated."""
    return {"installs": [one.document() for one in desk_of(parts_of(_answering(request))).jobs()]}


def show_install(request: ApiRequest) -> object:
    """Show what was fetched, what it can do, and what changes."""
    return desk_of(parts_of(_answering(request))).find(request.path["id"]).document()


def answer_install(request: ApiRequest) -> object:
    """Choose skills of a source, install what was shown, or give up."""
    job = desk_of(parts_of(_answering(request))).find(request.path["id"])
    job.answer(
        agreed=request.body["answer"] == "go",
        chosen=request.body.get("skills", ()),
        by=_name_caller(request),
    )
    return {"answered": True}


def list_history(request: ApiRequest) -> object:
    """List the runs of every process that shares the store, the newest first."""
    belt = _require_operator(request)
    runs, after = RunHistory(belt.store).select(
        skill=request.query.get("skill", ""),
        state=request.query.get("state", ""),
        session=request.query.get("session", ""),
        after=request.query.get("after", ""),
        limit=min(page_size(request), 200),
    )
    return {"runs": [one.document() for one in runs], **({"next": after} if after else {})}


def show_history(request: ApiRequest) -> object:
    """Show one run with what it printed."""
    history = RunHistory(_require_operator(request).store)
    run = history.find(request.path["id"])
    if run is None:
        raise HttpRefusal("not_found", "there is no such run")
    return {**run.document(), "output": [one._asdict() for one in history.output(run.id)]}


def stop_history(request: ApiRequest) -> object:
    """Ask the process of a run to end it."""
    belt = _answering(request)
    return {"stopped": RunHistory(belt.store).stop(request.path["id"], _name_caller(request))}


def repeat_history(request: ApiRequest) -> object:
    """Run the command of a run again, with the same inputs and the permissions it needs now."""
    belt = _answering(request)
    start_again(belt, find_run(belt, request.path["id"]))
    return {"started": True}


def read_run_file(request: ApiRequest) -> object:
    """Give the bytes of a file that a run got, kept as an artifact or left in its workspace."""
    belt = _require_operator(request)
    found = open_file(belt, find_run(belt, request.path["id"]), request.path["name"])
    return _download(found.file, found.size)


def list_conversations(request: ApiRequest) -> object:
    """List the conversations of every user, the last used first."""
    talks, after = list_talks(
        _require_operator(request).store,
        request.query.get("after", ""),
        min(page_size(request), 200),
    )
    found = [
        {
            "app": one.info.key.app,
            "user": one.info.key.user,
            "session": one.info.key.session,
            "title": one.title,
            "path": one.address,
            "created": one.info.created,
            "updated": one.info.updated,
            "events": one.info.events,
        }
        for one in talks
    ]
    return {"conversations": found, **({"next": after} if after else {})}


def show_conversation(request: ApiRequest) -> object:
    """Show what was said and loaded in a conversation, and the tokens of it."""
    belt, key = _require_operator(request), _talk_key(request)
    return talk_document(belt, key)


def _talk_key(request: ApiRequest) -> SessionKey:
    # Any name that a store can hold, not only those that conversations over HTTP may have.
    return read_address({**request.path, "session": request.path["name"]})


def list_requests(request: ApiRequest) -> object:
    """List what was sent to the model in a conversation, as far as that is kept."""
    belt, key = _require_operator(request), _talk_key(request)
    after, most = request.query.get("after", "0"), min(page_size(request), 200)
    found = RequestLog(belt.store, key).summaries(
        after=int(after) if after.isdecimal() and len(after) < 10 else 0, limit=most
    )
    listed = [{**one._asdict(), "shared_percent": one.shared_percent} for one in found]
    more = {"next": str(found[-1].number)} if len(found) == most else {}
    return {"requests": listed, **more}


def show_request(request: ApiRequest) -> object:
    """Show one request to the model, and what it shares with the one before."""
    belt, key = _require_operator(request), _talk_key(request)
    return find_request(belt.store, key, request.path["number"]).document()


def examine(request: ApiRequest) -> object:
    """Say what `doctor --json` finds, with the results of the last attacks on the sandboxes."""
    return health_document(parts_of(_require_operator(request)))


def attack(request: ApiRequest) -> object:
    """Begin to attack every sandbox of this machine."""
    return {"started": examiner_of(parts_of(_answering(request))).attack()}


def list_log(request: ApiRequest) -> object:
    """List events of the audit log, the oldest first, as `log --json`; `until` goes back."""
    belt, query = _require_operator(request), request.query
    events = belt.gate.audit.read(
        type=query.get("type"),
        skill=query.get("skill"),
        session=query.get("session"),
        since=_number(query, "since"),
        until=_number(query, "until"),
        limit=page_size(request),
    )
    return {"events": [event_json(one) for one in events]}


def show_usage(request: ApiRequest) -> object:
    """Say which skills are used, how often, with what success and how long."""
    book = parts_of(_require_operator(request)).usage
    book.start()
    complete = book.wait(USAGE_SECONDS)
    return {"skills": [one.document() for one in book.skills()], "complete": complete}


def list_inbox(request: ApiRequest) -> object:
    """List the permission questions of every project that shares the store."""
    parts = parts_of(_answering(request))
    return {"pending": [_describe(parts, one) for one in parts.requests.waiting().values()]}


def answer_inbox(request: ApiRequest) -> object:
    """Answer a permission question of any project."""
    parts = parts_of(_answering(request))
    answer = Answer(request.body["answer"], request.body.get("message", ""), _name_caller(request))
    if not give_answer(parts, request.path["id"], answer):
        raise HttpRefusal("not_found", "no such question waits for an answer")
    return {"answered": True}


def _describe(parts: ConsoleParts, posted: Posted) -> dict[str, object]:
    pending = posted.pending
    carried = {**pending.request._asdict(), "metadata": dict(pending.request.metadata)}
    return {
        "id": pending.id,
        "time": pending.time,
        "project": pending.project,
        **carried,
        "facts": [one._asdict() for one in facts(pending.request)],
        **card_document(describe_card(parts, posted)),
    }


def _name_caller(request: ApiRequest) -> str:
    return f"http {request.holder.app}/{request.user}"


def _require_operator(request: ApiRequest) -> Runtime:
    if request.holder.is_bound:
        raise HttpRefusal("forbidden", "this token is bound to a user or an app")
    return request.belt


def _answering(request: ApiRequest) -> Runtime:
    if not request.holder.answers:
        raise HttpRefusal("forbidden", "this token answers no permission questions")
    return _require_operator(request)


def _number(query: Mapping[str, str], name: str) -> float | None:
    try:
        return float(query[name]) if name in query else None
    except ValueError as error:
        raise HttpRefusal("wrong_arguments", f"{name} takes Unix seconds") from error


def _object(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": [
        name for name in fields if name != "next"]}  # fmt: skip


def _at(
    address: str,
    handle: Callable[[ApiRequest], object],
    answer: Schema | None,
    query: Mapping[str, Schema] | None = None,
    body: Schema | None = None,
) -> Endpoint:
    method, _, path = address.partition(" ")
    return Endpoint(
        method=method, path=path, handle=handle, answer=answer, query=query or {}, body=body
    )


_PAGED = {"after": _TEXT, "limit": _NUMBER}
_TALK = "/v1/conversations/{app}/{user}/{name}"
_SKILL = "/v1/catalog/{name}"
_NAMES: Schema = {"type": "array", "items": _TEXT}
CONSOLE_ENDPOINTS: tuple[Endpoint, ...] = (
    _at("GET /v1/catalog", list_catalog, _object(skills=_LIST, next=_TEXT), _PAGED),
    _at(f"GET {_SKILL}", show_skill, _OBJECT),
    _at(f"POST {_SKILL}", change_skill, _object(name=_TEXT, enabled=_FLAG),
        body=closed({}, {"enabled": _FLAG, "forget": _FLAG})),
    _at(f"GET {_SKILL}/scan", scan_one, _OBJECT),
    _at(f"GET {_SKILL}/versions", list_versions, _OBJECT),
    _at(f"GET {_SKILL}/evals", show_evals, _OBJECT,
        {"measure": {"type": "string", "enum": ["true", "false"]}}),
    _at(f"GET {_SKILL}/files/{{path...}}", read_skill_file, None),
    _at("GET /v1/installs", list_installs, _object(installs=_LIST)),
    _at("POST /v1/installs", add_skills, _OBJECT,
        body=closed({}, {"source": _TEXT, "skills": _NAMES, "update": _TEXT,
                          "scope": {"type": "string", "enum": ["project", "user"]}})),
    _at("GET /v1/installs/{id}", show_install, _OBJECT),
    _at("POST /v1/installs/{id}", answer_install, _object(answered=_FLAG),
        body=closed({"answer": {"type": "string", "enum": ["go", "stop"]}}, {"skills": _NAMES})),
    _at("GET /v1/history", list_history, _object(runs=_LIST, next=_TEXT),
        {**_PAGED, "skill": _TEXT, "session": _TEXT,
         "state": {"type": "string", "enum": ["running", "ok", "failed"]}}),
    _at("GET /v1/history/{id}", show_history, _OBJECT),
    _at("DELETE /v1/history/{id}", stop_history, _object(stopped=_FLAG)),
    _at("POST /v1/history/{id}", repeat_history, _object(started=_FLAG), body=closed({}, {})),
    _at("GET /v1/history/{id}/files/{name...}", read_run_file, None),
    _at("GET /v1/conversations", list_conversations,
        _object(conversations=_LIST, next=_TEXT), _PAGED),
    _at(f"GET {_TALK}", show_conversation, _OBJECT),
    _at(f"GET {_TALK}/requests", list_requests, _object(requests=_LIST, next=_TEXT), _PAGED),
    _at(f"GET {_TALK}/requests/{{number}}", show_request, _OBJECT),
    _at("GET /v1/log", list_log, _object(events=_LIST),
        {"type": {"type": "string", "enum": list(TYPES)}, "skill": _TEXT, "session": _TEXT,
         "since": _TEXT, "until": _TEXT, "limit": _NUMBER}),
    _at("GET /v1/usage", show_usage, _object(skills=_LIST, complete=_FLAG)),
    _at("GET /v1/doctor", examine, _OBJECT),
    _at("POST /v1/doctor", attack, _object(started=_FLAG), body=closed({}, {})),
    _at("GET /v1/inbox", list_inbox, _object(pending=_LIST)),
    _at("POST /v1/inbox/{id}", answer_inbox, _object(answered=_FLAG),
        body=closed({"answer": {"type": "string", "enum": list(_ANSWERS)}}, {"message": _TEXT})),
)  # fmt: skip
ALL_ENDPOINTS: tuple[Endpoint, ...] = (*ENDPOINTS, *CONSOLE_ENDPOINTS)
