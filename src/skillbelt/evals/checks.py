"""Decide the checks that need no model, from the results of a run or a conversation."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

from skillbelt.errors import SkillbeltError
from skillbelt.evals.cases import EvalCheck
from skillbelt.evals.json_schema import UnknownKeyword, equal, find_faults
from skillbelt.evals.patterns import BadPattern, search_pattern
from skillbelt.files.manifest import SkillFiles
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import BadJson, read_json

_MAX_REFERENCE_BYTES = 8 * 2**20
_MAX_DIFF_LINES = 60
_MAX_COMPARED_LINES = 5_000
_SHOWN_CHARS = 300
_MAX_LINE_CHARS = 500


class EvalEvidence(NamedTuple):
    """The results that checks examine. `text` is the answer of a model, or the output of a script.

    `files` are the outputs by name. `surprises` are uses that the skill does not declare, and
    `reported` are uses that only the output of a script mentions. An exit code of None: no run.
    `cut`: the text is only the beginning of the output.
    """

    text: str
    error_text: str = ""
    files: Mapping[str, str] = MappingProxyType({})
    exit_code: int | None = None
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    surprises: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    seconds: float = 0.0
    tokens: int = 0
    cut: bool = False


class Grade(NamedTuple):
    """A decision about one expectation. `passed` is None where nothing could decide it."""

    text: str
    passed: bool | None
    evidence: str = ""
    judged: bool = False

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        return self._asdict()


class _Undecided(Exception):
    """The check cannot be decided; the text says why."""


# Whether a check holds, and the evidence.
_Seen = tuple[bool, str]


def decide(check: EvalCheck, seen: EvalEvidence, references: SkillFiles) -> Grade:
    """Decide one check; `references` hold the files that it compares with."""
    try:
        holds, evidence = _DECIDERS[check.kind](check, seen, references)
    except (_Undecided, BadPattern, UnknownKeyword) as error:
        return Grade(check.text, None, one_line(str(error)))
    except RecursionError:
        return Grade(check.text, None, "is nested too deeply")
    return Grade(check.text, holds != check.negated, evidence)


def _find_text(check: EvalCheck, seen: EvalEvidence) -> str | None:
    """Return the text that the check examines; None if the file is missing."""
    if not check.file:
        return seen.text
    found = [name for name in sorted(seen.files) if _is_named(name, check.file)]
    return seen.files[found[0]] if found else None


def _is_named(name: str, pattern: str) -> bool:
    """Whether the name means an output: by its path, with or without `out/`, or by a pattern."""
    plain = pattern.removeprefix("out/")
    return any(fnmatchcase(name.removeprefix("out/"), one) for one in (plain, pattern))


def _check_text(
    decide_text: Callable[[str, EvalCheck, SkillFiles], _Seen],
) -> Callable[[EvalCheck, EvalEvidence, SkillFiles], _Seen]:
    def decided(check: EvalCheck, seen: EvalEvidence, references: SkillFiles) -> _Seen:
        text = _find_text(check, seen)
        if text is None:
            there = ", ".join(sorted(seen.files)[:10]) or "none"
            return check.negated, f"there is no file {check.file!r}; files: {one_line(there)}"
        holds, evidence = decide_text(text, check, references)
        if seen.cut and not holds and not check.file:
            raise _Undecided(f"the output is too long: only {len(text):,} characters were read")
        return holds, evidence

    return decided


def _show(text: str) -> str:
    return shorten(one_line(text), _SHOWN_CHARS) or "(nothing)"


def _wanted_texts(check: EvalCheck) -> tuple[str, ...]:
    return check.value if isinstance(check.value, tuple) else (str(check.value),)


def _contains(text: str, check: EvalCheck, _: SkillFiles) -> _Seen:
    missing = [one for one in _wanted_texts(check) if one not in text]
    if check.negated:
        found = [one for one in _wanted_texts(check) if one in text]
        return bool(found), f"{found[0]!r} is in: {_show(text)}" if found else ""
    return not missing, f"{missing[0]!r} is not in: {_show(text)}" if missing else ""


def _icontains(text: str, check: EvalCheck, references: SkillFiles) -> _Seen:
    folded = check._replace(value=tuple(one.casefold() for one in _wanted_texts(check)))
    return _contains(text.casefold(), folded, references)


def _contains_any(text: str, check: EvalCheck, _: SkillFiles) -> _Seen:
    found = [one for one in _wanted_texts(check) if one in text]
    return bool(found), f"{found[0]!r}" if found else f"none is in: {_show(text)}"


def _icontains_any(text: str, check: EvalCheck, references: SkillFiles) -> _Seen:
    folded = check._replace(value=tuple(one.casefold() for one in _wanted_texts(check)))
    return _contains_any(text.casefold(), folded, references)


def _equals(text: str, check: EvalCheck, _: SkillFiles) -> _Seen:
    if isinstance(check.value, str):
        return text.strip() == check.value.strip(), _show(text)
    try:
        return equal(read_json(text), check.value), _show(text)
    except BadJson as error:
        return False, f"is not JSON: {error}: {_show(text)}"


def _json(text: str) -> object:
    try:
        return read_json(text)
    except BadJson as error:
        raise _Undecided(f"is not JSON: {error}") from None


def _starts(text: str, check: EvalCheck, _: SkillFiles) -> _Seen:
    return text.startswith(str(check.value)), _show(text)


def _regex(text: str, check: EvalCheck, _: SkillFiles) -> _Seen:
    return search_pattern(str(check.value), text), _show(text)


def _is_json(text: str, _check: EvalCheck, _: SkillFiles) -> _Seen:
    try:
        read_json(text)
    except BadJson as error:
        return False, f"{error}: {_show(text)}"
    return True, ""


def _schema(text: str, check: EvalCheck, references: SkillFiles) -> _Seen:
    schema = check.value
    if isinstance(schema, str):
        schema = _json(_read_reference(schema, references))
    try:
        value = read_json(text)
    except BadJson as error:
        return False, f"is not JSON: {error}: {_show(text)}"
    faults = find_faults(value, schema)
    return not faults, one_line("; ".join(faults[:5]))


def _read_reference(path: str, references: SkillFiles) -> str:
    """Return a file of the skill that a result is compared with."""
    try:
        with references.open(path, _MAX_REFERENCE_BYTES) as file:
            return file.read().decode("utf-8", "replace")
    except (OSError, SkillbeltError) as error:
        raise _Undecided(f"{one_line(path)}: {one_line(str(error))}") from None


def _golden(text: str, check: EvalCheck, references: SkillFiles) -> _Seen:
    wanted = _read_reference(str(check.value), references).replace("\r\n", "\n")
    found = text.replace("\r\n", "\n")
    if found.rstrip("\n") == wanted.rstrip("\n"):
        return True, ""
    return False, show_difference(wanted, found, str(check.value), check.file or "output")


def show_difference(old: str, new: str, old_name: str, new_name: str) -> str:
    """Return a unified diff of two texts, cut to a readable length."""
    before = old.splitlines()[:_MAX_COMPARED_LINES]
    after = new.splitlines()[:_MAX_COMPARED_LINES]
    lines = list(difflib.unified_diff(before, after, old_name, new_name, lineterm="", n=2))
    if not lines:
        return "they differ only in white space at the end, or in lines that are not compared"
    more = len(lines) - _MAX_DIFF_LINES
    shown = [shorten(line, _MAX_LINE_CHARS) for line in lines[:_MAX_DIFF_LINES]]
    return "\n".join([*shown, *([f"... {more} more lines"] if more > 0 else [])])


def _file_exists(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
    found = [name for name in seen.files if _is_named(name, str(check.value))]
    there = ", ".join(sorted(found or seen.files)[:10]) or "none"
    return bool(found), f"files: {one_line(there)}"


def _exit_code(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
    if seen.exit_code is None:
        raise _Undecided("nothing was run")
    return seen.exit_code == check.value, f"exit code {seen.exit_code}: {_show(seen.text[-2000:])}"


def _check_limit(
    figure: Callable[[EvalEvidence], float], unit: str
) -> Callable[[EvalCheck, EvalEvidence, SkillFiles], _Seen]:
    def decided(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
        assert isinstance(check.value, int | float)
        return figure(seen) <= check.value, f"{figure(seen):g} {unit}"

    return decided


def _least_calls(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
    assert isinstance(check.value, int | float)
    return len(seen.tools) >= check.value, f"{len(seen.tools)} calls"


def _check_member(
    figures: Callable[[EvalEvidence], tuple[str, ...]],
) -> Callable[[EvalCheck, EvalEvidence, SkillFiles], _Seen]:
    def decided(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
        found = figures(seen)
        shown = ", ".join(dict.fromkeys(found)) or "none"
        wanted = str(check.value)
        return any(fnmatchcase(one, wanted) for one in found), _show(shown)

    return decided


def _script_run(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
    found = [one for one in seen.commands if str(check.value) in one]
    return bool(found), _show("; ".join(found or seen.commands) or "nothing was run")


def _check_surprises(_check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
    return not seen.surprises, _show("; ".join(seen.surprises)) if seen.surprises else ""


_DECIDERS: Mapping[str, Callable[[EvalCheck, EvalEvidence, SkillFiles], _Seen]] = MappingProxyType(
    {
        "contains": _check_text(_contains),
        "icontains": _check_text(_icontains),
        "contains-any": _check_text(_contains_any),
        "icontains-any": _check_text(_icontains_any),
        "equals": _check_text(_equals),
        "starts-with": _check_text(_starts),
        "regex": _check_text(_regex),
        "is-json": _check_text(_is_json),
        "json-schema": _check_text(_schema),
        "golden": _check_text(_golden),
        "file-exists": _file_exists,
        "exit-code": _exit_code,
        "max-seconds": _check_limit(lambda seen: seen.seconds, "s"),
        "max-tokens": _check_limit(lambda seen: seen.tokens, "tokens"),
        "max-tool-calls": _check_limit(lambda seen: len(seen.tools), "calls"),
        "min-tool-calls": _least_calls,
        "tool-used": _check_member(lambda seen: seen.tools),
        "skill-used": _check_member(lambda seen: seen.skills),
        "script-run": _script_run,
        "permission-asked": _check_member(lambda seen: seen.asked),
        "no-surprises": _check_surprises,
    }
)
