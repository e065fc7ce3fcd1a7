"""Permission as values: what is asked, the rules, and which of them decides.

Nothing here reads a file or asks the user. `rule_files` reads the rules, `gate` combines both.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, Self

from skillbelt.errors import ConfigError, closest
from skillbelt.permission.command_lines import WHOLE
from skillbelt.permission.packages import SKILL_PREFIX, rule_patterns
from skillbelt.permission.wrappers import NOTHING, started

Action = Literal["allow", "ask", "deny"]
Initiator = Literal["model", "user"]
AnswerKind = Literal["once", "conversation", "always", "reject"]
# Where a rule stands in the stack; a later one is stronger.
Source = Literal["default", "system", "user", "project", "agent", "session"]

ACTIONS: tuple[Action, ...] = ("allow", "ask", "deny")
INITIATORS: tuple[Initiator, ...] = ("model", "user")
ANSWERS: tuple[AnswerKind, ...] = ("once", "conversation", "always", "reject")
SOURCES: tuple[Source, ...] = ("default", "system", "user", "project", "agent", "session")
# What can be asked for, and what a pattern of that type is matched against.
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
# What stands before a text that may mean anything: a command line that cannot be taken apart, an
# address that cannot be read. No allow about something in particular covers such a text.
OPAQUE = WHOLE
UNCLEAR = "unclear: "
_WIDE = (OPAQUE, UNCLEAR, "*")
# The tools that run a command line; a rule about either matches it.
SHELL_TOOLS = ("Bash", "Terminal")
# The tools that look into all of a folder, or at all that a pattern matches.
LOOKING_TOOLS = frozenset(("Grep", "Glob", "LS"))
# A longer pattern is refused where rules are read: what one match costs grows with it.
MAX_PATTERN_CHARS = 4096
_NOTHING: Mapping[str, object] = MappingProxyType({})
# Views are cached per agent and initiator; the cache is cleared beyond this many.
_MAX_VIEWS = 4096
# How many programs may start each other in one command before it is not followed any more.
_MAX_DEPTH = 8
_MAX_SHOWN_CHARS = 80
_STRICTNESS = {"allow": 1, "ask": 2, "deny": 3}


class Request(NamedTuple):
    """Something that wants to happen. Every one of `patterns` must be allowed.

    `always` are the texts that "always" remembers, to the letter, for the skill with this content
    `hash` from this `origin`; without them the answer cannot be remembered. `summary` says in one
    line what wants to happen, for a person. `trusted` says whether the skill's origin is. `exact`
    is a digest over all that belongs to it: an answer is remembered for that digest alone.
    `tools` are the tools of which this is a use; what a rule asks or denies of them counts too.
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

    `path` and `line` say where it is written. ConfigError for a value that no rule can have.
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
            raise ConfigError(f"Rule: pattern must be {wanted}, not {_shown(pattern)}")
        if not isinstance(skill, str) or len(skill) > MAX_PATTERN_CHARS:
            raise ConfigError(f"Rule: skill must be the name of a skill, not {_shown(skill)}")
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

    "conversation" holds for what "always" would cover, in this conversation and process alone.
    ConfigError for a kind that is none.
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
    raise ConfigError(f"{where}: {field} must be one of {allowed}, not {_shown(value)}{hint}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."


def checked_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules that a host gives; ConfigError for what is no `Rule`."""
    given = (rules,) if isinstance(rules, Rule) else tuple(rules)
    for rule in given:
        if not isinstance(rule, Rule):
            raise ConfigError(
                f'rules: {_shown(rule)} is no Rule; write Rule("run", "git *", "allow")'
            )
    return tuple(Rule(*rule) for rule in given)  # `_replace` checks nothing


def checked_answer(given: object) -> Answer | None:
    """Return what `ask` gave; ConfigError for what is neither an `Answer` nor None."""
    if given is None or isinstance(given, Answer):
        return given
    raise ConfigError(
        f'ask: the callback returned {_shown(given)}; return Answer("once"), '
        'Answer("conversation"), Answer("always"), Answer("reject"), or None to leave the request '
        "to others"
    )


class Decision(NamedTuple):
    """The outcome for a request, and why.

    `by` is `rule`, `scan`, `remembered`, `declared`, `once`, `conversation`, `always`, `rejected`,
    `timeout`, `nobody` or `disposed`. `reason` explains a refusal. `answered_by` is who gave the
    answer, as far as that is known.
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
    # Tools that only look never prompt.
    *(Rule("tool", name, "allow", "default") for name in ("Read", "Grep", "Glob", "LS")),
)


def digest(facts: Mapping[str, object]) -> str:
    """A digest over all the facts: two are the same only if every fact is."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern covers the whole text: `*` is any run of characters, `?` is one.

    A pattern that ends in ` *` or `:*` also covers what stands before that. All else is literal.
    """
    return any(_glob(form, text) for form in forms(pattern))


def forms(pattern: str) -> tuple[str, ...]:
    """The one or two patterns that it stands for, in which the end has no meaning of its own."""
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    return (pattern[:-2], pattern) if pattern.endswith(" *") else (pattern,)


def meet(one: str, other: str) -> bool:
    """Whether some text may match both patterns; False is certain."""
    return any(_near(a, b) and _near(a[::-1], b[::-1]) for a in forms(one) for b in forms(other))


def _near(one: str, other: str) -> bool:
    """Whether a text may begin as both do."""
    mine, others = _start(one), _start(other)
    if mine == one:
        return _glob(other, one)
    if others == other:
        return _glob(one, other)
    return mine.startswith(others) or others.startswith(mine)


class RuleSet:
    """Rules in their order. For each text the last rule that matches decides."""

    __slots__ = ("_bounds", "_found", "_made", "_rules", "_scopes", "_theirs", "_untrusting",
                 "_views")  # fmt: skip

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        projects: Collection[str] = (),
        *,
        project_trusted: bool = True,
    ) -> None:
        """`projects` are the files that come with a project, for rules whose source is another.

        Until the project is trusted its rules are evaluated by themselves, and can only make the
        outcome of the others stricter.
        """
        self._rules = given = tuple(rules)
        self._bounds: RuleSet | None = None
        self._theirs: tuple[tuple[Rule, ...], Collection[str]] | None = None
        self._untrusting: RuleSet | None = None
        own = [rule for rule in given if not _of_project(rule, projects)]
        if len(own) < len(given):
            if not project_trusted:
                # The rules of agents and of the host are stronger than any of a project.
                first = SOURCES.index("project")
                late = [rule for rule in given if SOURCES.index(rule.source) >= first]
                self._rules, self._bounds = tuple(own), RuleSet(late)
            else:
                self._theirs = (given, projects)
                if any(map(self._is_strict, own)):
                    self._bounds = RuleSet(own)
        self._found = (*self._rules, DEFAULT_RULES[0])  # the last, at -1, is for what is not found
        self._scopes = frozenset(rule.skill for rule in self._rules if rule.skill)
        self._views: dict[tuple[object, ...], _View] = {}
        self._made: dict[tuple[object, ...], _View] = {}

    @property
    def scopes(self) -> frozenset[str]:
        """The skills that some rules are about alone, as the rules name them."""
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
            # A secret is the user's own: no project says who gets it, trusted or not.
            if self._untrusting is None:
                rules, projects = self._theirs
                self._untrusting = RuleSet(rules, projects, project_trusted=False)
            return self._untrusting.decide(request)
        rule = self._decisive(request)
        if self._bounds is not None:
            rule = self._stricter(rule, self._bounds._decisive(request))
        return rule.action, rule

    def _decisive(self, request: Request) -> Rule:
        view = self._view(request)
        least = self._least(request) if request.tools else -1
        decisive: Rule | None = None
        for text in request.patterns:
            if text.startswith(_WIDE) and (text[0] != "*" or request.type == "network"):
                rule = self._wide(request, text, least)
            else:
                at = view.last(text)
                rule = self._found[at if at > least else least]
                if request.type == "run":
                    rule = self._run(view, text, rule)
                elif request.type == "host_file" and not LOOKING_TOOLS.isdisjoint(request.tools):
                    rule = self._stricter(rule, self._below(view, text))
            if decisive is None or _weight(rule) > _weight(decisive):
                decisive = rule
        return decisive or self._found[-1]

    def _least(self, request: Request) -> int:
        """The place of the last rule that asks or denies a tool of which the request is a use."""
        view = self._view(request._replace(type="tool"))
        places = [view.last(tool) for tool in request.tools]
        return max((at for at in places if self._is_strict(self._found[at])), default=-1)

    @staticmethod
    def _is_strict(rule: Rule) -> bool:
        return rule.action != "allow" and rule.source != "default"

    def _run(self, view: "_View", text: str, rule: Rule, depth: int = 0) -> Rule:
        """The rule for a command, or a stricter one about what it is or what it starts.

        What may start anything is asked for where a later rule asks for or denies some of that.
        """
        if "/" in text:
            rule = self._by_name(view, text, rule)
        begun = started(text)
        if begun is NOTHING:
            return rule
        for inner in begun.commands:
            if depth < _MAX_DEPTH and not inner.startswith(OPAQUE):
                found = self._found[view.last(inner)]
                rule = self._stricter(rule, self._run(view, inner, found, depth + 1))
        if begun.unclear or (begun.commands and depth >= _MAX_DEPTH):
            rule = self._stricter(rule, self._hidden(view, text))
        return rule

    def _hidden(self, view: "_View", text: str) -> Rule:
        """The last rule that asks for or denies something in particular, as a question.

        A later one that allows the command itself takes that back.
        """
        for position in reversed(view.positions):
            rule = self._rules[position]
            if rule.action == "allow" and matches(rule.pattern, text):
                return rule
            if self._is_strict(rule) and rule.pattern.strip("*"):
                return rule._replace(action="ask")
        return self._found[-1]

    def _below(self, view: "_View", text: str) -> Rule:
        """The strictest rule about something that lies in a folder, or that a glob may match.

        A later one that allows all of that takes it back.
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

    def _by_name(self, view: "_View", text: str, rule: Rule) -> Rule:
        """What is denied or asked for by name is so at every path; none is allowed by a name."""
        program, blank, rest = text.partition(" ")
        named = self._found[view.last(f"{program.rpartition('/')[2]}{blank}{rest}")]
        return self._stricter(rule, named)

    def _stricter(self, rule: Rule, other: Rule) -> Rule:
        """Return the other rule if it is explicit and the stricter of the two."""
        return other if self._is_strict(other) and _weight(other) > _weight(rule) else rule

    def _wide(self, request: Request, text: str, least: int) -> Rule:
        """What is decided on a text that may mean many things: the strictest that may be meant.

        Only a rule about everything, or about this very text, allows it.
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
        """The last rule that denies something that the pattern may mean; None if none does.

        A later one that allows all of it takes that back, unless only a project has it.
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
        """Whether every request like this one is denied, no matter what it is about."""
        if self._bounds is not None and self._bounds.denies_all(request):
            return True
        least = self._least(request) if request.tools else -1
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
        """The place in `rules` of the rule that decides on one text of the request; -1: none."""
        return self._view(request).last(text)

    def _view(self, request: Request) -> "_View":
        skill = request.skill if self._scopes else ""
        of_skills = _installs_skills(request)
        key = (request.type, request.agent, request.initiator, request.trusted, skill, of_skills)
        return self._views.get(key) or self._new_view(request, key)

    def _new_view(self, request: Request, key: tuple[object, ...]) -> "_View":
        """Two askers whom no rule tells apart share a view."""
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
    """A package has many spellings, and a rule means all of them."""
    if type != "install":
        return (rule.pattern,)
    return rule_patterns(rule.pattern, allows=rule.action == "allow")


def _installs_skills(request: Request) -> bool:
    return request.type == "install" and any(
        text.startswith(SKILL_PREFIX) for text in request.patterns
    )


def _is_about_skills(rule: Rule) -> bool:
    # Who allows all packages has not allowed a skill; who denies all installs means both.
    named = rule.pattern.lower().startswith(SKILL_PREFIX)
    return named or rule.action != "allow" or rule.type == "*"


def _of_project(rule: Rule, files: Collection[str]) -> bool:
    return rule.source == "project" or (rule.source == "agent" and rule.path in files)


def _weight(rule: Rule) -> tuple[int, bool]:
    return _STRICTNESS[rule.action], rule.source != "default"


def _is_agent(named: str, agent: str) -> bool:
    return named in ("", agent) or matches(named, agent)


def _is_skill(named: str, skill: str) -> bool:
    # What no skill asks for is about none, also for a rule about all of them.
    return bool(skill) and (named == skill or matches(named, skill))


def _is_asker(rule: Rule, initiator: str, trusted: bool) -> bool:
    # A name is no proof: what is allowed to a skill by its name is not to one of any checkout.
    by_name = bool(rule.skill) and rule.action == "allow" and rule.trusted is None
    return rule.initiator in ("", initiator) and (True if by_name else rule.trusted) in (
        None,
        trusted,
    )


class _View:
    """The rules that count for one asker, laid out so that few are tried on a text.

    Literal patterns lie in a dict, those with a literal start or end in a tree of each, those with
    a start behind some `?` in a tree for what follows so many characters. Only what has neither
    is gone through, from the last on, until a match that is known stands later.
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
                start, end = _start(behind), _start(form[::-1])
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


# The literal start of a pattern, its position, and the pattern.
_Place = tuple[str, int, str]
# A position, a literal part that a text must have, and the pattern.
_Try = tuple[int, str, str]


class _Node:
    """One literal start: the last rule that is it and `*`, and those that go on otherwise.

    `parent` is the longest other start that this one begins with; `holder` is the nearest node
    from here upwards that has patterns to try.
    """

    __slots__ = ("holder", "last", "parent", "start", "tried")

    def __init__(self, start: str, parent: "_Node | None", places: Iterable[_Place]) -> None:
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
    """Literal starts, sorted. All that a text begins with are above its neighbour in that order.

    They lie apart by their first characters, as many as the shortest has, so that most texts need
    no search at all.
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
        """The position of the last rule that matches, if it is later than `best`; else `best`."""
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


def _start(form: str) -> str:
    """What stands before the first wildcard."""
    return form.partition("*")[0].partition("?")[0]


def _glob(form: str, text: str) -> bool:
    """Each literal part is sought once, from where the one before it ended: no way back is tried"""
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
    """All ways at once: bit n of `state` says that the first n characters of the form are met."""
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
