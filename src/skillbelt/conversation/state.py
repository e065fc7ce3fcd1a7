"""One conversation: the loaded skills, their documents, and the answers that hold their text.

The object has no state. Everything is in the store, so that any process that opens the same key
sees the same state, also after a restart.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, cast

from skillbelt.errors import SkillNotFound
from skillbelt.events import Event, NewEvent
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.untrusted_json import read_json

LoadMode = Literal["turn", "once", "session"]
DocsMode = Literal["add", "replace", "clear"]

ALL = "*"
# How many answers with a skill's text are remembered for each; older ones count as absent.
MAX_GIVEN = 32
_KEYS = "temp:skill:"
_BODY = ""  # the key of the body among the places where a skill's text landed
_NOTHING: Mapping[str, object] = MappingProxyType({})


class LoadedSkill(NamedTuple):
    """A loaded skill, and the documents selected with it."""

    name: str
    docs: tuple[str, ...] = ()
    all_docs: bool = False


class LoadRequest(NamedTuple):
    """One load among those that a caller declares together."""

    name: str
    docs: Sequence[str] | None = None
    all_docs: bool = False
    call_id: str = ""


class RecordedText(NamedTuple):
    """A text of a skill that a model was given: digests of its parts, and of the whole answer.

    The parts are the body ("") and documents, by path. Without an `answer`, requests carry them.
    `arguments` of the call and the skill's `folder` are part of the body's text.
    """

    parts: Mapping[str, str]
    answer: str = ""
    arguments: str | None = None
    folder: str = ""


class SelectedDocs(NamedTuple):
    """The selection after a change; `selected_docs` is empty when all are selected."""

    skill: str
    selected_docs: tuple[str, ...]
    include_all_docs: bool
    mode: DocsMode


class Session:
    """One agent's view of a conversation.

    Agents that share a session do not share loaded skills. An unknown mode works as `turn`.
    `max_loaded` 0 means no cap. Methods that take a `state` use it instead of reading the store,
    when the caller has just done so.
    """

    def __init__(
        self,
        store: Store,
        key: SessionKey,
        *,
        agent: str = "",
        mode: str = "turn",
        max_loaded: int = 0,
    ) -> None:
        self.store, self.key, self.agent, self.max_loaded = store, key, agent, max_loaded
        self.mode: LoadMode = cast(LoadMode, mode) if mode in ("once", "session") else "turn"

    def state(self) -> dict[str, str]:
        """Read the state of this conversation from the store, for all agents."""
        return self.store.state(self.key)

    def events(self, after: int = 0) -> list[Event]:
        """Read the event log, of all agents."""
        return self.store.events(self.key, after)

    def loaded(self, state: Mapping[str, str] | None = None) -> list[LoadedSkill]:
        """Return the loaded skills, in name order."""
        draft = self._draft(state)
        return [LoadedSkill(name, *draft.docs(name)) for name in sorted(draft.names("loaded"))]

    def landed(self, state: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the call in whose answer each text first landed, as `materialize` takes it."""
        draft = self._draft(state)
        return {
            f"{name}#{part}" if part else name: call
            for name in draft.names("loaded")
            for part, call in draft.landed(name).items()
        }

    def given(self, state: Mapping[str, str] | None = None) -> dict[str, list[RecordedText]]:
        """Return the texts that a model was given, by skill; the newest is last."""
        draft = self._draft(state)
        return {name: draft.given(name) for name in draft.names("given")}

    def given_of(self, name: str, state: Mapping[str, str] | None = None) -> list[RecordedText]:
        """Return the texts of one skill that a model was given; the newest is last."""
        return self._draft(state).given(name)

    def order(self, state: Mapping[str, str] | None = None) -> list[str]:
        """Return the loaded or shown skills, the least recently used first."""
        draft = self._draft(state)
        return [*(name for name in draft.shown() if not draft.is_loaded(name)), *draft.order()]

    def load(
        self,
        name: str,
        docs: Sequence[str] | None = None,
        all_docs: bool = False,
        call_id: str = "",
        *,
        known: Container[str] | None = None,
        state: Mapping[str, str] | None = None,
        given: RecordedText | None = None,
        anew: bool = False,
    ) -> tuple[str, ...]:
        """Load a skill, or change the documents of a loaded one; return the evicted names.

        Without `docs` and `all_docs` the selection stays as it is. A name that is not `known`
        raises SkillNotFound, counts as a miss and changes no state. `given` is the text that the
        model gets by it; `anew` puts the text of a loaded skill into this call's answer.
        """
        if not _is_name(name) or (known is not None and name not in known):
            self.missed(name)
            raise _unknown(name, known)
        draft = self._draft(state)
        draft.load(LoadRequest(name, docs, all_docs, call_id))
        if anew:
            draft.land(name, call_id)
        draft.give(name, given)
        return self._evict_and_save(draft)

    def give(
        self, name: str, given: RecordedText, event: NewEvent, *, state: Mapping[str, str]
    ) -> None:
        """Record a text that a model was given without loading its skill."""
        draft = self._draft(state)
        draft.give(name, given)
        draft.events.append(event)
        self._save(draft)

    def load_all(
        self, requests: Iterable[LoadRequest], known: Container[str] | None = None
    ) -> tuple[str, ...]:
        """Load all or none: a name that is not `known` raises, and nothing changes."""
        wanted = list(requests)
        for request in wanted:
            if not _is_name(request.name) or (known is not None and request.name not in known):
                raise _unknown(request.name, known)
        draft = self._draft()
        for request in wanted:
            draft.load(request)
        return self._evict_and_save(draft)

    def select_docs(
        self,
        name: str,
        docs: Sequence[str] = (),
        all_docs: bool = False,
        mode: str = "replace",
        call_id: str = "",
        *,
        state: Mapping[str, str] | None = None,
        given: RecordedText | None = None,
    ) -> SelectedDocs:
        """Change which documents come with a skill; an unknown mode works as `replace`.

        Once all are selected, only `clear` selects fewer.
        """
        if not _is_name(name):
            raise _unknown(name, None)
        chosen: DocsMode = cast(DocsMode, mode) if mode in ("add", "clear") else "replace"
        draft = self._draft(state)
        before, every = draft.docs(name)
        if chosen == "clear":
            after: tuple[str, ...] | None = ()
        elif every or all_docs:
            after = None
        else:
            after = _unique([*before, *docs] if chosen == "add" else docs)
        draft.select(name, after, call_id, chosen)
        draft.give(name, given if draft.is_loaded(name) else None)
        draft.touch(name)
        self._save(draft)
        return SelectedDocs(name, after or (), after is None, chosen)

    def touch(self, name: str) -> None:
        """Mark the skill as just used, so that others are evicted before it."""
        draft = self._draft()
        draft.touch(name)
        self._save(draft)

    def unload(self, name: str, *, state: Mapping[str, str] | None = None) -> bool:
        """Unload the skill; return whether it was loaded."""
        draft = self._draft(state)
        was = draft.is_loaded(name)
        draft.unload(name, "asked")
        self._save(draft)
        return was

    def start_run(self, note: str = "") -> None:
        """Begin a run with a new user message; in `turn` mode this unloads everything.

        The model gets the note with this message; `note()` returns it until the next run.
        """
        draft = self._draft()
        if self.mode == "turn":
            draft.clear("run")
        draft.log("run_started")
        if note:
            draft.log("note", {"text": note})
        draft.put("note", note or None)
        self._save(draft)

    def note(self) -> str:
        """Return the note for the message of this run."""
        return self._draft().get("note")

    def after_request(self) -> None:
        """Record that a request was made; in `once` mode this unloads everything."""
        if self.mode == "once":
            draft = self._draft()
            draft.clear("once")
            self._save(draft)

    def clear(self) -> None:
        """Unload everything of this agent."""
        draft = self._draft()
        draft.clear("asked")
        self._save(draft)

    def missed(self, name: str) -> int:
        """Record a name that is not a skill; return the number of misses."""
        self.store.append(self.key, [NewEvent("skill_missed", self.agent, {"name": name})])
        return self.misses()

    def misses(self) -> int:
        """Return the number of wrong names since the last successful load in this run."""
        count = 0
        for event in reversed(self.events()):
            if event.agent == self.agent and event.type in ("run_started", "skill_loaded"):
                break
            count += event.agent == self.agent and event.type == "skill_missed"
        return count

    def record(self, message: Mapping[str, object]) -> None:
        """Store a message of the conversation, in the host's form."""
        self.store.append(self.key, [NewEvent("message", self.agent, message)])

    def messages(self) -> list[dict[str, object]]:
        """Return the stored messages of this agent."""
        return [
            dict(event.data)
            for event in self.events()
            if event.type == "message" and event.agent == self.agent
        ]

    def _draft(self, state: Mapping[str, str] | None = None) -> "_Draft":
        return _Draft(self.agent, self.state() if state is None else state)

    def _evict_and_save(self, draft: "_Draft") -> tuple[str, ...]:
        order = draft.order()
        evicted = order[: max(len(order) - self.max_loaded, 0)] if self.max_loaded > 0 else []
        for name in evicted:
            draft.unload(name, "cap")
        self._save(draft)
        return tuple(evicted)

    def _save(self, draft: "_Draft") -> None:
        delta = draft.delta()
        if delta or draft.events:
            self.store.append(self.key, draft.events, delta)


class _Draft:
    """An agent's part of a state while it is changed; the store gets all changes at once.

    Each skill has its own keys, so that two processes that load different skills at the same moment
    lose neither. The order may lose a touch then; nothing worse.
    """

    def __init__(self, agent: str, state: Mapping[str, str]) -> None:
        self.agent, self.before, self.after = agent, state, dict(state)
        self._changed: dict[str, str | None] = {}
        self.events: list[NewEvent] = []
        self._order: list[str] | None = None

    def delta(self) -> dict[str, str | None]:
        """Return the difference from the state that was read."""
        changed = sorted(self._changed.items())
        return {key: value for key, value in changed if value != self.before.get(key)}

    def log(self, kind: str, data: Mapping[str, object] = _NOTHING) -> None:
        self.events.append(NewEvent(kind, self.agent, data))

    def get(self, kind: str) -> str:
        """Return a value of the agent itself: `order` or `note`."""
        return self.after.get(self._agent_key(kind), "")

    def put(self, kind: str, value: str | None) -> None:
        self._set(self._agent_key(kind), value)

    def names(self, kind: str) -> list[str]:
        """Return the skills of this agent that have an entry of that kind, such as `loaded`."""
        start = self._key(kind, "")
        found = [key.removeprefix(start) for key in self.after if key.startswith(start)]
        return [name for name in found if _is_name(name)]

    def docs(self, name: str) -> tuple[tuple[str, ...], bool]:
        """Return the selected documents, and whether all are selected."""
        text = self.after.get(self._key("docs", name), "")
        return ((), True) if text == ALL else (_strings(text), False)

    def landed(self, name: str) -> dict[str, str]:
        """Return the calls in whose answers the body and each document landed."""
        found = _decode(self.after.get(self._key("landed", name), ""))
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

    def given(self, name: str) -> list[RecordedText]:
        """Return the texts of the skill that a model was given."""
        found = _decode(self.after.get(self._key("given", name), ""))
        listed = found if isinstance(found, list) else []
        return [
            RecordedText(
                {str(k): str(v) for k, v in one[1].items()},
                str(one[0]),
                None if one[2] is None else str(one[2]),
                str(one[3]),
            )
            for one in listed
            if isinstance(one, list) and len(one) == 4 and isinstance(one[1], dict)
        ]

    def give(self, name: str, given: RecordedText | None) -> None:
        """Add a text that a model was given; a repeated answer moves to the newest position."""
        if given is not None:
            known = self.given(name)
            before = [one for one in known if one.answer != given.answer]
            same = [one.parts for one in known if one.answer == given.answer]
            parts = {**(same[0] if same else {}), **given.parts}
            kept = [*before, given._replace(parts=parts)][-MAX_GIVEN:]
            value = _encode(
                [[one.answer, dict(one.parts), one.arguments, one.folder] for one in kept]
            )
            self._set(self._key("given", name), value)
            if not self.is_loaded(name):
                self.put("shown", _encode([*(one for one in self.shown() if one != name), name]))

    def shown(self) -> tuple[str, ...]:
        """Return the skills whose text was shown without loading them, the newest last."""
        return _strings(self.get("shown"))

    def order(self) -> list[str]:
        """Return the loaded skills, the least recently used first."""
        if self._order is None:
            loaded = set(self.names("loaded"))
            kept = _unique(name for name in _strings(self.get("order")) if name in loaded)
            self._order = [*sorted(loaded.difference(kept)), *kept]
        return self._order

    def is_loaded(self, name: str) -> bool:
        return self._key("loaded", name) in self.after

    def touch(self, name: str) -> None:
        order = self.order()
        if name in order:
            order.remove(name)
            order.append(name)
            self.put("order", _encode(order))

    def load(self, request: LoadRequest) -> None:
        name, call = request.name, request.call_id
        docs = None if request.all_docs else _unique(request.docs or ())
        given = request.all_docs or request.docs is not None
        if self.is_loaded(name):
            if given:
                self.select(name, docs, call, "replace")
        else:
            if given:
                self._set(self._key("docs", name), ALL if docs is None else _encode(docs))
            self.order().append(name)
            self._set(self._key("loaded", name), "1")
            self.land(name, call)
            self.log(
                "skill_loaded", {"name": name, "docs": self._describe_docs(name), "call_id": call}
            )
        self.touch(name)

    def land(self, name: str, call: str) -> None:
        """Put the whole text of a skill into the call's answer."""
        self._set(self._key("landed", name), _encode({_BODY: call}))

    def select(self, name: str, docs: tuple[str, ...] | None, call: str, mode: DocsMode) -> None:
        """Select these documents, or all for None; new ones land in the call's answer."""
        before = self.docs(name)
        key = self._key("docs", name)
        self._set(key, ALL if docs is None else _encode(docs))
        if self.docs(name) == before:
            return
        if self.is_loaded(name):
            landed = self._place_documents(name, before, docs, call)
            self._set(self._key("landed", name), _encode(landed))
        data = {"name": name, "docs": self._describe_docs(name), "mode": mode, "call_id": call}
        self.log("docs_selected", data)

    def unload(self, name: str, reason: str) -> None:
        order = self.order()
        if name in order:
            order.remove(name)
            self.log("skill_unloaded", {"name": name, "reason": reason})
        for kind in ("loaded", "docs", "landed", "given"):
            self._set(self._key(kind, name), None)
        self.put("order", _encode(order) if order else None)
        shown = [one for one in self.shown() if one != name]
        self.put("shown", _encode(shown) if shown else None)

    def clear(self, reason: str) -> None:
        for name in sorted({*self.names("loaded"), *self.names("docs"), *self.names("given")}):
            self.unload(name, reason)

    def _place_documents(
        self,
        name: str,
        before: tuple[tuple[str, ...], bool],
        docs: tuple[str, ...] | None,
        call: str,
    ) -> dict[str, str]:
        """Return where everything lands once `docs` are selected; selected ones stay in place."""
        old, (selected, every) = self.landed(name), before
        body = old.get(_BODY, "")
        whole = old.get(ALL, body)
        if docs is None:
            return {_BODY: body, **{doc: old.get(doc, body) for doc in selected}, ALL: call}
        stay = {doc: old.get(doc, whole) for doc in docs if every or doc in selected}
        return {_BODY: body, **{doc: stay.get(doc, call) for doc in docs}}

    def _describe_docs(self, name: str) -> object:
        docs, every = self.docs(name)
        return ALL if every else list(docs)

    def _key(self, kind: str, name: str) -> str:
        return f"{_KEYS}{kind}:{self.agent}/{name}" if self.agent else f"{_KEYS}{kind}:{name}"

    def _agent_key(self, kind: str) -> str:
        return f"{_KEYS}{kind}:{self.agent}" if self.agent else f"{_KEYS}{kind}"

    def _set(self, key: str, value: str | None) -> None:
        self._changed[key] = value
        if value is None:
            self.after.pop(key, None)
        else:
            self.after[key] = value


def _is_name(name: str) -> bool:
    """Return whether it can be a skill's id: with a slash it would be another agent's key."""
    return bool(name) and "/" not in name


def _unknown(name: str, known: Container[str] | None) -> SkillNotFound:
    return SkillNotFound(name, known if isinstance(known, Iterable) else ())


def _unique(docs: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(docs))


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _decode(text: str) -> object:
    """Parse a value of the state; None when it is not JSON."""
    try:
        return read_json(text) if text else None
    except ValueError:
        return None


def _strings(text: str) -> tuple[str, ...]:
    found = _decode(text)
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
