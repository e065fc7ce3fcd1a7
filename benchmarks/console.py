"""Measure what the console costs: `python -m benchmarks.console [--skills 10000]`.

Four figures, each beside something of the same run:

- the start of `skillbelt console`, beside that of `skillbelt serve mcp --http` (processor time of
  the process until it says its address, the least of several);
- the first page of the skills with many skills, beside the same page with ten;
- an answer given in the console, until the process that waits for it goes on, beside the time in
  which a waiting process looks at the store by itself;
- a run that is kept in the history and the log, beside one that is not (processor time).

Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import http.client
import http.cookiejar
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from skillbelt import Rule, Runtime
from skillbelt.permission.rules import Request
from skillbelt.permission.waiting import WaitingRequests
from skillbelt.store import open_store

SKILLS, FEW, ROUNDS, PAGES, ANSWERS, RUNS = 10_000, 10, 7, 15, 30, 40
# A page is wanted within 0.2 s, and an answer within 0.3 s.
START_BAR, PAGE_SECONDS, ANSWER_SECONDS, HISTORY_BAR = 1.5, 0.2, 0.3, 1.25
TEXT = (
    "---\nname: {0}\ndescription: Makes {0} of tables. Use when {0} is asked for.\n---\n\n# {0}\n"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=SKILLS, help="skills of the large project")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        os.environ["HOME"] = folder
        for name in ("state", "cache"):
            os.environ[f"SKILLBELT_{name.upper()}_DIR"] = str(top / name)
        few, many = make_project(top / "few", FEW), make_project(top / "many", options.skills)
        missed = [*report_start(few), *report_pages(few, many, options.skills)]
        missed += [*report_answers(few), *report_history(few)]
    for line in missed:
        print(f"MISSED: {line}")
    return int(bool(missed))


def make_project(folder: Path, count: int) -> Path:
    """Write a project with so many skills."""
    for number in range(count):
        skill = folder / ".agents" / "skills" / f"skill-{number}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(TEXT.format(skill.name))
    return folder


def command(project: Path, *words: str) -> list[str]:
    """A command of the product in a project."""
    return [sys.executable, "-m", "skillbelt", *words, "--project", str(project)]


# The start


def report_start(project: Path) -> list[str]:
    """Compare the start with that of the MCP server."""
    ways = {
        "console": command(project, "console", "--port", "0", "--json"),
        "mcp": command(project, "serve", "mcp", "--http", "127.0.0.1:0", "--json"),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, words in ways.items():
            found[name].append(time_start(words))
    ours, other = min(found["console"]), min(found["mcp"])
    ratio = ours / other
    print(
        f"start: console {ours * 1000:.0f} ms, serve mcp --http {other * 1000:.0f} ms: {ratio:.2f}"
    )
    return [f"the start takes {ratio:.2f} x (at most {START_BAR})"] if ratio > START_BAR else []


def time_start(words: Sequence[str]) -> float:
    """The processor time of a server until it says that it listens."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        assert server.stdout is not None
        try:
            while b"://" not in (line := server.stdout.readline()):
                assert line, "the server ended"
            fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        finally:
            server.kill()


# Pages


class Visitor:
    """A person at a console that runs."""

    def __init__(self, said: dict[str, str]) -> None:
        self.url, self.api, self._token = said["url"], said["api"], said["token"]
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        self._opener.open(said["link"]).close()

    def read(self, path: str) -> str:
        """A page of the console."""
        with self._opener.open(f"{self.url}{path}") as answer:
            text: str = answer.read().decode()
            return text

    def call(self, path: str, body: dict[str, object]) -> None:
        """Send something to the API."""
        parts = urllib.parse.urlsplit(self.api)
        connection = http.client.HTTPConnection(parts.netloc)
        heads = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection.request("POST", f"{parts.path}{path}", json.dumps(body), heads)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        connection.close()


@contextmanager
def visiting(project: Path) -> Iterator[Visitor]:
    """Start a console, and sign in."""
    words = command(project, "console", "--port", "0", "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        text = ""
        try:
            while "}" not in text:
                text += server.stdout.readline().decode()
            yield Visitor(json.loads(text))
        finally:
            server.kill()


def report_pages(few: Path, many: Path, count: int) -> list[str]:
    """Compare the first page of the skills of a large project with that of a small one."""
    with visiting(few) as small, visiting(many) as large:
        first = time_page(large)
        pairs = [(time_page(small), time_page(large)) for _ in range(PAGES)]
    ten, all_of_them = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"first page: {count:,} skills {all_of_them * 1000:.0f} ms (the very first "
        f"{first * 1000:.0f} ms), {FEW} skills {ten * 1000:.0f} ms: {all_of_them / ten:.2f}"
    )
    if all_of_them <= PAGE_SECONDS:
        return []
    return [f"the first page takes {all_of_them:.2f} s (at most {PAGE_SECONDS})"]


def time_page(visitor: Visitor) -> float:
    """The seconds of the first page of the skills."""
    began = time.perf_counter()
    assert "skill-" in visitor.read("/skills")
    return time.perf_counter() - began


# Answers


def report_answers(project: Path) -> list[str]:
    """Measure how soon a process that waits goes on after an answer."""
    with visiting(project) as visitor, Runtime(project) as belt, ThreadPoolExecutor(1) as pool:
        waiting = WaitingRequests(store=open_store(belt.settings), project=str(project))
        found = []
        for number in range(ANSWERS):
            text = f"make part-{number}"
            request = Request("run", (text,), (text,), summary=text, skill="skill-0", hash="h")
            asked = pool.submit(_ask, waiting, request)
            while not (ids := re.findall(r"/inbox/([\w-]+)", visitor.read("/"))):
                assert not asked.done(), asked.result()
            began = time.perf_counter()
            visitor.call(f"/inbox/{ids[0]}", {"answer": "once"})
            found.append(asked.result() - began)
    median, most = statistics.median(found), max(found)
    print(f"answer: median {median * 1000:.0f} ms, most {most * 1000:.0f} ms of {ANSWERS}")
    if median <= ANSWER_SECONDS:
        return []
    return [f"an answer takes {median:.2f} s (at most {ANSWER_SECONDS})"]


def _ask(waiting: WaitingRequests, request: Request) -> float:
    """Ask, and return when the answer came."""
    waiting.ask(request)
    return time.perf_counter()


# The history


def report_history(project: Path) -> list[str]:
    """Compare runs that are kept in the history and the log with runs that are not."""
    rules = [Rule("*", "*", "allow")]
    with Runtime(project, rules=rules) as kept, Runtime(project, rules=rules, audit=False) as bare:
        for belt in (kept, bare):
            time_runs(belt, 5)
        pairs = [(time_runs(kept, RUNS // 4), time_runs(bare, RUNS // 4)) for _ in range(ROUNDS)]
    with_it, without = (min(column) for column in zip(*pairs, strict=True))
    ratio = with_it / without
    print(f"run: kept {with_it * 1000:.1f} ms, not kept {without * 1000:.1f} ms: {ratio:.2f}")
    return [f"the history costs {ratio:.2f} x (at most {HISTORY_BAR})"] * (ratio > HISTORY_BAR)


def time_runs(belt: Runtime, runs: int) -> float:
    """The processor time of a run, with its command."""
    began = _processor_seconds()
    for _ in range(runs):
        assert belt.run_sync("skill-0", ["python3", "-c", "pass"]).exit_code == 0
    return (_processor_seconds() - began) / runs


def _processor_seconds() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


if __name__ == "__main__":
    sys.exit(main())
