"""Figures for Prometheus, read back with its own package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from skillbelt import Rule, Runtime
from skillbelt.errors import PermissionDenied
from skillbelt.metrics import MAX_VALUES, METRICS, Figures, count, forget, held, observe, render
from tests.tree import Tree


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    forget()
    yield
    forget()


def value(name: str, **labels: str) -> float:
    """What Prometheus reads; 0 for what is not there."""
    registry = CollectorRegistry()
    registry.register(Figures())
    return registry.get_sample_value(f"skillbelt_{name}", labels) or 0.0


def test_every_metric_can_be_read() -> None:
    for name, metric in METRICS.items():
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind == "histogram":
            observe(name, 0.2, **labels)
        else:
            count(name, 1, **labels)
    found = {one.name for one in text_string_to_metric_families(render().decode())}
    assert found == {f"skillbelt_{name}" for name in METRICS}


def test_a_histogram_counts_all_that_is_shorter() -> None:
    for seconds in (0.005, 0.2, 1_000):
        observe("run_duration_seconds", seconds, sandbox="wasm")
    assert value("run_duration_seconds_bucket", sandbox="wasm", le="0.01") == 1
    assert value("run_duration_seconds_bucket", sandbox="wasm", le="0.25") == 2
    assert value("run_duration_seconds_bucket", sandbox="wasm", le="+Inf") == 3
    assert value("run_duration_seconds_sum", sandbox="wasm") == 1_000.205


def test_a_gauge_falls_again() -> None:
    with pytest.raises(ValueError), held("runs_running"):
        assert value("runs_running") == 1
        raise ValueError
    assert value("runs_running") == 0


def test_a_label_has_a_bounded_number_of_values() -> None:
    for number in range(1_000):
        count("tool_calls", tool=f"tool-{number}", outcome="ok")
    assert value("tool_calls_total", tool="other", outcome="ok") == 1_000 - MAX_VALUES


def test_runs_are_counted_by_how_they_end(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/kit")
    with Runtime(open_tree.project, rules=[Rule("run", "echo *", "allow")]) as belt:
        belt.run_sync("kit", "echo hello")
        with pytest.raises(PermissionDenied):
            belt.run_sync("kit", "cat SKILL.md")
        sandbox = belt.run_sync("kit", "echo hello").sandbox
    assert value("runs_total", outcome="ok", sandbox=sandbox) == 2
    assert value("run_duration_seconds_count", sandbox=sandbox) == 2
    assert value("run_output_bytes_total", stream="stdout") == 12
    assert value("runs_total", outcome="permission_denied", sandbox="") == 1
    assert value("permission_questions_total", outcome="nobody") == 1
    assert value("runs_running") == value("runs_queued") == 0
