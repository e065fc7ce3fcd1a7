"""Read the expectations of a result: checks, sentences for a judge, and graders we do not run.

The spellings are those of agentskills.io, NVIDIA, waza and promptfoo, and our own `expect`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from types import MappingProxyType
from typing import Any

from skillbelt.errors import ConfigError
from skillbelt.evals.cases import CHECKS, EvalCheck
from skillbelt.evals.expressions import read_expression
from skillbelt.records import NamedTuple
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import BadJson, read_json

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
    "json-schema-valid": "json-schema",
    "output-matches": "regex",
    "file-contains": "contains",
    "file-matches": "regex",
    "completed": "not-empty",
    "exit-success": "not-empty",
    "cost": "max-cost",
}
# Of an alias that is a negation, such as `output-not-contains`.
_NEGATED = re.compile(r"(output|file)-not-")
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
    name, negated = _name_of(kind)
    if name in _MILLISECONDS:
        seconds = read_number(value, where) / 1000
        return (EvalCheck(_MILLISECONDS[name], seconds, negated=negated),)
    if name not in CHECKS:
        raise ConfigError(f"{where}: unknown check {one_line(kind)!r}; known: {', '.join(CHECKS)}")
    takes = CHECKS[name].value
    if takes == "none":
        return (EvalCheck(name, None, file, negated != (value is False)),)
    if takes == "maybe":
        given = None if isinstance(value, bool) else value
        return (EvalCheck(name, given, file, negated != (value is False)),)
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


def _name_of(kind: str) -> tuple[str, bool]:
    """Return the name of a check in our spelling, and whether it is negated."""
    name = kind.strip().lower().replace("_", "-")
    name = _NEGATED.sub(r"not-\1-", name, count=1)
    negated = name.startswith("not-")
    name = name.removeprefix("not-")
    name = _ALIASES.get(name, name)
    return name.removeprefix("not-"), negated != name.startswith("not-")


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


_VALUE_KEYS = ("value", "phrase", "pattern", "substring", "threshold")


def _find_description(one: Mapping[str, Any]) -> str:
    """Return the sentence that describes an assertion; "" if it has none."""
    return next((one[key] for key in _TEXT_KEYS if isinstance(one.get(key), str)), "")


def is_sentence(kind: object) -> bool:
    """Whether an assertion of that type is a sentence, which only a judge can decide."""
    return isinstance(kind, str) and kind.lower().replace("_", "-").removeprefix("not-") in _JUDGED


def _read_typed(one: Mapping[str, Any], where: str) -> Expected:
    kind = str(one["type"]).lower().replace("_", "-")
    value = next((one[key] for key in _VALUE_KEYS if one.get(key) is not None), None)
    if is_sentence(kind):
        rubric = value if isinstance(value, str) else one.get("prompt", "")
        text = f"not: {rubric}" if kind.startswith("not-") else rubric
        return Expected(sentences=(sentence(str(text)),)) if rubric else NOTHING
    known, negated = _name_of(kind)
    if known in _COMPOUND:
        found = _COMPOUND[known](one, value, where, negated)
        return found or Expected(ungraded=(_explain_value(kind),))
    if known == "is-json" and value is not None:
        known = "json-schema"
    if known not in CHECKS and known not in _MILLISECONDS:
        return Expected(ungraded=(_explain_not_run(kind, kind),))
    path = one.get("file", one.get("path", ""))
    file = path if isinstance(path, str) else ""
    if known == "file-exists" and value is None:
        value, file = file, ""
    value = _promptfoo_value(known, value)
    if value is _ELSEWHERE:
        return Expected(ungraded=(_explain_value(kind),))
    try:
        prefix = "not-" if negated else ""
        return Expected(make_check(prefix + known, value, where, file=file))
    except ConfigError:
        # With a description a judge can decide it; without one the file is wrong.
        if text := _find_description(one):
            return Expected(sentences=(sentence(text),))
        raise


def _explain_value(kind: str) -> str:
    return _explain_not_run(f"{kind} with such a value", kind)


# Assertions of several parts; None for one with parts that nothing here decides.


def _read_set(one: Mapping[str, Any], _value: object, where: str, negated: bool) -> Expected | None:
    """Read a group of which all must pass; one with a threshold is a score."""
    plain = not negated and one.get("threshold") is None and isinstance(one.get("assert"), list)
    return read_assertions(one["assert"], f"{where}.assert") if plain else None


def _read_words(
    _one: Mapping[str, Any], value: object, where: str, negated: bool
) -> Expected | None:
    if isinstance(value, Mapping):
        bounds = {key: value[key] for key in ("min", "max") if value.get(key) is not None}
    else:
        bounds = {"min": value, "max": value}
    if not bounds or (negated and len(bounds) > 1):  # outside a range is no check
        return None
    prefix = "not-" if negated else ""
    return Expected(
        tuple(
            check
            for key, bound in bounds.items()
            for check in make_check(f"{prefix}{key}-words", bound, where)
        )
    )


_MODES = {
    "": "in-order", "in-order": "in-order", "in-order-match": "in-order", "exact": "exactly",
    "exact-match": "exactly", "any-order": "used", "any-order-match": "used",
}  # fmt: skip


def _read_sequence(
    _one: Mapping[str, Any], value: object, where: str, negated: bool
) -> Expected | None:
    given = value if isinstance(value, Mapping) else {"steps": value}
    return _make_order("tool", given.get("steps"), given.get("mode"), where, negated)


def _make_order(
    noun: str, names: object, mode: object, where: str, negated: bool = False
) -> Expected | None:
    """Return the checks of an order of tools or skills; None for one that nothing decides."""
    how = _MODES.get(str(mode or "").replace("_", "-"))
    if how is None or not isinstance(names, list):
        return None
    if not names or not all(isinstance(one, str) for one in names):
        return None
    if how == "used" and (negated or len(set(names)) < len(names)):
        return None  # how often one is used is not counted
    kind = f"{noun}-used" if how == "used" else f"{noun}s-{how}"
    return Expected(make_check(f"not-{kind}" if negated else kind, names, where))


_Compound = Callable[[Mapping[str, Any], object, str, bool], Expected | None]
_COMPOUND: Mapping[str, _Compound] = MappingProxyType(
    {
        "assert-set": _read_set,
        "word-count": _read_words,
        "trajectory:tool-sequence": _read_sequence,
    }
)


_ELSEWHERE = object()  # a value that only promptfoo can read
_LIST_KINDS = ("contains", "icontains", "contains-any", "icontains-any")
_OF_SCHEMAS = ("is-json", "json-schema", "contains-json")


def _promptfoo_value(kind: str, value: object) -> object:
    """Return the value of an assertion as our check takes it; _ELSEWHERE if it cannot."""
    if isinstance(value, str) and value.startswith("file://"):
        schema = kind in _OF_SCHEMAS
        return value.removeprefix("file://") if schema and ".js" in value else _ELSEWHERE
    if kind in _OF_SCHEMAS and isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return read_json(value)
        except BadJson:
            return _ELSEWHERE
    if kind in _LIST_KINDS and isinstance(value, str):
        return [one.strip() for one in value.split(",")]
    if kind in ("skill-used", "tool-used") and isinstance(value, Mapping):
        named = value.get("name", value.get("pattern"))
        counted = value.get("max") is not None or value.get("min", 1) != 1
        return named if isinstance(named, str) and not counted else _ELSEWHERE
    takes = CHECKS[kind].value if kind not in _MILLISECONDS else ""
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
    """Read a grader of waza or vally."""
    kind = str(one.get("type", ""))
    config = one.get("config") or {}
    if not isinstance(config, Mapping):
        raise ConfigError(f"{where}.config: takes an object")
    read = _GRADERS.get(kind.lower().replace("-", "_"))
    found = read(config, f"{where}.config") if read else None
    if found is None and read is None and _is_typed(kind):
        # The settings of a grader may stand beside its type.
        plain = {key: given for key, given in one.items() if key not in ("config", "name")}
        return _read_typed({**plain, **config, "type": kind}, f"{where}.config")
    return found or Expected(ungraded=(_explain_not_run(str(one.get("name") or kind), kind),))


def _is_typed(kind: str) -> bool:
    """Whether a grader is of a kind that assertions have too."""
    name, _ = _name_of(kind)
    return name in CHECKS or name in _MILLISECONDS or name in _COMPOUND


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


def _read_skills(config: Mapping[str, Any], where: str) -> Expected | None:
    table = {
        "required_skills": "skill-used",
        "required": "skill-used",
        "forbidden_skills": "not-skill-used",
        "disallowed": "not-skill-used",
    }
    found = _read_each(config, table, where)
    mode = str(config.get("mode") or "any-order")
    if config.get("allow_extra") is False and mode == "in_order":
        mode = "exact"
    if "any" in mode:
        return found
    order = _make_order("skill", config.get("required_skills"), mode, f"{where}.required_skills")
    return None if order is None else found.plus(order)


def _read_order(config: Mapping[str, Any], where: str) -> Expected | None:
    mode = config.get("matching_mode")
    return _make_order("tool", config.get("expected_actions"), mode, f"{where}.expected_actions")


_EXPECTED_CALLS = {"required": "", "expect_tools": "", "disallowed": "not-", "reject_tools": "not-"}
_NAME = re.compile(r"\^?[\w-]+\$?")


def _read_calls(config: Mapping[str, Any], where: str) -> Expected:
    """Read what tools are called, and with which commands; other arguments are not compared."""
    found = _read_each(config, _TOOLS, where)
    for key, prefix in _EXPECTED_CALLS.items():
        listed = config.get(key) or []
        if not isinstance(listed, list):
            raise ConfigError(f"{where}.{key}: takes a list")
        _require_few(listed, f"{where}.{key}")
        found = gather(
            (found, *(_read_call(one, prefix, f"{where}.{key}[{number}]")
                      for number, one in enumerate(listed, 1)))
        )  # fmt: skip
    return found


def _read_call(given: object, prefix: str, where: str) -> Expected:
    one = given if isinstance(given, Mapping) else {"name": given}
    asked = {key.removesuffix("_pattern") for key in one} - {"description"}
    command = one.get("command", one.get("command_pattern"))
    name = one.get("name", one.get("tool"))
    if isinstance(command, str) and asked <= {"name", "tool", "command"}:
        return Expected(make_check(f"{prefix}command-matches", command, where))
    if isinstance(name, str) and _NAME.fullmatch(name) and asked <= {"name", "tool"}:
        return Expected(make_check(f"{prefix}tool-used", name.strip("^$"), where))
    return Expected(ungraded=(_explain_value("tool-calls"),))


def _read_schema(config: Mapping[str, Any], where: str) -> Expected:
    given = config.get("schema", config.get("schema_file"))
    return Expected(make_check("json-schema", given, where))


def _read_code(config: Mapping[str, Any], where: str) -> Expected | None:
    """Read assertions in Python, none of which is run: those that mean a check of ours."""
    given = texts_of(config.get("assertions"), f"{where}.assertions")
    if not given or config.get("language", "python") != "python":
        return None
    found = []
    for text in given:
        checks = read_expression(text)
        unread = (_explain_not_run(text, "code"),) if checks is None else ()
        found.append(Expected(checks or (), ungraded=unread))
    return gather(found)


def _read_prompt(config: Mapping[str, Any], where: str) -> Expected:
    prompt = config.get("prompt")
    return Expected(sentences=(sentence(prompt),)) if isinstance(prompt, str) else NOTHING


_GRADERS: Mapping[str, Callable[[Mapping[str, Any], str], Expected | None]] = MappingProxyType(
    {
        "text": _read_text,
        "file": _read_file,
        "behavior": read_behavior,
        "code": _read_code,
        "action_sequence": _read_order,
        "tool_calls": _read_calls,
        "tool_constraint": _read_calls,
        "shell_command_invoked": _read_calls,
        "skill_invocation": _read_skills,
        "json_schema": _read_schema,
        "prompt": _read_prompt,
    }
)
