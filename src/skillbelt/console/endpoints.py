"""What the pages show and do, as operations of the JSON API.

They are about everyone's conversations, so only a token that is bound to no user has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skillbelt.console.catalogue import check_switch, find_any, show_document, switch
from skillbelt.console.usage_book import UsageBook
from skillbelt.discovery.describe import clients_of, skill_json
from skillbelt.permission.audit_events import TYPES
from skillbelt.permission.audit_words import event_json
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import EveryRequest, Posted
from skillbelt.running.facts import facts
from skillbelt.running.history import RunHistory
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpRefusal
from skillbelt.serving.endpoints import ENDPOINTS, MAX_PAGE, ApiRequest, Endpoint, Schema

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}
_LIST: Schema = {"type": "array", "items": _OBJECT}
_ANSWERS = ("once", "conversation", "always", "reject")


def list_catalog(request: ApiRequest) -> object:
    """List every skill with its client and its state, as `list --json`."""
    belt = _unbound(request)
    catalog, after = belt.catalog, request.query.get("after", "")
    clients = clients_of(catalog)
    every = sorted(
        (*belt.look().values(), *(one for one, _ in catalog.snapshot.disabled.values())),
        key=lambda skill: skill.name,
    )
    left, most = [one for one in every if one.name > after], _most(request)
    found = [
        {
            **skill_json(one, belt.settings.for_skill(one.name)),
            "client": clients.get(one.location, ""),
        }
        for one in left[:most]
    ]
    return {"skills": found, **({"next": left[most - 1].name} if len(left) > most else {})}


def show_skill(request: ApiRequest) -> object:
    """Show one skill with its files and findings, as `show --json`."""
    belt = _unbound(request)
    belt.look()
    return show_document(
        belt.catalog, find_any(belt.catalog, request.path["name"]), [], denied=False
    )


def switch_skill(request: ApiRequest) -> object:
    """Enable or disable a skill."""
    belt, on = _answering(request), request.body["enabled"]
    belt.look()
    skill = find_any(belt.catalog, request.path["name"])
    check_switch(switch(belt.settings, skill.name, on), skill.name)
    belt.catalog.take_over_settings()
    belt.catalog.refresh()
    return {"name": skill.name, "enabled": on}


def list_history(request: ApiRequest) -> object:
    """List the runs of every process that shares the store, the newest first."""
    belt = _unbound(request)
    runs, after = RunHistory(belt.store).select(
        skill=request.query.get("skill", ""),
        state=request.query.get("state", ""),
        session=request.query.get("session", ""),
        after=request.query.get("after", ""),
        limit=min(_most(request), 200),
    )
    return {"runs": [one.document() for one in runs], **({"next": after} if after else {})}


def show_history(request: ApiRequest) -> object:
    """Show one run with what it printed."""
    history = RunHistory(_unbound(request).store)
    run = history.find(request.path["id"])
    if run is None:
        raise HttpRefusal("not_found", "there is no such run")
    return {**run.document(), "output": [one._asdict() for one in history.output(run.id)]}


def stop_history(request: ApiRequest) -> object:
    """Ask the process of a run to end it."""
    belt = _answering(request)
    done = RunHistory(belt.store).stop(request.path["id"], f"http {request.holder.app}")
    return {"stopped": done}


def list_log(request: ApiRequest) -> object:
    """List events of the audit log, the oldest first, as `log --json`; `until` goes back."""
    belt, query = _unbound(request), request.query
    events = belt.gate.audit.read(
        type=query.get("type"),
        skill=query.get("skill"),
        session=query.get("session"),
        since=_number(query, "since"),
        until=_number(query, "until"),
        limit=_most(request),
    )
    return {"events": [event_json(one) for one in events]}


def show_usage(request: ApiRequest) -> object:
    """Say which skills are used, how often, with what success and how long."""
    book = UsageBook(_unbound(request).gate.audit)
    book.read_once()
    return {"skills": [one.document() for one in book.skills()]}


def list_inbox(request: ApiRequest) -> object:
    """List the permission questions of every project that shares the store."""
    waiting = EveryRequest(_answering(request).store).waiting()
    return {"pending": [_describe(one) for one in waiting.values()]}


def answer_inbox(request: ApiRequest) -> object:
    """Answer a permission question of any project."""
    everyone = EveryRequest(_answering(request).store)
    posted = everyone.waiting().get(request.path["id"])
    kind, by = request.body["answer"], f"http {request.holder.app}/{request.user}"
    answer = Answer(kind, request.body.get("message", ""), by)
    if posted is None or not everyone.answer(posted.pending.project, posted.pending.id, answer):
        raise HttpRefusal("not_found", "no such question waits for an answer")
    return {"answered": True}


def _describe(posted: Posted) -> dict[str, object]:
    pending = posted.pending
    carried = {**pending.request._asdict(), "metadata": dict(pending.request.metadata)}
    return {
        "id": pending.id,
        "time": pending.time,
        "project": pending.project,
        **carried,
        "facts": [one._asdict() for one in facts(pending.request)],
    }


def _unbound(request: ApiRequest) -> Runtime:
    if request.holder.is_bound:
        raise HttpRefusal("forbidden", "this token is bound to a user or an app")
    return request.belt


def _answering(request: ApiRequest) -> Runtime:
    if not request.holder.answers:
        raise HttpRefusal("forbidden", "this token answers no permission questions")
    return _unbound(request)


def _most(request: ApiRequest) -> int:
    return max(1, min(int(request.query.get("limit", MAX_PAGE)), MAX_PAGE))


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
    answer: Schema,
    query: Mapping[str, Schema] | None = None,
    body: Schema | None = None,
) -> Endpoint:
    method, _, path = address.partition(" ")
    return Endpoint(
        method=method, path=path, handle=handle, answer=answer, query=query or {}, body=body
    )


def _closed(required: Mapping[str, Schema], optional: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


_PAGED = {"after": _TEXT, "limit": _NUMBER}
CONSOLE_ENDPOINTS: tuple[Endpoint, ...] = (
    _at("GET /v1/catalog", list_catalog, _object(skills=_LIST, next=_TEXT), _PAGED),
    _at("GET /v1/catalog/{name}", show_skill, _OBJECT),
    _at("POST /v1/catalog/{name}", switch_skill, _object(name=_TEXT, enabled=_FLAG),
        body=_closed({"enabled": _FLAG}, {})),
    _at("GET /v1/history", list_history, _object(runs=_LIST, next=_TEXT),
        {**_PAGED, "skill": _TEXT, "session": _TEXT,
         "state": {"type": "string", "enum": ["running", "ok", "failed"]}}),
    _at("GET /v1/history/{id}", show_history, _OBJECT),
    _at("DELETE /v1/history/{id}", stop_history, _object(stopped=_FLAG)),
    _at("GET /v1/log", list_log, _object(events=_LIST),
        {"type": {"type": "string", "enum": list(TYPES)}, "skill": _TEXT, "session": _TEXT,
         "since": _TEXT, "until": _TEXT, "limit": _NUMBER}),
    _at("GET /v1/usage", show_usage, _object(skills=_LIST)),
    _at("GET /v1/inbox", list_inbox, _object(pending=_LIST)),
    _at("POST /v1/inbox/{id}", answer_inbox, _object(answered=_FLAG),
        body=_closed({"answer": {"type": "string", "enum": list(_ANSWERS)}}, {"message": _TEXT})),
)  # fmt: skip
ALL_ENDPOINTS: tuple[Endpoint, ...] = (*ENDPOINTS, *CONSOLE_ENDPOINTS)
