"""The inbox: pending permission requests, and the answers to them."""

from __future__ import annotations

from typing import NamedTuple, cast, get_args

from starlette.responses import Response

from skillbelt.console.abilities import GainedAbility, find_gained, list_abilities
from skillbelt.console.approved import (
    ApprovedChange,
    ApprovedVersion,
    compare_files,
    find_approved,
    read_files,
    remember_approved,
)
from skillbelt.console.parts import ConsoleParts
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.permission.rules import Answer, AnswerKind, Request
from skillbelt.permission.waiting import Posted
from skillbelt.running.question_facts import Fact, covered, facts
from skillbelt.serving.answers import HttpRefusal
from skillbelt.text import one_line

MAX_SHOWN = 100
MAX_REASON_CHARS = 2_000
_NOTICES = {
    "once": "Allowed once.",
    "conversation": "Allowed for this conversation.",
    "always": "Allowed from now on, until the skill changes.",
    "reject": "Refused.",
    "late": "That request no longer waits: it was answered elsewhere, or its process gave up.",
}
# Facts that a card shows in their own place.
_APART = ("what", "skill", "from", "agent", "session", "content")


class RequestCard(NamedTuple):
    """A request with everything that a person needs to decide."""

    id: str
    project: str
    request: Request
    time: float
    seconds_left: float
    command: str
    covers: str
    facts: tuple[Fact, ...]
    approved: ApprovedVersion | None = None
    changes: tuple[ApprovedChange, ...] = ()
    gained: tuple[GainedAbility, ...] = ()

    @property
    def is_lasting(self) -> bool:
        """Whether the answer can be remembered."""
        return bool(self.request.always)

    @property
    def is_changed(self) -> bool:
        """Whether the version approved last was a different one."""
        return self.approved is not None and self.approved.hash != self.request.hash


def show(visit: Visit) -> ShownPage:
    """Show the pending requests."""
    waiting = visit.parts.requests.waiting()
    cards = [describe_card(visit.parts, one) for one in list(waiting.values())[:MAX_SHOWN]]
    return ShownPage(
        "inbox.html",
        {
            "cards": cards,
            "waiting": len(waiting),
            "left_out": max(0, len(waiting) - MAX_SHOWN),
            "notice": _NOTICES.get(visit.query.get("notice", ""), ""),
        },
    )


def answer(visit: Visit) -> Response:
    """Answer a request."""
    kind, reason = visit.form.get("answer", ""), visit.form.get("reason", "").strip()
    if kind not in get_args(AnswerKind):
        raise HttpRefusal("wrong_arguments", "the answer is once, conversation, always or reject")
    given = Answer(
        cast(AnswerKind, kind),
        one_line(reason)[:MAX_REASON_CHARS] if kind == "reject" else "",
        f"console {visit.person.name}",
    )
    done = give_answer(visit.parts, visit.path["id"], given)
    return visit.go_to("/", notice=kind if done else "late")


def give_answer(parts: ConsoleParts, id: str, given: Answer) -> bool:
    """Answer a request of any project; False if it is no longer pending."""
    posted = parts.requests.waiting().get(id)
    if posted is None:
        return False
    request, project = posted.pending.request, posted.pending.project
    skill = find_skill(parts, request) if given.kind != "reject" else None
    if project == parts.belt.gate.project_key:
        done = parts.belt.gate.desk.answer(id, given)
    else:
        done = parts.requests.answer(project, id, given)
    if done and skill is not None:
        remember_approved(parts.belt, project, skill, request.hash, given.by)
    return done


def describe_card(parts: ConsoleParts, posted: Posted) -> RequestCard:
    """Return the card of a request."""
    pending, request = posted.pending, posted.pending.request
    listed = facts(request)
    command = next((one.value for one in listed if one.label == "command"), "")
    approved = find_approved(parts.belt.store, pending.project, request.skill)
    changes, gained = _find_changes(parts, request, approved)
    return RequestCard(
        id=pending.id,
        project=pending.project,
        request=request,
        time=pending.time,
        seconds_left=max(0.0, posted.deadline - parts.belt.store.now()),
        command=command,
        covers=covered(request, whole=False),
        facts=tuple(one for one in listed if one.label not in _APART),
        approved=approved,
        changes=changes,
        gained=gained,
    )


def _find_changes(
    parts: ConsoleParts, request: Request, approved: ApprovedVersion | None
) -> tuple[tuple[ApprovedChange, ...], tuple[GainedAbility, ...]]:
    """Return what changed since the last approval: files and capabilities."""
    if approved is None or approved.hash == request.hash:
        return (), ()
    skill = find_skill(parts, request)
    if skill is None:
        return (), ()
    changes = tuple(compare_files(approved.files, read_files(skill)))
    if approved.abilities is None:
        return changes, ()
    return changes, find_gained(approved.abilities, list_abilities(parts.belt, skill))


def card_document(card: RequestCard) -> dict[str, object]:
    """Return a card as a JSON document."""
    approved = card.approved
    return {
        "approved": None
        if approved is None
        else {"hash": approved.hash, "time": approved.time, "by": approved.by},
        "changes": [
            {"path": one.path, "kind": one.kind, "lines": [line.text for line in one.lines]}
            for one in card.changes
        ],
        "gained": [one._asdict() for one in card.gained],
        "seconds_left": card.seconds_left,
    }


def find_skill(parts: ConsoleParts, request: Request) -> Skill | None:
    """Return the requesting skill if this project has exactly that version of it."""
    skill = parts.belt.catalog.snapshot.get(request.skill)
    try:
        same = skill is not None and skill.files.digest() == request.hash
    except (OSError, SkillbeltError):
        same = False
    return skill if same else None
