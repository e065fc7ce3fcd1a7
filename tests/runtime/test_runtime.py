"""The facade: the parts it connects, and an agent loop around it."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from skillbelt import ConfigError, Request, Rule
from skillbelt.errors import PermissionDenied, RunRefused, SkillNotFound
from skillbelt.running.workspace import places
from skillbelt.runtime.runtime import Runtime
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from skillbelt.store.sqlite import SqliteStore
from skillbelt.tools.definitions import PROFILES
from skillbelt.trust import Trust
from tests.benches import SKILL, Bench
from tests.tree import Tree

ROOT = Path(__file__).parents[2]
SKILLS = "project/.agents/skills"
FIND = "find $WORKSPACE_DIR/ -name left\n"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def _state(tree: Tree) -> None:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")


def runtime(tree: Tree, **options: Any) -> Runtime:
    return Runtime(tree.project, **options)


def test_making_one_reads_and_writes_nothing(tree: Tree) -> None:
    belt = runtime(tree)
    belt.session("u", "s")
    assert repr(belt) == f"<Runtime of {tree.project}>"
    assert list(tree.home.iterdir()) == []
    tree.skill(f"{SKILLS}/pdf")
    assert list(belt.skills()) == ["pdf"]


def test_conversations_are_kept_in_the_state_folder_for_other_processes(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf", text="The body.\n")
    belt = runtime(tree, load_mode="session")
    assert isinstance(belt.store, SqliteStore)
    belt.session("u", "s").call_sync("skill_load", {"skill": "pdf"})
    again = runtime(tree, load_mode="session").session("u", "s")
    assert [one.name for one in again.loaded()] == ["pdf"]
    assert "The body." in str(again.request(HELLO))
    assert runtime(tree).session("u", "other").loaded() == []
    assert runtime(tree).session("v", "s").loaded() == []
    assert runtime(tree).session("u", "s", app="mine").loaded() == []


def test_a_store_can_be_given(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    store = MemoryStore()
    runtime(tree, store=store).session("u", "s").call_sync("skill_load", {"skill": "pdf"})
    assert [info.key.session for info in store.sessions()] == ["s"]
    assert not list((tree.home / ".state").rglob("*.sqlite3"))


def test_deleting_a_conversation_removes_what_was_stored_for_it(tree: Tree) -> None:
    belt = runtime(tree)
    session = belt.session("u", "s")
    kept = Path(session.storage.keep("text"))
    other = Path(belt.session("u", "t").storage.keep("text"))
    session.request(HELLO)
    assert belt.delete_session("u", "s")
    assert not kept.exists()
    assert other.exists()
    assert belt.store.sessions() == []
    assert not belt.delete_session("u", "s")


def test_settings_choose_the_tools_and_their_names(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")

    def names(**options: Any) -> list[str]:
        return [tool.name for tool in runtime(tree, **options).tools()]

    assert names() == list(PROFILES["default"])
    assert names(tool_profile="full") == list(PROFILES["full"])
    assert names(tool_profile="claude") == ["Skill", "Read", "Bash"]
    assert names(tool_profile="simple") == ["skill"]
    assert names(tool_profile="simple", tool_names="common") == ["load_skill"]
    assert "read_skill_resource" in names(tool_names="common")
    assert names(tools=["skill_list", "skill"]) == ["skill", "skill_list"]
    assert names(tools=[]) == []
    with pytest.raises(ConfigError, match="there is no tool 'bash'"):
        runtime(tree, tools=["bash"])
    with pytest.raises(ConfigError, match="tool_profile must be one of"):
        runtime(tree, tool_profile="everything")


def test_only_what_is_offered_can_be_called(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    belt = runtime(tree, tools=["skill_list"], store=MemoryStore())
    session = belt.session("u", "s")
    for result in (
        belt.dispatch("skill", {"name": "pdf"}),
        belt.dispatch("skill", {"name": "pdf"}, session),
        session.call_sync("skill", {"name": "pdf"}),
    ):
        assert result.error == "there is no tool 'skill'; there are: skill_list"
    assert belt.dispatch("skill_list").text == "- pdf: Does a thing."
    assert belt.dispatch("list_skills").error
    common = runtime(tree, tool_names="common", tool_profile="full")
    assert common.dispatch("list_skills").text == "- pdf: Does a thing."
    assert common.dispatch("skill_list").error


def test_a_call_through_the_runtime_is_one_of_the_conversation(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    belt = runtime(tree, store=MemoryStore())
    session = belt.session("u", "s")
    assert belt.dispatch("skill_load", '{"skill": "pdf"}', session, "c1").text == "loaded: pdf"
    assert session.session.landed() == {"pdf": "c1"}


def test_the_loop_of_the_examples(tree: Tree) -> None:
    shutil.copytree(ROOT / "examples" / "skills" / "log-triage", tree.path(f"{SKILLS}/log-triage"))
    done = tree.python(str(ROOT / "examples" / "agent_loop.py"))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("I was told: [Loaded] log-triage\n")


# Running


def test_a_text_is_read_by_a_shell_and_words_are_not(bench: Bench) -> None:
    assert bench.run("echo $((1 + 1))").stdout == "2\n"
    assert bench.run(["echo", "$((1 + 1))"]).stdout == "$((1 + 1))\n"


def test_a_coroutine_waits_for_a_run(bench: Bench) -> None:
    result = asyncio.run(bench.runtime.run(SKILL, "echo ran"))
    assert result.stdout == "ran\n"


def test_runs_without_a_conversation_share_nothing(bench: Bench) -> None:
    belt = bench.runtime
    bench.write("scripts/find.sh", FIND)
    belt.run_sync(SKILL, "touch out/left work/left .venv/left $RUN_DIR/left")
    assert belt.run_sync(SKILL, FIND).stdout == ""
    assert belt.execute_skill_sync(SKILL).stdout == ""
    assert bench.open().run_sync(SKILL, FIND).stdout == ""
    bench.run("touch out/left")
    assert "left" in bench.run(FIND).stdout
    assert belt.run_sync(SKILL, FIND).stdout == ""


def test_what_a_runtime_dispatches_is_one_conversation_and_ends_with_it(bench: Bench) -> None:
    def left(belt: Runtime) -> object:
        return belt.dispatch("skill_run", {"skill": SKILL, "command": "ls out"}).data["stdout"]

    with bench.open() as belt, bench.open() as other:
        belt.dispatch("skill_run", {"skill": SKILL, "command": "echo text > out/left"})
        assert (left(belt), left(other)) == ("left\n", "")
        given = belt.dispatch("read_file", {"file_name": "workspace://out/left"})
        assert "text" in given.text
        assert belt.run_sync(SKILL, "ls out").stdout == ""
        folder = belt.workbench.folder
        kept = [place for place in places(folder) for one in Path(place).glob("[!.]*")]
        assert kept
    assert not [one for place in places(folder) for one in Path(place).glob("[!.]*")]


def test_the_workspace_of_a_run_goes_unless_something_is_to_be_had_there_alone(
    bench: Bench,
) -> None:
    belt = bench.runtime

    def left() -> list[Path]:
        return [
            one for place in places(belt.workbench.folder) for one in Path(place).glob("once-*")
        ]

    belt.run_sync(SKILL, "echo a > work/a; echo a > out/a.txt", outputs=["out/*"])
    with pytest.raises(RunRefused):
        belt.run_sync(SKILL, "true", cwd="nowhere")
    assert left() == []
    done = belt.run_sync(SKILL, r"printf '\0\1' > out/a.bin", outputs=["out/*"])
    (place,) = left()
    assert (place / "out" / "a.bin").read_bytes() == b"\0\1"
    assert f"its files are kept in {place} until they are cleared away" in done.warnings


def test_a_skill_is_executed_with_files_and_gives_files_back(bench: Bench) -> None:
    belt = bench.runtime
    folder = Path(belt.get_skill(SKILL).dir)
    (folder / "scripts").mkdir(exist_ok=True)
    (folder / "scripts" / "turn.sh").write_text("rev < inputs/a.txt > out/b.txt\n")
    given = Path(belt.settings.project, "a.txt")
    given.write_text("abc\n")
    got = Path(belt.settings.project, "got")
    done = belt.execute_skill_sync(
        SKILL, script="turn", inputs=[f"host://{given}"], output_dir=str(got)
    )
    assert [(one.name, one.content) for one in done.output_files] == [("out/b.txt", "cba\n")]
    assert [one.path for one in done.written_files] == [str(got / "b.txt")]


def test_a_run_takes_variables_input_and_a_place(bench: Bench) -> None:
    options: Any = {"env": {"A": "1"}, "stdin": b"given", "cwd": "/work"}
    assert bench.run("echo $A; cat; pwd", **options).stdout.startswith("1\ngiven/")


def test_outputs_are_patterns_or_an_object(bench: Bench) -> None:
    command = "echo a > out/a.txt; echo b > out/b.txt"
    assert len(bench.run(command, outputs=["out/*"]).output_files) == 2
    outputs = {"globs": ["out/*"], "max_files": 1}
    assert [file.content for file in bench.run(command, outputs=outputs).output_files] == [""]


def test_a_listener_hears_the_run(bench: Bench) -> None:
    heard: list[tuple[str, bytes]] = []
    bench.run("echo out; echo err >&2", listener=lambda *piece: heard.append(piece))
    assert sorted(heard) == [("stderr", b"err\n"), ("stdout", b"out\n")]


def test_a_skill_that_is_not_there_is_not_run(bench: Bench) -> None:
    with pytest.raises(SkillNotFound, match="closest: kit"):
        bench.runtime.run_sync("kid", "true")


def test_a_skill_that_the_host_hides_is_not_run(bench: Bench) -> None:
    """Case 53."""
    bench.runtime = bench.open(visible=lambda _: False)
    with pytest.raises(SkillNotFound):
        bench.run("true")
    assert bench.tool("true").error == f"unknown skill: {SKILL}"


def test_a_skill_that_is_hidden_from_a_conversation_is_not_run_in_it(bench: Bench) -> None:
    """Case 53."""
    session = bench.runtime.session("ada", "chat", visible=lambda _: False)
    with pytest.raises(SkillNotFound):
        bench.runtime.run_sync(SKILL, "true", session=session)
    with pytest.raises(SkillNotFound):
        bench.runtime.execute_skill_sync(SKILL, session=session)
    assert session.call_sync("skill_run", {"skill": SKILL, "command": "true"}).error


def test_a_rule_of_a_conversation_counts_for_its_runs(bench: Bench) -> None:
    belt = bench.runtime
    session = belt.session("ada", "chat", rules=[Rule("run", "touch *", "deny")])
    arguments = {"skill": SKILL, "command": "touch out/ran"}
    assert "denied" in session.call_sync("skill_run", arguments).error
    begun = session.call_sync("skill_run", {**arguments, "background": True})
    if not begun.error:
        wait = {"run_id": begun.data["run_id"], "wait": 20}
        begun = session.call_sync("skill_poll", wait)
    assert "denied" in begun.error
    with pytest.raises(PermissionDenied):
        belt.run_sync(SKILL, "touch out/ran", session=session)
    assert belt.run_sync(SKILL, "ls out", session=session).stdout == ""


def test_a_conversation_may_be_allowed_what_others_are_not(bench: Bench) -> None:
    bench.runtime = bench.open(rules=[])
    session = bench.runtime.session("ada", "chat", rules=[Rule("run", "*", "allow")])
    assert bench.runtime.run_sync(SKILL, "echo ran", session=session).stdout == "ran\n"
    assert bench.tool("echo ran").error


def test_a_user_is_asked_for_a_run_too(bench: Bench) -> None:
    bench.runtime = bench.open(rules=[])
    with pytest.raises(PermissionDenied):
        bench.run("true")


@pytest.mark.parametrize("command", ["", "  ", [], [""]])
def test_a_run_needs_a_command(bench: Bench, command: str | list[str]) -> None:
    with pytest.raises(RunRefused, match="skill and command are required"):
        bench.run(command)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["python3", "a\0b.py"], {}),
        (["true", "x" * 2**17], {}),
        (["true"], {"env": {f"A{number}": "" for number in range(3000)}}),
        ("true", {"env": {f"A{number}": "x" * 100_000 for number in range(30)}}),
        ("true", {"env": {"a b": "c"}}),
    ],
)
def test_what_can_not_be_started_is_refused_before_anybody_is_asked(
    bench: Bench, command: str | list[str], options: dict[str, Any]
) -> None:
    bench.runtime = bench.open(rules=[])
    with pytest.raises(RunRefused):
        bench.run(command, **options)


def test_one_pattern_or_input_may_stand_alone(bench: Bench) -> None:
    bench.tree.write("project/in.txt", "text")
    given = f"host://{bench.tree.project}/in.txt"
    result = bench.run("cp inputs/in.txt out/", inputs=given, outputs="out/*.txt")
    assert [file.content for file in result.output_files] == ["text"]


def test_the_tool_has_the_name_that_is_asked_for(bench: Bench) -> None:
    bench.runtime = bench.open(tool_names="common", require_load=True)
    result = bench.call("run_skill_script", skill=SKILL, command="true")
    assert result.error == f'run_skill_script requires load_skill first for "{SKILL}"'


# Tools of which there is no use


@pytest.mark.parametrize("profile", ["simple", "knowledge", "full"])
def test_where_no_skill_can_be_used_there_are_no_tools(tree: Tree, profile: str) -> None:
    assert Runtime(settings=tree.settings(tool_profile=profile)).tools() == []
    tree.skill("project/.agents/skills/pdf")
    denied = Runtime(
        settings=tree.settings(tool_profile=profile), rules=[Rule("skill", "*", "deny")]
    )
    assert denied.tools("openai") == []
    assert denied.session("ada", "s").tools() == []
    assert Runtime(settings=tree.settings(tool_profile=profile)).tools()


def test_a_skill_that_only_the_user_calls_has_tools(tree: Tree) -> None:
    declared: dict[str, Any] = {"disable-model-invocation": True}
    tree.skill("project/.agents/skills/pdf", **declared)
    assert Runtime(settings=tree.settings()).tools()


@pytest.mark.parametrize(
    ("rules", "offered"),
    [
        ([Rule("run", "*", "deny")], False),
        ([Rule("*", "*", "deny"), Rule("skill", "*", "allow")], False),
        ([Rule("run", "*", "deny"), Rule("run", "rm *", "deny")], False),
        ([Rule("tool", "Bash", "deny")], False),
        ([Rule("run", "*", "deny"), Rule("run", "ls", "ask")], True),
        ([Rule("run", "rm *", "deny")], True),
        ([Rule("run", "*", "deny", agent="other")], True),
    ],
)
def test_a_tool_of_which_every_use_is_denied_is_not_offered(
    tree: Tree, rules: list[Rule], offered: bool
) -> None:
    tree.skill("project/.agents/skills/pdf")
    full = tree.settings(tool_profile="full")
    belt = Runtime(settings=full)
    for tools in (
        Runtime(settings=full, rules=rules).tools(),
        belt.session("ada", "s", rules=rules).tools(),
    ):
        kinds = {tool.kind for tool in tools}
        assert "skill_load" in kinds
        assert ({"skill_run", "execute_skill", "skill_poll"} <= kinds) is offered
    told = belt.session("ada", "t", rules=rules).request([{"role": "user", "content": "x"}])
    assert ("skill_run" in str(told[0]["content"])) is offered


# Settings that change while it runs

CONFIG = "home/.config/skillbelt/config.toml"


def decided(belt: Runtime, type: str, text: str) -> str:
    belt.look()
    return belt.gate.explain(Request(type, (text,))).action


def test_changed_rules_count_from_the_next_look_on(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    belt = runtime(tree)
    session = belt.session("u", "s", rules=[Rule("run", "ls", "allow")])
    assert list(belt.available()) == ["pdf"]
    tree.write(CONFIG, '[permission]\nskill = "deny"\nrun = "deny"\n')
    assert decided(belt, "run", "rm") == "deny"
    assert list(belt.available()) == list(session.skills()) == []
    assert session.gate.explain(Request("run", ("ls",))).action == "allow"
    os.unlink(tree.path(CONFIG))
    assert decided(belt, "run", "rm") == "ask"
    assert list(belt.available()) == ["pdf"]


def test_a_new_deny_counts_for_the_next_decision(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    belt = runtime(tree)
    session = belt.session("u", "s", rules=[Rule("run", "ls", "allow")])
    assert session.permits("Bash", "ls").allowed
    assert belt.load("pdf").text
    tree.write(CONFIG, '[permission]\ndeny = ["Skill(pdf)"]\n')
    with pytest.raises(PermissionDenied, match="the user's rules"):
        belt.load("pdf")
    assert session.gate.explain(Request("skill", ("pdf",))).action == "deny"
    tree.write(CONFIG, 'disabled_clients = ["agents"]\n')
    assert session.permits("Bash", "ls").allowed
    assert list(belt.look()) == []  # the decision took over the settings, and the look scans


def test_a_file_that_a_variable_names_counts_when_it_appears(tree: Tree) -> None:
    tree.setenv("OPENCODE_CONFIG_DIR", tree.path("named"))
    tree.setenv("XDG_CONFIG_DIRS", tree.path("etc"))
    belt = runtime(tree)
    assert decided(belt, "skill", "pdf") == "allow"
    tree.write("named/opencode.json", '{"permission": {"skill": "deny"}}')
    assert decided(belt, "skill", "pdf") == "deny"
    tree.write("etc/skillbelt/config.toml", '[permission]\nrun = "deny"\n')
    assert decided(belt, "run", "ls") == "deny"


def test_changed_paths_limits_and_trust_count(tree: Tree) -> None:
    tree.skill("more/pdf")
    belt = runtime(tree, max_depth=3)
    assert list(belt.look()) == []
    limits = "max_depth = 5\nmax_directories = 9\n"
    tree.write(CONFIG, f'paths = ["{tree.path("more")}"]\n{limits}')
    assert list(belt.look()) == ["pdf"]
    assert belt.settings.limits[:2] == (3, 9)  # what was given in code stays
    tree.write("project/opencode.json", '{"permission": {"skill": {"pdf": "ask"}}}')
    assert decided(belt, "skill", "pdf") == "ask"
    tree.write("project/skillbelt.toml", '[permission]\nrun = "allow"\n')
    assert decided(belt, "run", "ls") == "ask"
    Trust(belt.settings.state_dir).add(str(tree.project))
    assert decided(belt, "run", "ls") == "allow"


def test_a_wrong_file_changes_nothing_and_is_reported(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.write(CONFIG, '[permission]\nrun = "deny"\n')
    belt = runtime(tree)
    assert decided(belt, "run", "ls") == "deny"
    path = tree.write(CONFIG, "[permission\n")
    assert decided(belt, "run", "ls") == "deny"
    [said] = [one for one in belt.catalog.diagnostics if one.code == "settings-wrong"]
    assert str(path) in said.message
    assert str(path) in caplog.text
    os.unlink(path)
    assert decided(belt, "run", "ls") == "ask"
    assert belt.catalog.diagnostics == ()


def test_what_cannot_change_while_it_runs_is_logged(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    belt = runtime(tree)
    belt.look()
    tree.write(CONFIG, 'sandbox = "none"\nrequire_load = true\n')
    belt.look()
    assert (belt.settings.sandbox, belt.settings.require_load) == ("auto", True)
    assert "the setting sandbox changed; it counts after a restart" in caplog.text


def test_given_settings_stay_unless_there_is_a_way_to_load_them(tree: Tree) -> None:
    fixed = Runtime(settings=tree.settings())
    living = Runtime(settings=tree.settings(), reload=tree.settings)
    tree.write(CONFIG, '[permission]\nrun = "deny"\n')
    assert (decided(fixed, "run", "ls"), decided(living, "run", "ls")) == ("ask", "deny")


def test_deleting_a_conversation_removes_what_its_runs_left(bench: Bench) -> None:
    belt = bench.runtime
    bench.run("echo secret > out/s.txt", outputs=["out/*"], save_as_artifacts=True)
    shared = SessionKey("skillbelt", "ada", "chat")
    belt.workbench.artifacts(shared).save("user:kept", b"shared")
    bench.tool("sleep 600", background=True)
    assert belt.delete_session("ada", "chat")
    assert bench.run("ls out").stdout == ""
    assert bench.call("read_file", file_name="artifact://out/s.txt").error
    assert bench.read("artifact://user:kept") == "shared"
    assert belt.background.list(shared) == []


def test_deleting_a_conversation_that_only_ran_commands_says_so(bench: Bench) -> None:
    bench.run("true")
    other = bench.open()
    assert other.delete_session("ada", "chat")
    assert not other.delete_session("ada", "chat")


def test_deleting_a_conversation_removes_its_workspace_in_other_projects(bench: Bench) -> None:
    bench.run("echo secret > out/s.txt")
    elsewhere = bench.tree.path("elsewhere")
    elsewhere.mkdir()
    assert Runtime(elsewhere).delete_session("ada", "chat")
    assert bench.run("ls out").stdout == ""


def test_a_conversation_whose_workspace_is_in_use_is_kept(bench: Bench) -> None:
    belt = bench.runtime
    bench.run("true")
    belt.session("ada", "chat").request(HELLO)
    with (
        belt.workbench.workspace(SessionKey("skillbelt", "ada", "chat")),
        pytest.raises(RunRefused, match="is in use"),
    ):
        belt.delete_session("ada", "chat")
    assert [info.key.session for info in belt.store.sessions("skillbelt")] == ["chat"]
    assert belt.delete_session("ada", "chat")
