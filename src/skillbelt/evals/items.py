"""Parse the entries of a file as cases, in any of the spellings in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from skillbelt.errors import ConfigError
from skillbelt.evals.cases import EvalCheck, EvalSet, ScriptCase, TaskCase, TriggerCase
from skillbelt.evals.expectations import (
    NOTHING,
    Expected,
    read_assertions,
    read_behavior,
    read_expect,
    read_number,
    sentence,
    texts_of,
)
from skillbelt.records import NamedTuple
from skillbelt.text import one_line, shorten

MAX_CASES = 10_000  # of one file
MAX_PROMPT_CHARS = 200_000
_PROMPTS = ("prompt", "question", "query", "request", "input", "task")
# Of an object that holds lists of entries, with whether they are meant for the skill.
_LISTS: Mapping[str, bool | None] = MappingProxyType(
    {
        "evals": None,
        "evaluations": None,
        "cases": None,
        "tests": None,
        "queries": None,
        "eval_queries": None,
        "trigger_evals": None,
        "triggers": None,
        "tasks": None,
        "positive": True,
        "negative": False,
        "positive_cases": True,
        "negative_cases": False,
        "should_trigger": True,
        "should_not_trigger": False,
        "should_trigger_prompts": True,
        "should_not_trigger_prompts": False,
    }
)
_GRADED = (
    "expected_output",
    "expected_behavior",
    "expected_script",
    "expected",
    "ground_truth",
    "assertions",
    "expectations",
    "assert",
    "expect",
    "graders",
    "validators",
    "must_not",
)
_ASSERTION_KEYS = (
    "expectations", "assertions", "expected_behavior", "assert", "graders", "validators"
)  # fmt: skip
_SCRIPT_KEYS = frozenset(
    ("id", "case_id", "eval_id", "name", "eval_name", "script", "arguments", "stdin", "input",
     "files", "timeout", "expect", "draft", "description", "comment")
)  # fmt: skip
_NO_SKILL = ("", "none", "null", "no-skill")


class EntryPlace(NamedTuple):
    """The origin of an entry: the file, the skill it is about, and its place in the list."""

    path: str
    skill: str
    place: str = ""

    @property
    def text(self) -> str:
        """The place as messages name it."""
        return f"{self.path}: {self.place}" if self.place else self.path


def is_eval_document(value: object) -> bool:
    """Whether a JSON document has the shape of an evaluation in any spelling."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, dict) and _prompt_key(one) for one in value)
    if not isinstance(value, dict):
        return False
    lists = any(isinstance(value.get(key), list) for key in (*_LISTS, "scripts"))
    return lists or bool(_prompt_key(value))


def read_document(value: object, path: str, skill: str) -> EvalSet:
    """Read a whole document; ConfigError, with the entry, for one that cannot be used."""
    if not is_eval_document(value) and value != [] and not _is_empty(value):
        raise ConfigError(
            f"{path}: this is not an evaluation; it takes a list of objects with a prompt, or an "
            'object such as {"skill_name": "NAME", "evals": [{"prompt": "..."}]}'
        )
    if isinstance(value, dict):
        named = value.get("skill_name", value.get("skill"))
        skill = skill or skill_of(named)
    found = EvalSet(skill, files=(path,))
    for place, entry, meant in _list_entries(value):
        found = found.plus(read_entry(entry, EntryPlace(path, skill, place), meant))
    scripts = value.get("scripts") if isinstance(value, dict) else None
    if scripts is not None:
        if not isinstance(scripts, list):
            raise ConfigError(f"{path}: scripts takes a list")
        made = [
            _read_script(one, EntryPlace(path, skill, f"scripts[{number}]"))
            for number, one in enumerate(scripts[:MAX_CASES], 1)
        ]
        found = found._replace(scripts=tuple(made))
    return found


def skill_of(value: object) -> str:
    """Return the name of a skill that a file gives, on one line; "" for none."""
    return shorten(one_line(value), 100) if isinstance(value, str) else ""


def _is_empty(value: object) -> bool:
    return isinstance(value, dict) and any(value.get(key) == [] for key in (*_LISTS, "scripts"))


def _list_entries(value: object) -> Iterator[tuple[str, object, bool | None]]:
    lists: list[tuple[str, list[object], bool | None]]
    if isinstance(value, list):
        lists = [("", value, None)]
    elif isinstance(value, dict) and _prompt_key(value):
        lists = [("", [value], None)]
    elif isinstance(value, dict):
        lists = [
            (key, value[key], meant)
            for key, meant in _LISTS.items()
            if isinstance(value.get(key), list)
        ]
    else:
        lists = []
    count = 0
    for key, listed, meant in lists:
        for number, one in enumerate(listed, 1):
            count += 1
            if count > MAX_CASES:
                raise ConfigError(f"an evaluation has at most {MAX_CASES:,} cases in one file")
            yield f"{key or 'entry'} {number}", one, meant


def _prompt_key(entry: Mapping[str, Any]) -> str:
    return next((key for key in _PROMPTS if isinstance(entry.get(key), str)), "")


# One entry


def read_entry(entry: object, origin: EntryPlace, meant: bool | None = None) -> EvalSet:
    """Read one entry as a trigger case, a task or both. `meant` is what its list says of it."""
    if isinstance(entry, str):
        entry = {"query": entry}
    key = _prompt_key(entry) if isinstance(entry, Mapping) else ""
    if not isinstance(entry, Mapping) or not key or not entry[key].strip():
        keys = ", ".join(_PROMPTS[:3])
        raise ConfigError(f"{origin.text}: needs a text as its {keys}")
    if len(entry[key]) > MAX_PROMPT_CHARS:
        raise ConfigError(f"{origin.text}: a prompt has at most {MAX_PROMPT_CHARS:,} characters")
    trigger = _read_trigger(entry, entry[key], origin, meant)
    found = EvalSet(origin.skill, triggers=(trigger,))
    plain = key != "query" and "should_trigger" not in entry and meant is None
    if trigger.should_trigger and (plain or any(entry.get(one) for one in _GRADED)):
        found = found._replace(tasks=(_read_task(entry, entry[key], origin),))
    return found


def id_of(entry: Mapping[str, Any], origin: EntryPlace) -> str:
    """Return the id of an entry, or its place where it has none."""
    for key in ("id", "case_id", "eval_id", "name", "eval_name"):
        value = entry.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return shorten(one_line(str(value)), 100)
    return origin.place


def _read_trigger(
    entry: Mapping[str, Any], query: str, origin: EntryPlace, meant: bool | None
) -> TriggerCase:
    named = entry.get("expected_skill")
    if named is not None and not isinstance(named, str):
        raise ConfigError(f"{origin.text}: expected_skill takes the name of a skill, or null")
    expected = "" if named is None or named.strip().lower() in _NO_SKILL else skill_of(named)
    should = entry.get("should_trigger")
    if should is None:
        should = _is_meant(entry, expected, origin.skill, meant)
    if not isinstance(should, bool):
        raise ConfigError(f"{origin.text}: should_trigger takes true or false")
    given = entry.get("acceptable_skills", entry.get("acceptable_alternates"))
    acceptable = texts_of(given, f"{origin.text}: acceptable_skills")
    return TriggerCase(
        id=id_of(entry, origin),
        query=query,
        skill=origin.skill or expected,
        should_trigger=should,
        expected=expected or (origin.skill if should else ""),
        acceptable=tuple(map(skill_of, acceptable)),
        source=origin.path,
        draft=entry.get("draft") is True,
    )


def _is_meant(entry: Mapping[str, Any], expected: str, skill: str, meant: bool | None) -> bool:
    if "expected_skill" in entry:
        return bool(expected) and (not skill or expected == skill)
    return meant is not False


def _read_task(entry: Mapping[str, Any], prompt: str, origin: EntryPlace) -> TaskCase:
    expected = read_expected(entry, origin.text)
    name = entry.get("name", entry.get("eval_name"))
    return TaskCase(
        id=id_of(entry, origin),
        prompt=prompt,
        skill=origin.skill,
        name=shorten(one_line(name), 100) if isinstance(name, str) else "",
        files=_read_files(entry.get("files"), f"{origin.text}: files"),
        checks=expected.checks,
        expectations=expected.sentences,
        ungraded=expected.ungraded,
        source=origin.path,
    )


def _read_files(value: object, where: str) -> tuple[str, ...]:
    """Return the paths of input files; waza writes them as objects with a path."""
    if isinstance(value, list):
        value = [
            one["path"] if isinstance(one, Mapping) and isinstance(one.get("path"), str) else one
            for one in value
        ]
    return texts_of(value, where)


def read_expected(entry: Mapping[str, Any], where: str) -> Expected:
    """Read everything that an entry says about its result."""
    found = NOTHING
    for key in _ASSERTION_KEYS:
        if entry.get(key):
            found = found.plus(read_assertions(entry[key], f"{where}: {key}"))
    for key, lead in (
        ("expected_output", "The result is as described: "),
        ("expected", "The result is as described: "),
        ("ground_truth", "The answer agrees with this: "),
    ):
        text = entry.get(key)
        if isinstance(text, str) and text.strip():
            found = found.plus(Expected(sentences=(sentence(lead + text),)))
    for text in texts_of(entry.get("must_not"), f"{where}: must_not"):
        found = found.plus(Expected(sentences=(sentence(f"This does not happen: {text}"),)))
    for script in texts_of(entry.get("expected_script"), f"{where}: expected_script"):
        found = found.plus(Expected((EvalCheck("script-run", script),)))
    if (expect := entry.get("expect")) is not None:
        read = read_assertions if isinstance(expect, list) else read_expect
        found = found.plus(read(expect, f"{where}: expect"))
    if isinstance(entry.get("expected"), Mapping):
        found = found.plus(_read_waza_expected(entry["expected"], f"{where}: expected"))
    return found


def _read_waza_expected(expected: Mapping[str, Any], where: str) -> Expected:
    checks: list[EvalCheck] = []
    for key, kind in (("output_contains", "icontains"), ("output_not_contains", "not-icontains")):
        for text in texts_of(expected.get(key), f"{where}.{key}"):
            name = kind.removeprefix("not-")
            checks.append(EvalCheck(name, (text,), negated=kind != name))
    either = texts_of(expected.get("output_contains_any"), f"{where}.output_contains_any")
    if either:
        checks.append(EvalCheck("icontains-any", either))
    found = Expected(tuple(checks))
    if isinstance(expected.get("behavior"), Mapping):
        found = found.plus(read_behavior(expected["behavior"], f"{where}.behavior"))
    if expected.get("outcomes"):
        found = found.plus(read_assertions(expected["outcomes"], f"{where}.outcomes"))
    return found


# Scripts


def _read_script(entry: object, origin: EntryPlace) -> ScriptCase:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("script"), str):
        raise ConfigError(f"{origin.text}: needs a script, the path of one in the skill")
    if unknown := sorted(set(map(str, entry)) - _SCRIPT_KEYS):
        raise ConfigError(
            f"{origin.text}: {one_line(', '.join(unknown))} is not read; a script's case takes "
            f"{', '.join(sorted(_SCRIPT_KEYS))}"
        )
    expected = read_expect(entry.get("expect") or {}, f"{origin.text}: expect")
    seconds = read_number(entry.get("timeout", 0), f"{origin.text}: timeout")
    stdin = entry.get("stdin", "")
    if not isinstance(stdin, str):
        raise ConfigError(f"{origin.text}: stdin takes a text")
    arguments = entry.get("arguments", [])
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise ConfigError(f"{origin.text}: arguments takes a list of texts")
    return ScriptCase(
        id=id_of(entry, origin),
        skill=origin.skill,
        script=entry["script"],
        arguments=tuple(arguments),
        stdin=stdin,
        files=_read_inputs(entry.get("files"), f"{origin.text}: files"),
        calls_json="input" in entry,
        json=entry.get("input"),
        seconds=float(seconds),
        checks=expected.checks,
        source=origin.path,
    )


def _read_inputs(value: object, where: str) -> Mapping[str, str]:
    """Return the files of the skill by the name that they get in the workspace."""
    if isinstance(value, Mapping):
        if not all(isinstance(one, str) for one in value.values()):
            raise ConfigError(f"{where}: takes an object of paths, or a list of paths")
        return {str(name): path for name, path in value.items()}
    return {path.rpartition("/")[2]: path for path in texts_of(value, where)}
