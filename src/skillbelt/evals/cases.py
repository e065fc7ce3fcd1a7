"""The cases of an evaluation as values, in one spelling for files of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from skillbelt.records import NamedTuple


class CheckKind(NamedTuple):
    """A kind of check: the type of its value, and the text that describes it.

    `value` is `text`, `texts`, `number`, `any`, `maybe` (any or none) or `none`.
    """

    value: str
    about: str


# Every kind that needs no model. A `not-` prefix negates one.
CHECKS: Mapping[str, CheckKind] = MappingProxyType(
    {
        "contains": CheckKind("texts", "contains {}"),
        "icontains": CheckKind("texts", "contains {}, in any case"),
        "contains-any": CheckKind("texts", "contains one of {}"),
        "icontains-any": CheckKind("texts", "contains one of {}, in any case"),
        "equals": CheckKind("any", "equals {}"),
        "starts-with": CheckKind("text", "starts with {}"),
        "regex": CheckKind("text", "matches {}"),
        "empty": CheckKind("none", "is empty"),
        "min-length": CheckKind("number", "has at least {} characters"),
        "max-length": CheckKind("number", "has at most {} characters"),
        "min-words": CheckKind("number", "has at least {} words"),
        "max-words": CheckKind("number", "has at most {} words"),
        "is-json": CheckKind("none", "is JSON"),
        "contains-json": CheckKind("maybe", "contains JSON"),
        "is-xml": CheckKind("maybe", "is XML"),
        "json-schema": CheckKind("any", "fits the schema {}"),
        "golden": CheckKind("text", "is the same as {}"),
        "file-exists": CheckKind("text", "leaves a file {}"),
        "exit-code": CheckKind("number", "ends with exit code {}"),
        "max-seconds": CheckKind("number", "takes at most {} s"),
        "max-tokens": CheckKind("number", "takes at most {} tokens"),
        "max-cost": CheckKind("number", "costs at most {} dollars"),
        "max-tool-calls": CheckKind("number", "takes at most {} calls of tools"),
        "min-tool-calls": CheckKind("number", "makes at least {} calls of tools"),
        "tool-used": CheckKind("text", "calls the tool {}"),
        "tools-in-order": CheckKind("texts", "calls the tools {} in this order"),
        "tools-exactly": CheckKind("texts", "calls the tools {} in this order and no others"),
        "skill-used": CheckKind("text", "uses the skill {}"),
        "skills-in-order": CheckKind("texts", "uses the skills {} in this order"),
        "skills-exactly": CheckKind("texts", "uses the skills {} in this order and no others"),
        "script-run": CheckKind("text", "runs {}"),
        "command-matches": CheckKind("text", "runs a command that matches {}"),
        "permission-asked": CheckKind("text", "asks for the permission {}"),
        "no-surprises": CheckKind("none", "uses nothing that it does not declare"),
    }
)


class EvalCheck(NamedTuple):
    """One check that needs no model. `file` is the output that it looks at, "" for the text."""

    kind: str
    value: object = None
    file: str = ""
    negated: bool = False

    @property
    def text(self) -> str:
        """The expectation in words."""
        shown = self.value
        if isinstance(shown, tuple):
            shown = " and ".join(repr(one) for one in shown)
        elif isinstance(shown, str):
            shown = repr(shown)
        elif isinstance(shown, dict | list):
            shown = "given here"
        kind = CHECKS[self.kind]
        about = kind.about.format(shown)
        if kind.value == "maybe" and shown is not None:
            about = f"{about} of the given form"
        subject = f"{self.file}: " if self.file else ""
        return f"{subject}not: {about}" if self.negated else f"{subject}{about}"

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {**self._asdict(), "value": value}


class TriggerCase(NamedTuple):
    """A request, and whether the skill is meant by it.

    `expected` is the skill that is meant; "" if there is none, or the file does not name it. Any of
    `acceptable` is right too. `draft` marks a request that a program wrote.
    """

    id: str
    query: str
    skill: str
    should_trigger: bool
    expected: str = ""
    acceptable: tuple[str, ...] = ()
    source: str = ""
    draft: bool = False


class TaskCase(NamedTuple):
    """A task for a model. `checks` need no model, `expectations` are sentences for a judge.

    `ungraded` are expectations that only another program can decide, each with the reason. `files`
    are in `folder`, or in the skill's folder if that is "".
    """

    id: str
    prompt: str
    skill: str
    name: str = ""
    files: tuple[str, ...] = ()
    checks: tuple[EvalCheck, ...] = ()
    expectations: tuple[str, ...] = ()
    ungraded: tuple[str, ...] = ()
    source: str = ""
    folder: str = ""


class ScriptCase(NamedTuple):
    """A call of a script, or of a module with JSON, and what is expected of it.

    `files` are put into the workspace by the name on the left. `json` is given as the input of
    a JSON call when `calls_json` is set.
    """

    id: str
    skill: str
    script: str
    arguments: tuple[str, ...] = ()
    stdin: str = ""
    files: Mapping[str, str] = MappingProxyType({})
    calls_json: bool = False
    json: object = None
    seconds: float = 0.0
    checks: tuple[EvalCheck, ...] = ()
    source: str = ""


class EvalProblem(NamedTuple):
    """Something in a file that is not used, and why."""

    path: str
    place: str
    message: str

    def __str__(self) -> str:
        where = f"{self.path}: {self.place}" if self.place else self.path
        return f"{where}: {self.message}"


class EvalSet(NamedTuple):
    """All cases of one skill, the files they came from, and what in these is not used."""

    skill: str
    triggers: tuple[TriggerCase, ...] = ()
    tasks: tuple[TaskCase, ...] = ()
    scripts: tuple[ScriptCase, ...] = ()
    problems: tuple[EvalProblem, ...] = ()
    files: tuple[str, ...] = ()

    def plus(self, other: EvalSet) -> EvalSet:
        """Return the cases of both sets."""
        return self._replace(
            triggers=(*self.triggers, *other.triggers),
            tasks=(*self.tasks, *other.tasks),
            scripts=(*self.scripts, *other.scripts),
            problems=(*self.problems, *other.problems),
            files=(*self.files, *other.files),
        )
