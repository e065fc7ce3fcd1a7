"""Describe audit events in words: who did what, how it ended and why."""

from __future__ import annotations

from collections.abc import Mapping

from skillbelt.permission.audit_events import AuditEvent

_CHANGES = {"add": "added", "remove": "removed"}
# The keys of subject and outcome in events of other types.
_WHAT = ("command", "patterns", "path", "value")
_OUTCOME = ("outcome", "status", "exit_code")


def event_json(event: AuditEvent) -> dict[str, object]:
    """Return an event as `log --json` prints it."""
    return {**event._asdict(), "data": dict(event.data)}


def describe_actor(event: AuditEvent) -> str:
    """Return who did it: the initiator, the user with the machine, and the agent."""
    user = f"{event.user}@{event.machine}" if event.machine else event.user
    return " ".join(part for part in (event.initiator, user, event.agent) if part)


def describe_subject(event: AuditEvent) -> str:
    """Return what the event is about."""
    data = event.data
    if event.type == "trust":
        return f"{_to_text(data.get('kind'))} {_to_text(data.get('value'))}"
    if event.type == "secret":
        return f"{_to_text(data.get('name'))} for {event.skill or 'any skill'}"
    about = [event.skill]
    if event.type == "decision" and data.get("type") != "skill":
        about.append(_to_text(data.get("type")))
    found = next((data[key] for key in _WHAT if data.get(key)), "")
    return " ".join(dict.fromkeys(part for part in (*about, _to_text(found)) if part))


def describe_outcome(event: AuditEvent) -> str:
    """Return how it ended, as a person reads it."""
    text = describe_result(event)
    if "exit_code" in event.data and text == _to_text(event.data["exit_code"]):
        return f"exit {text}"
    return text


def describe_result(event: AuditEvent) -> str:
    """Return how it ended, in one word or as an exit code."""
    data = event.data
    if isinstance(data.get("allowed"), bool):
        return "allowed" if data["allowed"] else "denied"
    if event.type in ("trust", "secret"):
        action = _to_text(data.get("action"))
        return _CHANGES.get(action, action)
    return next((_to_text(data[key]) for key in _OUTCOME if key in data), "")


def describe_reason(event: AuditEvent, *, whole: bool = True) -> str:
    """Return why: who or what decided, the rule and the reason."""
    data = event.data
    giver = f" by {_to_text(data['answered_by'])}" if data.get("answered_by") else ""
    reason = f"{_to_text(data.get('by'))}{giver}"
    parts = [reason, _rule(data.get("rule")), _to_text(data.get("reason"))]
    if not whole and data.get("by") == "nobody":
        parts[2] = "no one could be asked"  # the reason repeats the row, and adds advice
    return "; ".join(part for part in parts if part)


def _rule(rule: object) -> str:
    """Return a rule and its location in one line."""
    if not isinstance(rule, Mapping):
        return _to_text(rule)
    text = " ".join(_to_text(rule.get(key)) for key in ("type", "pattern", "action"))
    place, line = _to_text(rule.get("path")), rule.get("line")
    where = f"{place}:{_to_text(line)}" if place and line else place
    return f"{text} ({' '.join(filter(None, (_to_text(rule.get('source')), where)))})"


def _to_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(_to_text(item) for item in value)
    return value if isinstance(value, str) else str(value)
