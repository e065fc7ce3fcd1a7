"""The one place that decides: rules first, then what is remembered, then somebody is asked.

Whatever acts on a skill's behalf comes here before it acts, and every decision is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol

from skillbelt.errors import LoadError, PermissionDenied
from skillbelt.files.manifest import holds, is_complete
from skillbelt.format.skill import Skill
from skillbelt.permission.audit import AuditEvent, AuditLog, open_audit, user_name
from skillbelt.permission.command_lines import simple_commands
from skillbelt.permission.grants import tool_name
from skillbelt.permission.packages import asked_texts
from skillbelt.permission.remembered import Remembered, RememberedAnswers
from skillbelt.permission.rule_files import Policy, parse_rule, read_policy, type_of
from skillbelt.permission.rules import (
    SHELL_TOOLS,
    UNCLEAR,
    Action,
    Answer,
    Decision,
    Initiator,
    Request,
    Rule,
    RuleSet,
    digest,
)
from skillbelt.permission.spelling import host_text, is_file_url, path_texts
from skillbelt.permission.waiting import NotAnswered, Pending, Settled, WaitingRequests
from skillbelt.settings import Settings
from skillbelt.store import SessionKey, Store
from skillbelt.text import one_line
from skillbelt.trust import Trust
from skillbelt.values import Diagnostic, Origin

# Answers a request, or leaves it to others with None.
Ask = Callable[[Pending], Answer | None]
# What a host finds again in the `metadata` of whatever is asked for in its context: which call of
# which client it comes from.
ASKER: ContextVar[Mapping[str, object]] = ContextVar("ASKER", default=MappingProxyType({}))
_MAX_THROUGH = 4096  # skills that were let through in conversations
_SPELLED = (UNCLEAR, "*")  # what is no address of one host
_SOURCES = {
    "default": "the built-in rules",
    "system": "the rules of this machine",
    "user": "the user's rules",
    "project": "the project's rules",
    "agent": "the agent's rules",
    "session": "the host's rules",
}


class ReadReport(Protocol):
    """What the log keeps about how a text was read."""

    @property
    def sha256(self) -> str: ...  # noqa: D102

    @property
    def truncated(self) -> bool: ...  # noqa: D102


class GivenText(Protocol):
    """A text of a skill that was given to a model or a person."""

    @property
    def path(self) -> str: ...  # noqa: D102

    @property
    def report(self) -> ReadReport: ...  # noqa: D102


class Explanation(NamedTuple):
    """Why a request would be decided as it would: the rule, and what is remembered."""

    action: Action
    rule: Rule
    remembered: Remembered | None


class Granted(NamedTuple):
    """The tools a skill may have of those it declares, and why it may not have the others."""

    tools: tuple[str, ...]
    denied: tuple[tuple[str, str], ...] = ()


class Gate:
    """Decides for one project. `rules` of the host stand last, so they are the strongest."""

    def __init__(
        self,
        settings: Settings,
        store: Callable[[], Store],
        *,
        rules: Iterable[Rule] = (),
        ask: Ask | None = None,
    ) -> None:
        self.settings, self._rules = settings, tuple(rules)
        self._store, self._ask = store, ask
        self._through: set[tuple[str, ...]] = set()

    # What the rules say

    @cached_property
    def policy(self) -> Policy:
        """The rules in order, weakest first, and what there is to say of them."""
        trusted = Trust(self.settings.state_dir).project(self.settings.project)
        return read_policy(self.settings, project_trusted=trusted, session_rules=self._rules)

    @cached_property
    def rules(self) -> RuleSet:
        """The rules, ready to decide."""
        files = {path for source, path in self.settings.files if source == "project"}
        return RuleSet(self.policy.rules, files)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What is wrong with rules that were read."""
        return self.policy.diagnostics

    @cached_property
    def hides_skills(self) -> bool:
        """Whether any rule could keep a skill from somebody."""
        rules = self.policy.rules
        return any(rule.action == "deny" and rule.type in ("skill", "*") for rule in rules)

    def permitted(self, agent: str | None, skills: Mapping[str, Skill]) -> Mapping[str, Skill]:
        """Return those of the skills that a model working as this agent may know of."""
        if not self.hides_skills:
            return skills
        return {name: one for name, one in skills.items() if self.permit(agent, one)}

    def permit(self, agent: str | None, skill: Skill) -> bool:
        """Whether a model working as this agent may know of the skill."""
        request = Request("skill", (skill.name,), agent=agent or "", trusted=skill.trusted)
        return self.rules.decide(request)[0] != "deny"

    def explain(self, request: Request) -> Explanation:
        """What `check` would find, without asking or recording anything."""
        request = _spelled(request)
        action, rule = self.rules.decide(request)
        remembered = self.ledger.covering(request) if action == "ask" else None
        return Explanation(action, rule, remembered)

    # Who decides what the rules leave open

    @property
    def ledger(self) -> RememberedAnswers:
        """What was remembered in this project."""
        return RememberedAnswers(self._store(), self.settings.project)

    @cached_property
    def desk(self) -> WaitingRequests:
        """Where requests wait for an answer."""
        settings = self.settings
        desk = WaitingRequests(
            self.ledger,
            store=self._store(),
            project=settings.project,
            timeout_seconds=settings.limits.permission_timeout_seconds,
        )
        if self._ask is not None:
            desk.listen(_answering(desk, self._ask), elsewhere=False)
        return desk

    def check(self, request: Request, in_use: Iterable[Skill] = ()) -> Decision:
        """The decision; blocks while somebody is asked. It is recorded before it is known.

        Skills that are `in_use` grant what they declare, where nobody wrote a rule. They are given
        only for what the sandbox bounds.
        """
        request = _spelled(request)
        decision = self._decide(request, in_use)
        self.record("decision", request, _told(request, decision))
        return decision

    def require(self, request: Request) -> Request:
        """The request, once it is allowed; raises PermissionDenied when it is not."""
        decision = self.check(request)
        if not decision.allowed:
            raise PermissionDenied(request.skill or request.type, decision.reason)
        return request

    def let_through(self, request: Request) -> None:
        """Note that a skill was allowed in a conversation, as it is: its use needs no more."""
        if request.type == "skill" and request.session:
            if len(self._through) >= _MAX_THROUGH:
                self._through.clear()
            self._through.add(_use(request))

    def require_use(self, request: Request, run: Request | None = None) -> None:
        """Ask for a skill that is to be used; raises PermissionDenied when it may not be.

        One that was let through in the conversation is not asked for again, nor one whose `run` is
        asked for by the very same rule: the question about the run names the skill.
        """
        action, rule = self.rules.decide(request)
        if action == "allow":
            return
        if action == "ask" and _use(request) in self._through:
            return
        if action == "ask" and run is not None and self.rules.decide(run)[1] == rule:
            return
        self.require(request)

    def _decide(self, request: Request, in_use: Iterable[Skill]) -> Decision:
        action, rule = self.rules.decide(request)
        if action == "allow":
            return Decision(True, action, rule, "rule")
        if action == "deny":
            return Decision(
                allowed=False, action=action, rule=rule, by="rule", reason=_denied(request, rule)
            )
        if rule.source == "default":  # an ask that somebody wrote is not for a skill to answer
            granting = self._granting(request, in_use)
            if granting:
                return Decision(
                    allowed=True,
                    action=action,
                    rule=rule,
                    by="declared",
                    reason=f"declared by {granting}",
                )
        if self.ledger.covering(request):
            return Decision(True, action, rule, "remembered")
        asker = ASKER.get()
        settled = self.desk.ask(
            request._replace(metadata={**request.metadata, **asker}) if asker else request
        )
        if settled.by in ("once", "always"):
            self.let_through(request)
            return Decision(True, action, rule, settled.by)
        return Decision(
            allowed=False,
            action=action,
            rule=rule,
            by=settled.by,
            reason=_unanswered(request, settled),
        )

    def with_rules(self, rules: Iterable[Rule]) -> Gate:
        """A gate with rules of its own on top, and one desk for both."""
        added = tuple(rules)
        if not added:
            return self
        other = Gate(self.settings, self._store, rules=(*self._rules, *added), ask=self._ask)
        other.__dict__.update(desk=self.desk, audit=self.audit, _through=self._through)
        return other

    def close(self) -> None:
        """Refuse what still waits for an answer, and whatever is asked from now on."""
        self.desk.close()

    # What is asked

    def load_request(
        self,
        skill: Skill,
        initiator: Initiator,
        agent: str = "",
        session: SessionKey | None = None,
        hash: str = "",
    ) -> Request:
        """The request to load a skill. Of one too large to read whole, nothing is remembered.

        `hash` is that of the copy which is meant, where there is one.
        """
        mark = hash or skill.files.digest()
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

    def declared(self, skill: Skill, like: Request, *, sandboxed: bool = True) -> Granted:
        """Which of the tools that a skill declares it may have, asking where a rule says so.

        What the host denies or asks for stays so. Where nobody wrote a rule, a declaration counts
        as long as the skill's origin is trusted and the run is `sandboxed`; without that, or with
        `trust_declared_tools` off, only what a rule or somebody allows is granted.
        """
        granted, denied = [], []
        for tool in skill.frontmatter.allowed_tools:
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
            decision = self._declared(request, skill, sandboxed)
            if decision.allowed:
                granted.append(tool)
            else:
                denied.append((tool, decision.reason))
        return Granted(tuple(granted), tuple(denied))

    def _declared(self, request: Request, skill: Skill, sandboxed: bool) -> Decision:
        """The decision for a tool that the skill declares, whole or for some uses of it."""
        action, rule = self.rules.decide(request)
        counts = sandboxed and _speaks(skill) and self.settings.trust_declared_tools
        if action != "ask" or rule.source != "default" or not counts:
            return self.check(request)
        decision = Decision(
            allowed=True,
            action=action,
            rule=rule,
            by="declared",
            reason=f"declared by {skill.name}",
        )
        self.record("decision", request, _told(request, decision))
        return decision

    def special(self, like: Request, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of the paths that a rule somebody wrote asks for or denies."""
        asked = like._replace(type="host_file", tools=())
        ruled = ((path, self.rules.decide(asked._replace(patterns=(path,)))) for path in paths)
        return tuple(
            path for path, (action, rule) in ruled if action != "allow" and rule.source != "default"
        )

    def denied_below(self, like: Request, folder: str) -> Rule | None:
        """A rule that denies something in the folder, or the folder; None if none does."""
        asked = like._replace(type="host_file", patterns=(folder,), tools=())
        action, rule = self.rules.decide(asked)
        if action == "deny":
            return rule
        return self.rules.denying(asked, f"{folder.rstrip('/')}/*")

    def spoken_of(self, like: Request, tools: tuple[str, ...]) -> Decision | None:
        """The decision for tools that nobody declares; None where no rule speaks of them."""
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
        """The skill that declares what is wanted; "" when none that may does."""
        if not self.settings.trust_declared_tools:
            return ""
        for skill in skills:
            if _speaks(skill) and _covered(request, declared_rules(skill)):
                return skill.name
        return ""

    # What is recorded

    def record_load(self, request: Request, loaded: GivenText, skill: Skill) -> None:
        """Write down that text of a skill is given; LoadError when it is not what was allowed.

        To be called between reading and giving: what was read before is then of what was asked for.
        """
        # The file itself was hashed for the request, or else nothing in the skill has changed.
        same = holds(request.hash, loaded.path, loaded.report.sha256)
        if not same and skill.files.digest() != request.hash:
            raise LoadError(
                loaded.path,
                f"the skill {skill.name} changed while it was asked for; "
                "try again, and it is asked for as it is now",
            )
        report = loaded.report
        facts = {"path": loaded.path, "sha256": report.sha256, "truncated": report.truncated}
        self.record("load", request, facts)

    @cached_property
    def audit(self) -> AuditLog:
        """The log of decisions, loads and runs."""
        return open_audit(self.settings)

    def record(self, type: str, request: Request, data: dict[str, object]) -> None:
        """Write down what happened, with who and what it was about."""
        if not self.settings.audit:
            return
        self.audit.append(
            AuditEvent(
                time=time.time(),
                type=type,
                project=self.settings.project,
                user=user_name(),
                session=request.session,
                agent=request.agent,
                initiator=request.initiator,
                skill=request.skill,
                hash=request.hash,
                data=data,
            )
        )


def _spelled(request: Request) -> Request:
    """The request with hosts and packages in the one spelling that rules have too."""
    texts = request.patterns
    if request.type == "network":
        texts = tuple(text if text.startswith(_SPELLED) else host_text(text) for text in texts)
    elif request.type == "install":
        texts = tuple(dict.fromkeys(form for text in texts for form in asked_texts(text)))
    return request if texts == request.patterns else request._replace(patterns=texts)


def _use(request: Request) -> tuple[str, ...]:
    """Who may use which skill, as it is, in which conversation."""
    return request.session, request.agent, request.initiator, request.skill, request.hash


def _speaks(skill: Skill) -> bool:
    """Whether what the skill declares counts. What another server wants for its skills is asked."""
    return skill.trusted and skill.origin.kind != "mcp"


def declared_rules(skill: Skill) -> list[Rule]:
    """What a skill's `allowed-tools` would allow, as rules."""
    tools = skill.frontmatter.allowed_tools
    return [rule for tool in tools for rule in parse_rule(tool, "allow")]


def _covered(request: Request, rules: list[Rule]) -> bool:
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
    """The request to use a tool of the host, as in `Bash` with `git add .`.

    `home` is what `~` means in a path, and `folder` where a relative one begins.
    """
    names = _names(tool)
    kind = type_of(names[-1]) if argument else "tool"
    if kind == "network" and is_file_url(argument):
        kind = "host_file"
    about = f"use {one_line(tool)}" + (f" on {one_line(argument)}" if argument else "")
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
        patterns = (host_text(argument),)
    elif kind == "host_file":
        patterns = path_texts(argument, home, folder)
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
    """A tool as it is written, and by its usual name: rules may speak of either."""
    return tuple(dict.fromkeys((tool, tool_name(tool))))


def _answering(desk: WaitingRequests, ask: Ask) -> Callable[[Pending], None]:
    def listener(pending: Pending) -> None:
        answer = ask(pending)
        if answer is None:
            raise NotAnswered("not answered")  # so that the request does not wait for it
        desk.answer(pending.id, answer)

    return listener


def session_id(key: SessionKey | None) -> str:
    """A conversation as one text."""
    return "/".join(key) if key is not None else ""


@lru_cache(maxsize=1024)
def _describe_place(origin: Origin, folder: str, scope: str) -> tuple[str, str]:
    """Return where a skill comes from, for people and for rules."""
    if origin.remote:
        return str(origin), str(origin)
    return f"{one_line(folder)} ({scope})", folder


def _told(request: Request, decision: Decision) -> dict[str, object]:
    return {
        "type": request.type,
        "patterns": list(request.patterns),
        "action": decision.action,
        "allowed": decision.allowed,
        "by": decision.by,
        "reason": decision.reason,
        "rule": rule_json(decision.rule),
    }


def rule_json(rule: Rule) -> dict[str, object]:
    """A rule as commands print it and the log holds it."""
    facts: dict[str, object] = rule._asdict()
    return {key: value for key, value in facts.items() if value not in ("", None) or key == "path"}


def _denied(request: Request, rule: Rule) -> str:
    return (
        f"{_permission(request)} is denied by {_SOURCES[rule.source]} "
        f"({rule.type} {rule.pattern!r}).{_go_on(request)}"
    )


def _unanswered(request: Request, settled: Settled) -> str:
    wanted = _permission(request)
    if settled.by == "rejected":
        said = settled.answer.message if settled.answer else ""
        return f"{wanted} was refused" + (f": {one_line(said)}" if said else f".{_go_on(request)}")
    if settled.by == "timeout":
        return f"{wanted} was asked for, and nobody answered in time.{_go_on(request)}"
    if settled.by == "disposed":
        return f"{wanted} is needed, and nobody can be asked any more."
    return f"{wanted} is needed, and nobody is there to give it. {_way(request)}"


def _permission(request: Request) -> str:
    texts = ", ".join(map(one_line, request.patterns))
    return f"Permission to {request.summary or f'{request.type} {texts}'}"


def _go_on(request: Request) -> str:
    """A model is told that it may; a person knows."""
    return " Go on without it." if request.initiator == "model" else ""


def _way(request: Request) -> str:
    """How whoever reads a refusal can get what they want."""
    if request.type == "skill" and request.initiator == "model":
        return f"Ask the user to load it with /{request.skill}, or go on without it."
    return "It can be allowed with `skillbelt permissions allow`."
