"""Messages as plain values: vendors' packages return objects, and hosts pass those on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError

# Parts of a message that may hold objects inside a mapping.
_PARTS = ("content", "tool_calls")
_REMEDY = "give a dict with a role, or the message itself as the openai and anthropic packages do"


def plain_messages(messages: Sequence[object]) -> list[Message]:
    """Return the messages as dicts; ConfigError names the first that cannot be one.

    Accepts dicts, and objects with `model_dump` (pydantic) or dataclass fields.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        kind = type(messages).__name__
        raise ConfigError(f"messages: expected a list of messages, not {kind}; {_REMEDY}")
    return [_message(one, number) for number, one in enumerate(messages)]


def _message(message: object, number: int) -> Message:
    found = message if type(message) is dict else _fields(message)
    if found is None or not (type(message) is dict or isinstance(found.get("role"), str)):
        hint = "give response.choices[0].message" if found and "choices" in found else _REMEDY
        kind = type(message).__name__
        raise ConfigError(f"messages[{number}]: {kind} is not a message: it has no role; {hint}")
    if found is not message and found.get("type") == "message":
        # An answer of Anthropic's: its other fields are metadata, which no request accepts.
        found = {key: found[key] for key in ("role", "content") if key in found}
    parts = {key: _convert_parts(found[key]) for key in _PARTS if _has_objects(found.get(key))}
    return {**found, **parts} if parts else found


def _has_objects(value: object) -> bool:
    return isinstance(value, Sequence) and any(not isinstance(one, dict | str) for one in value)


def _convert_parts(value: Sequence[object]) -> list[object]:
    return [one if isinstance(one, dict | str) else _fields(one) or one for one in value]


def _fields(value: object) -> dict[str, Any] | None:
    """Return the fields of an object without those that are None; None if it has none."""
    if isinstance(value, Mapping):
        return dict(value)
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        dumped = dump(exclude_none=True)
        return dumped if isinstance(dumped, dict) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {key: one for key, one in asdict(value).items() if one is not None}
    return None
