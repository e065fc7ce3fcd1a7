"""The settings of one skill, in its runs: variables, hosts, sandbox, timeout."""

from __future__ import annotations

import pytest

from skillbelt import PermissionDenied, Rule, SandboxUnavailable
from tests import needs
from tests.benches import ALLOW, FOLDER, Bench
from tests.discovery.sources.server import running

pytestmark = needs.linux

CONFIG = "home/.config/skillbelt/config.toml"
FETCH = (
    'python3 -c "import urllib.request as u, sys\n'
    'print(u.urlopen(sys.argv[1], timeout=20).read().decode())" '
)


# env


def test_a_run_has_the_variables_of_its_skill(bench: Bench) -> None:
    with bench.open(skills={"kit": {"env": {"REGION": "eu"}}, "k*": {"env": ["A=1"]}}) as belt:
        done = belt.run_sync("kit", "echo $REGION-$A")
        assert done.stdout == "eu-\n"
        assert belt.run_sync("kit", "echo $REGION", env={"REGION": "us"}).stdout == "us\n"


def test_a_variable_that_starts_other_programs_is_not_set(bench: Bench) -> None:
    with bench.open(skills={"kit": {"env": {"LD_PRELOAD": "/tmp/x.so"}}}) as belt:
        done = belt.run_sync("kit", "echo [$LD_PRELOAD]")
        assert done.stdout == "[]\n"
        assert any("LD_PRELOAD" in text for text in done.warnings)


def test_a_secret_written_as_a_value_is_not_printed(bench: Bench) -> None:
    with bench.open(skills={"kit": {"env": ["API_TOKEN=hunter2hunter2"]}}) as belt:
        assert belt.run_sync("kit", "echo $API_TOKEN").stdout == "[API_TOKEN]\n"


# timeout


def test_the_timeout_of_a_skill_ends_its_runs(bench: Bench) -> None:
    with bench.open(skills={"kit": {"timeout": 0.5}}) as belt:
        assert belt.run_sync("kit", "sleep 30").timed_out
        asked = belt.run_sync("kit", "sleep 30", timeout_seconds=100)
        assert asked.timed_out and any("lowered from 100 to 0.5" in one for one in asked.warnings)


def test_the_timeout_of_a_skill_ends_its_script(bench: Bench) -> None:
    bench.write("scripts/main.py", "import time\ntime.sleep(30)\n")
    with bench.open(skills={"kit": {"timeout": 0.5}}) as belt:
        done = belt.execute_skill_sync("kit", {})
        assert done.exit_status.kind == "timeout"


def test_the_timeout_of_a_skill_is_no_longer_than_that_of_all(bench: Bench) -> None:
    with bench.open(skills={"kit": {"timeout": 900}}, run_timeout_seconds=0.5) as belt:
        assert belt.run_sync("kit", "sleep 30").timed_out


def test_a_script_learns_of_its_longer_time(bench: Bench) -> None:
    bench.write("scripts/main.py", 'import os\nprint(os.environ["TIMEOUT_MS"])\n')
    with bench.open(skills={"kit": {"timeout": 900}}) as belt:
        assert belt.execute_skill_sync("kit", {}).output == 900_000


# hosts


def test_a_host_of_the_settings_is_reached_once_it_is_allowed(bench: Bench) -> None:
    with running() as server:
        server.pages["/"] = b"reached"
        host = server.url.removeprefix("http://").rstrip("/")
        rules = [ALLOW, Rule("network", host, "allow")]
        said = {"kit": {"hosts": [host]}}
        with bench.open(rules=rules, skills=said) as belt:
            assert belt.run_sync("kit", FETCH + server.url).stdout == "reached\n"
        with bench.open(skills=said) as belt:
            done = belt.run_sync("kit", FETCH + server.url)
            assert done.exit_code == 1 and any("is not opened" in text for text in done.warnings)


def test_hosts_of_the_settings_take_the_place_of_those_that_the_skill_declares(
    bench: Bench,
) -> None:
    with running() as server:
        server.pages["/"] = b"reached"
        host = server.url.removeprefix("http://").rstrip("/")
        bench.tree.skill(FOLDER, allowed_tools=f"WebFetch(domain:{host})")
        rules = [ALLOW, Rule("network", "*", "allow"), Rule("network", host, "allow")]
        with bench.open(rules=rules) as belt:
            assert belt.run_sync("kit", FETCH + server.url).stdout == "reached\n"
        with bench.open(rules=rules, skills={"kit": {"hosts": []}}) as belt:
            assert belt.run_sync("kit", FETCH + server.url).exit_code == 1
        assert len(server.requests) == 1


# sandbox


def test_a_skill_runs_in_the_sandbox_that_the_settings_name(bench: Bench) -> None:
    with bench.open(skills={"kit": {"sandbox": "bubblewrap"}}, sandbox="landlock") as belt:
        done = belt.run_sync("kit", "true")
        assert done.sandbox == "bubblewrap"


@pytest.mark.parametrize("name", ["none", "landlock"])
def test_a_weaker_sandbox_is_refused(bench: Bench, name: str) -> None:
    where = bench.tree.write(CONFIG, f'[skills.kit]\nsandbox = "{name}"\n')
    with (
        bench.open(sandbox="bubblewrap") as belt,
        pytest.raises(SandboxUnavailable, match="is weaker than 'bubblewrap'") as caught,
    ):
        belt.run_sync("kit", "true")
    assert str(caught.value).startswith(f"{where}:2: ")


def test_a_sandbox_that_can_not_be_used_is_not_replaced(bench: Bench) -> None:
    said = {"kit": {"sandbox": "seatbelt"}}
    with bench.open(skills=said) as belt, pytest.raises(SandboxUnavailable, match="seatbelt"):
        belt.run_sync("kit", "true")


def test_the_option_of_a_command_counts_more(bench: Bench) -> None:
    bench.tree.write(CONFIG, '[skills.kit]\nsandbox = "bubblewrap"\n')
    done = bench.tree.run(
        "run", "kit", "--yes", "--sandbox", "landlock", "--json", "--", "echo", "here"
    )
    assert done.document["sandbox"] == "landlock"


# Files of a disabled skill


def test_no_run_gets_files_of_a_disabled_skill(bench: Bench) -> None:
    other = bench.tree.skill("project/.agents/skills/other") / "SKILL.md"
    said = {"other": {"enabled": False}}
    with bench.open(skills=said) as belt, pytest.raises(PermissionDenied, match="is disabled by"):
        belt.run_sync("kit", "cat work/inputs/*", inputs=[f"host://{other}"])


def test_changed_settings_count_for_the_next_run(bench: Bench) -> None:
    with bench.open() as belt:
        assert belt.run_sync("kit", "echo [$REGION]").stdout == "[]\n"
        bench.tree.write(CONFIG, '[skills.kit.env]\nREGION = "eu"\n')
        belt.look()
        assert belt.run_sync("kit", "echo [$REGION]").stdout == "[eu]\n"
