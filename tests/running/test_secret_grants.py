"""Stored secrets in runs: the questions, the grants, and the records."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from skillbelt import Answer, ConfigError, Pending, PermissionDenied, Rule, RunRefused
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.permission.rules import AnswerKind
from skillbelt.running.background import Background
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.following import Watch
from skillbelt.running.json_call import execute
from skillbelt.running.secret_store import SecretStore, StoredSecret
from skillbelt.running.workbench import Workbench
from tests import needs
from tests.bench import KEY, ME, Bench
from tests.sandbox.guests import hosts
from tests.tree import Tree

pytestmark = needs.linux
VALUE = 'p/ss w"rd+é&123'
MODEL = Asker(KEY, "model", "coder")
RUNS = Rule("run", "*", "allow")
SHOW = 'printf "%s" "${A_KEY-none}"'
OPENCLAW = '{"openclaw": {"requires": {"env": ["A_KEY"]}}}'


class Kit(Bench):
    """A skill `echo` that declares A_KEY, and the secrets of its user."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.declare("echo", f"metadata: {OPENCLAW}")
        self.write("scripts/show.sh", f"{SHOW}\n")
        self.store = SecretStore(tree.settings(secrets_store="file"))

    def declare(self, skill: str, line: str) -> None:
        text = f"---\nname: {skill}\ndescription: Says it.\n{line}\n---\nSay it.\n"
        self.tree.write(f"project/.agents/skills/{skill}/SKILL.md", text)

    def set(self, name: str = "A_KEY", value: str = VALUE, skill: str = "") -> StoredSecret:
        return self.store.set(name, value, skill)

    def try_run(self, command: str = SHOW, answer: AnswerKind = "once", **call: Any) -> RunResult:
        """Run a command; every question but those about secrets is answered by a rule."""
        bench = self.make(rules=(RUNS,), answer=lambda _: Answer(answer))
        return self.run(command, bench=bench, **call)

    @property
    def questions(self) -> list[str]:
        return [one.request.summary for one in self.asked]


@pytest.fixture
def kit(open_tree: Tree) -> Iterator[Kit]:
    made = Kit(open_tree)
    yield made
    made.close()


# Grants


def test_a_secret_that_is_declared_and_allowed_is_a_variable_of_the_run(kit: Kit) -> None:
    kit.set()
    result = kit.try_run('test "$A_KEY" = \'p/ss w"rd+é&123\' && echo "it is there"')
    assert (result.stdout, result.warnings) == ("it is there\n", ())
    assert len(kit.asked) == 1
    request = kit.asked[0].request
    assert (request.type, request.patterns, request.skill) == ("secret", ("echo/A_KEY",), "echo")
    assert kit.questions[0].startswith("give the secret A_KEY to the skill echo for `test ")


@pytest.mark.parametrize(
    "line",
    [
        "required_environment_variables: [A_KEY]",
        'required_environment_variables: [{"name": "A_KEY", "prompt": "its key"}]',
        "required-secrets:\n  - name: A_KEY\n    optional: false",
        "required_env: A_KEY, B_KEY",
        "requires:\n  env: [A_KEY]",
        "metadata:\n  hermes:\n    requires:\n      env:\n        - key: A_KEY",
        'metadata: {"clawdbot": {"primaryEnv": "A_KEY"}}',
        'metadata: {"openclaw": {"envVars": [{"name": "A_KEY", "required": true}]}}',
        "compatibility: Needs A_KEY in the environment",
    ],
)
def test_skills_declare_a_secret_in_the_ways_of_many_clients(kit: Kit, line: str) -> None:
    kit.declare("echo", line)
    kit.set()
    assert kit.try_run().stdout == "[A_KEY]"


def test_a_skill_that_declares_nothing_is_given_nothing(kit: Kit) -> None:
    kit.declare("echo", "license: MIT")
    kit.set()
    assert kit.try_run().stdout == "none"
    assert kit.asked == []


def test_a_secret_that_is_for_another_skill_is_none_of_this_one(kit: Kit) -> None:
    kit.set(skill="other")
    result = kit.try_run()
    assert result.stdout == "none"
    assert kit.asked == []


def test_the_skills_own_value_comes_before_the_one_for_all(kit: Kit) -> None:
    kit.set(value="for-everyone")
    kit.set(value="for-echo-alone", skill="echo")
    assert kit.try_run('test "$A_KEY" = for-echo-alone').exit_code == 0


def test_a_refusal_leaves_the_variable_out_and_is_told(kit: Kit) -> None:
    kit.set()
    result = kit.try_run(answer="reject")
    assert result.stdout == "none"
    (warning,) = result.warnings
    assert warning.startswith("the secret A_KEY was not given to the command: Permission to give")


def test_without_anyone_to_ask_the_command_to_allow_it_is_told(kit: Kit) -> None:
    kit.set()
    bench = kit.make(rules=(RUNS,))
    kit.belt.gate._ask = None
    result = kit.run(SHOW, MODEL, bench)
    assert result.stdout == "none"
    assert "`skillbelt permissions allow echo/A_KEY --type secret` allows it" in result.warnings[0]


def test_a_missing_secret_is_told_with_the_command_that_sets_it(kit: Kit) -> None:
    command = "`skillbelt secrets set A_KEY --skill echo`"
    missing = "the secret A_KEY, which the skill echo declares, is not set;"
    assert kit.try_run().warnings == (f"{missing} set it with {command}",)
    assert kit.run(SHOW, MODEL).warnings == (f"{missing} the user sets it with {command}",)


def test_an_optional_secret_that_is_missing_is_not_told(kit: Kit) -> None:
    kit.declare("echo", "required-secrets: [{name: A_KEY, optional: true}]")
    assert kit.try_run().warnings == ()


def test_a_value_of_the_call_comes_before_a_stored_one(kit: Kit) -> None:
    kit.set()
    bench = kit.make()
    result = kit.run('test "$A_KEY" = given-here', bench=bench, env={"A_KEY": "given-here"})
    assert (result.exit_code, result.warnings) == (0, ())


def test_a_variable_that_steers_programs_is_never_asked_for(kit: Kit) -> None:
    kit.declare("echo", "required_env: [LD_PRELOAD, PATH, HOME, BASH_ENV]")
    result = kit.try_run("echo ok")
    assert (result.stdout, result.warnings, kit.asked) == ("ok\n", (), [])


def test_many_declared_names_are_no_flood_of_questions(kit: Kit) -> None:
    names = [f"KEY_{number}" for number in range(200)]
    kit.declare("echo", f"required_env: {json.dumps(names)}")
    for name in names[::10]:
        kit.set(name)
    kit.try_run("true")
    assert len(kit.asked) == 4  # of the first 32 names


# The caller and the settings


def test_the_caller_may_name_a_secret_that_no_skill_declares(kit: Kit) -> None:
    kit.set("B_KEY")
    result = kit.try_run('test -n "$B_KEY"', secrets=("B_KEY",))
    assert result.exit_code == 0
    assert kit.questions == ['give the secret B_KEY to the skill echo for `test -n "$B_KEY"`']


def test_nothing_runs_without_a_secret_that_the_caller_names(kit: Kit) -> None:
    with pytest.raises(RunRefused, match=r"^the secret B_KEY is not set; .*; nothing was run$"):
        kit.try_run(secrets=("B_KEY",))
    kit.set("B_KEY")
    with pytest.raises(PermissionDenied, match="was refused"):
        kit.try_run(answer="reject", secrets=("B_KEY",))
    with pytest.raises(RunRefused, match="'LD_PRELOAD' is a variable that decides"):
        kit.try_run(secrets=("LD_PRELOAD",))


def test_the_users_settings_name_secrets_for_a_skill(kit: Kit) -> None:
    kit.declare("echo", "license: MIT")
    kit.tree.write("home/.config/skillbelt/config.toml", '[skills.echo]\nenv = ["A_KEY"]\n')
    told = "which the settings name for the skill echo, is not set"
    assert told in kit.try_run().warnings[0]
    kit.set()
    assert kit.try_run().stdout == "[A_KEY]"
    assert len(kit.asked) == 1


def test_a_project_names_no_secret_for_a_skill(kit: Kit) -> None:
    kit.tree.write("project/skillbelt.toml", '[skills.echo]\nenv = ["B_KEY"]\n')
    with pytest.raises(ConfigError, match="env"):
        kit.tree.settings()


# What is remembered


def always(kit: Kit, command: str, **call: Any) -> int:
    """Run it; return how many questions there were."""
    before = len(kit.asked)
    kit.try_run(command, "always", **call)
    return len(kit.asked) - before


def test_always_covers_every_call_of_the_script(kit: Kit) -> None:
    kit.set()
    assert always(kit, "bash scripts/show.sh") == 1
    assert always(kit, "bash scripts/show.sh --other argument") == 0
    (entry,) = (one for one in kit.belt.gate.ledger.all() if one.type == "secret")
    assert (entry.pattern, entry.skill) == ("echo/A_KEY for scripts/show.sh", "echo")


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("bash scripts/other.sh", {}),
        (SHOW, {}),
        ("bash scripts/show.sh; echo $A_KEY", {}),
        ("bash scripts/show.sh", {"env": {"HOST": "evil.example"}}),
        ("bash ../scripts/show.sh", {"cwd": "bin"}),
        ("bash -c 'bash scripts/show.sh'", {}),
    ],
)
def test_always_for_a_script_covers_no_other_command(
    kit: Kit, command: str, call: dict[str, Any]
) -> None:
    kit.write("scripts/other.sh", "true\n")
    kit.write("bin/x", "")
    kit.set()
    assert always(kit, "bash scripts/show.sh") == 1
    assert always(kit, command, **call) == 1


def test_always_for_a_script_covers_it_with_the_same_variables(kit: Kit) -> None:
    """The user's settings may give it variables in each call."""
    kit.set()
    assert always(kit, "bash scripts/show.sh", env={"REGION": "eu"}) == 1
    assert always(kit, "bash scripts/show.sh --more", env={"REGION": "eu"}) == 0
    assert always(kit, "bash scripts/show.sh", env={"REGION": "us"}) == 1


def test_a_skill_that_changes_asks_again(kit: Kit) -> None:
    kit.set()
    always(kit, "bash scripts/show.sh")
    kit.write("scripts/show.sh", "echo other\n")
    assert always(kit, "bash scripts/show.sh") == 1


def test_another_skill_under_the_same_name_asks_again(kit: Kit) -> None:
    kit.set(skill="echo")
    always(kit, "bash scripts/show.sh")
    other = kit.tree.project / ".skillbelt" / "skills"
    other.mkdir(parents=True)
    kit.skill.rename(other / "echo")
    assert always(kit, "bash scripts/show.sh") == 1


def test_a_secret_that_was_removed_and_set_again_is_asked_for(kit: Kit) -> None:
    kit.set()
    always(kit, "bash scripts/show.sh")
    kit.set(value="a-rotated-value")
    assert always(kit, "bash scripts/show.sh") == 0
    kit.store.remove("A_KEY")
    kit.set()
    assert always(kit, "bash scripts/show.sh") == 1


def test_a_run_that_comes_to_get_a_secret_is_another_run(kit: Kit) -> None:
    asked: list[str] = []

    def answer(pending: Pending) -> Answer:
        asked.append(pending.request.type)
        return Answer("always")

    def once() -> list[str]:
        asked.clear()
        kit.run("bash scripts/show.sh", bench=kit.make(rules=(), answer=answer))
        return list(asked)

    assert once() == ["run"]
    assert once() == []
    kit.set()
    assert once() == ["run", "secret"]
    assert once() == []


# Rules


def test_rules_are_about_a_skill_and_a_name(kit: Kit) -> None:
    kit.set()
    for pattern, given in [
        ("echo/A_KEY", True), ("echo/*", True), ("*/A_KEY", True), ("*", True),
        ("other/A_KEY", False), ("echo/B_KEY", False),
    ]:  # fmt: skip
        bench = kit.make(rules=(RUNS, Rule("secret", pattern, "allow")), answer=_reject)
        assert (kit.run(SHOW, bench=bench).stdout == "[A_KEY]") == given, pattern
    bench = kit.make(rules=(RUNS, Rule("secret", "*", "allow"), Rule("secret", "*/A_*", "deny")))
    assert kit.run(SHOW, bench=bench).stdout == "none"


def _reject(_: Pending) -> Answer:
    return Answer("reject")


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("rule", ['secret = "allow"', '"*" = "allow"'])
def test_no_project_gives_a_secret_away(kit: Kit, rule: str, trusted: bool) -> None:
    kit.set()
    kit.tree.write("project/skillbelt.toml", f"[permission]\n{rule}\n")
    if trusted:
        assert kit.tree.run("trust", "add").exit_code == 0
    assert kit.try_run(answer="reject").stdout == "none"
    assert len(kit.asked) == 1
    kit.tree.write("home/.config/skillbelt/config.toml", "[permission]\nsecret = 'allow'\n")
    assert kit.try_run(answer="reject").stdout == "[A_KEY]"


def test_a_project_may_deny_a_secret(kit: Kit) -> None:
    kit.set()
    kit.tree.write("project/skillbelt.toml", "[permission]\nsecret = 'deny'\n")
    kit.tree.write("home/.config/skillbelt/config.toml", "[permission]\nsecret = 'allow'\n")
    assert kit.try_run().stdout == "none"


# Records


SPELLINGS = [
    VALUE,
    json.dumps(VALUE)[1:-1],
    quote(VALUE),
    quote(VALUE, safe="").lower(),
    VALUE.encode().hex(),
    VALUE.encode().hex().upper(),
    *(base64.b64encode(f"{before}{VALUE}\n".encode()).decode() for before in ("", "a", "ab")),
    base64.urlsafe_b64encode(f"user:{VALUE}".encode()).decode(),
]
PRINT = """
import base64, json, os, sys, time
from urllib.parse import quote
value = os.environ["A_KEY"]
data = value.encode()
texts = [value, json.dumps(value), quote(value), quote(value, safe="").lower(), data.hex(),
    data.hex().upper(),
    *(base64.b64encode(f"{b}{value}\\n".encode()).decode() for b in ("", "a", "ab")),
    base64.urlsafe_b64encode(f"user:{value}".encode()).decode()]
for text in texts:
    for char in text:
        sys.stdout.write(char)
        sys.stdout.flush()
    print(file=sys.stderr)
    print(text, file=sys.stderr)
    print()
open("out/a.txt", "w").write(repr(texts))
"""


def leaks(text: str) -> list[str]:
    """Return the spellings in a text, but for the ends that depend on what is around them."""
    return [one for one in SPELLINGS if one.strip("=")[4:-2] in text]


def test_no_spelling_of_it_is_in_anything_that_is_told(kit: Kit) -> None:
    kit.set()
    kit.write("scripts/print.py", PRINT)
    heard, said = list[bytes](), list[str]()
    bench = kit.make()
    bench._progress = said.append
    call = RunCall("python3 scripts/print.py", output_files=("out/*",))
    skill = kit.belt.get_skill("echo")
    result = bench.run(skill, call, ME, Watch(lambda _, data: heard.append(data)))
    assert result.exit_code == 0
    assert result.stdout.count("[A_KEY]") == result.stderr.count("[A_KEY]") == len(SPELLINGS)
    (file,) = result.output_files
    assert "[A_KEY]" in file.content
    told = [str(result.document()), b"".join(heard).decode(), *said, str(kit.events("run"))]
    assert [leaks(text) for text in told] == [[]] * len(told)
    assert kit.events("run")[0]["secrets"] == ["A_KEY"]


def test_a_run_in_the_background_shows_only_the_name(kit: Kit) -> None:
    kit.set()
    background = Background(kit.make())
    run = background.start(kit.belt.get_skill("echo"), RunCall(f"{SHOW}; {SHOW} >&2"), ME)
    running, text = True, ""
    while running:
        polled = background.poll(KEY, run, wait_seconds=10)
        running, text = polled.running, polled.stdout + polled.stderr
    assert text == "[A_KEY][A_KEY]"
    assert polled.result is not None
    assert polled.result.stdout == "[A_KEY]"
    background.close()


def test_the_output_of_an_executed_skill_shows_only_the_name(kit: Kit) -> None:
    kit.set()
    kit.skill.joinpath("scripts/show.sh").unlink()
    kit.write("scripts/main.py", 'import os, json; print(json.dumps({"k": os.environ["A_KEY"]}))')
    done = execute(kit.make(), kit.belt.get_skill("echo"), who=ME)
    assert done.output == {"k": "[A_KEY]"}
    assert leaks(str(done.document())) == []


def test_a_run_in_the_wasm_sandbox_gets_it_and_shows_only_the_name(kit: Kit) -> None:
    kit.set()
    kit.skill.joinpath("scripts/show.sh").unlink()
    kit.write("scripts/run.ts", "console.log(JSON.stringify([process.env.A_KEY]))")
    bench = kit.make(cache_dir=hosts().cache_dir)
    done = execute(bench, kit.belt.get_skill("echo"), who=ME)
    assert (done.output, done.sandbox) == (["[A_KEY]"], "wasm")


def test_a_later_run_that_finds_it_in_a_file_shows_only_the_name(kit: Kit) -> None:
    """And so does reading the file, though neither was given the secret."""
    kit.set()
    kit.tree.skill("project/.agents/skills/plain")
    bench = kit.make()
    kit.run('printf "%s" "$A_KEY" > $OUTPUT_DIR/a.txt', bench=bench)
    plain = bench.run(kit.belt.get_skill("plain"), RunCall("cat $OUTPUT_DIR/a.txt"), ME)
    assert plain.stdout == "[A_KEY]"


def test_reading_a_file_that_holds_it_shows_only_the_name(kit: Kit) -> None:
    kit.set()
    kit.make()
    session = kit.belt.session("me", "reads")
    command = {"skill": "echo", "command": 'printf "a $A_KEY b" > $OUTPUT_DIR/a.txt'}
    assert session.call_sync("skill_run", command).error == ""
    read = session.call_sync("read_file", {"file_name": "workspace://out/a.txt"})
    assert "a [A_KEY] b" in read.text
    assert leaks(f"{read.text}{read.data}") == []


def test_an_artifact_is_kept_to_the_byte(kit: Kit) -> None:
    kit.set()
    store = MemoryArtifacts()
    bench = kit.make(artifacts=store)
    outputs = {"globs": ["out/*"], "save": True}
    result = kit.run('printf "%s" "$A_KEY" > out/a.txt', bench=bench, outputs=outputs)
    (saved,) = result.artifact_files
    artifacts = bench.artifacts(KEY)
    assert store.find(artifacts.key, saved.name, saved.version).size == len(VALUE.encode())


def test_nothing_on_the_disk_holds_it_but_the_store(kit: Kit) -> None:
    kit.set(value="only-in-the-store-1")
    kit.try_run("bash scripts/show.sh", "always")
    found = [
        path
        for path in kit.tree.root.rglob("*")
        if path.is_file() and b"only-in-the-store-1" in path.read_bytes()
    ]
    assert found == [kit.tree.path(kit.store.path)]


def test_the_store_is_no_input_whatever_is_allowed(kit: Kit) -> None:
    kit.set()
    bench = kit.make()
    with pytest.raises(PermissionDenied, match="cannot be an input of a run"):
        kit.run("cat work/inputs/*", bench=bench, inputs=[{"from": f"host://{kit.store.path}"}])
    with pytest.raises(PermissionDenied, match="cannot be an input of a run"):
        kit.run("true", bench=bench, inputs=[{"from": f"host://{kit.tree.home}/.local/state"}])


def test_a_folder_that_holds_the_store_is_not_opened_to_executed_skills(kit: Kit) -> None:
    kit.set()
    kit.skill.joinpath("scripts/show.sh").unlink()
    kit.write("scripts/main.py", f"print(open({kit.store.path!r}).read())")
    bench = kit.make(host_roots=(str(kit.tree.home),))
    done = execute(bench, kit.belt.get_skill("echo"), who=ME)
    assert done.exit_status.kind == "failed"
    assert any("your secrets are kept in it" in text for text in done.warnings)


def test_a_workbench_forgets_nothing_when_two_secrets_share_a_name(kit: Kit) -> None:
    bench: Workbench = kit.make()
    kit.set(value="value-of-echo", skill="echo")
    kit.declare("other", f"metadata: {OPENCLAW}")
    kit.set(value="value-of-other", skill="other")
    for name in ("echo", "other"):
        bench.run(kit.belt.get_skill(name), RunCall("true"), ME)
    result = bench.run(kit.belt.get_skill("other"), RunCall("echo value-of-echo"), ME)
    assert result.stdout == "[A_KEY]\n"
