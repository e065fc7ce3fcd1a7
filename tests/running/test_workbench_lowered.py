"""A run in a weaker sandbox says so, where the strongest does not work."""

from __future__ import annotations

import pytest

from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from tests import needs
from tests.benches import Bench

pytestmark = needs.linux
REASON = "user namespaces are off here"


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinuxSandbox, "unavailable", lambda _: REASON)


def test_the_result_names_the_reason_and_what_is_not_held(bench: Bench) -> None:
    done = bench.run("echo x")
    assert (done.sandbox, done.stdout) == ("landlock", "x\n")
    [said] = done.warnings
    assert said.startswith(f"bubblewrap: {REASON}; landlock is used instead, without: names")


def test_whoever_is_asked_is_told(bench: Bench) -> None:
    asked: list[str] = []

    def answer(question: Pending) -> Answer:
        asked.append(question.request.summary)
        return Answer("once")

    bench.open(rules=(), ask=answer).run_sync("kit", "echo x")
    assert [text.endswith(", in the sandbox landlock alone") for text in asked] == [True]


def test_the_one_that_was_named_is_not_explained(bench: Bench) -> None:
    done = bench.open(sandbox="landlock").run_sync("kit", "echo x")
    assert (done.sandbox, done.warnings) == ("landlock", ())
