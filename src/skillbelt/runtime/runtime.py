"""The facade that wires the rest together: `Runtime`, and `RuntimeSession` for a conversation."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from inspect import isawaitable
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from skillbelt.conversation.changes import (
    Mark,
    Note,
    changes_since,
    is_by_user,
    read_notes,
    remember,
    with_notes,
    write_notes,
)
from skillbelt.conversation.compaction import (
    Compacted,
    count_system,
    cut,
    tell_summary,
)
from skillbelt.conversation.messages import Material, Message, block, join_context, materialize
from skillbelt.conversation.plain import plain_messages
from skillbelt.conversation.requests import RequestLog, forget_requests, split_sent
from skillbelt.conversation.state import LoadedSkill, LoadRequest, Session
from skillbelt.conversation.vendors.answers import find_calls, read_answer
from skillbelt.conversation.vendors.read import find_vendor
from skillbelt.conversation.vendors.shapes import (
    CallAnswer,
    HistoryCall,
    MessageFormat,
    need_list,
    read_arguments,
    refuse,
)
from skillbelt.conversation.vendors.turns import read_messages, read_turns, user_item
from skillbelt.conversation.vendors.write import read_outgoing, write_request
from skillbelt.disclosure.body import (
    Loaded,
    list_docs,
    load_resource,
    load_skill_body,
    sample_files,
)
from skillbelt.disclosure.overflow import Storage
from skillbelt.disclosure.overview import (
    GUIDANCE_HEADER,
    Overview,
    compact,
    default_budget,
    diagnose_pins,
    has_line,
    overview,
)
from skillbelt.discovery.catalog import Catalog, Snapshot
from skillbelt.errors import (
    ConfigError,
    LoadError,
    PathEscape,
    PermissionDenied,
    RunRefused,
    SkillNotFound,
    log_warning,
)
from skillbelt.events import NewEvent
from skillbelt.format.skill import Skill, Skills
from skillbelt.late import made_once
from skillbelt.objects.blobs import text_space
from skillbelt.objects.remote import open_once
from skillbelt.permission.gate import Ask, Gate, session_id, tool_request
from skillbelt.permission.rules import Decision, Initiator, Request, Rule
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.following import UNWATCHED, Watch
from skillbelt.runtime.restored_texts import RestoredTexts
from skillbelt.runtime.threads import cancelling, followed, in_thread
from skillbelt.scan.on_demand import open_inspector
from skillbelt.settings import Settings
from skillbelt.store import SessionKey, Store, open_store
from skillbelt.store.protocol import hash_texts
from skillbelt.tools.caller import (
    BROUGHT,
    SEARCH_WAIT_SECONDS,
    Audience,
    Caller,
    Visible,
    variables_of,
)
from skillbelt.tools.definitions import LOADERS, SEARCH, name_of, offered_names
from skillbelt.tools.handlers import HANDLERS, MAX_ENUM_SKILLS, UNNAMED, content, dispatch
from skillbelt.tools.loaded import LoadedTexts
from skillbelt.tools.schema import (
    Tool,
    ToolFormat,
    ToolResult,
    build,
    choose,
    guidance,
    inline_names,
    render,
)
from skillbelt.untrusted_json import BadJson
from skillbelt.values import Limits

if TYPE_CHECKING:
    from skillbelt.artifacts import ArtifactStore
    from skillbelt.running.background import Background, Elsewhere
    from skillbelt.running.json_call import Execution
    from skillbelt.running.trial.trial import ScriptTrial, Trial
    from skillbelt.running.workbench import Workbench
    from skillbelt.runtime.runs import RuntimeRuns
    from skillbelt.sandbox.protocol import Listener
    from skillbelt.scan.values import ScannedSkill
    from skillbelt.search.protocol import Result

APP = "skillbelt"
USER = "local"  # of a program that has one user
# The host's own tools: takes a name and arguments, returns text or parts for the model.
OtherTools = Callable[[str, dict[str, Any]], str | list[Any] | Awaitable[str | list[Any]]]
# The list of skills in a tool's description: it is in every request, with the schemas.
MAX_LISTING_TOKENS = 2_000
_COMMAND = re.compile(r"\s*[/$]([^\W_][\w.-]*)(?:\s+(.*))?", re.DOTALL)


class Runtime:
    """Everything for one project: the skills, the texts that a model reads of them, and its tools.

    Nothing is scanned between two calls of `look`. `rules` are the host's, stronger than those of
    any file; `ask` answers requests that the rules leave open. `visible` hides skills from the
    model and its user alike. `tools` is an exact list in place of the profile, `always` are skills
    whose text every conversation begins with, and `guidance` replaces the text about the tools (""
    for none). `progress` is called with a line of text at each stage of a scan and of a run.
    `reload` loads given `settings` again when one of their files changed.

    Every call has a coroutine `NAME_async`. The plain name blocks, except for `run`,
    `execute_skill` and `try_skill`, where `NAME_sync` does. Names with an underscore are for this
    package.
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
        reload: Callable[[], Settings] | None = None,
        **overrides: object,
    ) -> None:
        self.catalog = Catalog(
            project,
            settings=settings,
            reload=reload,
            permit=self._permits,
            progress=progress,
            **overrides,  # type: ignore[arg-type]
        )
        self._progress = progress
        self.gate = Gate(
            lambda: self.catalog.settings,
            lambda: self.store,
            rules=rules,
            ask=ask,
            renew=self.catalog.take_over_settings,
        )
        self._store, self._artifacts, self.visible = store, artifacts, visible
        self.always = _texts(always)
        kinds = choose(tools, self.settings.tool_profile)
        self.names = offered_names(kinds, self.settings.tool_names)
        self._brief = tools is None and self.settings.tool_profile == "default"
        # A host that names its tools gets those and no other; so does the simple profile.
        more = tools is None and SEARCH not in kinds and self.settings.tool_profile != "simple"
        self._more = offered_names((SEARCH,) * more, self.settings.tool_names)
        self._guidance = guidance
        self.elsewhere: Elsewhere | None = None  # set by a server, before anything runs

    def __repr__(self) -> str:
        return f"<Runtime of {self.settings.project}>"

    @property
    def settings(self) -> Settings:
        """The current settings: a changed file counts from the next `look` on."""
        return self.catalog.settings

    @property
    def store(self) -> Store:
        """The store of conversations and decisions; in the state folder unless one was given."""
        if self._store is None:
            self._store = open_store(self.settings)
        return self._store

    @made_once
    def _runs(self) -> RuntimeRuns:
        from skillbelt.runtime.runs import RuntimeRuns  # cost: 60 ms, only for a run

        return RuntimeRuns(
            lambda: self.catalog.settings,
            self.gate,
            self.get_skill,
            skills=self.skills,
            artifacts=self._artifacts,
            progress=self._progress,
            elsewhere=lambda: self.elsewhere,
        )

    @property
    def workbench(self) -> Workbench:
        """The workbench, which runs the commands of skills."""
        return self._runs.workbench

    @property
    def background(self) -> Background:
        """The runs in the background."""
        return self._runs.background

    @property
    def _has_background(self) -> bool:
        """Whether background runs were used."""
        return "_runs" in self.__dict__ and self._runs.has_background

    def close(self) -> None:
        """End background runs; refuse pending and later permission requests."""
        self.gate.close()
        self.catalog.close()
        if "_runs" in self.__dict__:
            self._runs.close(self.__dict__.get("_default_key"))

    close_async = in_thread(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()

    # Which skills there are

    def skills(self) -> Snapshot:
        """Return every skill by name, as of the last scan.

        Raises RequiredSkillUnusable if a skill that the settings require cannot be used.
        """
        return self._with_required(self.catalog.snapshot)

    skills_async = in_thread(skills)

    def look(self) -> Snapshot:
        """Scan if `rescan_seconds` have passed, then return the same as `skills`."""
        return self._with_required(self.catalog.current())

    look_async = in_thread(look)

    def _with_required(self, found: Snapshot) -> Snapshot:
        if self.settings.skills:
            self._check_required(found, self.gate)
        return found

    def _check_required(self, found: Snapshot, gate: Gate, agent: str | None = None) -> None:
        """Raise RequiredSkillUnusable if a required skill cannot be used by this agent."""

        def make() -> bool:
            if self.settings.required_skills():
                self._runs.check_required(found, gate, agent)
            return True

        # Only a success is cached: what is missing now may exist the next time.
        found.derive(("required", gate, agent), make)

    def _audience(
        self,
        agent: str | None = None,
        *,
        visible: Visible | None = None,
        files: Sequence[str] | None = None,
        gate: Gate | None = None,
    ) -> Audience:
        """Return the audience of a model working as this agent: what it may see."""
        filters = tuple(keep for keep in (self.visible, visible) if keep is not None)
        return Audience(gate=gate or self.gate, agent=agent, filters=filters, files=files)

    def available(
        self,
        agent: str | None = None,
        *,
        visible: Visible | None = None,
        files: Sequence[str] | None = None,
        gate: Gate | None = None,
    ) -> Skills:
        """Return the skills that a model working as this agent may see, as of the last scan.

        With `files`, the paths in play, a skill made for some files is included only if one of them
        matches. A `gate` with other rules replaces the runtime's.
        """
        return self._audience(agent, visible=visible, files=files, gate=gate).view(self.skills())

    available_async = in_thread(available)

    def _is_admitted(self, skill: Skill, visible: Visible | None = None) -> bool:
        """Return whether the host's filters admit the skill."""
        return self._audience(visible=visible).admits(skill)

    def get_skill(self, name: str) -> ReadableSkill:
        """Return the skill of that name; SkillNotFound names the closest ones.

        Its body is read only when its `instructions` are.
        """
        skill = ReadableSkill._make(self._find(name, self._audience()))
        skill.reader = self.load
        return skill

    get_skill_async = in_thread(get_skill)

    def _find(self, name: str, audience: Audience) -> Skill:
        skill = self.skills().get(name) or self.look().get(name)
        if skill is None or not audience.admits(skill):
            raise self.skills().missing(name, audience.admits)
        return skill

    def discover_skills(self) -> list[Skill]:
        """Return every current skill, in name order: descriptors only, no body is read."""
        return [skill for skill in self.look().values() if self._is_admitted(skill)]

    discover_skills_async = in_thread(discover_skills)

    def search(self, text: str, limit: int = 10, *, agent: str | None = None) -> Sequence[Result]:
        """Return the best skills for the text that a model working as this agent may see."""
        self.look()
        return self._search_in(text, self.available(agent), limit)

    search_async = in_thread(search)

    def suggest(self, request: str, k: int = 5, *, agent: str | None = None) -> list[str]:
        """Return the names of the skills that a request most likely needs; none if none fits."""
        found = self.search(request, k, agent=agent)
        return [one.skill.name for one in found if one.strength != "noise"]

    suggest_async = in_thread(suggest)

    def _search_in(self, text: str, skills: Skills, limit: int) -> Sequence[Result]:
        """Return the best of these skills for the text; other skills have no influence."""
        wait = SEARCH_WAIT_SECONDS
        return self.catalog.search_in(text, skills, limit, wait_seconds=wait)

    # What a model reads

    def overview(self, agent: str | None = None, *, files: Sequence[str] | None = None) -> Overview:
        """Return the text about the current skills, within its budget."""
        self.look()
        return self._overview_of(self.available(agent, files=files))

    overview_async = in_thread(overview)

    def _overview_of(
        self,
        skills: Skills,
        suggested: Collection[str] = (),
        audience: Audience | None = None,
        kinds: Collection[str] | None = None,
    ) -> Overview:
        """Return the text about these skills; the suggested ones are described first.

        With `kinds` it mentions these tools only.
        """
        guided = self._guidance_for(skills, kinds, audience=audience)

        def make() -> Overview:
            budget = default_budget(self.settings)
            made = overview(
                skills.values(),
                format=self.settings.overview_format,
                budget_tokens=budget,
                guidance=guided,
                search=self.search_tool,
                loader=name_of(self.names, LOADERS),
                suggested=suggested,
            )
            for one in diagnose_pins(skills.values(), made, budget):
                log_warning(f"{one.message}; {one.remedy}")
            return made

        return skills.derive(("overview", tuple(suggested), guided), make)

    @property
    def search_tool(self) -> str:
        """The name of the tool that finds skills that are not listed; empty if there is none."""
        names = {**self.names, **self._more}
        return names.get(SEARCH) or names.get("skill_list", "")

    def _names_for(self, skills: Skills, crowded: bool | None = None) -> Mapping[str, str]:
        """Return the names of the offered tools for these skills, by kind.

        Search is offered for many skills only; `crowded` says whether they count as many.
        """
        if not self._more or not (self._is_crowded(skills) if crowded is None else crowded):
            return self.names
        return {**self.names, **self._more}

    def _is_crowded(self, skills: Skills) -> bool:
        """Return whether there are too many skills to describe each to a model."""

        def make() -> bool:
            settings = self.settings
            budget, format = default_budget(settings), settings.overview_format
            made = overview(skills.values(), format=format, budget_tokens=budget)
            return made.shown < sum(map(has_line, skills.values()))

        return skills.derive("crowded", make)

    def _describe_shown(self, skills: Skills) -> str:
        """Return what a model was shown of these skills, as text for a session's state."""
        return skills.derive("remembered", lambda: remember(skills))

    @property
    def guidance(self) -> str:
        """The instructions for the offered tools, with a header; empty if there are none."""
        return self._guidance_for(Skills({}))

    def _guidance_for(
        self,
        skills: Skills,
        kinds: Collection[str] | None = None,
        audience: Audience | None = None,
    ) -> str:
        """Return the guidance for the tools that are offered for these skills.

        With `kinds` it is about these tools only.
        """
        if self._guidance is not None:
            return self._guidance
        names = (audience or self._audience()).without_denied(self._names_for(skills))
        chosen = names if kinds is None else {kind: names[kind] for kind in names if kind in kinds}
        text = guidance(chosen)
        return f"{GUIDANCE_HEADER}\n{text}" if text else ""

    def scan(self, name: str) -> ScannedSkill:
        """Return a skill's capabilities, what its runs tried, and the findings of a scan.

        It runs nothing of the skill.
        """
        inspector = open_inspector(self.settings, lambda: self.store, self.gate.project_key)
        return inspector.scan(self.get_skill(name))

    scan_async = in_thread(scan)

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
        """Return the body of a skill for the user; PermissionDenied when it is refused."""
        skill = self.get_skill(name)
        request = self.check(skill)
        loaded = load_skill_body(
            skill,
            self._bound_limits(limits),
            overflow=self.settings.body_overflow,
            storage=storage or self._storage(),
            arguments=arguments,
            variables={**variables_of(skill, self.settings), **(variables or {})},
        )
        self.gate.record_load(request, loaded, skill)
        return loaded

    load_async = in_thread(load)

    def load_skill_body(self, name: str, limits: Limits | None = None) -> Loaded:
        """Return the same as `load`; its older name."""
        return self.load(name, limits=limits)

    load_skill_body_async = in_thread(load_skill_body)

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
        """Return one file of a skill, or a part of it."""
        skill = self.get_skill(name)
        request = self.check(skill)
        loaded = load_resource(
            skill,
            relative_path,
            section_hint,
            self._bound_limits(limits),
            full=full,
            start_line=start_line,
            lines=lines,
            storage=self._storage(),
        )
        self.gate.record_load(request, loaded, skill)
        return loaded

    load_resource_async = in_thread(load_resource)

    def check(self, skill: Skill) -> Request:
        """Return the allowed request; PermissionDenied when the user may not have the skill."""
        return self.gate.require(self.gate.load_request(skill, "user"))

    check_async = in_thread(check)

    def _permits(self, agent: str | None, skill: Skill) -> bool:
        return not self.gate.hides_skills or self.gate.permit(agent, skill)

    def _bound_limits(self, limits: Limits | None) -> Limits:
        """Return a caller's limits, none of them above those of the settings."""
        own = self.settings.limits
        return own if limits is None else Limits(*map(min, own, limits))  # type: ignore[arg-type]

    def _storage(self, key: SessionKey | None = None) -> Storage:
        """Return the storage for long texts of a conversation.

        No other conversation can read it.
        """
        own = "shared" if key is None else hash_texts(*key)
        folder = os.path.join(self.settings.state_dir, "runs", own)
        if key is None or not self.settings.objects:
            return Storage(folder)
        return Storage(folder, shared=text_space(open_once(self.settings.objects), key))

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
        """Return the tools as values, or in the format of a vendor's request.

        `listing` puts the list of skills into a description, for hosts without a system prompt.
        """
        audience = self._audience(agent)
        made = self._tools_for(audience.view(self.skills()), listing=listing, audience=audience)
        return made if format is None else render(made, format)

    tools_async = in_thread(tools)

    def _tools_for(
        self,
        skills: Skills,
        *,
        listing: bool = False,
        crowded: bool | None = None,
        inline: bool = False,
        audience: Audience | None = None,
    ) -> list[Tool]:
        """Return the tools for a model that may see these skills.

        There are none if no skill can be used, by the model or its user; a tool is left out if
        every use of it is denied.
        """
        audience = audience or self._audience()
        if not skills and not any(map(audience.could_use, self.skills().values())):
            return []
        budget = min(default_budget(self.settings), MAX_LISTING_TOKENS)
        search = self.search_tool
        text = compact(skills.values(), budget_tokens=budget, search=search) if listing else ""
        most = MAX_ENUM_SKILLS
        known = audience.without_denied(self._names_for(skills, crowded))
        names = inline_names(known) if inline else known
        return build(
            names,
            skills,
            HANDLERS,
            max_enum=most,
            listing=text,
            inline=inline,
            brief=self._brief,
            settings=self.settings,
        )

    def dispatch(
        self,
        name: str,
        arguments: object = None,
        session: RuntimeSession | None = None,
        call_id: str = "",
    ) -> ToolResult:
        """Run a tool by its offered name; without a session, loading returns the text."""
        if session is not None:
            return session.call_sync(name, arguments, call_id)
        skills = self.available()
        caller = Caller(
            self.catalog,
            self._audience(),
            self._storage(),
            skills=skills,
            key=self._default_key,
            names=self._names_for(skills),
            executors=lambda: self._runs,
            watch=followed(UNWATCHED),
            brief=self._brief,
        )
        return dispatch(name, arguments, caller, call_id)

    dispatch_async = cancelling(dispatch)

    @made_once
    def _default_key(self) -> SessionKey:
        """The session of calls that this runtime dispatches without one.

        No other runtime shares it.
        """
        return SessionKey(APP, "", f"own-{os.urandom(16).hex()}")

    # Running, as the user

    def run_sync(
        self,
        name: str,
        command: str | Sequence[str],
        *,
        session: RuntimeSession | None = None,
        inputs: Iterable[str | Mapping[str, object]] = (),
        outputs: Iterable[str] | Mapping[str, object] = (),
        env: Mapping[str, str] = MappingProxyType({}),
        cwd: str = "",
        timeout_seconds: float = 0.0,
        stdin: bytes = b"",
        save_as_artifacts: bool = False,
        output_dir: str = "",
        omit_inline_content: bool = False,
        packages: Iterable[str] = (),
        install: bool = True,
        secrets: Iterable[str] = (),
        listener: Listener | None = None,
    ) -> RunResult:
        """Run a command of a skill in its sandbox, as the user.

        Without a session it has a separate, empty workspace, which is removed afterwards. A
        sequence of words is run as it is, a text by `bash -c`. A command that fails is a normal
        result; RunRefused, PermissionDenied and SandboxUnavailable mean that nothing was run.
        Copies of the output files go to the folder `output_dir`, if it is given. `packages` are
        those that the script needs in addition to the skill's own; each needs permission. Without
        `install` it runs with the installed ones. `secrets` are names of stored secrets, which the
        command gets as variables once that is allowed.
        """
        call = RunCall(
            command=command if isinstance(command, str) else tuple(command),
            cwd=cwd,
            env=env,
            timeout_seconds=timeout_seconds,
            inputs=_input_list(inputs),
            output_files=() if isinstance(outputs, Mapping) else _texts(outputs),
            outputs=outputs if isinstance(outputs, Mapping) else None,
            save_as_artifacts=save_as_artifacts,
            output_dir=output_dir and os.path.abspath(output_dir),
            omit_inline_content=omit_inline_content,
            stdin=stdin,
            packages=_texts(packages),
            install=install,
            secrets=_texts(secrets),
        )
        skill = self._visible_skill(name, session)
        return self.workbench.run(
            skill, call, _make_asker("user", session), followed(Watch(listener))
        )

    run = run_async = cancelling(run_sync)

    def execute_skill_sync(
        self,
        name: str,
        input: object = None,
        *,
        script: str = "",
        wasm_module: str = "",
        timeout_ms: int = 0,
        inputs: Iterable[str | Mapping[str, object]] = (),
        outputs: Iterable[str] = (),
        save_as_artifacts: bool = False,
        output_dir: str = "",
        packages: Iterable[str] = (),
        install: bool = True,
        secrets: Iterable[str] = (),
        session: RuntimeSession | None = None,
        listener: Listener | None = None,
    ) -> Execution:
        """Run a skill's module or script on JSON, as the user; its JSON on stdout is the output.

        `inputs`, `outputs`, `packages`, `install` and `secrets` are as for `run`. Without
        `outputs`, a call without a session returns everything in `out`.
        """
        return self._runs.execute(
            self._visible_skill(name, session),
            input,
            who=_make_asker("user", session),
            script=script,
            wasm_module=wasm_module,
            timeout_ms=timeout_ms,
            inputs=_input_list(inputs),
            outputs=_texts(outputs),
            save_as_artifacts=save_as_artifacts,
            output_dir=output_dir and os.path.abspath(output_dir),
            packages=_texts(packages),
            install=install,
            secrets=_texts(secrets),
            watch=followed(Watch(listener)),
        )

    execute_skill = execute_skill_async = cancelling(execute_skill_sync)

    def try_skill_sync(
        self,
        name: str,
        scripts: Iterable[str] = (),
        *,
        timeout_seconds: float = 0.0,
        told: Callable[[ScriptTrial], None] | None = None,
    ) -> Trial:
        """Start every script of a skill once in the sandbox, or these; return the result of each.

        Each gets `--help`, an empty workspace and `timeout_seconds`. One permission request covers
        all of them and their packages. `told` is called with each result as it comes, from another
        thread.
        """
        return self._runs.try_skill(
            self._visible_skill(name, None),
            seconds=timeout_seconds,
            who=_make_asker("user"),
            only=_texts(scripts),
            told=told,
            watch=followed(UNWATCHED),
        )

    try_skill = try_skill_async = cancelling(try_skill_sync)

    def _visible_skill(self, name: str, session: RuntimeSession | None) -> Skill:
        """Return the skill of that name, unless it is hidden from the conversation."""
        return self._find(name, session.audience if session else self._audience())

    # Conversations

    def session(
        self,
        user: str = USER,
        session: str = "",
        *,
        agent: str = "",
        app: str = APP,
        visible: Visible | None = None,
        rules: Iterable[Rule] = (),
        store: Store | None = None,
    ) -> RuntimeSession:
        """Return a conversation, new or from the store; without a name always a new one.

        `visible` hides skills from it alone, and `rules` apply to it on top of all others. A
        `store` replaces the runtime's own. RequiredSkillUnusable if a skill that the settings
        require cannot be used in it.
        """
        gate = self.gate.with_rules(rules)
        if self.settings.skills:
            self._check_required(self.look(), gate, agent or None)
        key = SessionKey(app, user, session or f"new-{os.urandom(8).hex()}")
        opened = self._open_session(key, agent, store)
        opened.visible, opened.gate = visible, gate
        return opened

    def _open_session(
        self, key: SessionKey, agent: str = "", store: Store | None = None
    ) -> RuntimeSession:
        """Return the conversation without scanning: its first use scans."""
        settings = self.settings
        state = Session(
            store or self.store,
            key,
            agent=agent,
            mode=settings.load_mode,
            max_loaded=settings.max_loaded_skills,
        )
        return RuntimeSession(runtime=self, session=state, storage=self._storage(key))

    session_async = in_thread(session)

    def delete_session(self, user: str, session: str, *, app: str = APP) -> bool:
        """Delete a conversation and everything that belongs to it; return whether anything existed.

        That is its events and state, stored texts, workspaces, artifacts and background runs. What
        the user's sessions share stays. RunRefused, with the conversation kept, if a run of another
        process uses a workspace.
        """
        key = SessionKey(app, user, session)
        runs = self.elsewhere is not None or self._has_background
        gone = [
            runs and self.background.forget(key),
            self.workbench.forget(key),
        ]
        if left := self.workbench.workspaces(key):
            raise RunRefused(
                f"the workspace of session {session_id(key)} is in use ({left[0]}); end the run "
                "that uses it, then delete the session again"
            )
        gone += [self.workbench.forget_artifacts(key), self._storage(key).remove()]
        self.workbench.forget_runs(key)
        forget_requests(self.store, key)
        return self.store.delete(key) or any(gone)

    delete_session_async = in_thread(delete_session)


class ReadableSkill(Skill):
    """A skill of a runtime: the descriptor, and its instructions for the user."""

    reader: Callable[[str], Loaded] | None = None

    @property
    def instructions(self) -> str:
        """The body, read on first access: as `Runtime.load`, with its permission and limits.

        Raises PermissionDenied or LoadError.
        """
        if self.reader is None:  # a changed copy, which no runtime knows
            raise LoadError(self.location, "call get_skill for a skill that can be read")
        return self.reader(self.name).text


class Command(NamedTuple):
    """A skill the user called by name. `text` goes to the model in place of what the user wrote.

    When it was refused, `error` says why and there is no text.
    """

    skill: str
    arguments: str
    text: str
    error: str = ""


class RuntimeSession:
    """One agent's side of a conversation: the messages for the model, the results of its calls.

    Everything that must persist is in the store. The host keeps its own history and passes it to
    `request`. Every call has a coroutine `NAME_async`; the plain name blocks, except for `call`,
    where `call_sync` does.
    """

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        storage: Storage,
        visible: Visible | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.runtime, self.session, self.storage, self.visible = runtime, session, storage, visible
        self.gate = gate or runtime.gate
        self.files: Sequence[str] | None = None
        self.searching = False  # whether search is offered even for few skills
        self._declared: list[LoadRequest] = []
        self._shown: frozenset[str] = frozenset()
        self._put_back: frozenset[str] = frozenset()
        self._texts = LoadedTexts()

    def __repr__(self) -> str:
        key = self.session.key
        return f"<RuntimeSession {key.app}/{key.user}/{key.session}>"

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.runtime.settings

    @property
    def audience(self) -> Audience:
        """The audience of the model in this conversation: what it may see of the catalogue."""
        return self.runtime._audience(
            self.session.agent, visible=self.visible, files=self.files, gate=self.gate
        )

    def skills(self) -> Skills:
        """Return the skills that the model may see, by name, as of the last scan."""
        return self.audience.view(self.runtime.skills())

    skills_async = in_thread(skills)

    def loaded(self) -> list[LoadedSkill]:
        """Return the loaded skills, in name order."""
        return self.session.loaded()

    loaded_async = in_thread(loaded)

    # The messages for the model

    @overload
    def request(
        self,
        messages: Sequence[object],
        *,
        new_turn: bool | None = ...,
        format: None = None,
        restore_tokens: int | None = ...,
    ) -> list[Message]: ...
    @overload
    def request(
        self,
        messages: Sequence[object],
        *,
        new_turn: bool | None = ...,
        format: MessageFormat,
        system: object = ...,
        tools: Sequence[object] | None = ...,
        previous_response_id: str | None = ...,
        restore_tokens: int | None = ...,
    ) -> dict[str, Any]: ...
    def request(
        self,
        messages: Sequence[object],
        *,
        new_turn: bool | None = None,
        format: MessageFormat | None = None,
        system: object = None,
        tools: Sequence[object] | None = None,
        previous_response_id: str | None = None,
        restore_tokens: int | None = None,
    ) -> list[Message] | dict[str, Any]:
        """Return the messages to send: the history, with the texts of what is loaded now.

        A message is a dict, or an object of the openai or anthropic package as it came; those are
        dicts in the result. Anything else is a ConfigError. With a `format` (openai, responses,
        anthropic, gemini) the history is one of that vendor's package, and the result has the
        keyword arguments of its call, with the system text where the vendor wants it. `system` is
        the host's own part of that text, and `tools` are added in the vendor's place for them. With
        `previous_response_id` the vendor has everything before the `messages`.

        A new user message begins a turn, unless `new_turn` says otherwise: the catalogue is scanned
        again, and that message gets a note of what changed. The system text stays as it was first
        given. `restore_tokens` bounds the texts that are put back after a cut.
        """
        if format is None:
            _refuse_arguments(
                "format", system=system, tools=tools, previous_response_id=previous_response_id
            )
            return self._prepare(plain_messages(messages), new_turn, restore_tokens=restore_tokens)
        if format != "responses":
            _refuse_arguments("format='responses'", previous_response_id=previous_response_id)
        _check_tools(tools, format)
        outgoing = read_outgoing(messages, format, system)
        made = self._prepare(
            outgoing.messages,
            new_turn,
            continued=bool(previous_response_id),
            restore_tokens=restore_tokens,
        )
        return write_request(outgoing, made, tools=tools, previous_response_id=previous_response_id)

    request_async = in_thread(request)

    def record_request(
        self, sent: Sequence[object] | Mapping[str, object], *, model: str = ""
    ) -> bool:
        """Store a request as it was sent to the model, as `request` returned it, for the console.

        Without this call nothing of a host's own history is stored. Secrets are redacted, and
        `delete_session` removes it. Returns False, and stores nothing, where `audit` is off.
        """
        if not self.gate.is_recorded:
            return False
        messages, tools = split_sent(sent)
        log = RequestLog(self.session.store, self.session.key)
        log.add(messages, tools=tools, agent=self.session.agent, model=model)
        return True

    record_request_async = in_thread(record_request)

    def _prepare(
        self,
        plain: Sequence[Message],
        new_turn: bool | None,
        *,
        continued: bool = False,
        restore_tokens: int | None = None,
    ) -> list[Message]:
        """Return the messages with all texts; begin a turn if there is a new question."""
        if continued and new_turn is None:
            new_turn = any(map(is_by_user, plain))
        state = self._begin_turn(plain, new_turn)
        self._declared = []
        noted = with_notes(plain, self._notes(state))
        restored = self._find_restored(state, restore_tokens)
        made = self._materialize(noted, restored, state, continued=continued)
        self.session.after_request()
        results = (one.get("content") for one in made if one.get("role") == "tool")
        self._shown = frozenset(text for text in results if isinstance(text, str))
        self._put_back = restored.blocks
        return made

    def compact(
        self,
        messages: Sequence[object],
        keep: int = 8,
        *,
        summary: str = "",
        format: MessageFormat | None = None,
        restore_tokens: int | None = None,
    ) -> Compacted:
        """Return a history cut to its last messages, with a summary of the others.

        System messages and the user's last question stay, and no call is separated from its result:
        more than `keep` messages stay if necessary. Skills that are loaded survive: the next
        `request` (or `restore`) puts their texts back. The result says which, within
        `restore_tokens`, by default a quarter of the window. With a `format` the history is one of
        that vendor's package, and so is the result, as dicts.
        """
        found = read_turns(messages, format)
        made = cut(found.turns, keep, summarized=bool(summary))
        kept, head = found.items_of(made.kept), len(found.items_of(made.kept[: made.head]))
        items = [found.items[index] for index in kept]
        if summary:
            items.insert(head, user_item(tell_summary(summary), format))
        plain, state = read_messages(items, format), self.session.state()
        self._move_mark(plain, state)
        noted = with_notes(plain, self._notes(state))
        restored = self._find_restored(state, restore_tokens)
        restored.cuts = True
        self._materialize(noted, restored, state)
        return restored.made._replace(messages=items, kept=found.sources_of(kept))

    compact_async = in_thread(compact)

    def restore(
        self,
        messages: Sequence[object],
        *,
        format: MessageFormat | None = None,
        restore_tokens: int | None = None,
    ) -> Compacted:
        """Return the messages to send, for a host whose answers hold the texts of skills.

        Such a host makes its requests without `request`. The texts of loaded skills that a cut
        history lacks come back in one message right after the system's: once each, as they were
        loaded, the most recently used within `restore_tokens`. Keep the history as it was given.
        """
        restored = self._find_restored(self.session.state(), restore_tokens)
        found = read_turns(messages, format)
        own = restored.find_own(found.turns)
        kept = found.items_of(own)
        items = [found.items[index] for index in kept]
        text = restored.context(read_messages(items, format), {})
        restored.remember_context()
        self._put_back = restored.blocks
        if text:
            head = count_system([found.turns[index] for index in own])
            items.insert(len(found.items_of(own[:head])), user_item(text, format))
        return restored.made._replace(messages=items, kept=found.sources_of(kept))

    restore_async = in_thread(restore)

    def _move_mark(self, messages: Sequence[Message], state: Mapping[str, str]) -> None:
        """Continue the turn in a history that was cut: its question has another number there."""
        key = self._key("run")
        mark, before = Mark.of(messages), Mark.read(state.get(key, ""))
        if before is not None and mark.digest == before.digest and mark != before:
            self.session.store.append(self.session.key, [], {key: str(mark)})

    def _notes(self, state: Mapping[str, str]) -> list[Note]:
        return read_notes(state.get(self._key("notes"), ""))

    def _materialize(
        self,
        messages: Sequence[Message],
        restored: RestoredTexts,
        state: Mapping[str, str],
        *,
        continued: bool = False,
    ) -> list[Message]:
        """Return the messages with the texts of what is loaded.

        If they are `continued`, the vendor has the skills of earlier answers. Those that are in no
        answer, because the host loaded them, go with the message that begins the turn.
        """
        landed = {key: call for key, call in self.session.landed(state).items() if call != UNNAMED}
        begins = any(map(is_by_user, messages))

        def context(blocks: Mapping[str, str]) -> str:
            if not continued:
                return restored.context(messages, blocks)
            return join_context(
                {name: text for name, text in blocks.items() if begins and not landed.get(name)}
            )

        return materialize(
            messages,
            restored.for_requests(),
            placement=self.settings.placement,
            overview=state.get(self._key("system"), ""),
            landed=landed,
            context=context,
        )

    def _find_restored(
        self, state: Mapping[str, str], restore_tokens: int | None = None
    ) -> RestoredTexts:
        return RestoredTexts(self.session, self._caller(state), self._texts, restore_tokens)

    def _begin_turn(self, messages: Sequence[Message], new_turn: bool | None) -> Mapping[str, str]:
        """Begin a turn if there is a new question; return the state after that."""
        state = self.session.state()
        mark, before = Mark.of(messages), Mark.read(state.get(self._key("run"), ""))
        if before is None or (mark.follows(before) if new_turn is None else new_turn):
            self._record_turn(mark, state)
            return self.session.state()
        return state

    def _record_turn(self, mark: Mark, state: Mapping[str, str]) -> None:
        runtime = self.runtime
        found = runtime.look()
        if self.settings.skills:
            runtime._check_required(found, self.gate, self.session.agent or None)
        skills = self.skills()
        known, before = runtime._describe_shown(skills), state.get(self._key("known"), "")
        note = changes_since(before, skills, now=known, search=runtime.search_tool)
        delta: dict[str, str | None] = {self._key("run"): str(mark)}
        if known != before:
            delta[self._key("known")] = known
        if self._key("system") not in state:
            delta[self._key("system")] = self._system(skills, state)
            delta[self._key("crowded")] = "yes" if runtime._is_crowded(skills) else "no"
        if note:
            notes = read_notes(state.get(self._key("notes"), ""))
            delta[self._key("notes")] = write_notes([*notes, Note(mark, note)])
        self.session.start_run(note)
        self.session.store.append(self.session.key, [], delta)
        if self._declared:
            self.session.load_all(self._declared)

    def _system(self, skills: Skills, state: Mapping[str, str]) -> str:
        """Return the skills' part of the system message; it stays the same in a conversation."""
        runtime = self.runtime
        text = runtime._overview_of(skills, self._suggest(state), self.audience).text
        apart = text and self.settings.overview_format != "plain"
        always = [runtime.get_skill(name) for name in runtime.always]
        caller = self._caller(state)
        blocks = [block(Material(one.name, caller.body(one).text)) for one in always]
        guided = runtime._guidance_for(skills, audience=self.audience) if apart else ""
        parts = [text, guided, *blocks]
        return "\n\n".join(filter(None, parts))

    def suggest(self, request: str, k: int = 5) -> list[str]:
        """Return the names of the skills that the request most likely needs.

        Decided once: later calls in the conversation return the same. If called before the first
        request to the model, the overview describes these first where it cannot describe all.
        """
        state = self.session.state()
        if self._key("suggested") not in state:
            self.runtime.look()
            found = self.runtime._search_in(request, self.skills(), k)
            chosen = {self._key("suggested"): "\n".join(one.skill.name for one in found)}
            self.session.store.append(self.session.key, [], chosen)
            state = self.session.state()
        return self._suggest(state)

    suggest_async = in_thread(suggest)

    def _suggest(self, state: Mapping[str, str]) -> list[str]:
        kept = state.get(self._key("suggested"), "")
        skills = self.skills()
        return [name for name in kept.split("\n") if name in skills]

    def _was_crowded(self, state: Mapping[str, str]) -> bool | None:
        """Return whether there were too many skills to describe when the conversation began."""
        if self.searching:
            return True
        kept = state.get(self._key("crowded"))
        return None if kept is None else kept == "yes"

    # The model's calls

    @overload
    def tools(
        self, format: None = None, *, listing: bool = ..., inline: bool = ...
    ) -> list[Tool]: ...
    @overload
    def tools(
        self, format: ToolFormat, *, listing: bool = ..., inline: bool = ...
    ) -> list[dict[str, object]]: ...
    def tools(
        self, format: ToolFormat | None = None, *, listing: bool = False, inline: bool = False
    ) -> list[Tool] | list[dict[str, object]]:
        """Return the tools, as `Runtime.tools` does, for the skills of this conversation.

        With `inline` they are those for a host that calls them with `inline`: none that would
        change an earlier answer.
        """
        crowded = self._was_crowded(self.session.state())
        made = self.runtime._tools_for(
            self.skills(),
            listing=listing,
            crowded=crowded,
            inline=inline,
            audience=self.audience,
        )
        return made if format is None else render(made, format)

    tools_async = in_thread(tools)

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
        """Run a tool call of the model. A mistake of the model is a result with an `error`.

        `watch` follows the command that the call runs, if it runs one. With `inline` the text of a
        loaded skill is in the answer, for a host that makes its requests without `request`; `shown`
        are then the answers that the model already has, which are not given again.
        """
        given = self._put_back.union(self._shown if shown is None else shown)
        watched = followed(watch or UNWATCHED)
        caller = self._caller(self.session.state(), watch=watched, inline=inline, shown=given)
        return dispatch(tool, arguments, caller, call_id)

    call = call_async = cancelling(call_sync)

    def answer_calls(
        self,
        reply: object,
        format: MessageFormat,
        *,
        others: OtherTools | None = None,
        watch: Watch | None = None,
    ) -> list[Message]:
        """Run the calls of a model's reply; return the items to append to the history.

        `reply` is the response of the vendor's package, the message, blocks, parts or calls in it,
        or dicts of the same shape. The results are in the order of the calls, in the vendor's
        shape; the list is empty when the reply has no call. `others` is called with the name and
        the arguments of a call of another tool than ours, and returns the text for the model, or a
        list of the vendor's parts. In `answer_calls_async` it may be a coroutine.
        """
        answers = [
            read_answer(self._answer(call, others, watch), call, format)
            for call in find_calls(reply, format)
        ]
        return find_vendor(format).answer(answers)

    async def answer_calls_async(
        self,
        reply: object,
        format: MessageFormat,
        *,
        others: OtherTools | None = None,
        watch: Watch | None = None,
    ) -> list[Message]:
        """Run the calls of a model's reply, as `answer_calls` does."""
        answers = []
        for call in find_calls(reply, format):
            given = await self._answer_async(call, others, watch)
            result = await given if isawaitable(given) else given
            answers.append(read_answer(result, call, format))
        return find_vendor(format).answer(answers)

    def _answer(self, call: HistoryCall, others: OtherTools | None, watch: Watch | None) -> object:
        """Return the result of a call: a CallAnswer, or what `others` returned."""
        if others is None or call.name in self._offered_names():
            result = self.call_sync(call.name, call.arguments, call.id, watch=watch)
            return CallAnswer(call, result.text, bool(result.error))
        try:
            arguments = read_arguments(call.arguments)
        except BadJson as error:
            return CallAnswer(call, f"the arguments of {call.name}: {error}", failed=True)
        return others(call.name, arguments)

    _answer_async = cancelling(_answer)

    def _offered_names(self) -> Collection[str]:
        """Return the names of the tools of this conversation."""
        state = self.session.state()
        return self.runtime._names_for(self.skills(), self._was_crowded(state)).values()

    def _caller(
        self,
        state: Mapping[str, str],
        *,
        watch: Watch | None = None,
        inline: bool = False,
        shown: Collection[str] = (),
    ) -> Caller:
        audience = self.audience
        skills = audience.view(self.runtime.skills())
        return Caller(
            self.runtime.catalog,
            audience,
            self.storage,
            skills=skills,
            key=self.session.key,
            session=self.session,
            state=state,
            names=self.runtime._names_for(skills, self._was_crowded(state)),
            executors=lambda: self.runtime._runs,
            watch=watch,
            inline=inline,
            shown=shown,
            brief=self.runtime._brief,
        )

    def _approve(self, skill: Skill) -> str | None:
        """Return why the model may not read the skill, asking if necessary; None if it may."""
        try:
            self._caller(self.session.state()).approve(skill)
        except PermissionDenied as error:
            return error.reason
        return None

    def _record_given(self, skill: Skill, path: str, sha256: str) -> None:
        """Record that a file of a skill was given completely and unchanged."""
        facts: dict[str, object] = {"path": path, "sha256": sha256, "truncated": False}
        self.gate.record("load", self._request(skill, "model"), facts)

    def _request(self, skill: Skill, initiator: Initiator) -> Request:
        session = self.session
        return self.gate.load_request(skill, initiator, session.agent, session.key)

    def permits(self, tool: str, argument: str = "", *, sandboxed: bool = False) -> Decision:
        """Decide whether the host's own tool may be used now, as in `Bash` with `git add .`.

        Where no rule matches, the `allowed-tools` of a skill in this turn are granted without
        asking, if its origin is trusted and the tool works in skillbelt's sandbox: `sandboxed` says
        so.
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

    permits_async = in_thread(permits)

    def _in_use(self) -> list[Skill]:
        """Return the skills that were loaded since the last message of the user."""
        events = self.session.events()
        turn = takewhile(lambda event: event.type != "run_started", reversed(events))
        names = {str(one.data.get("name")) for one in turn if one.type == "skill_loaded"}
        skills = self.runtime.skills()
        return [skills[name] for name in sorted(names) if name in skills]

    # The user and the host

    def user_command(self, text: str) -> Command | None:
        """Load the skill that `/name arguments` or `$name arguments` calls; None for other text."""
        called = _COMMAND.fullmatch(text)
        if called is None:
            return None
        try:
            skill = self.runtime._find(called[1], self.audience)
        except SkillNotFound:
            return None
        arguments = (called[2] or "").strip()
        request = self._request(skill, "user")
        refused = self._refusal(skill, request)
        if refused:
            return Command(skill.name, arguments, "", refused)
        caller = self._caller(self.session.state())
        try:
            loaded = caller.body(skill, arguments)
            given = content(skill, loaded.text, sample_files(skill))
            self.gate.record_load(request, loaded, skill)
        except (LoadError, PathEscape) as error:
            return Command(skill.name, arguments, "", caller.presentable(str(error)))
        self._remember(skill, request, arguments)
        return Command(skill.name, arguments, given)

    user_command_async = in_thread(user_command)

    def _refusal(self, skill: Skill, request: Request) -> str | None:
        if not skill.user_invocable:
            return f"{skill.name} cannot be called by the user: its author left it to the model"
        decision = self.gate.check(request)
        return None if decision.allowed else decision.reason

    def _remember(self, skill: Skill, request: Request, arguments: str) -> None:
        """Let the model read a skill that the user called, as long as it is unchanged."""
        data = {"name": skill.name, "arguments": arguments, "placement": "user"}
        event = NewEvent("skill_loaded", self.session.agent, data)
        brought = {BROUGHT + skill.name: request.hash}
        self.session.store.append(self.session.key, [event], brought)

    def declare(self, skills: Iterable[str | LoadRequest]) -> tuple[str, ...]:
        """Load the host's choice for the coming turn, all or none; return the evicted names.

        Raises SkillNotFound or LoadError, and nothing changes.
        """
        # A copy: the list belongs to the host, and the turn may begin much later.
        wanted = [
            LoadRequest(one)
            if isinstance(one, str)
            else one._replace(docs=None if one.docs is None else tuple(one.docs))
            for one in skills
        ]
        caller = self._caller(self.session.state())
        allowed = [self._allow_declared(request, caller) for request in wanted]
        evicted = self.session.load_all(wanted)
        brought = {BROUGHT + one.skill: one.hash for one in allowed}
        self.session.store.append(self.session.key, [], brought)
        self._declared += wanted
        return evicted

    declare_async = in_thread(declare)

    def _allow_declared(self, wanted: LoadRequest, caller: Caller) -> Request:
        skill = self.runtime._find(wanted.name, self.audience)
        request = self.gate.require(self._request(skill, "user"))
        known = list_docs(skill) if wanted.docs else []
        for path in wanted.docs or ():
            if path not in known:
                raise LoadError(path, f"{skill.name} has no such document")
        self.gate.record_load(request, caller.body(skill), skill)
        return request

    def unload(self, name: str) -> bool:
        """Unload a skill; return whether it was loaded."""
        self._declared = [request for request in self._declared if request.name != name]
        return self.session.unload(name)

    unload_async = in_thread(unload)

    def _key(self, kind: str) -> str:
        agent = self.session.agent
        return f"temp:skill:{kind}:{agent}" if agent else f"temp:skill:{kind}"


def _input_list(inputs: Iterable[str | Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the inputs as a list; one text is one input."""
    given = (inputs,) if isinstance(inputs, str) else inputs
    return [{"from": one} if isinstance(one, str) else one for one in given]


def _make_asker(initiator: Initiator, session: RuntimeSession | None = None) -> Asker:
    if session is None:
        return Asker(SessionKey(APP, "", "shared"), initiator, once="whole")
    return Asker(session.session.key, initiator, session.session.agent, session.gate)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values as a list; one text is one value."""
    return (values,) if isinstance(values, str) else tuple(values)


def _check_tools(tools: object, format: MessageFormat) -> None:
    """Raise ConfigError unless the tools are a list, each in the shape of a vendor."""
    for number, one in enumerate(need_list([] if tools is None else tools, "tools", "a list")):
        if isinstance(one, Tool):
            refuse(f"tools[{number}]", f"session.tools({format!r})", one, "tools() has no format")


def _refuse_arguments(needed: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{name} needs {needed}")
