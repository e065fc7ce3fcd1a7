"""A history and what is loaded now -> the messages a model receives. Pure: same in, same out.

Text stays in the answer where it first landed, so that a request begins with the whole of the
request before it. Nothing made here is written back: the stored history keeps its short answers.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from skillbelt.disclose import Overview, merge
from skillbelt.text import one_line

Message = dict[str, Any]
Placement = Literal["tool", "system"]

HEADER = "Loaded skill context:"
FOOTER = "End of loaded skill context."
# The calls whose answers say what is loaded, under both sets of names.
LOADING = frozenset({"skill_load", "load_skill", "skill_select_docs"})
_STUB = "loaded: "
_MAYBE_LOADING = LOADING | {None}  # a call in the shape of a vendor has its name further inside
_ARGUMENTS = ("skill", "name", "skill_name")
_SYSTEM = ("system", "developer")
_NONE: Mapping[str, str] = MappingProxyType({})
_FALLBACK = -1
_OURS = (f"{HEADER}\n\n[Loaded] ", f"{HEADER}\n\n[Docs] ")
_OURS_END = f"\n\n{FOOTER}"
_FIRST = itemgetter(0)
_line = lru_cache(maxsize=1024)(one_line)  # the same few paths, in every request


class Material(NamedTuple):
    """A skill that is loaded now: its body, and the documents selected, as (path, text)."""

    name: str
    body: str
    docs: tuple[tuple[str, str], ...] = ()


class _Answers(NamedTuple):
    """Where the answers to loading calls are in a history."""

    skills: dict[int, str]
    loading: dict[tuple[str, str], int]
    others: dict[str, int]

    def to(self, call: str, skill: str) -> int | None:
        """The answer to a call that loaded the skill. Some hosts use an id more than once."""
        found = self.loading.get((call, skill))
        return self.others.get(call) if found is None else found


def materialize(
    messages: Sequence[Message],
    loaded: Sequence[Material],
    *,
    placement: Placement = "tool",
    overview: str = "",
    note: str = "",
    landed: Mapping[str, str] = _NONE,
) -> list[Message]:
    """The messages to send. The input stays as it is; untouched messages are shared with it.

    `landed` names the tool call whose answer first held a skill's body (`name`), one of its
    documents (`name#path`) or all of them (`name#*`); an empty id means that no answer did. A
    skill it does not name is put into the last answer to a loading call for it. What has no
    answer in this history goes into one message of its own behind the system message.
    """
    result = _without_ours(messages)
    answers = _answers(result, landed.values())
    materials = sorted(loaded, key=_FIRST)
    homes = _homes(materials, result, answers, landed)
    in_system = placement == "system"
    places = {} if in_system else _places(materials, homes, answers, landed)
    _tell_unloaded(result, answers, homes, places, landed)
    _put_blocks(result, places)
    _put_note(result, note)
    context = "\n\n".join(map(block, materials)) if in_system else ""
    _put_system(result, [text for text in (overview, context) if text])
    _put_fallback(result, places.get(_FALLBACK, {}).values())
    return result


def block(material: Material) -> str:
    """A skill as a model reads it: its name, its body, the documents with it."""
    return _block(material.name, material.body, material.docs)


def _block(name: str, body: str, docs: Sequence[tuple[str, str]]) -> str:
    return _with_documents(["[Loaded] " + name, body, "Docs loaded: none"], docs)


def _with_documents(parts: list[str], docs: Sequence[tuple[str, str]]) -> str:
    """The parts and the documents as one text; the last part is to name the documents."""
    if not docs:
        return "\n\n".join(parts)
    named, paths = len(parts) - 1, []
    for path, text in docs:
        # A file may be named with a line break in it; its name must not forge a line of its own.
        path = _line(path)
        paths.append(path)
        parts += ("[Doc] " + path, text)
    parts[named] = "Docs loaded: " + ", ".join(paths)
    return "\n\n".join(parts)


def _is_stub(line: str, names: Container[str]) -> bool:
    return line.startswith(_STUB) and line[len(_STUB) :] in names


def unloaded_line(name: str) -> str:
    """What the answer that once held a skill says when the skill is no longer loaded."""
    return f"unloaded since: {name} (load it again if it is needed)"


def _without_ours(messages: Sequence[Message]) -> list[Message]:
    """The history without a fallback message of an earlier request, should it have been kept."""
    result = list(messages)
    head = _head(result)
    result[:head] = [message for message in result[:head] if not _is_ours(message)]
    return result


def _head(messages: Sequence[Message]) -> int:
    """How many system messages the history begins with."""
    for index, message in enumerate(messages):
        if message.get("role") not in _SYSTEM:
            return index
    return len(messages)


def _is_ours(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, str) and content.startswith(_OURS) and content.endswith(_OURS_END)


def _answers(messages: Sequence[Message], wanted: Collection[str]) -> _Answers:
    """One quick pass finds the few calls that matter; only what follows them is looked at."""
    answers = _Answers({}, {}, {})
    found = set()
    skills, loading, others = answers
    for asked_at, call in _loading_calls(messages):
        called: Any = call.get("id")
        index = _answer(messages, asked_at + 1, called)
        if index and (skill := _skill_of(call)):
            skills[index] = skill
            loading[called, skill] = index
            found.add(called)
    if not found.issuperset(wanted):
        others.update(_answers_of(messages, set(wanted) - found))
    return answers


def _loading_calls(messages: Sequence[Message]) -> list[tuple[int, Mapping[str, Any]]]:
    """The calls that may load a skill, with the index of their message."""
    try:
        return [
            (index, call)
            for index, message in enumerate(messages)
            if "tool_calls" in message
            for call in message["tool_calls"]
            if call["name"] in _MAYBE_LOADING
        ]
    except (KeyError, TypeError):  # a call in the shape of a vendor, or null in place of calls
        return [
            (index, call)
            for index, message in enumerate(messages)
            for call in message.get("tool_calls") or ()
            if call.get("name") in _MAYBE_LOADING
        ]


def _answer(messages: Sequence[Message], index: int, call: object) -> int:
    """The answer to a call, 0 without one.

    An id may be used again later, so it is looked for right behind the call.
    """
    count = len(messages)
    while call and index < count and "tool_call_id" in (message := messages[index]):
        if message["tool_call_id"] == call:
            return index
        index += 1
    return 0


def _answers_of(messages: Sequence[Message], calls: Collection[str]) -> dict[str, int]:
    """Answers by ids alone: the host's own tool loaded the skill, or the call itself was cut."""
    return {
        message["tool_call_id"]: index
        for index, message in enumerate(messages)
        if message.get("tool_call_id") and message["tool_call_id"] in calls
    }


def _skill_of(call: Mapping[str, Any]) -> str:
    if "name" in call:
        arguments = call.get("arguments")
        if type(arguments) is dict and "skill" in arguments:
            skill = arguments["skill"]
            return skill if type(skill) is str else _skill(arguments)
        return _skill(arguments)
    function = call.get("function") or {}
    return _skill(function.get("arguments")) if function.get("name") in LOADING else ""


def _skill(arguments: object) -> str:
    if isinstance(arguments, str):
        import json

        try:
            arguments = json.loads(arguments)
        except ValueError:
            return ""
    if not isinstance(arguments, Mapping):
        return ""
    for key in _ARGUMENTS:
        if key in arguments:
            return arguments[key] if isinstance(arguments[key], str) else ""
    return ""


def _homes(
    materials: Sequence[Material],
    messages: Sequence[Message],
    answers: _Answers,
    landed: Mapping[str, str],
) -> dict[str, int | None]:
    """The answer that holds each skill's body, if the history has it."""
    homes: dict[str, int | None] = {}
    for name, _, _ in materials:
        found = answers.loading.get((landed[name], name)) if name in landed else None
        homes[name] = _home(name, messages, answers, landed) if found is None else found
    return homes


def _home(
    name: str, messages: Sequence[Message], answers: _Answers, landed: Mapping[str, str]
) -> int | None:
    if name in landed:
        return answers.to(landed[name], name)
    for index in reversed(answers.skills):
        if answers.skills[index] == name and f"{_STUB}{name}" in _lines(messages[index]):
            return index
    return None


def _places(
    materials: Sequence[Material],
    homes: Mapping[str, int | None],
    answers: _Answers,
    landed: Mapping[str, str],
) -> dict[int, dict[str, str]]:
    """The block of each skill in each answer, by its index; without one, under `_FALLBACK`."""
    places: dict[int, dict[str, str]] = {}
    apart = {key.partition("#")[0] for key in landed if "#" in key}
    for name, body, all_docs in materials:
        home = homes[name]
        at = _FALLBACK if home is None else home
        if name not in apart:
            text = _block(name, body, all_docs)
            if at in places:
                places[at][name] = text
            else:
                places[at] = {name: text}
            continue
        docs: dict[int, list[tuple[str, str]]] = {at: []}
        for doc in all_docs:
            docs.setdefault(_doc_home(name, doc[0], at, answers, landed), []).append(doc)
        places.setdefault(at, {})[name] = _block(name, body, docs.pop(at))
        for index, some in docs.items():
            text = _with_documents(["[Docs] " + name, ""], some)
            places.setdefault(index, {})[name] = text
    return places


def _put_blocks(messages: list[Message], places: Mapping[int, Mapping[str, str]]) -> None:
    for index, blocks in places.items():
        if index == _FALLBACK:
            continue
        if len(blocks) == 1:
            [(name, text)] = blocks.items()
            message = messages[index]
            # Most answers are the stub of one skill and nothing else.
            if message.get("content") == _STUB + name:
                messages[index] = changed = message.copy()
                changed["content"] = text
                continue
        _amend(messages, index, blocks, "\n\n".join(blocks.values()))


def _doc_home(name: str, path: str, body: int, answers: _Answers, landed: Mapping[str, str]) -> int:
    call = landed.get(f"{name}#{path}", landed.get(f"{name}#*"))
    if call is None:
        return body
    found = answers.to(call, name)
    return _FALLBACK if found is None else found


def _tell_unloaded(
    messages: list[Message],
    answers: _Answers,
    homes: Mapping[str, int | None],
    places: Container[int],
    landed: Mapping[str, str],
) -> None:
    """Let every answer whose skill has gone since say so, for good.

    Answers before the one where a skill lies now are of an earlier load. They must not turn back
    into `loaded`: that would change a request's beginning once more.
    """
    for index, name in answers.skills.items():
        if index in places:
            continue
        home = homes.get(name) if name in landed else None
        gone = name not in homes or (home is not None and index < home)
        if gone:
            lines = _lines(messages[index])
            if f"{_STUB}{name}" in lines or any('"selected_docs"' in line for line in lines):
                _amend(messages, index, (name,), unloaded_line(name))


def _part(text: str) -> Message:
    return {"type": "text", "text": text}


def _text(part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def _whole(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(map(_text, content))


def _lines(message: Message) -> list[str]:
    return _whole(message).split("\n")


def _amend(messages: list[Message], index: int, names: Container[str], text: str) -> None:
    """Put the text at the end of a message, once, and in place of the stub of those skills."""
    content = messages[index].get("content") or ""
    changed: object
    if isinstance(content, str):
        changed = text if _is_stub(content, names) else _after(content, names, text)
    else:
        part = _part(text)
        kept = [each for each in content if each != part and not _is_stub(_text(each), names)]
        changed = [*kept, part]
    messages[index] = {**messages[index], "content": changed}


def _after(content: str, names: Container[str], text: str) -> str:
    if content.endswith(text):
        return content
    if _STUB in content:
        lines = [line for line in content.split("\n") if not _is_stub(line, names)]
        content = "\n".join(lines).rstrip("\n")
    return f"{content}\n\n{text}" if content else text


def _put_system(messages: list[Message], texts: Sequence[str]) -> None:
    """Put each text at the end of the system message, once."""
    if texts and _head(messages) == 0:
        messages.insert(0, {"role": "system", "content": ""})
    for text in texts:
        content = messages[0].get("content") or ""
        whole = _whole(messages[0])
        merged = merge(whole, Overview(text, 0, 0, 0, 0))
        if merged != whole:
            changed = merged if isinstance(content, str) else [*content, _part(text)]
            messages[0] = {**messages[0], "content": changed}


def _put_note(messages: list[Message], note: str) -> None:
    """Put the note before the text of the last user message."""
    for index in range(len(messages) - 1 if note else -1, -1, -1):
        if messages[index].get("role") == "user":
            content = messages[index].get("content") or ""
            changed = _before(content, note)
            messages[index] = {**messages[index], "content": changed}
            return


def _before(content: str | list[Message], note: str) -> object:
    if not isinstance(content, str):
        part = _part(note)
        return [part, *(each for each in content if each != part)]
    if content == note or content.startswith(f"{note}\n\n"):
        return content
    return f"{note}\n\n{content}" if content else note


def _put_fallback(messages: list[Message], blocks: Collection[str]) -> None:
    if blocks:
        content = "\n\n".join([HEADER, *blocks, FOOTER])
        messages.insert(_head(messages), {"role": "system", "content": content})
