"""Scripted conversations without a model: every request that a host would send, in order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from skillbelt.conversation.messages import Material, Message, Placement, materialize
from skillbelt.conversation.state import LoadMode, Session
from skillbelt.conversation.vendors.read import VENDORS
from skillbelt.conversation.vendors.shapes import CallAnswer, HistoryCall, Item, MessageFormat
from skillbelt.conversation.vendors.write import read_outgoing, write_request
from skillbelt.disclosure.body import list_docs, load_resource, load_skill_body
from skillbelt.disclosure.overview import default_budget, overview, visible
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import LoadError, PathEscape
from skillbelt.format.skill import Skill
from skillbelt.store.memory import MemoryStore
from skillbelt.store.protocol import SessionKey
from skillbelt.text import tokens
from skillbelt.tools.caller import Call
from skillbelt.tools.definitions import PROFILES, offered_names
from skillbelt.tools.schema import ToolResult, build, render

HOST = (
    "You are a careful assistant in a software project. Say what you did and what you left out. "
    "Ask before you change what the user did not mention."
)
OUTPUT = "checked: 12 files, 3 of them changed since the last run, nothing else to report\n" * 6
KEY = SessionKey("benchmark", "user", "chat")
# The list of a vendor's request that grows.
_GROWS: dict[MessageFormat, str] = {
    "openai": "messages",
    "responses": "input",
    "anthropic": "messages",
    "gemini": "contents",
}

What = Literal["user", "load", "list", "docs", "work"]


class Step(NamedTuple):
    """One thing that happens, after which a request goes out. `skill` counts in those chosen."""

    what: What
    skill: int = 0


class Request(NamedTuple):
    """A request: its messages, its turn, and the step before it."""

    turn: int
    step: Step
    messages: list[Message]

    @property
    def text(self) -> str:
        return serialised(self.messages)


class Belt(NamedTuple):
    """The skills of a folder: what a model is told of them, and their texts."""

    overview: str
    definitions: str
    materials: tuple[Material, ...]

    @property
    def tools(self) -> list[object]:
        """The definitions as values."""
        found: list[object] = json.loads(self.definitions)
        return found

    def chosen(self, count: int = 3) -> list[Material]:
        """Skills spread over the folder, those with documents if there are any."""
        able = [each for each in self.materials if each.docs] or list(self.materials)
        return [able[number * len(able) // count] for number in range(count)]


def read(folder: str) -> Belt:
    """Everything in the folder that a model may see and that can be loaded."""
    catalog = Catalog(paths=[folder], project_roots=False, user_roots=False)
    skills = visible(catalog.all())
    materials = [material for skill in skills if (material := _material(skill))]
    told = overview(skills, budget_tokens=default_budget(catalog.settings)).text
    # Where this checkout lies must not change the figures.
    told = told.replace(os.path.abspath(folder), "/project/.agents/skills")
    return Belt(told, _definitions([skill.name for skill in skills]), tuple(materials))


def _material(skill: Skill) -> Material | None:
    try:
        body = load_skill_body(skill).text
    except (LoadError, PathEscape):
        return None
    docs = []
    for path in list_docs(skill):
        try:
            docs.append((path, load_resource(skill, path).text))
        except (LoadError, PathEscape):
            continue
    return Material(skill.name, body, tuple(docs))


def _definitions(names: Sequence[str]) -> str:
    """The tools that progressive loading needs, as they stand in every request."""
    kinds = PROFILES["knowledge"]
    handlers = dict.fromkeys(kinds, _never)
    return json.dumps(render(build(offered_names(kinds), names, handlers), "openai"))


def _never(call: Call) -> ToolResult:
    raise AssertionError(f"{call} is never made here")


def serialised(messages: Iterable[Message]) -> str:
    """A request as one text; a message that ended stays the same when others follow."""
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in messages)


def cost(requests: Iterable[Request], definitions: str = "") -> int:
    """The prompt tokens of all requests together."""
    return sum(tokens(request.text) + tokens(definitions) for request in requests)


def progressive(
    script: Sequence[Step],
    belt: Belt,
    *,
    placement: Placement = "tool",
    mode: LoadMode = "turn",
    format: MessageFormat | None = None,
) -> list[Request]:
    """The requests of the script with skills loaded when they are asked for.

    With a format they are those of a vendor: all that does not grow first, then the list that does.
    """
    return _Host(belt, placement, mode, format).play(script)


def injected(script: Sequence[Step], belt: Belt, *, documents: bool) -> list[Request]:
    """The requests of the script with every skill in the system message; nothing to load then."""
    texts = [each if documents else each._replace(docs=()) for each in belt.materials]
    history: list[Message] = []
    requests = []
    turn = 0
    for step in script:
        if step.what in ("user", "work"):
            turn += step.what == "user"
            history += _happened(step, turn, f"c{len(history)}")
            system: Message = {"role": "system", "content": HOST}
            sent = materialize([system, *history], texts, placement="system")
            requests.append(Request(turn, step, sent))
    return requests


class _Host:
    """A host's loop with a session beside its own history."""

    def __init__(
        self,
        belt: Belt,
        placement: Placement,
        mode: LoadMode,
        format: MessageFormat | None = None,
    ) -> None:
        self.belt, self.chosen, self.format = belt, belt.chosen(), format
        self.placement: Placement = placement
        self.session = Session(MemoryStore(), KEY, mode=mode)
        self.history: list[Message] = [{"role": "system", "content": HOST}]
        self.turn = 0

    def play(self, script: Sequence[Step]) -> list[Request]:
        return [Request(self.turn, step, self._after(step)) for step in map(self._take, script)]

    def _take(self, step: Step) -> Step:
        self.turn += step.what == "user"
        if step.what == "user":
            self.session.start_run()
        self._do(step)
        return step

    def _do(self, step: Step) -> None:
        material = self.chosen[step.skill]
        name, call = material.name, f"c{len(self.history)}"
        paths = [path for path, _ in material.docs]
        if step.what == "load":
            self.session.load(name, call_id=call)
            self.history += _called(call, "skill_load", name, f"loaded: {name}")
        elif step.what == "list":
            self.history += _called(call, "skill_list_docs", name, json.dumps(paths))
        elif step.what == "docs":
            done = self.session.select_docs(name, paths[:1], mode="add", call_id=call)
            answer = json.dumps(done._asdict())
            self.history += _called(call, "skill_select_docs", name, answer)
        else:
            self.history += _happened(step, self.turn, call)

    def _after(self, step: Step) -> list[Message]:
        if self.format is None:
            return self._made(self.history)
        history = [item for one in self.history[1:] for item in _to_vendor(one, self.format)]
        outgoing = read_outgoing(history, self.format, self.history[0]["content"])
        request = write_request(outgoing, self._made(outgoing.messages), tools=self.belt.tools)
        grown: list[Message] = request.pop(_GROWS[self.format])
        return [request, *grown]

    def _made(self, history: list[Message]) -> list[Message]:
        sent = materialize(
            history,
            [_selected(self.belt, *each) for each in self.session.loaded()],
            placement=self.placement,
            overview=self.belt.overview,
            landed=self.session.landed(),
        )
        self.session.after_request()
        return sent


def _selected(belt: Belt, name: str, docs: Sequence[str], all_docs: bool) -> Material:
    material = next(each for each in belt.materials if each.name == name)
    kept = tuple(doc for doc in material.docs if all_docs or doc[0] in docs)
    return material._replace(docs=kept)


def _to_vendor(message: Message, format: MessageFormat) -> list[Item]:
    """A message of this host's history as the package of a vendor has it."""
    if message["role"] == "tool":
        call = HistoryCall(message["tool_call_id"], "tool", None, 0)
        return VENDORS[format].answer([CallAnswer(call, message["content"])])
    if not message.get("tool_calls"):
        role = {"assistant": "model"}.get(message["role"], "user")
        parts = [{"text": message["content"]}]
        return [{"role": role, "parts": parts} if format == "gemini" else message]
    [call] = message["tool_calls"]
    id, name, arguments = call["id"], call["name"], call["arguments"]
    text = json.dumps(arguments)
    match format:
        case "openai":
            function = {"name": name, "arguments": text}
            calls = [{"id": id, "type": "function", "function": function}]
            return [{"role": "assistant", "content": None, "tool_calls": calls}]
        case "responses":
            return [{"type": "function_call", "call_id": id, "name": name, "arguments": text}]
        case "anthropic":
            block = {"type": "tool_use", "id": id, "name": name, "input": arguments}
            return [{"role": "assistant", "content": [block]}]
        case "gemini":
            part = {"functionCall": {"id": id, "name": name, "args": arguments}}
            return [{"role": "model", "parts": [part]}]


def _happened(step: Step, turn: int, call: str) -> list[Message]:
    if step.what == "work":
        return _called(call, "shell", "", OUTPUT)
    said: list[Message] = [{"role": "assistant", "content": "Done; the summary is above."}]
    return [*(said if turn > 1 else []), {"role": "user", "content": f"Please do part {turn}."}]


def _called(call: str, tool: str, skill: str, answer: str) -> list[Message]:
    arguments = {"skill": skill} if skill else {"command": "make check"}
    calls = [{"id": call, "name": tool, "arguments": arguments}]
    return [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": call, "content": answer},
    ]
