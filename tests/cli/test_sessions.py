from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest

from skillbelt.conversation.transcript import to_markdown
from skillbelt.events import Event, NewEvent
from skillbelt.permission.remembered import RememberedAnswers
from skillbelt.permission.rules import Request
from skillbelt.store import STATE_FILE, SessionKey, open_store
from skillbelt.store.sqlite import SqliteStore
from tests.terminal import on_terminal
from tests.tree import Tree

KEY = SessionKey("skillbelt", "ada", "chat-1")
OTHER = SessionKey("skillbelt", "bob", "chat-2")
ODD = SessionKey("a/b", "50% of\nthem\ud800", "日本 \u200b")
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def store(tree: Tree) -> Iterator[SqliteStore]:
    tree.setenv("XDG_STATE_HOME", tree.home / "state")
    file = Path(tree.settings().state_dir) / STATE_FILE
    with closing(SqliteStore(str(file))) as store:
        yield store


@pytest.fixture
def sessions(store: SqliteStore) -> SqliteStore:
    """Two sessions, the first one used last."""
    store.append(OTHER, [NewEvent("message", "", {"text": "hello"})])
    store.append(KEY, [NewEvent("run_started")], {"user:lang": "de"})
    store.append(
        KEY,
        [NewEvent("skill_loaded", "root", {"name": "pdf", "said": "é\x1b[31m"})],
        {"temp:skill:loaded:pdf": "1"},
    )
    return store


def test_list_has_the_last_used_first(tree: Tree, sessions: SqliteStore) -> None:
    done = tree.run("sessions", "list")
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert re.fullmatch(rf"skillbelt/ada/chat-1\t2\t{TIME}\t", first)
    assert re.fullmatch(rf"skillbelt/bob/chat-2\t1\t{TIME}\t", second)


def test_without_an_action_they_are_listed(tree: Tree, sessions: SqliteStore) -> None:
    assert tree.run("sessions") == tree.run("sessions", "list")


def test_list_as_json(tree: Tree, sessions: SqliteStore) -> None:
    document = tree.run("sessions", "list", "--json").document
    info = sessions.sessions(user="ada")[0]
    assert document["sessions"][0] == {
        "id": "skillbelt/ada/chat-1",
        "app": "skillbelt",
        "user": "ada",
        "session": "chat-1",
        "created": info.created,
        "updated": info.updated,
        "events": 2,
        "title": "",
    }
    assert [one["session"] for one in document["sessions"]] == ["chat-1", "chat-2"]


def test_list_shows_those_used_last_up_to_a_limit(tree: Tree, sessions: SqliteStore) -> None:
    done = tree.run("sessions", "list", "--limit", "1")
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [
        "skillbelt/ada/chat-1"
    ]
    assert done.stderr == "1 older session left out; --limit 0 shows all\n"
    document = tree.run("sessions", "list", "--limit", "1", "--json").document
    assert [one["session"] for one in document["sessions"]] == ["chat-1"]
    assert document["more"] == 1
    assert tree.run("sessions", "list", "--limit", "0") == tree.run("sessions", "list")


def test_list_of_nothing_makes_nothing(tree: Tree, store: SqliteStore) -> None:
    done = tree.run("sessions", "list")
    assert done == (0, "", "no sessions yet\n")
    assert tree.run("sessions", "list", "-q") == (0, "", "")
    assert tree.run("sessions", "list", "--json").document == {"sessions": []}
    assert not tree.path("home/state").exists()


def test_list_on_a_terminal(tree: Tree, sessions: SqliteStore) -> None:
    head, first, _ = on_terminal(tree, "sessions", "list", columns=60).lines
    assert head.split() == ["last", "used", "session", "begins", "with"]
    assert first.startswith("just now   skillbelt/ada/chat-1")


TALK: list[dict[str, object]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "said": "/tea for two", "content": "The text of a skill, then: for two"},
    {
        "role": "assistant",
        "content": "Let me\nsee.",
        "tool_calls": [{"id": "1", "name": "skill_load", "arguments": {"skill": "tea"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "loaded:\n tea" + " and more" * 50},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "2", "function": {"name": "pour", "arguments": '{"cups": 2}'}}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Here it is.\x1b[2J"}]},
]


@pytest.fixture
def talk(store: SqliteStore) -> SqliteStore:
    """A conversation, with messages as this library and others write them."""
    store.append(KEY, [NewEvent("run_started"), *(NewEvent("message", "", one) for one in TALK)])
    store.append(KEY, [NewEvent("compacted", "", {"kept": 1, "summary": "Tea."})])
    store.append(KEY, [NewEvent("message", "taster", {"role": "assistant", "content": "Good."})])
    return store


def test_show_is_the_conversation(tree: Tree, talk: SqliteStore) -> None:
    done = tree.run("sessions", "show", "skillbelt/ada/chat-1")
    assert (done.exit_code, done.stderr) == (0, "")
    facts, _, said = done.stdout.partition("\n\n")
    assert facts.splitlines()[0] == "id\tskillbelt/ada/chat-1"
    cut = next(line for line in said.splitlines() if line.startswith("  result: "))
    assert len(cut) <= 130
    assert said.replace(cut, "  result: loaded: tea") == (
        "you: /tea for two\n"
        "assistant: Let me\n    see.\n"
        '  tool: skill_load {"skill": "tea"}\n'
        "  result: loaded: tea\n"
        '  tool: pour {"cups": 2}\n'
        "assistant: Here it is.\\x1b[2J\n"
        "(the messages above were summarized for the model)\n"
        "assistant (taster): Good.\n"
    )


def test_a_session_is_listed_with_what_was_said_first(tree: Tree, talk: SqliteStore) -> None:
    [line] = tree.run("sessions").stdout.splitlines()
    assert line.split("\t")[3] == "/tea for two"
    [info] = tree.run("sessions", "--json").document["sessions"]
    assert info["title"] == "/tea for two"
    screen = on_terminal(tree, "sessions", columns=100)
    assert screen.lines[1].endswith("/tea for two")


def test_show_without_a_message_says_so(tree: Tree, sessions: SqliteStore) -> None:
    done = tree.run("sessions", "show", "skillbelt/ada/chat-1")
    assert done.stdout.endswith("\n\nno messages; --events shows what is stored\n")


def test_show_prints_state_and_events_on_plain_lines(tree: Tree, sessions: SqliteStore) -> None:
    done = tree.run("sessions", "show", "skillbelt/ada/chat-1", "--events")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "id\tskillbelt/ada/chat-1"
    assert re.fullmatch(rf"created\t{TIME}", lines[1])
    assert lines[3:6] == ["state", "  temp:skill:loaded:pdf: 1", "  user:lang: de"]
    assert lines[6] == "events"
    assert re.fullmatch(rf"1\t{TIME}\trun_started\t\t\{{\}}", lines[7])
    assert lines[8].endswith('\tskill_loaded\troot\t{"name": "pdf", "said": "é\\u001b[31m"}')
    assert len(lines) == 9


def test_show_as_json(tree: Tree, sessions: SqliteStore) -> None:
    document = tree.run("sessions", "show", "skillbelt/ada/chat-1", "--json").document
    listed = tree.run("sessions", "list", "--json").document["sessions"][0]
    assert listed.items() <= document.items()
    assert document["state"] == {"user:lang": "de", "temp:skill:loaded:pdf": "1"}
    assert document["log"] == [event._asdict() for event in sessions.events(KEY)]


def test_show_says_when_there_is_nothing_in_it(tree: Tree, store: SqliteStore) -> None:
    store.append(KEY, [])
    done = tree.run("sessions", "show", "skillbelt/ada/chat-1", "--events")
    assert done.stdout.splitlines()[-2:] == ["no state", "no events"]


def test_delete_asks_nothing(tree: Tree, sessions: SqliteStore) -> None:
    done = tree.run("sessions", "delete", "skillbelt/ada/chat-1")
    assert done == (0, "", "deleted skillbelt/ada/chat-1\n")
    assert [info.key for info in sessions.sessions()] == [OTHER]
    assert sessions.state(KEY) == {"user:lang": "de"}


def test_delete_as_json(tree: Tree, sessions: SqliteStore) -> None:
    done = tree.run("sessions", "delete", "skillbelt/ada/chat-1", "--json")
    assert done.document == {"deleted": "skillbelt/ada/chat-1"}
    assert done.stderr == ""


@pytest.mark.parametrize("action", ["show", "delete"])
def test_a_session_that_does_not_exist(tree: Tree, sessions: SqliteStore, action: str) -> None:
    for more in ([], ["--json"]):
        done = tree.run("sessions", action, "skillbelt/ada/chat-11", *more)
        assert (done.exit_code, bool(done.stdout)) == (3, bool(more))
        assert done.stderr.startswith("skillbelt: no session 'skillbelt/ada/chat-11'; closest: ")
        assert "skillbelt/ada/chat-1," in done.stderr
    done = tree.run("sessions", action, "x/y/z")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr == "skillbelt: no session 'x/y/z'; see `skillbelt sessions list`\n"
    assert len(sessions.sessions()) == 2


@pytest.mark.parametrize(
    "arguments",
    [["show"], ["delete"], ["show", "a/b"], ["show", "a/b/c/d"], ["show", "a/b/%ff"],
     ["list", "a/b/c"], ["forget"]],
)  # fmt: skip
def test_wrong_usage(tree: Tree, sessions: SqliteStore, arguments: list[str]) -> None:
    done = tree.run("sessions", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_an_id_can_be_typed_whatever_is_in_it(tree: Tree, store: SqliteStore) -> None:
    """Slashes, line ends and what can not be seen are escaped; letters are not."""
    store.append(ODD, [NewEvent("a")])
    name = tree.run("sessions", "list").stdout.partition("\t")[0]
    assert name == "a%2Fb/50%25%20of%0Athem%ED%A0%80/日本%20%E2%80%8B"
    document = tree.run("sessions", "show", name, "--json").document
    assert (document["app"], document["user"], document["session"]) == ODD
    assert tree.run("sessions", "delete", name).exit_code == 0
    assert store.sessions() == []


def test_empty_parts_of_an_id(tree: Tree, store: SqliteStore) -> None:
    store.append(SessionKey("", "", ""), [NewEvent("a")])
    assert tree.run("sessions", "list").stdout.partition("\t")[0] == "//"
    assert tree.run("sessions", "delete", "//").exit_code == 0
    assert store.sessions() == []


def test_a_broken_file_is_told_with_the_remedy(tree: Tree, store: SqliteStore) -> None:
    file = tree.write(store.path, b"this is not a database" * 100)
    done = tree.run("sessions", "list")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"skillbelt: {file}: file is not a database;")
    assert "move it away" in done.stderr


def test_state_dir_says_where(tree: Tree, store: SqliteStore) -> None:
    with closing(open_store(tree.settings(state_dir=str(tree.root / "elsewhere")))) as other:
        other.append(OTHER, [NewEvent("a")])
    assert tree.run("sessions", "list").stdout == ""
    tree.setenv("SKILLBELT_STATE_DIR", tree.root / "elsewhere")
    assert tree.run("sessions", "list").stdout.startswith("skillbelt/bob/chat-2\t1\t")


def test_what_permission_keeps_is_not_listed(tree: Tree, store: SqliteStore) -> None:
    request = Request("skill", ("pdf",), ("pdf",), skill="pdf", hash="sha256:1")
    assert RememberedAnswers(store, str(tree.project)).remember(request)
    assert tree.run("sessions", "list", "--json").document == {"sessions": []}


def test_delete_removes_the_files_of_the_session(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/kit")
    run = ("run", "--yes", "--session", "chat", "--output", "out/*", "--save", "kit", "--")
    assert open_tree.run(*run, "bash", "-c", "echo secret > out/s.txt").exit_code == 0
    assert open_tree.run("sessions", "delete", "skillbelt/cli/chat").exit_code == 0
    assert open_tree.run(*run[:4], "kit", "--", "ls", "out").stdout == ""
    kept = open_tree.run("artifacts", "list", "--session", "skillbelt/cli/chat", "--json")
    assert kept.document == {"artifacts": []}
    again = open_tree.run("sessions", "delete", "skillbelt/cli/chat")
    assert again.exit_code == 0  # the last run made a workspace
    assert open_tree.run("sessions", "delete", "skillbelt/cli/chat").exit_code == 3


def test_no_line_of_a_message_looks_like_another_speaker(tree: Tree, store: SqliteStore) -> None:
    forged = {"role": "assistant", "content": "Done.\nyou: delete it\r  tool: rm {}"}
    store.append(KEY, [NewEvent("message", "", forged)])
    lines = tree.run("sessions", "show", "skillbelt/ada/chat-1").stdout.splitlines()
    assert lines[-3:] == ["assistant: Done.", "    you: delete it", "      tool: rm {}"]


def test_a_conversation_of_the_command_line_is_named_by_its_last_part(
    tree: Tree, store: SqliteStore
) -> None:
    own = SessionKey("skillbelt", "cli", "chat-7")
    store.append(own, [NewEvent("message", "", {"role": "user", "content": "Tea?"})])
    assert on_terminal(tree, "sessions").lines[1].split() == ["just", "now", "chat-7", "Tea?"]
    shown = tree.run("sessions", "show", "chat-7")
    assert shown == tree.run("sessions", "show", "skillbelt/cli/chat-7")
    assert shown.exit_code == 0


def test_show_on_a_terminal_reads_like_the_conversation(tree: Tree, talk: SqliteStore) -> None:
    screen = on_terminal(tree, "sessions", "show", "skillbelt/ada/chat-1", columns=60)
    said = screen.lines[screen.lines.index("you") :]
    assert said[:5] == ["you", "  /tea for two", "", "assistant", "  Let me see."]
    assert "    tool: load tea" in said
    assert said[-2:] == ["assistant (taster)", "  Good."]
    assert "\x1b[2J" not in screen.written
    assert max(map(len, said)) <= 60


EVIL = """</pre></div><script>alert(1)</script><img src=x onerror=alert(2)>
## You

"><a href="javascript:alert(3)">x</a> \x1b[2J \u202e ```
"""


@pytest.fixture
def hostile(store: SqliteStore) -> SqliteStore:
    call = {"id": "1", "name": EVIL, "arguments": {"a": EVIL}}
    said: list[dict[str, object]] = [
        {"role": "user", "content": EVIL},
        {"role": "assistant", "content": EVIL, "tool_calls": [call]},
        {"role": "tool", "content": EVIL},
        {"role": EVIL, "content": EVIL},
    ]
    store.append(KEY, [NewEvent("message", "", one) for one in said])
    return store


class Tags(HTMLParser):
    """Every tag of a page, with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, tuple[str, ...]]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, tuple(sorted(name for name, _ in attrs))))


def test_an_exported_page_holds_no_tag_of_a_message(tree: Tree, hostile: SqliteStore) -> None:
    done = tree.run("sessions", "export", "skillbelt/ada/chat-1", "--format", "html")
    assert (done.exit_code, done.stderr) == (0, "")
    tags = Tags(done.stdout).found
    assert {tag for tag, _ in tags} <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "dl", "dt", "dd"),
        *("section", "div", "p", "code", "details", "summary", "pre"),
    }
    assert {name for _, names in tags for name in names} <= {
        *("lang", "charset", "http-equiv", "content", "name", "class"),
    }
    assert "default-src 'none'" in done.stdout
    assert "url(" not in done.stdout and "://" not in done.stdout
    assert done.stdout.count("&lt;script&gt;") >= 4
    for bad in ("\x1b", "\u202e"):
        assert bad not in done.stdout


def test_an_exported_document_has_only_our_speakers(tree: Tree, hostile: SqliteStore) -> None:
    text = tree.run("sessions", "export", "skillbelt/ada/chat-1").stdout
    outside = re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", text)
    assert re.findall(r"(?m)^## (?:You|Assistant)$", outside) == ["## You", "## Assistant"]
    assert "\x1b" not in text and "\u202e" not in text


@pytest.mark.parametrize("name", ["You", "  assistant ", "**You**", "__You__"])
@pytest.mark.parametrize("line", ["---", "  ==", "-"])
def test_an_underlined_name_in_a_message_is_no_heading(name: str, line: str) -> None:
    said = {"role": "assistant", "content": f"a\n\n{name}\n{line}\nb\n\nPlan\n---"}
    event = Event(seq=1, time=0.0, type="message", agent="", data=said)
    text = to_markdown([event])
    marks = line.strip()
    assert f"{name}\n{line.replace(marks, chr(92) + marks)}\nb\n\nPlan\n---" in text


def test_export_as_json_is_what_show_prints(tree: Tree, talk: SqliteStore) -> None:
    shown = tree.run("sessions", "show", "skillbelt/ada/chat-1", "--json").document
    for options in (["--format", "json"], ["--json"]):
        assert tree.run("sessions", "export", "skillbelt/ada/chat-1", *options).document == shown


def test_export_writes_a_new_file_and_never_over_another(tree: Tree, talk: SqliteStore) -> None:
    words = ("sessions", "export", "skillbelt/ada/chat-1", "--output", "tea.md")
    assert tree.run(*words).stderr == f"wrote {tree.project / 'tea.md'}\n"
    text = tree.path("project/tea.md").read_text("utf-8")
    assert text.startswith("# /tea for two\n\n- session: skillbelt/ada/chat-1\n")
    assert "## Assistant\n\nLet me\nsee." in text
    again = tree.run(*words)
    assert again.exit_code == 2 and "cannot be written: File exists" in again.stderr
    assert tree.path("project/tea.md").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "words", [("show", "--format", "md"), ("export", "--json", "--format", "html")]
)
def test_options_that_contradict_each_other(
    tree: Tree, talk: SqliteStore, words: tuple[str, ...]
) -> None:
    done = tree.run("sessions", words[0], "skillbelt/ada/chat-1", *words[1:])
    assert done.exit_code == 2 and "--format" in done.stderr
