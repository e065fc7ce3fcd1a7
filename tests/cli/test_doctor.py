from __future__ import annotations

import json
from typing import Any

import pytest

from skillbelt.cli import doctor as cli_doctor
from skillbelt.cli import main
from skillbelt.sandbox import registry
from skillbelt.sandbox.linux import cgroups
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.process.run import ProcessRun
from skillbelt.sandbox.process.supervised import supervised_plan
from skillbelt.sandbox.protocol import Job, Listener, Running, Sandbox
from skillbelt.testing.probes import FILES, PROBES, Probe
from tests.sandbox.guests import hosts
from tests.terminal import on_terminal
from tests.tree import Tree


def diagnosed(tree: Tree) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(tree.run("doctor", "--json").stdout)
    return document


def test_json_has_the_promised_keys(tree: Tree) -> None:
    document = diagnosed(tree)
    assert {"roots", "sandboxes", "matrix"} <= document.keys()
    assert isinstance(document["sandboxes"], list)
    assert isinstance(document["matrix"], list)


def test_what_is_no_resource_for_mcp_clients_is_told(tree: Tree) -> None:
    head = "---\nname: listed\ndescription: Lists.\nallowed-tools: [Read]\n---\nBody.\n"
    file = tree.write("project/.agents/skills/listed/SKILL.md", head)
    tree.skill("project/.agents/skills/right", "Follows the format.")
    [told] = diagnosed(tree)["diagnostics"]
    assert (told["code"], told["severity"]) == ("mcp-not-published", "info")
    assert (told["path"], told["line"]) == (str(file), 4)
    assert "allowed-tools is a list" in told["message"]
    assert told["remedy"]
    shown = tree.run("doctor").stdout
    assert "no problems" in shown
    assert "1 skill for MCP clients through tools only (--verbose says why)" in shown
    assert "listed/SKILL.md:4" in tree.run("doctor", "--verbose").stdout


def test_roots_stand_in_order_of_precedence(tree: Tree) -> None:
    tree.git()
    tree.path("project/deep").mkdir()
    tree.setenv("SKILLBELT_PATHS", tree.path("mine"))
    expected = [
        ("mine/a", "explicit", ""),
        ("project/deep/.skillbelt/skills/b", "project", "skillbelt"),
        ("project/deep/.agents/skills/c", "project", "agents"),
        ("project/deep/.claude/skills/d", "project", "claude"),
        ("project/.agents/skills/e", "project", "agents"),
        ("home/.agents/skills/f", "user", "agents"),
        ("home/.config/agents/skills/g", "user", "agents"),
        ("home/.claude/skills/h", "user", "claude"),
    ]
    for path, _, _ in reversed(expected):
        tree.skill(path)
    done = tree.run("doctor", "--json", project="project/deep")
    roots = [root for root in json.loads(done.stdout)["roots"] if root["exists"]]
    assert [(root["path"], root["scope"], root["client"]) for root in roots] == [
        (str(tree.path(path).parent), scope, client) for path, scope, client in expected
    ]
    assert all(root["skills"] == 1 for root in roots)


def test_roots_say_what_each_gave_and_lost(tree: Tree) -> None:
    winner = tree.skill("project/.agents/skills/pdf")
    loser = tree.skill("home/.agents/skills/pdf")
    tree.skill("home/.agents/skills/text")
    document = diagnosed(tree)
    first, second = (root for root in document["roots"] if root["exists"])
    assert (first["skills"], first["shadowed"], first["files_read"]) == (1, [], 1)
    assert (second["skills"], second["shadowed"]) == (2, [f"{loser}/SKILL.md"])
    (why,) = document["diagnostics"]
    assert why["code"] == "shadowed"
    assert f"{winner}/SKILL.md (project) shadows {loser}/SKILL.md (user)" in why["message"]


def test_absent_roots_are_listed_too(tree: Tree) -> None:
    roots = diagnosed(tree)["roots"]
    assert str(tree.path("project/.agents/skills")) in [root["path"] for root in roots]
    assert not any(root["exists"] for root in roots)


def test_no_errors_is_exit_0(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    done = tree.run("doctor")
    assert done.exit_code == 0
    assert "1 skill, 0 shadowed, 0 hidden\nno problems\n" in done.stdout


def test_warnings_are_exit_0_and_errors_exit_1(tree: Tree) -> None:
    tree.write("project/.agents/skills/x/SKILL.md", "Only text.\n")
    assert tree.run("doctor").exit_code == 0
    tree.write("project/.agents/skills/y/SKILL.md", b"\xff")
    assert tree.run("doctor").exit_code == 1
    assert tree.run("doctor", "--json").exit_code == 1


def test_text_shows_roots_in_order_and_every_problem_with_its_remedy(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    tree.skill("home/.agents/skills/pdf")
    file = tree.write("project/.agents/skills/bad/SKILL.md", b"\xff")
    out = tree.run("doctor").stdout
    project, home = (tree.path(f"{place}/.agents/skills") for place in ("project", "home"))
    assert f"  1 skill                {project} (project, agents)\n" in out
    assert f"  1 skill, 1 shadowed    {home} (user, agents)\n" in out
    assert out.index(str(project)) < out.index(str(home))
    assert "1 skill, 1 shadowed, 0 hidden\n2 problems:\n" in out
    assert f"  {file}:1: error not-utf8: the file is not UTF-8\n    save it as UTF-8\n" in out


def test_verbose_names_the_absent_folders(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    absent = str(tree.path("home/.claude/skills"))
    assert absent not in tree.run("doctor").stdout
    assert f"absent                 {absent}" in tree.run("doctor", "-v").stdout


def test_absent_folders_are_counted(tree: Tree) -> None:
    number = len(diagnosed(tree)["roots"])
    assert f"  all {number} are absent (--verbose lists them)\n" in tree.run("doctor").stdout
    tree.skill("project/.agents/skills/pdf")
    assert f"  {number - 1} more are absent (--verbose" in tree.run("doctor").stdout


def test_a_missing_folder_that_was_asked_for_is_named(tree: Tree) -> None:
    tree.setenv("SKILLBELT_PATHS", tree.path("nowhere"))
    out = tree.run("doctor").stdout
    assert f"absent                 {tree.path('nowhere')} (explicit)" in out
    assert "root-missing" in out


def test_a_terminal_gets_the_same(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    screen = on_terminal(tree, "doctor")
    assert screen.lines == tree.run("doctor").stdout.splitlines()


class Braggart(NoSandbox):
    """Says that it keeps files apart, and does not."""

    name = "braggart"
    level = 1

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        return ProcessRun(supervised_plan(job, {"files": "with my bare hands"}), job, listener)


class Missing(NoSandbox):
    name = "missing"
    level = 3

    def unavailable(self) -> str | None:
        return "nobody has built it: \x1b[2Jbuild it"


def few(monkeypatch: pytest.MonkeyPatch, *sandboxes: Sandbox, attacks: tuple[Probe, ...]) -> None:
    """The command in this process, with fewer attacks; those that are left are real."""
    monkeypatch.setattr(cli_doctor, "PROBES", attacks)
    monkeypatch.setattr(cli_doctor, "_print_groups", lambda: None)
    native = [one for one in sandboxes if one.level]
    monkeypatch.setattr(registry, "auto_sandboxes", lambda *_: native)
    monkeypatch.setattr(registry, "sandboxes", lambda *_, **__: sandboxes)


def doctor(tree: Tree, *options: str) -> int:
    return main(["doctor", "--project", str(tree.project), *options])


def test_every_sandbox_is_listed_the_strongest_first(tree: Tree) -> None:
    document = diagnosed(tree)
    assert document["sandboxes"] == [
        {
            "name": sandbox.name,
            "level": sandbox.level,
            "available": sandbox.unavailable() is None,
            "reason": sandbox.unavailable(),
        }
        for sandbox in registry.sandboxes()
    ]
    assert document["matrix"] == []


def test_a_sandbox_that_can_not_be_used_says_why(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few(monkeypatch, Missing(), Braggart(), NoSandbox(), attacks=())
    assert doctor(tree) == 0
    assert capsys.readouterr().out.endswith(
        "no problems\ncommands run in the sandbox braggart\n"
        "  missing cannot be used: nobody has built it: \\x1b[2Jbuild it\n"
    )
    assert doctor(tree, "--verbose") == 0
    assert "  none works too, but it enforces nothing\n" in capsys.readouterr().out
    assert doctor(tree, "--json") == 0
    first = json.loads(capsys.readouterr().out)["sandboxes"][0]
    assert (first["available"], first["reason"]) == (False, Missing().unavailable())


def test_without_a_control_group_it_is_told_how_to_have_one(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "hierarchy", lambda: None)
    assert doctor(tree) == 0
    assert "`systemd-run --user --scope -p Delegate=yes skillbelt ...`" in capsys.readouterr().out
    monkeypatch.setattr(cgroups, "hierarchy", lambda: cgroups.Hierarchy(2, ("/sys/fs/cgroup",)))
    assert doctor(tree) == 0
    assert "systemd-run" not in capsys.readouterr().out


def test_nothing_is_tried_once_a_sandbox_works(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Untouched(Missing):
        def unavailable(self) -> str | None:
            raise AssertionError

    few(monkeypatch, Braggart(), Untouched(), attacks=())
    assert doctor(tree) == 0


@pytest.mark.parametrize(
    "wanted, told",
    [
        ("landlock", "commands run in the sandbox landlock"),
        ("none", "commands run without a sandbox, as the settings say"),
        ("missing", "commands cannot run: the sandbox 'missing' cannot be used: nobody has"),
        ("jail", "commands cannot run: no sandbox named 'jail'; there are: auto, missing"),
    ],
)
def test_the_sandbox_of_the_settings_is_the_one(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    wanted: str, told: str,
) -> None:  # fmt: skip
    few(monkeypatch, Missing(), LandlockSandbox(), NoSandbox(), attacks=())
    tree.setenv("SKILLBELT_SANDBOX", wanted)
    assert doctor(tree) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("commands ")).startswith(told)
    weaker = lines[-1].startswith(
        "  it does not enforce: names, modes and times of your other files"
    )
    assert weaker == (wanted == "landlock")


def test_without_any_sandbox_that_is_told(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few(monkeypatch, Missing(), NoSandbox(), attacks=FILES[:1])
    assert doctor(tree) == 0
    assert capsys.readouterr().out.endswith(
        "commands cannot run: no sandbox can be used here; missing: nobody has built it: "
        "\\x1b[2Jbuild it\n"
    )
    assert doctor(tree, "--sandbox") == 5
    assert doctor(tree, "--sandbox", "--json") == 5


def test_an_attack_that_succeeds_is_exit_1(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few(monkeypatch, LandlockSandbox(), Braggart(), attacks=FILES[:2])
    assert doctor(tree, "--sandbox") == 1
    out = capsys.readouterr().out
    assert f"{FILES[0].name}\t1\tstopped\tsucceeded\n" in out
    assert "landlock: 2 attacks, 2 stopped\n" in out
    assert "braggart: 2 attacks, 2 succeeded\n" in out
    assert f"  succeeded: {FILES[0].name} (" in out
    assert doctor(tree, "--sandbox", "--json") == 1
    rows = json.loads(capsys.readouterr().out)["matrix"]
    assert rows[-1].keys() == {"attack", "number", "sandbox", "outcome", "detail"}
    assert [row["outcome"] for row in rows] == ["stopped"] * 2 + ["succeeded"] * 2


def test_an_attack_that_can_not_be_carried_out_is_exit_1(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few(monkeypatch, LandlockSandbox(), attacks=(Probe("stumble", (1, 2), "files", "1 / 0"),))
    assert doctor(tree, "--sandbox") == 1
    out = capsys.readouterr().out
    assert "stumble\t1, 2\tunclear\n" in out
    assert "landlock: 1 attack, 1 unclear\n  unclear: stumble (exit 1: " in out


def test_what_is_not_claimed_is_told_and_is_exit_0(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attacks = tuple(probe for probe in FILES if probe.claim == "file modes")
    few(monkeypatch, LandlockSandbox(), attacks=attacks)
    assert doctor(tree, "--sandbox") == 0
    assert f"  not claimed: {attacks[0].name} (not enforced: modes" in capsys.readouterr().out


def test_a_sandbox_that_holds_nothing_back_is_not_attacked(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few(monkeypatch, LandlockSandbox(), NoSandbox(), attacks=FILES[:1])
    assert doctor(tree, "--sandbox", "--json") == 0
    assert {row["sandbox"] for row in json.loads(capsys.readouterr().out)["matrix"]} == {"landlock"}


SOME = """
import sys
from skillbelt.cli import doctor, main
doctor.PROBES = doctor.PROBES[::6]
sys.exit(main())
"""


@pytest.mark.long
def test_every_sandbox_of_this_machine_is_attacked(tree: Tree) -> None:
    """With some of the attacks; all of them are carried out by the tests of the sandboxes."""
    tree.setenv("SKILLBELT_CACHE_DIR", hosts().cache_dir)  # an interpreter takes long to build
    done = tree.python("-c", SOME, "doctor", "--sandbox", "--json", timeout=500)
    document = json.loads(done.stdout)
    assert (done.exit_code, done.stderr) == (0, "")
    usable = [one["name"] for one in document["sandboxes"] if one["available"] and one["level"]]
    assert {"bubblewrap", "landlock"} <= set(usable)
    for name in usable:
        rows = [row for row in document["matrix"] if row["sandbox"] == name]
        assert [(row["attack"], row["number"]) for row in rows] == [
            (probe.name, number) for probe in PROBES[::6] for number in probe.numbers
        ]
    assert {row["outcome"] for row in document["matrix"]} <= {"stopped", "not claimed"}


PROGRAM = """
import sys
from skillbelt.cli import doctor, main
from skillbelt.sandbox import registry
doctor.PROBES = doctor.PROBES[:2]
registry.sandboxes = lambda *_, **__: (registry.LandlockSandbox(),)
sys.exit(main())
"""


def test_a_terminal_shows_how_far_it_is_and_a_table(tree: Tree) -> None:
    screen = on_terminal(tree, "doctor", "--sandbox", program=("-c", PROGRAM))
    assert screen.exit_code == 0, screen.written
    assert f"attacking landlock: 2 of 2, {FILES[1].name}" in screen.written
    assert ["attack", "number", "landlock"] in [line.split() for line in screen.lines]
    assert screen.lines[-1] == "landlock: 2 attacks, 2 stopped"
    assert not any("attacking" in line for line in screen.lines)


def test_a_broken_rule_is_a_problem_for_doctor_and_list(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    path = tree.write("home/.config/skillbelt/config.toml", '[permission]\nrun = "perhaps"\n')
    for command, code in (("doctor", 1), ("list", 0)):
        done = tree.run(command)
        assert done.exit_code == code
        assert f"{path}:2: error rules-wrong: action must be one of" in done.stdout + done.stderr
        [said] = [
            one
            for one in tree.run(command, "--json").document["diagnostics"]
            if one["code"] == "rules-wrong"
        ]
        assert (said["path"], said["line"]) == (str(path), 2)


def test_doctor_names_the_settings_files(tree: Tree) -> None:
    own = tree.write("home/.config/opencode/opencode.json", "{}")
    done = tree.run("doctor", "--json")
    assert done.document["files"] == [{"source": "user", "path": str(own)}]
    assert str(own) in tree.run("doctor").stdout
