"""A server of the fault benchmark: runs its orders and reports each, a line of JSON.

    python -m benchmarks.fleet_server FOLDER PLACES

reads lines `ID SECONDS` and runs each in a conversation of its own, several at once, each with
another skill that no machine has seen before. A run that ended is reported once, after the event of
its end is committed to the store: `{"id", "end": "result"|"error", "kind", "message",
"committed"}`.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TextIO

from skillbelt import NewEvent, Rule, Runtime, SkillbeltError
from skillbelt.store import SessionKey

MARK = "fleet-run-"
APP = "faults"
SKILL = "---\nname: {name}\ndescription: Waits and says so.\n---\n# {new}\n"
# The arguments of the command are its mark, by which it is found on any machine.
COMMAND = "exec -a {mark} bash -c 'sleep {seconds}; echo {mark}; : keep the shell'"


def main(folder: str, places: int) -> int:
    """Serve until standard input ends."""
    project = os.path.join(folder, "project")
    skills = queue.SimpleQueue[str]()
    for number in range(places):
        _renew_skill(project, f"marked-{number}")
        skills.put(f"marked-{number}")
    said = threading.Lock()
    # Ray prints to standard output too; the reports have it for themselves.
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    belt = Runtime(project, rules=[Rule("*", "*", "allow")])
    with belt, ThreadPoolExecutor(places) as pool:
        for line in sys.stdin:
            name, seconds = line.split()
            wanted = _Wanted(name, float(seconds), project)
            pool.submit(_run, belt, wanted, skills, _Reports(said, reports))
    return 0


def _renew_skill(project: str, name: str) -> None:
    """Give a skill contents that no machine has seen."""
    skill = os.path.join(project, ".agents", "skills", name)
    os.makedirs(skill, exist_ok=True)
    new = f"{skill}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(SKILL.format(name=name, new=os.urandom(16).hex()))
    os.replace(new, os.path.join(skill, "SKILL.md"))


class _Wanted(NamedTuple):
    name: str
    seconds: float
    project: str


class _Reports(NamedTuple):
    lock: threading.Lock
    stream: TextIO


def _run(belt: Runtime, wanted: _Wanted, skills: queue.SimpleQueue[str], reports: _Reports) -> None:
    key = SessionKey(APP, wanted.name, "one")
    # No other run has this skill now, so that it may get new contents.
    skill = skills.get()
    try:
        _renew_skill(wanted.project, skill)
        report = _carry_out(belt, wanted, skill, key)
    finally:
        skills.put(skill)
    report["committed"] = _commit(belt, key, report)
    with reports.lock:
        print(json.dumps(report), file=reports.stream, flush=True)


def _carry_out(belt: Runtime, wanted: _Wanted, skill: str, key: SessionKey) -> dict[str, object]:
    name = wanted.name
    report: dict[str, object] = {"id": name, "end": "error", "kind": "", "message": ""}
    try:
        session = belt.session(key.user, key.session, app=key.app)
        command = COMMAND.format(mark=MARK + name, seconds=wanted.seconds)
        done = belt.run_sync(skill, ["bash", "-c", command], session=session)
        right = done.exit_code == 0 and done.stdout.strip() == MARK + name
        report["end"] = "result" if right else "error"
        report["kind"] = "" if right else f"exit {done.exit_code}"
        report["message"] = "" if right else f"{done.stderr} {done.limits_hit}"[:300]
    except SkillbeltError as error:
        report |= {"kind": error.kind, "message": str(error)[:400]}
    except Exception as error:  # not one of ours: the benchmark counts it as unclear
        report |= {"kind": "unclear", "message": f"{type(error).__name__}: {error}"[:300]}
    return report


def _commit(belt: Runtime, key: SessionKey, report: dict[str, object]) -> bool:
    """Append the end of the run to its session; return whether the store said that it has it."""
    try:
        belt.store.append(key, [NewEvent("run_reported", "", {"id": str(report["id"])})])
    except SkillbeltError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
