"""The permission form of a client: its text, and the meaning of its answer.

Pure; `requests` sends the form and waits.
"""

from __future__ import annotations

from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

from skillbelt.permission.rules import Answer, Request
from skillbelt.running.question_facts import covered, facts
from skillbelt.text import shorten

_MAX_REASON_CHARS = 1_000
_BY = "mcp"
CLOSED = "the form was closed without an answer"
UNCLEAR = "the form came back without a valid answer"


def can_elicit(capabilities: ClientCapabilities | None) -> bool:
    """Whether the client can show a form; one that names no kind of form means this one."""
    found = capabilities.elicitation if capabilities is not None else None
    return found is not None and (found.form is not None or found.url is None)


def build_form(request: Request) -> ElicitRequestFormParams:
    """Return the question and the possible answers."""
    kinds = ["once", "always", "reject"] if request.always else ["once", "reject"]
    properties: dict[str, object] = {
        "answer": {"type": "string", "title": "Allow this?", "enum": kinds},
        "message": {
            "type": "string",
            "title": "If rejected: the reason, for the model",
            "maxLength": _MAX_REASON_CHARS,
        },
    }
    schema = {"type": "object", "properties": properties, "required": ["answer"]}
    return ElicitRequestFormParams(message=describe_request(request), requested_schema=schema)


def describe_request(request: Request) -> str:
    """Describe the action, who asked for it, and what "always" covers.

    Complete: a client has no way to ask for more.
    """
    (_, what), *details = facts(request)
    who = "You asked" if request.initiator == "user" else "A model asks"
    lines = [f"{who} to {what}.", *(f"{label}: {value}" for label, value in details)]
    if not request.trusted:
        lines.append("The origin of the skill is not trusted.")
    if always := covered(request):
        lines.append(f"Always {always}.")
    return "\n".join(lines)


def read_answer(request: Request, result: ElicitResult | None) -> Answer:
    """Return the answer. Anything but a clear yes is a rejection that gives the reason."""
    if result is None:
        return Answer("reject", UNCLEAR, _BY)
    if result.action != "accept":
        return Answer("reject", CLOSED if result.action == "cancel" else "", _BY)
    content = result.content or {}
    kind, message = content.get("answer"), content.get("message")
    match kind:
        case "reject":
            reason = message if isinstance(message, str) else ""
            return Answer("reject", shorten(reason, _MAX_REASON_CHARS), _BY)
        case "once":
            return Answer("once", by=_BY)
        case "always" if request.always:
            return Answer("always", by=_BY)
    return Answer("reject", UNCLEAR, _BY)
