"""Read the expectations of a result: checks, sentences for a judge, and graders we do not run.

The spellings are those of agentskills.io, NVIDIA, waza and promptfoo, and our own `expect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from types import MappingProxyType
from typing import Any

from skillbelt.errors import ConfigError
from skillbelt.evals.cases import CHECKS, EvalCheck
from skillbelt.records import NamedTuple
from skillbelt.text import one_line, shorten

_MAX_SHOWN = 200
MAX_EXPECTATIONS = 500  # in one list of a case
_LARGEST = 10**12  # number of a check
# Names of the same checks in other formats.
_ALIASES = {
    "contains-all": "contains",
    "icontains-all": "icontains",
    "output-contains": "contains",
    "contains-phrase": "contains",
    "matches": "regex",
    "regex-match": "regex",
    "contains-pattern": "regex",
    "jsonschema": "json-schema",
    "schema": "json-schema",
    "golden-file": "golden",
    "exit-status": "exit-code",
    "exitcode": "exit-code",
    "file": "file-exists",
    "files-exist": "file-exists",
    "skill-invoked": "skill-used",
    "skill": "skill-used",
    "tool-called": "tool-used",
    "trajectory:tool-used": "tool-used",
}
# Sentences, which only a judge can decide.
_JUDGED = (
    "llm-rubric",
    "model-graded-closedqa",
    "factuality",
    "prompt",
    "rubric",
    "judge",
    "g-eval",
)
# Programs of a set, which would run outside the sandbox.
_PROGRAMS = ("javascript", "python", "ruby", "webhook", "code", "program", "script", "exec")
_MILLISECONDS = {"latency": "max-seconds", "max-duration-ms": "max-seconds"}


class Expected(NamedTuple):
    """The expectations of one result."""

    checks: tuple[EvalCheck, ...] = ()
    sentences: tuple[str, ...] = ()
    ungraded: tuple[str, ...] = ()

    def plus(self, other: Expected) -> Expected:
        """Return the expectations of both, each once."""
        return gather((self, other))


NOTHING = Expected()


def gather(parts: Iterable[Expected]) -> Expected:
    """Return the expectations of all parts, each once."""
    every = list(parts)
    # By their text: the value of a check may be an object, which has no hash.
    checks = {repr(one): one for part in every for one in part.checks}
    return Expected(
        tuple(checks.values()),
        tuple(dict.fromkeys(one for part in every for one in part.sentences)),
        tuple(dict.fromkeys(one for part in every for one in part.ungraded)),
    )


def _require_few(items: Sized, where: str) -> None:
    """Raise ConfigError for more expectations than any case needs; the file is untrusted."""
    if len(items) > MAX_EXPECTATIONS:
        raise ConfigError(f"{where}: takes at most {MAX_EXPECTATIONS} expectations")


def texts_of(value: object, where: str) -> tuple[str, ...]:
    """Return a text or a list of texts as texts; ConfigError for anything else."""
    listed = [value] if isinstance(value, str) else value
    if value is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"{where}: takes a text or a list of texts, not {_show(value)}")
    _require_few(listed, where)
    return tuple(one for one in listed if one.strip())


def _show(value: object) -> str:
    return shorten(one_line(repr(value)), 60)


def sentence(text: str) -> str:
    """Return a sentence for a judge, bounded."""
    return shorten(one_line(text), 2_000)


# One check by its kind


def make_check(kind: str, value: object, where: str, *, file: str = "") -> tuple[EvalCheck, ...]:
    """Return the check of that kind; ConfigError for an unknown kind or a wrong value."""
    name = kind.strip().lower().replace("_", "-")
    negated = name.startswith("not-")
    name = name.removeprefix("not-")
    if name in _MILLISECONDS:
        seconds = read_number(value, where) / 1000
        return (EvalCheck(_MILLISECONDS[name], seconds, negated=negated),)
    name = _ALIASES.get(name, name)
    if name not in CHECKS:
        raise ConfigError(f"{where}: unknown check {one_line(kind)!r}; known: {', '.join(CHECKS)}")
    takes = CHECKS[name].value
    if takes == "none":
        return (EvalCheck(name, None, file, negated != (value is False)),)
    if takes == "number":
        return (EvalCheck(name, read_number(value, where), file, negated),)
    if takes == "any":
        return (EvalCheck(name, value, file, negated),)
    texts = texts_of(value, where)
    if not texts:
        raise ConfigError(f"{where}: the check {name} needs a text")
    if takes == "texts":
        return (EvalCheck(name, texts, file, negated),)
    return tuple(EvalCheck(name, one, file, negated) for one in texts)


def read_number(value: object, where: str) -> float:
    """Return a number that a set gives; ConfigError for none, and for one too large to use."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise ConfigError(f"{where}: takes a number from 0 to {_LARGEST:,}, not {_show(value)}")
    return value


# Our own mapping: {"contains": ..., "exit_code": 0, "files": {"report.md": {...}}}


def read_expect(value: object, where: str, *, file: str = "") -> Expected:
    """Read a mapping of checks; `files` holds the checks of each output file."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: takes an object of checks, not {_show(value)}")
    found: list[EvalCheck] = []
    for key, given in value.items():
        place = f"{where}.{one_line(str(key))}"
        if key == "files" and not file:
            if not isinstance(given, Mapping):
                raise ConfigError(f"{place}: takes an object of checks by file")
            _require_few(given, place)
            for name, inner in given.items():
                if inner in (None, True, {}):
                    found.append(EvalCheck("file-exists", str(name)))
                else:
                    found += read_expect(inner, f"{place}.{name}", file=str(name)).checks
        elif given is not None:
            found += make_check(str(key), given, place, file=file)
    return Expected(tuple(found))


# Lists of assertions, as promptfoo and others have them


def read_assertions(value: object, where: str) -> Expected:
    """Read a list of assertions: sentences, or objects with a `type`."""
    listed = value if isinstance(value, list) else [value]
    _require_few(listed, where)
    return gather(
        _read_assertion(one, f"{where}[{number}]") for number, one in enumerate(listed, 1)
    )


def _read_assertion(one: object, where: str) -> Expected:
    if isinstance(one, str):
        return Expected(sentences=(sentence(one),)) if one.strip() else NOTHING
    if not isinstance(one, Mapping):
        raise ConfigError(f"{where}: an assertion is a sentence or an object, not {_show(one)}")
    if not isinstance(one.get("type"), str):
        if isinstance(one.get("$ref"), str):
            return Expected(ungraded=(_explain_not_run(f"$ref {one['$ref']}", "$ref"),))
        text = _find_description(one)
        if not text:
            raise ConfigError(f"{where}: an assertion needs a type or a text")
        return Expected(sentences=(sentence(text),))
    if "config" in one or one["type"] in _GRADERS:
        return read_grader(one, where)
    return _read_typed(one, where)


_TEXT_KEYS = ("text", "assertion", "expectation", "description", "criterion", "name")


_VALUE_KEYS = ("value", "phrase", "pattern", "threshold")


def _find_description(one: Mapping[str, Any]) -> str:
    """Return the sentence that describes an assertion; "" if it has none."""
    return next((one[key] for key in _TEXT_KEYS if isinstance(one.get(key), str)), "")


def _read_typed(one: Mapping[str, Any], where: str) -> Expected:
    kind = str(one["type"]).lower().replace("_", "-")
    value = next((one[key] for key in _VALUE_KEYS if one.get(key) is not None), None)
    if kind.removeprefix("not-") in _JUDGED:
        rubric = value if isinstance(value, str) else one.get("prompt", "")
        text = f"not: {rubric}" if kind.startswith("not-") else rubric
        return Expected(sentences=(sentence(str(text)),)) if rubric else NOTHING
    known = kind.removeprefix("not-")
    if known == "is-json" and value is not None:
        kind = kind.replace("is-json", "json-schema")
    if known not in CHECKS and known not in _ALIASES and known not in _MILLISECONDS:
        return Expected(ungraded=(_explain_not_run(kind, kind),))
    value = _promptfoo_value(known, value)
    if value is _ELSEWHERE:
        return Expected(ungraded=(_explain_not_run(f"{kind} with such a value", kind),))
    file = one.get("file", one.get("path", ""))
    try:
        return Expected(make_check(kind, value, where, file=file if isinstance(file, str) else ""))
    except ConfigError:
        # With a description a judge can decide it; without one the file is wrong.
        if text := _find_description(one):
            return Expected(sentences=(sentence(text),))
        raise


_ELSEWHERE = object()  # a value that only promptfoo can read


def _promptfoo_value(kind: str, value: object) -> object:
    """Return the value of an assertion as our check takes it; _ELSEWHERE if it cannot."""
    if isinstance(value, str) and value.startswith("file://"):
        schema = kind in ("is-json", "json-schema")
        return value.removeprefix("file://") if schema and ".js" in value else _ELSEWHERE
    if kind.endswith(("-any", "-all")) and isinstance(value, str):
        return [one.strip() for one in value.split(",")]
    if kind.endswith(("skill-used", "tool-used")) and isinstance(value, Mapping):
        named = value.get("name", value.get("pattern"))
        counted = value.get("max") is not None or value.get("min", 1) != 1
        return named if isinstance(named, str) and not counted else _ELSEWHERE
    takes = CHECKS[_ALIASES.get(kind, kind)].value if kind not in _MILLISECONDS else ""
    if takes in ("text", "texts"):
        if isinstance(value, list):
            return [str(one) if isinstance(one, int | float) else one for one in value]
        if isinstance(value, int | float):
            return str(value)
    return value


def _explain_not_run(name: str, kind: str) -> str:
    """Say that a grader is not run, and what to write instead."""
    shown = shorten(one_line(name), _MAX_SHOWN)
    instead = "contains, regex, json_schema or golden under `expect`, or a sentence for --judge"
    if kind.removeprefix("not-") in _PROGRAMS:
        return (
            f"{shown}: a program that grades is not run, since it would run outside the sandbox; "
            f"write {instead}, or make it a script of the skill with a case under `scripts`, which "
            "`eval script` runs in the sandbox"
        )
    return f"{shown}: nothing here decides the kind {one_line(kind)}; write {instead}"


# Graders of waza


def read_grader(one: Mapping[str, Any], where: str) -> Expected:
    """Read a grader of waza."""
    kind = str(one.get("type", ""))
    config = one.get("config") or {}
    if not isinstance(config, Mapping):
        raise ConfigError(f"{where}.config: takes an object")
    read = _GRADERS.get(kind)
    if read is None:
        return Expected(ungraded=(_explain_not_run(str(one.get("name") or kind), kind),))
    return read(config, f"{where}.config")


def _read_each(
    config: Mapping[str, Any], table: Mapping[str, str], where: str, file: str = ""
) -> Expected:
    found: list[EvalCheck] = []
    for key, kind in table.items():
        given = config.get(key)
        for text in texts_of(given, f"{where}.{key}"):
            found += make_check(kind, text, f"{where}.{key}", file=file)
    return Expected(tuple(found))


def _read_text(config: Mapping[str, Any], where: str) -> Expected:
    table = {
        "contains": "icontains",
        "not_contains": "not-icontains",
        "contains_cs": "contains",
        "not_contains_cs": "not-contains",
        "regex_match": "regex",
        "regex_not_match": "not-regex",
    }
    return _read_each(config, table, where)


def _read_file(config: Mapping[str, Any], where: str) -> Expected:
    found = _read_each(
        config, {"must_exist": "file-exists", "must_not_exist": "not-file-exists"}, where
    )
    patterns = config.get("content_patterns") or []
    if not isinstance(patterns, list):
        raise ConfigError(f"{where}.content_patterns: takes a list")
    for one in patterns:
        if isinstance(one, Mapping) and isinstance(one.get("path"), str):
            table = {"must_match": "regex", "must_not_match": "not-regex"}
            found = found.plus(_read_each(one, table, where, one["path"]))
    return found


def read_behavior(config: Mapping[str, Any], where: str) -> Expected:
    """Read bounds on what an agent does."""
    found: list[EvalCheck] = []
    numbers = {
        "max_tool_calls": "max-tool-calls",
        "min_tool_calls": "min-tool-calls",
        "max_tokens": "max-tokens",
        "max_duration_ms": "latency",
        "max_response_time_ms": "latency",
    }
    for key, kind in numbers.items():
        if config.get(key) is not None:
            found += make_check(kind, config[key], f"{where}.{key}")
    return Expected(tuple(found)).plus(_read_each(config, _TOOLS, where))


_TOOLS = {"required_tools": "tool-used", "forbidden_tools": "not-tool-used"}


def _read_skills(config: Mapping[str, Any], where: str) -> Expected:
    table = {"required_skills": "skill-used", "forbidden_skills": "not-skill-used"}
    return _read_each(config, table, where)


def _read_schema(config: Mapping[str, Any], where: str) -> Expected:
    given = config.get("schema", config.get("schema_file"))
    return Expected(make_check("json-schema", given, where))


def _read_prompt(config: Mapping[str, Any], where: str) -> Expected:
    prompt = config.get("prompt")
    return Expected(sentences=(sentence(prompt),)) if isinstance(prompt, str) else NOTHING


_GRADERS: Mapping[str, Callable[[Mapping[str, Any], str], Expected]] = MappingProxyType(
    {
        "text": _read_text,
        "file": _read_file,
        "behavior": read_behavior,
        "tool_calls": lambda config, where: _read_each(config, _TOOLS, where),
        "skill_invocation": _read_skills,
        "json_schema": _read_schema,
        "prompt": _read_prompt,
    }
)
