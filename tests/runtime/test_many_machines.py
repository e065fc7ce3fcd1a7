"""1,000 conversations, interleaved over three processes that share only a PostgreSQL server."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from skillbelt.permission.audit_events import tenant_of
from skillbelt.permission.postgres_audit import PostgresAuditLog
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending, WaitingRequests
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.store.protocol import SessionKey
from tests.tree import Tree

CONVERSATIONS, MACHINES, STEPS, SKILLS, THREADS = 1_000, 3, 3, 7, 4
NAME = "team/shop"
# Answers each line [conversation, step] by a line, from several threads.
WORKER = """
import json, sys, threading
from concurrent.futures import ThreadPoolExecutor
from skillbelt import Rule, Runtime, load_settings
settings = load_settings(sys.argv[1])
rules = [Rule("skill", "*", "allow"), Rule("skill", "skill-1", "ask")]
printing = threading.Lock()
with Runtime(settings=settings, rules=rules) as belt, ThreadPoolExecutor(int(sys.argv[2])) as pool:
    def work(line):
        number, step = json.loads(line)
        session = belt.session(f"user-{number}", f"chat-{number}", app="shop")
        got = session.call_sync("skill_load", {"skill": f"skill-{step}"})
        with printing:
            print(json.dumps([number, step, got.error or ""]), flush=True)
    for line in sys.stdin:
        pool.submit(work, line)
"""


class Machine:
    """A process with its own home, state folder and checkout."""

    def __init__(self, tree: Tree, number: int, url: str) -> None:
        root = f"machine-{number}"
        self.project = tree.git(f"{root}/src{number}/shop")
        for skill in range(SKILLS):
            tree.skill(self.project / f".agents/skills/skill-{skill}")
        home = tree.path(f"{root}/home")
        home.mkdir()
        folders = {f"XDG_{kind}_HOME": str(home / kind) for kind in ("STATE", "CACHE", "CONFIG")}
        shared = {"SKILLBELT_STORE": url, "SKILLBELT_PROJECT_NAME": NAME}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self.project), str(THREADS)],
            env={**os.environ, "HOME": str(home), **folders, **shared},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def work(self, numbers: list[int], step: int) -> list[list[object]]:
        """Do the step of these conversations; return the answers of the process."""
        assert self.process.stdin
        assert self.process.stdout
        for number in numbers:
            self.process.stdin.write(json.dumps([number, step]) + "\n")
        self.process.stdin.flush()
        return [json.loads(self.process.stdout.readline()) for _ in numbers]


def interleave(machines: list[Machine]) -> list[list[object]]:
    """Take each conversation through its steps, each step on another machine than the last."""
    said: list[list[object]] = []
    for step in range(STEPS):
        shares: list[list[int]] = [[] for _ in machines]
        for number in range(CONVERSATIONS):
            shares[(number + step) % len(machines)].append(number)
        threads = []
        for machine, numbers in zip(machines, shares, strict=True):
            random.Random(step).shuffle(numbers)

            def work(machine: Machine = machine, numbers: list[int] = numbers) -> None:
                said.extend(machine.work(numbers, step))  # noqa: B023

            threads.append(threading.Thread(target=work))
            threads[-1].start()
        for thread in threads:
            thread.join()
    return said


def loads(store: PostgresStore, number: int) -> list[str]:
    key = SessionKey("shop", f"user-{number}", f"chat-{number}")
    return [str(one.data["name"]) for one in store.events(key) if one.type == "skill_loaded"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_conversations_keep_their_order_and_nothing_of_each_other(
    tree: Tree, postgres_url: str
) -> None:
    """Step 1 of each one needs a permission, which another machine answers."""
    with closing(PostgresStore(postgres_url)) as store:
        desk = WaitingRequests(store=store, project=NAME)
        asked: list[str] = []

        def answer(pending: Pending) -> None:
            asked.append(pending.request.session)
            desk.answer(pending.id, Answer("once", by="desk"))

        desk.listen(answer)
        machines = [Machine(tree, number, postgres_url) for number in range(MACHINES)]
        said = interleave(machines)
        for machine in machines:
            machine.process.communicate(timeout=500)
            assert machine.process.returncode == 0
        desk.close()

        everyone = range(CONVERSATIONS)
        assert sorted(said, key=str) == sorted(
            ([number, step, ""] for number in everyone for step in range(STEPS)), key=str
        )
        wanted = [f"skill-{step}" for step in range(STEPS)]
        assert [loads(store, number) for number in everyone] == [wanted for _ in everyone]
        assert sorted(asked) == sorted(f"shop/user-{one}/chat-{one}" for one in everyone)
        log = PostgresAuditLog(store.database)
        recorded = list(log.read(type="load"))
        assert len(recorded) == CONVERSATIONS * STEPS
        for number in (0, CONVERSATIONS - 1):
            own = list(log.read(type="load", tenant=("shop", f"user-{number}")))
            assert [event.skill for event in own] == wanted
            assert {tenant_of(event.session) for event in own} == {("shop", f"user-{number}")}
        assert log.verify().broken == 0
