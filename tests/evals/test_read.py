"""Evaluations are read in every spelling, and nothing in them is trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.evals import read as read_module
from skillbelt.evals.cases import EvalCheck, EvalSet
from skillbelt.evals.expressions import read_expression
from skillbelt.evals.items import read_document
from skillbelt.evals.read import read_eval_file, read_evals
from skillbelt.files.manifest import LocalFiles
from skillbelt.files.tree import TreeEntry
from skillbelt.format.skill import Skill
from tests.examples import examples
from tests.tree import Tree

FOLDER = "project/.agents/skills/pdf"


@pytest.fixture
def kit(tree: Tree) -> Tree:
    tree.skill(FOLDER, description="Joins PDF files.")
    return tree


def read(tree: Tree, **files: object) -> EvalSet:
    for path, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        tree.write(f"{FOLDER}/{path.replace('__', '/').replace('_DOT_', '.')}", text)
    return read_evals(Skill.from_folder(str(tree.path(FOLDER))))


def evals(tree: Tree, value: object) -> EvalSet:
    return read(tree, evals__evals_DOT_json=value)


def test_the_set_of_agentskills(kit: Tree) -> None:
    found = evals(
        kit,
        {
            "skill_name": "pdf",
            "evals": [
                {
                    "id": 1,
                    "prompt": "Join these",
                    "expected_output": "One file",
                    "files": ["evals/files/a.pdf"],
                    "expectations": ["The pages are in order"],
                }
            ],
        },
    )
    [task], [trigger] = found.tasks, found.triggers
    assert (task.id, task.prompt, task.files) == ("1", "Join these", ("evals/files/a.pdf",))
    assert task.expectations == (
        "The pages are in order", "The result is as described: One file"
    )  # fmt: skip
    assert (trigger.should_trigger, trigger.expected) == (True, "pdf")


def test_the_list_of_nvidia_with_negatives_and_alternatives(kit: Tree) -> None:
    found = evals(
        kit,
        [
            {"id": "a", "question": "Join", "expected_skill": "pdf", "ground_truth": "joined",
             "expected_script": "scripts/join.py", "expected_behavior": ["runs it"]},
            {"id": "b", "question": "Hello", "expected_skill": None},
            {"id": "c", "question": "Split", "expected_skill": "split",
             "acceptable_skills": ["cut"]},
        ],
    )  # fmt: skip
    assert [(one.should_trigger, one.expected) for one in found.triggers] == [
        (True, "pdf"), (False, ""), (False, "split")
    ]  # fmt: skip
    assert found.triggers[2].acceptable == ("cut",)
    [task] = found.tasks
    assert task.checks == (EvalCheck("script-run", "scripts/join.py"),)
    assert "The answer agrees with this: joined" in task.expectations


def test_cases_of_a_skill_and_a_bare_object(kit: Tree) -> None:
    assert evals(kit, {"skill": "pdf", "cases": [{"prompt": "Join"}]}).tasks[0].prompt == "Join"
    assert evals(kit, {"prompt": "One", "should_trigger": False}).triggers[0].query == "One"


def test_a_trigger_set_has_no_tasks(kit: Tree) -> None:
    rows = [{"query": "join", "should_trigger": True}, {"query": "hi", "should_trigger": False}]
    found = read(kit, trigger_eval_DOT_json=rows)
    assert [one.should_trigger for one in found.triggers] == [True, False]
    assert found.tasks == ()


def test_lists_by_what_they_are_for(kit: Tree) -> None:
    found = evals(kit, {"positive": [{"prompt": "join"}], "negative": [{"prompt": "hi"}]})
    assert [one.should_trigger for one in found.triggers] == [True, False]
    found = evals(kit, {"evaluations": [{"prompt": "join", "should_trigger": True}]})
    assert [one.query for one in found.triggers] == ["join"]


def test_sentences_that_are_expected(kit: Tree) -> None:
    [task] = evals(kit, [{"prompt": "join", "expect": ["One file is left", "It is small"]}]).tasks
    assert task.expectations == ("One file is left", "It is small")
    assert task.checks == ()


def test_waza_with_tasks_graders_and_triggers(kit: Tree) -> None:
    found = read(
        kit,
        evals__eval_DOT_yaml=(
            "name: suite\nskill: pdf\nversion: '1.0'\n"
            "graders:\n  - type: text\n    name: no\n    config: {not_contains: [fatal]}\n"
            "tasks:\n  - tasks/*.yaml\n"
        ),
        evals__tasks__one_DOT_yaml=(
            "id: one\nname: One\ninputs:\n  prompt: Join them\n  files: [{path: a.pdf}]\n"
            "expected:\n  output_contains: [done]\n  behavior: {max_tool_calls: 3}\n"
            "graders:\n  - {type: file, name: f, config: {must_exist: [out.pdf]}}\n"
            "  - {type: code, name: py, config: {assertions: ['f()', 'len(output) > 9']}}\n"
        ),
        evals__trigger_tests_DOT_yaml=(
            "skill: pdf\nshould_trigger_prompts:\n  - {prompt: Merge, reason: r}\n"
            "should_not_trigger_prompts:\n  - {prompt: Cook}\n"
        ),
    )
    [task] = found.tasks
    assert task.files == ("a.pdf",)
    assert {(one.kind, one.negated) for one in task.checks} == {
        ("icontains", False), ("max-tool-calls", False), ("file-exists", False),
        ("icontains", True), ("min-length", False),
    }  # fmt: skip
    [told] = task.ungraded
    assert told.startswith("f(): a program that grades is not run")
    assert "a sentence for --judge" in told
    assert {(one.query, one.should_trigger) for one in found.triggers} == {
        ("Join them", True), ("Merge", True), ("Cook", False)
    }  # fmt: skip


def test_promptfoo_with_variables_and_assertions(kit: Tree) -> None:
    found = read(
        kit,
        promptfooconfig_DOT_yaml=(
            "prompts: ['Please {{task}}']\nproviders: [echo]\n"
            "defaultTest:\n  assert:\n    - {type: not-icontains, value: sorry}\n"
            "tests:\n  - vars: {task: join}\n    assert:\n      - {type: contains, value: joined}\n"
            "      - {type: llm-rubric, value: It is polite}\n"
            "      - {type: javascript, value: 'true'}\n"
        ),
    )
    [task] = found.tasks
    assert task.prompt == "Please join"
    assert [(one.kind, one.negated) for one in task.checks] == [
        ("icontains", True), ("contains", False)
    ]  # fmt: skip
    assert task.expectations == ("It is polite",)
    assert "javascript: a program that grades is not run" in task.ungraded[0]
    assert "a case under `scripts`" in task.ungraded[0]


def test_a_scenario_of_tessl(kit: Tree) -> None:
    found = read(
        kit,
        evals__join__task_DOT_md="Join a and b.\n",
        evals__join__criteria_DOT_json={"checklist": [{"name": "n", "description": "One file"}]},
    )
    [task] = found.tasks
    assert (task.id, task.prompt, task.expectations) == ("join", "Join a and b.", ("One file",))


def test_calls_of_scripts_and_their_expectations(kit: Tree) -> None:
    found = evals(
        kit,
        {
            "scripts": [
                {"script": "scripts/a.py", "arguments": ["x"], "files": ["evals/in.txt"],
                 "expect": {"exit_code": 0, "contains": ["a", "b"],
                            "files": {"r.md": {"not_contains": "c"}, "s.md": {}}}},
                {"script": "main.wasm", "input": {"n": 1}},
            ]
        },
    )  # fmt: skip
    first, second = found.scripts
    assert first.files == {"in.txt": "evals/in.txt"}
    assert first.checks == (
        EvalCheck("exit-code", 0), EvalCheck("contains", ("a", "b")),
        EvalCheck("contains", ("c",), "r.md", True), EvalCheck("file-exists", "s.md"),
    )  # fmt: skip
    assert (second.calls_json, second.json) == (True, {"n": 1})


def test_the_example_in_a_script_is_a_case(kit: Tree) -> None:
    script = '# /// try\n# arguments = ["--x"]\n# ///\nprint(1)\n'
    [case] = read(kit, scripts__a_DOT_py=script).scripts
    assert (case.script, case.arguments, case.checks) == (
        "scripts/a.py", ("--x",), (EvalCheck("exit-code", 0),)
    )  # fmt: skip


def test_a_request_that_contradicts_itself_is_left_out(kit: Tree) -> None:
    rows = [{"query": "join", "should_trigger": True}, {"query": "join", "should_trigger": False}]
    found = evals(kit, rows)
    assert found.triggers == ()
    assert "should and should not" in found.problems[0].message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "evals/evals.json: is not JSON"),
        ([{"id": 1}], "this is not an evaluation"),
        ({"evals": [{"prompt": 3}]}, "evals 1: needs a text"),
        ([{"query": "a", "should_trigger": "yes"}], "should_trigger takes true or false"),
        ([{"prompt": "a", "expected_skill": 3}], "expected_skill takes the name"),
        ([{"prompt": "a", "files": 3}], "files: takes a text or a list"),
        ([{"prompt": "a", "expect": {"smells": "good"}}], "unknown check 'smells'"),
        ([{"prompt": "a", "expect": {"exit_code": "0"}}], "takes a number"),
        ([{"prompt": "a", "expect": {"exit_code": 10**400}}], "takes a number from 0 to"),
        ('[{"prompt": "a", "expect": {"max_seconds": 1e999}}]', "takes a number from 0 to"),
        ({"scripts": [{"arguments": []}]}, "scripts[1]: needs a script"),
        ('{"scripts": [{"script": "a.py", "timeout": 1e999}]}', "timeout: takes a number"),
        ({"scripts": [{"script": "a.py", "timeout": -1}]}, "timeout: takes a number"),
        ({"scripts": [{"script": "a.py", "timeout": 10**400}]}, "timeout: takes a number"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_wrong_file_names_the_file_and_the_entry(kit: Tree, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=r"evals\.json") as caught:
        evals(kit, value)
    assert said in str(caught.value)


def test_yaml_that_expands_without_bound_is_refused(kit: Tree) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 8)}]\n" for n in range(9)
    )
    with pytest.raises(ConfigError, match=r"eval\.yaml"):
        read(kit, evals__eval_DOT_yaml=bomb)


def test_tasks_are_not_read_from_outside(kit: Tree) -> None:
    kit.write("project/secret.yaml", "inputs: {prompt: x}\n")
    text = "skill: pdf\ntasks: ['../../../../secret.yaml']\n"
    with pytest.raises(ConfigError, match="leads out of the folder"):
        read(kit, evals__eval_DOT_yaml=text)


def test_a_link_to_a_file_elsewhere_is_not_read(kit: Tree) -> None:
    kit.write("project/outside.json", json.dumps([{"prompt": "secret"}]))
    target = kit.path(f"{FOLDER}/evals/evals.json")
    target.parent.mkdir()
    target.symlink_to(kit.path("project/outside.json"))
    assert read_evals(Skill.from_folder(str(kit.path(FOLDER)))).triggers == ()


def test_a_file_of_the_user_names_its_skill(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps({"skill_name": "pdf", "evals": [{"prompt": "Join"}]}))
    assert read_eval_file(str(path)).triggers[0].skill == "pdf"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_eval_file(str(tmp_path / "none.json"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["prompt", "query", "evals", "cases", "scripts", "expect", "assertions", "files",
             "should_trigger", "expected_skill", "expected", "graders", "type", "value", "config"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=examples(300))
@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    try:
        read_document(value, "evals.json", "pdf")
    except ConfigError as error:
        assert "evals.json" in str(error)


def test_more_expectations_than_any_case_needs_are_refused() -> None:
    many = [f"sentence {number}" for number in range(100_000)]
    for key in ("assertions", "expectations", "must_not"):
        with pytest.raises(ConfigError, match="at most 500"):
            read_document([{"prompt": "a", key: many}], "evals.json", "pdf")
    with pytest.raises(ConfigError, match="at most 500"):
        checks = {"files": {one: {"contains": "a"} for one in many}}
        read_document([{"prompt": "a", "expect": checks}], "evals.json", "pdf")


def test_promptfoo_with_values_of_other_forms(kit: Tree) -> None:
    asserts = [
        {"type": "skill-used", "value": {"pattern": "pd*", "min": 1}},
        {"type": "skill-used", "value": {"name": "pdf", "min": 2}},
        {"type": "icontains-any", "value": "page, sheet"},
        {"type": "contains", "value": 42},
        {"type": "equals", "value": "file://golden.txt"},
        {"type": "contains", "value": "{{nobody}}"},
    ]
    text = json.dumps({"prompts": ["{{verb}} {{thing}}"], "tests": [
        {"vars": {"verb": ["Join", "Cut"], "thing": "it"}, "assert": asserts}]})  # fmt: skip
    found = read(kit, promptfooconfig_DOT_yaml=text)
    assert [one.prompt for one in found.tasks] == ["Join it", "Cut it"]
    assert list(found.tasks[0].checks) == [
        EvalCheck("skill-used", "pd*"),
        EvalCheck("icontains-any", ("page", "sheet")),
        EvalCheck("contains", ("42",)),
    ]
    assert len(found.tasks[0].ungraded) == 3


def test_input_files_of_waza_are_in_fixtures(kit: Tree) -> None:
    task = {"id": "a", "inputs": {"prompt": "Join", "files": [{"path": "a.txt"}]}}
    kit.write(f"{FOLDER}/evals/fixtures/a.txt", "text")
    found = read(kit, evals__eval_DOT_yaml=json.dumps({"skill": "pdf", "tasks": [task]}))
    assert found.tasks[0].files == ("evals/fixtures/a.txt",)


def test_waza_with_a_short_task_and_choices(kit: Tree) -> None:
    grader = {"type": "text", "config": {"regex_match": ["run"]}}
    tasks = [
        {"id": "a", "prompt": "Join", "expected": "One file.", "validators": [grader]},
        {"id": "b", "inputs": {"prompt": "Cut"}, "expected": {"output_contains_any": ["a", "b"]}},
    ]
    found = read(kit, evals__eval_DOT_yaml=json.dumps({"skill": "pdf", "tasks": tasks}))
    assert found.tasks[0].checks == (EvalCheck("regex", "run"),)
    assert found.tasks[0].expectations == ("The result is as described: One file.",)
    assert found.tasks[1].checks == (EvalCheck("icontains-any", ("a", "b")),)


def test_a_skill_cannot_have_cases_without_end(kit: Tree) -> None:
    rows = json.dumps([{"query": f"q {number}"} for number in range(6_000)])
    with pytest.raises(ConfigError, match="at most 10,000 cases"):
        read(kit, evals__a_DOT_json=rows, evals__b_DOT_json=rows, evals__c_DOT_json="[]")
    for number in range(501):
        kit.write(f"{FOLDER}/evals/{number}.json", "[]")
    with pytest.raises(ConfigError, match="at most 500 files"):
        read(kit)


@pytest.mark.parametrize(
    "name, text",
    [
        ("promptfooconfig.yaml", "prompts: ['{{a}}']\ntests:\n" + "- vars: {a: b}\n" * 10_002),
        ("eval.yaml", "skill: review\ntasks:\n" + "- {prompt: hi}\n" * 10_002),
    ],
)
def test_a_file_of_yaml_cannot_have_tasks_without_end(kit: Tree, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: a skill has at most 10,000 cases"):
        read(kit, **{name: text})


def test_promptfoo_fills_no_more_prompts_than_are_read(
    kit: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[str] = []
    fill = read_module._fill_row

    def count(text: str, row: Mapping[str, str]) -> str:
        filled.append(text)
        return fill(text, row)

    monkeypatch.setattr(read_module, "_fill_row", count)
    values = ", ".join(f"a{number}" for number in range(101))
    prompts = "".join(f"- 'p{number} {{{{a}}}}'\n" for number in range(50))
    found = read(
        kit, **{"promptfooconfig.yaml": f"prompts:\n{prompts}tests:\n- vars: {{a: [{values}]}}\n"}
    )
    assert len(found.tasks) == 100
    assert len(filled) < 300


@pytest.mark.parametrize(
    "prompts, tests, said",
    [
        ("'" + "{{a}}" * 20_000 + "'", f"- vars: {{a: {'b' * 20_000}}}\n", "at most 200,000"),
        (f"'{'x' * 190_000} {{{{a}}}}'", "- vars: {a: b}\n" * 200, "too long together"),
    ],
)
def test_promptfoo_cannot_fill_memory(kit: Tree, prompts: str, tests: str, said: str) -> None:
    """Of the first each prompt would have 400 MB."""
    with pytest.raises(ConfigError, match=said):
        read(kit, **{"promptfooconfig.yaml": f"prompts: [{prompts}]\ntests:\n{tests}"})


def test_input_files_of_many_tasks_are_looked_up_in_one_walk(
    kit: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_walks(tasks: int) -> int:
        walks: list[LocalFiles] = []
        entries = LocalFiles.entries

        def count(files: LocalFiles) -> Iterable[TreeEntry]:
            walks.append(files)
            return entries(files)

        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "entries", count)
            text = "skill: review\ntasks:\n" + "- {prompt: hi}\n" * tasks
            assert len(read(kit, **{"eval.yaml": text}).tasks) == tasks
        return len(walks)

    assert count_walks(50) == count_walks(1)


def test_assertions_with_a_phrase_a_pattern_or_only_a_description(kit: Tree) -> None:
    asserts = [
        {"type": "contains_pattern", "pattern": "a+", "text": "Asks"},
        {"type": "not_contains", "phrase": "b", "text": "Does not answer"},
        {"type": "contains", "text": "Names the file"},
    ]
    [task] = evals(kit, [{"prompt": "Join", "assertions": asserts}]).tasks
    assert task.checks == (EvalCheck("regex", "a+"), EvalCheck("contains", ("b",), negated=True))
    assert task.expectations == ("Names the file",)


def test_tasks_that_are_not_for_the_skill_are_negatives(kit: Tree) -> None:
    found = read(
        kit,
        evals__eval_DOT_yaml=(
            "tasks:\n"
            "  - {id: a, prompt: Cook, expected: {should_trigger: false}}\n"
            "  - {id: b, prompt: Join them}\n"
        ),
        promptfooconfig_DOT_yaml=(
            "prompts: ['{{task}}']\ntests:\n"
            "  - {vars: {task: Sing}, assert: [{type: not-skill-used, value: pdf}]}\n"
        ),
    )
    assert {(one.query, one.should_trigger, one.expected) for one in found.triggers} == {
        ("Cook", False, ""), ("Join them", True, "pdf"), ("Sing", False, "")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("promptfooconfig.yaml", "prompts: [a]\nscenarios: []", ["scenarios", "tests"]),
        ("promptfooconfig.yaml", "prompts: [a]\nredteam: {}\ntests: [{vars: {}}]", ["redteam"]),
        ("promptfooconfig.yaml", "prompts: ['file://a']\ntests: [{vars: {}}]", ["prompts"]),
        ("evals/cases.yaml", "prompt: Join", [""]),
        ("evals/notes.json", "[1,", [""]),
        ("evals/steps.json", '{"expects": [{"query": "Join", "checks": []}]}', ["expects"]),
    ],
)
def test_what_is_not_read_is_named(kit: Tree, path: str, text: str, named: list[str]) -> None:
    kit.write(f"{FOLDER}/{path}", text)
    found = read_evals(Skill.from_folder(str(kit.path(FOLDER))))
    assert [(one.path, one.place) for one in found.problems] == [(path, one) for one in named]


def test_assertions_of_promptfoo_that_refer_to_others_or_hold_numbers(kit: Tree) -> None:
    found = read(
        kit,
        promptfooconfig_DOT_yaml=(
            "prompts: [Join]\ntests:\n"
            "  - assert:\n      - {type: contains-any, value: [-3.5, '-7/2']}\n"
            "      - {$ref: '#/assertionTemplates/short'}\n"
        ),
    )
    [task] = found.tasks
    assert task.checks == (EvalCheck("contains-any", ("-3.5", "-7/2")),)
    assert "#/assertionTemplates/short" in task.ungraded[0]


@pytest.mark.parametrize(
    ("assertion", "checks"),
    [
        ({"type": "not-empty"}, [EvalCheck("empty", negated=True)]),
        ({"type": "max-length", "value": 9}, [EvalCheck("max-length", 9)]),
        ({"type": "word-count", "value": {"min": 2, "max": 5}},
         [EvalCheck("min-words", 2), EvalCheck("max-words", 5)]),
        ({"type": "not-word-count", "value": {"max": 5}}, [EvalCheck("max-words", 5, "", True)]),
        ({"type": "not-word-count", "value": 5}, []),
        ({"type": "contains-json"}, [EvalCheck("contains-json")]),
        ({"type": "is-json", "value": '{"type": "object"}'},
         [EvalCheck("json-schema", {"type": "object"})]),
        ({"type": "cost", "threshold": 0.5}, [EvalCheck("max-cost", 0.5)]),
        ({"type": "equals", "value": "{{thing}}!"}, [EvalCheck("equals", "it!")]),
        ({"type": "$short"}, [EvalCheck("max-length", 3)]),
        ({"type": "assert-set", "assert": [{"type": "is-xml"}]}, [EvalCheck("is-xml")]),
        ({"type": "assert-set", "threshold": 0.5, "assert": [{"type": "is-xml"}]}, []),
        ({"type": "trajectory:tool-sequence", "value": {"mode": "exact", "steps": ["a", "b"]}},
         [EvalCheck("tools-exactly", ("a", "b"))]),
        ({"type": "python", "value": "True"}, []),
    ],
)  # fmt: skip
def test_assertions_of_promptfoo_that_need_no_model(
    kit: Tree, assertion: dict[str, object], checks: list[EvalCheck]
) -> None:
    if assertion == {"type": "$short"}:
        assertion = {"$ref": "#/assertionTemplates/short"}
    document = {
        "prompts": ["Join {{thing}}"],
        "assertionTemplates": {"short": {"type": "max-length", "value": 3}},
        "defaultTest": {"vars": {"thing": "it"}},
        "tests": [{"assert": [assertion]}],
    }
    [task] = read(kit, promptfooconfig_DOT_yaml=json.dumps(document)).tasks
    assert list(task.checks) == checks
    assert bool(task.ungraded) == (not checks)


def test_stimuli_of_vally(kit: Tree) -> None:
    graders = [
        {"type": "skill-invocation", "config": {"required": ["pdf"], "disallowed": ["csv"]}},
        {"type": "output-not-matches", "config": {"pattern": "fatal"}},
        {"type": "file-matches", "config": {"path": "**/a.md", "pattern": "^Joined"}},
        {"type": "file-not-exists", "config": {"path": "b.md"}},
        {"type": "completed"},
        {"type": "shell-command-invoked", "config": {"disallowed": [{"command": "rm -rf"}]}},
        {"type": "tool-calls", "config": {"required": [{"name": "view", "path": "a.md"}]}},
    ]
    stimuli = [
        {"name": "one", "prompt": "Join", "graders": graders,
         "environment": {"files": [{"src": "a.pdf", "dest": "b.pdf"}], "commands": ["git init"]}},
        {"name": "two", "prompt": "Cook",
         "graders": [{"type": "skill-invocation", "config": {"disallowed": ["pdf"]}}]},
        {"name": "three", "turns": ["Join", "Go on"], "graders": []},
    ]  # fmt: skip
    document = {"name": "set", "tags": {"skill": "pdf"}, "stimuli": stimuli}
    found = read(kit, evals__some_DOT_eval_DOT_yaml=json.dumps(document))
    first, _ = found.tasks
    assert list(first.checks) == [
        EvalCheck("skill-used", "pdf"),
        EvalCheck("skill-used", "csv", negated=True),
        EvalCheck("regex", "fatal", negated=True),
        EvalCheck("regex", "^Joined", "**/a.md"),
        EvalCheck("file-exists", "b.md", negated=True),
        EvalCheck("empty", negated=True),
        EvalCheck("command-matches", "rm -rf", negated=True),
    ]
    assert (first.files, len(first.ungraded)) == (("a.pdf",), 1)
    assert [one.should_trigger for one in found.triggers] == [True, False]
    assert {one.message for one in found.problems} == {
        "environment.commands is not read", "conversations of several turns are not read"
    }  # fmt: skip


def test_scenarios_with_sentences(kit: Tree) -> None:
    scenario = {
        "name": "one",
        "prompt": "Join",
        "assertions": [
            {"type": "output_contains", "value": "done"},
            {"type": "file_not_contains", "path": "a.cs", "value": "Lock"},
        ],
        "rubric": ["It is short"],
    }
    [task] = read(kit, evals__eval_DOT_yaml=json.dumps({"scenarios": [scenario]})).tasks
    assert list(task.checks) == [
        EvalCheck("contains", ("done",)),
        EvalCheck("contains", ("Lock",), "a.cs", negated=True),
    ]
    assert task.expectations == ("It is short",)


@pytest.mark.parametrize(
    ("text", "checks"),
    [
        ("len(output) > 10", [EvalCheck("min-length", 11)]),
        ("len(output.split()) <= 3", [EvalCheck("max-words", 3)]),
        ("'a' in output and 'b' not in output.lower()",
         [EvalCheck("contains", ("a",)), EvalCheck("icontains", ("b",), negated=True)]),
        ("'2' in output or 'two' in output.lower()", [EvalCheck("icontains-any", ("2", "two"))]),
        ("'Two' in output or 'three' in output.lower()", None),
        ("'Two' in output.lower()", None),
        ("len(output) < 0", None),
        ("__import__('os').system('true')", None),
        ("len(output", None),
    ],
)  # fmt: skip
def test_expressions_of_waza_are_read_and_not_run(
    text: str, checks: list[EvalCheck] | None
) -> None:
    found = read_expression(text)
    assert found == (None if checks is None else tuple(checks))


def test_a_set_is_read_within_a_bound_of_bytes(kit: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile skill could hold every `eval route` for hours: 1 MiB of YAML takes seconds."""
    monkeypatch.setattr(read_module, "_MAX_YAML_BYTES", 1_000)
    kit.write(f"{FOLDER}/evals/tasks/a.yaml", f"prompt: {'a' * 300}")
    named = "  - tasks/*.yaml\n"
    assert len(read(kit, evals__eval_DOT_yaml=f"tasks:\n{named}").tasks) == 1
    with pytest.raises(ConfigError, match=r"tasks/a.yaml: .* too large together; keep fewer"):
        read(kit, evals__eval_DOT_yaml=f"tasks:\n{named * 4}")


def test_the_file_of_a_user_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "eval.yaml").write_text("tasks: [nowhere.yaml]")
    (tmp_path / "promptfooconfig.yaml").write_text("prompts: [a]")
    with pytest.raises(ConfigError, match=f"^{re.escape(str(tmp_path))}/eval.yaml: tasks"):
        read_eval_file(str(tmp_path / "eval.yaml"))
    [problem] = read_eval_file(str(tmp_path / "promptfooconfig.yaml")).problems
    assert problem.path == str(tmp_path / "promptfooconfig.yaml")


def test_half_a_character_is_refused(kit: Tree) -> None:
    """No process takes it as input, and no file: it ended a run of the other cases."""
    with pytest.raises(ConfigError, match=r"evals\.json: has half a character"):
        evals(kit, [{"prompt": "\ud800"}])
    assert len(evals(kit, [{"prompt": "\U0001f600"}]).triggers) == 1
