"""How a person at a client is asked for permission: what the form says, and what its answer means.

Pure. `carry` sends the form and waits.
"""

from __future__ import annotations

from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

from skillbelt.permission.rules import Answer, Request
from skillbelt.running.facts import covered, facts
from skillbelt.text import shorten

_MESSAGE = 1_000
_BY = "mcp"
CLOSED = "the form was closed without an answer"
UNCLEAR = "what came back from the form is no answer to it"


def can_be_asked(capabilities: ClientCapabilities | None) -> bool:
    """Whether the client can show a form. One that names no kind of form means this one."""
    found = capabilities.elicitation if capabilities is not None else None
    return found is not None and (found.form is not None or found.url is None)


def form(request: Request) -> ElicitRequestFormParams:
    """The question, and the answers that can be given."""
    kinds = ["once", "always", "reject"] if request.always else ["once", "reject"]
    properties: dict[str, object] = {
        "answer": {"type": "string", "title": "May it happen?", "enum": kinds},
        "message": {
            "type": "string",
            "title": "If not: why, in a word for the model",
            "maxLength": _MESSAGE,
        },
    }
    schema = {"type": "object", "properties": properties, "required": ["answer"]}
    return ElicitRequestFormParams(message=question(request), requested_schema=schema)


def question(request: Request) -> str:
    """What a person has to know: what wants to happen, who asked, what "always" covers.

    All of it: a client has no way to ask for the rest.
    """
    (_, what), *told = facts(request)
    who = "You asked" if request.initiator == "user" else "A model asks"
    lines = [f"{who} to {what}.", *(f"{label}: {value}" for label, value in told)]
    if not request.trusted:
        lines.append("The origin of the skill is not trusted.")
    if always := covered(request):
        lines.append(f"Always {always}.")
    return "\n".join(lines)


def answer(request: Request, result: ElicitResult | None) -> Answer:
    """What the person said. Whatever is no clear yes is a no, which says what came in its place."""
    if result is None:
        return Answer("reject", UNCLEAR, _BY)
    if result.action != "accept":
        return Answer("reject", CLOSED if result.action == "cancel" else "", _BY)
    content = result.content or {}
    kind, message = content.get("answer"), content.get("message")
    match kind:
        case "reject":
            said = message if isinstance(message, str) else ""
            return Answer("reject", shorten(said, _MESSAGE), _BY)
        case "once":
            return Answer("once", by=_BY)
        case "always" if request.always:
            return Answer("always", by=_BY)
    return Answer("reject", UNCLEAR, _BY)
