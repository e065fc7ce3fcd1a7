"""The skills of a project as its agents may see and load them, and the tools for that."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Self, overload

from skillbelt.conversation.changes import remember
from skillbelt.disclosure.body import Loaded, load_resource, load_skill_body
from skillbelt.disclosure.overflow import Storage
from skillbelt.disclosure.overview import (
    GUIDANCE_HEADER,
    Overview,
    compact,
    default_budget,
    overview,
)
from skillbelt.disclosure.overview import visible as model_may_see
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import SkillNotFound
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Ask, Gate
from skillbelt.permission.rules import Request, Rule
from skillbelt.settings import Settings
from skillbelt.store import SessionKey, Store, open_store
from skillbelt.tools.definitions import SEARCH
from skillbelt.tools.handlers import HANDLERS, MAX_ENUM_SKILLS, dispatch, failed
from skillbelt.tools.replies import variables_of
from skillbelt.tools.schema import (
    Access,
    Tool,
    ToolFormat,
    ToolResult,
    build,
    choose,
    guidance,
    offered_names,
    render,
)
from skillbelt.values import Limits

if TYPE_CHECKING:
    from skillbelt.artifacts import ArtifactStore
    from skillbelt.running.background import Background
    from skillbelt.running.executor import Workbench
    from skillbelt.search.protocol import Result

# A model's search waits so long while the index is built for the first time.
SEARCH_WAIT_SECONDS = 60.0

_MAX_VIEWS = 64  # of the catalogue, of which it is known whether they are too many to describe
# Whether a skill is there at all for whoever asks now.
Visible = Callable[[Skill], bool]


class Shelf:
    """What there is, what a model is told of it, and what may be loaded.

    As of the last look: nothing is scanned in between. `rules` are the host's, stronger than those
    of any file; `ask` answers what they leave open. `visible` hides skills from the model and its
    user alike. `tools` is an exact list in place of the profile, `always` are skills whose text
    every conversation begins with, and `guidance` stands in place of the text about the tools (""
    for none). `progress` is told each stage of a scan and of a run, as a line of text.
    """

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        store: Store | None = None,
        artifacts: ArtifactStore | None = None,
        rules: Iterable[Rule] = (),
        ask: Ask | None = None,
        visible: Visible | None = None,
        tools: Iterable[str] | None = None,
        always: Iterable[str] = (),
        guidance: str | None = None,
        progress: Callable[[str], None] | None = None,
        **overrides: object,
    ) -> None:
        self.catalog = Catalog(
            project,
            settings=settings,
            permit=self._permits,
            progress=progress,
            **overrides,  # type: ignore[arg-type]
        )
        self._progress = progress
        self.settings = self.catalog.settings
        self.gate = Gate(self.settings, lambda: self.store, rules=rules, ask=ask)
        self._store, self._artifacts, self.visible = store, artifacts, visible
        self.always = (always,) if isinstance(always, str) else tuple(always)
        kinds = choose(tools, self.settings.tool_profile)
        self.names = offered_names(kinds, self.settings.tool_names)
        # A host that names its tools gets those and no other; so does who wants it simple.
        more = tools is None and self.settings.tool_profile != "simple"
        self._more = offered_names((SEARCH,) * more, self.settings.tool_names)
        self._crowded: dict[int, tuple[Mapping[str, Skill], bool]] = {}
        self._guidance = guidance
        self._skills: Mapping[str, Skill] | None = None
        self._looked_at: Mapping[str, Skill] | None = None
        self._told: tuple[Mapping[str, Skill], str] = ({}, remember({}))
        self._seen: tuple[Mapping[str, Skill], dict[str, Skill]] = ({}, {})
        self._lock = threading.Lock()

    @property
    def store(self) -> Store:
        """Where conversations and decisions are kept; in the state folder unless one was given."""
        if self._store is None:
            self._store = open_store(self.settings)
        return self._store

    @cached_property
    def workbench(self) -> Workbench:
        """Where the commands of skills run."""
        from skillbelt.running.executor import Workbench

        return Workbench(
            self.settings,
            self.gate,
            self.get_skill,
            skills=self.skills,
            artifacts=self._artifacts,
            progress=self._progress,
        )

    @cached_property
    def background(self) -> Background:
        """The runs that go on while others are made."""
        from skillbelt.running.background import Background

        return Background(self.workbench)

    def close(self) -> None:
        """End what runs in the background; refuse what waits for permission, now and later."""
        self.gate.close()
        self.catalog.close()
        if "background" in self.__dict__:
            self.background.close()
        if "workbench" in self.__dict__:
            self.workbench.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What there is

    def skills(self) -> Mapping[str, Skill]:
        """Every skill by name, as of the last look."""
        return self.look() if self._skills is None else self._skills

    def look(self) -> Mapping[str, Skill]:
        """Every skill by name, as of now; `rescan_seconds` says how often that is a scan."""
        found = self.catalog.current()
        with self._lock:
            if found is not self._looked_at:
                self._looked_at = found
                if found != self._skills:
                    self._skills = found
            return found if self._skills is None else self._skills

    def available(
        self,
        agent: str | None = None,
        *,
        visible: Visible | None = None,
        files: Sequence[str] | None = None,
        gate: Gate | None = None,
    ) -> Mapping[str, Skill]:
        """What a model working as this agent may see, by name, as of the last look.

        With `files`, the paths in play, a skill made for some files is there only with one of them.
        A `gate` with rules of its own stands in place of the shelf's.
        """
        skills = self.skills()
        of, seen = self._seen
        if of is not skills:
            seen = _by_name(model_may_see(skills.values()))
            self._seen = (skills, seen)
        allowed = (gate or self.gate).permitted(agent, seen)
        keeps = [keep for keep in (self.visible, visible) if keep is not None]
        if not keeps and files is None:
            return allowed
        kept = list(allowed.values())
        for keep in keeps:
            kept = list(filter(keep, kept))
        return _by_name(kept if files is None else model_may_see(kept, files=files))

    def there(self, skill: Skill, visible: Visible | None = None) -> bool:
        """Whether the filters let the skill be there at all."""
        return all(keep is None or keep(skill) for keep in (self.visible, visible))

    def get_skill(self, name: str) -> Skill:
        """The skill of that name; raises SkillNotFound with the closest names."""
        skills = self.skills()
        skill = skills.get(name) or self.look().get(name)
        if skill is None or not self.there(skill):
            raise SkillNotFound(name, [s.name for s in self.skills().values() if self.there(s)])
        return skill

    def discover_skills(self) -> list[Skill]:
        """Every skill there is now, in name order: descriptors only, no body is read."""
        return [skill for skill in self.look().values() if self.there(skill)]

    # What a model is told

    def overview(self, agent: str | None = None, *, files: Sequence[str] | None = None) -> Overview:
        """The text about the skills there are now, within its budget."""
        self.look()
        return self.overview_of(self.available(agent, files=files))

    def overview_of(self, skills: Mapping[str, Skill], suggested: Collection[str] = ()) -> Overview:
        """The text about these skills; the suggested ones are described before others."""
        settings = self.settings
        return overview(
            skills.values(),
            format=settings.overview_format,
            budget_tokens=default_budget(settings),
            guidance=self.guidance_for(skills),
            search=self.search_tool,
            suggested=suggested,
        )

    @property
    def search_tool(self) -> str:
        """What the tool is called that finds skills which are not listed; empty without one."""
        names = {**self.names, **self._more}
        return names.get(SEARCH) or names.get("skill_list", "")

    def names_for(
        self, skills: Mapping[str, Skill], crowded: bool | None = None
    ) -> Mapping[str, str]:
        """What each tool is called that is offered for these skills: search, if they are many.

        `crowded` says whether they count as many, in place of what they are.
        """
        if not self._more or not (self.crowded(skills) if crowded is None else crowded):
            return self.names
        return {**self.names, **self._more}

    def crowded(self, skills: Mapping[str, Skill]) -> bool:
        """Whether the skills are too many to describe each to a model."""
        of, crowded = self._crowded.get(id(skills), (None, False))
        if of is not skills:
            budget = default_budget(self.settings)
            made = overview(
                skills.values(), format=self.settings.overview_format, budget_tokens=budget
            )
            crowded = made.shown < len(skills)
            if len(self._crowded) >= _MAX_VIEWS:
                self._crowded.clear()
            self._crowded[id(skills)] = (skills, crowded)
        return crowded

    # What is found

    def search(self, text: str, limit: int = 10, *, agent: str | None = None) -> Sequence[Result]:
        """The skills that fit the text best, of those a model working as this agent may see."""
        self.look()
        return self.search_in(text, self.available(agent), limit)

    def suggest(self, request: str, k: int = 5, *, agent: str | None = None) -> list[str]:
        """The names of the skills that a request most likely needs, for the host to act on."""
        return [found.skill.name for found in self.search(request, k, agent=agent)]

    def search_in(self, text: str, skills: Mapping[str, Skill], limit: int) -> Sequence[Result]:
        """The best of these skills for the text. Nobody else is looked at, not even to count."""
        self.catalog.index_for_search(SEARCH_WAIT_SECONDS)
        return self.catalog.searcher.search(text, skills, limit)

    def remembered(self, skills: Mapping[str, Skill]) -> str:
        """What a model was shown of these skills, as text; made once for as long as they last."""
        told = self._told
        if told[0] is not skills and told[0] != skills:
            self._told = told = (skills, remember(skills))
        return told[1]

    @property
    def guidance(self) -> str:
        """How to use the tools that are offered, with its header; empty when there is none."""
        return self.guidance_for({})

    def guidance_for(self, skills: Mapping[str, Skill]) -> str:
        """The same for the tools that go with these skills."""
        if self._guidance is not None:
            return self._guidance
        text = guidance(self.names_for(skills))
        return f"{GUIDANCE_HEADER}\n{text}" if text else ""

    # Loading, as the user

    def load(
        self,
        name: str,
        *,
        arguments: str | None = None,
        limits: Limits | None = None,
        storage: Storage | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Loaded:
        """The body of a skill the user asks for by name; PermissionDenied when it is refused."""
        skill = self.get_skill(name)
        request = self.check(skill)
        loaded = load_skill_body(
            skill,
            self._bounded(limits),
            overflow=self.settings.body_overflow,
            storage=storage or self.storage(),
            arguments=arguments,
            variables={**variables_of(skill, self.settings), **(variables or {})},
        )
        self.gate.record_load(request, loaded, skill)
        return loaded

    def load_skill_body(self, name: str, limits: Limits | None = None) -> Loaded:
        """The same as `load`, by its older name."""
        return self.load(name, limits=limits)

    def load_resource(
        self,
        name: str,
        relative_path: str,
        section_hint: str | None = None,
        limits: Limits | None = None,
        *,
        full: bool = False,
        start_line: int | None = None,
        lines: int | None = None,
    ) -> Loaded:
        """One file of a skill, or a part of it."""
        skill = self.get_skill(name)
        request = self.check(skill)
        loaded = load_resource(
            skill,
            relative_path,
            section_hint,
            self._bounded(limits),
            full=full,
            start_line=start_line,
            lines=lines,
            storage=self.storage(),
        )
        self.gate.record_load(request, loaded, skill)
        return loaded

    def check(self, skill: Skill) -> Request:
        """What was allowed; raises PermissionDenied when the user may not have the skill."""
        return self.gate.require(self.gate.load_request(skill, "user"))

    def _permits(self, agent: str | None, skill: Skill) -> bool:
        return not self.gate.hides_skills or self.gate.permit(agent, skill)

    def _bounded(self, limits: Limits | None) -> Limits:
        """A caller may ask for less than the settings allow, not for more."""
        own = self.settings.limits
        return own if limits is None else Limits(*map(min, own, limits))  # type: ignore[arg-type]

    def storage(self, key: SessionKey | None = None) -> Storage:
        """Where long texts of a conversation are kept; one can not read another's."""
        import hashlib

        own = "shared"
        if key is not None:
            whole = "\0".join(key).encode("utf-8", "surrogatepass")
            own = hashlib.sha256(whole).hexdigest()[:32]
        return Storage(os.path.join(self.settings.state_dir, "runs", own))

    # Tools

    @overload
    def tools(
        self, format: None = None, *, agent: str | None = ..., listing: bool = ...
    ) -> list[Tool]: ...
    @overload
    def tools(
        self, format: ToolFormat, *, agent: str | None = ..., listing: bool = ...
    ) -> list[dict[str, object]]: ...
    def tools(
        self, format: ToolFormat | None = None, *, agent: str | None = None, listing: bool = False
    ) -> list[Tool] | list[dict[str, object]]:
        """The tools as values, or as a vendor's request takes them.

        `listing` puts the list of skills into a description, for hosts without a system prompt.
        """
        made = self.tools_for(self.available(agent), listing=listing)
        return made if format is None else render(made, format)

    def tools_for(
        self, skills: Mapping[str, Skill], *, listing: bool = False, crowded: bool | None = None
    ) -> list[Tool]:
        """The tools for a model that may see these skills."""
        budget = default_budget(self.settings)
        search = self.search_tool
        text = compact(skills.values(), budget_tokens=budget, search=search) if listing else ""
        most = MAX_ENUM_SKILLS
        names = self.names_for(skills, crowded)
        return build(names, skills, HANDLERS, max_enum=most, listing=text)

    def run_tool(self, name: str, arguments: object, access: Access, call_id: str) -> ToolResult:
        """Run a tool with the access a conversation gives it."""
        kind = next((kind for kind, known in access.names.items() if known == name), "")
        if not kind:
            known = ", ".join(access.names.values()) or "none"
            return failed(f"there is no tool {str(name)[:80]!r}; there are: {known}")
        return dispatch(kind, HANDLERS[kind], arguments, access, call_id)


def _by_name(skills: Iterable[Skill]) -> dict[str, Skill]:
    return {skill.name: skill for skill in skills}
