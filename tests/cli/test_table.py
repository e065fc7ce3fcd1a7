"""Tables on a terminal of 80 and of 100 columns: every word is whole, and none is lost."""

from __future__ import annotations

import re
import time
from contextlib import closing

import pytest
from rich.cells import cell_len

from skillbelt.events import NewEvent
from skillbelt.permission.audit import AuditEvent, open_audit
from skillbelt.store import SessionKey, open_store
from tests.terminal import on_terminal
from tests.tree import Tree

COLUMNS = pytest.mark.parametrize("columns", [80, 100])
COMMAND = "python3 scripts/check_fillable_fields.py --input receipts/november.txt"
RULE = {
    "type": "run",
    "pattern": "python3 scripts/check_fillable_fields.py *",
    "action": "deny",
    "source": "user",
    "path": "/home/somebody/.config/skillbelt/config.toml",
    "line": 112,
}
RULES = f"""
[[permission.rules]]
type = "run"
pattern = "{RULE["pattern"]}"
action = "deny"

[[permission.rules]]
type = "host_file"
pattern = "/srv/archives/receipts/*"
action = "allow"
agent = "bookkeeper"
"""


@pytest.fixture
def used(tree: Tree) -> Tree:
    """A tree with skills, rules, a conversation, and a log of a denial and a run."""
    tree.setenv("TZ", "UTC")
    tree.skill("project/.agents/skills/pdf", "Fills in forms. " + "Words and words. " * 20)
    tree.skill("project/.agents/skills/international-bookkeeping-reports", "Adds up forms.")
    tree.write("home/.config/skillbelt/config.toml", RULES)
    denied = {
        "type": "run",
        "patterns": [COMMAND],
        "allowed": False,
        "by": "rule",
        "rule": RULE,
        "reason": "Not on this machine.",
    }
    log, who = open_audit(tree.settings()), {"initiator": "model", "agent": "bookkeeper"}
    log.append(AuditEvent(1_700_000_000.0, "decision", skill="pdf", data=denied, **who))
    log.append(AuditEvent(1_700_000_060.0, "run", skill="pdf", data={"exit_code": 0}, **who))
    key = SessionKey("skillbelt", "somebody", "chat-20261116-093655-abcd")
    with closing(open_store(tree.settings())) as store:
        asked = {"role": "user", "content": "What do the receipts of November come to?"}
        store.append(key, [NewEvent("run_started"), NewEvent("message", "", asked)])
    return tree


def words(text: str) -> set[str]:
    return set(text.split())


@COLUMNS
@pytest.mark.parametrize("command", [("log", "--wide"), ("permissions",)])
def test_every_word_is_there_and_whole(used: Tree, command: tuple[str, ...], columns: int) -> None:
    screen = on_terminal(used, *command, columns=columns)
    # The path of a test may be longer than a line; what bounds no rule is left out below it.
    fitting = {word for word in words(used.run(*command).stdout) if len(word) < columns - 15}
    fitting -= {"-"}
    assert len(fitting) > 3
    assert fitting <= words("\n".join(screen.lines))
    assert [line for line in screen.lines if len(line) > columns] == []


@COLUMNS
@pytest.mark.parametrize("command", [("list",), ("search", "forms")])
def test_only_the_description_is_cut(used: Tree, command: tuple[str, ...], columns: int) -> None:
    screen = on_terminal(used, *command, columns=columns)
    rows = [line.split("\t") for line in used.run(*command).stdout.splitlines()]
    kept = words(" ".join(cell for row in rows for cell in (*row[:2], *row[3:])))
    text = words("\n".join(screen.lines))
    assert kept <= text
    assert [line for line in screen.lines if len(line) > columns] == []
    # What is not whole is the one word that is cut, and says so.
    everything = words(used.run(*command).stdout) | {
        *("name", "scope", "from", "description", "found", "in")
    }
    odd = text - everything - {"why", "match"}
    assert [one for one in odd if not one.endswith(("…", ":"))] == []


@COLUMNS
def test_a_conversation_is_listed_on_one_line(used: Tree, columns: int) -> None:
    head, line = on_terminal(used, "sessions", columns=columns).lines
    assert head.split() == ["last", "used", "session", "begins", "with"]
    assert line.startswith("just now   skillbelt/somebody/chat-20261116-093655-abcd  What do")


@COLUMNS
def test_a_denial_begins_with_what_matters(used: Tree, columns: int) -> None:
    head, first, *rest = on_terminal(used, "log", "--type", "decision", columns=columns).lines
    assert head.split() == ["time", "outcome", "what"]
    assert first.startswith("2023-11-14  denied   decision pdf run python3")
    assert len(rest) <= 5


def test_a_wide_terminal_has_a_column_for_each(used: Tree) -> None:
    head, *rows = on_terminal(used, "log", columns=300).lines
    assert head.split() == ["time", "outcome", "what", "who", "why"]
    assert len(rows) == 2
    assert rows[0].index(COMMAND) == head.index("what") + len("decision pdf run ")


def test_times_are_relative_and_exact_on_request(used: Tree) -> None:
    def begins(age: float, *options: str) -> str:
        now = time.time()
        open_audit(used.settings()).append(AuditEvent(now - age, "load", skill="pdf"))
        last = on_terminal(used, "log", "--limit", "1", *options).lines[-1]
        return last.partition("  ")[0]

    assert begins(5) == "just now"
    assert begins(60 * 7 + 20) == "7 min ago"
    assert begins(3600 * 5 + 1200) == "5 h ago"
    assert begins(86400 * 1.5) == "1 day ago"
    assert begins(86400 * 9.5) == "9 days ago"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", begins(86400 * 30))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", begins(5, "--wide"))


def test_a_few_long_names_do_not_take_the_table_apart(tree: Tree) -> None:
    for name in ("pdf", "mail", "docx", "xlsx", "日本語要約"):
        tree.skill(f"project/.agents/skills/{name}", description=f"Does {name}. " * 20)
    long = "international-bookkeeping-reports-of-the-last-quarter"
    tree.skill(f"project/.agents/skills/{long}", description="Adds. " * 30)
    lines = on_terminal(tree, "list", columns=80).lines
    assert lines[0].split() == ["name", "scope", "from", "description"]
    at = lines.index(long)
    assert lines[at + 1].split()[:3] == ["project", "agents", "Adds."]
    start = lines[0].index("description")
    assert {line[start - 2 : start] for line in lines[1:] if line[start:]} >= {"  "}
    assert all(cell_len(line) <= 80 for line in lines)


def test_wide_cuts_nothing_and_names_the_file(used: Tree) -> None:
    lines = on_terminal(used, "list", "--wide", columns=80).lines
    assert "".join(lines).count("words.") == 20
    # The path of a test may be longer than a line.
    assert "/.agents/skills/pdf/SKILL.md" in "".join(line.strip() for line in lines)
    assert "…" not in "".join(lines)


def test_colours_say_what_is_meant_and_can_be_left_out(used: Tree) -> None:
    assert "\x1b[31mdenied" in on_terminal(used, "log").written
    assert "\x1b[32mexit 0" in on_terminal(used, "log").written
    assert "\x1b[31m" not in on_terminal(used, "log", NO_COLOR="1").written
    assert "\x1b" not in used.run("log").stdout


def test_no_cell_leaves_the_terminal(used: Tree) -> None:
    """Neither a long ID in the middle of a table, nor one that is longer than a line."""
    asked = {"role": "user", "content": "Tea?"}
    with closing(open_store(used.settings())) as store:
        for name in ("a-session-of-another-program-" * 2, "x" * 130, "short"):
            store.append(SessionKey("desk", "bob", name), [NewEvent("message", "", asked)])
    lines = on_terminal(used, "sessions", columns=80).lines
    assert max(map(len, lines)) <= 80
    text = "".join(line.strip() for line in lines)
    assert "desk/bob/" + "a-session-of-another-program-" * 2 in words("\n".join(lines))
    assert "x" * 120 in text


def test_what_goes_below_stays_beside_where_it_fits(used: Tree) -> None:
    lines = on_terminal(used, "permissions", columns=80).lines
    assert lines[0].split() == ["action", "type", "pattern"]
    assert [line.split() for line in lines if "trusted" in line] == [
        ["allow", "skill", "*", "trusted", "origins", "·", "built", "in"]
    ]
