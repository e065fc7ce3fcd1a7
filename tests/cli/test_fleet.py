from __future__ import annotations

import socket

import pytest

from tests.tree import Tree


@pytest.fixture
def away() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_without_an_address_it_says_which_setting_names_one(tree: Tree) -> None:
    done = tree.run("fleet", "status", "--json")
    assert done.exit_code == 2
    assert "ray_address" in done.document["error"]["message"]


@pytest.mark.parametrize("action", ["status", "nodes", "doctor"])
def test_a_cluster_that_is_away_is_an_error_at_once(tree: Tree, away: str, action: str) -> None:
    done = tree.run("fleet", action, "--address", away, "--json")
    assert done.exit_code == 1
    assert done.document["error"]["kind"] == "cluster_away"
    assert away in done.document["error"]["message"]


@pytest.mark.parametrize("address", ["host", "host:port", ":6379", "host:0", "ray://host"])
def test_what_is_no_address_is_refused(tree: Tree, address: str) -> None:
    done = tree.run("fleet", "--address", address, "--json")
    assert done.exit_code == 2
    assert "HOST:PORT" in done.document["error"]["message"]


def test_drain_needs_a_node_and_the_others_take_none(tree: Tree) -> None:
    assert "needs a NODE" in tree.run("fleet", "drain", "--address", "a:1").stderr
    assert "takes no NODE" in tree.run("fleet", "status", "one", "--address", "a:1").stderr


def test_only_join_takes_a_command(tree: Tree) -> None:
    done = tree.run("fleet", "drain", "one", "--address", "a:1", "--", "sh")
    assert done.exit_code == 2
    assert "takes no command" in done.stderr


def test_join_prints_the_command_with_what_this_machine_can_do(tree: Tree) -> None:
    done = tree.run("fleet", "join", "head:6379", "--print", "--processors", "3", "--json")
    assert done.exit_code == 0
    command, facts = done.document["command"], done.document["facts"]
    assert command[command.index("--address") + 1] == "head:6379"
    assert command[command.index("--num-cpus") + 1] == "3"
    assert "skillbelt_bash" in command[command.index("--resources") + 1]
    assert set(facts["resources"]) >= {"skillbelt", "skillbelt_bash"}


@pytest.mark.parametrize("options", [["--head"], ["head:6379", "--no-runs"]])
def test_the_head_and_servers_take_no_runs(tree: Tree, options: list[str]) -> None:
    command = tree.run("fleet", "join", *options, "--print", "--json").document["command"]
    assert command[command.index("--num-cpus") + 1] == "0"
    assert command[command.index("--resources") + 1] == "{}"


def test_the_head_has_no_dashboard_that_takes_jobs(tree: Tree) -> None:
    command = tree.run("fleet", "join", "--head", "--print", "--json").document["command"]
    assert command[command.index("--include-dashboard") + 1] == "false"


def test_a_node_without_a_token_is_not_started(tree: Tree) -> None:
    done = tree.run("fleet", "join", "--head", "--json")
    assert done.exit_code == 2
    assert "RAY_AUTH_TOKEN_PATH" in done.document["error"]["message"]


def test_an_empty_token_is_none(tree: Tree) -> None:
    tree.setenv("RAY_AUTH_TOKEN_PATH", tree.write("token", "\n"))
    assert tree.run("fleet", "join", "--head").exit_code == 2


@pytest.mark.parametrize("port", ["10002", "19999", "65536"])
def test_a_port_that_a_head_cannot_have_is_an_error(tree: Tree, port: str) -> None:
    done = tree.run("fleet", "join", "--head", "--port", port)
    assert done.exit_code == 2
    assert f"--port {port}: a head has a port below 65536 that is none of 10002 to" in done.stderr


@pytest.mark.parametrize("words", ["join --head", "status --address {}"])
def test_authentication_is_not_switched_off(tree: Tree, words: str) -> None:
    tree.setenv("RAY_AUTH_MODE", "disabled")
    tree.setenv("RAY_AUTH_TOKEN", "t" * 32)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        done = tree.run("fleet", *words.format(address).split(), "--json")
    assert done.exit_code == 2
    assert "RAY_AUTH_MODE" in done.document["error"]["message"]


def test_join_without_a_head_to_reach_is_an_error_at_once(tree: Tree, away: str) -> None:
    tree.setenv("RAY_AUTH_TOKEN_PATH", tree.write("token", "t" * 32))
    done = tree.run("fleet", "join", away, "--no-runs", "--json")
    assert done.exit_code == 1
    assert done.document["error"]["kind"] == "cluster_away"


@pytest.mark.parametrize("words", ["status --address {}", "join --no-runs {}"])
def test_without_its_extra_it_says_how_to_get_it(tree: Tree, words: str) -> None:
    tree.setenv("RAY_AUTH_TOKEN_PATH", tree.write("token", "t" * 32))
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        code = f"""
import sys
sys.modules["ray"] = None
from skillbelt.cli import main
sys.exit(main("fleet {words.format(address)}".split()))
"""
        done = tree.python("-c", code)
    assert done.exit_code == 2
    assert "pip install 'skillbelt[ray]'" in done.stderr


def test_ray_is_not_imported_before_it_is_needed(tree: Tree) -> None:
    code = "import sys, skillbelt.cli.fleet; print('ray' in sys.modules)"
    assert tree.python("-c", code).stdout == "False\n"
