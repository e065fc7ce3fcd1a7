"""The contents of Gemini: parts, with calls that may have no id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skillbelt.conversation.messages import Message
from skillbelt.conversation.vendors.shapes import (
    AT,
    CallAnswer,
    Content,
    HistoryPlace,
    Item,
    hint_at_format,
    need_fields,
    need_list,
    need_text,
    refuse,
    text_of,
)

_ROLES = ("user", "model", "tool", "function", None)
_CONTENT = "a content of Gemini (response.candidates[0].content, or a dict with a role and parts)"
_PART = "a part: a dict, or an object of google.genai"
_CALL, _RESPONSE = ("function_call", "functionCall"), ("function_response", "functionResponse")
# Keys under which hosts put the text of a result; the vendor documents the first and the last.
_TEXTS = ("output", "result", "content", "error")
# The prefix of ids that we assign because the vendor gave none; they are never sent.
OWN_ID = "skillbelt-"


class GeminiContents:
    """`contents` of `client.models.generate_content`."""

    def expand(self, value: object, where: str) -> list[Item]:
        """Return the content; for a whole response, that of its one candidate."""
        if isinstance(value, str):
            return [{"role": "user", "parts": [{"text": value}]}]
        found = need_fields(value, where, _CONTENT)
        if "candidates" in found:
            candidates = need_list(found["candidates"], f"{where}.candidates", "a list")
            if len(candidates) != 1:
                refuse(f"{where}.candidates", "one candidate", candidates)
            where = f"{where}.candidates[0].content"
            candidate = need_fields(candidates[0], where, _CONTENT)
            found = need_fields(candidate.get("content") or {"role": "model"}, where, _CONTENT)
        if found.get("role") == "model" and not found.get("parts"):
            return []  # a model may return no parts, but no request may contain that
        if "parts" not in found or found.get("role") not in _ROLES:
            refuse(where, _CONTENT, found, hint_at_format(found, "gemini"))
        parts = need_list(found["parts"], f"{where}.parts", "a list of parts")
        made = [_read_part(one, f"{where}.parts[{number}]") for number, one in enumerate(parts)]
        return [{**found, "parts": made}]

    def read(self, items: Sequence[Item], where: Sequence[str]) -> list[Message]:
        """Return the messages; each response to a call becomes a separate one."""
        found: list[Message] = []
        for index, item in enumerate(items):
            if item.get("role") == "model":
                found.append(_read_model(item, index))
            else:
                found += _read_user(item, index, _open_calls(found))
        return found

    def write(self, item: Item, part: int | None, content: Content) -> Item:
        """Return the content with another text, or with another text in one of its responses."""
        parts = item["parts"]
        if part is None:
            texts = [{"text": content}] if isinstance(content, str) else content
            made = [{"text": one["text"]} if one.get("type") == "text" else one for one in texts]
            return {**item, "parts": [*(one for one in parts if _response(one)), *made]}
        key, response = _find(parts[part], _RESPONSE)
        given = response.get("response")
        fields = dict(given) if isinstance(given, Mapping) else {}
        fields[_text_key(fields)] = text_of(content)
        changed = {**parts[part], key: {**response, "response": fields}}
        return {**item, "parts": [*parts[:part], changed, *parts[part + 1 :]]}

    def answer(self, answers: Sequence[CallAnswer]) -> list[Item]:
        """Return one content with all responses."""
        parts = [
            {
                "function_response": {
                    "id": one.call.id,
                    "name": one.call.name,
                    "response": {"error" if one.failed else "output": one.text},
                }
            }
            for one in answers
        ]
        return [{"role": "user", "parts": parts}] if parts else []


def drop_own_ids(items: Sequence[Item]) -> list[Item]:
    """Return the contents without the ids that we assigned to responses."""
    return [
        {**item, "parts": [_without_own_id(part) for part in item["parts"]]}
        if any(map(_has_own_id, item["parts"]))
        else item
        for item in items
    ]


def _has_own_id(part: Item) -> bool:
    return str(_response(part).get("id", "")).startswith(OWN_ID)


def _without_own_id(part: Item) -> Item:
    if not _has_own_id(part):
        return part
    key, response = _find(part, _RESPONSE)
    return {**part, key: {name: one for name, one in response.items() if name != "id"}}


def _read_part(value: object, where: str) -> Item:
    if isinstance(value, str):
        return {"text": value}
    part = need_fields(value, where, _PART)
    for names in (_CALL, _RESPONSE):
        for key in names:
            if part.get(key) is not None:
                inner = need_fields(part[key], f"{where}.{key}", "a dict with a name")
                need_text(inner, "name", f"{where}.{key}", "the name of a tool")
                part = {**part, key: inner}
    return part


def _find(part: Item, names: tuple[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the field of a part under either spelling; an empty one if there is none."""
    for key in names:
        if isinstance(part.get(key), dict):
            return key, part[key]
    return names[0], {}


def _response(part: Item) -> dict[str, Any]:
    return _find(part, _RESPONSE)[1]


def _read_model(item: Item, index: int) -> Message:
    calls = []
    for part in item["parts"]:
        _, call = _find(part, _CALL)
        if call:
            id = call.get("id")
            named = {"id": id if isinstance(id, str) else "", "name": call["name"]}
            calls.append({**named, "arguments": call.get("args")})
    visible = [part for part in item["parts"] if not part.get("thought")]
    message = {"role": "assistant", "content": text_of(visible), AT: HistoryPlace(index)}
    return {**message, "tool_calls": calls} if calls else message


def _open_calls(found: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the calls without an id that later responses may belong to, in order."""
    for message in reversed(found):
        if message["role"] == "assistant":
            return [call for call in message.get("tool_calls", ()) if not call["id"]]
    return []


def _read_user(item: Item, index: int, open_calls: list[dict[str, Any]]) -> list[Message]:
    found: list[Message] = []
    for number, part in enumerate(item["parts"]):
        if response := _response(part):
            id = _match_call(response, open_calls)
            answer = response.get("response")
            text = answer.get(_text_key(answer)) if isinstance(answer, Mapping) else ""
            content = text if isinstance(text, str) else ""
            place = HistoryPlace(index, number)
            found.append({"role": "tool", "tool_call_id": id, "content": content, AT: place})
    rest = [part for part in item["parts"] if not _response(part)]
    if rest or not found:
        found.append({"role": "user", "content": _to_neutral(rest), AT: HistoryPlace(index)})
    return found


def _match_call(response: dict[str, Any], open_calls: list[dict[str, Any]]) -> str:
    """Return the id of a response, and assign it to the call that has none."""
    given = response.get("id")
    id = given if isinstance(given, str) else ""
    if not id or id.startswith(OWN_ID):
        for call in open_calls:
            if not call["id"] and call["name"] == response["name"]:
                call["id"] = id
                open_calls.remove(call)
                break
    return id


def _text_key(content: Mapping[str, Any]) -> str:
    return next((key for key in _TEXTS if isinstance(content.get(key), str)), _TEXTS[0])


def _to_neutral(parts: Sequence[Item]) -> Content:
    texts = [
        one["text"] for one in parts if one.keys() == {"text"} and isinstance(one["text"], str)
    ]
    if len(texts) == len(parts) == 1:
        return str(texts[0])
    return [
        {"type": "text", "text": one["text"]} if one.keys() == {"text"} else one for one in parts
    ]
