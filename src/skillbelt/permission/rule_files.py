"""Permission rules in settings files: read with line numbers for errors, and written."""

from __future__ import annotations

import fcntl
import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from skillbelt.errors import ConfigError, closest
from skillbelt.files.contain import LOCK_FILE
from skillbelt.files.private import make_folder, replace_file
from skillbelt.late import Late
from skillbelt.permission.rules import (
    ACTIONS,
    DEFAULT_RULES,
    MAX_PATTERN_CHARS,
    SOURCES,
    TYPES,
    UNCLEAR,
    Action,
    Request,
    Rule,
    RuleSet,
    Source,
    forms,
    meet,
    quoted,
)
from skillbelt.records import NamedTuple
from skillbelt.settings import FileSource, RuleTables, Settings, read_rules
from skillbelt.text import read_toml, toml_value
from skillbelt.values import Diagnostic

if TYPE_CHECKING:
    from skillbelt.permission import normal_forms
else:  # cost: 1 ms, only for hosts and paths
    normal_forms = Late("skillbelt.permission.normal_forms")

# A key with all keys above it; a number is the index in a list.
Key = tuple[str | int, ...]
# Deeper keys are not recorded: no setting is that deep, and a hostile text would use up memory.
_TOO_DEEP = 10


def key_lines(text: str) -> dict[Key, int]:
    """Return the line of every key and of every list item, in a text that is valid TOML."""
    reader = _Reader()
    line = 1
    for token in _tokens(text):
        reader.take(token, line)
        line += token.count("\n")
    return reader.lines


def _tokens(text: str) -> Iterator[str]:
    """Yield strings, words, punctuation and line ends; blanks and comments are left out."""
    found = re.compile(
        r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'"
        r"|\#[^\n]*|\n|[\[\]{}=,.]|[^\s\[\]{}=,.\#\"']+",
        re.DOTALL,
    )
    return (match[0] for match in found.finditer(text) if match[0][0] != "#")


class _Reader:
    """Follows the tokens of a TOML text. It does not recurse, so deep nesting does no harm."""

    def __init__(self) -> None:
        self.lines: dict[Key, int] = {}
        self._base: Key = ()  # the table of the last header
        self._at: Key = ()  # the key whose value is being read
        self._open: list[tuple[Key, int]] = []  # lists with the number of the item, tables with -1
        self._parts: list[str] = []
        self._brackets = 0
        self._counts: dict[Key, int] = {}
        self._reading = "key"

    def take(self, token: str, line: int) -> None:
        """Process the next token, which begins in that line."""
        if token == "\n":
            if not self._open:
                self._parts, self._reading = [], "key"
        elif self._reading == "value":
            self._value(token, line)
        elif token == "=":
            self._at = self._record((*self._prefix(), *self._parts), line)
            self._parts, self._reading = [], "value"
        elif token == "]":
            self._header(line)
        elif token == "}":
            self._open.pop()
            self._reading = "value"
        elif token == "[":
            self._brackets += 1
        elif token not in ".,":
            self._parts.append(_unquote(token))

    def _header(self, line: int) -> None:
        """End a header: `[a.b]` is a table, `[[a.b]]` a list item; the second `]` does nothing."""
        if self._brackets:
            key = self._record(tuple(self._parts), line)
            if self._brackets == 2:
                self._counts[key] = number = self._counts.get(key, -1) + 1
                key = self._record((*key, number), line)
            self._base, self._brackets = key, 0

    def _value(self, token: str, line: int) -> None:
        if token not in "],}=.":
            self._record(self._next_key(), line)
        if token == "[":
            self._open.append((self._next_key(), 0))
        elif token == "{":
            self._open.append((self._next_key(), -1))
            self._reading = "key"
        elif token in "]}" and self._open:
            self._open.pop()
        elif token == "," and self._open:
            self._next_item()

    def _next_item(self) -> None:
        at, number = self._open[-1]
        if number < 0:
            self._reading = "key"
        else:
            self._open[-1] = (at, number + 1)

    def _next_key(self) -> Key:
        """Return the key of the next value."""
        if self._open and self._open[-1][1] >= 0:
            return (*self._open[-1][0], self._open[-1][1])[:_TOO_DEEP]
        return self._at

    def _prefix(self) -> Key:
        return self._open[-1][0] if self._open else self._base

    def _record(self, key: Key, line: int) -> Key:
        """Record the line of the key and of new keys above it; cut the key if it is too deep."""
        for length in range(min(len(key), _TOO_DEEP - 1), 0, -1):
            if key[:length] in self.lines:
                break
            self.lines[key[:length]] = line
        return key[:_TOO_DEEP]


def _unquote(token: str) -> str:
    if token[0] not in "\"'":
        return token
    if "\\" not in token or token[0] == "'":
        return token[1:-1]
    [key] = read_toml(f"{token} = 0")
    return key


# How many pairs of a project's rules are compared, so that no file takes long.
_MAX_COMPARED = 200_000
# The fields of a rule that is a table.
_FIELDS = {
    "action": "one of allow, ask, deny",
    "initiator": "model or user",
    "agent": "text",
    "trusted": "true or false",
    "skill": "the name of a skill",
}
_TOOLS = {
    "Skill": "skill",
    **dict.fromkeys(("Bash", "Terminal"), "run"),
    **dict.fromkeys(("WebFetch", "Fetch", "WebSearch"), "network"),
    **dict.fromkeys(("Read", "Write", "Edit", "Glob", "Grep", "LS"), "host_file"),
}
_MAX_SHOWN_CHARS = 80


class Policy(NamedTuple):
    """The rules, weakest first, and the diagnostics about them.

    For a project that is not trusted they contain only the rules that forbid, and those that take
    back such a rule; `RuleSet` evaluates them separately. `project` are all rules of the project,
    also those that do not count.
    """

    rules: tuple[Rule, ...]
    diagnostics: tuple[Diagnostic, ...]
    project: tuple[Rule, ...] = ()
    project_trusted: bool = True


def read_policy(
    settings: Settings,
    *,
    project_trusted: bool,
    session_rules: Iterable[Rule] = (),
    files: Iterable[tuple[FileSource, str]] | None = None,
) -> Policy:
    """Return every rule that counts under these settings; ConfigError if one cannot be parsed.

    `files` are read instead of those that the settings came from.
    """
    rules, agents = list(DEFAULT_RULES), list[Rule]()
    diagnostics, strict, theirs = list[Diagnostic](), list[Rule](), list[Rule]()
    lifts = _TakesBack()
    chosen = settings.files if files is None else files
    for source, path in sorted(chosen, key=lambda file: SOURCES.index(file[0])):
        read = settings.rule_tables.get(path) if files is None else read_rules(path)
        for rule in _File(source, path, read, settings.home).rules() if read else ():
            if source == "project":
                # The project's file comes with the checkout: it may forbid things, but a downloaded
                # text never grants a permission, nor weakens a deny of the user to an ask that
                # something else may answer. It may take back what it forbids itself.
                loosens = "" if project_trusted or lifts(rule) else _find_loosened(rule, strict)
                theirs.append(rule)
                if loosens:
                    diagnostics.append(_diagnose_untrusted(rule, loosens))
                    continue
            elif rule.action == "deny":
                strict.append(rule)
            (agents if rule.source == "agent" else rules).append(rule)
    diagnostics += _find_covered([*rules, *agents])
    if settings.project_name and settings.by_project("project_name") and not project_trusted:
        diagnostics.append(_untrusted_name(settings))
    given = tuple(session_rules)
    for rule in given:
        if fault := _matches_nothing(rule, settings.home):
            raise ConfigError(f"rules: {fault}")
    session = [
        spread._replace(source="session")
        for rule in given
        for spread in spelled(rule, settings.home)
    ]
    return Policy(
        rules=(*rules, *agents, *session),
        diagnostics=tuple(dict.fromkeys(diagnostics)),
        project=tuple(theirs),
        project_trusted=project_trusted,
    )


def denied_skills(policy: Policy, settings: Settings, skills: Mapping[str, bool]) -> frozenset[str]:
    """Return the names of the skills that every model is denied; `skills` maps names to trust."""
    files = {path for source, path in settings.files if source == "project"}
    rules = RuleSet(policy.rules, files, project_trusted=policy.project_trusted)
    asked = {
        name: Request("skill", (name,), skill=name, trusted=trusted)
        for name, trusted in skills.items()
    }
    return frozenset(name for name, one in asked.items() if rules.decide(one)[0] == "deny")


def parse_rule(
    text: str,
    action: Action,
    *,
    source: Source = "session",
    path: str = "",
    line: int = 0,
    agent: str = "",
    initiator: str = "",
    trusted: bool | None = None,
) -> list[Rule]:
    """Return the rules that `Tool` or `Tool(pattern)` means; none if it cannot be parsed."""
    name, opened, rest = (part.strip() for part in text.strip().partition("("))
    if not _is_name(name) or len(text) > MAX_PATTERN_CHARS:
        return []
    if opened:
        pattern = _pattern(type_of(name), rest[:-1].strip()) if rest.endswith(")") else ""
        found = [(type_of(name), pattern)] if pattern else []
    else:
        # A bare `Write` is about the tool; it does not open every file of the machine.
        whole = [(type_of(name), "*")] if type_of(name) not in ("host_file", "tool") else []
        found = [*whole, ("tool", name)]
    return [
        Rule(
            type=type,
            pattern=pattern,
            action=action,
            source=source,
            path=path,
            line=line,
            agent=agent,
            initiator=initiator,
            trusted=trusted,
        )
        for type, pattern in found
    ]


def type_of(tool: str) -> str:
    """Return the request type of a use of the tool; `tool` if the tool is unknown."""
    return _TOOLS.get(tool, "tool")


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and not any(char in " ,;()[]{}'\"`" for char in text)


def _pattern(type: str, text: str) -> str:
    """Return the pattern of a rule of the type; empty if such a rule could never match."""
    if type == "network":
        text = text.removeprefix("domain:")
        return "" if "/" in text else text
    if type == "host_file" and text.startswith("//"):
        return text[1:]
    return "" if type == "tool" else text


class _File:
    """One settings file: its rules, and the line of each."""

    def __init__(self, source: FileSource, path: str, read: RuleTables, home: str) -> None:
        self._source, self._path, self._read, self._home = source, path, read, home
        self._json = _JsonLines(read.text) if path.endswith((".json", ".jsonc")) else None
        self._lines = {} if self._json else key_lines(read.text)

    def rules(self) -> Iterator[Rule]:
        """Yield the rules in the order in which they count."""
        tables = self._read.tables
        like = Rule(type="*", pattern="*", action="ask", source=self._source, path=self._path)
        if "permission" in tables:
            yield from self._table(("permission",), tables["permission"], like)
        for name, agent in self._mapping(("agent",), tables.get("agent", {})).items():
            at = ("agent", name)
            for key, table in self._mapping(at, agent).items():
                if key != "permission":
                    fault = f"unknown key {quoted(key)} of agent {quoted(name)}"
                    raise self._make_error((*at, key), f"{fault}; only 'permission' is known")
                yield from self._table((*at, key), table, like._replace(source="agent", agent=name))

    def _table(self, at: Key, value: object, like: Rule) -> Iterator[Rule]:
        table = self._mapping(at, value)
        for key, rules in table.items():
            if key not in ACTIONS and key != "rules":
                typed = like._replace(type=self._type((*at, key), key))
                yield from self._read_typed((*at, key), rules, typed)
        yield from self._read_ordered((*at, "rules"), table.get("rules", []), like)
        for action in ACTIONS:
            if action in table:
                yield from self._read_listed((*at, action), table[action], action, like)

    def _type(self, at: Key, value: object) -> str:
        type = value.replace("-", "_") if isinstance(value, str) else ""
        if type != "*" and type not in TYPES:
            known = f"; known are {', '.join(TYPES)} and *"
            raise self._make_error(
                at, f"unknown type {quoted(value)}{_closest(type, TYPES) or known}"
            )
        return type

    def _read_typed(self, at: Key, value: object, like: Rule) -> Iterator[Rule]:
        if not isinstance(value, dict):
            yield like._replace(action=self._action(at, value), line=self._line(at))
            return
        for pattern, action in value.items():
            place = (*at, pattern)
            fields = action if isinstance(action, dict) else {"action": action}
            yield from self._rules(place, place, fields, like._replace(pattern=pattern))

    def _read_ordered(self, at: Key, value: object, like: Rule) -> Iterator[Rule]:
        for number, block in enumerate(self._list(at, value)):
            place = (*at, number)
            fields = dict(self._mapping(place, block))
            type = self._type((*place, "type"), fields.pop("type", None))
            pattern = fields.pop("pattern", "*")
            if not isinstance(pattern, str):
                raise self._make_error(
                    (*place, "pattern"), f"pattern must be text, not {quoted(pattern)}"
                )
            named = like._replace(type=type, pattern=pattern)
            yield from self._rules(place, (*place, "pattern"), fields, named)

    def _rules(
        self, at: Key, written: Key, fields: Mapping[str, object], like: Rule
    ) -> Iterator[Rule]:
        if len(like.pattern) > MAX_PATTERN_CHARS:
            most = f"a pattern may have {MAX_PATTERN_CHARS} characters"
            raise self._make_error(written, f"{most}, this one has {len(like.pattern)}")
        for key, value in fields.items():
            like = self._narrow((*at, key), key, value, like)
        self._check_host(written, like)
        self._check_path(written, like)
        action = self._action((*at, "action"), fields.get("action"))
        yield from spelled(like._replace(action=action, line=self._line(written)), self._home)

    def _check_host(self, at: Key, rule: Rule) -> None:
        if fault := _no_host(rule):
            raise self._make_error(at, fault)

    def _check_path(self, at: Key, rule: Rule) -> None:
        if fault := _matches_nothing(rule, self._home):
            raise self._make_error(at, fault)

    def _narrow(self, at: Key, key: str, value: object, like: Rule) -> Rule:
        if key == "action":
            return like
        if key == "initiator" and value in ("model", "user"):
            return like._replace(initiator=str(value))
        if key == "trusted" and isinstance(value, bool):
            return like._replace(trusted=value)
        if key == "agent" and isinstance(value, str) and like.source != "agent":
            return like._replace(agent=value)
        if key == "skill" and isinstance(value, str) and 0 < len(value) <= MAX_PATTERN_CHARS:
            return like._replace(skill=value)
        raise self._make_error(at, self._find_field_fault(key, value, like))

    def _find_field_fault(self, key: str, value: object, like: Rule) -> str:
        if key not in _FIELDS:
            known = f"; known are {', '.join(_FIELDS)}"
            return f"unknown key {quoted(key)}{_closest(key, _FIELDS) or known}"
        if key == "agent" and isinstance(value, str):
            return (
                f"these are the rules of agent {quoted(like.agent)} already; remove the key agent"
            )
        return f"{key} must be {_FIELDS[key]}, not {quoted(value)}"

    def _read_listed(self, at: Key, value: object, action: Action, like: Rule) -> Iterator[Rule]:
        for number, text in enumerate(self._list(at, value)):
            place = (*at, number)
            source, path, line, agent = like.source, like.path, self._line(place), like.agent
            rules = (
                parse_rule(text, action, source=source, path=path, line=line, agent=agent)
                if isinstance(text, str)
                else []
            )
            if not rules:
                raise self._make_error(place, f"{quoted(text)} is not a rule{_EXAMPLES}")
            for rule in rules:
                self._check_host(place, rule)
                self._check_path(place, rule)
                yield from spelled(rule, self._home)

    def _action(self, at: Key, value: object) -> Action:
        for action in ACTIONS:
            if value == action:
                return action
        raise self._make_error(at, f"action must be {_FIELDS['action']}, not {quoted(value)}")

    def _mapping(self, at: Key, value: object) -> Mapping[str, object]:
        if isinstance(value, dict):
            return value
        raise self._make_error(at, f"{'.'.join(map(str, at))} must be a table, not {quoted(value)}")

    def _list(self, at: Key, value: object) -> list[object]:
        if isinstance(value, list):
            return value
        raise self._make_error(at, f"{'.'.join(map(str, at))} must be a list, not {quoted(value)}")

    def _line(self, at: Key) -> int:
        if self._json:
            return self._json.find(at)
        key: Key = (*self._read.at, *at)
        while key and key not in self._lines:
            key = key[:-1]
        return self._lines.get(key, 1)

    def _make_error(self, at: Key, what: str) -> ConfigError:
        return ConfigError(f"{self._path}:{self._line(at)}: {what}")


class _JsonLines:
    """The lines of the strings in a JSON text, read once: a hostile file may have many rules."""

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._places: dict[str, list[int]] = {}
        for match in re.finditer(r'"(?:[^"\\\n]|\\.)*+"?', text):
            self._places.setdefault(match[0], []).append(match.start())

    def find(self, at: Key) -> int:
        """Return the line of a key: each part is searched after those above it."""
        above = [0]
        for part in at:
            places = self._places.get(json.dumps(part, ensure_ascii=False), [])
            later = (bisect_left(places, start) for start in above[:-3:-1])
            above.append(next((places[n] for n in later if n < len(places)), above[-1]))
        return bisect_left(self._ends, above[-1]) + 1


_EXAMPLES = (
    "; write a tool, as in Bash, or one with a pattern, as in Bash(git add *), Skill(pdf), "
    "WebFetch(domain:example.com), Read(/srv/*)"
)


def find_fault(rule: Rule, home: str) -> str:
    """Return why a file of rules cannot hold the rule; "" if it can."""
    return _no_host(rule) or _matches_nothing(rule, home)


def _no_host(rule: Rule) -> str:
    if rule.type != "network":
        return ""
    try:
        normal_forms.host_pattern(rule.pattern.removesuffix(":*"))
    except ValueError as error:
        fault = f"{quoted(rule.pattern)} is not a host that a request can name: {error}"
        return f"{fault}; write example.com, *.example.com or an address"
    return ""


def _matches_nothing(rule: Rule, home: str) -> str:
    """Return why the rule can match no request, so that a deny would do nothing; "" if it can.

    Only for paths and secrets can the form of the pattern show that.
    """
    if rule.type == "secret" and not {"/", "*", "?"}.intersection(rule.pattern):
        named = quoted(f"*/{rule.pattern}")
        return f"{quoted(rule.pattern)} is not a secret of a skill; write SKILL/NAME, or {named}"
    plain = normal_forms.path_pattern(rule.pattern, home) if rule.type == "host_file" else ""
    if not plain or plain.startswith(("/", "*", "?", UNCLEAR)):
        return ""
    return (
        f"{quoted(rule.pattern)} is not a path that a request can name; write an absolute path, "
        "~/... or $HOME/..., or begin with *"
    )


def spelled(rule: Rule, home: str) -> Iterator[Rule]:
    """Yield the rule, after variants of its pattern in normal form.

    Paths and hosts get the normal form of requests, so that no other spelling evades the rule.
    """
    if rule.type == "host_file":
        plain = normal_forms.path_pattern(rule.pattern, home)
        if plain != rule.pattern:
            yield rule._replace(pattern=plain)
    if rule.type == "network":
        yield from _host_rules(rule)
    yield rule


def _host_rules(rule: Rule) -> Iterator[Rule]:
    every_port = rule.pattern.endswith(":*")
    bare = rule.pattern[:-2] if every_port else rule.pattern
    # A file with an invalid host was refused before; in code it matches nothing else.
    with suppress(ValueError):
        plain = normal_forms.host_pattern(bare)
        if plain != bare:
            yield rule._replace(pattern=plain)
        bare = plain
    if every_port or (rule.action != "allow" and bare.strip("*")):
        # After a host, `:*` means any port; after a command, its arguments. A deny or ask rule for
        # a host without a port covers every port.
        yield rule._replace(pattern=f"{bare}:?*")


def _closest(word: str, known: Iterable[str]) -> str:
    close = closest(word[:_MAX_SHOWN_CHARS], known, most=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class _TakesBack:
    """Called with each rule of a project in turn: whether it takes back an earlier one.

    A hostile file may have very many rules; beyond a bound the answer is yes, which only leaves out
    a diagnostic.
    """

    def __init__(self) -> None:
        self._strict: list[Rule] = []
        self._left = _MAX_COMPARED

    def __call__(self, rule: Rule) -> bool:
        earlier, self._left = self._strict, self._left - len(self._strict)
        if self._left <= 0:
            return True
        if rule.action != "allow":
            earlier.append(rule)  # it is not stricter than itself
        return any(
            ACTIONS.index(one.action) > ACTIONS.index(rule.action)
            and (one.type == rule.type or "*" in (one.type, rule.type))
            and meet(one.pattern, rule.pattern)
            for one in earlier
        )


def _find_loosened(rule: Rule, strict: Iterable[Rule]) -> str:
    """Return what the rule would loosen; "" if nothing."""
    if rule.action == "allow":
        return "what would be asked for"
    for deny in strict if rule.action == "ask" else ():
        if (deny.type == rule.type or "*" in (deny.type, rule.type)) and meet(
            deny.pattern, rule.pattern
        ):
            return f"deny {deny.type} {quoted(deny.pattern)} of {deny.path}:{deny.line}"
    return ""


def _diagnose_untrusted(rule: Rule, loosens: str) -> Diagnostic:
    return Diagnostic(
        code="untrusted-rule",
        severity="warning",
        path=rule.path,
        line=rule.line,
        message=f"{rule.action} {rule.type} {quoted(rule.pattern)} does not count: it would loosen "
        f"{loosens}, and the project is not trusted",
        remedy="`skillbelt trust add` trusts it, if you know who wrote this file",
    )


def _untrusted_name(settings: Settings) -> Diagnostic:
    return Diagnostic(
        code="untrusted-name",
        severity="warning",
        path=settings.sources["project_name"],
        line=None,
        message=f"project_name = {quoted(settings.project_name)} does not count: answers for the "
        "project of that name would count here, and this one is not trusted",
        remedy="`skillbelt trust add` trusts it, if you know who wrote this file",
    )


def _find_covered(rules: Iterable[Rule]) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each rule that a later one of the same table covers entirely."""
    tables: dict[tuple[str, str, str], list[Rule]] = {}
    for rule in rules:
        if rule.source != "default":
            agent = rule.agent if rule.source == "agent" else ""
            tables.setdefault((rule.path, rule.source, agent), []).append(rule)
    for table in tables.values():
        later = RuleSet(_covering_rule(rule) for rule in table)
        for number, rule in enumerate(table):
            asked = Request(rule.type, ())
            places = [later.last(asked, form) for form in forms(rule.pattern)]
            if min(places) > number:
                yield _diagnose_covered(rule, table[places[0]])


def _covering_rule(rule: Rule) -> Rule:
    """Return the rule if it can cover others entirely, else one that matches nothing.

    Only rules without conditions and with one wildcard at an end count, because a look-up finds
    them: the file may be long and untrusted.
    """
    agent = rule.agent if rule.source != "agent" else ""
    free = not (agent or rule.initiator or rule.skill or rule.trusted is not None)
    simple = "?" not in rule.pattern and "*" not in rule.pattern[1:-1]
    both_ends = len(rule.pattern) > 1 and rule.pattern[0] == rule.pattern[-1] == "*"
    return rule._replace(agent="", type=rule.type if free and simple and not both_ends else "")


def _diagnose_covered(rule: Rule, later: Rule) -> Diagnostic:
    return Diagnostic(
        code="rule-never-decides",
        severity="warning",
        path=rule.path,
        line=rule.line,
        message=f"{rule.action} {rule.type} {quoted(rule.pattern)} never decides: "
        f"{later.action} {later.type} {quoted(later.pattern)} in line {later.line} covers it",
        remedy="put the general rule first, or remove this one",
    )


HEAD = "[[permission.rules]]"
_ABOUT = "# Rules that `skillbelt permissions` added. The last one that matches decides.\n"
_WRITTEN = ("type", "pattern", "action", "agent", "initiator", "skill")


def rulebook_file(settings: Settings) -> str:
    """Return the file of the rules that commands add."""
    return os.path.join(settings.config_home, "skillbelt", "permissions.toml")


def add_rule(path: str, rule: Rule) -> None:
    """Append the rule, and remove one that differs only in its action."""
    with _locked(path):
        kept = [text for text in _blocks(path) if not _differs_in_action(text, rule, path)]
        _write(path, "".join([*(_strip_end(kept) or [_ABOUT]), _block(rule)]))


def remove_rules(path: str, type: str, pattern: str, skill: str = "") -> int:
    """Remove the rules of that type and pattern, or those for the skill; return how many."""
    with _locked(path):
        blocks = _blocks(path)
        kept = [one for one in blocks if not _is_named(one, path, (type, pattern), skill)]
        if len(kept) < len(blocks):
            _write(path, "".join(_strip_end(kept)))
        return len(blocks) - len(kept)


def _blocks(path: str) -> list[str]:
    """Split the file: the text before the first rule, then each rule with the text after it."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = file.readlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; fix or remove it") from error
    blocks = [""]
    for line in lines:
        if line.strip() == HEAD:
            blocks.append("")
        blocks[-1] += line
    return blocks


def _strip_end(blocks: list[str]) -> list[str]:
    """Return the blocks without the empty lines at the end, left by a removed rule."""
    return [*blocks[:-1], blocks[-1].rstrip() + "\n" * bool(blocks[-1].strip())] if blocks else []


def _read_block(block: str, path: str) -> tuple[object, ...]:
    """Return the fields of a rule's block, empty ones for any other block."""
    if not block.lstrip().startswith(HEAD):
        return ("", "")
    try:
        [rule] = read_toml(block)["permission"]["rules"]
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: a rule in it is not valid TOML: {error}; fix it") from error
    return tuple(rule.get(key, "") for key in _WRITTEN)


def _is_named(block: str, path: str, named: tuple[str, str], skill: str) -> bool:
    fields = _read_block(block, path)
    return fields[:2] == named and (not skill or fields[-1] == skill)


def _differs_in_action(block: str, rule: Rule, path: str) -> bool:
    fields = dict(zip(_WRITTEN, _read_block(block, path), strict=False))
    names = [key for key in _WRITTEN if key != "action"]
    return all(fields.get(key, "") == getattr(rule, key) for key in names)


def _block(rule: Rule) -> str:
    fields = ((key, str(getattr(rule, key))) for key in _WRITTEN)
    lines = [f"{key} = {_toml_string(value)}\n" for key, value in fields if value]
    return "".join(["\n", HEAD, "\n", *lines])


def _toml_string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r} is not valid Unicode; a rule cannot hold it") from error
    return toml_value(text)


def _write(path: str, text: str) -> None:
    try:
        replace_file(path, text.lstrip("\n").encode())
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}; it is unchanged"
        ) from error


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the lock of the file: one writer at a time, in any process."""
    try:
        make_folder(os.path.dirname(path))
        handle = os.open(f"{path}.lock", LOCK_FILE, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
