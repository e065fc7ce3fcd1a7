"""One conversation through the facade: what to send to the model, and what its calls give."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple, overload

from skillbelt.conversation.changes import (
    Mark,
    Note,
    changes_since,
    read_notes,
    with_notes,
    write_notes,
)
from skillbelt.conversation.messages import Material, Message, block, materialize
from skillbelt.conversation.state import LoadedSkill, LoadRequest, Session
from skillbelt.disclosure.body import Loaded, list_docs, sample_files
from skillbelt.disclosure.overflow import Storage
from skillbelt.errors import LoadError, PathEscape, SkillNotFound
from skillbelt.events import NewEvent
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Gate, session_id, tool_request
from skillbelt.permission.rules import Decision, Initiator, Request
from skillbelt.running.following import Watch
from skillbelt.runtime.shelf import Shelf, Visible
from skillbelt.runtime.threads import in_thread
from skillbelt.settings import Settings
from skillbelt.tools.handlers import UNNAMED
from skillbelt.tools.replies import body, content, document, presentable
from skillbelt.tools.schema import Access, Runs, Tool, ToolFormat, ToolResult, render
from skillbelt.values import Limits

_CALLED = re.compile(r"\s*[/$]([^\W_][\w.-]*)(?:\s+(.*))?", re.DOTALL)
# The user brought the skill in, so the model may use it; or a request to load it was granted, so
# the model may read on in it. Either as long as the skill is the same.
_BROUGHT, _GRANTED = "temp:skill:asked:", "temp:skill:granted:"
_YOUNG_SECONDS = 2.0
_State = dict[str, str]


class Command(NamedTuple):
    """A skill the user called by name. `text` goes to the model in place of what the user wrote.

    When it was refused, `error` says why and there is no text.
    """

    skill: str
    arguments: str
    text: str
    error: str = ""


class RuntimeSession:
    """One agent's side of a conversation: what to send to the model, and what its calls give.

    All that must last is in the store. The host keeps its own history and gives it to `request`.
    """

    def __init__(
        self,
        shelf: Shelf,
        session: Session,
        storage: Storage,
        visible: Visible | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.shelf, self.session, self.storage, self.visible = shelf, session, storage, visible
        self.gate = gate or shelf.gate
        self.files: Sequence[str] | None = None
        self.searching = False  # whether search is offered however few skills there are
        self._declared: list[LoadRequest] = []
        self._shown: frozenset[str] = frozenset()
        self._allowed: dict[str, Request] = {}  # what was last asked for, by skill
        # What was read for the last request, for as long as the files are as they were.
        self._materials: dict[str, tuple[object, Material]] = {}

    def __repr__(self) -> str:
        key = self.session.key
        return f"<RuntimeSession {key.app}/{key.user}/{key.session}>"

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.shelf.settings

    # What the model gets

    def request(
        self, messages: Sequence[Message], *, new_turn: bool | None = None
    ) -> list[Message]:
        """The messages to send: the history with what is loaded now in its place.

        A user message that was not there before begins a turn, unless `new_turn` says whether: the
        catalogue is looked at again, and what changed is told with that message. The system text
        stays as it was first given.
        """
        state = self._begun(messages, new_turn)
        self._declared = []
        noted = with_notes(messages, read_notes(state.get(self._key("notes"), "")))
        access = self._access()
        loaded = self.session.loaded()
        made = materialize(
            noted,
            [text for one in loaded for text in self._material(one, access)],
            placement=self.shelf.settings.placement,
            overview=state.get(self._key("system"), ""),
            landed={k: v for k, v in self.session.landed().items() if v != UNNAMED},
        )
        self.session.after_request()
        self._materials = {
            one.name: self._materials[one.name] for one in loaded if one.name in self._materials
        }
        results = (one.get("content") for one in made if one.get("role") == "tool")
        self._shown = frozenset(text for text in results if isinstance(text, str))
        return made

    def _begun(self, messages: Sequence[Message], new_turn: bool | None) -> _State:
        """The state, after a turn was begun if the messages begin one."""
        state = self.session.state()
        mark, before = Mark.of(messages), Mark.read(state.get(self._key("run"), ""))
        if before is None or (mark.follows(before) if new_turn is None else new_turn):
            self._begin(mark, state)
            return self.session.state()
        return state

    def _begin(self, mark: Mark, state: _State) -> None:
        self.shelf.look()
        skills = self.skills()
        known, before = self.shelf.remembered(skills), state.get(self._key("known"), "")
        search = self.shelf.search_tool
        note = changes_since(before, skills, now=known, search=search)
        delta: dict[str, str | None] = {self._key("run"): str(mark)}
        if known != before:
            delta[self._key("known")] = known
        if self._key("system") not in state:
            delta[self._key("system")] = self._system(skills)
            delta[self._key("crowded")] = "yes" if self.shelf.crowded(skills) else "no"
        if note:
            notes = read_notes(state.get(self._key("notes"), ""))
            delta[self._key("notes")] = write_notes([*notes, Note(mark, note)])
        self.session.start_run(note)
        self.session.store.append(self.session.key, [], delta)
        if self._declared:
            self.session.load_all(self._declared)

    def _system(self, skills: Mapping[str, Skill]) -> str:
        """What the system message says of skills for as long as the conversation lasts."""
        shelf = self.shelf
        text = shelf.overview_of(skills, self._suggested()).text
        apart = text and shelf.settings.overview_format != "plain"
        always = [shelf.get_skill(name) for name in shelf.always]
        blocks = [block(Material(one.name, body(one, self._access()).text)) for one in always]
        return "\n\n".join(
            filter(None, [text, shelf.guidance_for(skills) if apart else "", *blocks])
        )

    def suggest(self, request: str, k: int = 5) -> list[str]:
        """The names of the skills that the request most likely needs.

        Decided once: asked again, a conversation gives the same. Asked before the first request
        to the model, the overview describes them where it can not describe all, and stays so.
        """
        if self._key("suggested") not in self.session.state():
            self.shelf.look()
            found = self.shelf.search_in(request, self.skills(), k)
            names = "\n".join(one.skill.name for one in found)
            self.session.store.append(self.session.key, [], {self._key("suggested"): names})
        return self._suggested()

    def _crowded(self) -> bool | None:
        """Whether there were too many skills to describe when it began; it stays with that."""
        if self.searching:
            return True
        kept = self.session.state().get(self._key("crowded"))
        return None if kept is None else kept == "yes"

    def _suggested(self) -> list[str]:
        kept = self.session.state().get(self._key("suggested"), "")
        skills = self.skills()
        return [name for name in kept.split("\n") if name in skills]

    def _material(self, loaded: LoadedSkill, access: Access) -> list[Material]:
        """The text of a loaded skill; none of one that is not there any more."""
        skill = self.shelf.skills().get(loaded.name)
        if skill is None or not self.shelf.there(skill, self.visible):
            return []
        if self._changed(skill):
            told = "(changed since it was allowed; load it again to ask for it as it is now)"
            return [Material(skill.name, told)]
        paths = list_docs(skill, access.settings.limits) if loaded.all_docs else loaded.docs
        stamp = (skill, paths, _stats(skill, paths))
        held = self._materials.get(skill.name)
        if held is None or held[0] != stamp:
            self._materials[skill.name] = held = (stamp, self._read(skill, paths, access))
        return [held[1]]

    def _read(self, skill: Skill, paths: Sequence[str], access: Access) -> Material:
        docs = tuple((path, _text(document, skill, path, access)) for path in paths)
        return Material(skill.name, _text(_body_text, skill, access), docs)

    def _changed(self, skill: Skill) -> bool:
        """Whether somebody was asked for the skill, and it is not what they saw any more."""
        state = self.session.state()
        seen = [
            state[kind + skill.name] for kind in (_BROUGHT, _GRANTED) if kind + skill.name in state
        ]
        return bool(seen) and not skill.trusted and self._request(skill, "model").hash not in seen

    # What its calls give

    def skills(self) -> Mapping[str, Skill]:
        """What the model may see, by name, as of the last look."""
        agent, visible, files = self.session.agent, self.visible, self.files
        return self.shelf.available(agent, visible=visible, files=files, gate=self.gate)

    def loaded(self) -> list[LoadedSkill]:
        """What is loaded now, in name order."""
        return self.session.loaded()

    @overload
    def tools(self, format: None = None, *, listing: bool = ...) -> list[Tool]: ...
    @overload
    def tools(self, format: ToolFormat, *, listing: bool = ...) -> list[dict[str, object]]: ...
    def tools(
        self, format: ToolFormat | None = None, *, listing: bool = False
    ) -> list[Tool] | list[dict[str, object]]:
        """The tools, as `Runtime.tools` gives them, for what this conversation may see."""
        made = self.shelf.tools_for(self.skills(), listing=listing, crowded=self._crowded())
        return made if format is None else render(made, format)

    def call_sync(
        self,
        tool: str,
        arguments: object = None,
        call_id: str = "",
        *,
        watch: Watch | None = None,
        inline: bool = False,
        shown: Iterable[str] | None = None,
    ) -> ToolResult:
        """What a tool call gives. Whatever a model did wrong is a result with an `error`.

        `watch` follows the command that the call runs, if it runs one. With `inline` the text of
        what is loaded is in the answer, for a host that makes its requests without `request`;
        `shown` are then the answers that the model has before it, which are not given again.
        """
        access = self._access()._replace(inline=inline)
        if shown is not None:
            access = access._replace(shown=frozenset(shown))
        if watch is not None:
            access = access._replace(runs=lambda: self._runs()._replace(watch=watch))
        return self.shelf.run_tool(tool, arguments, access, call_id)

    call = in_thread(call_sync)

    def _access(self) -> Access:
        return Access(
            skills=self.skills(),
            settings=self.shelf.settings,
            storage=self.storage,
            approve=self._approve,
            look=self._look,
            record=self._record,
            session=self.session,
            names=self.shelf.names_for(self.skills(), self._crowded()),
            shown=self._shown,
            called=self._called(),
            runs=self._runs,
            search=self.shelf.search_in,
        )

    def _runs(self) -> Runs:
        from skillbelt.running.run import Asker

        session = self.session
        who = Asker(session.key, "model", session.agent, self.gate)
        return Runs(self.shelf.workbench, self.shelf.background, who)

    def _called(self) -> dict[str, Skill]:
        """What the user or the host brought in, whether or not the model may bring it in itself."""
        state, skills = self.session.state(), self.shelf.skills()
        names = [key.removeprefix(_BROUGHT) for key in state if key.startswith(_BROUGHT)]
        asked = [skills[name] for name in names if name in skills]
        return {skill.name: skill for skill in asked if self.shelf.there(skill, self.visible)}

    def _look(self) -> Mapping[str, Skill]:
        self.shelf.look()
        return self.skills()

    def _request(self, skill: Skill, initiator: Initiator) -> Request:
        session = self.session
        return self.gate.load_request(skill, initiator, session.agent, session.key)

    def _approve(self, skill: Skill, loading: bool) -> str | None:
        state = self.session.state()
        held = [_BROUGHT] if loading else [_BROUGHT, _GRANTED]
        request = self._allowed[skill.name] = self._request(skill, "model")
        if any(state.get(kind + skill.name) == request.hash for kind in held):
            self.gate.let_through(request)
            return None
        decision = self.gate.check(request)
        if decision.allowed and decision.action == "ask":
            granted = {_GRANTED + skill.name: request.hash}
            self.session.store.append(self.session.key, [], granted)
        return None if decision.allowed else decision.reason

    def approve(self, skill: Skill) -> str | None:
        """Why the model may not read in the skill, asking where a rule says so; None: it may."""
        return self._approve(skill, False)

    def gave(self, skill: Skill, path: str, sha256: str) -> None:
        """Write down that a file of a skill was given, whole and as it is."""
        facts: dict[str, object] = {"path": path, "sha256": sha256, "truncated": False}
        self.gate.record("load", self._request(skill, "model"), facts)

    def _record(self, skill: Skill, loaded: Loaded) -> None:
        request = self._allowed.get(skill.name) or self._request(skill, "model")
        self.gate.record_load(request, loaded, skill)

    def permits(self, tool: str, argument: str = "", *, sandboxed: bool = False) -> Decision:
        """Whether the host's own tool may be used now, as in `Bash` with `git add .`.

        Where nobody wrote a rule, what a skill of this turn declares in `allowed-tools` is granted
        without asking, as long as its origin is trusted and the tool works in skillbelt's sandbox:
        `sandboxed` says so.
        """
        session, settings = self.session, self.settings
        request = tool_request(
            tool,
            argument,
            agent=session.agent,
            session=session_id(session.key),
            home=settings.home,
            folder=settings.project,
        )
        bounded = sandboxed and settings.sandbox != "none"
        return self.gate.check(request, self._in_use() if bounded else ())

    def _in_use(self) -> list[Skill]:
        """The skills that came in since the user last spoke."""
        events = self.session.events()
        turn = takewhile(lambda event: event.type != "run_started", reversed(events))
        names = {str(e.data.get("name")) for e in turn if e.type == "skill_loaded"}
        skills = self.shelf.skills()
        return [skills[name] for name in sorted(names) if name in skills]

    # What the user and the host ask for

    def user_command(self, text: str) -> Command | None:
        """The skill that `/name arguments` or `$name arguments` calls; None for any other text."""
        called = _CALLED.fullmatch(text)
        skill = self._asked_for(called[1]) if called else None
        if called is None or skill is None:
            return None
        arguments = (called[2] or "").strip()
        request = self._request(skill, "user")
        refused = self._refusal(skill, request)
        if refused:
            return Command(skill.name, arguments, "", refused)
        try:
            loaded = body(skill, self._access(), arguments)
            given = content(skill, loaded.text, sample_files(skill, self.settings.limits))
            self.gate.record_load(request, loaded, skill)
        except (LoadError, PathEscape) as error:
            return Command(skill.name, arguments, "", presentable(str(error), self._access()))
        self._remember(skill, request, arguments)
        return Command(skill.name, arguments, given)

    def _asked_for(self, name: str) -> Skill | None:
        skill = self.shelf.skills().get(name) or self.shelf.look().get(name)
        return skill if skill and self.shelf.there(skill, self.visible) else None

    def _refusal(self, skill: Skill, request: Request) -> str | None:
        if not skill.user_invocable:
            return f"{skill.name} can not be called by the user: its author left it to the model"
        decision = self.gate.check(request)
        return None if decision.allowed else decision.reason

    def _remember(self, skill: Skill, request: Request, arguments: str) -> None:
        """The user called the skill, so the model may read on in it as long as it is the same."""
        data = {"name": skill.name, "arguments": arguments, "placement": "user"}
        event = NewEvent("skill_loaded", self.session.agent, data)
        brought = {_BROUGHT + skill.name: request.hash}
        self.session.store.append(self.session.key, [event], brought)

    def declare(self, skills: Iterable[str | LoadRequest]) -> tuple[str, ...]:
        """Load what the host wants there for the coming turn, all or none; the names pushed out.

        Raises SkillNotFound or LoadError, and nothing changes.
        """
        wanted = [LoadRequest(one) if isinstance(one, str) else one for one in skills]
        allowed = [self._declarable(request) for request in wanted]
        evicted = self.session.load_all(wanted)
        brought = {_BROUGHT + one.skill: one.hash for one in allowed}
        self.session.store.append(self.session.key, [], brought)
        self._declared += wanted
        return evicted

    def _declarable(self, wanted: LoadRequest) -> Request:
        skill = self._asked_for(wanted.name)
        if skill is None:
            there = (one for one in self.shelf.skills().values() if self._asked_for(one.name))
            raise SkillNotFound(wanted.name, [one.name for one in there])
        request = self.gate.require(self._request(skill, "user"))
        _check_docs(skill, wanted.docs or (), self.shelf.settings.limits)
        self.gate.record_load(request, body(skill, self._access()), skill)
        return request

    def unload(self, name: str) -> bool:
        """Put a loaded skill away; whether it was loaded."""
        self._declared = [request for request in self._declared if request.name != name]
        return self.session.unload(name)

    def _key(self, kind: str) -> str:
        agent = self.session.agent
        return f"temp:skill:{kind}:{agent}" if agent else f"temp:skill:{kind}"


def _check_docs(skill: Skill, docs: Sequence[str], limits: Limits) -> None:
    there = list_docs(skill, limits) if docs else []
    for path in docs:
        if path not in there:
            raise LoadError(path, f"{skill.name} has no such document")


def _stats(skill: Skill, paths: Sequence[str]) -> object:
    """What tells whether a skill's files are those that were read; nothing equals it if unsure."""
    try:
        found = [os.stat(skill.location), *(os.stat(f"{skill.dir}/{path}") for path in paths)]
    except (OSError, ValueError):
        return object()
    # A second change within one tick of the file system's clock would not show.
    if max(one.st_ctime for one in found) > time.time() - _YOUNG_SECONDS:
        return object()
    return [(one.st_mtime_ns, one.st_ctime_ns, one.st_size, one.st_ino) for one in found]


def _body_text(skill: Skill, access: Access) -> str:
    return body(skill, access).text


def _text(read: Callable[..., str], *arguments: object) -> str:
    """What could be read; else, in its place, why it could not."""
    try:
        return read(*arguments)
    except (LoadError, PathEscape) as error:
        access = arguments[-1]
        assert isinstance(access, Access)
        return f"(can not be given now: {presentable(str(error), access)})"
