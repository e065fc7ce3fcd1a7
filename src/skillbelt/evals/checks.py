"""Decide the checks that need no model, from the results of a run or a conversation."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple
from xml.parsers import expat

from skillbelt.errors import SkillbeltError
from skillbelt.evals.cases import EvalCheck
from skillbelt.evals.json_schema import UnknownKeyword, equal, find_faults
from skillbelt.evals.patterns import BadPattern, search_pattern
from skillbelt.files.manifest import SkillFiles
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import BadJson, find_json, read_json

_MAX_REFERENCE_BYTES = 8 * 2**20
_MAX_DIFF_LINES = 60
_MAX_COMPARED_LINES = 5_000
_SHOWN_CHARS = 300
_MAX_LINE_CHARS = 500
# What holds of the beginning of a text may not hold of all of it.
_WHOLE = ("equals", "max-length", "max-words", "is-json", "json-schema", "is-xml", "golden")


class EvalEvidence(NamedTuple):
    """The results that checks examine. `text` is the answer of a model, or the output of a script.

    `files` are the outputs by name. `surprises` are uses that the skill does not declare, and
    `reported` are uses that only the output of a script mentions. An exit code of None: no run.
    `cut`: the text is only the beginning of the output. A cost of None is unknown. `offered` are
    the tools that could be called; none where that is unknown.
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
    cost: float | None = None
    offered: tuple[str, ...] = ()
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


def _find_texts(check: EvalCheck, seen: EvalEvidence) -> list[str]:
    """Return the texts that the check examines; none if the file is missing."""
    if not check.file:
        return [seen.text]
    return [seen.files[name] for name in sorted(seen.files) if _is_named(name, check.file)]


def _is_named(name: str, pattern: str) -> bool:
    """Whether the name means an output: by its path, with or without `out/`, or by a pattern.

    `**/` at the beginning also means no folder.
    """
    plain = pattern.removeprefix("out/")
    patterns = (plain, pattern, plain.removeprefix("**/"))
    return any(fnmatchcase(name.removeprefix("out/"), one) for one in patterns)


def _check_text(
    decide_text: Callable[[str, EvalCheck, SkillFiles], _Seen],
) -> Callable[[EvalCheck, EvalEvidence, SkillFiles], _Seen]:
    def decided(check: EvalCheck, seen: EvalEvidence, references: SkillFiles) -> _Seen:
        texts = _find_texts(check, seen)
        if not texts:
            there = ", ".join(sorted(seen.files)[:10]) or "none"
            return check.negated, f"there is no file {check.file!r}; files: {one_line(there)}"
        for text in texts:
            holds, evidence = decide_text(text, check, references)
            if holds:
                break
        if seen.cut and not check.file and (not holds or check.kind in _WHOLE):
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


def _is_empty(text: str, _check: EvalCheck, _: SkillFiles) -> _Seen:
    return not text.strip(), _show(text)


def _check_size(
    figure: Callable[[str], int], unit: str, *, least: bool
) -> Callable[[str, EvalCheck, SkillFiles], _Seen]:
    def decided(text: str, check: EvalCheck, _: SkillFiles) -> _Seen:
        assert isinstance(check.value, int | float)
        found = figure(text)
        holds = found >= check.value if least else found <= check.value
        return holds, f"{found:,} {unit}"

    return decided


def _count_words(text: str) -> int:
    return len(text.split())


def _is_json(text: str, _check: EvalCheck, _: SkillFiles) -> _Seen:
    try:
        read_json(text)
    except BadJson as error:
        return False, f"{error}: {_show(text)}"
    return True, ""


def _find_schema(check: EvalCheck, references: SkillFiles) -> object:
    if isinstance(check.value, str):
        return _json(_read_reference(check.value, references))
    return check.value


def _contains_json(text: str, check: EvalCheck, references: SkillFiles) -> _Seen:
    schema = _find_schema(check, references)
    faults = [f"no JSON is in: {_show(text)}"]
    try:
        for number, value in enumerate(find_json(text)):
            found = [] if schema is None else find_faults(value, schema)
            if not found:
                return True, _show(text)
            faults = found if not number else faults
    except BadJson as error:
        raise _Undecided(str(error)) from None
    return False, one_line("; ".join(faults[:5]))


def _is_xml(text: str, check: EvalCheck, _: SkillFiles) -> _Seen:
    given = check.value.get("requiredElements") if isinstance(check.value, Mapping) else ()
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise _Undecided("requiredElements takes a list of texts")
    wanted = {tuple(one.split(".")): one for one in given}
    try:
        missing = _remove_elements(text.strip(), wanted)
    except (expat.ExpatError, ValueError) as error:
        return False, f"is not XML: {error}: {_show(text)}"
    return not missing, f"there is no element {', '.join(missing)}" if missing else ""


def _remove_elements(text: str, wanted: dict[tuple[str, ...], str]) -> list[str]:
    """Return the wanted elements that a document lacks; ExpatError if it is not XML."""
    parser, path = expat.ParserCreate(), list[str]()
    deepest = max(map(len, wanted), default=0)

    def begin(name: str, _: object) -> None:
        path.append(name)
        if len(path) <= deepest:
            wanted.pop(tuple(path), None)

    def refuse(*_: object) -> None:
        raise _Undecided("has a document type, whose entities are not read")

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: path.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(text, True)
    return list(wanted.values())


def _schema(text: str, check: EvalCheck, references: SkillFiles) -> _Seen:
    schema = _find_schema(check, references)
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


def _max_cost(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
    assert isinstance(check.value, int | float)
    if seen.cost is None:
        raise _Undecided("the price of the model is not known; give it with --price IN,OUT")
    return seen.cost <= check.value, f"${seen.cost:.6g}"


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


def _tool_used(check: EvalCheck, seen: EvalEvidence, references: SkillFiles) -> _Seen:
    _require_offered(check, seen)
    return _check_member(lambda seen: seen.tools)(check, seen, references)


def _require_offered(check: EvalCheck, seen: EvalEvidence) -> None:
    """Raise _Undecided if a tool is expected that no conversation here has.

    The sets of other agents name their tools. That a skill does not call them says nothing of it.
    """
    if check.negated or not seen.offered:
        return
    for wanted in _wanted_texts(check):
        if not any(fnmatchcase(one, wanted) for one in (*seen.offered, *seen.tools)):
            there = ", ".join(seen.offered)
            raise _Undecided(f"there is no tool {wanted!r} here; tools: {one_line(there)}")


def _check_order(
    figures: Callable[[EvalEvidence], tuple[str, ...]], *, exactly: bool, tools: bool = False
) -> Callable[[EvalCheck, EvalEvidence, SkillFiles], _Seen]:
    def decided(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
        if tools:
            _require_offered(check, seen)
        found, wanted = figures(seen), _wanted_texts(check)
        rest = iter(found)
        holds = found == wanted if exactly else all(one in rest for one in wanted)
        return holds, _show(", ".join(found) or "none")

    return decided


def _command_matches(check: EvalCheck, seen: EvalEvidence, _: SkillFiles) -> _Seen:
    found = [one for one in seen.commands if search_pattern(str(check.value), one)]
    return bool(found), _show("; ".join(found or seen.commands) or "nothing was run")


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
        "empty": _check_text(_is_empty),
        "min-length": _check_text(_check_size(len, "characters", least=True)),
        "max-length": _check_text(_check_size(len, "characters", least=False)),
        "min-words": _check_text(_check_size(_count_words, "words", least=True)),
        "max-words": _check_text(_check_size(_count_words, "words", least=False)),
        "is-json": _check_text(_is_json),
        "contains-json": _check_text(_contains_json),
        "is-xml": _check_text(_is_xml),
        "json-schema": _check_text(_schema),
        "golden": _check_text(_golden),
        "file-exists": _file_exists,
        "exit-code": _exit_code,
        "max-seconds": _check_limit(lambda seen: seen.seconds, "s"),
        "max-tokens": _check_limit(lambda seen: seen.tokens, "tokens"),
        "max-cost": _max_cost,
        "max-tool-calls": _check_limit(lambda seen: len(seen.tools), "calls"),
        "min-tool-calls": _least_calls,
        "tool-used": _tool_used,
        "tools-in-order": _check_order(lambda seen: seen.tools, exactly=False, tools=True),
        "tools-exactly": _check_order(lambda seen: seen.tools, exactly=True, tools=True),
        "skill-used": _check_member(lambda seen: seen.skills),
        "skills-in-order": _check_order(lambda seen: seen.skills, exactly=False),
        "skills-exactly": _check_order(lambda seen: seen.skills, exactly=True),
        "script-run": _script_run,
        "command-matches": _command_matches,
        "permission-asked": _check_member(lambda seen: seen.asked),
        "no-surprises": _check_surprises,
    }
)
