from __future__ import annotations

import socket

import pytest

from skillbelt import ClusterAway, SkillbeltError
from skillbelt.fleet.reachability import check_reachable, try_part


def test_a_head_that_answers_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        assert check_reachable(f"127.0.0.1:{head.getsockname()[1]}") >= 0


def test_a_head_that_is_away_is_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ClusterAway, match=address):
            check_reachable(address)


def test_a_part_that_fails_says_why() -> None:
    def fail() -> None:
        raise SkillbeltError("the store\nis away")

    found = try_part("store", fail)
    assert (found.part, found.problem) == ("store", "the store is away")
    assert try_part("store", dict).problem == ""
