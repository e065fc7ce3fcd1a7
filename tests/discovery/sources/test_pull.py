"""When a source is asked, what replaces it, and that no reader sees a partial copy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillbelt.discovery.sources import Pulled
from skillbelt.discovery.sources.cache import READY, CachedSource
from skillbelt.discovery.sources.pull import PullJob
from skillbelt.values import Limits
from tests import warm
from tests.bounds import bounds
from tests.discovery.sources.archives import SKILL, tree_of, zipped
from tests.discovery.sources.conftest import QUICK, Pull
from tests.discovery.sources.server import Reply, Server, eventually, running
from tests.tree import codes

Files = Callable[[Pulled], dict[str, bytes]]


def test_one_download_serves_twice(server: Server, fetch: Pull, files: Files, cache: Path) -> None:
    """Case 26."""
    server.pages["/a.zip"] = zipped({"SKILL.md": SKILL})
    first = fetch(f"{server.url}/a.zip")
    assert files(first) == {"a/SKILL.md": SKILL}
    assert len(list(cache.glob(f"*/{READY}"))) == 1
    assert fetch(f"{server.url}/a.zip") == first
    assert server.requests == ["/a.zip"]


def test_a_copy_is_asked_about_when_it_is_old(server: Server, fetch: Pull, files: Files) -> None:
    server.pages["/a.zip"] = zipped({"SKILL.md": b"1"})
    limits = bounds(QUICK, remote_refresh_seconds=0)
    first = fetch(f"{server.url}/a.zip", limits=limits)
    server.pages["/a.zip"] = zipped({"SKILL.md": b"2"})
    second = fetch(f"{server.url}/a.zip", limits=limits)
    assert files(second) == {"a/SKILL.md": b"2"}
    assert files(first) == {"a/SKILL.md": b"1"}, "a reader of the copy before still has it"


INDEX = json.dumps({"skills": [{"name": "pdf", "files": ["SKILL.md"]}]}).encode()


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({}, False),
        ({"Cache-Control": "no-cache"}, True),
        ({"Cache-Control": "private, No-Store"}, True),
        ({"Cache-Control": "max-age=0, must-revalidate"}, True),
        ({"Cache-Control": "public, max-age=600"}, False),
        ({"Cache-Control": "max-age=600", "Age": "600"}, True),
        ({"Cache-Control": "max-age=soon"}, True),
        ({"Expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, True),
        ({"Expires": "0"}, True),
        ({"Expires": "Thu, 01 Jan 2099 00:00:00 GMT"}, False),
        ({"Cache-Control": "max-age=600", "Expires": "0"}, False),
    ],
)
@pytest.mark.parametrize("path", ["/index.json", "/a.zip", "/pdf/SKILL.md"])
def test_a_server_says_how_long_its_copy_may_be_used(
    server: Server, fetch: Pull, path: str, headers: dict[str, str], asked: bool
) -> None:
    pages = {"/index.json": INDEX, "/a.zip": zipped({"SKILL.md": SKILL}), "/pdf/SKILL.md": SKILL}
    server.pages |= {place: Reply(data, headers=headers) for place, data in pages.items()}
    first = fetch(server.url + path)
    before = len(server.requests)
    assert fetch(server.url + path) == first
    assert (len(server.requests) > before) == asked


def test_a_copy_is_used_as_long_as_its_server_says(
    server: Server, fetch: Pull, cache: Path
) -> None:
    reply = Reply(zipped({"SKILL.md": SKILL}), headers={"Cache-Control": "max-age=1000"})
    server.pages["/a.zip"] = reply
    fetch(f"{server.url}/a.zip")
    [state] = cache.glob(f"*/{READY}")
    kept = json.loads(state.read_text())
    state.write_text(json.dumps({**kept, "checked": time.time() - 900}))
    fetch(f"{server.url}/a.zip")
    assert len(server.requests) == 1
    state.write_text(json.dumps({**kept, "checked": time.time() - 1100}))
    fetch(f"{server.url}/a.zip")
    assert len(server.requests) == 2


@pytest.mark.parametrize("etag", ['"1"', ""])
def test_what_did_not_change_is_not_unpacked_again(server: Server, fetch: Pull, etag: str) -> None:
    server.pages["/a.zip"] = Reply(zipped({"SKILL.md": SKILL}), etag=etag)
    first = fetch(f"{server.url}/a.zip")
    assert fetch(f"{server.url}/a.zip", refresh=True) == first
    assert len(server.requests) == 2
    assert server.headers[1].get("if-none-match", "") == etag


def test_a_clock_set_back_does_not_keep_a_copy_for_ever(
    server: Server, fetch: Pull, cache: Path
) -> None:
    server.pages["/a.zip"] = zipped({"SKILL.md": SKILL})
    fetch(f"{server.url}/a.zip")
    [state] = cache.glob(f"*/{READY}")
    state.write_text(json.dumps({**json.loads(state.read_text()), "checked": time.time() + 10**6}))
    fetch(f"{server.url}/a.zip")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (Reply(status=500), "remote-status"),
        (Reply(status=404), "remote-status"),
        (Reply(b"PK\x03\x04", length=999, headers={"Connection": "close"}), "remote-unreachable"),
        (b"garbage", "archive-unknown"),
        (zipped({"SKILL.md": b"2"})[:-30], "archive-refused"),
        (zipped({"SKILL.md": b"2", "../x": b""}), "archive-refused"),
        (Reply(b"", stall=30), "remote-timeout"),
    ],
)
def test_trouble_leaves_the_last_good_copy_in_use(
    server: Server, fetch: Pull, files: Files, page: Reply | bytes, code: str
) -> None:
    url = f"{server.url}/a.zip"
    server.pages["/a.zip"] = zipped({"SKILL.md": b"1"})
    first = fetch(url)
    server.pages["/a.zip"] = page
    limits = QUICK._replace(http_timeout_seconds=0.5)
    pulled = fetch(url, refresh=True, limits=limits)
    assert pulled.folders == first.folders
    assert files(pulled) == {"a/SKILL.md": b"1"}
    [problem] = pulled.diagnostics
    assert (problem.code, problem.severity, problem.path) == (code, "warning", url)
    assert "last good copy" in problem.message
    server.pages["/a.zip"] = zipped({"SKILL.md": b"3"})
    assert files(fetch(url, refresh=True)) == {"a/SKILL.md": b"3"}


def test_a_dead_server_leaves_the_last_good_copy_in_use(fetch: Pull, files: Files) -> None:
    with running() as server:
        server.pages["/a.zip"] = zipped({"SKILL.md": b"1"})
        url = f"{server.url}/a.zip"
        fetch(url)
    pulled = fetch(url, refresh=True)
    assert files(pulled) == {"a/SKILL.md": b"1"}
    [problem] = pulled.diagnostics
    assert (problem.code, problem.path) == ("remote-unreachable", url)


def test_a_server_that_takes_too_long_is_not_asked_on_every_call(
    server: Server, fetch: Pull, files: Files
) -> None:
    url = f"{server.url}/a.zip"
    server.pages["/a.zip"] = zipped({"SKILL.md": b"1"})
    fetch(url)
    server.pages["/a.zip"] = Reply(b"", stall=30)
    slow = QUICK._replace(http_timeout_seconds=0.3)
    first = fetch(url, refresh=True, limits=slow)
    assert codes(first) == ["remote-timeout"]
    asked = len(server.requests)
    short = bounds(slow, remote_refresh_seconds=0.2)
    eventually(lambda: fetch(url, limits=short) == first and len(server.requests) > asked)

    old = bounds(QUICK, remote_refresh_seconds=50)
    state = CachedSource(str(Path(first.folders[0].folder).parents[2]), url)
    ready = state.read()
    assert ready
    state.write(ready._replace(checked=1.0))
    asked = len(server.requests)
    assert fetch(url, limits=old) == first
    assert len(server.requests) == asked
    server.pages["/a.zip"] = zipped({"SKILL.md": b"2"})
    whole = fetch(url, refresh=True)
    assert files(whole) == {"a/SKILL.md": b"2"} and whole.diagnostics == ()


def test_offline_asks_nobody(server: Server, fetch: Pull, files: Files, cache: Path) -> None:
    url = f"{server.url}/a.zip"
    server.pages["/a.zip"] = zipped({"SKILL.md": SKILL})
    assert codes(fetch(url, offline=True)) == ["remote-offline"]
    assert server.requests == [] and not cache.exists()
    fetch(url)
    limits = bounds(QUICK, remote_refresh_seconds=0)
    pulled = fetch(url, offline=True, refresh=True, limits=limits)
    assert files(pulled) == {"a/SKILL.md": SKILL} and pulled.diagnostics == ()
    assert server.requests == ["/a.zip"]


def test_a_password_is_neither_shown_nor_stored(server: Server, fetch: Pull, cache: Path) -> None:
    server.pages["/a.zip"] = Reply(zipped({"SKILL.md": SKILL}), etag='"1"')
    url = server.url.replace("http://", "http://me:secret@") + "/a.zip"
    pulled = fetch(url)
    assert "authorization" in server.headers[0]
    assert pulled.folders[0].origin.url == f"{server.url}/a.zip"
    assert fetch(url, refresh=True) == pulled
    assert server.headers[1]["if-none-match"] == '"1"'
    server.pages.clear()
    assert "secret" not in str(fetch(url, refresh=True))
    assert not [path for path, data in tree_of(cache).items() if b"secret" in data]


def test_a_path_becomes_a_file_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")

    def url(source: str) -> str:
        return PullJob(
            source=source, cache_dir="", limits=Limits(), refresh=False, offline=False
        ).url

    assert url("a b.zip") == f"file://{tmp_path.as_posix()}/a%20b.zip"
    assert url("~/a.zip") == "file:///home/me/a.zip"
    assert url(" https://a/b ") == "https://a/b"


CHILD = """
import json, sys
from skillbelt.discovery.sources import pull_all
from skillbelt.values import Limits
from tests.bounds import bounds
source, cache, refresh = sys.argv[1:]
bounds(source_timeout_seconds=40)
pulled = pull_all([source], cache_dir=cache, limits=Limits(), refresh=bool(refresh))[0]
print(json.dumps([[one.folder for one in pulled.folders], [str(d) for d in pulled.diagnostics]]))
"""


def start(source: str, cache: Path, refresh: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, source, str(cache), "1" if refresh else ""]
    return warm.Popen[str](command, stdout=subprocess.PIPE, text=True)


def answer(child: subprocess.Popen[str]) -> tuple[list[str], list[str]]:
    out, _ = child.communicate(timeout=500)
    assert child.returncode == 0
    folders, problems = json.loads(out)
    return folders, problems


def test_two_processes_do_one_download(server: Server, cache: Path) -> None:
    data = zipped({"SKILL.md": SKILL, "big": os.urandom(50_000)})
    server.pages["/a.zip"] = Reply(data, chunk=10_000, pause=0.3)
    children = [start(f"{server.url}/a.zip", cache) for _ in range(3)]
    answers = [answer(child) for child in children]
    assert server.requests == ["/a.zip"]
    assert answers[0] == answers[1] == answers[2]
    [folder] = answers[0][0]
    assert sorted(tree_of(folder)) == ["a/SKILL.md", "a/big"]


def test_readers_see_the_old_copy_until_the_new_one_is_whole(
    server: Server, fetch: Pull, files: Files, cache: Path
) -> None:
    url = f"{server.url}/a.zip"
    server.pages["/a.zip"] = zipped({"SKILL.md": b"1", "old": b"1"})
    fetch(url)
    data = zipped({"SKILL.md": b"2", "new": os.urandom(30_000)})
    server.pages["/a.zip"] = Reply(data, chunk=3000, pause=0.05)
    child = start(url, cache, refresh=True)
    seen = set()
    while child.poll() is None:
        seen.add(tuple(sorted(files(fetch(url)))))
        time.sleep(0.005)
    seen.add(tuple(sorted(files(fetch(url)))))
    answer(child)
    assert seen == {("a/SKILL.md", "a/old"), ("a/SKILL.md", "a/new")}


def assert_clean(cache: Path, url: str, wanted: set[str]) -> None:
    """The entry holds complete copies and nothing else."""
    entry = CachedSource(str(cache), url)
    ready = entry.read()
    assert ready
    assert set(tree_of(entry.folder(ready))) == wanted
    kept = {READY, "lock", ready.generation, ready.previous} - {""}
    assert set(os.listdir(entry.path)) == kept


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=500)


def test_killed_during_the_download(server: Server, fetch: Pull, files: Files, cache: Path) -> None:
    url = f"{server.url}/a.zip"
    whole = zipped({"SKILL.md": SKILL, "x": os.urandom(20_000)})
    server.pages["/a.zip"] = Reply(whole, chunk=5000, pause=30)
    child = start(url, cache)
    eventually(lambda: any(cache.glob("*/new-*")) and bool(server.requests))
    kill(child)
    assert not list(cache.glob(f"*/{READY}"))
    server.pages["/a.zip"] = whole
    assert sorted(files(fetch(url))) == ["a/SKILL.md", "a/x"]
    assert_clean(cache, url, {"a/SKILL.md", "a/x"})


def test_killed_while_an_old_copy_is_in_use(
    server: Server, fetch: Pull, files: Files, cache: Path
) -> None:
    url = f"{server.url}/index.json"
    listing = {"skills": [{"name": "a", "version": "1", "files": ["SKILL.md", "x.md"]}]}
    server.pages |= {
        "/index.json": json.dumps(listing).encode(),
        "/a/SKILL.md": b"1",
        "/a/x.md": b"1",
    }
    fetch(url)
    listing["skills"][0]["version"] = "2"
    server.pages |= {"/index.json": json.dumps(listing).encode(), "/a/SKILL.md": b"2"}
    server.pages["/a/x.md"] = Reply(b"2" * 9, chunk=1, pause=30)
    child = start(url, cache, refresh=True)
    eventually(
        lambda: server.requests.count("/a/x.md") == 2 and any(cache.glob("*/new-*/parts/*/*"))
    )
    kill(child)
    assert files(fetch(url)) == {"a/SKILL.md": b"1", "a/x.md": b"1"}
    assert_clean(cache, url, {"a/SKILL.md", "a/x.md"})
    server.pages["/a/x.md"] = b"2"
    assert files(fetch(url, refresh=True)) == {"a/SKILL.md": b"2", "a/x.md": b"2"}
    assert_clean(cache, url, {"a/SKILL.md", "a/x.md"})


NURSERY = """
import os, signal, sys
import asyncio, anyio, ctypes, httpx2, httpcore2
import skillbelt.discovery.sources.pull, skillbelt.discovery.sources.web
from skillbelt.discovery.sources import pull_all
from skillbelt.values import Limits
from tests.bounds import bounds

def die_at(step):
    # At the n-th time that this process is about to change something in the cache.
    seen = 0

    def watch(event, arguments):
        nonlocal seen
        changing = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link")
        if event == "open" and isinstance(arguments[2], int):
            changing = bool(arguments[2] & os.O_CREAT)
        seen += changing
        if changing and seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)

sys.dont_write_bytecode = True
limits = bounds(source_timeout_seconds=40)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        die_at(int(line))
        pull_all([sys.argv[1]], cache_dir=sys.argv[2], limits=limits, refresh=True)[0]
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextmanager
def nursery(source: str, cache: Path) -> Iterator[Callable[[int], bool]]:
    """Return a function that pulls in a new process and kills it at that step.

    True if it finished.
    """
    command = [sys.executable, "-c", NURSERY, source, str(cache)]
    with warm.Popen[str](
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout

        def child(step: int) -> bool:
            assert process.stdin and process.stdout
            print(step, file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            assert code in (0, -signal.SIGKILL)
            return code == 0

        yield child
        process.stdin.close()


@pytest.mark.long
def test_killed_at_every_step(server: Server, fetch: Pull, files: Files, cache: Path) -> None:
    """Before each single change of the cache: unpacking, publishing and sweeping included."""
    url = f"{server.url}/a.zip"
    old, new = {"a/SKILL.md": b"1"}, {"a/SKILL.md": b"2", "a/d/x": b"2", "a/d/y": b"2"}
    first, second = zipped({"SKILL.md": b"1"}), zipped({"SKILL.md": b"2", "d/x": b"2", "d/y": b"2"})
    outcomes = []
    with nursery(url, cache) as child:
        for step in range(1, 60):
            server.pages["/a.zip"] = first
            assert files(fetch(url, refresh=True)) == old
            assert_clean(cache, url, set(old))
            server.pages["/a.zip"] = second
            through = child(step)
            found = files(fetch(url))
            assert found in (old, new), f"step {step}"
            assert_clean(cache, url, set(found))
            outcomes.append(found == new)
            if through:
                break
    assert through, "there must be an end to the steps"
    assert len(outcomes) > 10
    assert outcomes == sorted(outcomes) and outcomes[0] is False and outcomes[-1] is True


def test_killed_before_there_was_a_copy(
    server: Server, fetch: Pull, files: Files, cache: Path
) -> None:
    url = f"{server.url}/a.zip"
    server.pages["/a.zip"] = zipped({"SKILL.md": SKILL})
    with nursery(url, cache) as child:
        assert [child(step) for step in range(1, 12)].count(False) > 5
    assert files(fetch(url, refresh=True)) == {"a/SKILL.md": SKILL}
    assert_clean(cache, url, {"a/SKILL.md"})
