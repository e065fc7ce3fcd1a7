"""The caller of a tool: which skills it may see, and what else a call may reach."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from skillbelt.conversation.state import Session
from skillbelt.disclosure.body import Loaded, load_document, load_skill_body, place_of
from skillbelt.disclosure.overflow import Storage
from skillbelt.disclosure.overview import visible
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import LoadError, PathEscape, PermissionDenied, RunRefused
from skillbelt.format.skill import Skill, Skills
from skillbelt.permission.gate import Gate, session_id
from skillbelt.permission.rules import Initiator, Request
from skillbelt.running.call import Asker
from skillbelt.running.following import UNWATCHED, Watch
from skillbelt.settings import Settings
from skillbelt.store import SessionKey
from skillbelt.tools.definitions import READERS, RUNNING

if TYPE_CHECKING:
    from skillbelt.running.background import Background
    from skillbelt.running.json_call import Execution
    from skillbelt.running.workbench import Workbench
    from skillbelt.search.protocol import Result

# Whether a skill exists for the model and its user.
Visible = Callable[[Skill], bool]
# How long a model's search waits while the index is built for the first time.
SEARCH_WAIT_SECONDS = 60.0

STORED = "stored:"
# Keys of a session's state. The user brought the skill in, so the model may use it; or a request to
# load it was granted, so the model may read more of it. Both end when the skill changes.
BROUGHT, GRANTED = "temp:skill:asked:", "temp:skill:granted:"


class Audience(NamedTuple):
    """The view of a caller on the catalogue: an agent, its gate, and the host's filters.

    With `files`, the paths in play, a skill made for some files is included only if one of them
    matches.
    """

    gate: Gate
    agent: str | None = None
    filters: tuple[Visible, ...] = ()
    files: Sequence[str] | None = None

    def admits(self, skill: Skill) -> bool:
        """Return whether the host's filters admit the skill."""
        return all(keep(skill) for keep in self.filters)

    def allows(self, skill: Skill) -> bool:
        """Return whether the skill exists and no rule denies it to the model."""
        hides = self.gate.hides_skills
        return self.admits(skill) and not (hides and not self.gate.permit(self.agent, skill))

    def could_use(self, skill: Skill) -> bool:
        """Return whether the model may get the skill, if only because the user calls it."""
        known = skill.model_visible or skill.user_invocable
        return known and self.admits(skill) and self.gate.permit(self.agent, skill)

    def without_denied(self, names: Mapping[str, str]) -> Mapping[str, str]:
        """Return the names of tools, by kind, without those for which every use is denied."""
        if self.gate.can_run(self.agent):
            return names
        return {kind: name for kind, name in names.items() if kind not in RUNNING}

    def view(self, skills: Skills) -> Skills:
        """Return the skills that the model may see.

        Without filters the same object for the same skills.
        """
        seen = skills.derive("visible", lambda: Skills.of(visible(skills.values())))
        if self.gate.hides_skills:
            seen = seen.derive(
                ("permitted", self.gate, self.agent), lambda: self._find_permitted(seen)
            )
        if not self.filters and self.files is None:
            return seen
        # A filter of the host may answer differently next time, so nothing is cached.
        kept = [skill for skill in seen.values() if self.admits(skill)]
        return Skills.of(kept if self.files is None else visible(kept, files=self.files))

    def _find_permitted(self, skills: Skills) -> Skills:
        return Skills.of(one for one in skills.values() if self.gate.permit(self.agent, one))


class Executors(Protocol):
    """The executors that run the commands of skills; both are created on first use."""

    @property
    def workbench(self) -> Workbench: ...  # noqa: D102

    @property
    def background(self) -> Background: ...  # noqa: D102

    def execute(  # noqa: D102
        self, skill: Skill, input: object, **options: Any
    ) -> Execution: ...


class Runs(NamedTuple):
    """The means to run commands: the executors, the session, and a watch."""

    workbench: Workbench
    background: Background
    execute: Callable[..., Execution]
    who: Asker
    watch: Watch = UNWATCHED


class Caller:
    """One call's side of the runtime: the skills it may see, stored texts, the conversation.

    An object serves one call, so the state of the conversation is read once. Without a `session`
    nothing is marked as loaded and the text is in the answer; `key` is the session of runs and
    permissions. With `inline` the text is in the answer in any case, because no later request could
    carry it. `shown` holds the results that the model already has. `brief` says that the schemas it
    was offered leave out rare arguments.
    """

    def __init__(
        self,
        catalog: Catalog,
        audience: Audience,
        storage: Storage,
        *,
        skills: Skills,
        key: SessionKey,
        session: Session | None = None,
        names: Mapping[str, str],
        executors: Callable[[], Executors] | None = None,
        watch: Watch | None = None,
        inline: bool = False,
        shown: Collection[str] = (),
        state: Mapping[str, str] | None = None,
        brief: bool = False,
    ) -> None:
        self.catalog, self.audience, self.storage = catalog, audience, storage
        self.gate, self.settings, self.limits = (
            audience.gate,
            catalog.settings,
            catalog.settings.limits,
        )
        self.skills, self.key, self.session, self.names = skills, key, session, names
        self.inline, self.shown = inline or session is None, shown
        self.executors, self._watch, self.brief = executors, watch or UNWATCHED, brief
        if state is not None:
            self.__dict__["state"] = state

    @cached_property
    def state(self) -> Mapping[str, str]:
        """The state of the conversation as of the beginning of the call."""
        return self.session.state() if self.session else {}

    @cached_property
    def brought(self) -> dict[str, Skill]:
        """The skills that the user or the host brought in; the model may not load all of them."""
        names = [key.removeprefix(BROUGHT) for key in self.state if key.startswith(BROUGHT)]
        known = self.catalog.snapshot
        found = (known[name] for name in names if name in known)
        return {skill.name: skill for skill in found if self.audience.admits(skill)}

    def look(self) -> Skills:
        """Scan again; return the skills that the caller may see now."""
        self.skills = self.audience.view(self.catalog.current())
        return self.skills

    def search(self, text: str, limit: int) -> list[Result]:
        """Return the best of the skills that the caller may see now."""
        wait = SEARCH_WAIT_SECONDS
        return self.catalog.search_in(text, self.look(), limit, wait_seconds=wait)

    # Permission

    def approve(self, skill: Skill, *, loading: bool = False) -> Request:
        """Return the request under which a model may have the skill; else raise PermissionDenied.

        Permission to read more of a skill is not permission to load it again: `loading` says that
        the model wants to.
        """
        request = self.request(skill)
        granting = (BROUGHT,) if loading else (BROUGHT, GRANTED)
        if any(self.state.get(kind + skill.name) == request.hash for kind in granting):
            self.gate.let_through(request)
            return request
        decision = self.gate.check(request)
        if not decision.allowed:
            raise PermissionDenied(skill.name, decision.reason)
        if self.session is None:
            self.gate.let_through(request._replace(session=session_id(self.key)))
        elif decision.action == "ask":
            self.session.store.append(self.key, [], {GRANTED + skill.name: request.hash})
            # Asking takes time, and the skill may have changed meanwhile.
            self.__dict__.pop("state", None)
        return request

    def request(self, skill: Skill, initiator: Initiator = "model") -> Request:
        """Return the request to load a skill."""
        if self.session is None:
            return self.gate.load_request(skill, initiator)
        return self.gate.load_request(skill, initiator, self.session.agent, self.key)

    def runs(self) -> Runs:
        """Return where commands run, and for which session; RunRefused if this host runs none."""
        if self.executors is None:
            raise RunRefused("executor is not configured: this host runs nothing")
        who = Asker(self.key)
        if self.session is not None:
            who = Asker(self.key, "model", self.session.agent, self.gate)
        executors = self.executors()
        return Runs(
            workbench=executors.workbench,
            background=executors.background,
            execute=executors.execute,
            who=who,
            watch=self._watch,
        )

    # Texts

    def body(self, skill: Skill, arguments: str | None = None, *, folder: str = "") -> Loaded:
        """Read the body as a model gets it; `folder` is the skill's folder in its text."""
        session = self.key.session if self.session else ""
        variables = variables_of(skill, self.settings, session)
        if folder:
            variables["CLAUDE_SKILL_DIR"] = folder
        loaded = load_skill_body(
            skill,
            self.limits,
            overflow=self.settings.body_overflow,
            storage=self.overflow,
            arguments=arguments,
            variables=variables,
        )
        return loaded._replace(text=self.presentable(loaded.text))

    def documents(self, skill: Skill, paths: Iterable[str]) -> list[GivenDocument]:
        """Read whole documents, as far as the limit allows."""
        return [self._document(skill, path) for path in paths]

    def _document(self, skill: Skill, path: str) -> GivenDocument:
        try:
            loaded = load_document(skill, path, self.limits, storage=self.overflow)
        except (LoadError, PathEscape) as error:
            reason = self.presentable(str(error))
            report: dict[str, object] = {"path": path, "error": reason}
            return GivenDocument(path, not_given(reason), report)
        facts = {**report_of(loaded), "path": path}
        return GivenDocument(path, self.presentable(loaded.text), facts)

    @property
    def overflow(self) -> Storage | None:
        """The storage for the rest of a cut text; None if the model has no tool to read it with."""
        return None if self.names.keys().isdisjoint(READERS) else self.storage

    def presentable(self, text: str) -> str:
        """Replace the folder of stored texts by the prefix under which a model reads them."""
        for folder in self.storage.spellings:
            text = text.replace(folder, STORED)
        return text


class GivenDocument(NamedTuple):
    """A document as a model gets it, and the report on it: with `error` if it cannot be read."""

    path: str
    text: str
    report: Mapping[str, object]


class Call(NamedTuple):
    """One call of a tool, with arguments that fit its schema."""

    arguments: Mapping[str, object]
    caller: Caller
    id: str = ""


def variables_of(skill: Skill, settings: Settings, session: str = "") -> dict[str, str]:
    """Return the values of `${NAME}` in a skill's text."""
    values = {
        "CLAUDE_SKILL_DIR": place_of(skill),
        "CLAUDE_PROJECT_DIR": settings.project,
        "CLAUDE_SESSION_ID": session,
    }
    return {name: value for name, value in values.items() if value}


def not_given(reason: str) -> str:
    """Return the placeholder for a text that cannot be read."""
    return f"(cannot be given now: {reason})"


def report_of(loaded: Loaded, documents: Iterable[GivenDocument] = ()) -> dict[str, object]:
    """Return the report for programs, with the name under which the rest of a text is stored.

    `truncated` also covers the documents, each of which has its own report.
    """
    facts: dict[str, object] = loaded.report._asdict()
    reference = loaded.report.storage_ref
    facts["storage_ref"] = STORED + os.path.basename(reference) if reference else ""
    reports = [dict(document.report) for document in documents]
    if reports:
        facts["documents"] = reports
        facts["truncated"] = any(one.get("truncated") for one in (facts, *reports))
    return facts
