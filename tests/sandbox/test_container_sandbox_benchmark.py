"""The benchmark of containers measures what it says, in an engine of its own."""

from __future__ import annotations

import json

import pytest
from benchmarks.container import BAR, NO_BAR, Place, main, measure
from benchmarks.sandbox import as_json

from skillbelt.testing import sandbox_suite
from tests.sandbox.engines import containers, until, url_of
from tests.sandbox.engines import place as place
from tests.sandbox.engines import shared as shared

pytestmark = pytest.mark.long  # it measures; what it measures has tests of its own


def test_it_measures_beside_the_engine_itself(
    tmp_path_factory: pytest.TempPathFactory, place: sandbox_suite.Place
) -> None:
    """And leaves no container behind."""
    url = url_of("docker", tmp_path_factory)
    assert until(lambda: containers(url) == [])
    rows = measure({"docker": Place(url, place.folder)}, runs=2, rounds=2)
    found = {row["name"]: row for row in json.loads(as_json(rows))}
    assert set(found) == {"docker: warm", "docker: warm, SDK", "docker: throw-away"}
    assert all(row["value"] > 0 for row in found.values())
    assert (found["docker: warm"]["bar"], found["docker: throw-away"]["bar"]) == (BAR, NO_BAR)
    assert until(lambda: containers(url) == [])


def test_a_measurement_that_could_not_be_made_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["--engine", "podman", "--json"]) == 1
    assert "podman: " in capsys.readouterr().err
