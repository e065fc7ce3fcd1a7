"""The operations of `serve http`: the schema of each, and the function behind it.

Each works as if a model called it: with the tools' own checks of their arguments, and with the
permission that a call of a model needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, TypeVar, get_args

from skillbelt.conversation.vendors.shapes import MessageFormat
from skillbelt.errors import ArtifactError, RunRefused
from skillbelt.format.skill import Skill
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending
from skillbelt.running.following import UNWATCHED, Watch
from skillbelt.runtime.runtime import Runtime, RuntimeSession
from skillbelt.scan.on_demand import SKILL_FACTS
from skillbelt.serving.answers import HttpRefusal, document_of
from skillbelt.serving.tokens import Holder
from skillbelt.serving.uploads import UploadBook
from skillbelt.store import SessionKey
from skillbelt.tools.definitions import DEFINITIONS
from skillbelt.tools.handlers import dispatch
from skillbelt.tools.schema import ToolFormat, ToolResult

Schema = Mapping[str, Any]
TENANT = "http_tenant"  # in the metadata of a permission request: the app and the user
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_ANY: Schema = {}
_OBJECT: Schema = {"type": "object"}
_LIST: Schema = {"type": "array"}
_ARGUMENTS: Schema = {"type": ["object", "string", "null"]}
_FORMATS = get_args(MessageFormat)
_TOOL_FORMATS = get_args(ToolFormat)
# The most entries of one page, which is also the default.
MAX_PAGE = 1000
T = TypeVar("T")
_TOOLS = ("skill_load", "skill_run", "skill_poll", "execute_skill")


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _choice(values: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def closed(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object without further fields."""
    return {**_object(required, optional), "additionalProperties": False}


def _schema_of(kind: str) -> Schema:
    """Return the schema of the arguments of one of our tools."""
    found = DEFINITIONS[kind]
    return {
        "type": "object",
        "properties": dict(found.properties),
        "required": list(found.required),
        "additionalProperties": False,
    }


_SKILL = _object({"name": _TEXT, "description": _TEXT, "trusted": _FLAG}, {"origin": _TEXT})
_RESULT = _object({"text": _TEXT, "error": _TEXT, "data": _OBJECT})
_ARTIFACT = _object(
    {"name": _TEXT, "version": _NUMBER, "size": _NUMBER, "sha256": _TEXT, "mime": _TEXT}
)
_PENDING = _object(
    {"id": _TEXT, "time": {"type": "number"}, "type": _TEXT, "summary": _TEXT, "session": _TEXT,
     "patterns": {"type": "array", "items": _TEXT}}
)  # fmt: skip


class ApiRequest(NamedTuple):
    """A request that passed the guard and the checks; `user` is the one it is for."""

    belt: Runtime
    holder: Holder
    user: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    upload: BinaryIO | None = None
    mime: str = ""
    watch: Watch = UNWATCHED

    @property
    def key(self) -> SessionKey:
        """Return the key of the conversation that the address names."""
        return SessionKey(self.holder.app, self.user, self.path["session"])

    def session(self) -> RuntimeSession:
        """Open the conversation."""
        return self.belt.session(self.user, self.path["session"], app=self.holder.app)


class Download(NamedTuple):
    """A file as the answer."""

    file: BinaryIO
    size: int
    mime: str
    headers: Mapping[str, str]


def path_pattern(path: str) -> re.Pattern[str]:
    """Return the pattern for a path with `{name}` in it; `{name...}` may hold slashes."""
    parts = re.split(r"(\{[a-z_]+(?:\.\.\.)?\})", path)
    made = [
        f"(?P<{part[1:-1].removesuffix('...')}>{'.+' if '...' in part else '[^/]+'})"
        if part.startswith("{")
        else re.escape(part)
        for part in parts
    ]
    return re.compile("".join(made))


class Endpoint(NamedTuple):
    """One operation; `streams` says that it can respond with events while it works."""

    method: str
    path: str
    handle: Callable[[ApiRequest], object]
    answer: Schema | None
    query: Mapping[str, Schema] = MappingProxyType({})
    body: Schema | None = None
    streams: bool = False
    uploads: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern for the path of a request; `{name...}` may hold slashes."""
        return path_pattern(self.path)


# Skills


def list_skills(request: ApiRequest) -> object:
    """List the skills that a model may see."""
    request.belt.look()
    found = sorted(request.belt.available().items())
    page, more = _cut_page(request, found, lambda one: one[0])
    return {"skills": [_describe_skill(skill) for _, skill in page], **more}


def show_overview(request: ApiRequest) -> object:
    """Return the text about the skills for a system message."""
    return document_of(request.belt.overview())


def search_skills(request: ApiRequest) -> object:
    """Find skills for a request."""
    limit = min(int(request.query.get("limit", 10)), 100)
    found = request.belt.search(request.query.get("q", ""), limit)
    return {
        "results": [
            {**_describe_skill(one.skill), "score": one.score, "snippet": one.snippet}
            for one in found
        ]
    }


def scan_skill(request: ApiRequest) -> object:
    """Return what a skill can do, what its runs tried, and the findings of a scan."""
    request.belt.look()
    if request.path["name"] not in request.belt.available():
        raise HttpRefusal("skill_not_found", "there is no skill of that name")
    return request.belt.scan(request.path["name"]).to_json()


def _describe_skill(skill: Skill) -> dict[str, object]:
    found: dict[str, object] = {
        "name": skill.name, "description": skill.description, "trusted": skill.trusted,
    }  # fmt: skip
    return {**found, "origin": skill.origin.url} if skill.origin.url else found


# Conversations


def list_sessions(request: ApiRequest) -> object:
    """List the conversations of the user."""
    owner, after, most = (
        (request.holder.app, request.user),
        request.query.get("after"),
        page_size(request),
    )
    found = request.belt.store.sessions(
        *owner, after=None if after is None else SessionKey(*owner, after), limit=most + 1
    )
    page = [
        {"session": one.key.session, "created": one.created, "updated": one.updated,
         "events": one.events}
        for one in found[:most]
    ]  # fmt: skip
    return {"sessions": page, **({"next": page[-1]["session"]} if len(found) > most else {})}


def show_session(request: ApiRequest) -> object:
    """Return the loaded skills of a conversation."""
    loaded = request.session().loaded()
    return {"session": request.key.session, "loaded": [one.name for one in loaded]}


def delete_session(request: ApiRequest) -> object:
    """Delete a conversation with everything that belongs to it."""
    try:
        gone = request.belt.delete_session(*request.key[1:], app=request.key.app)
    except RunRefused as error:
        # The message names a folder of this machine.
        raise HttpRefusal(
            "run_refused", "a run uses the files of this conversation; end it, then delete it again"
        ) from error
    _uploads(request).forget_session()
    return {"deleted": gone}


def make_request(request: ApiRequest) -> object:
    """Build the request for the model: the history with the texts of the loaded skills."""
    given = dict(request.body)
    made = request.session().request(given.pop("messages"), **given)
    return {"messages": made} if isinstance(made, list) else {"request": made}


def list_tools(request: ApiRequest) -> object:
    """List the tools, in the format of a vendor."""
    session = request.session()
    request.belt.look()
    made = session.tools(
        request.query.get("format", "openai"),  # type: ignore[call-overload]
        listing=_flag(request, "listing"),
        inline=_flag(request, "inline"),
    )
    return {"tools": made}


def call_tool(request: ApiRequest) -> object:
    """Run a tool call of the model; an error of the model is a result too."""
    given = request.body
    result = request.session().call_sync(
        given["tool"],
        given.get("arguments"),
        given.get("call_id", ""),
        watch=request.watch,
        inline=given.get("inline", False),
        shown=given.get("shown"),
    )
    return _describe_result(result)


def answer_calls(request: ApiRequest) -> object:
    """Run every tool call of a model's reply; return the messages that continue the history."""
    given = request.body
    made = request.session().answer_calls(given["reply"], given["format"], watch=request.watch)
    return {"messages": made}


def load_skill(request: ApiRequest) -> object:
    """Load a skill: its text is in the answer."""
    return _describe_result(_use(request, "skill_load", request.body))


# Runs


def run_command(request: ApiRequest) -> object:
    """Run a command of a skill, or start it in the background."""
    return _data(_use(request, "skill_run", request.body), done="exit_code")


def execute_script(request: ApiRequest) -> object:
    """Run a script of a skill with JSON input, and return its JSON output."""
    return _data(_use(request, "execute_skill", request.body), done="exit_status")


def list_runs(request: ApiRequest) -> object:
    """List the background runs that this server holds."""
    found = request.belt.background.list(request.key)
    return {"runs": [document_of(one) for one in found]}


def poll_run(request: ApiRequest) -> object:
    """Return new output of a background run, and its result once it has ended."""
    query = {name: int(value) for name, value in request.query.items()}
    given = {"run_id": request.path["run_id"], **query}
    return _data(_use(request, "skill_poll", given), done="running")


def write_to_run(request: ApiRequest) -> object:
    """Write to the standard input of a background run."""
    given = {"run_id": request.path["run_id"], **request.body}
    return _data(_use(request, "skill_poll", given), done="running")


def end_run(request: ApiRequest) -> object:
    """Kill a background run, and return its result."""
    given = {"run_id": request.path["run_id"], "kill": True}
    return _data(_use(request, "skill_poll", given), done="running")


def _use(request: ApiRequest, kind: str, arguments: Mapping[str, object]) -> ToolResult:
    """Call one of our tools, whether or not the profile offers it to models."""
    session = request.session()
    if kind != "skill_poll":
        request.belt.look()
    caller = session._caller(session.session.state(), watch=request.watch, inline=True)
    caller.names, caller.brief = {name: name for name in _TOOLS}, False
    return dispatch(kind, dict(arguments), caller)


def _data(result: ToolResult, done: str) -> dict[str, object]:
    """Return the document of a result; HttpRefusal for one that only reports an error."""
    if done not in result.data and "run_id" not in result.data:
        error = result.data.get("error")
        kind = str(error["kind"]) if isinstance(error, Mapping) else "failed"
        raise HttpRefusal(kind, result.error or result.text)
    return dict(result.data)


def _describe_result(result: ToolResult) -> dict[str, object]:
    """Return a result without the paths of files on this machine."""
    data = {name: value for name, value in result.data.items() if name != "report"}
    return {"text": result.text, "error": result.error, "data": data}


# Artifacts


def list_artifacts(request: ApiRequest) -> object:
    """List the newest version of each artifact."""
    kept = request.belt.workbench.artifacts(request.key)
    page, more = _cut_page(request, kept.store.latest(request.key), lambda one: one.name)
    return {"artifacts": [document_of(one) for one in page], **more}


def save_artifact(request: ApiRequest) -> object:
    """Save the body of the request as the next version of an artifact."""
    assert request.upload is not None
    return document_of(_uploads(request).save(request.path["name"], request.upload, request.mime))


def read_artifact(request: ApiRequest) -> object:
    """Return the bytes of an artifact."""
    kept, name = request.belt.workbench.artifacts(request.key), request.path["name"]
    wanted = request.query.get("version")
    found = kept.store.find(request.key, name, None if wanted is None else int(wanted))
    facts = {"x-artifact-version": str(found.version), "x-artifact-sha256": found.sha256}
    # A browser must never show it as a page of this server.
    facts["content-disposition"] = "attachment"
    mime = found.mime if found.mime.isascii() else "application/octet-stream"
    return Download(kept.store.open(request.key, name, found.version), found.size, mime, facts)


def delete_artifact(request: ApiRequest) -> object:
    """Delete every version of an artifact."""
    kept = request.belt.workbench.artifacts(request.key)
    if not kept.store.delete(request.key, request.path["name"]):
        raise ArtifactError("there is no artifact of that name")
    _uploads(request).forget(request.path["name"])
    return {"deleted": True}


def check_room(request: ApiRequest, size: int) -> int:
    """Return how many bytes the user may upload now; HttpRefusal when `size` are too many."""
    return _uploads(request).check_room(size)


def _uploads(request: ApiRequest) -> UploadBook:
    belt = request.belt
    kept = belt.workbench.artifacts(request.key).store
    return UploadBook(belt.store, request.key, kept, belt.settings.limits)


# Permission


def list_pending(request: ApiRequest) -> object:
    """List the pending permission questions, of all servers."""
    waiting = sorted(_list_answerable(request), key=_order)
    page, more = _cut_page(request, waiting, _order)
    return {"pending": [describe_pending(one) for one in page], **more}


def _order(pending: Pending) -> str:
    """Return the sort key of questions: their time, then their id."""
    return f"{pending.time:020.6f} {pending.id}"


def answer_pending(request: ApiRequest) -> object:
    """Answer a permission question, on any server."""
    kind, holder = request.body["answer"], request.holder
    if holder.is_bound and kind == "always":
        raise HttpRefusal("forbidden", "a bound token answers once or reject: always is for all")
    id = request.path["id"]
    waits = any(one.id == id for one in _list_answerable(request))
    answer = Answer(kind, request.body.get("message", ""), f"http {holder.app}/{request.user}")
    if not waits or not request.belt.gate.desk.answer(id, answer):
        raise HttpRefusal("not_found", "no such question waits for an answer")
    return {"answered": True}


def _list_answerable(request: ApiRequest) -> list[Pending]:
    holder = request.holder
    if not holder.answers:
        raise HttpRefusal("forbidden", "this token answers no permission questions")
    waiting = request.belt.gate.desk.pending()
    return [
        one
        for one in waiting
        if holder.may_answer(one.request.metadata.get(TENANT), one.request.type)
    ]


def describe_pending(pending: Pending) -> dict[str, object]:
    """Return the facts for a person to decide by."""
    request = pending.request
    named = ("type", "summary", "session", "skill", "agent", "initiator", "patterns", "always")
    return {
        "id": pending.id,
        "time": pending.time,
        **{name: getattr(request, name) for name in named},
        **{name: request.metadata[name] for name in SKILL_FACTS if name in request.metadata},
    }


def page_size(request: ApiRequest) -> int:
    """Return the page size."""
    return max(1, min(int(request.query.get("limit", MAX_PAGE)), MAX_PAGE))


def _cut_page(
    request: ApiRequest, found: Sequence[T], mark: Callable[[T], str]
) -> tuple[Sequence[T], dict[str, str]]:
    """Return the entries of the page, sorted by their mark, and the mark to continue after."""
    after, most = request.query.get("after"), page_size(request)
    left = [one for one in found if after is None or mark(one) > after]
    page = left[:most]
    return page, {"next": mark(page[-1])} if len(left) > most else {}


def _flag(request: ApiRequest, name: str) -> bool:
    return request.query.get(name, "false") == "true"


_SESSION = "/v1/sessions/{session}"
_SWITCH: Schema = {"type": "string", "enum": ["true", "false"]}
_REQUESTED = {
    "new_turn": _or_null("boolean"),
    "format": _choice(_FORMATS),
    "system": _ANY,
    "tools": _or_null("array"),
    "restore_tokens": _or_null("integer"),
    "previous_response_id": _or_null("string"),
}
_DELETED = _object({"deleted": _FLAG})
_PAGED = {"after": _TEXT, "limit": _NUMBER}
_POLLED = _object({"running": _FLAG}, {"stdout": _TEXT, "stderr": _TEXT})


def _page_of(name: str, entry: Schema) -> Schema:
    """Return the schema of one page of a list; `next` is present when there are more."""
    return _object({name: _list_of(entry)}, {"next": _TEXT})


def _at(
    address: str, handle: Callable[[ApiRequest], object], answer: Schema | None, **more: Any
) -> Endpoint:
    """Return the operation at an address, which is a method and a path."""
    method, _, path = address.partition(" ")
    return Endpoint(method=method, path=path, handle=handle, answer=answer, **more)


ENDPOINTS: tuple[Endpoint, ...] = (
    _at("GET /v1/skills", list_skills, _page_of("skills", _SKILL), query=_PAGED),
    _at("GET /v1/skills/{name}/scan", scan_skill,
        _object({"name": _TEXT, "digest": _TEXT, "level": _TEXT, "findings": _LIST,
                 "capabilities": _OBJECT, "unseen": _LIST, "suppressed": _LIST})),
    _at("GET /v1/overview", show_overview,
        _object({"text": _TEXT, "tokens": _NUMBER, "shown": _NUMBER})),
    _at("GET /v1/search", search_skills, _object({"results": _list_of(_SKILL)}),
        query={"q": _TEXT, "limit": _NUMBER}),
    _at("GET /v1/sessions", list_sessions,
        _page_of("sessions", _object({"session": _TEXT, "events": _NUMBER})), query=_PAGED),
    _at(f"GET {_SESSION}", show_session, _object({"session": _TEXT, "loaded": _list_of(_TEXT)})),
    _at(f"DELETE {_SESSION}", delete_session, _DELETED),
    _at(f"POST {_SESSION}/request", make_request,
        _object({}, {"request": _OBJECT, "messages": _LIST}),
        body=closed({"messages": _LIST}, _REQUESTED)),
    _at(f"GET {_SESSION}/tools", list_tools, _object({"tools": _list_of(_OBJECT)}),
        query={"format": _choice(_TOOL_FORMATS), "listing": _SWITCH, "inline": _SWITCH}),
    _at(f"POST {_SESSION}/call", call_tool, _RESULT, streams=True,
        body=closed({"tool": _TEXT}, {"arguments": _ARGUMENTS, "call_id": _TEXT, "inline": _FLAG,
                                       "shown": _or_null("array")})),
    _at(f"POST {_SESSION}/answers", answer_calls, _object({"messages": _LIST}), streams=True,
        body=closed({"reply": _ANY, "format": _choice(_FORMATS)})),
    _at(f"POST {_SESSION}/load", load_skill, _RESULT, body=_schema_of("skill_load")),
    _at(f"POST {_SESSION}/runs", run_command,
        _object({}, {"exit_code": {"type": "integer"}, "stdout": _TEXT, "stderr": _TEXT,
                     "run_id": _TEXT, "running": _FLAG}),
        body=_schema_of("skill_run"), streams=True),
    _at(f"POST {_SESSION}/execute", execute_script,
        _object({"exit_status": _OBJECT}, {"output": _ANY}),
        body=_schema_of("execute_skill"), streams=True),
    _at(f"GET {_SESSION}/runs", list_runs, _object({"runs": _list_of(_object(
        {"id": _TEXT, "skill": _TEXT, "command": _TEXT, "running": _FLAG}))})),
    _at(f"GET {_SESSION}/runs/{{run_id}}", poll_run, _POLLED,
        query={"stdout_offset": _NUMBER, "stderr_offset": _NUMBER, "wait": _NUMBER}),
    _at(f"POST {_SESSION}/runs/{{run_id}}", write_to_run, _POLLED,
        body=closed({}, {"stdin": _TEXT, "close_stdin": _FLAG})),
    _at(f"DELETE {_SESSION}/runs/{{run_id}}", end_run, _POLLED),
    _at(f"GET {_SESSION}/artifacts", list_artifacts, _page_of("artifacts", _ARTIFACT),
        query=_PAGED),
    _at(f"PUT {_SESSION}/artifacts/{{name...}}", save_artifact, _ARTIFACT, uploads=True),
    _at(f"GET {_SESSION}/artifacts/{{name...}}", read_artifact, None, query={"version": _NUMBER}),
    _at(f"DELETE {_SESSION}/artifacts/{{name...}}", delete_artifact, _DELETED),
    _at("GET /v1/permissions", list_pending, _page_of("pending", _PENDING), query=_PAGED),
    _at("POST /v1/permissions/{id}", answer_pending, _object({"answered": _FLAG}),
        body=closed({"answer": _choice(("once", "always", "reject"))}, {"message": _TEXT})),
)  # fmt: skip
