"""Metrics of this process, for Prometheus.

They are plain numbers, counted whether or not a server exports them, and nothing is imported for
that. `render` writes them with the Prometheus package, and `Figures` is a collector for the
registry of a program that has one. No label holds a text that a skill, a user or a model wrote, and
each label has few values: from `MAX_VALUES` on, a further one is counted as `other`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Literal

from skillbelt.errors import MissingExtra
from skillbelt.records import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_VALUES = 64
_OTHER = "other"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metric(NamedTuple):
    """A metric; a `counter` only grows, a `gauge` is a current number."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    "runs": Metric("counter", "Runs of commands that ended.", ("outcome", "sandbox")),
    "run_duration_seconds": Metric("histogram", "How long commands ran.", ("sandbox",)),
    "runs_running": Metric("gauge", "Commands that are running."),
    "runs_queued": Metric("gauge", "Runs in the queue."),
    "run_output_bytes": Metric("counter", "Bytes that commands printed.", ("stream",)),
    "tool_calls": Metric("counter", "Tool calls.", ("tool", "outcome")),
    "permission_questions": Metric("counter", "Permission questions that ended.", ("outcome",)),
    "permission_questions_waiting": Metric("gauge", "Permission questions that are pending."),
    "permission_answer_seconds": Metric("histogram", "How long questions waited.", ("outcome",)),
    "store_errors": Metric("counter", "Failures of the session store.", ("store",)),
    "object_store_errors": Metric("counter", "Failures of the object store.", ("operation",)),
    "object_store_bytes": Metric("counter", "Bytes to and from the object store.", ("direction",)),
    "http_requests": Metric("counter", "Requests that were answered.", ("server", "status")),
    "http_request_seconds": Metric("histogram", "Time to answer a request.", ("server",)),
    "forwarded_requests": Metric("counter", "Requests that another server answered.", ("outcome",)),
}
Labels = tuple[str, ...]


class _Histogram:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets, self.total = [0] * (len(_SECONDS) + 1), 0.0


_lock = threading.Lock()
_numbers: dict[str, dict[Labels, float]] = {}
_histograms: dict[str, dict[Labels, _Histogram]] = {}


def count(name: str, amount: float = 1, **labels: str) -> None:
    """Add to a counter or a gauge."""
    with _lock:
        found = _numbers.setdefault(name, {})
        key = _key(found, METRICS[name], labels)
        found[key] = found.get(key, 0) + amount


def observe(name: str, seconds: float, **labels: str) -> None:
    """Add a measurement to a histogram."""
    with _lock:
        found = _histograms.setdefault(name, {})
        one = found.setdefault(_key(found, METRICS[name], labels), _Histogram())
        one.buckets[bisect_left(_SECONDS, seconds)] += 1
        one.total += seconds


@contextmanager
def held(name: str) -> Iterator[None]:
    """Add one to a gauge while the block lasts."""
    count(name)
    try:
        yield
    finally:
        count(name, -1)


@contextmanager
def timed(name: str) -> Iterator[Callable[..., None]]:
    """Measure a block; call the yielded function with the labels, at its end."""
    begun = monotonic()
    yield lambda **labels: observe(name, monotonic() - begun, **labels)


def _key(found: dict[Labels, Any], metric: Metric, given: dict[str, str]) -> Labels:
    """Return the values of the labels in their order; each label has a bounded number of values."""
    key = tuple(given.get(name, "") for name in metric.labels)
    if key in found:
        return key
    known = [{one[place] for one in found} for place in range(len(key))]
    return tuple(
        value if value in seen or len(seen) < MAX_VALUES else _OTHER
        for value, seen in zip(key, known, strict=True)
    )


class Figures:
    """A collector for a Prometheus registry: `registry.register(Figures())`."""

    def collect(self) -> Iterable[Any]:
        """Yield every metric with its numbers as they are now."""
        core = _import().core
        families = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        for name, metric in METRICS.items():
            full = f"skillbelt_{name}"
            if metric.kind == "histogram":
                made = core.HistogramMetricFamily(full, metric.help, labels=metric.labels)
                for key, one in _copy(_histograms, name).items():
                    made.add_metric(key, _cumulate(one.buckets), sum_value=one.total)
                yield made
                continue
            family = families[metric.kind](full, metric.help, labels=metric.labels)
            numbers = _copy(_numbers, name)
            for key, number in (numbers or ({} if metric.labels else {(): 0.0})).items():
                family.add_metric(key, number)
            yield family


def _copy(kept: dict[str, dict[Labels, Any]], name: str) -> dict[Labels, Any]:
    with _lock:
        return dict(kept.get(name, {}))


def _cumulate(buckets: list[int]) -> list[tuple[str, float]]:
    """Return the buckets as Prometheus wants them: each includes all smaller ones."""
    bounds, total, found = [*map(str, _SECONDS), "+Inf"], 0, []
    for bound, number in zip(bounds, buckets, strict=True):
        total += number
        found.append((bound, float(total)))
    return found


def render() -> bytes:
    """Return all metrics in the text format of Prometheus; MissingExtra without its package."""
    prometheus = _import()
    registry = prometheus.CollectorRegistry()
    registry.register(Figures())
    text: bytes = prometheus.generate_latest(registry)
    return text


def _import() -> Any:
    try:
        import prometheus_client.core  # extra: metrics
    except ImportError as error:
        raise MissingExtra("metrics", "writing metrics for Prometheus") from error
    return prometheus_client


def forget() -> None:
    """Reset all metrics: a forked process has done nothing yet."""
    global _lock
    _lock = threading.Lock()
    _numbers.clear()
    _histograms.clear()
