"""Shared by the shapes of all vendors: a history as values, plain fields of objects, errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import BadJson, read_json

MessageFormat = Literal["openai", "responses", "anthropic", "gemini"]
Item = dict[str, Any]
Content = str | list[Any]

MESSAGE_FORMATS: tuple[MessageFormat, ...] = ("openai", "responses", "anthropic", "gemini")
# The position of a message's text in the vendor's history; removed before anything is sent.
AT = "skillbelt:at"
SYSTEM_ROLES = ("system", "developer")
_SHOWN_CHARS = 60  # of a value that an error names


class HistoryPlace(NamedTuple):
    """An item of a history, and the part of it; None for the whole item."""

    item: int
    part: int | None = None


class HistoryCall(NamedTuple):
    """A call that a model made. `arguments` are as the model gave them: JSON text or a mapping."""

    id: str
    name: str
    arguments: object
    item: int


class HistoryResult(NamedTuple):
    """The result of a call: its text, the item and the part it is in."""

    id: str
    text: str
    item: int
    part: int | None


class CallAnswer(NamedTuple):
    """The result of a call, to be written in the vendor's shape."""

    call: HistoryCall
    text: Content
    failed: bool = False


class History(NamedTuple):
    """A vendor's history: its items as dicts, and the same as messages of one shape.

    A message is a dict with `role` (system, user, assistant, tool), `content`, `tool_calls` (each
    with `id`, `name`, `arguments`) or `tool_call_id`, and its `HistoryPlace` under `AT`; those of
    the chat API are the items themselves. `sources` has the index of each item as it was given.
    """

    items: list[Item]
    messages: list[Message]
    sources: list[int]

    def calls(self) -> list[HistoryCall]:
        """Return the calls of the model, in order."""
        return [
            HistoryCall(call["id"], call["name"], call["arguments"], message[AT].item)
            for message in self.messages
            for call in _plain_calls(message)
        ]

    def results(self) -> list[HistoryResult]:
        """Return the results of calls, in order."""
        return [
            HistoryResult(one["tool_call_id"], text_of(one.get("content")), *one[AT])
            for one in self.messages
            if one.get("role") == "tool"
        ]


class Vendor(Protocol):
    """One vendor's shapes."""

    def expand(self, value: object, where: str) -> list[Item]:
        """Return the items that a value of the history expands to."""

    def read(self, items: Sequence[Item], where: Sequence[str]) -> list[Message]:
        """Return the messages of the items, without the system text at the beginning."""

    def write(self, item: Item, part: int | None, content: Content) -> Item:
        """Return the item with another content."""

    def answer(self, answers: Sequence[CallAnswer]) -> list[Item]:
        """Return the items that hold the results of the calls of one reply."""


def text_of(content: object) -> str:
    """Return the text of a content, its parts joined by line breaks."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = [one.get("text") if isinstance(one, Mapping) else one for one in parts]
    return "\n".join(text for text in texts if isinstance(text, str))


def _plain_calls(message: Message) -> list[dict[str, Any]]:
    """Return the calls of a message; those of the chat API are flattened."""
    found = []
    for call in message.get("tool_calls") or ():
        inner = call.get("function") if "name" not in call else call
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            id = call.get("id")
            flat = {"id": id if isinstance(id, str) else "", "name": inner["name"]}
            found.append({**flat, "arguments": inner.get("arguments")})
    return found


def read_arguments(arguments: object) -> dict[str, Any]:
    """Return the arguments of a call; BadJson for anything but a JSON object."""
    found = read_json(arguments or "{}") if isinstance(arguments, str) else arguments or {}
    if not isinstance(found, dict):
        raise BadJson("they must be a JSON object")
    return found


# Objects


def to_fields(value: object) -> dict[str, Any] | None:
    """Return the fields of a mapping or of a package's object; None if it is neither.

    Fields that are None are left out: a package adds them where the vendor sent none, and a request
    may not contain them.
    """
    if isinstance(value, Mapping):
        if type(value) is dict and None not in value.values():
            return value
        return {key: one for key, one in value.items() if one is not None}
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if not callable(dump) or isinstance(value, type):
        return None
    dumped = dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    return dumped if isinstance(dumped, dict) else None


def to_list(value: object) -> list[object] | None:
    """Return a sequence as a list; None for text and anything else."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        return None
    return list(value)


def need_fields(value: object, where: str, expected: str) -> dict[str, Any]:
    """Return the fields of a mapping or an object; ConfigError for anything else."""
    found = to_fields(value)
    return refuse(where, expected, value) if found is None else found


def need_list(value: object, where: str, expected: str) -> list[object]:
    """Return a list; ConfigError for anything else."""
    found = to_list(value)
    return refuse(where, expected, value) if found is None else found


def need_text(item: Mapping[str, Any], key: str, where: str, expected: str) -> str:
    """Return a field that is text; ConfigError for anything else."""
    found = item.get(key)
    return found if isinstance(found, str) else refuse(f"{where}.{key}", expected, found)


def need_content(item: Item, where: str, format: MessageFormat) -> Content:
    """Return the content of a message: text, or parts that each have a type."""
    return need_parts(item.get("content"), f"{where}.content", format)


def need_parts(content: object, where: str, format: MessageFormat) -> Content:
    """Return text, "" for None, or parts that each have a type; ConfigError for anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for number, one in enumerate(need_list(content, where, "text, or a list of parts")):
        at = f"{where}[{number}]"
        part = need_fields(one, at, "a part: a dict with a type, or an object of the package")
        need_text(part, "type", at, "the type of a part")
        parts.append(part)
    if hint := hint_at_format({"content": parts}, format):
        refuse(where, f"parts of format={format!r}", parts[0], hint)
    return parts


# Errors


def refuse(where: str, expected: str, found: object, hint: str = "") -> NoReturn:
    """Raise a ConfigError: the place, what was expected there, what was found."""
    more = f"; {hint}" if hint else ""
    raise ConfigError(f"{where}: expected {expected}, found {describe(found)}{more}")


def describe(value: object) -> str:
    """Describe a value in a few words, for an error. The value may come from a model."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"the text {shorten(one_line(value), _SHOWN_CHARS)!r}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if not isinstance(value, Mapping):
        return f"{'' if isinstance(value, type) else 'a value of type '}{_kind(value)}"
    for key in ("type", "role"):
        if isinstance(value.get(key), str):
            return f"a {_kind(value)} with {key} {shorten(one_line(value[key]), _SHOWN_CHARS)!r}"
    keys = ", ".join(shorten(one_line(str(key)), _SHOWN_CHARS) for key in list(value)[:5])
    return f"a {_kind(value)} with {keys or 'nothing in it'}"


def _kind(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def hint_at_format(item: Mapping[str, object], format: MessageFormat) -> str:
    """Say which format has items like this one; "" if none, or the requested one."""
    found = _guess(item)
    return f"it looks like format={found!r}" if found and found != format else ""


def _guess(item: Mapping[str, object]) -> MessageFormat | None:
    if "parts" in item or "candidates" in item:
        return "gemini"
    kind = item.get("type")
    if isinstance(kind, str) and kind != "message":
        return "responses"
    parts = to_list(item.get("content")) or []
    kinds = {part.get("type") for part in map(to_fields, parts) if part}
    if kinds & {"tool_use", "tool_result", "thinking", "redacted_thinking"}:
        return "anthropic"
    if kinds & {"input_text", "output_text"}:
        return "responses"
    chat = "tool_calls" in item or "choices" in item or item.get("role") == "tool"
    return "openai" if chat else None
