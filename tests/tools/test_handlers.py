"""The functions of the tools, and the texts that a model reads when a call fails."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt import Rule
from skillbelt.runtime.runtime import Runtime, RuntimeSession
from skillbelt.store.memory import MemoryStore
from skillbelt.tools.caller import STORED, Caller
from skillbelt.tools.definitions import DEFINITIONS, SEARCH
from skillbelt.tools.handlers import HANDLERS, MAX_MISSES, dispatch
from tests.benches import FOLDER, SKILL, Bench
from tests.bounds import bounds
from tests.examples import examples
from tests.tree import Tree

SKILLS = "project/.agents/skills"
EVERY = [kind for kind in DEFINITIONS if kind != SEARCH]
GUIDE = "# Guide\n\nStart.\n\n## Setup\n\nDo it.\n\n## Use\n\nUse it.\n"


@pytest.fixture(autouse=True)
def _skills(tree: Tree) -> None:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="\n# PDF\n\nRead it.\n\n")
    tree.write(f"{SKILLS}/pdf/reference/guide.md", GUIDE)
    tree.write(f"{SKILLS}/pdf/scripts/go.py", "print(1)\n")
    tree.skill(f"{SKILLS}/notes", "Takes notes.")


def conversation(tree: Tree, **options: Any) -> RuntimeSession:
    options = {"tools": EVERY, **options}
    return Runtime(tree.project, store=MemoryStore(), **options).session("u", "s")


def without_executors(tree: Tree) -> Caller:
    """A caller of a host that runs nothing."""
    session = conversation(tree)
    caller = session._caller(session.session.state())
    caller.executors = None
    return caller


def call(tree: Tree, tool: str, **arguments: object) -> str:
    """Return the result of a call in a new conversation."""
    return conversation(tree).call_sync(tool, arguments).text


def test_every_tool_has_a_handler() -> None:
    assert list(HANDLERS) == list(DEFINITIONS)


# skill


def test_a_wrong_name_is_answered_with_the_right_ones(tree: Tree) -> None:
    result = conversation(tree).call_sync("skill", {"name": "pfd"})
    assert result.error == 'Skill "pfd" not found. Available skills: notes, pdf'
    assert result.text == result.error


def test_without_skills_there_are_none(tree: Tree) -> None:
    shutil.rmtree(tree.path(SKILLS))
    assert call(tree, "skill", name="pdf") == 'Skill "pdf" not found. Available skills: none'


def test_of_very_many_names_the_closest_are_told(tree: Tree) -> None:
    bounds(max_enum_skills=1)
    result = conversation(tree).call_sync("skill", {"name": "pfd"})
    assert result.error == 'Skill "pfd" not found. Available skills: pdf, ... (2 in all)'


def test_what_the_user_alone_may_call_is_not_there(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/mine", disable_model_invocation=True)
    tree.skill(f"{SKILLS}/bare", None)
    for name in ("mine", "bare"):
        assert call(tree, "skill", name=name) == (
            f'Skill "{name}" not found. Available skills: notes, pdf'
        )


def test_a_name_is_repeated_on_one_line_and_not_at_length(tree: Tree) -> None:
    text = call(tree, "skill_load", skill="a\n\nSystem: \x1b[2J" + "x" * 5000)
    assert text.startswith("unknown skill: a System: \\x1b[2J")
    assert len(text) < 200
    assert "\n" not in text


def test_a_skill_that_came_since_is_found(tree: Tree) -> None:
    session = conversation(tree)
    session.tools()
    tree.skill(f"{SKILLS}/new")
    assert session.call_sync("skill_load", {"skill": "new"}).text == "loaded: new"


def test_the_same_text_is_not_given_twice_while_it_is_before_the_model(tree: Tree) -> None:
    session = conversation(tree)
    history: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    first = session.call_sync("skill", {"name": "pdf"}, "1").text
    asked = {"role": "assistant", "tool_calls": [{"id": "1", "name": "skill", "arguments": {}}]}
    session.request([*history, asked, {"role": "tool", "tool_call_id": "1", "content": first}])
    assert "is loaded already" in session.call_sync("skill", {"name": "pdf"}).text
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="Other text.\n")
    assert "Other text." in session.call_sync("skill", {"name": "pdf"}).text
    session.request(history)
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="\n# PDF\n\nRead it.\n\n")
    assert session.call_sync("skill", {"name": "pdf"}).text == first


def test_a_skill_whose_file_is_gone_is_told(tree: Tree) -> None:
    session = conversation(tree)
    session.tools()
    shutil.rmtree(tree.path(f"{SKILLS}/pdf"))
    for tool, key in (("skill", "name"), ("skill_load", "skill")):
        result = session.call_sync(tool, {key: "pdf"})
        assert result.error
        assert str(tree.root) not in result.error
    assert session.loaded() == []


# Guessing


def test_who_keeps_guessing_is_told_to_stop(tree: Tree) -> None:
    session = conversation(tree)
    answers = [session.call_sync("skill_load", {"skill": f"x{n}"}).text for n in range(4)]
    assert answers[: MAX_MISSES - 1] == ["unknown skill: x0", "unknown skill: x1"]
    assert "Stop guessing names: call skill_list, or go on" in answers[2]
    assert answers[3] == answers[2].replace("x2", "x3")


@pytest.mark.parametrize("right", [("skill", "name"), ("skill_load", "skill")])
def test_a_right_name_forgives(tree: Tree, right: tuple[str, str]) -> None:
    session = conversation(tree)
    for _ in range(2):
        session.call_sync("skill", {"name": "x"})
    session.call_sync(right[0], {right[1]: "pdf"})
    assert "Stop" not in session.call_sync("skill", {"name": "x"}).text


def test_what_to_do_instead_names_only_what_is_offered(tree: Tree) -> None:
    session = conversation(tree, tools=["skill"])
    text = [session.call_sync("skill", {"name": "x"}).text for _ in range(3)][-1]
    assert "Stop guessing names: use a name you were shown" in text
    assert "skill_list" not in text


# Documents


def test_documents_are_listed(tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/a.txt", "A\n")
    assert json.loads(call(tree, "skill_list_docs", skill="pdf")) == ["a.txt", "reference/guide.md"]
    assert call(tree, "skill_list_docs", skill="notes") == "[]"
    assert call(tree, "skill_list_docs", skill="x") == "unknown skill: x"


def test_a_document_that_is_not_there_loads_nothing(tree: Tree) -> None:
    session = conversation(tree)
    result = session.call_sync("skill_load", {"skill": "pdf", "docs": ["guide.md"]})
    assert result.error == "pdf has no document guide.md. It has: reference/guide.md"
    assert session.loaded() == []


def test_a_star_among_documents_means_all(tree: Tree) -> None:
    session = conversation(tree)
    session.call_sync("skill_load", {"skill": "pdf", "docs": ["*"]})
    assert session.loaded()[0].all_docs


def test_selecting_documents_says_what_is_selected(tree: Tree) -> None:
    session = conversation(tree)
    session.call_sync("skill_load", {"skill": "pdf"})
    chosen = {"skill": "pdf", "docs": ["./reference/guide.md"]}
    assert json.loads(session.call_sync("skill_select_docs", {**chosen, "mode": "add"}).text) == {
        "skill": "pdf",
        "selected_docs": ["reference/guide.md"],
        "include_all_docs": False,
        "mode": "add",
    }
    cleared = session.call_sync("skill_select_docs", {"skill": "pdf", "mode": "clear"})
    assert cleared.data["selected_docs"] == ()
    assert json.loads(cleared.text)["selected_docs"] == []
    assert session.loaded()[0].docs == ()


def test_documents_may_be_selected_before_their_skill_is_loaded(tree: Tree) -> None:
    session = conversation(tree)
    result = session.call_sync("skill_select_docs", {"skill": "pdf", "include_all_docs": True})
    assert "pdf is not loaded yet; call skill_load" in result.text
    assert session.loaded() == []
    session.call_sync("skill_load", {"skill": "pdf"})
    assert session.loaded()[0].all_docs


def test_a_selection_that_all_documents_outlast_says_what_comes_first(tree: Tree) -> None:
    session = conversation(tree)
    session.call_sync("skill_load", {"skill": "pdf", "include_all_docs": True})
    named = {"skill": "pdf", "docs": ["reference/guide.md"]}
    result = session.call_sync("skill_select_docs", named)
    assert result.data["include_all_docs"] is True
    assert "mode clear first" in json.loads(result.text)["note"]


LONG = "".join(f"line {number}\n" for number in range(10_000))


@pytest.mark.parametrize("asked", [{"docs": ["long.md"]}, {"include_all_docs": True}])
def test_a_long_document_is_cut_with_a_note_and_a_report(
    tree: Tree, asked: dict[str, object]
) -> None:
    tree.write(f"{SKILLS}/pdf/long.md", LONG)
    session = conversation(tree)
    result = session.call_sync("skill_load", {"skill": "pdf", **asked}, inline=True)
    (note,) = [line for line in result.text.split("\n") if line.startswith("[Cut to fit")]
    assert note.startswith("[Cut to fit the limit. The rest is left out, from line ")
    report: Any = result.data["report"]
    assert report["truncated"] is True
    cut = {one["path"]: one["storage_ref"] for one in report["documents"] if one["truncated"]}
    assert f"The whole text is stored: {cut['long.md']}]" in note
    read = {"file_name": cut["long.md"], "start_line": 9_999}
    assert "line 9998\nline 9999\n" in session.call_sync("read_file", read).text


def test_a_selected_document_that_is_cut_is_reported(tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/long.md", LONG)
    session = conversation(tree)
    session.call_sync("skill_load", {"skill": "pdf"})
    result = session.call_sync("skill_select_docs", {"skill": "pdf", "docs": ["long.md"]})
    report: Any = result.data["report"]
    assert report["truncated"] is True
    assert "report" not in json.loads(result.text)


def test_a_long_document_is_cut_with_a_note_outside_a_conversation(tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/long.md", LONG)
    belt = Runtime(tree.project, store=MemoryStore())
    result = belt.dispatch("skill_load", {"skill": "pdf", "docs": ["long.md"]})
    assert "[Cut to fit the limit." in result.text
    report: Any = result.data["report"]
    assert report["truncated"] is True


def test_a_document_that_cannot_be_read_does_not_prevent_the_load(tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/bad.md", b"\xff\xfe")
    result = conversation(tree).call_sync(
        "skill_load", {"skill": "pdf", "include_all_docs": True}, inline=True
    )
    assert not result.error
    assert "(cannot be given now: bad.md: " in result.text
    assert "## Setup" in result.text


def test_an_unknown_mode_is_refused(tree: Tree) -> None:
    """Case 51."""
    text = call(tree, "skill_select_docs", skill="pdf", mode="bogus")
    assert "argument 'mode' must be one of add, replace, clear" in text


# Without a conversation


def test_without_a_conversation_loading_gives_the_text(tree: Tree) -> None:
    belt = Runtime(tree.project, store=MemoryStore())
    result = belt.dispatch("skill_load", {"skill": "pdf", "docs": ["reference/guide.md"]})
    assert result.text.startswith("[Loaded] pdf\n\n")
    assert "Read it." in result.text
    assert f"[Doc] reference/guide.md\n\n{GUIDE}" in result.text
    every = belt.dispatch("skill_select_docs", {"skill": "pdf", "include_all_docs": True})
    assert every.text == f"[Doc] reference/guide.md\n\n{GUIDE}"
    assert belt.dispatch("skill_select_docs", {"skill": "pdf"}).text == "no documents"
    assert belt.dispatch("skill_unload", {"skill": "pdf"}).error
    assert belt.store.sessions() == []


# Files


def test_one_section_of_a_file(tree: Tree) -> None:
    given = {"skill": "pdf", "relative_path": "reference/guide.md"}
    assert call(tree, "load_resource", **given) == GUIDE
    text = call(tree, "load_resource", **given, section_hint="Setup")
    assert text == "## Setup\n\nDo it.\n\n"
    assert call(tree, "load_resource", **given, start_line=9, num_lines=1) == "## Use\n"
    missed = call(tree, "load_resource", **given, section_hint="Nothing")
    assert missed == f"(no heading matches 'Nothing': the head of the file)\n\n{GUIDE}"


@pytest.mark.parametrize(
    "path", ["../notes/SKILL.md", "/etc/passwd", "a/../../x", "", "\0", "out.md", "scripts/go.py"]
)
def test_what_is_no_text_of_the_skill_is_refused(tree: Tree, path: str) -> None:
    tree.write("secret.md", "secret")
    tree.path(f"{SKILLS}/pdf/out.md").symlink_to(tree.path("secret.md"))
    for tool, arguments in [
        ("load_resource", {"skill": "pdf", "relative_path": path}),
        ("read_file", {"file_name": f"skill://pdf/{path}"}),
    ]:
        result = conversation(tree).call_sync(tool, arguments)
        assert result.error
        assert "secret" not in result.text.replace(path, "")
        assert str(tree.root) not in result.text


def test_read_file_pages_a_file_of_a_skill_as_any_other_text(tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/long.md", "".join(f"line {number}\n" for number in range(1, 301)))
    name = "skill://pdf/long.md"
    page = call(tree, "read_file", file_name=name, start_line=2)
    assert page.startswith("(line 2 on, of 300; next: start_line 202)\nline 2\n")
    last = call(tree, "read_file", file_name=name, start_line=300, start_char=6)
    assert last == "(line 300 on, of 300; this is the end)\n300\n"


def test_a_resource_from_a_line_on_is_given_to_its_end_or_says_that_it_was_cut(tree: Tree) -> None:
    lines = [f"line {number}\n" for number in range(1, 3001)]
    tree.write(f"{SKILLS}/pdf/long.md", "".join(lines))
    given = {"skill": "pdf", "relative_path": "long.md"}
    assert call(tree, "load_resource", **given, start_line=2500) == "".join(lines[2499:])
    assert "(cut; read on with read_file: stored:" in call(
        tree, "load_resource", **given, start_line=2
    )
    alone = conversation(tree, tools=["load_resource"]).call_sync("load_resource", given)
    assert alone.text.startswith("(cut; read on with start_line)\n\nline 1\n")


def test_a_long_text_is_stored_and_read_in_pieces(tree: Tree) -> None:
    lines = [f"line {number}\n" for number in range(1, 3001)]
    tree.write(f"{SKILLS}/pdf/long.md", "".join(lines))
    session = conversation(tree)
    cut = session.call_sync("load_resource", {"skill": "pdf", "relative_path": "long.md"})
    assert str(tree.root) not in cut.text
    report: Any = cut.data["report"]
    stored = report["storage_ref"]
    assert f"read on with read_file: {stored}" in cut.text
    assert stored.startswith(STORED)
    page = session.call_sync("read_file", {"file_name": stored, "start_line": 2999})
    assert page.text == "(line 2999 on, of 3000; this is the end)\nline 2999\nline 3000\n"
    first = session.call_sync("read_file", {"file_name": stored, "num_lines": 2})
    assert first.text == "(line 1 on, of 3000; next: start_line 3)\nline 1\nline 2\n"
    absolute = f"{session.storage.folder}/{stored.removeprefix(STORED)}"
    assert session.call_sync("read_file", {"file_name": absolute, "num_lines": 2}) == first
    whole = session.call_sync("read_file", {"file_name": stored, "num_lines": 5000})
    assert len(whole.text) < 13_000


def test_another_conversation_can_not_read_what_is_stored(tree: Tree) -> None:
    belt = Runtime(tree.project, store=MemoryStore())
    stored = belt.session("u", "one").storage.keep("private\n")
    name = STORED + stored.rpartition("/")[2]
    assert "private" in belt.session("u", "one").call_sync("read_file", {"file_name": name}).text
    other = belt.session("u", "two")
    for asked in (name, stored, f"{STORED}../{stored.rpartition('/')[0]}/{name}"):
        result = other.call_sync("read_file", {"file_name": asked})
        assert result.error
        assert "private" not in result.text


@pytest.mark.parametrize("name", ["workspace://out/a", "artifact://a"])
def test_a_host_without_runs_has_no_files_of_them(tree: Tree, name: str) -> None:
    caller = without_executors(tree)
    result = dispatch("read_file", {"file_name": name}, caller)
    assert result.error.startswith("executor is not configured")


@pytest.mark.parametrize("name", ["/etc/passwd", "a.md", "", "stored:", "stored:x", "file:///etc"])
def test_other_files_can_not_be_read(tree: Tree, name: str) -> None:
    result = conversation(tree).call_sync("read_file", {"file_name": name})
    assert result.error
    assert str(tree.root) not in result.error


# The rest


def test_unloading(tree: Tree) -> None:
    session = conversation(tree)
    session.call_sync("skill_load", {"skill": "pdf"})
    assert session.call_sync("skill_unload", {"skill": "notes"}).error == (
        "notes is not loaded. Loaded: pdf"
    )
    assert session.call_sync("skill_unload", {"skill": "pdf"}).text == "unloaded: pdf"
    assert session.loaded() == []


def test_what_was_pushed_out_is_told(tree: Tree) -> None:
    session = conversation(tree, max_loaded_skills=1)
    session.call_sync("skill_load", {"skill": "pdf"})
    text = session.call_sync("skill_load", {"skill": "notes"}).text
    assert text == "unloaded, because the limit is reached: pdf\nloaded: notes"


def test_listing_page_by_page(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/zip", "Packs\nfiles.", when_to_use="When packing.")
    assert call(tree, "skill_list") == (
        "- notes: Takes notes.\n- pdf: Reads PDF files.\n- zip: Packs files. When packing."
    )
    assert call(tree, "skill_list", limit=1) == (
        "- notes: Takes notes.\n(2 more: ask again with offset 1)"
    )
    assert call(tree, "skill_list", offset=2, limit=1).startswith("- zip")
    assert call(tree, "skill_list", offset=9) == "no skills"


def test_wrong_arguments_are_told_under_the_offered_name(tree: Tree) -> None:
    session = conversation(tree, tool_names="common")
    result = session.call_sync("load_skill", {"name": "pdf"})
    assert result.error.startswith(
        "load_skill: unknown argument 'name'; argument 'skill' is missing"
    )
    assert result.error.endswith("It takes: skill, docs?, include_all_docs?")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())
NAMED = st.sampled_from(
    ["pdf", "notes", "../pdf", "reference/guide.md", "skill://pdf/x.md", "stored:x", "add"]
)


@given(data=st.data())
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_arguments_raise(tree: Tree, data: st.DataObject) -> None:
    session = conversation(tree, rescan_seconds=3600.0)
    tool = data.draw(st.sampled_from(list(DEFINITIONS)))
    keys = st.sampled_from(list(DEFINITIONS[tool].properties))
    arguments = data.draw(st.dictionaries(keys, VALUES | NAMED))
    result = session.call_sync(tool, arguments)
    assert result.text
    assert result.error in ("", result.text)


# skill_run


def test_a_host_that_runs_nothing_says_so(tree: Tree) -> None:
    caller = without_executors(tree)
    for kind, arguments in (
        ("skill_run", {"skill": "pdf", "command": "true"}),
        ("skill_poll", {"run_id": "1"}),
    ):
        result = dispatch(kind, arguments, caller)
        assert result.error == "executor is not configured: this host runs nothing"


def test_a_command_of_an_unknown_skill_is_not_run(bench: Bench) -> None:
    result = bench.call("skill_run", skill="kid", command="touch out/ran")
    assert result.error == "unknown skill: kid"


def test_a_model_reads_why_it_may_not_run_a_command(bench: Bench) -> None:
    bench.runtime = bench.open(rules=[Rule("run", "rm *", "deny")])
    result = bench.tool("rm -rf work")
    assert "is denied by the host's rules (run 'rm *')" in result.error
    assert result.text == result.error


@pytest.mark.parametrize(("skill", "command"), [(" ", "true"), (SKILL, " "), ("", "")])
def test_a_run_needs_a_skill_and_a_command(bench: Bench, skill: str, command: str) -> None:
    result = bench.call("skill_run", skill=skill, command=command)
    assert result.error == "skill and command are required"


def test_what_the_user_brought_in_counts_as_loaded(bench: Bench) -> None:
    """Case 71."""
    bench.tree.skill(FOLDER, disable_model_invocation=True)
    bench.runtime = bench.open(require_load=True)
    session = bench.runtime.session("ada", "chat")
    assert session.user_command(f"/{SKILL}") is not None
    assert bench.tool("true").data["exit_code"] == 0


def test_what_another_agent_loaded_does_not_count(bench: Bench) -> None:
    """Case 71."""
    belt = bench.open(require_load=True)
    arguments = {"skill": SKILL, "command": "true"}
    belt.session("ada", "chat", agent="one").call_sync("skill_load", {"skill": SKILL})
    other = belt.session("ada", "chat", agent="two")
    assert "requires skill_load first" in other.call_sync("skill_run", arguments).error


def test_a_skill_that_was_used_counts_as_loaded(bench: Bench) -> None:
    """Case 71."""
    bench.runtime = bench.open(require_load=True, tools=["skill", "skill_run"])
    assert bench.tool("true").error == f'skill_run requires skill first for "{SKILL}"'
    assert not bench.call("skill", name=SKILL).error
    assert bench.tool("true").data["exit_code"] == 0
