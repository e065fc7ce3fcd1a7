"""The tools of each profile: the length of their texts, the tools they name, and that they work."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from skillbelt import Rule, Runtime
from skillbelt.store.memory import MemoryStore
from skillbelt.tools.definitions import DEFINITIONS, LOADERS, PROFILES
from skillbelt.tools.schema import FORMATS, MAX_ENUM_CHARS, ToolFormat
from tests.benches import SKILL, Bench
from tests.tree import Tree

SKILLS = "project/.agents/skills"
# docs/reference/tools.md says these.
MAX_CHARS, MAX_LISTING_CHARS = 4_000, 8_400
EVERY_NAME = {
    *(name for name in DEFINITIONS if name not in ("skill", *PROFILES["claude"])),
    *(one.common for one in DEFINITIONS.values() if one.common not in ("skill", "Read")),
}


def runtime(tree: Tree, **options: Any) -> Runtime:
    return Runtime(tree.project, store=MemoryStore(), **options)


def named(text: str) -> set[str]:
    """The tools that a text names."""
    return EVERY_NAME.intersection(re.findall(r"\w+", text))


# How long


@pytest.mark.parametrize("format", FORMATS)
def test_the_tools_for_one_skill_are_short(tree: Tree, format: ToolFormat) -> None:
    tree.skill(f"{SKILLS}/{'long-name-' * 12}".rstrip("-"), "What it does. " * 70)
    session = runtime(tree).session("ada", "chat")
    for inline in (False, True):
        made = session.tools(format, inline=inline)
        assert made
        assert len(json.dumps(made)) < MAX_CHARS


@pytest.mark.parametrize("count", [32, 256, 300])
def test_the_tools_stay_short_as_skills_grow(tree: Tree, count: int) -> None:
    for number in range(count):
        tree.skill(f"{SKILLS}/skill-number-{number:03}", "What it is for, in words. " * 30)
    session = runtime(tree).session("ada", "chat")
    bound = MAX_CHARS + MAX_ENUM_CHARS
    assert len(json.dumps(session.tools("openai"))) < bound
    listed = session.tools("mcp", listing=True, inline=True)
    assert len(json.dumps(listed)) < bound + MAX_LISTING_CHARS


def test_names_that_are_long_together_are_no_enum(tree: Tree) -> None:
    for number in range(60):
        tree.skill(f"{SKILLS}/{'x' * 100}-{number:03}")
    assert '"enum": ["x' not in json.dumps(runtime(tree).tools("openai"))


def test_only_the_tool_that_loads_lists_the_names(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    for profile in PROFILES:
        made = runtime(tree, tool_profile=profile).tools()
        [listing] = [one.kind for one in made if '"enum": ["pdf"]' in json.dumps(one.schema)]
        assert listing in LOADERS


def test_without_a_tool_that_loads_another_lists_the_names(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    made = runtime(tree, tools=["skill_run", "read_file"]).tools("openai")
    assert json.dumps(made).count('["pdf"]') == 1


# Which tools a text names


@pytest.mark.parametrize("naming", ["skillbelt", "common"])
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_text_names_only_tools_that_are_offered(
    tree: Tree, profile: str, naming: str
) -> None:
    for number in range(3):
        tree.skill(f"{SKILLS}/s{number}", "Does it. " * 40)
    belt = runtime(tree, tool_profile=profile, tool_names=naming, max_overview_tokens=100)
    session = belt.session("ada", "chat")
    sent = session.request([{"role": "user", "content": "x"}])
    offered = {tool.name for tool in session.tools()}
    assert named(str(sent[0]["content"])) <= offered
    for inline in (False, True):
        made = session.tools(inline=inline)
        names = {tool.name for tool in made}
        for tool in made:
            assert named(f"{tool.description} {json.dumps(tool.schema)}") <= names
            assert "next step" not in tool.description or not inline
        if inline:
            assert not names & {"skill_select_docs", "skill_unload", "unload_skill"}


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("effect", ["allow", "deny"])
def test_a_wrong_name_is_answered_with_the_tools_that_are_offered(
    tree: Tree, inline: bool, effect: Any
) -> None:
    tree.skill(f"{SKILLS}/pdf")
    session = runtime(tree, rules=[Rule("run", "*", effect)]).session("ada", "chat")
    offered = [tool.name for tool in session.tools(inline=inline)]
    answer = session.call_sync("nothing", {}, inline=inline).text
    assert answer == f"there is no tool 'nothing'; there are: {', '.join(offered)}"


def test_search_never_says_that_skills_are_not_listed(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    session = runtime(tree).session("ada", "chat")
    [search] = [tool for tool in session.tools() if tool.kind == "skill_search"]
    system = str(session.request([{"role": "user", "content": "x"}])[0]["content"])
    assert "listed" not in f"{search.description} {system}"


def test_one_instruction_says_how_to_load(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    for profile, loader in (("default", "skill_load"), ("simple", "skill"), ("claude", "Skill")):
        session = runtime(tree, tool_profile=profile).session("ada", "chat")
        system = str(session.request([{"role": "user", "content": "x"}])[0]["content"])
        assert f"Use the {loader} tool to load a skill" in system


# The arguments that the default profile leaves out


def test_a_rare_argument_is_taken_though_it_is_not_offered(bench: Bench) -> None:
    bench.runtime = bench.open(tool_profile="default")
    [run] = [tool for tool in bench.runtime.tools() if tool.kind == "skill_run"]
    assert "cwd" not in run.schema["properties"]  # type: ignore[operator]
    assert bench.tool("pwd", cwd="$WORK_DIR").data["stdout"].strip().endswith("/work")  # type: ignore[attr-defined]


def test_no_run_begins_in_the_background_where_none_can_be_followed(bench: Bench) -> None:
    bench.runtime = bench.open(tool_profile="default")
    refused = bench.tool("true", background=True)
    assert refused.error == (
        "skill_run: unknown argument 'background'. It takes: skill, command, timeout?, inputs?, "
        "output_files?, stdin?"
    )


# JSON in, JSON out


def test_a_model_runs_a_script_on_json(bench: Bench) -> None:
    bench.write(
        "scripts/main.py", "import json,sys\nprint(json.dumps({'got': json.load(sys.stdin)}))"
    )
    bench.runtime = bench.open(tool_profile="default")
    done = bench.call("execute_skill", skill=SKILL, input={"a": 1})
    assert json.loads(done.text)["output"] == {"got": {"a": 1}}
    assert done.data["enforced"] and "enforced" not in done.text


def test_a_model_asks_before_it_runs_a_script(bench: Bench) -> None:
    bench.write("scripts/main.py", "print('{}')")
    bench.runtime = bench.open(tool_profile="default", rules=[])
    refused = bench.call("execute_skill", skill=SKILL)
    assert refused.data["error"]["kind"] == "permission_denied"  # type: ignore[index]
    bench.runtime = bench.open(require_load=True)
    assert (
        "execute_skill requires skill_load first" in bench.call("execute_skill", skill=SKILL).error
    )


# The names of Claude Code


@pytest.fixture
def claude(bench: Bench) -> Bench:
    bench.write("scripts/say.py", "import sys\nprint('said', *sys.argv[1:])\n")
    bench.write("notes.md", "".join(f"line {number}\n" for number in range(1, 6)))
    bench.runtime = bench.open(tool_profile="claude")
    return bench


def test_the_tools_are_those_of_claude_code_with_its_arguments(claude: Bench) -> None:
    made = {tool.name: list(tool.schema["properties"]) for tool in claude.runtime.tools()}  # type: ignore[call-overload]
    assert made == {
        "Skill": ["skill", "args"],
        "Read": ["file_path", "offset", "limit"],
        "Bash": ["command", "timeout", "description"],
    }


def test_a_skill_is_loaded_with_the_folder_that_both_other_tools_take(claude: Bench) -> None:
    loaded = claude.call("Skill", skill=SKILL).text
    assert loaded.startswith(f'<skill_content name="{SKILL}">')
    base = re.findall(r"Base directory for this skill: (.*)", loaded)[0]
    assert base == f"skills/{SKILL}"
    assert f"<file>{base}/notes.md</file>" in loaded
    ran = claude.call("Bash", command=f"python3 {base}/scripts/say.py a > out/said.txt; cat out/*")
    assert ran.text == "said a"
    assert claude.call("Read", file_path="out/said.txt").text.endswith("\nsaid a\n")
    piece = claude.call("Read", file_path=f"{base}/notes.md", offset=2, limit=2).text
    assert piece == "(line 2 on, of 5; next: offset 4)\nline 2\nline 3\n"


def test_a_command_belongs_to_the_skill_that_was_loaded_last(claude: Bench) -> None:
    refused = claude.call("Bash", command="echo a")
    assert refused.error == (
        "no skill is loaded: load one with Skill, or name it in the command (skills/NAME/...)"
    )
    claude.call("Skill", skill=SKILL)
    assert claude.call("Bash", command="echo $SKILL_NAME").text == SKILL
    assert claude.call("Bash", command="echo a; echo b >&2; exit 3").text == "Exit code 3\na\nb"
    assert claude.call("Bash", command="true").text == "(no output)"


def test_a_command_may_take_so_many_milliseconds(claude: Bench) -> None:
    claude.call("Skill", skill=SKILL)
    slow = claude.call("Bash", command="echo begun; sleep 60", timeout=1_000)
    assert slow.text.startswith("The command took too long and was stopped\nbegun")


def test_a_file_elsewhere_is_refused_with_what_can_be_read(claude: Bench) -> None:
    for path in ("/etc/passwd", "../x", "notes.md"):
        assert "give stored:... as a result gave it, skills/NAME/..., out/... or work/..." in (
            claude.call("Read", file_path=path).error
        )
    assert "leads out" in claude.call("Read", file_path=f"skills/{SKILL}/../../x").error
    assert claude.call("Read", file_path="skills/none/SKILL.md").error == "unknown skill: none"


def test_arguments_and_the_folder_are_in_the_text_of_a_skill(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/greet", text="Greet $ARGUMENTS with ${CLAUDE_SKILL_DIR}/hello.txt\n")
    session = runtime(tree, tool_profile="claude").session("ada", "chat")
    given = session.call_sync("Skill", {"skill": "greet", "args": "Ada Lovelace"}).text
    assert "Greet Ada Lovelace with skills/greet/hello.txt" in given


def test_a_run_is_asked_for_under_these_names_too(claude: Bench) -> None:
    claude.runtime = claude.open(tool_profile="claude", rules=[Rule("run", "rm *", "deny")])
    claude.call("Skill", skill=SKILL)
    assert claude.call("Bash", command="rm x").data["error"]["kind"] == "permission_denied"  # type: ignore[index]
