"""The choice of a skill's script, its input, and its result."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skillbelt import (
    Answer,
    Pending,
    PermissionDenied,
    Rule,
    RunRefused,
    Runtime,
    SandboxUnavailable,
)
from skillbelt.format.skill import Skill
from skillbelt.running.call import Asker
from skillbelt.running.following import Watch
from skillbelt.running.json_call import MAX_VARIABLE_BYTES, Execution, ExitStatus, denied, execute
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.registry import choose
from skillbelt.store import SessionKey
from tests import needs
from tests.bounds import bounds
from tests.registries import wheel
from tests.sandbox.guests import hosts
from tests.tree import NOBODY, Tree

FOLDER = "project/.agents/skills/tool"
ECHO = "import json, sys\njson.dump(json.load(sys.stdin), sys.stdout)\n"
WHO = Asker(SessionKey("tests", "somebody", "one"), "user")
RUN = Rule("run", "*", "allow")
NODE = needs.node


class Kit(NamedTuple):
    """A project with one skill, and how to execute it."""

    tree: Tree
    bench: Workbench
    skill: Skill

    def __call__(self, input: object = None, **options: Any) -> Execution:
        return execute(self.bench, self.skill, input, who=WHO, **options)


Make = Callable[..., Kit]


@pytest.fixture
def make(open_tree: Tree) -> Make:
    """A skill of these files; what else is given is a setting, `rules` or a frontmatter `field`."""

    def made(files: dict[str, str], rules: tuple[Rule, ...] = (RUN,), **options: Any) -> Kit:
        fields = {key: options.pop(key) for key in ("allowed_tools", "metadata") if key in options}
        folder = open_tree.skill(FOLDER, **fields)
        for path, text in files.items():
            open_tree.write(folder / path, text)
        belt = Runtime(open_tree.project, rules=rules, **options)
        bench = Workbench(belt.settings, belt.gate, belt.get_skill)
        return Kit(open_tree, bench, belt.get_skill("tool"))

    return made


# --- what a script is told -----------------------------------------------------------------------

TELL = """
import json, os, sys
names = [name for name in os.environ if name.startswith("SKILL_")]
told = {name: os.environ[name] for name in (*names, "TIMEOUT_MS", "PYTHONNOUSERSITE")}
json.dump({"told": told, "cwd": os.getcwd(), "stdin": sys.stdin.read()}, sys.stdout)
"""


def test_input_comes_on_stdin_and_in_the_environment(make: Make) -> None:
    done = make({"scripts/run.py": TELL})({"n": [1, "ä"]}, timeout_ms=20_000)
    assert done.exit_status == ExitStatus("success", 0)
    output: Any = done.output
    told = output["told"]
    assert json.loads(output["stdin"]) == json.loads(told["SKILL_INPUT"]) == {"n": [1, "ä"]}
    assert output["cwd"] == told["SKILL_ROOT"] == f"{told['SKILL_WORKSPACE']}/skills/tool"
    assert (told["SKILL_ID"], told["SKILL_NAME"]) == ("tool", "tool")
    assert (told["TIMEOUT_MS"], told["PYTHONNOUSERSITE"]) == ("20000", "1")


def test_without_an_input_it_is_null(make: Make) -> None:
    output: Any = make({"scripts/run.py": TELL})().output
    assert output["stdin"] == output["told"]["SKILL_INPUT"] == "null"


def test_a_variable_holds_as_much_as_is_promised(make: Make) -> None:
    done = make({"scripts/run.py": TELL})("x" * (MAX_VARIABLE_BYTES - 2))
    output: Any = done.output
    assert len(output["told"]["SKILL_INPUT"]) == MAX_VARIABLE_BYTES
    assert done.warnings == ("stdout truncated",)


def test_a_longer_input_comes_on_stdin_alone_and_that_is_said(make: Make) -> None:
    count = "import json, os, sys\nprint(len(json.load(sys.stdin)), 'SKILL_INPUT' in os.environ)"
    done = make({"scripts/run.py": count})("x" * 3_000_000)
    assert done.stdout == "3000000 False\n"
    assert done.warnings == ("SKILL_INPUT is not set: 3000002 bytes; the input is on stdin alone",)


@pytest.mark.long
def test_in_the_wasm_sandbox_the_variable_holds_all_of_it(make: Make) -> None:
    count = "console.log(process.env.SKILL_INPUT.length)"
    kit = make({"scripts/run.ts": count}, cache_dir=hosts().cache_dir)
    done = kit("x" * 3_000_000)
    assert (done.stdout, done.warnings) == ("3000002\n", ())


def test_an_input_beyond_the_limit_is_refused(make: Make) -> None:
    with pytest.raises(RunRefused, match="max_stdin_bytes"):
        bounds(max_stdin_bytes=100)
        make({"scripts/run.py": ECHO})("x" * 100)


@pytest.mark.parametrize("value", [{1, 2}, b"x", float("nan"), object()])
def test_what_is_no_json_is_refused(make: Make, value: object) -> None:
    with pytest.raises(RunRefused, match="the input is not JSON"):
        make({"scripts/run.py": ECHO})(value)


def test_an_input_in_a_circle_is_refused(make: Make) -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(RunRefused, match="the input is not JSON"):
        make({"scripts/run.py": ECHO})(circle)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("scripts/run.py", ECHO),
        ("scripts/run.sh", "cat"),
        ("scripts/run.bash", 'printf %s "$SKILL_INPUT"'),
        pytest.param("scripts/run.js", "process.stdin.pipe(process.stdout)", marks=NODE),
        pytest.param(
            "src/index.mjs",
            "import fs from 'node:fs'; console.log(fs.readFileSync(0, 'utf8'))",
            marks=NODE,
        ),
    ],
)
def test_each_language_is_run_by_its_interpreter(make: Make, path: str, text: str) -> None:
    assert make({path: text})({"a": 1}).output == {"a": 1}


def test_a_script_finds_the_modules_beside_it_and_the_files_of_the_skill(make: Make) -> None:
    run = "import helper, json; print(json.dumps([helper.X, open('data.txt').read()]))"
    files = {"scripts/run.py": run, "scripts/helper.py": "X = 1", "data.txt": "two"}
    assert make(files)(script="run").output == [1, "two"]


def test_a_name_that_looks_like_an_option_is_a_script(make: Make) -> None:
    assert make({"-c.py": ECHO})([1], script="-c.py").output == [1]


# --- what comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "output"),
    [
        ("print('[1, 2]')", [1, 2]),
        ("print('  {}  ')", {}),
        ("print('hello')", None),
        ("print('note'); print('{}')", None),
        ("print('NaN')", None),
        ("print('[' * 100_000)", None),
        ("print('9' * 10_000)", None),
        ("import sys; sys.stdout.buffer.write(b'\"\\xff\"')", None),
        ("pass", None),
    ],
)
def test_output_is_all_of_stdout_as_json(make: Make, printed: str, output: object) -> None:
    assert make({"scripts/run.py": printed})().output == output


def test_streams_are_kept_apart(make: Make) -> None:
    done = make({"scripts/run.py": "import sys; print('{}'); print('note', file=sys.stderr)"})()
    assert (done.output, done.stdout, done.stderr) == ({}, "{}\n", "note\n")


def test_output_is_whole_where_stdout_is_cut(make: Make) -> None:
    done = make({"scripts/run.py": "import json; print(json.dumps('x' * 1_000_000))"})()
    assert done.output == "x" * 1_000_000
    assert len(done.stdout) == 16 * 2**10
    assert (done.warnings, done.limits_hit) == (("stdout truncated",), ("max_stream_bytes",))


def test_too_much_stdout_gives_no_output(make: Make) -> None:
    kit = make(
        {"scripts/run.py": "print('[' + '1,' * 10_000 + '1]')"}, max_output_file_bytes=17_000
    )
    done = kit()
    assert done.output is None
    assert "stdout is longer than 17000 bytes (max_output_file_bytes)" in done.warnings[-1]


def test_a_script_that_fails_is_a_result_with_its_output(make: Make) -> None:
    done = make({"scripts/run.py": "import sys; print('{\"half\": 1}'); sys.exit(3)"})()
    assert done.exit_status == ExitStatus("failed", 3)
    assert done.output == {"half": 1}


def test_a_script_that_takes_too_long_is_ended_and_its_output_kept(make: Make) -> None:
    done = make({"scripts/run.sh": "echo begun; exec sleep 60"})(timeout_ms=700)
    assert done.exit_status == ExitStatus("timeout", 124)
    assert done.stdout == "begun\n"
    assert done.limits_hit == ("timeout_ms",)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"run_timeout_seconds": 0.7}, "run_timeout_seconds"),
        ({}, "exec_timeout_seconds"),
    ],
)
def test_the_timeout_that_ended_it_is_named(make: Make, options: Any, named: str) -> None:
    bounds(exec_timeout_seconds=0.8)
    done = make({"scripts/run.sh": "exec sleep 60"}, **options)()
    assert done.limits_hit == (named,)


def test_nobody_gets_more_time_than_a_run_may_take(make: Make) -> None:
    kit = make({"scripts/run.sh": 'echo "$TIMEOUT_MS"'}, run_timeout_seconds=7)
    done = kit(timeout_ms=60_000)
    assert done.output == 7000
    assert "timeout was lowered from 60 to 7 seconds" in done.warnings[0]
    assert kit().output == 7000


def test_the_time_is_a_setting(make: Make) -> None:
    bounds(exec_timeout_seconds=5)
    kit = make({"scripts/run.sh": 'echo "$TIMEOUT_MS"'})
    assert kit().output == 5000


@pytest.mark.parametrize("timeout_ms", [-1, 1.5, True, "5"])
def test_a_time_that_is_none_is_refused(make: Make, timeout_ms: object) -> None:
    with pytest.raises(RunRefused, match="timeout_ms must be a whole number"):
        make({"scripts/run.py": ECHO})(timeout_ms=timeout_ms)


def test_output_is_heard_while_it_runs(make: Make) -> None:
    heard: list[tuple[str, bytes]] = []
    kit = make({"scripts/run.py": "print('{}')"})
    kit(watch=Watch(lambda stream, data: heard.append((stream, data))))
    assert heard == [("stdout", b"{}\n")]


def test_the_result_as_json(make: Make) -> None:
    document = make({"scripts/run.py": "print('{}')"}, allowed_tools=["Read"])().document()
    assert json.loads(json.dumps(document)) == document
    assert list(document)[:6] == [
        "output", "stdout", "stderr", "permissions_used", "exit_status", "enforced",
    ]  # fmt: skip
    assert document["permissions_used"] == ["Read"]
    assert document["exit_status"] == {"kind": "success", "code": 0}
    assert "limits_hit" not in document


def test_a_result_says_what_was_enforced_and_by_what(make: Make) -> None:
    kit = make({"scripts/run.py": "pass"})
    done = kit()
    assert done.sandbox == choose().name
    assert done.enforced["network"].startswith("none")


def test_a_module_is_not_run_in_another_sandbox(make: Make) -> None:
    kit = make({"wasm/skill.wasm": "", "scripts/run.py": ECHO}, sandbox="bubblewrap")
    with pytest.raises(SandboxUnavailable, match=r"needs the sandbox 'wasm'.* name a script"):
        kit()
    assert kit([1], script="run").output == [1]


# --- what a script may do ------------------------------------------------------------------------

START = """
import json, os, subprocess
def tried(start):
    try:
        return str(start())
    except OSError as error:
        return type(error).__name__
print(json.dumps({
    "child": tried(lambda: subprocess.run(["/bin/true"]).returncode),
    "spawn": tried(lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1]),
}))
"""
STARTED = {"child": "0", "spawn": "0"}
NOT_STARTED = dict.fromkeys(STARTED, "PermissionError")


@pytest.mark.parametrize("tools", [["Read"], ["Read", "Write", "WebFetch"], ["Other"]])
def test_without_a_tool_for_commands_no_process_is_started(make: Make, tools: list[str]) -> None:
    kit = make({"scripts/run.py": START}, allowed_tools=tools)
    assert kit().output == NOT_STARTED
    assert kit().enforced["child processes"].startswith("none")


@pytest.mark.parametrize("tool", ["Bash", "Terminal"])
def test_with_a_tool_for_commands_processes_are_started(make: Make, tool: str) -> None:
    done = make({"scripts/run.py": START}, allowed_tools=["Read", tool])()
    assert done.output == STARTED
    assert done.permissions_used == ("Read", tool)


def test_a_tool_that_is_declared_for_some_commands_is_granted_like_a_whole_one(make: Make) -> None:
    done = make({"scripts/run.py": START}, allowed_tools=["Bash(git *)"])()
    assert (done.output, done.permissions_used) == (STARTED, ("Bash(git *)",))


def test_a_shell_script_without_a_tool_for_commands_has_its_builtins(make: Make) -> None:
    text = 'read -r line; [[ $line == "[1, 2]" ]] && for n in 1 2; do printf "%s" "$n"; done'
    kit = make({"scripts/run.sh": text, "scripts/ls.sh": "ls"}, allowed_tools=["Read"])
    assert kit([1, 2], script="run").output == 12
    failed = kit([1, 2], script="ls")
    assert failed.exit_status.kind == "failed"
    assert "fork" in failed.stderr


def test_a_skill_that_declares_no_tools_is_not_restricted(make: Make) -> None:
    done = make({"scripts/run.py": START})()
    assert done.output == STARTED
    assert done.permissions_used == ()


def test_a_skill_that_declares_no_tools_can_be_denied_them(make: Make) -> None:
    assert make({"scripts/run.py": START}, empty_allowed_tools="deny")().output == NOT_STARTED


def test_what_the_host_denies_is_not_granted_and_that_is_said(make: Make) -> None:
    """Case 91."""
    rules = (RUN, Rule("tool", "Bash", "deny"))
    done = make({"scripts/run.py": START}, rules, allowed_tools=["Bash"])()
    assert done.output == NOT_STARTED
    assert done.permissions_used == ()
    assert done.warnings[0].startswith("not granted: Bash: ")


@pytest.mark.parametrize("tools", [["Bash"], ["bash"], ["Bash(ls *)"], []])
@pytest.mark.parametrize("named", ["Bash", "*"])
def test_an_ask_about_a_tool_is_asked_whatever_the_skill_declares(
    make: Make, tools: list[str], named: str
) -> None:
    rules = (RUN, Rule("tool", named, "ask"))
    options = {"allowed_tools": tools} if tools else {}
    done = make({"scripts/run.py": START}, rules, **options)()
    assert done.output == NOT_STARTED
    assert done.permissions_used == ()
    assert done.warnings[0].startswith(f"not granted: {tools[0] if tools else 'Bash'}: ")


def test_what_is_asked_about_a_tool_can_be_answered(make: Make) -> None:
    seen: list[Pending] = []

    def yes(pending: Pending) -> Answer:
        seen.append(pending)
        return Answer("once")

    kit = make({"scripts/run.py": START}, (RUN, Rule("tool", "Bash", "ask")), ask=yes,
               allowed_tools=["Bash"])  # fmt: skip
    assert kit().output != NOT_STARTED
    assert [one.request.type for one in seen] == ["tool"]


def test_without_a_sandbox_what_a_skill_declares_is_asked_for(make: Make) -> None:
    done = make({"scripts/run.py": ECHO}, sandbox="none", allowed_tools=["Bash"])()
    assert done.permissions_used == ()
    assert done.warnings[0].startswith("not granted: Bash: ")


def test_a_folder_with_something_denied_in_it_is_not_opened(make: Make) -> None:
    run = "import os; print(len(os.listdir('/srv')))"
    rules = (RUN, Rule("host_file", "/srv/*/private/*", "deny"))
    kit = make({"scripts/run.py": run}, rules, allowed_tools=["Read"], host_roots=["/srv"])
    assert any("a rule denies '/srv/*/private/*'" in one for one in kit().warnings)


REACH = """
import json, urllib.error, urllib.request
def tried(url):
    try:
        return urllib.request.urlopen(url, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
print(json.dumps([tried("http://named.invalid/"), tried("http://other.invalid/")]))
"""
NET = (RUN, Rule("tool", "*", "allow"))
ALLOWED = Rule("network", "named.invalid", "allow")


@pytest.mark.parametrize(
    ("tool", "rules", "answers"),
    [
        ("WebFetch(domain:named.invalid)", (*NET, ALLOWED), [502, 403]),
        ("WebFetch(domain:named.invalid)", NET, [None, None]),
        ("WebFetch", (*NET, ALLOWED), [None, None]),
        (
            "WebFetch(domain:named.invalid)",
            (RUN, ALLOWED, Rule("tool", "WebFetch", "deny")),
            [None, None],
        ),
    ],
    ids=["named and allowed", "not allowed", "not named", "tool not granted"],
)
def test_a_host_is_reached_when_it_is_named_and_allowed(
    make: Make, tool: str, rules: tuple[Rule, ...], answers: list[int | None]
) -> None:
    """The proxy answers 403 for a refused host, 502 for an unknown one."""
    done = make({"scripts/run.py": REACH}, rules, allowed_tools=[tool])()
    assert done.output == answers, done.stderr


def test_a_tool_without_a_host_opens_those_of_the_settings(make: Make) -> None:
    hosts = ["named.invalid"]
    kit = make(
        {"scripts/run.py": REACH}, (*NET, ALLOWED), allowed_tools=["Fetch"], fetch_hosts=hosts
    )
    done = kit()
    assert (done.output, done.permissions_used) == ([502, 403], ("Fetch",))
    assert done.warnings == (
        "refused: other.invalid is not among the hosts this run may reach (named.invalid)",
    )


def test_each_host_of_the_settings_is_asked_for(make: Make) -> None:
    seen: list[tuple[str, ...]] = []

    def no(pending: Pending) -> Answer:
        seen.append(pending.request.patterns)
        return Answer("reject")

    hosts = ["a.invalid", "b.invalid"]
    kit = make({"scripts/run.py": "pass"}, NET, ask=no, allowed_tools=["Fetch"], fetch_hosts=hosts)
    done = kit()
    assert seen == [("a.invalid",), ("b.invalid",)]
    assert done.permissions_used == ()
    assert [text.partition(":")[0] for text in done.warnings] == [
        "a.invalid is not opened",
        "b.invalid is not opened",
    ]


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("Fetch", "Fetch opens no host: it names no host, and the setting fetch_hosts lists none"),
        ("WebFetch(domain:a b)", "WebFetch(domain:a b) opens no host: 'a b' names no host"),
        ("WebFetch(domain:192.0.2.2:8766)", "192.0.2.2:8766 is not opened: it is not a public"),
        ("WebFetch(domain:localhost:8765)", "localhost:8765 is not opened: it is this machine"),
    ],
)
def test_a_host_that_is_not_opened_is_told(make: Make, tool: str, said: str) -> None:
    rules = (*NET, Rule("network", "*", "allow"))
    done = make({"scripts/run.py": "pass"}, rules, allowed_tools=["Read", tool])()
    assert len(done.warnings) == 1
    assert done.warnings[0].startswith(said)
    assert done.permissions_used == ("Read",)


def test_a_tool_that_reads_opens_the_roots_of_the_settings_and_no_others(make: Make) -> None:
    run = (
        "import sys, json, os\nprint(json.dumps([os.path.exists(p) for p in json.load(sys.stdin)]))"
    )
    kit = make({"scripts/run.py": run}, allowed_tools=["Read"])
    root, other = kit.tree.path("data"), kit.tree.path("other")
    for folder in (root, other):
        kit.tree.write(folder / "x.txt", "x")
    paths = [str(root / "x.txt"), str(other / "x.txt"), str(kit.tree.project)]
    assert kit(paths).output == [False, False, False]
    opened = make({"scripts/run.py": run}, allowed_tools=["Read"], host_roots=[str(root)])
    assert opened(paths).output == [True, False, False]
    closed = make({"scripts/run.py": run}, allowed_tools=["Bash"], host_roots=[str(root)])
    assert closed(paths).output == [False, False, False]


LOOK = "import json, os, sys\nprint(json.dumps(os.path.exists(json.load(sys.stdin))))"


def test_a_skill_that_declares_no_tools_reads_the_same_roots(make: Make) -> None:
    path = make({}).tree.write("data/x.txt", "x")
    assert make({"scripts/run.py": LOOK}, host_roots=[str(path.parent)])(str(path)).output is True
    assert make({"scripts/run.py": LOOK})(str(path)).output is False


@pytest.mark.parametrize("tools", [["Read"], []])
@pytest.mark.parametrize("action", ["ask", "deny"])
def test_a_rule_about_reading_counts_whatever_the_skill_declares(
    make: Make, tools: list[str], action: Any
) -> None:
    path = make({}).tree.write("data/x.txt", "x")
    options = {"allowed_tools": tools} if tools else {}
    rules = (RUN, Rule("tool", "Read", action))
    kit = make({"scripts/run.py": LOOK}, rules, host_roots=[str(path.parent)], **options)
    done = kit(str(path))
    assert done.output is False
    assert done.warnings[0].startswith("not granted: Read: ")


def test_a_root_that_runs_can_not_reach_is_said(make: Make) -> None:
    kit = make({"scripts/run.py": "pass"}, allowed_tools=["Read"], host_roots=["/nowhere/at/all"])
    assert kit().warnings == ("/nowhere/at/all cannot be read by runs",)


def test_a_script_writes_to_the_workspace_and_not_to_the_skill(make: Make) -> None:
    run = """
import json, os
def writes(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return type(error).__name__
    return "yes"
print(json.dumps([writes(path) for path in ("out/a", "work/a", "a", "scripts/a", "/tmp/a")]))
"""
    assert make({"scripts/run.py": run})().output == ["yes", "yes", "OSError", "OSError", "yes"]


# --- permission ----------------------------------------------------------------------------------


def test_who_may_not_run_it_is_told(make: Make) -> None:
    kit = make({"scripts/run.py": "raise SystemExit"}, ())
    with pytest.raises(PermissionDenied) as refused:
        kit()
    result = denied(refused.value)
    assert result.exit_status == ExitStatus("permission_denied", None, refused.value.reason)
    assert result.document()["exit_status"] == {
        "kind": "permission_denied",
        "code": None,
        "reason": refused.value.reason,
    }


def test_a_rule_names_the_interpreter_and_the_script(make: Make) -> None:
    files = {"scripts/a.py": ECHO, "scripts/b.py": ECHO}
    kit = make(files, (Rule("run", "python3 scripts/a.py", "allow"),))
    assert kit(1, script="a").output == 1
    with pytest.raises(PermissionDenied):
        kit(1, script="b")


def test_an_execution_is_recorded(make: Make) -> None:
    kit = make({"scripts/run.py": "raise SystemExit(3)"})
    kit()
    [event] = kit.bench.gate.audit.read(type="run")
    assert (event.skill, event.data["exit_code"]) == ("tool", 3)
    assert event.data["command"] == "python3 scripts/run.py"


def test_packages_of_the_script_are_asked_for(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path, "greet", {})
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    block = "# /// script\n# dependencies = ['greet==1.0']\n# ///\n"
    with pytest.raises(PermissionDenied, match=r"install 1 Python package: greet==1\.0"):
        make({"scripts/run.py": block + ECHO})()


# --- an ordinary user ----------------------------------------------------------------------------

ORDINARY = """
from skillbelt import Rule, Runtime
from skillbelt.running.call import Asker
from skillbelt.running.workbench import Workbench
from skillbelt.running.json_call import execute
from skillbelt.store import SessionKey
belt = Runtime(os.getcwd(), rules=[Rule("run", "*", "allow")])
bench = Workbench(belt.settings, belt.gate, belt.get_skill)
who = Asker(SessionKey("tests", "somebody", "one"), "user")
done = [execute(bench, belt.get_skill(name), who=who).document() for name in ("few", "many")]
json.dump(done, sys.stdout)
"""


def test_an_ordinary_user_gets_the_same(open_tree: Tree) -> None:
    for name, tool in (("few", "Read"), ("many", "Bash")):
        skill = open_tree.skill(f"project/.agents/skills/{name}", allowed_tools=[tool])
        open_tree.write(skill / "scripts/run.py", START)
    few, many = json.loads(open_tree.as_user(ORDINARY))
    assert (few["output"], many["output"]) == (NOT_STARTED, STARTED)
    user = NOBODY if os.getuid() == 0 else os.getuid()
    assert few["enforced"]["user"] == f"uid {user}, no capabilities"
    assert (few["permissions_used"], many["permissions_used"]) == (["Read"], ["Bash"])
