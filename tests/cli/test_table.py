"""Tables on a terminal of 80 and of 100 columns: every word is whole, and none is lost."""

from __future__ import annotations

from contextlib import closing

import pytest

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
@pytest.mark.parametrize("command", ["log", "permissions"])
def test_every_word_is_there_and_whole(used: Tree, command: str, columns: int) -> None:
    screen = on_terminal(used, command, columns=columns)
    # The path of a test may be longer than a line.
    fitting = {word for word in words(used.run(command).stdout) if len(word) < columns - 15}
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
        *("name", "scope", "client", "description", "found", "in")
    }
    odd = text - everything - {"why"}
    assert [one for one in odd if not one.endswith(("…", ":"))] == []


@COLUMNS
def test_a_conversation_is_listed_on_one_line(used: Tree, columns: int) -> None:
    head, line = on_terminal(used, "sessions", columns=columns).lines
    assert head.split() == ["session", "last", "used", "begins", "with"]
    assert line.startswith("skillbelt/somebody/chat-20261116-093655-abcd  20")
    assert "What do the" in line


@COLUMNS
def test_a_denial_begins_with_what_matters(used: Tree, columns: int) -> None:
    lines = on_terminal(used, "log", "--type", "decision", columns=columns).lines
    assert lines[0].startswith("2023-11-14 22:13:20  denied  decision")
    assert len(lines) <= 6


def test_a_wide_terminal_has_a_column_for_each(used: Tree) -> None:
    head, *rows = on_terminal(used, "log", columns=300).lines
    assert head.split() == ["time", "outcome", "type", "what", "who", "why"]
    assert len(rows) == 2
    assert rows[0].index(COMMAND) == head.index("what") + len("pdf run ")
