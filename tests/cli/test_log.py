from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from skillbelt.cli import main
from skillbelt.cli.log import since
from skillbelt.errors import ConfigError
from skillbelt.permission.audit import AuditEvent, AuditLog, open_audit
from skillbelt.store.postgres.store import PostgresStore
from tests import warm
from tests.printing import Printing, printing
from tests.terminal import on_terminal
from tests.tree import Tree

NOW = 1_700_000_000.0
RULE = {
    "type": "run",
    "pattern": "git *",
    "action": "deny",
    "source": "project",
    "path": "/p/skillbelt.toml",
    "line": 7,
}
DENIED = AuditEvent(
    NOW,
    "decision",
    "/p",
    session="chat-1",
    agent="root",
    initiator="model",
    skill="pdf",
    hash="sha256:00",
    data={
        "type": "run",
        "patterns": ["git add .", "git commit"],
        "action": "deny",
        "allowed": False,
        "by": "rule",
        "rule": RULE,
        "reason": "not here",
    },
)
LOADED = AuditEvent(NOW + 60, "load", session="chat-2", initiator="user", user="ada", skill="docx")
RAN = AuditEvent(NOW + 120, "run", session="chat-1", skill="pdf", data={"exit_code": 0})


@pytest.fixture
def log(tree: Tree) -> AuditLog:
    """Three events, and a clock that stands in a known zone."""
    tree.setenv("TZ", "UTC")
    log = open_audit(tree.settings())
    assert isinstance(log, AuditLog)
    for event in (DENIED, LOADED, RAN):
        log.append(event)
    return log


def types(tree: Tree, *arguments: str) -> list[str]:
    done = tree.run("log", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    return [event["type"] for event in done.document["events"]]


def test_nothing_was_logged_yet(tree: Tree) -> None:
    assert tree.run("log") == (0, "", "the log is empty\n")
    assert tree.run("log", "-q") == (0, "", "")
    assert tree.run("log", "--json").document == {"events": []}
    assert not tree.path("home/.local").exists()


def test_one_line_an_event(tree: Tree, log: AuditLog) -> None:
    """When, what kind, who, what, with which outcome, and why."""
    done = tree.run("log")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "2023-11-14 22:13:20\tdecision\tmodel root\tpdf run git add ., git commit\tdenied\t"
        "rule; run git * deny (project /p/skillbelt.toml:7); not here",
        "2023-11-14 22:14:20\tload\tuser ada\tdocx\t\t",
        "2023-11-14 22:15:20\trun\t\tpdf\t0\t",
    ]


def test_a_decision_about_a_skill_names_it_once(tree: Tree) -> None:
    data = {"type": "skill", "patterns": ["pdf"], "allowed": True, "by": "once"}
    open_audit(tree.settings()).append(AuditEvent(NOW, "decision", skill="pdf", data=data))
    assert tree.run("log").stdout.split("\t")[3:] == ["pdf", "allowed", "once\n"]


def test_as_json(tree: Tree, log: AuditLog) -> None:
    document = tree.run("log", "--json").document
    assert document.keys() == {"events"}
    assert document["events"][0] == DENIED._asdict()
    assert document["events"][1] == {**LOADED._asdict(), "data": {}}
    assert len(document["events"]) == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--session", "chat-1"], ["decision", "run"]),
        (["--type", "load"], ["load"]),
        (["--skill", "pdf"], ["decision", "run"]),
        (["--skill", "pdf", "--type", "run"], ["run"]),
        (["--limit", "2"], ["load", "run"]),
        (["--limit", "0"], []),
        (["--session", "chat-1", "--limit", "1"], ["run"]),
        (["--since", str(NOW + 60)], ["load", "run"]),
        (["--since", "2023-11-14T22:15:00"], ["run"]),
        (["--since", "2023-11-14"], ["decision", "load", "run"]),
        (["--since", "1h"], []),
        (["--since", "99999d"], ["decision", "load", "run"]),
        (["--session", "another"], []),
    ],
)
def test_filters(tree: Tree, log: AuditLog, arguments: list[str], expected: list[str]) -> None:
    assert types(tree, *arguments) == expected


def test_filters_that_leave_nothing_say_so(tree: Tree, log: AuditLog) -> None:
    assert tree.run("log", "--skill", "x") == (0, "", "no such events\n")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0", 0.0),
        ("1700000000.25", NOW + 0.25),
        ("90s", NOW - 90),
        ("30m", NOW - 1_800),
        ("2h", NOW - 7_200),
        ("1.5h", NOW - 5_400),
        ("7d", NOW - 604_800),
        ("2w", NOW - 1_209_600),
        (" 2h ", NOW - 7_200),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T22:13:20.5+00:00", NOW + 0.5),
        ("2023-11-15T00:13:20+02:00", NOW),
        ("2023-11-14 22:13:20+00:00", NOW),
    ],
)
def test_moments(text: str, moment: float) -> None:
    assert since(text, NOW) == moment


def test_a_date_without_a_zone_is_by_this_machine_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XXX-3")
    time.tzset()
    try:
        assert since("2023-11-15T01:13:20", NOW) == NOW
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2x", "h", "-2h", "nan", "inf", "1e999", "2023-13-01", "2023-11-14T25:00",
     "2h30m", "９h", "9999999999d", "10000-01-01", "\x1b[2J"],
)  # fmt: skip
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a time: give Unix seconds"):
        since(text, NOW)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "soon"], "--since 'soon' is not a time"),
        (["--type", "laod"], "--type must be one of decision, load, run"),
        (["--limit", "-1"], "--limit must be zero or more"),
        (["--limit", "many"], "invalid int value"),
        (["now"], "unrecognized arguments: now"),
    ],
)
def test_wrong_usage(tree: Tree, log: AuditLog, arguments: list[str], said: str) -> None:
    done = tree.run("log", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


HOSTILE = "x\x1b[2J\r\n\u202e\x9b31m\u200b\ud800"


def test_nothing_from_a_skill_reaches_the_terminal(tree: Tree) -> None:
    data = dict.fromkeys(("type", "by", "reason", "value", "outcome"), HOSTILE)
    rule = {HOSTILE: HOSTILE, "pattern": HOSTILE}
    event = AuditEvent(
        time=NOW,
        type="decision",
        project=HOSTILE,
        user=HOSTILE,
        session=HOSTILE,
        agent=HOSTILE,
        initiator=HOSTILE,
        skill=HOSTILE,
        hash=HOSTILE,
        data={**data, "patterns": [HOSTILE], "rule": rule},
    )
    open_audit(tree.settings()).append(event)
    screen = on_terminal(tree, "log", columns=300)
    assert screen.exit_code == 0
    text = "\n".join(screen.lines)
    for bad in ("\x1b[2J", "\u202e", "\x9b", "\u200b"):
        assert bad not in screen.written
    assert "\\x1b[2J" in text
    assert len(tree.run("log").stdout.splitlines()) == 1


def test_a_terminal_is_told_briefly_that_no_one_was_asked(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    refused = tree.run("run", "pdf", "--", "true")
    assert refused.exit_code == 4 and "permissions allow" in refused.stderr
    shown = "\n".join(on_terminal(tree, "log").lines)
    assert "no one could be asked" in shown and "permissions allow" not in shown
    assert "permissions allow" in tree.run("log").stdout


@pytest.mark.parametrize(
    "data",
    [
        {"patterns": {"a": 1}, "rule": [1, None], "allowed": "yes", "reason": 5, "by": True},
        {"rule": {"line": [], "path": {}}, "patterns": [[["x"]]]},
        {"type": None, "value": [], "command": 3},
    ],
)
@pytest.mark.parametrize("type", ["decision", "trust", "run"])
def test_data_of_any_shape_is_printed(tree: Tree, data: dict[str, object], type: str) -> None:
    open_audit(tree.settings()).append(AuditEvent(1e300, type, data=data))
    done = tree.run("log")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 1


def test_a_damaged_log_gives_what_is_left(tree: Tree, log: AuditLog) -> None:
    with open(os.path.join(log.folder, "log.jsonl"), "ab") as file:
        file.write(b'\xff\x00{"time":\n{"time":1,"ty')
    assert types(tree) == ["decision", "load", "run"]


def test_a_log_that_can_not_be_read_is_told(tree: Tree) -> None:
    folder = tree.write("home/.local/state/skillbelt/audit", "in the way")
    done = tree.run("log")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{folder}: the audit log cannot be read" in done.stderr


# Following


def following(tree: Tree, *arguments: str) -> AbstractContextManager[Printing]:
    return printing(tree, "-m", "skillbelt", "log", "--follow", *arguments)


def test_follow_prints_events_as_they_come(tree: Tree, log: AuditLog) -> None:
    with following(tree, "--limit", "1") as follow:
        assert follow.line().split("\t")[1] == "run"
        log.append(LOADED._replace(skill="new\x1b[2J"))
        assert follow.line().split("\t")[1:4] == ["load", "user ada", "new\\x1b[2J"]


def test_follow_as_json_is_one_object_a_line(tree: Tree, log: AuditLog) -> None:
    with following(tree, "--json", "--type", "load") as follow:
        assert json.loads(follow.line())["skill"] == "docx"
        log.append(RAN)
        log.append(LOADED._replace(skill="next"))
        assert json.loads(follow.line())["skill"] == "next"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_follow_ends_when_it_is_told(
    tree: Tree, log: AuditLog, number: signal.Signals, code: int
) -> None:
    with following(tree) as follow:
        follow.line()
        assert follow.end(number) == (code, "following the log; Ctrl-C stops it\n")


# The chain


def test_verify_says_that_nothing_was_logged_yet(tree: Tree) -> None:
    done = tree.run("log", "--verify")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "the log is empty" in done.stderr


def test_verify_of_a_log_that_is_as_it_was_written(tree: Tree, log: AuditLog) -> None:
    done = tree.run("log", "--verify")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "none was changed" in done.stderr
    document = tree.run("log", "--verify", "--json").document
    assert (document["whole"], document["faults"]) == (True, [])
    assert document["records"] > 0


def test_verify_names_file_and_line(tree: Tree, log: AuditLog) -> None:
    file = Path(log.folder, "log.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0].replace(b'"type":"', b'"type":"x'), *lines[1:]]))
    done = tree.run("log", "--verify")
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{file}:1: is not what was written")
    assert "the log was changed: 1 fault" in done.stderr
    found = tree.run("log", "--verify", "--json")
    assert found.exit_code == 1
    assert found.document["faults"][0]["line"] == 1
    assert found.document["whole"] is False


def test_verify_tells_what_it_does_not_check(tree: Tree) -> None:
    old = Path(tree.settings().state_dir, "audit", "log.jsonl")
    old.parent.mkdir(parents=True)
    old.write_text('{"time":1.0,"type":"run"}\n')
    done = tree.run("log", "--verify")
    assert done.exit_code == 0
    assert "1 older line not checked: written before the hash chain" in done.stderr


def test_verify_is_of_the_whole_log(tree: Tree, log: AuditLog) -> None:
    assert tree.run("log", "--verify", "--limit", "1").exit_code == 2
    assert tree.run("log", "--verify", "--follow").exit_code == 2


def into_a_closed_pipe(tree: Tree, *options: str) -> tuple[int, bytes]:
    """The exit code of `log` when its reader is gone, and what it says."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as closed:
        done = warm.run(
            [sys.executable, "-m", "skillbelt", "log", *options],
            cwd=tree.project,
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=500,
            check=False,
        )
    return done.returncode, done.stderr


def test_the_exit_code_of_verify_does_not_depend_on_who_reads(tree: Tree, log: AuditLog) -> None:
    assert into_a_closed_pipe(tree, "--verify", "--json") == (0, b"")
    Path(log.folder, "log.jsonl").write_bytes(b"")
    assert into_a_closed_pipe(tree, "--verify", "--json") == (1, b"")
    assert into_a_closed_pipe(tree, "--verify")[0] == 1
    assert into_a_closed_pipe(tree) == (0, b"the log is empty\n")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_pipe_that_is_closed_early_is_no_error(
    tree: Tree, log: AuditLog, options: tuple[str, ...]
) -> None:
    for number in range(2_000):
        log.append(AuditEvent(float(number), "run", data={"command": "x" * 200}))
    child = warm.Popen[bytes](
        [sys.executable, "-m", "skillbelt", "log", *options],
        cwd=tree.project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(150) == 0


# In PostgreSQL


@pytest.fixture
def shared(tree: Tree, postgres_url: str) -> Tree:
    """A log of all machines with events of two users."""
    tree.setenv("SKILLBELT_STORE", postgres_url)
    log = open_audit(tree.settings())
    for number, user in enumerate(("ada", "bob", "a/da", "ada")):
        event = AuditEvent(time=float(number), type="run", session=f"app/{user}/1", user="root")
        log.append(event)
    return tree


def test_a_log_that_machines_share_names_the_machine(shared: Tree) -> None:
    first = shared.run("log").stdout.splitlines()[0]
    assert f"\troot@{os.uname().nodename}\t" in first
    assert shared.run("log", "--verify").exit_code == 0


def test_a_tenant_has_its_own_events(shared: Tree) -> None:
    def times(*options: str) -> list[float]:
        found = shared.run("log", "--json", *options).document["events"]
        return [event["time"] for event in found]

    assert times("--tenant", "app/ada") == [0, 3]
    assert times("--tenant", "app/ada", "--limit", "1") == [3]
    assert times("--tenant", "app/a%2Fda") == []
    assert times("--tenant", "other/ada") == []
    assert shared.run("log", "--tenant", "ada").exit_code == 2


def test_old_records_are_deleted_and_the_rest_holds(shared: Tree) -> None:
    assert shared.run("log", "--delete-before", "2", "--json").document == {"deleted": 2}
    assert [one["time"] for one in shared.run("log", "--json").document["events"]] == [2, 3]
    assert shared.run("log", "--verify").exit_code == 0
    assert shared.run("log", "--delete-before", "2", "--type", "run").exit_code == 2
    assert shared.run("log", "--delete-before", "soon").exit_code == 2


def test_the_age_of_records_is_by_the_clock_of_the_database(
    shared: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "now", lambda self: 86400.0 + 2)
    assert main(["log", "--delete-before", "1d", "--quiet"]) == 0
    assert [one["time"] for one in shared.run("log", "--json").document["events"]] == [2, 3]


def test_a_log_in_files_bounds_itself(tree: Tree) -> None:
    done = tree.run("log", "--delete-before", "1d")
    assert done.exit_code == 2
    assert "deletes its oldest file by itself" in done.stderr
