"""Permission as values: what is asked, the rules, and which of them decides.

Nothing here reads a file or asks anybody. `policy` reads the rules, `gate` brings both together.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Action = Literal["allow", "ask", "deny"]
Initiator = Literal["model", "user"]
AnswerKind = Literal["once", "always", "reject"]
# Where a rule stands in the stack; a later one is stronger.
Source = Literal["default", "system", "user", "project", "agent", "session"]

SOURCES: tuple[Source, ...] = ("default", "system", "user", "project", "agent", "session")
# What can be asked for, and what a pattern of that type is matched against.
TYPES: Mapping[str, str] = MappingProxyType(
    {
        "skill": "the name of a skill that is to be loaded",
        "run": "a command line",
        "network": "a host name, with a port if it is not the usual one",
        "host_file": "a path outside the workspace",
        "install": "a package, as it is required",
        "trust": "a project folder or an origin",
        "tool": "a tool that a skill declares",
    }
)
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Request(NamedTuple):
    """Something that wants to happen. Every one of `patterns` must be allowed.

    `always` are the texts that "always" remembers, to the letter, for the skill with this content
    `hash` from this `origin`; without them the answer can not be remembered. `summary` says in one
    line what wants to happen, for a person. `trusted` says whether the skill's origin is.
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


class Rule(NamedTuple):
    """One rule. `agent` and `initiator` narrow it when they are not empty, `trusted` when not None.

    `path` and `line` say where it is written.
    """

    type: str
    pattern: str
    action: Action
    source: Source = "session"
    path: str = ""
    line: int = 0
    agent: str = ""
    initiator: str = ""
    trusted: bool | None = None


class Answer(NamedTuple):
    """What somebody who was asked said; `message` reaches whoever wanted it, `by` the audit log."""

    kind: AnswerKind
    message: str = ""
    by: str = ""


class Decision(NamedTuple):
    """The outcome for a request, and why.

    `by` is `rule`, `remembered`, `declared`, `once`, `always`, `rejected`, `timeout`, `nobody` or
    `disposed`. `reason` is for whoever reads a refusal.
    """

    allowed: bool
    action: Action
    rule: Rule
    by: str
    reason: str = ""


DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("*", "*", "ask", "default"),
    Rule("skill", "*", "allow", "default", trusted=True),
    Rule("skill", "*", "allow", "default", initiator="user"),
)
