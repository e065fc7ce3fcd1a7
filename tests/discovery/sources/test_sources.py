from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt.discovery.sources import pull_all
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.discovery.sources.archives import SKILL, tree_of, zipped
from tests.discovery.sources.server import Reply, Server
from tests.examples import examples


def test_results_come_in_the_order_given(server: Server, cache: Path) -> None:
    for i in range(6):
        server.pages[f"/{i}.zip"] = Reply(zipped({"SKILL.md": b"%d" % i}), stall=(6 - i) * 0.05)
    server.pages["/3.zip"] = Reply(status=500)
    sources = [f"{server.url}/{i}.zip" for i in range(6)]
    pulled = pull_all(sources, cache_dir=str(cache), limits=Limits())
    found = [tree_of(one.folders[0].folder) if one.folders else {} for one in pulled]
    assert found == [{f"{i}/SKILL.md": b"%d" % i} if i != 3 else {} for i in range(6)]
    assert [bool(one.diagnostics) for one in pulled] == [i == 3 for i in range(6)]


def test_a_slow_source_delays_no_other_beyond_its_time(server: Server, cache: Path) -> None:
    server.pages |= {
        "/slow.zip": Reply(b"PK\x03\x04" * 999, stall=1000),
        "/drip.zip": Reply(b"PK\x03\x04" * 9999, chunk=4, pause=0.1),
        "/good.zip": zipped({"SKILL.md": SKILL}),
    }
    sources = [f"{server.url}/{name}.zip" for name in ("slow", "drip", "good")]
    limits = bounds(http_timeout_seconds=30, source_timeout_seconds=1)
    slow, drip, good = pull_all(sources, cache_dir=str(cache), limits=limits)
    assert [one.diagnostics[0].code for one in (slow, drip)] == ["remote-timeout"] * 2
    assert slow.folders == drip.folders == ()
    assert len(good.folders) == 1 and good.diagnostics == ()


def test_the_interpreter_does_not_wait_for_a_slow_source(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code = f"""
from skillbelt.discovery.sources import pull_all
from tests.bounds import bounds
limits = bounds(http_timeout_seconds=50, source_timeout_seconds=0.3)
print(pull_all(["http://127.0.0.1:{port}/a.zip"], cache_dir={str(tmp_path)!r}, limits=limits)[0])
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True
        )
    assert "remote-timeout" in done.stdout


def test_no_sources_give_nothing(cache: Path) -> None:
    assert pull_all([], cache_dir=str(cache), limits=Limits()) == []
    assert not cache.exists()


def test_the_same_source_twice_is_downloaded_once(server: Server, cache: Path) -> None:
    server.pages["/a.zip"] = Reply(zipped({"SKILL.md": SKILL}), stall=0.1)
    first, second = pull_all([f"{server.url}/a.zip"] * 2, cache_dir=str(cache), limits=Limits())
    assert first == second and len(first.folders) == 1
    assert server.requests == ["/a.zip"]


def test_a_cache_that_can_not_be_made_is_said(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server.pages["/a.zip"] = zipped({"SKILL.md": SKILL})
    pulled = pull_all(
        [f"{server.url}/a.zip"], cache_dir=str(tmp_path / "file" / "x"), limits=Limits()
    )[0]
    assert pulled.folders == ()
    assert [problem.code for problem in pulled.diagnostics] == ["cache-unusable"]


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["", "http://[", "https://:", "file://", "http://127.0.0.1:1/", "ftp://", "~"]),
    st.text(max_size=20),
)
def test_no_source_raises(tmp_path: Path, scheme: str, rest: str) -> None:
    limits = bounds(http_timeout_seconds=0.5, source_timeout_seconds=1)
    for offline in (True, False):
        pulled = pull_all(
            [scheme + rest], cache_dir=str(tmp_path / "c"), limits=limits, offline=offline
        )[0]
        assert pulled.folders or pulled.diagnostics


def test_importing_the_module_loads_nothing_heavy() -> None:
    code = "import json, sys, skillbelt.discovery.sources; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    heavy = {"httpx2", "asyncio", "zipfile", "hashlib", "threading", "urllib.parse"}
    before = subprocess.run(
        [sys.executable, "-c", "import json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        check=True,
    )
    assert not heavy & set(json.loads(done.stdout)) - set(json.loads(before.stdout))
