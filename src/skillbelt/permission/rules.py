"""Permission as values: requests, rules, and which rule decides.

Nothing here reads a file or asks the user. `rule_files` reads the rules, `gate` combines both.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self

from skillbelt.errors import ConfigError, closest
from skillbelt.late import Late
from skillbelt.permission.command_lines import WHOLE
from skillbelt.permission.packages import SKILL_PREFIX, rule_patterns
from skillbelt.records import NamedTuple

if TYPE_CHECKING:
    from skillbelt.permission import wrappers
else:
    wrappers = Late("skillbelt.permission.wrappers")  # cost: 1 ms, only for command lines

Action = Literal["allow", "ask", "deny"]
Initiator = Literal["model", "user"]
AnswerKind = Literal["once", "conversation", "always", "reject"]
# The levels of rules, weakest first.
Source = Literal["default", "system", "user", "project", "agent", "session"]

ACTIONS: tuple[Action, ...] = ("allow", "ask", "deny")
INITIATORS: tuple[Initiator, ...] = ("model", "user")
ANSWERS: tuple[AnswerKind, ...] = ("once", "conversation", "always", "reject")
SOURCES: tuple[Source, ...] = ("default", "system", "user", "project", "agent", "session")
# The types of requests, and what a pattern of each type is matched against.
TYPES: Mapping[str, str] = MappingProxyType(
    {
        "skill": "the name of a skill that is to be loaded",
        "run": "a command line",
        "network": "a host name, with a port if it is not the usual one",
        "host_file": "a path outside the workspace",
        "install": "a package by its name, or with the version that comes; a skill as skill:NAME",
        "trust": "a project folder or an origin",
        "tool": "a tool that a skill declares",
        "secret": "a skill and the name of a secret, as SKILL/NAME",
    }
)
# Prefixes of a text that may mean anything: a command line that cannot be split, an address that
# cannot be parsed. No allow rule about something in particular covers such a text.
OPAQUE = WHOLE
UNCLEAR = "unclear: "
_WIDE = (OPAQUE, UNCLEAR, "*")
# The tools that run a command line; a rule about one matches both.
SHELL_TOOLS = ("Bash", "Terminal")
# The tools that search a whole folder, or everything that a glob matches.
LOOKING_TOOLS = frozenset(("Grep", "Glob", "LS"))
# A longer pattern is refused when rules are read: the cost of a match grows with it.
MAX_PATTERN_CHARS = 4096
_NOTHING: Mapping[str, object] = MappingProxyType({})
# Views are cached per agent and initiator; beyond this many the cache is cleared.
_MAX_VIEWS = 4096
# How many levels of programs that start each other are followed in one command.
_MAX_DEPTH = 8
_MAX_SHOWN_CHARS = 80
_STRICTNESS = {"allow": 1, "ask": 2, "deny": 3}


class Request(NamedTuple):
    """A request for permission. Every one of `patterns` must be allowed.

    `always` are the texts that "always" remembers, literally, for the skill with this content
    `hash` from this `origin`; without them the answer cannot be remembered. `summary` describes the
    action in one line, for a person. `trusted` says whether the skill's origin is. `exact` is a
    digest of the whole action: an answer is remembered for that digest alone. `tools` are the tools
    that this uses; rules that ask for or deny them count too.
    """

    type: str
    patterns: tuple[str, ...]
    always: tuple[str, ...] = ()
    summary: str = ""
    initiator: Initiator = "model"
    agent: str = ""
    session: str = ""
    skill: str = ""
    hash: str = ""
    origin: str = ""
    trusted: bool = True
    metadata: Mapping[str, object] = _NOTHING
    exact: str = ""
    tools: tuple[str, ...] = ()


class _RuleFields(NamedTuple):
    type: str
    pattern: str
    action: Action
    source: Source = "session"
    path: str = ""
    line: int = 0
    agent: str = ""
    initiator: str = ""
    trusted: bool | None = None
    skill: str = ""


class Rule(_RuleFields):
    """One rule. `agent`, `initiator` and `skill` narrow it when not empty, `trusted` when not None.

    `path` and `line` say where it is written. ConfigError for an invalid value.
    """

    __slots__ = ()

    def __new__(
        cls,
        type: str,
        pattern: str,
        action: Action,
        source: Source = "session",
        path: str = "",
        line: int = 0,
        agent: str = "",
        initiator: str = "",
        trusted: bool | None = None,
        skill: str = "",
    ) -> Self:
        """Check the fields that have a fixed set of values."""
        _check_word("Rule", "type", type, (*TYPES, "*"))
        _check_word("Rule", "action", action, ACTIONS)
        _check_word("Rule", "source", source, SOURCES)
        _check_word("Rule", "initiator", initiator, ("", *INITIATORS))
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARS:
            wanted = f"text of at most {MAX_PATTERN_CHARS} characters"
            raise ConfigError(f"Rule: pattern must be {wanted}, not {quoted(pattern)}")
        if not isinstance(skill, str) or len(skill) > MAX_PATTERN_CHARS:
            raise ConfigError(f"Rule: skill must be the name of a skill, not {quoted(skill)}")
        return super().__new__(
            cls,
            type=type,
            pattern=pattern,
            action=action,
            source=source,
            path=path,
            line=line,
            agent=agent,
            initiator=initiator,
            trusted=trusted,
            skill=skill,
        )


class _AnswerFields(NamedTuple):
    kind: AnswerKind
    message: str = ""
    by: str = ""


class Answer(_AnswerFields):
    """The answer to a request; `message` goes to the requester, `by` to the audit log.

    "conversation" covers what "always" would, in this conversation and process alone. ConfigError
    for an unknown kind.
    """

    __slots__ = ()

    def __new__(cls, kind: AnswerKind, message: str = "", by: str = "") -> Self:
        """Check the kind."""
        _check_word("Answer", "kind", kind, ANSWERS)
        return super().__new__(cls, kind, message, by)


def _check_word(where: str, field: str, value: object, known: tuple[str, ...]) -> None:
    if isinstance(value, str) and value in known:
        return
    close = closest(value, filter(None, known), most=1) if isinstance(value, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    allowed = ", ".join(map(repr, known))
    raise ConfigError(f"{where}: {field} must be one of {allowed}, not {quoted(value)}{hint}")


def quoted(value: object) -> str:
    """Return the value for an error, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."


def checked_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the host's rules; ConfigError for a value that is not a `Rule`."""
    given = (rules,) if isinstance(rules, Rule) else tuple(rules)
    for rule in given:
        if not isinstance(rule, Rule):
            raise ConfigError(
                f'rules: {quoted(rule)} is not a Rule; write Rule("run", "git *", "allow")'
            )
    return tuple(Rule(*rule) for rule in given)  # `_replace` checks nothing


def checked_answer(given: object) -> Answer | None:
    """Return the result of `ask`; ConfigError unless it is an `Answer` or None."""
    if given is None or isinstance(given, Answer):
        return given
    raise ConfigError(
        f'ask: the callback returned {quoted(given)}; return Answer("once"), '
        'Answer("conversation"), Answer("always"), Answer("reject"), or None to leave the request '
        "to others"
    )


class Decision(NamedTuple):
    """The outcome for a request, and why.

    `by` is `rule`, `scan`, `remembered`, `declared`, `once`, `conversation`, `always`, `rejected`,
    `timeout`, `nobody` or `disposed`. `reason` explains a refusal. `answered_by` is who gave the
    answer, if known.
    """

    allowed: bool
    action: Action
    rule: Rule
    by: str
    reason: str = ""
    answered_by: str = ""


DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("*", "*", "ask", "default"),
    Rule("skill", "*", "allow", "default", trusted=True),
    Rule("skill", "*", "allow", "default", initiator="user"),
    # Read-only tools never prompt.
    *(Rule("tool", name, "allow", "default") for name in ("Read", "Grep", "Glob", "LS")),
)


def digest(facts: Mapping[str, object]) -> str:
    """Return a digest of all the facts; two digests are equal only if every fact is."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern covers the whole text: `*` is any run of characters, `?` is one.

    A pattern that ends in ` *` or `:*` also covers the text before that. All else is literal.
    """
    return any(_glob(form, text) for form in forms(pattern))


def forms(pattern: str) -> tuple[str, ...]:
    """Return the one or two patterns that it means, without special endings."""
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    return (pattern[:-2], pattern) if pattern.endswith(" *") else (pattern,)


def meet(one: str, other: str) -> bool:
    """Whether some text may match both patterns; False is certain."""
    return any(
        _may_overlap(a, b) and _may_overlap(a[::-1], b[::-1])
        for a in forms(one)
        for b in forms(other)
    )


def _may_overlap(one: str, other: str) -> bool:
    """Whether a text may begin as both patterns do."""
    mine, others = _literal_prefix(one), _literal_prefix(other)
    if mine == one:
        return _glob(other, one)
    if others == other:
        return _glob(one, other)
    return mine.startswith(others) or others.startswith(mine)


class RuleSet:
    """Rules in their order. For each text the last matching rule decides."""

    __slots__ = ("_bounds", "_found", "_made", "_rules", "_scopes", "_theirs", "_untrusting",
                 "_views")  # fmt: skip

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        projects: Collection[str] = (),
        *,
        project_trusted: bool = True,
    ) -> None:
        """Take the rules; `projects` are the project's files, for rules with another source.

        Until the project is trusted its rules are evaluated separately, and can only make the
        outcome of the others stricter.
        """
        self._rules = given = tuple(rules)
        self._bounds: RuleSet | None = None
        self._theirs: tuple[tuple[Rule, ...], Collection[str]] | None = None
        self._untrusting: RuleSet | None = None
        own = [rule for rule in given if not _of_project(rule, projects)]
        if len(own) < len(given):
            if not project_trusted:
                # Rules of agents and of the host are stronger than those of a project.
                first = SOURCES.index("project")
                late = [rule for rule in given if SOURCES.index(rule.source) >= first]
                self._rules, self._bounds = tuple(own), RuleSet(late)
            else:
                self._theirs = (given, projects)
                if any(map(self._is_strict, own)):
                    self._bounds = RuleSet(own)
        self._found = (*self._rules, DEFAULT_RULES[0])  # -1: no rule matches
        self._scopes = frozenset(rule.skill for rule in self._rules if rule.skill)
        self._views: dict[tuple[object, ...], _View] = {}
        self._made: dict[tuple[object, ...], _View] = {}

    @property
    def scopes(self) -> frozenset[str]:
        """The skills that some rules name in `skill`, as they are written."""
        return self._scopes | (self._bounds.scopes if self._bounds is not None else frozenset())

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, weakest first."""
        return self._rules

    def decide(self, request: Request) -> tuple[Action, Rule]:
        """Return the action and the deciding rule; over several patterns the strictest.

        Without a matching rule the action is "ask". Of two rules with the same action an explicit
        one wins over a built-in one. A project's rule never weakens an ask or deny of the user or
        the machine.
        """
        if request.type == "secret" and self._theirs is not None:
            # A secret belongs to the user: no project decides which skill gets it, trusted or not.
            if self._untrusting is None:
                rules, projects = self._theirs
                self._untrusting = RuleSet(rules, projects, project_trusted=False)
            return self._untrusting.decide(request)
        rule = self._find_deciding(request)
        if self._bounds is not None:
            rule = self._pick_stricter(rule, self._bounds._find_deciding(request))
        return rule.action, rule

    def _find_deciding(self, request: Request) -> Rule:
        view = self._view(request)
        least = self._strictest_tool(request) if request.tools else -1
        decisive: Rule | None = None
        for text in request.patterns:
            if text.startswith(_WIDE) and (text[0] != "*" or request.type == "network"):
                rule = self._decide_ambiguous(request, text, least)
            else:
                at = view.last(text)
                rule = self._found[at if at > least else least]
                if request.type == "run":
                    rule = self._run(view, text, rule)
                elif request.type == "host_file" and not LOOKING_TOOLS.isdisjoint(request.tools):
                    rule = self._pick_stricter(rule, self._strictest_inside(view, text))
            if decisive is None or _weight(rule) > _weight(decisive):
                decisive = rule
        return decisive or self._found[-1]

    def _strictest_tool(self, request: Request) -> int:
        """Return the position of the last ask or deny rule for a tool that the request uses."""
        view = self._view(request._replace(type="tool"))
        places = [view.last(tool) for tool in request.tools]
        return max((at for at in places if self._is_strict(self._found[at])), default=-1)

    @staticmethod
    def _is_strict(rule: Rule) -> bool:
        return rule.action != "allow" and rule.source != "default"

    def _run(self, view: _View, text: str, rule: Rule, depth: int = 0) -> Rule:
        """Return the rule for a command, or a stricter one about the program or what it starts.

        For a command that may start anything, the answer is to ask, if a later rule asks for or
        denies something in particular.
        """
        if "/" in text:
            rule = self._apply_name_rules(view, text, rule)
        begun = wrappers.started(text)
        if begun is wrappers.NOTHING:
            return rule
        for inner in begun.commands:
            if depth < _MAX_DEPTH and not inner.startswith(OPAQUE):
                found = self._found[view.last(inner)]
                rule = self._pick_stricter(rule, self._run(view, inner, found, depth + 1))
        if begun.unclear or (begun.commands and depth >= _MAX_DEPTH):
            rule = self._pick_stricter(rule, self._ask_for_hidden(view, text))
        return rule

    def _ask_for_hidden(self, view: _View, text: str) -> Rule:
        """Return the last rule that asks for or denies something in particular, as an ask.

        A later rule that allows the command itself takes that back.
        """
        for position in reversed(view.positions):
            rule = self._rules[position]
            if rule.action == "allow" and matches(rule.pattern, text):
                return rule
            if self._is_strict(rule) and rule.pattern.strip("*"):
                return rule._replace(action="ask")
        return self._found[-1]

    def _strictest_inside(self, view: _View, text: str) -> Rule:
        """Return the strictest rule about anything in a folder, or that a glob may match.

        A later rule that allows the whole folder or glob takes that back.
        """
        cut = min((text.find(char) for char in "*?[{" if char in text), default=-1)
        whole = f"{text[:cut]}*" if cut >= 0 else f"{text.rstrip('/')}/*"
        found = self._found[-1]
        for position in reversed(view.positions):
            rule = self._rules[position]
            if rule.action == "allow" and matches(rule.pattern, whole):
                break
            if self._is_strict(rule) and meet(rule.pattern, whole):
                found = max(rule, found, key=_weight)
        return found

    def _apply_name_rules(self, view: _View, text: str, rule: Rule) -> Rule:
        """Apply deny and ask rules by name at every path; an allow rule needs the path."""
        program, blank, rest = text.partition(" ")
        named = self._found[view.last(f"{program.rpartition('/')[2]}{blank}{rest}")]
        return self._pick_stricter(rule, named)

    def _pick_stricter(self, rule: Rule, other: Rule) -> Rule:
        """Return the other rule if it is explicit and the stricter of the two."""
        return other if self._is_strict(other) and _weight(other) > _weight(rule) else rule

    def _decide_ambiguous(self, request: Request, text: str, least: int) -> Rule:
        """Return the decision on a text that may mean many things: the strictest of them.

        Only a rule about everything, or about exactly this text, allows it.
        """
        opaque = text.startswith((OPAQUE, UNCLEAR))
        for position in reversed(self._view(request).positions):
            rule = self._rules[position]
            whole = not rule.pattern.strip("*") and bool(rule.pattern)
            if position <= least:
                return self._found[least]
            if rule.action == "allow":
                if whole or rule.pattern == text or (not opaque and matches(rule.pattern, text)):
                    return rule
            elif whole or matches(rule.pattern, text):
                return rule
            elif opaque:
                return rule._replace(action="ask")
            elif meet(rule.pattern, text):
                return rule
        return self._found[least]

    def denying(self, request: Request, pattern: str) -> Rule | None:
        """Return the last rule that denies something that the pattern may match; None if none does.

        A later rule that allows all of it takes that back, unless it is only the project's.
        """
        if self._bounds is not None and (denying := self._bounds.denying(request, pattern)):
            return denying
        for position in reversed(self._view(request).positions):
            rule = self._rules[position]
            if rule.action == "deny" and meet(rule.pattern, pattern):
                return rule
            if rule.action == "allow" and matches(rule.pattern, pattern):
                return None
        return None

    def denies_all(self, request: Request) -> bool:
        """Whether every request of this kind is denied, for any subject."""
        if self._bounds is not None and self._bounds.denies_all(request):
            return True
        least = self._strictest_tool(request) if request.tools else -1
        for position in reversed(self._view(request).positions):
            rule = self._rules[position]
            if position < least:
                break
            if rule.action != "deny":
                return False
            if rule.pattern and not rule.pattern.strip("*"):
                return True
        return least >= 0 and self._found[least].action == "deny"

    def last(self, request: Request, text: str) -> int:
        """Return the position of the rule that decides one text of the request; -1 if none."""
        return self._view(request).last(text)

    def _view(self, request: Request) -> _View:
        skill = request.skill if self._scopes else ""
        of_skills = _installs_skills(request)
        key = (request.type, request.agent, request.initiator, request.trusted, skill, of_skills)
        return self._views.get(key) or self._new_view(request, key)

    def _new_view(self, request: Request, key: tuple[object, ...]) -> _View:
        """Build a view; requesters that no rule distinguishes share one."""
        if len(self._views) >= _MAX_VIEWS:
            self._views, self._made = {}, {}
        known = any(rule.type == request.type for rule in self._rules)
        agents = {rule.agent for rule in self._rules if rule.agent}
        named = frozenset(name for name in agents if _is_agent(name, request.agent))
        about = frozenset(name for name in self._scopes if _is_skill(name, request.skill))
        type = request.type if known else "*"
        of_skills = _installs_skills(request)
        same = (type, named, request.initiator, request.trusted, about, of_skills)
        view = self._made.get(same)
        if view is None:
            view = self._made[same] = _View(
                (position, pattern)
                for position, rule in enumerate(self._rules)
                for pattern in _patterns(rule, request.type)
                if rule.type in ("*", request.type)
                and (not of_skills or _is_about_skills(rule))
                and (not rule.agent or rule.agent in named)
                and (not rule.skill or rule.skill in about)
                and _is_asker(rule, request.initiator, request.trusted)
            )
        self._views[key] = view
        return view


def _patterns(rule: Rule, type: str) -> tuple[str, ...]:
    """Return the rule's patterns; for a package, one for each spelling."""
    if type != "install":
        return (rule.pattern,)
    return rule_patterns(rule.pattern, allows=rule.action == "allow")


def _installs_skills(request: Request) -> bool:
    return request.type == "install" and any(
        text.startswith(SKILL_PREFIX) for text in request.patterns
    )


def _is_about_skills(rule: Rule) -> bool:
    # An allow rule for all packages does not allow skills; a deny rule for all installs covers
    # both.
    named = rule.pattern.lower().startswith(SKILL_PREFIX)
    return named or rule.action != "allow" or rule.type == "*"


def _of_project(rule: Rule, files: Collection[str]) -> bool:
    return rule.source == "project" or (rule.source == "agent" and rule.path in files)


def _weight(rule: Rule) -> tuple[int, bool]:
    return _STRICTNESS[rule.action], rule.source != "default"


def _is_agent(named: str, agent: str) -> bool:
    return named in ("", agent) or matches(named, agent)


def _is_skill(named: str, skill: str) -> bool:
    # A request without a skill matches no rule with `skill`, not even one for all skills.
    return bool(skill) and (named == skill or matches(named, skill))


def _is_asker(rule: Rule, initiator: str, trusted: bool) -> bool:
    # A name proves nothing: an allow rule for a skill's name does not cover an untrusted checkout.
    by_name = bool(rule.skill) and rule.action == "allow" and rule.trusted is None
    return rule.initiator in ("", initiator) and (True if by_name else rule.trusted) in (
        None,
        trusted,
    )


class _View:
    """The rules that count for one requester, indexed so that few are tried on a text.

    Literal patterns are in a dict; patterns with a literal prefix or suffix in a tree of each;
    those with a prefix after some `?` in a tree for each number of `?`. Only the rest is tried one
    by one, last rule first, until a later match is known.
    """

    __slots__ = ("_ends", "_exact", "_rest", "_starts", "positions")

    def __init__(self, rules: Iterable[tuple[int, str]]) -> None:
        self.positions: list[int] = []
        self._exact: dict[str, int] = {}
        starts: dict[int, list[_Place]] = {0: []}
        ends: list[_Place] = []
        rest: list[_Try] = []
        for position, pattern in rules:
            self.positions.append(position)
            for form in forms(pattern):
                behind = form.lstrip("?")
                start, end = _literal_prefix(behind), _literal_prefix(form[::-1])
                if start == form:
                    self._exact[form] = position
                elif start or not behind.strip("*"):
                    skipped = len(form) - len(behind)
                    starts.setdefault(skipped, []).append((start, position, behind))
                elif end:
                    ends.append((end, position, form[::-1]))
                else:
                    rest.append(_try(position, form))
        self._starts = [(skipped, _Tree(places)) for skipped, places in starts.items()]
        self._ends = _Tree(ends) if ends else None
        self._rest = rest[::-1]

    def last(self, text: str) -> int:
        """The position of the last rule that matches, or -1."""
        best = self._exact.get(text, -1)
        for skipped, tree in self._starts:
            if skipped <= len(text):
                best = tree.last(text[skipped:], best)
        if self._ends is not None:
            best = self._ends.last(text[::-1], best)
        return _find_best(self._rest, text, best) if self._rest else best


# The literal prefix of a pattern, its position, and the pattern.
_Place = tuple[str, int, str]
# A position, a literal part that a text must contain, and the pattern.
_Try = tuple[int, str, str]


class _Node:
    """One literal prefix: the last rule that is this prefix and `*`, and the longer patterns.

    `parent` is the longest shorter prefix of this one; `holder` is the nearest node from here
    upwards that has patterns to try.
    """

    __slots__ = ("holder", "last", "parent", "start", "tried")

    def __init__(self, start: str, parent: _Node | None, places: Iterable[_Place]) -> None:
        self.start, self.parent = start, parent or self
        self.last: int = parent.last if parent else -1
        self.tried: list[_Try] = []
        for _, position, form in places:
            if form.rstrip("*") == start != form:
                self.last = max(self.last, position)
            else:
                self.tried.append(_try(position, form, len(start)))
        self.tried.reverse()
        self.holder: _Node | None = self if self.tried else parent.holder if parent else None


class _Tree:
    """Literal prefixes, sorted.

    All prefixes of a text are ancestors of its neighbour in that order. They are grouped by their
    first characters, as many as the shortest one has, so that most texts need no search.
    """

    __slots__ = ("_branches", "_common", "_root")

    def __init__(self, places: Iterable[_Place]) -> None:
        kept: dict[str, list[_Place]] = {}
        for place in places:
            kept.setdefault(place[0], []).append(place)
        self._root = node = _Node("", None, kept.pop("", ()))
        self._common = min(map(len, kept), default=0)
        self._branches: dict[str, tuple[list[str], list[_Node]]] = {}
        for start in sorted(kept):
            while not start.startswith(node.start):
                node = node.parent
            node = _Node(start, node, kept[start])
            starts, nodes = self._branches.setdefault(start[: self._common], ([], []))
            starts.append(start)
            nodes.append(node)

    def last(self, text: str, best: int) -> int:
        """Return the position of the last matching rule, or `best` if that is later."""
        branch = self._branches.get(text[: self._common])
        node = self._root
        if branch is not None:
            place = bisect_right(branch[0], text)
            if place:
                node = branch[1][place - 1]
                while not text.startswith(node.start):
                    node = node.parent
        if node.last > best:
            best = node.last
        holder = node.holder
        while holder is not None:
            best = _find_best(holder.tried, text, best)
            holder = None if holder is self._root else holder.parent.holder
        return best


def _try(position: int, form: str, known: int = 0) -> _Try:
    return position, max(form[known:].replace("?", "*").split("*"), key=len), form


def _find_best(tries: Iterable[_Try], text: str, best: int) -> int:
    for position, part, form in tries:
        if position < best:
            break
        if part in text and _glob(form, text):
            return position
    return best


def _literal_prefix(form: str) -> str:
    """Return the text before the first wildcard."""
    return form.partition("*")[0].partition("?")[0]


def _glob(form: str, text: str) -> bool:
    """Match without backtracking: search each literal part once, after the one before."""
    if "?" in form:
        return _steps(form, text)
    first, *parts = form.split("*")
    if not parts:
        return form == text
    last = parts.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in parts:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _steps(form: str, text: str) -> bool:
    """Simulate all matches at once: bit n of `state` means that the first n characters match."""
    masks: dict[str, int] = {}
    anything = stay = 0
    bit = 1
    for char in form:
        if char == "*":
            stay |= bit
            continue
        if char == "?":
            anything |= bit
        else:
            masks[char] = masks.get(char, 0) | bit
        bit <<= 1
    state = 1
    for char in text:
        state = (state & (masks.get(char, 0) | anything)) << 1 | state & stay
        if not state:
            return False
    return bool(state & bit)
