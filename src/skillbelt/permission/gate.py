"""Decide permission requests: rules first, then remembered answers, then ask the user.

Every action on a skill's behalf passes through here first, and every decision is recorded.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from skillbelt.errors import ConfigError, LoadError, PermissionDenied
from skillbelt.files.contain import below
from skillbelt.files.manifest import holds, is_complete
from skillbelt.format.allowed_tools import tool_name
from skillbelt.format.skill import Skill
from skillbelt.late import Late, made_once
from skillbelt.metrics import count, held, timed
from skillbelt.permission.audit import AuditEvent, machine_name, open_audit, user_name
from skillbelt.permission.audit_events import AuditStore
from skillbelt.permission.command_lines import simple_commands
from skillbelt.permission.packages import asked_texts
from skillbelt.permission.remembered import (
    Remembered,
    RememberedAnswers,
    binding,
    known,
    memorable,
    texts,
)
from skillbelt.permission.rule_files import Policy, parse_rule, read_policy, spelled, type_of
from skillbelt.permission.rules import (
    ACTIONS,
    OPAQUE,
    SHELL_TOOLS,
    SOURCES,
    UNCLEAR,
    Action,
    Answer,
    Decision,
    Initiator,
    Request,
    Rule,
    RuleSet,
    checked_answer,
    checked_rules,
    digest,
)
from skillbelt.permission.waiting import NotAnswered, Pending, Settled, WaitingRequests
from skillbelt.records import NamedTuple
from skillbelt.scan.on_demand import open_inspector
from skillbelt.settings import Settings
from skillbelt.store import SessionKey
from skillbelt.text import exact, one_line, shell_word
from skillbelt.trust import Trust
from skillbelt.values import Diagnostic, Origin, is_remote

if TYPE_CHECKING:
    from skillbelt.permission import normal_forms
    from skillbelt.scan.inspector import SkillInspector
    from skillbelt.store import Store
else:
    normal_forms = Late("skillbelt.permission.normal_forms")  # cost: 1 ms, only for hosts and paths

# Answers a request, or returns None to leave it to other listeners.
Ask = Callable[[Pending], Answer | None]
# Added to the `metadata` of every request made in this context, so that a host can tell which call
# of which client made it.
ASKER: ContextVar[Mapping[str, object]] = ContextVar("ASKER", default=MappingProxyType({}))
_MAX_THROUGH = 4096  # skills already allowed in conversations
_MAX_HELD = 256  # requests that are allowed for one conversation
_MAX_SKILLS = 4096  # skills that were requested recently; far more than wait at one time
_STALE = "it cannot be scanned any more for this old request: ask for the skill again"
# Initiators that answer without reading the question.
_UNREAD = ("--yes", "try")
_DESCRIBED = ("skill", "run")  # request types whose question says what the skill can do
_MAX_ADVISED = 8  # rules in the advice of a refusal
_USER = SOURCES.index("user")
_IN_PROJECT = "project:"  # before the path of a skill inside a named project
_SPELLED = (UNCLEAR, "*")  # prefixes of texts that name more than one host
_SOURCES = {
    "default": "the built-in rules",
    "system": "the rules of this machine",
    "user": "the user's rules",
    "project": "the project's rules",
    "agent": "the agent's rules",
    "session": "the host's rules",
}


class ReadReport(Protocol):
    """The facts about a read text that the log records."""

    @property
    def sha256(self) -> str: ...  # noqa: D102

    @property
    def truncated(self) -> bool: ...  # noqa: D102


class GivenText(Protocol):
    """A text of a skill that a model or a person received."""

    @property
    def path(self) -> str: ...  # noqa: D102

    @property
    def report(self) -> ReadReport: ...  # noqa: D102


class Explanation(NamedTuple):
    """Why a request would be decided this way: the rule, and the remembered answer.

    `ignored` is a rule of the project that matches the request and does not count.
    """

    action: Action
    rule: Rule
    remembered: Remembered | None
    ignored: Rule | None = None


class Granted(NamedTuple):
    """The declared tools that a skill may use, and why it may not use the others."""

    tools: tuple[str, ...]
    denied: tuple[tuple[str, str], ...] = ()


class _Compiled(NamedTuple):
    """The rules of some settings, ready to decide."""

    settings: Settings
    policy: Policy
    rules: RuleSet
    hides_skills: bool


class Gate:
    """Decides for one project. The host's `rules` come last, so they are the strongest.

    `renew` is called before each decision: it brings `settings` up to date, so that a deny rule
    that was just written applies at once.
    """

    def __init__(
        self,
        settings: Settings | Callable[[], Settings],
        store: Callable[[], Store],
        *,
        rules: Iterable[Rule] = (),
        ask: Ask | None = None,
        renew: Callable[[], object] = lambda: None,
    ) -> None:
        self._settings, self._rules = settings, checked_rules(rules)
        self._renew = renew
        if ask is not None and not callable(ask):
            raise ConfigError(f"ask: {type(ask).__name__} cannot be called; give a function")
        self._store, self._ask = store, ask
        self._recorded = True
        self._through: set[tuple[str, ...]] = set()
        # Recently requested skills, by name and hash: the facts that a question shows about them.
        self._skills: OrderedDict[tuple[str, str], Skill] = OrderedDict()
        self._held: dict[str, list[Request]] = {}
        self._made: _Compiled | None = None

    # Rules

    @property
    def settings(self) -> Settings:
        """The current settings; setting them also replaces the rules."""
        return self._settings() if callable(self._settings) else self._settings

    @property
    def policy(self) -> Policy:
        """The rules in order, weakest first, with their diagnostics."""
        return self._compile_rules().policy

    @property
    def rules(self) -> RuleSet:
        """The rules, compiled for deciding."""
        return self._compile_rules().rules

    def _compile_rules(self) -> _Compiled:
        settings, made = self.settings, self._made
        if made is None or made.settings is not settings:
            trusted = Trust(settings.state_dir).project(settings.project)
            policy = read_policy(settings, project_trusted=trusted, session_rules=self._rules)
            files = {path for source, path in settings.files if source == "project"}
            rules = RuleSet(policy.rules, files, project_trusted=policy.project_trusted)
            denied = any(
                rule.action == "deny" and rule.type in ("skill", "*") for rule in policy.rules
            )
            made = self._made = _Compiled(settings, policy, rules, denied)
        return made

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Problems in the rules that were read."""
        return self.policy.diagnostics

    @property
    def hides_skills(self) -> bool:
        """Whether any rule could hide a skill from an agent."""
        return self._compile_rules().hides_skills

    def permitted(self, agent: str | None, skills: Mapping[str, Skill]) -> Mapping[str, Skill]:
        """Return the skills that a model working as this agent may see."""
        if not self.hides_skills:
            return skills
        return {name: one for name, one in skills.items() if self.permit(agent, one)}

    def permit(self, agent: str | None, skill: Skill) -> bool:
        """Whether a model working as this agent may see the skill."""
        request = Request(
            type="skill",
            patterns=(skill.name,),
            agent=agent or "",
            skill=skill.name,
            trusted=skill.trusted,
        )
        return self.rules.decide(request)[0] != "deny"

    def can_run(self, agent: str | None) -> bool:
        """Whether a model working as this agent could run any command, asked or not."""
        like = Request("run", (), agent=agent or "", tools=SHELL_TOOLS)
        # A rule for one skill may allow what is denied to all others.
        skills = ("", *self.rules.scopes)
        wanted = (
            like._replace(trusted=trusted, skill=skill)
            for trusted in (True, False)
            for skill in skills
        )
        return not all(self.rules.denies_all(request) for request in wanted)

    def explain(self, request: Request) -> Explanation:
        """Return what `check` would decide, without asking or recording anything."""
        self._renew()
        request = self._normalize(request)
        action, rule = self.rules.decide(request)
        remembered = self.ledger.covering(request) if action == "ask" else None
        return Explanation(action, rule, remembered, self._find_ignored(request, action))

    def _find_ignored(self, request: Request, action: Action) -> Rule | None:
        """Return the project's rule for the request if it would loosen the decision."""
        theirs = self.policy.project
        project_action, rule = RuleSet(theirs).decide(request)
        looser = ACTIONS.index(project_action) < ACTIONS.index(action)
        return rule if looser and rule in theirs else None

    # Requests that the rules leave open

    @property
    def project_key(self) -> str:
        """The key of questions and answers: the project's name, or its folder if it has none.

        In a store that many machines share, a folder belongs to one user on one machine: the same
        path elsewhere is another project.
        """
        settings = self.settings
        name = named_project(settings, self.policy.project_trusted)
        if name or not settings.store:
            return name or settings.project
        return f"{user_name()}@{machine_name()}:{settings.project}"

    def _normalize(self, request: Request) -> Request:
        """Return the request with hosts, packages and places in normal form.

        A named project may have another path on each machine, so a skill's place in it is the path
        inside the project.
        """
        request, settings = _normalize_patterns(request), self.settings
        place = below(request.origin, settings.worktree)
        if place and named_project(settings, self.policy.project_trusted):
            request = request._replace(origin=f"{_IN_PROJECT}{place}")
        return request

    @property
    def ledger(self) -> RememberedAnswers:
        """The remembered answers of this project."""
        return RememberedAnswers(self._store(), self.project_key)

    @made_once
    def desk(self) -> WaitingRequests:
        """The pending requests."""
        settings = self.settings
        desk = WaitingRequests(
            self.ledger,
            store=self._store(),
            project=self.project_key,
            timeout_seconds=settings.limits.permission_timeout_seconds,
        )
        if self._ask is not None:
            desk.listen(_answering(desk, self._ask), elsewhere=False)
        return desk

    def check(self, request: Request, in_use: Iterable[Skill] = ()) -> Decision:
        """Decide and record a request; blocks while the user is asked.

        Where only built-in rules match, skills `in_use` grant what they declare. Pass them only for
        actions that the sandbox confines.
        """
        self._renew()
        request = self._normalize(request)
        decision = self._decide(request, in_use)
        self.record("decision", request, _describe_decision(request, decision))
        return decision

    def require(self, request: Request) -> Request:
        """Return the request once it is allowed; raise PermissionDenied when it is not."""
        decision = self.check(request)
        if not decision.allowed:
            raise PermissionDenied(request.skill or request.type, decision.reason)
        return request

    def let_through(self, request: Request) -> None:
        """Note that a conversation may use this version of a skill without another question."""
        if request.type == "skill" and request.session:
            if len(self._through) >= _MAX_THROUGH:
                self._through.clear()
            self._through.add(_use_key(request))

    def require_use(self, request: Request, run: Request | None = None) -> None:
        """Ask for permission to use a skill; raise PermissionDenied when it is refused.

        A skill already allowed in the conversation is not asked for again, nor one whose `run` is
        asked for by the same rule: the question about the run names the skill.
        """
        self._renew()
        action, rule = self.rules.decide(request)
        if action != "deny" and self._find_blocked(request):
            self.require(request)
        if action == "allow":
            return
        if action == "ask" and _use_key(request) in self._through:
            return
        if action == "ask" and run is not None and self.rules.decide(run)[1] == rule:
            return
        self.require(request)

    def _decide(self, request: Request, in_use: Iterable[Skill]) -> Decision:
        action, rule = self.rules.decide(request)
        if action != "deny" and (blocked := self._find_blocked(request)):
            return Decision(allowed=False, action="deny", rule=rule, by="scan", reason=blocked)
        if action == "allow":
            return Decision(True, action, rule, "rule")
        if action == "deny":
            return Decision(
                allowed=False,
                action=action,
                rule=rule,
                by="rule",
                reason=_describe_denial(request, rule),
            )
        if rule.source == "default":  # a skill's declaration does not answer an explicit ask rule
            granting = self._granting(request, in_use)
            if granting:
                return Decision(
                    allowed=True,
                    action=action,
                    rule=rule,
                    by="declared",
                    reason=f"declared by {granting}",
                )
        if self.ledger.covering(request) or self._is_held(request):
            return Decision(True, action, rule, "remembered")
        asked = self._with_facts(request)
        with held("permission_questions_waiting"), timed("permission_answer_seconds") as note:
            settled = self.desk.ask(asked)
            note(outcome=settled.by)
        count("permission_questions", outcome=settled.by)
        if settled.by in ("once", "conversation", "always"):
            self.let_through(request)
            if settled.by == "conversation":
                self._keep_for_conversation(request)
            self._note_approval(request, settled)
            return Decision(
                allowed=True,
                action=action,
                rule=rule,
                by=settled.by,
                answered_by=_giver(settled),
            )
        return Decision(
            allowed=False,
            action=action,
            rule=rule,
            by=settled.by,
            reason=self._explain_unanswered(request, settled),
            answered_by=_giver(settled),
        )

    # What is known of the skill that a request is for

    @property
    def _inspector(self) -> SkillInspector:
        return open_inspector(self.settings, self._store, self.project_key)

    def _skill_of(self, request: Request) -> Skill | None:
        return self._skills.get((request.skill, request.hash))

    def _find_blocked(self, request: Request) -> str:
        """Return why a scan refuses a skill of another origin; "" if it does not.

        Installed skills were scanned before they were installed.
        """
        if request.type != "skill":
            return ""
        skill = self._skill_of(request)
        if skill is None:  # the request is older than all the gate still knows
            return _STALE if is_remote(request.origin) else ""
        if not skill.origin.remote:
            return ""
        reason = self._inspector.refusal(skill)
        whose = ". Only the user may decide." if request.initiator == "model" else ""
        return f"{reason}{whose}" if reason else ""

    def _with_facts(self, request: Request) -> Request:
        """Return the request with the known facts about its skill, for a person."""
        metadata: Mapping[str, object] = ASKER.get()
        skill = self._skill_of(request)
        is_read = self._recorded and self._ask is not allow_unread
        if skill is not None and request.type in _DESCRIBED and is_read:
            metadata = {**metadata, **self._inspector.describe(skill, request.hash, request.origin)}
        return request._replace(metadata={**request.metadata, **metadata}) if metadata else request

    def _note_approval(self, request: Request, settled: Settled) -> None:
        """Remember which facts a person approved, so that the next question can say what is new."""
        skill, was_read = self._skill_of(request), _giver(settled) not in _UNREAD
        if skill is not None and request.type in _DESCRIBED and self._recorded and was_read:
            self._inspector.approve(skill, request.hash, request.origin)

    def held(self, session: str) -> tuple[Request, ...]:
        """Return what the user allowed for a conversation; only this process keeps it."""
        return tuple(self._held.get(session, ()))

    def _keep_for_conversation(self, request: Request) -> None:
        if request.session and memorable(request):
            if len(self._held) >= _MAX_THROUGH:
                self._held.clear()
            held = self._held.setdefault(request.session, [])
            held.append(request)
            del held[:-_MAX_HELD]

    def _is_held(self, request: Request) -> bool:
        """Whether answers for this conversation cover the request, as remembered ones would."""
        held = self._held.get(request.session, [])
        # A skill that changed, then changed back, is asked for again.
        held[:] = [one for one in held if not _is_outdated(one, request)]
        wanted, bound = texts(request), binding(request)
        given = {text for one in held if binding(one) == bound for text in one.always}
        return bool(wanted) and known(request) and set(wanted) <= given

    def _explain_unanswered(self, request: Request, settled: Settled) -> str:
        """Say why permission was not given, and how the reader can get it."""
        wanted = _permission(request)
        if settled.by == "rejected":
            message = settled.answer.message if settled.answer else ""
            return f"{wanted} was refused" + (
                f": {one_line(message)}" if message else f".{_continue_hint(request)}"
            )
        if settled.by == "disposed":
            return f"{wanted} is needed, but the runtime is closed and cannot ask for it."
        if settled.by == "timeout":
            message = (
                f"{wanted} was requested, but no answer came in time.{_continue_hint(request)}"
            )
        else:
            message = f"{wanted} is needed, but no user or callback can grant it.{_hint(request)}"
        return f"{message}{self._describe_remedy(request)}"

    def _describe_remedy(self, request: Request) -> str:
        """Return the complete command that allows the request, and the same in code."""
        try:
            rules = tuple(Rule(request.type, text, "allow") for text in _literal(request))
        except ConfigError:  # longer than a pattern may be
            rules = ()
        rules = rules if all(_is_text(rule.pattern) for rule in rules) else ()
        if not 0 < len(rules) <= _MAX_ADVISED:
            return " `skillbelt permissions watch` answers such requests as they come."
        commands = " && ".join(map(_command, rules)) if self._would_allow(request, rules) else ""
        code = ", ".join(map(_code, rules))
        if commands:
            # A model that can run commands must not run this one itself.
            whose = " Only the user may decide:" if request.initiator == "model" else ""
            return f"{whose} `{commands}` allows it, or in code {code}."
        return f" A host allows it in code: {code}."

    def _would_allow(self, request: Request, added: tuple[Rule, ...]) -> bool:
        """Whether the request is allowed once these rules are in the user's file."""
        policy, files = self.policy, self.settings.files
        rules = [rule for rule in policy.rules if SOURCES.index(rule.source) <= _USER]
        for rule in added:
            rules += spelled(rule._replace(source="user"), self.settings.home)
        rules += [rule for rule in policy.rules if SOURCES.index(rule.source) > _USER]
        theirs = {path for source, path in files if source == "project"}
        made = RuleSet(rules, theirs, project_trusted=policy.project_trusted)
        return made.decide(request)[0] == "allow"

    def with_rules(self, rules: Iterable[Rule]) -> Gate:
        """Return a gate with more rules on top that shares the pending requests with this one."""
        added = checked_rules(rules)
        if not added:
            return self
        other = Gate(
            self._settings,
            self._store,
            rules=(*self._rules, *added),
            ask=self._ask,
            renew=self._renew,
        )
        other.__dict__.update(desk=self.desk, audit=self.audit)
        other._through, other._held, other._skills = self._through, self._held, self._skills
        return other

    def with_ask(self, ask: Ask, *, recorded: bool = True) -> Gate:
        """Return a gate with the same rules whose open requests another function answers.

        With `recorded` False it writes no log; nothing may be done on its decisions.
        """
        other = Gate(self._settings, self._store, rules=self._rules, ask=ask, renew=self._renew)
        other._recorded, other._skills = recorded, self._skills
        other.__dict__.update(audit=self.audit)
        return other

    def asking_for(self, *types: str) -> Gate:
        """Return a gate with the same rules that asks for these types, and refuses other requests.

        Without a function that answers, it refuses everything that no rule allows.
        """
        ask = self._ask

        def answer(pending: Pending) -> Answer | None:
            if pending.request.type not in types:
                return Answer("reject", "it is not asked for here")
            return ask(pending) if ask is not None else None

        return self.with_ask(answer)

    def close(self) -> None:
        """Refuse all pending requests, and all later ones."""
        self.desk.close()

    # Requests

    def load_request(
        self,
        skill: Skill,
        initiator: Initiator,
        agent: str = "",
        session: SessionKey | None = None,
        hash: str = "",
    ) -> Request:
        """Build the request to load a skill; a skill too large to hash gets no remembered answer.

        `hash` is the hash of the staged copy, if there is one.
        """
        mark = hash or skill.files.digest()
        self._note_skill(skill, mark)
        shown, origin = _describe_place(skill.origin, skill.dir, skill.scope)
        return Request(
            type="skill",
            patterns=(skill.name,),
            always=(skill.name,) if is_complete(mark) else (),
            summary=f"load the skill {skill.name} from {shown}",
            initiator=initiator,
            agent=agent,
            session=session_id(session),
            skill=skill.name,
            hash=mark,
            origin=origin,
            trusted=skill.trusted,
        )

    def _note_skill(self, skill: Skill, mark: str) -> None:
        """Note a skill as the newest one; other threads find it at every moment."""
        key = (skill.name, mark)
        self._skills[key] = skill
        try:
            self._skills.move_to_end(key)
        except KeyError:  # another thread needed the room
            self._skills[key] = skill
        if len(self._skills) > _MAX_SKILLS:
            oldest, *_ = list(self._skills)  # a copy: other threads add to it meanwhile
            self._skills.pop(oldest, None)

    def declared(
        self,
        skill: Skill,
        like: Request,
        *,
        tools: tuple[str, ...] | None = None,
        sandboxed: bool = True,
    ) -> Granted:
        """Return which declared tools a skill may use, asking where a rule says so.

        `tools` replace those of the skill, where it declares none. The host's deny and ask rules
        stay in force. Where only built-in rules match, a declaration counts if the skill's origin
        is trusted and the run is `sandboxed`; otherwise, or with `trust_declared_tools` off, a tool
        needs a rule or an answer that allows it.
        """
        granted, denied = [], []
        for tool in skill.frontmatter.allowed_tools if tools is None else tools:
            names = _names(tool.partition("(")[0].strip())
            about = f"let the skill {skill.name} use the tool {one_line(tool)}"
            request = like._replace(
                type="tool",
                patterns=names,
                always=(tool,),
                summary=about,
                exact=digest({"tool": tool}),
                tools=(),
            )
            decision = self._decide_declared(request, skill, sandboxed)
            if decision.allowed:
                granted.append(tool)
            else:
                denied.append((tool, decision.reason))
        return Granted(tuple(granted), tuple(denied))

    def _decide_declared(self, request: Request, skill: Skill, sandboxed: bool) -> Decision:
        """Decide about a tool that the skill declares, entirely or for some uses."""
        self._renew()
        action, rule = self.rules.decide(request)
        counts = sandboxed and _may_declare(skill) and self.settings.trust_declared_tools
        if action != "ask" or rule.source != "default" or not counts:
            return self.check(request)
        decision = Decision(
            allowed=True,
            action=action,
            rule=rule,
            by="declared",
            reason=f"declared by {skill.name}",
        )
        self.record("decision", request, _describe_decision(request, decision))
        return decision

    def special(self, like: Request, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that an explicit rule, not a built-in one, asks for or denies."""
        asked = like._replace(type="host_file", tools=())
        ruled = ((path, self.rules.decide(asked._replace(patterns=(path,)))) for path in paths)
        return tuple(
            path for path, (action, rule) in ruled if action != "allow" and rule.source != "default"
        )

    def denied_below(self, like: Request, folder: str) -> Rule | None:
        """Return a rule that denies the folder or something in it, or None."""
        asked = like._replace(type="host_file", patterns=(folder,), tools=())
        action, rule = self.rules.decide(asked)
        if action == "deny":
            return rule
        return self.rules.denying(asked, f"{folder.rstrip('/')}/*")

    def spoken_of(self, like: Request, tools: tuple[str, ...]) -> Decision | None:
        """Decide about tools that no skill declares; None where no explicit rule matches them."""
        request = like._replace(
            type="tool",
            patterns=tools,
            always=tools,
            summary=f"let the skill {like.skill} use the tool {tools[0]}",
            exact=digest({"tools": tools}),
            tools=(),
        )
        _, rule = self.rules.decide(request)
        return None if rule.source == "default" else self.check(request)

    def _granting(self, request: Request, skills: Iterable[Skill]) -> str:
        """Return the name of a skill whose declaration grants the request, or ""."""
        if not self.settings.trust_declared_tools:
            return ""
        for skill in skills:
            if _may_declare(skill) and _covers(request, declared_rules(skill)):
                return skill.name
        return ""

    # Audit

    def record_load(self, request: Request, loaded: GivenText, skill: Skill) -> None:
        """Record that a skill's text is loaded; LoadError if it is not the allowed version.

        Call it after reading the text and before returning it.
        """
        # Either the request's hash covers this file, or the whole skill must be unchanged.
        same = holds(request.hash, loaded.path, loaded.report.sha256)
        if not same and skill.files.digest() != request.hash:
            raise LoadError(
                loaded.path,
                f"the skill {skill.name} changed while permission was requested; "
                "try again to request permission for the current version",
            )
        report = loaded.report
        facts = {"path": loaded.path, "sha256": report.sha256, "truncated": report.truncated}
        self.record("load", request, facts)

    @made_once
    def audit(self) -> AuditStore:
        """The log of decisions, loads and runs."""
        return open_audit(self.settings)

    @property
    def is_recorded(self) -> bool:
        """Whether actions are recorded, in the log and in the history of runs."""
        return self.settings.audit and self._recorded

    @property
    def store(self) -> Store:
        """The store of the answers and of the history of runs."""
        return self._store()

    def record(self, type: str, request: Request, data: dict[str, object]) -> None:
        """Append an event about the request to the audit log."""
        settings = self.settings
        if not self.is_recorded:
            return
        self.audit.append(
            AuditEvent(
                time=time.time(),
                type=type,
                project=settings.project,
                user=user_name(),
                session=request.session,
                agent=request.agent,
                initiator=request.initiator,
                skill=request.skill,
                hash=request.hash,
                data=data,
            )
        )


def allow_unread(_pending: Pending) -> Answer:
    """Allow a request once, as `--yes` does; no facts are collected for it."""
    return Answer("once", by=_UNREAD[0])


def named_project(settings: Settings, trusted: bool) -> str:
    """Return the name of the project; "" if it has none.

    A name from a file of the checkout counts only if the project is trusted: with another project's
    name, a checkout would get its remembered answers.
    """
    counts = trusted or not settings.by_project("project_name")
    return settings.project_name if counts else ""


def _normalize_patterns(request: Request) -> Request:
    """Return the request with hosts and packages in the normal form of rules."""
    texts = request.patterns
    if request.type == "network":
        texts = tuple(
            text if text.startswith(_SPELLED) else normal_forms.host_text(text) for text in texts
        )
    elif request.type == "install":
        texts = tuple(dict.fromkeys(form for text in texts for form in asked_texts(text)))
    return request if texts == request.patterns else request._replace(patterns=texts)


def _is_outdated(held: Request, request: Request) -> bool:
    """Whether an answer was given for another content of the request's skill."""
    same = (held.skill, held.origin) == (request.skill, request.origin)
    return bool(request.skill) and same and held.hash != request.hash


def _use_key(request: Request) -> tuple[str, ...]:
    """Return the key of a use: conversation, agent, initiator, skill and its hash."""
    return request.session, request.agent, request.initiator, request.skill, request.hash


def _may_declare(skill: Skill) -> bool:
    """Whether the skill's declarations count; those of an MCP server's skills never do."""
    return skill.trusted and skill.origin.kind != "mcp"


def declared_rules(skill: Skill) -> list[Rule]:
    """Return a skill's `allowed-tools` as rules."""
    tools = skill.frontmatter.allowed_tools
    return [rule for tool in tools for rule in parse_rule(tool, "allow")]


def _covers(request: Request, rules: list[Rule]) -> bool:
    return bool(rules) and RuleSet(rules).decide(request)[0] == "allow"


def tool_request(
    tool: str,
    argument: str = "",
    *,
    agent: str = "",
    session: str = "",
    home: str = "",
    folder: str = "",
) -> Request:
    """Build the request to use a tool of the host, such as `Bash` with `git add .`.

    `home` replaces `~` in a path; relative paths start at `folder`.
    """
    names = _names(tool)
    kind = type_of(names[-1]) if argument else "tool"
    if kind == "network" and normal_forms.is_file_url(argument):
        kind = "host_file"
    about = f"use {one_line(tool)}" + (f" on {exact(argument)}" if argument else "")
    if kind == "tool":
        return Request(
            type=kind,
            patterns=names,
            always=(),
            summary=about,
            initiator="model",
            agent=agent,
            session=session,
        )
    if kind == "run":
        names = tuple(dict.fromkeys((*names, *SHELL_TOOLS)))
        patterns = simple_commands(argument)
    elif kind == "network":
        patterns = (normal_forms.host_text(argument),)
    elif kind == "host_file":
        patterns = normal_forms.path_texts(argument, home, folder)
    else:
        patterns = (argument,)
    return Request(
        type=kind,
        patterns=patterns,
        always=(),
        summary=about,
        initiator="model",
        agent=agent,
        session=session,
        tools=names,
    )


def _names(tool: str) -> tuple[str, ...]:
    """Return the tool's name as written and its canonical name; rules may use either."""
    return tuple(dict.fromkeys((tool, tool_name(tool))))


def _answering(desk: WaitingRequests, ask: Ask) -> Callable[[Pending], None]:
    def listener(pending: Pending) -> None:
        answer = checked_answer(ask(pending))
        if answer is None:
            raise NotAnswered("not answered")  # the request must not wait for this listener
        desk.answer(pending.id, answer)

    return listener


def session_id(key: SessionKey | None) -> str:
    """Return the key of a conversation as one string."""
    return "/".join(key) if key is not None else ""


@lru_cache(maxsize=1024)
def _describe_place(origin: Origin, folder: str, scope: str) -> tuple[str, str]:
    """Return where a skill comes from, for people and for rules."""
    if origin.remote:
        return str(origin), str(origin)
    return f"{one_line(folder)} ({scope})", folder


def _describe_decision(request: Request, decision: Decision) -> dict[str, object]:
    """Return the data of the decision's audit event."""
    return {
        "type": request.type,
        "patterns": list(request.patterns),
        "action": decision.action,
        "allowed": decision.allowed,
        "by": decision.by,
        "reason": decision.reason,
        "rule": rule_json(decision.rule),
        **({"answered_by": decision.answered_by} if decision.answered_by else {}),
    }


def _giver(settled: Settled) -> str:
    """Return the name of the person or program that answered; "" if there was no answer."""
    return settled.answer.by if settled.answer is not None else ""


def rule_json(rule: Rule) -> dict[str, object]:
    """Return a rule as `--json` documents and the log show it."""
    facts: dict[str, object] = rule._asdict()
    return {key: value for key, value in facts.items() if value not in ("", None) or key == "path"}


def _describe_denial(request: Request, rule: Rule) -> str:
    return (
        f"{_permission(request)} is denied by {_SOURCES[rule.source]} "
        f"({rule.type} {rule.pattern!r}).{_continue_hint(request)}"
    )


def _permission(request: Request) -> str:
    texts = ", ".join(map(one_line, request.patterns))
    return f"Permission to {request.summary or f'{request.type} {texts}'}"


def _continue_hint(request: Request) -> str:
    """Return the hint that a model may continue without it; a person gets no hint."""
    return " Go on without it." if request.initiator == "model" else ""


def _hint(request: Request) -> str:
    """Return what a model can do about a skill that it may not load."""
    if request.type == "skill" and request.initiator == "model":
        return f" Ask the user to load it with /{request.skill}, or go on without it."
    return ""


def _literal(request: Request) -> Iterator[str]:
    """Yield patterns that match the requested texts and as little else as possible.

    No text is trusted: a `*` in it must not become a wildcard, so it becomes `?`.
    """
    for text in request.patterns:
        if request.type == "install":
            yield text.partition(" ")[0]
        elif request.type == "network" or text.startswith((OPAQUE, UNCLEAR)):
            yield text
        else:
            yield text.replace("*", "?")


def _is_text(pattern: str) -> bool:
    """Whether a file of rules can hold the pattern: it must be valid UTF-8."""
    try:
        pattern.encode()
    except UnicodeEncodeError:
        return False
    return True


def _command(rule: Rule) -> str:
    """Return the command that adds the rule."""
    word = shell_word(rule.pattern)
    if rule.pattern.startswith("-"):
        return f"skillbelt permissions allow --type {rule.type} -- {word}"
    return f"skillbelt permissions allow {word} --type {rule.type}"


def _code(rule: Rule) -> str:
    text = repr(rule.pattern).replace("  ", " \\x20").replace("`", "\\x60")
    return f"Rule({rule.type!r}, {text}, 'allow')"
