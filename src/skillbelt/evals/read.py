"""Find and read the evaluations of a skill. Everything in these files is untrusted.

ConfigError, with the name of the entry, for an evaluation that cannot be read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain, islice, product
from posixpath import dirname, join, normpath
from typing import Any

from skillbelt.errors import ConfigError, SkillbeltError
from skillbelt.evals.cases import EvalCheck, EvalProblem, EvalSet, ScriptCase, TaskCase, TriggerCase
from skillbelt.evals.expectations import (
    NOTHING,
    Expected,
    gather,
    is_sentence,
    read_assertions,
    read_grader,
    sentence,
    texts_of,
)
from skillbelt.evals.items import (
    MAX_CASES,
    MAX_PROMPT_CHARS,
    EntryPlace,
    id_of,
    is_eval_document,
    read_document,
    read_entry,
    read_expected,
    skill_of,
)
from skillbelt.files.manifest import LocalFiles, SkillFiles
from skillbelt.format.skill import Skill
from skillbelt.format.yaml import BrokenYaml, full
from skillbelt.running.trial.scripts import scripts_of
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import BadJson, read_json

MAX_EVAL_BYTES = 4 * 2**20  # of one file
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_JSON = re.compile(r"(?:evals?/[^/]+|benchmark/evals|evals?|trigger[-_]evals?|triggers)\.json")
# A file of this name is an evaluation, or a mistake.
_CERTAIN = re.compile(r"(?:.*/)?(?:evals?|trigger[-_]evals?|triggers)\.json")
_YAML = re.compile(
    r"(?:evals?/)?(?P<name>eval|trigger_tests|promptfooconfig|(?<=/)[^/]+\.eval)\.ya?ml"
)
# Beside the evaluations, in a form that is not read.
_UNREAD = re.compile(r"evals?/[^/]+\.(?:ya?ml|jsonl|csv)")
_NOT_READ = "is not read; sets are .json, or eval, trigger_tests and promptfooconfig .yaml"
_SCENARIO = re.compile(r"evals/(?P<name>[^/]+)/task\.md")
_MAX_FILES = 500  # of one skill
_MAX_READS = 1_000  # a file that many patterns name counts each time
_MAX_READ_BYTES = 32 * 2**20  # of all files of one skill
_MAX_YAML_BYTES = 2**20  # of those in YAML, whose reader takes 5 s for them
_MAX_VARIANTS = 100  # prompts of one test of promptfoo
_MAX_FILLED_CHARS = 32 * 2**20  # of all prompts that a file of promptfoo makes
# Of promptfoo, and why they are not read.
_PROMPTFOO_UNREAD = {
    "scenarios": "combinations of tests are not read",
    "redteam": "tests that a program makes are not read",
}
_MAX_FILLED_DEPTH = 20
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_VARIABLE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")


def read_evals(skill: Skill, *, examples: bool = True) -> EvalSet:
    """Return every case in the skill's own files; ConfigError, exit code 2, for a wrong file.

    With `examples`, the scripts are read too: those that contain an example are cases.
    """
    files = _SetFiles(skill.files, _MAX_READ_BYTES, _MAX_YAML_BYTES)
    every = [one.path for one in files.entries() if one.kind == "file" and not one.problem]
    found = EvalSet(skill.name)
    patterns = (_JSON, _YAML, _SCENARIO)
    paths = sorted(path for path in every if any(one.fullmatch(path) for one in patterns))
    if len(paths) > _MAX_FILES:
        raise ConfigError(f"evals: a skill has at most {_MAX_FILES} files of cases")
    for path in paths:
        _require_few(found, path)
        if _JSON.fullmatch(path):
            found = found.plus(_read_json(files, path, skill.name))
        elif match := _YAML.fullmatch(path):
            found = found.plus(_read_yaml(files, path, skill.name, match["name"]))
        elif match := _SCENARIO.fullmatch(path):
            found = found.plus(_read_scenario(files, path, skill.name, match["name"]))
    used = {*paths, *(one.source for one in found.tasks)}
    left = [path for path in every if _UNREAD.fullmatch(path) and path not in used]
    problems = (EvalProblem(path, "", _NOT_READ) for path in sorted(left)[:_MAX_FILES])
    found = _drop_copies(found._replace(problems=(*found.problems, *problems)))
    return with_examples(found, skill) if examples else found


def read_eval_file(path: str, skill: str = "") -> EvalSet:
    """Read a file of the user's; cases that do not name their skill are those of `skill`."""
    folder, name = os.path.split(os.path.abspath(path))
    files = _SetFiles(LocalFiles(folder), _MAX_READ_BYTES, MAX_EVAL_BYTES)
    if name.endswith((".yaml", ".yml")):
        try:
            found = _read_yaml(files, name, skill, name.rpartition(".")[0])
        except ConfigError as error:
            raise ConfigError(os.path.join(os.path.dirname(path), str(error))) from None
        return _set_folder(below(os.path.dirname(path), found), folder)
    return _set_folder(read_document(_json_of(files, name, path), path, skill), folder)


def _set_folder(found: EvalSet, folder: str) -> EvalSet:
    """Return the set with input files from its own folder, for each task that has all there."""
    tasks = [
        one._replace(folder=folder)
        if all(os.path.isfile(os.path.join(folder, path)) for path in one.files)
        else one
        for one in found.tasks
    ]
    return found._replace(tasks=tuple(tasks))


def below(folder: str, found: EvalSet) -> EvalSet:
    """Return the cases with the folder before the paths of their problems."""
    problems = [one._replace(path=os.path.join(folder, one.path)) for one in found.problems]
    return found._replace(problems=tuple(problems))


def with_examples(found: EvalSet, skill: Skill) -> EvalSet:
    """Add the example in the `# /// try` block of each script that no case calls."""
    called = {one.script for one in found.scripts}
    more = [
        ScriptCase(
            id=f"{script.path} (its example)",
            skill=skill.name,
            script=script.path,
            arguments=script.example.arguments,
            stdin=script.example.stdin,
            checks=(EvalCheck("exit-code", 0),),
            source=script.path,
        )
        for script in scripts_of(skill)
        if script.example and not script.example.fault and script.path not in called
    ]
    return found._replace(scripts=(*found.scripts, *more))


def _drop_copies(found: EvalSet) -> EvalSet:
    """Count a request once, also where several files have it."""
    triggers: dict[tuple[str, bool], TriggerCase] = {}
    for one in found.triggers:
        triggers.setdefault((one.query, one.should_trigger), one)
    both = {query for query, should in triggers if (query, not should) in triggers}
    problems = tuple(
        EvalProblem(triggers[query, False].source, triggers[query, False].id,
                    "the same request should and should not trigger; it is left out")
        for query in sorted(both)
    )  # fmt: skip
    kept = tuple(one for one in triggers.values() if one.query not in both)
    return found._replace(triggers=kept, problems=(*found.problems, *problems))


# JSON


class _SetFiles:
    """The files of a set, which is untrusted: no more of them is read than any set needs."""

    def __init__(self, files: SkillFiles, most_bytes: int, most_yaml_bytes: int) -> None:
        self.entries, self._open = files.entries, files.open
        self._reads, self._bytes, self._yaml_bytes = _MAX_READS, most_bytes, most_yaml_bytes

    def read(self, path: str, shown: str, *, yaml: bool = False) -> bytes:
        """Return the file; ConfigError, with the name that is shown, if it cannot be read."""
        try:
            with self._open(path, MAX_EVAL_BYTES) as file:
                data = file.read(MAX_EVAL_BYTES + 1)
        except (OSError, SkillbeltError) as error:
            cause = (isinstance(error, OSError) and error.strerror) or str(error)
            raise ConfigError(f"{one_line(shown)}: cannot be read: {one_line(cause)}") from None
        self._reads -= 1
        self._bytes -= len(data)
        self._yaml_bytes -= len(data) if yaml else 0
        if min(self._reads, self._bytes, self._yaml_bytes) < 0:
            raise ConfigError(
                f"{one_line(shown)}: the files of cases are too many or too large together; "
                "keep fewer, or give one with --set"
            )
        return data


def _json_of(files: _SetFiles, path: str, shown: str) -> Any:
    data = files.read(path, shown)
    try:
        value = read_json(data, most=MAX_EVAL_BYTES)
    except BadJson as error:
        raise ConfigError(f"{one_line(shown)}: is not JSON: {error}") from None
    if _HALF.search(data) and _has_half(value):
        raise ConfigError(f"{one_line(shown)}: has half a character, \\ud800 to \\udfff alone")
    return value


def _has_half(value: Any) -> bool:
    """Whether a text has half of a surrogate pair, which no file, process or model takes."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):  # too deep to check counts as invalid too
        return True
    return False


def _read_json(files: _SetFiles, path: str, skill: str) -> EvalSet:
    if not _CERTAIN.fullmatch(path):
        try:
            value = _json_of(files, path, path)
        except ConfigError as error:
            message = str(error).removeprefix(f"{one_line(path)}: ")
            return EvalSet(skill, problems=(EvalProblem(path, "", message),))
        if not is_eval_document(value):
            if isinstance(value, dict) and isinstance(value.get("expects"), list):
                message = "cases that build on each other are not read"
                return EvalSet(skill, problems=(EvalProblem(path, "expects", message),))
            return EvalSet(skill)  # such as a schema or a golden file beside the evaluations
        return read_document(value, path, skill)
    return read_document(_json_of(files, path, path), path, skill)


def _require_few(found: EvalSet, path: str) -> None:
    """Raise ConfigError for more cases than a skill needs; the files are untrusted."""
    if max(len(found.tasks), len(found.triggers) + len(found.scripts)) > MAX_CASES:
        raise ConfigError(f"{one_line(path)}: a skill has at most {MAX_CASES:,} cases")


# YAML: waza and promptfoo


def _yaml_of(files: _SetFiles, path: str) -> dict[str, Any]:
    try:
        text = files.read(path, path, yaml=True).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{one_line(path)}: is not UTF-8: byte {error.start}") from None
    loaded = full(text)
    if isinstance(loaded, BrokenYaml):
        line, message = loaded.problem.line, loaded.problem.message
        raise ConfigError(f"{one_line(path)}:{line}: cannot be read as YAML: {message}")
    return loaded.fields


def _read_yaml(files: _SetFiles, path: str, skill: str, kind: str) -> EvalSet:
    document = _yaml_of(files, path)
    if "promptfoo" in kind or "prompts" in document or "tests" in document:
        return _read_promptfoo(document, path, skill)
    if any(key in document for key in ("should_trigger_prompts", "should_not_trigger_prompts")):
        return read_document(document, path, skill or skill_of(document.get("skill")))
    if "tasks" in document or "tasks_from" in document:
        return _read_waza(files, document, path, skill)
    for key in ("stimuli", "scenarios"):
        if isinstance(document.get(key), list):
            return _read_stimuli(document, path, skill, key)
    if isinstance(document.get("inputs"), dict):
        task = _waza_task(document, EntryPlace(path, skill, "task"), NOTHING)
        return EvalSet(skill, tasks=(task,), files=(path,))
    raise ConfigError(
        f"{one_line(path)}: this is not an evaluation; it takes `tasks` (waza), `stimuli` (vally), "
        "`tests` (promptfoo), or should_trigger_prompts and should_not_trigger_prompts"
    )


def _read_waza(files: _SetFiles, document: Mapping[str, Any], path: str, skill: str) -> EvalSet:
    named = document.get("skill")
    skill = skill or skill_of(named)
    graders = document.get("graders") or []
    if not isinstance(graders, list):
        raise ConfigError(f"{path}: graders takes a list")
    for number, one in enumerate(graders, 1):
        if not isinstance(one, Mapping):
            raise ConfigError(f"{path}: graders[{number}]: takes an object with a type")
    common = gather(
        read_grader(one, f"{path}: graders[{number}]") for number, one in enumerate(graders, 1)
    )
    found = EvalSet(skill, files=(path,))
    tasks = document.get("tasks") or []
    known = frozenset(one.path for one in files.entries() if one.kind == "file")
    for number, one in enumerate(tasks if isinstance(tasks, list) else [tasks], 1):
        _require_few(found, path)
        if isinstance(one, Mapping):
            place = EntryPlace(path, skill, f"tasks[{number}]")
            task = _waza_task(one, place, common)
            task = _find_fixtures(task, known, path)
            found = found.plus(_add_trigger(task, _waza_meant(one, place)))
            continue
        for file in _match_files(files, dirname(path), one, f"{path}: tasks[{number}]"):
            entry = _yaml_of(files, file)
            place = EntryPlace(file, skill, "task")
            task = _find_fixtures(_waza_task(entry, place, common), known, path)
            found = found.plus(_add_trigger(task, _waza_meant(entry, place)))
    if document.get("tasks_from"):
        problem = EvalProblem(path, "tasks_from", "tables of tasks are not read")
        found = found._replace(problems=(*found.problems, problem))
    return found


def _find_fixtures(task: TaskCase, known: Container[str], path: str) -> TaskCase:
    """Return the task with the paths of its input files; waza looks in `fixtures`."""
    places = (dirname(path), join(dirname(path), "fixtures"), "fixtures")
    found = []
    for name in task.files:
        paths = [name, *(normpath(join(place, name)) for place in places)]
        found.append(next((one for one in paths if one in known), name))
    return task._replace(files=tuple(found))


def _add_trigger(task: TaskCase, meant: bool = True) -> EvalSet:
    """Return the task, and its request as a trigger; `meant` says whether it is for the skill."""
    unused = EvalCheck("skill-used", task.skill, negated=True)
    should = meant and unused not in task.checks
    trigger = TriggerCase(
        id=task.id,
        query=task.prompt,
        skill=task.skill,
        should_trigger=should,
        expected=task.skill if should else "",
        source=task.source,
    )
    return EvalSet(task.skill, triggers=(trigger,), tasks=(task,))


def _waza_task(entry: Mapping[str, Any], place: EntryPlace, common: Expected) -> TaskCase:
    inputs = entry.get("inputs")
    if inputs is None and isinstance(entry.get("prompt"), str):
        inputs = entry  # a task of one prompt
    if not isinstance(inputs, Mapping):
        raise ConfigError(f"{place.text}: needs inputs with a prompt")
    plain = {**entry, "prompt": inputs.get("prompt"), "files": inputs.get("files")}
    made = read_entry({**plain, "assertions": None}, place, None).tasks
    if not made:
        raise ConfigError(f"{place.text}: needs inputs with a prompt")
    expected = read_expected(plain, place.text).plus(common)
    return made[0]._replace(
        checks=expected.checks, expectations=expected.sentences, ungraded=expected.ungraded
    )


def _waza_meant(entry: Mapping[str, Any], place: EntryPlace) -> bool:
    """Whether a task of waza is meant for the skill, as its `expected` says."""
    expected = entry.get("expected")
    should = expected.get("should_trigger", True) if isinstance(expected, Mapping) else True
    if not isinstance(should, bool):
        raise ConfigError(f"{place.text}: expected.should_trigger takes true or false")
    return should


_STIMULUS_READ = frozenset(
    ("id", "name", "description", "prompt", "graders", "assertions", "rubric", "expect_tools",
     "reject_tools", "environment", "setup", "files", "tags", "runs", "timeout", "config",
     "expect_activation")
)  # fmt: skip


def _read_stimuli(document: Mapping[str, Any], path: str, skill: str, key: str) -> EvalSet:
    """Read the stimuli of vally, or the scenarios that it replaced."""
    tags = document.get("tags")
    named = document.get("skill", tags.get("skill") if isinstance(tags, Mapping) else None)
    skill = skill or skill_of(named)
    found = EvalSet(skill, files=(path,))
    unread: dict[str, str] = {}
    for number, one in enumerate(document[key], 1):
        _require_few(found, path)
        place = EntryPlace(path, skill, f"{key}[{number}]")
        if not isinstance(one, Mapping):
            raise ConfigError(f"{place.text}: takes an object with a prompt")
        for message in sorted(map(str, set(one) - _STIMULUS_READ - {"turns"})):
            unread.setdefault(f"{message} is not read", place.place)
        if isinstance(one.get("turns"), list):
            unread.setdefault("conversations of several turns are not read", place.place)
            continue
        sources, problems = _stimulus_files(one)
        for message in problems:
            unread.setdefault(message, place.place)
        plain = {name: one.get(name) for name in ("id", "name", "prompt", "graders", "assertions")}
        given = {name: one[name] for name in ("expect_tools", "reject_tools") if name in one}
        more = [{"type": "tool_constraint", "config": given}] if given else []
        rubric = texts_of(one.get("rubric"), f"{place.text}: rubric")
        made = read_entry(
            {**plain, "files": sources, "validators": more, "expectations": list(rubric)}, place
        )
        task = made.tasks[0]
        used = {check.value for check in task.checks
                if check.kind == "skill-used" and not check.negated}  # fmt: skip
        meant = one.get("expect_activation") is not False
        found = found.plus(_add_trigger(task, meant and (not used or skill in ("", *used))))
    problems_of_file = (EvalProblem(path, where, message) for message, where in unread.items())
    return found._replace(problems=(*found.problems, *problems_of_file))


def _stimulus_files(one: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the input files of a stimulus, and what is not read of how it prepares a folder."""
    found: list[str] = []
    problems: list[str] = []
    for key in ("environment", "setup"):
        given = one.get(key)
        if not isinstance(given, Mapping):
            continue
        for file in _as_list(given.get("files")):
            source = file.get("src", file.get("source")) if isinstance(file, Mapping) else file
            if isinstance(source, str):
                found.append(source)
            else:
                problems.append(f"{key}.files: only files that are there are read")
        problems += [
            f"{key}.{one_line(str(name))} is not read" for name in given if name != "files"
        ]
    return [*found, *(one for one in _as_list(one.get("files")))], problems


def _match_files(files: _SetFiles, folder: str, pattern: object, where: str) -> list[str]:
    if not isinstance(pattern, str):
        raise ConfigError(f"{where}: takes a path, a pattern or a task")
    wanted = normpath(join(folder, pattern))
    if wanted.startswith(("..", "/")):
        raise ConfigError(f"{where}: {one_line(pattern)!r} leads out of the folder")
    entries = (one.path for one in files.entries() if one.kind == "file" and not one.problem)
    parts = wanted.count("/")
    found = [one for one in entries if one.count("/") == parts and fnmatchcase(one, wanted)]
    if not found:
        raise ConfigError(f"{where}: no file matches {one_line(pattern)!r}")
    return sorted(found)


def _read_promptfoo(document: Mapping[str, Any], path: str, skill: str) -> EvalSet:
    prompts = [one for one in _as_list(document.get("prompts")) if isinstance(one, str)]
    usable = [one for one in prompts if not one.startswith("file://")]
    found = EvalSet(skill, files=(path,), problems=tuple(_list_unread(document, path, len(usable))))
    usual = document.get("defaultTest")
    usual = usual if isinstance(usual, Mapping) else {}
    common = _as_list(usual.get("assert"))
    templates = document.get("assertionTemplates")
    left = _MAX_FILLED_CHARS
    for number, test in enumerate(_as_list(document.get("tests")), 1):
        _require_few(found, path)
        place = EntryPlace(path, skill, f"tests[{number}]")
        if not isinstance(test, Mapping):
            problem = EvalProblem(path, place.place, "only tests that are written out are read")
            found = found._replace(problems=(*found.problems, problem))
            continue
        values = {**_as_object(usual.get("vars")), **_as_object(test.get("vars"))}
        asserts = _find_templates([*common, *_as_list(test.get("assert"))], templates)
        if prompts and not usable and not values:
            continue  # its prompt is in a file, which the problem names
        texts = usable or [str(next(iter(values.values()), ""))]
        every = chain.from_iterable(_fill(text, values, place) for text in texts)
        prompts_of_test = list(islice(every, _MAX_VARIANTS + 1))
        for prompt, row in prompts_of_test[:_MAX_VARIANTS]:
            filled = _FilledAsserts(row, left - len(prompt))
            expected = filled.read(asserts, f"{place.text}: assert")
            left = filled.left
            if left < 0:
                raise ConfigError(f"{path}: its prompts are too long together")
            found = found.plus(_promptfoo_task(test, prompt, expected, place))
        if len(prompts_of_test) > _MAX_VARIANTS:
            problem = EvalProblem(path, place.place, f"only the first {_MAX_VARIANTS} are read")
            found = found._replace(problems=(*found.problems, problem))
    return found


def _list_unread(document: Mapping[str, Any], path: str, prompts: int) -> Iterator[EvalProblem]:
    """Yield what a file of promptfoo has and nothing reads; `prompts`: how many of it are used."""
    if prompts < len(_as_list(document.get("prompts"))):
        yield EvalProblem(path, "prompts", "only prompts that are written out are read")
    for key, message in _PROMPTFOO_UNREAD.items():
        if key in document:
            yield EvalProblem(path, key, message)
    if not _as_list(document.get("tests")):
        yield EvalProblem(path, "tests", "there are none")


_Row = Mapping[str, str]


def _fill(text: str, values: Mapping[str, Any], place: EntryPlace) -> list[tuple[str, _Row]]:
    """Return the prompt for each combination of the values, with them; a list has several.

    ConfigError for one that is too long: a short file can repeat a long value thousands of times.
    """
    used = [name for name in dict.fromkeys(_VARIABLE.findall(text)) if name in values]
    choices = [(one if isinstance(one, list) else [one])[:_MAX_VARIANTS + 1]
               for one in (values[name] for name in used)]  # fmt: skip
    single = {name: str(value) for name, value in values.items()
              if isinstance(value, str | int | float)}  # fmt: skip
    made: list[tuple[str, _Row]] = []
    for chosen in islice(product(*choices), _MAX_VARIANTS + 1):
        row = {name: str(value) for name, value in zip(used, chosen, strict=True)}
        more = (len(row[one[1]]) - len(one[0]) for one in _VARIABLE.finditer(text) if one[1] in row)
        if len(text) + sum(more) > MAX_PROMPT_CHARS:
            raise ConfigError(f"{place.text}: a prompt has at most {MAX_PROMPT_CHARS:,} characters")
        made.append((_fill_row(text, row), {**single, **row}))
    return made


def _fill_row(text: str, row: _Row) -> str:
    return _VARIABLE.sub(lambda found: row.get(found[1], found[0]), text)


def _find_templates(asserts: list[Any], templates: object) -> list[Any]:
    """Return the assertions, with the templates in the same file that they refer to."""
    known = templates if isinstance(templates, Mapping) else {}
    found = []
    for one in asserts:
        name = one.get("$ref") if isinstance(one, Mapping) else None
        key = name.removeprefix("#/assertionTemplates/") if isinstance(name, str) else ""
        found.append({**known[key]} if isinstance(known.get(key), Mapping) else one)
    return found


class _FilledAsserts:
    """Fills the values of a test into its assertions; `left` is how many characters that may add.

    A check whose text is a template that stays open can only be wrong, so it is not graded.
    """

    def __init__(self, row: _Row, left: int) -> None:
        self._row, self.left = row, left

    def read(self, asserts: list[Any], where: str) -> Expected:
        """Return the expectations of the assertions."""
        if not asserts:
            return NOTHING
        open_ones: list[str] = []
        kept: list[Any] = []
        for one in asserts:
            filled = self._fill(one, 0)
            if _is_open(filled):
                kind = shorten(one_line(str(filled.get("type"))), 100)
                open_ones.append(f"{kind}: its value is a template that nothing here fills")
            else:
                kept.append(filled)
        return read_assertions(kept, where).plus(Expected(ungraded=tuple(open_ones)))

    def _fill(self, value: Any, depth: int) -> Any:
        if depth > _MAX_FILLED_DEPTH or self.left < 0:
            return value
        if isinstance(value, str) and "{{" in value:
            more = (len(self._row.get(one[1], "")) for one in _VARIABLE.finditer(value))
            self.left -= sum(more)
            return value if self.left < 0 else _fill_row(value, self._row)
        if isinstance(value, list):
            return [self._fill(one, depth + 1) for one in value]
        if isinstance(value, Mapping):
            return {key: self._fill(one, depth + 1) for key, one in value.items()}
        return value


def _is_open(one: Any) -> bool:
    """Whether a check compares with a template of promptfoo; sentences may have braces."""
    if not isinstance(one, Mapping) or is_sentence(one.get("type")):
        return False
    given = one.get("value")
    texts = given if isinstance(given, list) else [given]
    return any(isinstance(text, str) and _TEMPLATE.search(text) for text in texts)


def _as_object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _promptfoo_task(
    test: Mapping[str, Any], prompt: str, expected: Expected, place: EntryPlace
) -> EvalSet:
    if not prompt.strip():
        raise ConfigError(f"{place.text}: needs a prompt, or vars with one")
    description = test.get("description")
    return _add_trigger(
        TaskCase(
            id=id_of({"name": description} if isinstance(description, str) else {}, place),
            prompt=prompt,
            skill=place.skill,
            checks=expected.checks,
            expectations=expected.sentences,
            ungraded=expected.ungraded,
            source=place.path,
        )
    )


def _as_list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


# tessl: a folder for each scenario


def _read_scenario(files: _SetFiles, path: str, skill: str, name: str) -> EvalSet:
    prompt = files.read(path, path).decode("utf-8", "replace").strip()
    if not prompt:
        raise ConfigError(f"{path}: the task is empty")
    criteria = join(dirname(path), "criteria.json")
    known = any(one.path == criteria for one in files.entries())
    criteria_texts = _read_criteria(_json_of(files, criteria, criteria), criteria) if known else ()
    task = TaskCase(
        id=name,
        prompt=prompt,
        skill=skill,
        name=name,
        expectations=criteria_texts,
        source=path,
    )
    return _add_trigger(task)._replace(files=(path,))


def _read_criteria(value: object, path: str) -> tuple[str, ...]:
    listed = value.get("checklist", value.get("criteria")) if isinstance(value, dict) else value
    if not isinstance(listed, Iterable) or isinstance(listed, str | Mapping):
        raise ConfigError(f"{path}: takes a checklist, a list of criteria")
    found = []
    for number, one in enumerate(listed, 1):
        criterion = one
        if isinstance(one, Mapping):
            criterion = one.get("description") or one.get("text") or one.get("name")
        found += [sentence(text) for text in texts_of(criterion, f"{path}: criterion {number}")]
    return tuple(found)
