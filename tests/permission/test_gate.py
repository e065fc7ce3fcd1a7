"""The gate that decides permission requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillbelt import (
    Answer,
    AuditEvent,
    ConfigError,
    Decision,
    Gate,
    Pending,
    PermissionDenied,
    Request,
    Rule,
    Runtime,
)
from skillbelt.permission.gate import ASKER
from skillbelt.runtime.runtime import RuntimeSession
from skillbelt.store.memory import MemoryStore
from skillbelt.trust import Trust
from tests.tree import Tree

pytestmark = pytest.mark.usefixtures("closed_runtimes")


@pytest.fixture
def pdf(tree: Tree) -> Tree:
    tree.skill("project/.agents/skills/pdf", text="Read it.\n")
    tree.write("project/.agents/skills/pdf/notes.md", "Notes.\n")
    return tree


def runtime(tree: Tree, **more: object) -> Runtime:
    """A runtime for a project with untrusted skills, so that loading them needs permission."""
    return Runtime(tree.project, trust_project="ask", **more)  # type: ignore[arg-type]


def saying(kind: str) -> Callable[[Pending], Answer | None]:
    return lambda _: Answer(kind)  # type: ignore[arg-type]


def noting(asked: list[Pending]) -> Callable[[Pending], Answer | None]:
    """Return a callback that answers "once" to everything and records the requests."""

    def ask(pending: Pending) -> Answer:
        asked.append(pending)
        return Answer("once")

    return ask


def events(belt: Runtime, type: str) -> list[AuditEvent]:
    return list(belt.gate.audit.read(type=type))


def test_nothing_is_read_before_it_is_allowed(pdf: Tree) -> None:
    belt = runtime(pdf)
    body = Path(belt.get_skill("pdf").location)
    belt.gate.desk.listen(lambda _: body.unlink())
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(belt.dispatch, "skill_load", {"skill": "pdf"})
        while body.exists():
            time.sleep(0.01)
        belt.gate.desk.answer(belt.gate.desk.pending()[0].id, Answer("once"))
        assert load.result(150).error


def test_with_nobody_to_ask_the_model_reads_why_and_what_to_do(pdf: Tree) -> None:
    error = runtime(pdf).dispatch("skill_load", {"skill": "pdf"}).error
    assert "no user or callback can grant it" in error
    assert "/pdf" in error


def test_the_user_who_names_a_skill_needs_nobody(pdf: Tree) -> None:
    assert runtime(pdf).load("pdf").text == "Read it.\n"


def test_a_user_who_may_not_have_it_gets_an_exception(pdf: Tree) -> None:
    belt = runtime(pdf, rules=[Rule("skill", "pdf", "deny")])
    with pytest.raises(PermissionDenied, match="denied by the host's rules") as caught:
        belt.load("pdf")
    assert caught.value.exit_code == 4


def test_what_waits_too_long_is_denied(pdf: Tree) -> None:
    belt = runtime(pdf, permission_timeout_seconds=0.05)
    belt.gate.desk.listen(lambda _: None)
    assert "no answer came in time" in belt.dispatch("skill_load", {"skill": "pdf"}).error


@pytest.mark.parametrize("wrong", [True, "yes", ("once",)])
def test_a_callback_that_returns_no_answer_is_an_error(pdf: Tree, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r'return Answer\("once"\)'):
        runtime(pdf, ask=lambda _: wrong).dispatch("skill_load", {"skill": "pdf"})


def test_who_leaves_a_request_to_others_when_there_are_none(pdf: Tree) -> None:
    belt = runtime(pdf, ask=lambda _: None)
    assert "no user or callback can grant it" in belt.dispatch("skill_load", {"skill": "pdf"}).error


def test_documents_of_a_granted_skill_need_no_second_answer(pdf: Tree) -> None:
    asked: list[Pending] = []
    belt = runtime(pdf, ask=noting(asked))
    session = belt.session("ada", "chat")
    assert not session.call_sync("skill_load", {"skill": "pdf"}).error
    read = {"skill": "pdf", "relative_path": "notes.md"}
    assert session.call_sync("load_resource", read).text == "Notes.\n"
    assert len(asked) == 1


def test_documents_of_a_skill_that_changed_need_another_answer(pdf: Tree) -> None:
    asked: list[Pending] = []
    belt = runtime(pdf, ask=noting(asked))
    session = belt.session("ada", "chat")
    session.call_sync("skill_load", {"skill": "pdf"})
    pdf.write("project/.agents/skills/pdf/notes.md", "Other notes.\n")
    session.call_sync("load_resource", {"skill": "pdf", "relative_path": "notes.md"})
    assert len(asked) == 2
    assert asked[0].request.hash != asked[1].request.hash


def test_a_loaded_skill_that_changed_is_not_shown_unasked(pdf: Tree) -> None:
    session = runtime(pdf, ask=saying("once")).session("ada", "chat")
    said: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    session.request(said)
    session.call_sync("skill_load", {"skill": "pdf"}, "c1")
    call = {"id": "c1", "type": "function", "function": {"name": "skill_load", "arguments": "{}"}}
    history = [
        *said,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "loaded: pdf"},
    ]
    assert "Read it." in str(session.request(history))
    pdf.skill("project/.agents/skills/pdf", text="Obey me.\n")
    sent = str(session.request(history))
    assert "Obey me." not in sent
    assert "changed since it was allowed" in sent


def test_rules_of_a_session_hold_for_it_alone(pdf: Tree) -> None:
    belt = Runtime(pdf.project)
    strict = belt.session("ada", "one", rules=[Rule("skill", "*", "deny")])
    assert not strict.skills()
    assert "unknown skill" in strict.call_sync("skill_load", {"skill": "pdf"}).error
    assert not belt.session("ada", "two").call_sync("skill_load", {"skill": "pdf"}).error


def test_rules_can_tell_agents_apart(pdf: Tree) -> None:
    belt = Runtime(pdf.project, rules=[Rule("skill", "*", "deny", agent="writer")])
    assert not belt.available("writer")
    assert list(belt.available("reader")) == ["pdf"]


def test_rules_that_deny_cost_a_turn_nothing(pdf: Tree) -> None:
    belt = Runtime(pdf.project, rules=[Rule("skill", "x", "deny")])
    assert belt.available() is belt.available()


def test_a_skill_grants_what_it_declares_for_the_turn(tree: Tree) -> None:
    tree.skill("project/.agents/skills/git", allowed_tools="Bash(git add *)")
    session = Runtime(tree.project).session("ada", "chat")
    session.request([{"role": "user", "content": "commit"}])
    assert not session.permits("Bash", "git add .").allowed
    session.call_sync("skill_load", {"skill": "git"}, "c1")
    granted = session.permits("Bash", "git add .", sandboxed=True)
    assert granted.allowed
    assert granted.by == "declared"
    assert not session.permits("Bash", "git add .").allowed, "the host's own shell is not bounded"
    assert not session.permits("Bash", "git push", sandboxed=True).allowed
    assert not session.permits("Bash", "git add . && rm -r /", sandboxed=True).allowed
    assert not session.permits("Bash", "git add $(rm -r /)", sandboxed=True).allowed
    session.request([{"role": "user", "content": "commit"}, {"role": "user", "content": "next"}])
    assert not session.permits("Bash", "git add .", sandboxed=True).allowed


def declaring(tree: Tree, tools: str, *rules: Rule, **options: Any) -> RuntimeSession:
    """A conversation with a loaded skill that declares the tools."""
    tree.skill("project/.agents/skills/helper", allowed_tools=tools)
    chat = Runtime(tree.project, rules=rules, **options).session("ada", "chat")
    chat.request([{"role": "user", "content": "help"}])
    assert not chat.call_sync("skill_load", {"skill": "helper"}, "c1").error
    return chat


@pytest.mark.parametrize(
    "rules",
    [
        (Rule("run", "*", "ask"),),
        (Rule("run", "rm *", "ask"),),
        (Rule("tool", "Bash", "ask"),),
        (Rule("tool", "*", "ask"),),
    ],
)
@pytest.mark.parametrize("tools", ["Bash Write", "bash", "Terminal", "Bash(rm *)"])
@pytest.mark.parametrize("line", ["rm -rf /home/me", "true && rm x", "/bin/rm x; rm y"])
def test_a_skill_can_not_talk_an_ask_away(
    tree: Tree, rules: tuple[Rule, ...], tools: str, line: str
) -> None:
    chat = declaring(tree, tools, *rules)
    decision = chat.permits("Bash", line, sandboxed=True)
    assert (decision.allowed, decision.action) == (False, "ask")
    assert decision.rule.source == "session"


@pytest.mark.parametrize("tool", ["Bash", "bash", "Terminal"])
def test_an_ask_about_a_tool_stays_by_whatever_name_it_is_used(tree: Tree, tool: str) -> None:
    chat = declaring(tree, "Bash Terminal bash", Rule("tool", "Bash", "ask"))
    assert not chat.permits(tool, "git add .", sandboxed=True).allowed


@pytest.mark.parametrize(
    ("tool", "argument"),
    [("WebFetch", "https://example.com/x"), ("Write", "/srv/x"), ("mcp__mail__send", "")],
)
def test_an_ask_about_any_tool_stays(tree: Tree, tool: str, argument: str) -> None:
    declared = f"{tool} WebFetch(example.com) Write(/srv/*)"
    free = declaring(tree, declared).permits(tool, argument, sandboxed=True)
    assert (free.allowed, free.by) == (True, "declared")
    asked = declaring(tree, declared, Rule("tool", tool, "ask"))
    assert not asked.permits(tool, argument, sandboxed=True).allowed


def test_without_a_sandbox_what_a_skill_declares_does_not_count(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBELT_SANDBOX", "none")
    chat = declaring(tree, "Bash")
    assert not chat.permits("Bash", "git add .", sandboxed=True).allowed


@pytest.mark.parametrize(
    ("argument", "allowed"),
    [
        ("https://docs.example.com/x?y", True),
        ("HTTPS://DOCS.EXAMPLE.COM.:443/x", True),
        ("https://evil.org/docs.example.com", False),
        ("https://docs.example.com@evil.org/", False),
        ("https://docs.example.com:8443/", False),
        ("docs.example.com evil.org", False),
    ],
)
def test_an_address_is_matched_by_its_host(tree: Tree, argument: str, allowed: bool) -> None:
    belt = Runtime(tree.project, rules=[Rule("network", "*.example.com", "allow")])
    assert belt.session("ada", "chat").permits("WebFetch", argument).allowed is allowed


@pytest.mark.parametrize(
    "argument",
    ["https://evil.org/", "EVIL.ORG", "evil.org.", "http://evil.org:80/", "evil.org:8443",
     "https://me@evil.org/x"],
)  # fmt: skip
def test_a_host_that_is_denied_stays_so_in_every_spelling(tree: Tree, argument: str) -> None:
    rules = [Rule("network", "*", "allow"), Rule("network", "Evil.org", "deny")]
    belt = Runtime(tree.project, rules=rules)
    assert not belt.session("ada", "chat").permits("WebFetch", argument).allowed


@pytest.mark.parametrize(
    "path",
    ["~/.ssh/id", "$HOME/.ssh/id", "${HOME}/.ssh/id", "{home}//.ssh/./id", "{home}/x/../.ssh/id/",
     "/{home}/.ssh/id"],
)  # fmt: skip
@pytest.mark.parametrize("pattern", ["~/.ssh/*", "{home}//.ssh/x/../*", "$HOME/.ssh/*"])
def test_a_path_that_is_denied_stays_so_in_every_spelling(
    tree: Tree, path: str, pattern: str
) -> None:
    home = Runtime(tree.project).settings.home
    rules = [
        Rule("host_file", "*", "allow"),
        Rule("host_file", pattern.replace("{home}", home), "deny"),
    ]
    chat = Runtime(tree.project, rules=rules).session("ada", "chat")
    assert not chat.permits("Read", path.replace("{home}", home)).allowed
    assert chat.permits("Read", "notes.txt").allowed


@pytest.mark.parametrize(
    ("tool", "argument", "allowed"),
    [
        ("Grep", "{home}", False),
        ("Grep", "/", False),
        ("LS", "{home}/.aws", False),
        ("Glob", "{home}/**", False),
        ("Glob", "{home}/.a[w]s/*", False),
        ("Glob", "{home}/{.aws,x}/*", False),
        ("Grep", "{home}/notes", True),
        ("Glob", "{home}/notes/**", True),
        ("Read", "{home}", True),
        ("Read", "file://{home}/.aws/credentials", False),
        ("Read", "FILE://localhost{home}/%2eaws/credentials", False),
        ("Read", "file:{home}/x/../.aws/credentials", False),
        ("Read", "file://{home}/notes/a", True),
        ("WebFetch", "file://{home}/.aws/credentials", False),
    ],
)
def test_a_folder_is_not_looked_through_past_what_is_denied_in_it(
    tree: Tree, tool: str, argument: str, allowed: bool
) -> None:
    home = Runtime(tree.project).settings.home
    rules = [
        Rule("*", "*", "allow"),
        Rule("host_file", "~/.aws/*", "deny"),
        Rule("host_file", "~/.aws/x/*", "ask"),
    ]
    chat = Runtime(tree.project, rules=rules).session("ada", "chat")
    decision = chat.permits(tool, argument.replace("{home}", home))
    assert (decision.allowed, decision.action) == (allowed, "allow" if allowed else "deny")


@pytest.mark.parametrize(
    ("type", "rule", "text"),
    [
        ("network", "a.corp.example", "A.Corp.Example."),
        ("network", "a.corp.example", "https://a.corp.example:443/x"),
        ("install", "requests", "Requests"),
        ("install", "ruamel-yaml", "Ruamel_YAML==1.0"),
        ("install", "lodash.get", "Lodash.get@1.0"),
        ("install", "@a/b.c", "@A/b.c"),
    ],
)
def test_whoever_asks_the_gate_may_spell_it_as_they_like(
    tree: Tree, type: str, rule: str, text: str
) -> None:
    rules = [Rule(type, "*", "allow"), Rule(type, rule, "deny")]
    gate = Runtime(tree.project, rules=rules).gate
    assert gate.explain(Request(type, (text,))).action == "deny"
    assert not gate.check(Request(type, (text,))).allowed
    gate = Runtime(tree.project, rules=[Rule(type, rule, "allow")]).gate
    assert gate.explain(Request(type, (text,))).action == "allow"


def test_the_url_of_a_file_elsewhere_is_asked_for(tree: Tree) -> None:
    rules = [Rule("host_file", "/srv/*", "allow")]
    chat = Runtime(tree.project, rules=rules).session("ada", "chat")
    assert chat.permits("Read", "file:///srv/a").allowed
    assert chat.permits("Read", "file://other/srv/a").action == "ask"


def test_a_skill_that_is_not_trusted_grants_nothing(tree: Tree) -> None:
    tree.skill("project/.agents/skills/git", allowed_tools="Bash")
    session = runtime(tree, ask=lambda p: Answer("once") if p.request.type == "skill" else None)
    chat = session.session("ada", "chat")
    chat.request([{"role": "user", "content": "commit"}])
    assert not chat.call_sync("skill_load", {"skill": "git"}, "c1").error
    assert not chat.permits("Bash", "git add .").allowed


def test_a_skill_grants_nothing_that_is_denied(tree: Tree) -> None:
    tree.skill("project/.agents/skills/git", allowed_tools="Bash")
    chat = Runtime(tree.project, rules=[Rule("run", "git push*", "deny")]).session("ada", "chat")
    chat.request([{"role": "user", "content": "commit"}])
    chat.call_sync("skill_load", {"skill": "git"}, "c1")
    assert chat.permits("Bash", "git add .", sandboxed=True).allowed
    assert not chat.permits("Bash", "git push --force", sandboxed=True).allowed


@pytest.mark.parametrize("tool", ["Read", "Grep", "Glob", "LS"])
def test_tools_without_risk_never_ask(tree: Tree, tool: str) -> None:
    assert Runtime(tree.project).session("ada", "chat").permits(tool).allowed


@pytest.mark.parametrize("tool", ["Write", "Bash", "Terminal", "WebSearch", "mcp__mail__send"])
def test_dangerous_tools_ask(tree: Tree, tool: str) -> None:
    decision = Runtime(tree.project).session("ada", "chat").permits(tool)
    assert (decision.allowed, decision.action) == (False, "ask")


def test_every_decision_is_recorded_with_its_rule(pdf: Tree) -> None:
    belt = Runtime(pdf.project)
    belt.session("ada", "chat", agent="reader").call_sync("skill_load", {"skill": "pdf"})
    [event] = events(belt, "decision")
    assert (event.skill, event.agent, event.initiator) == ("pdf", "reader", "model")
    assert event.session == "skillbelt/ada/chat"
    assert event.hash.startswith("sha256:")
    assert event.data["allowed"] is True
    rule = event.data["rule"]
    assert isinstance(rule, dict)
    assert rule["source"] == "default"


def test_every_load_is_recorded_with_its_hash(pdf: Tree) -> None:
    belt = Runtime(pdf.project)
    belt.load("pdf")
    belt.session("ada", "chat").call_sync("skill_load", {"skill": "pdf"})
    belt.session("ada", "chat").user_command("/pdf")
    by_user, by_model, by_name = events(belt, "load")
    assert [by_user.initiator, by_model.initiator, by_name.initiator] == ["user", "model", "user"]
    assert len({e.hash for e in (by_user, by_model, by_name)}) == 1


def test_a_log_that_can_not_be_written_lets_nothing_happen(pdf: Tree) -> None:
    belt = Runtime(pdf.project)
    pdf.write(Path(belt.settings.state_dir) / "audit", "in the way")
    with pytest.raises(ConfigError, match="audit"):
        belt.load("pdf")


def test_the_log_can_be_switched_off(pdf: Tree) -> None:
    belt = Runtime(pdf.project, audit=False)
    belt.load("pdf")
    assert not (Path(belt.settings.state_dir) / "audit").exists()


def test_many_coroutines_wait_at_once(pdf: Tree) -> None:
    belt = runtime(pdf)
    answered = threading.Semaphore(0)
    belt.gate.desk.listen(lambda _: answered.release())
    results: list[str] = []

    async def load(chat: int) -> None:
        session = belt.session("ada", str(chat))
        results.append((await session.call("skill_load", {"skill": "pdf"})).error)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for chat in range(100):
                group.start_soon(load, chat)
            while len(belt.gate.desk.pending()) < 100:
                await anyio.sleep(0.01)
            belt.gate.desk.answer(belt.gate.desk.pending()[0].id, Answer("always"))

    anyio.run(main)
    assert results == [""] * 100


def test_an_unknown_type_is_denied_with_its_name_when_nobody_answers(tree: Tree) -> None:
    gate: Gate = Runtime(tree.project).gate
    decision: Decision = gate.check(Request("teleport", ("home",)))
    assert not decision.allowed
    assert "teleport home" in decision.reason


def test_a_host_finds_its_own_mark_in_what_is_asked_for(pdf: Tree) -> None:
    seen: list[object] = []
    belt = runtime(pdf, ask=lambda pending: seen.append(pending.request.metadata))

    async def load(chat: str) -> None:
        ASKER.set({"chat": chat})
        await belt.session("ada", chat).call("skill_load", {"skill": "pdf"})

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for chat in "ab":
                group.start_soon(load, chat)

    anyio.run(main)
    belt.session("ada", "c").call_sync("skill_load", {"skill": "pdf"})
    assert sorted(map(str, seen)) == ["{'chat': 'a'}", "{'chat': 'b'}", "{}"]


@pytest.mark.parametrize("table", ["permission", "agent.review.permission"])
def test_a_trusted_project_does_not_loosen_what_the_user_denies(tree: Tree, table: str) -> None:
    tree.write("home/.config/skillbelt/config.toml", '[permission.run]\n"rm *" = "deny"\n')
    tree.write("project/skillbelt.toml", f'[{table}]\nrun = "allow"\n')
    gate = Runtime(tree.project).gate
    Trust(gate.settings.state_dir).add(gate.settings.project)
    asked = Request("run", ("rm x",), agent="review")
    assert gate.explain(asked).action == "deny"
    assert gate.explain(asked._replace(patterns=("ls",))).action == "allow"


def test_a_skill_that_alone_may_run_commands_keeps_the_tool_for_that(pdf: Tree) -> None:
    denied = Rule("run", "*", "deny")
    allowed = Rule("run", "python3 *", "allow", skill="pdf")
    for rules, offered in (
        ([denied], False),
        ([denied, allowed], True),
        ([allowed, denied], False),
    ):
        names = {one.name for one in Runtime(pdf.project, rules=rules).session("me", "a").tools()}
        assert ("skill_run" in names) is offered


def test_everything_can_be_denied_to_one_skill(pdf: Tree) -> None:
    pdf.skill("project/.agents/skills/docx")
    belt = Runtime(pdf.project, rules=[Rule("*", "*", "deny", skill="pdf")])
    assert list(belt.session("me", "a").skills()) == ["docx"]


def _about(session: str, hash: str = "sha256:1", command: str = "ls") -> Request:
    return Request(
        "run", (command,), always=(command,), session=session, skill="kit", hash=hash, origin="/kit"
    )


def test_an_answer_for_a_conversation_holds_there_and_nowhere_else(tree: Tree) -> None:
    store = MemoryStore()
    gate = Gate(tree.settings(), lambda: store, ask=lambda _: Answer("conversation"))
    assert gate.check(_about("a")).by == "conversation"
    assert gate.check(_about("a")).by == "remembered"
    assert gate.with_rules([Rule("network", "*", "deny")]).check(_about("a")).by == "remembered"
    assert gate.held("a") == (_about("a"),)
    assert gate.ledger.all() == []
    for other in (_about("b"), _about("a", command="ls -a"), _about("")):
        assert gate.check(other).by == "conversation"
    denied = gate.with_rules([Rule("run", "ls", "deny")])
    assert not denied.check(_about("a")).allowed
    assert not Gate(tree.settings(), lambda: store).check(_about("a")).allowed


def test_a_skill_that_changed_and_changed_back_is_asked_for_again(tree: Tree) -> None:
    gate = Gate(tree.settings(), MemoryStore, ask=lambda _: Answer("conversation"))
    answers = [gate.check(_about("a", hash)).by for hash in ("1", "1", "2", "1")]
    assert answers == ["conversation", "remembered", "conversation", "conversation"]
