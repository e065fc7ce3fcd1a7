"""A history and the loaded skills -> the messages a model receives. Pure: same in, same out.

Text stays in the answer where it first landed, so that each request begins with the whole request
before it. Nothing is written back: the stored history keeps its short answers.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter, length_hint
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from skillbelt.disclosure.overview import Overview, merge
from skillbelt.text import break_lines, one_line
from skillbelt.untrusted_json import read_json

Message = dict[str, Any]
Placement = Literal["tool", "system"]
# Makes the text of the message with the blocks, by skill, that have no answer in the history.
Context = Callable[[Mapping[str, str]], str]
_Found = tuple[int, Any, Any]  # a call that loads: where its answers begin, its id, its skill

HEADER = "Loaded skill context:"
FOOTER = "End of loaded skill context."
# The calls whose answers hold loaded skills, under both sets of names.
LOADING = frozenset({"skill_load", "load_skill", "skill_select_docs"})
_STUB = "loaded: "
_ARGUMENTS = ("skill", "name", "skill_name")
_SYSTEM = ("system", "developer")
_NONE: Mapping[str, str] = MappingProxyType({})
_FALLBACK = -1
LOADED, DOCS, LEFT_OUT = "[Loaded] ", "[Docs] ", "[Left out] "
_OURS = tuple(f"{HEADER}\n\n{start}" for start in (LOADED, DOCS, LEFT_OUT))
_OURS_END = f"\n\n{FOOTER}"
_FIRST = itemgetter(0)
_line = lru_cache(maxsize=1024)(one_line)  # the same few paths, in every request


class _Texts(NamedTuple):
    name: str
    body: str
    docs: tuple[tuple[str, str], ...] = ()


class Material(_Texts):
    """A loaded skill: its body, and the selected documents as (path, text)."""

    @cached_property
    def text(self) -> str:
        """The whole block as a model reads it; computed once, because it cannot change."""
        return _block(*self)


class _Calls(NamedTuple):
    """The positions of the answers to calls in a history."""

    loading: dict[tuple[str, str], int]
    others: dict[str, int]

    def answer(self, call: str, skill: str) -> int | None:
        """Return the answer to a call that loaded the skill; some hosts reuse ids."""
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
    context: Context | None = None,
) -> list[Message]:
    """Return the messages to send. The input is not changed; unchanged messages are shared.

    `landed` names the tool call whose answer first held a skill's body (`name`), one of its
    documents (`name#path`) or all of them (`name#*`); an empty id means that no answer did. A skill
    it does not name is put into the last answer to a loading call for it. Texts that have no answer
    in this history go into one separate message after the system message; `context` makes its
    text from the blocks, "" for none.
    """
    result = _remove_fallback(messages)
    materials = sorted(loaded, key=_FIRST)
    homes: dict[str, int | None] = dict.fromkeys(map(_FIRST, materials))
    found = _loading_calls(result)
    skills = _answers(found, result, homes, landed)
    if None in homes.values():
        _find_homes(homes, _calls(found, result, landed), result, skills, landed)
    in_system = placement == "system"
    taken: set[int | None] = set() if in_system else {*homes.values()}
    left = [] if in_system else materials
    if len(taken) == len(materials) and "#" not in "".join(landed):
        left = _replace_stubs(result, materials, homes)
    places = _assign_blocks(left, homes, _calls(found, result, landed), landed) if left else {}
    _mark_unloaded(result, skills, homes, taken.union(places), landed)
    _put_blocks(result, places)
    _put_note(result, note)
    texts = "\n\n".join(map(block, materials)) if in_system else ""
    _put_system(result, [text for text in (overview, texts) if text])
    _put_fallback(result, places.get(_FALLBACK, {}), context or join_context)
    return result


def block(material: Material) -> str:
    """Return a skill as a model reads it: its name, its body, its documents."""
    return material.text


def _block(name: str, body: str, docs: Sequence[tuple[str, str]]) -> str:
    return _with_documents([LOADED + name, body, "Docs loaded: none"], docs)


def docs_block(name: str, docs: Sequence[tuple[str, str]]) -> str:
    """Return a skill's documents as a model reads them separately from the body."""
    return _with_documents([DOCS + name, ""], docs)


def _with_documents(parts: list[str], docs: Sequence[tuple[str, str]]) -> str:
    """Join the parts and the documents; the last part is replaced by the documents' names."""
    if not docs:
        return "\n\n".join(parts)
    named, paths = len(parts) - 1, []
    for path, text in docs:
        # A file name may contain a line break; it must not forge a separate line.
        path = _line(path)
        paths.append(path)
        parts += ("[Doc] " + path, text)
    parts[named] = "Docs loaded: " + ", ".join(paths)
    return "\n\n".join(parts)


def _is_stub(line: str, names: Container[str]) -> bool:
    return line.startswith(_STUB) and line[len(_STUB) :] in names


def unloaded_line(name: str) -> str:
    """Return the text that replaces a skill in its answer once it is unloaded."""
    return f"unloaded since: {name} (load it again if it is needed)"


def _remove_fallback(messages: Sequence[Message]) -> list[Message]:
    """Remove a fallback message of an earlier request, if the host kept it."""
    result = list(messages)
    for index in range(_head(result) - 1, -1, -1):
        if is_context(result[index]):
            del result[index]
    return result


def _head(messages: Sequence[Message]) -> int:
    """Return how many system messages the history begins with."""
    for index, message in enumerate(messages):
        if message.get("role") not in _SYSTEM:
            return index
    return len(messages)


def is_context(message: Message) -> bool:
    """Return whether it is the message with the skills that have no answer in the history."""
    content = message.get("content")
    return isinstance(content, str) and content.startswith(_OURS) and content.endswith(_OURS_END)


def _answers(
    found: Sequence[_Found],
    messages: Sequence[Message],
    homes: dict[str, int | None],
    landed: Mapping[str, str],
) -> dict[int, str]:
    """Return the skill of each answer to a loading call, by index; fill in the homes."""
    skills: dict[int, str] = {}
    count = len(messages)
    for index, call, skill in found:
        # Most answers directly follow their call.
        if not (call and index < count and messages[index].get("tool_call_id") == call):
            index = _answer(messages, index, call)
        if index and skill and type(skill) is str:
            skills[index] = skill
            if skill in homes and landed.get(skill) == call:
                homes[skill] = index
    return skills


def _loading_calls(messages: Sequence[Message]) -> list[_Found]:
    """Return the calls that load: the index of the message after each, its id, its skill.

    Every request looks at every call, and this is most of its time. So the usual history, with one
    plain call in a message, is handled first.
    """
    count, rest = len(messages), iter(messages)
    try:
        return [
            (count - length_hint(rest), call["id"], call["arguments"]["skill"])
            for message in rest
            if "tool_calls" in message
            for [call] in [message["tool_calls"]]
            if call["name"] in LOADING
        ]
    except (KeyError, TypeError, ValueError):
        return [
            (index, call.get("id"), _skill(function.get("arguments")))
            for index, message in enumerate(messages, 1)
            if "tool_calls" in message
            for call in message["tool_calls"] or ()
            for function in [call if "name" in call else call.get("function") or call]
            if function.get("name") in LOADING
        ]


def _answer(messages: Sequence[Message], index: int, call: object) -> int:
    """Return the index of the answer to a call; 0 if there is none.

    An id may be reused later, so only the answers right after the call are searched.
    """
    count = len(messages)
    while call and index < count and "tool_call_id" in (message := messages[index]):
        if message["tool_call_id"] == call:
            return index
        index += 1
    return 0


def _calls(
    found: Sequence[_Found], messages: Sequence[Message], landed: Mapping[str, str]
) -> _Calls:
    """Index answers by their calls; if the call did not load, or was cut, by id alone."""
    loading = {
        (call, skill): index
        for after, call, skill in found
        if skill and type(skill) is str and (index := _answer(messages, after, call))
    }
    wanted = {*landed.values()}.difference(call for call, _ in loading)
    others = {
        message["tool_call_id"]: index
        for index, message in enumerate(messages if wanted else ())
        if message.get("tool_call_id") and message["tool_call_id"] in wanted
    }
    return _Calls(loading, others)


def _skill(arguments: object) -> str:
    """Return the skill that the arguments of a call name, or ""."""
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except ValueError:
            return ""
    if not isinstance(arguments, Mapping):
        return ""
    for key in _ARGUMENTS:
        if key in arguments:
            return arguments[key] if isinstance(arguments[key], str) else ""
    return ""


def _find_homes(
    homes: dict[str, int | None],
    calls: _Calls,
    messages: Sequence[Message],
    skills: Mapping[int, str],
    landed: Mapping[str, str],
) -> None:
    """Find the answers for the bodies that have none yet."""
    for name, home in homes.items():
        if home is None:
            homes[name] = _home(name, messages, skills, calls, landed)


def _home(
    name: str,
    messages: Sequence[Message],
    skills: Mapping[int, str],
    calls: _Calls,
    landed: Mapping[str, str],
) -> int | None:
    if name in landed:
        return calls.answer(landed[name], name)
    for index in reversed([*skills]):
        if skills[index] == name and f"{_STUB}{name}" in _lines(messages[index]):
            return index
    return None


def _replace_stubs(
    messages: list[Message], materials: Sequence[Material], homes: Mapping[str, int | None]
) -> list[Material]:
    """Replace each answer that is only a stub by its skill; return the remaining skills.

    This is the usual case, unless two skills share an answer or documents have another one.
    """
    left = []
    for material in materials:
        name = material[0]
        home = homes[name]
        if home is None or (message := messages[home]).get("content") != _STUB + name:
            left.append(material)
        else:
            messages[home] = changed = message.copy()
            changed["content"] = material.text
    return left


def _assign_blocks(
    materials: Sequence[Material],
    homes: Mapping[str, int | None],
    calls: _Calls,
    landed: Mapping[str, str],
) -> dict[int, dict[str, str]]:
    """Return the block of each skill by the index of its answer; `_FALLBACK` without one."""
    places: dict[int, dict[str, str]] = {}
    apart = {key.partition("#")[0] for key in landed if "#" in key}
    for material in materials:
        name = material.name
        home = homes[name]
        at = _FALLBACK if home is None else home
        split = (
            _split_by_answer(material, at, calls, landed) if name in apart else {at: material.text}
        )
        for index, text in split.items():
            places.setdefault(index, {})[name] = text
    return places


def _split_by_answer(
    material: Material, home: int, calls: _Calls, landed: Mapping[str, str]
) -> dict[int, str]:
    """Return the text of a skill by answer, when its documents landed separately from its body."""
    name, body, all_docs = material
    docs: dict[int, list[tuple[str, str]]] = {home: []}
    for doc in all_docs:
        docs.setdefault(_doc_home(name, doc[0], home, calls, landed), []).append(doc)
    texts = {home: _block(name, body, docs.pop(home))}
    for index, some in docs.items():
        texts[index] = docs_block(name, some)
    return texts


def _put_blocks(messages: list[Message], places: Mapping[int, Mapping[str, str]]) -> None:
    for index, blocks in places.items():
        if index != _FALLBACK:
            _amend(messages, index, blocks, "\n\n".join(blocks.values()))


def _doc_home(name: str, path: str, body: int, calls: _Calls, landed: Mapping[str, str]) -> int:
    call = landed.get(f"{name}#{path}", landed.get(f"{name}#*"))
    if call is None:
        return body
    found = calls.answer(call, name)
    return _FALLBACK if found is None else found


def _mark_unloaded(
    messages: list[Message],
    skills: Mapping[int, str],
    homes: Mapping[str, int | None],
    taken: Iterable[int | None],
    landed: Mapping[str, str],
) -> None:
    """Mark every answer whose skill was unloaded since, permanently.

    Answers before the current one of a skill belong to an earlier load. They must not turn back
    into `loaded`: that would change the beginning of a request again.
    """
    for index in skills.keys() - taken:
        name = skills[index]
        home = homes.get(name) if name in landed else None
        gone = name not in homes or (home is not None and index < home)
        if gone:
            lines = _lines(messages[index])
            if f"{_STUB}{name}" in lines or any('"selected_docs"' in line for line in lines):
                _amend(messages, index, (name,), unloaded_line(name))


def _part(text: str) -> Message:
    return {"type": "text", "text": text}


def _part_text(part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def _full_text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(map(_part_text, content))


def _lines(message: Message) -> list[str]:
    return _full_text(message).split("\n")


def _amend(messages: list[Message], index: int, names: Container[str], text: str) -> None:
    """Append the text to a message, once, or replace the stub of those skills by it."""
    content = messages[index].get("content") or ""
    changed: object
    if isinstance(content, str):
        changed = text if _is_stub(content, names) else _append_text(content, names, text)
    else:
        part = _part(text)
        kept = [each for each in content if each != part and not _is_stub(_part_text(each), names)]
        changed = [*kept, part]
    messages[index] = {**messages[index], "content": changed}


def _append_text(content: str, names: Container[str], text: str) -> str:
    if content.endswith(text):
        return content
    if _STUB in content:
        lines = [line for line in content.split("\n") if not _is_stub(line, names)]
        content = "\n".join(lines).rstrip("\n")
    return f"{content}\n\n{text}" if content else text


def _put_system(messages: list[Message], texts: Sequence[str]) -> None:
    """Append each text to the system message, once."""
    if texts and _head(messages) == 0:
        messages.insert(0, {"role": "system", "content": ""})
    for text in texts:
        content = messages[0].get("content") or ""
        whole = _full_text(messages[0])
        merged = merge(whole, Overview(text=text, tokens=0, shown=0, names_only=0, omitted=0))
        if merged != whole:
            changed = merged if isinstance(content, str) else [*content, _part(text)]
            messages[0] = {**messages[0], "content": changed}


def _put_note(messages: list[Message], note: str) -> None:
    """Put the note before the text of the last user message."""
    for index in range(len(messages) - 1 if note else -1, -1, -1):
        if messages[index].get("role") == "user":
            content = messages[index].get("content") or ""
            changed = _prepend_note(content, note)
            messages[index] = {**messages[index], "content": changed}
            return


def _prepend_note(content: str | list[Message], note: str) -> object:
    if not isinstance(content, str):
        part = _part(note)
        return [part, *(each for each in content if each != part)]
    if content == note or content.startswith(f"{note}\n\n"):
        return content
    return f"{note}\n\n{content}" if content else note


def join_context(blocks: Mapping[str, str]) -> str:
    """Return the message with these blocks, by skill; "" for none."""
    if not blocks:
        return ""
    # A body must not end the message, nor begin the block of another skill.
    safe = [_keep_inside(text) for text in blocks.values()]
    return "\n\n".join([HEADER, *safe, FOOTER])


def _keep_inside(text: str) -> str:
    """Return a block in which no line looks like one of our own marks."""
    first, line_end, rest = text.partition("\n")
    return first + line_end + break_lines(rest, HEADER, FOOTER, LOADED, DOCS, LEFT_OUT)


def _put_fallback(messages: list[Message], blocks: Mapping[str, str], context: Context) -> None:
    content = context(blocks)
    if content:
        messages.insert(_head(messages), {"role": "system", "content": content})
