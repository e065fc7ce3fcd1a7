"""The acceptance cases of permission, through the runtime as an agent's host uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from skillbelt import Runtime
from skillbelt.permission.rules import Answer, Request, Rule
from skillbelt.permission.waiting import Pending
from tests.tree import Tree

ALLOW_ALL = Rule("skill", "*", "allow")


def runtime(
    tree: Tree, *rules: Rule, ask: Callable[[Pending], Answer | None] | None = None, **more: object
) -> Runtime:
    """A runtime for a project whose own skills are not trusted, so that loading them is asked."""
    return Runtime(tree.project, rules=rules, ask=ask, trust_project="ask", **more)  # type: ignore[arg-type]


def answering(*answers: Answer) -> tuple[list[Pending], Callable[[Pending], Answer | None]]:
    """Who gives these answers in turn, and what they were asked."""
    asked: list[Pending] = []
    left = list(answers)

    def ask(pending: Pending) -> Answer | None:
        asked.append(pending)
        return left.pop(0)

    return asked, ask


pytestmark = pytest.mark.usefixtures("closed_runtimes")


@pytest.fixture
def pdf(tree: Tree) -> Tree:
    tree.skill("project/.agents/skills/pdf", text="Read it.\n")
    return tree


def test_the_last_rule_that_matches_decides(tree: Tree) -> None:
    """Case 86."""
    for name in ("notes", "internal-plan", "internal-docs"):
        tree.skill(f"project/.agents/skills/{name}")
    rules = (
        ALLOW_ALL,
        Rule("skill", "internal-*", "deny"),
        Rule("skill", "internal-docs", "allow"),
    )
    belt = runtime(tree, *rules)
    assert list(belt.available()) == ["internal-docs", "notes"]
    for name in ("notes", "internal-docs"):
        assert not belt.dispatch("skill_load", {"skill": name}).error
    assert belt.dispatch("skill_load", {"skill": "internal-plan"}).error.startswith("unknown skill")


def test_a_permission_nobody_knows_is_asked_for(tree: Tree) -> None:
    """Case 86."""
    asked, ask = answering(Answer("once"))
    belt = runtime(tree, ask=ask)
    assert belt.gate.check(Request("teleport", ("home",))).by == "once"
    assert asked[0].request.type == "teleport"


def test_once_lets_one_load_pass_and_the_next_asks_again(pdf: Tree) -> None:
    """Case 87."""
    asked, ask = answering(Answer("once"), Answer("once"))
    session = runtime(pdf, ask=ask).session("ada", "chat")
    for count in (1, 2):
        assert not session.call_sync("skill_load", {"skill": "pdf"}).error
        assert len(asked) == count


def test_always_lets_later_loads_pass(pdf: Tree) -> None:
    """Case 87."""
    asked, ask = answering(Answer("always"))
    belt = runtime(pdf, ask=ask)
    for chat in ("one", "two"):
        assert not belt.session("ada", chat).call_sync("skill_load", {"skill": "pdf"}).error
    assert len(asked) == 1


def test_always_settles_the_others_that_wait_for_the_same(pdf: Tree) -> None:
    """Case 87."""
    belt, waiting = runtime(pdf), threading.Semaphore(0)
    belt.gate.desk.listen(lambda _: waiting.release())
    with ThreadPoolExecutor(3) as pool:
        loads = [
            pool.submit(belt.session("ada", chat).call_sync, "skill_load", {"skill": "pdf"})
            for chat in ("one", "two", "three")
        ]
        for _ in loads:
            assert waiting.acquire(timeout=500)
        belt.gate.desk.answer(belt.gate.desk.pending()[0].id, Answer("always"))
        assert [load.result(150).error for load in loads] == ["", "", ""]
    assert belt.gate.desk.pending() == []


def test_reject_settles_all_that_wait_in_the_session(pdf: Tree) -> None:
    """Case 87."""
    pdf.skill("project/.agents/skills/csv")
    belt, waiting = runtime(pdf), threading.Semaphore(0)
    belt.gate.desk.listen(lambda _: waiting.release())
    with ThreadPoolExecutor(3) as pool:
        session, other = belt.session("ada", "one"), belt.session("ada", "two")
        mine = [
            pool.submit(session.call_sync, "skill_load", {"skill": name}) for name in ("pdf", "csv")
        ]
        theirs = pool.submit(other.call_sync, "skill_load", {"skill": "pdf"})
        for _ in range(3):
            assert waiting.acquire(timeout=500)
        [first, *_] = [p for p in belt.gate.desk.pending() if p.request.session.endswith("/one")]
        belt.gate.desk.answer(first.id, Answer("reject"))
        assert all("was refused" in load.result(150).error for load in mine)
        [left] = belt.gate.desk.pending()
        assert left.request.session.endswith("/two")
        belt.gate.desk.answer(left.id, Answer("once"))
        assert not theirs.result(150).error


def test_the_message_of_a_rejection_reaches_the_model(pdf: Tree) -> None:
    """Case 87."""
    _, ask = answering(Answer("reject", "use the csv instead"))
    session = runtime(pdf, ask=ask).session("ada", "chat")
    assert "use the csv instead" in session.call_sync("skill_load", {"skill": "pdf"}).error


def test_a_skill_named_like_a_pattern_is_approved_alone(tree: Tree) -> None:
    """Case 88."""
    _, ask = answering(Answer("always"))
    gate = runtime(tree, ask=ask).gate
    star = Request("skill", ("*",), ("*",), skill="*", hash="sha256:1", trusted=False)
    assert gate.check(star).by == "always"
    assert gate.check(star).by == "remembered"
    other = star._replace(patterns=("pdf",), always=("pdf",), skill="pdf")
    assert gate.explain(other).remembered is None


def test_a_configured_deny_beats_what_was_remembered(pdf: Tree) -> None:
    """Case 89."""
    _, ask = answering(Answer("always"))
    belt = runtime(pdf, ask=ask)
    assert not belt.session("ada", "chat").call_sync("skill_load", {"skill": "pdf"}).error
    pdf.write("home/.config/skillbelt/config.toml", '[permission]\nskill = "deny"\n')
    skill = belt.catalog.find("pdf")
    gate = runtime(pdf).gate
    decision = gate.check(gate.load_request(skill, "model"))
    assert not decision.allowed
    assert decision.rule.source == "user"


def test_closing_rejects_what_waits_and_leaves_nothing(pdf: Tree) -> None:
    """Case 90."""
    belt, waiting = runtime(pdf), threading.Semaphore(0)
    belt.gate.desk.listen(lambda _: waiting.release())
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(belt.session("ada", "one").call_sync, "skill_load", {"skill": "pdf"})
        assert waiting.acquire(timeout=500)
        belt.close()
        assert "the runtime is closed and cannot ask for it" in load.result(150).error
    assert belt.gate.desk.pending() == []


def test_what_the_host_denies_no_skill_can_declare(tree: Tree) -> None:
    """Case 91."""
    tree.skill("project/.agents/skills/git", allowed_tools="Bash(git *) Read")
    tree.write(
        "home/.config/skillbelt/config.toml", '[permission]\nallow = ["Bash"]\ndeny = ["Bash"]\n'
    )
    belt = Runtime(tree.project)
    skill = belt.catalog.find("git")
    granted = belt.gate.declared(skill, belt.gate.load_request(skill, "model"))
    assert granted.tools == ("Read",)
    [(tool, reason)] = granted.denied
    assert tool == "Bash(git *)"
    assert "denied by the user's rules" in reason


@pytest.mark.parametrize(("allow", "tools"), [("", ("Read",)), ("Bash", ("Bash", "Read"))])
def test_without_trust_only_what_is_allowed_is_granted(
    tree: Tree, allow: str, tools: tuple[str, ...]
) -> None:
    """Case 91."""
    tree.skill("project/.agents/skills/git", allowed_tools="Bash Read")
    rules = [Rule("tool", allow, "allow")] if allow else []
    belt = Runtime(tree.project, rules=rules, trust_declared_tools=False)
    skill = belt.catalog.find("git")
    assert belt.gate.declared(skill, belt.gate.load_request(skill, "model")).tools == tools
