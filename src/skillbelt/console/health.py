"""The health page: folders, problems, sandboxes and the attacks they stop."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from starlette.responses import Response

from skillbelt.console.doctor_report import (
    Matrix,
    examine_document,
    find_over_budget,
    list_not_stopped,
    probe_all,
)
from skillbelt.console.parts import ConsoleParts
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.errors import log_warning
from skillbelt.mcp.published import unpublished
from skillbelt.runtime.runtime import Runtime
from skillbelt.testing.node_attacks import attack_sandbox
from skillbelt.testing.probes import PROBES

# How long the results about the sandboxes are cached.
PROBED_SECONDS = 60.0


class AttackReport(NamedTuple):
    """The results of all attacks on all sandboxes, and when they ended; 0 while they run."""

    matrix: Matrix
    ended: float = 0.0
    done: int = 0


class Examiner:
    """Examines the machine, at most once a minute, and attacks its sandboxes on request."""

    def __init__(self, belt: Runtime) -> None:
        self._belt, self._lock = belt, threading.Lock()
        self._found: dict[str, object] | None = None
        self._until = 0.0
        self.report: AttackReport | None = None

    def examine(self) -> dict[str, object]:
        """Return the document of `doctor --json`."""
        with self._lock:
            if self._found is None or time.monotonic() > self._until:
                self._found = self._examine()
                self._until = time.monotonic() + PROBED_SECONDS
            return self._found

    def _examine(self) -> dict[str, object]:
        self._belt.look()
        catalog = self._belt.catalog
        states = probe_all(self._belt.settings)
        found = [*find_over_budget(catalog), *unpublished(catalog.values())]
        document = examine_document(catalog, states, {}, found)
        for state in states:
            state.sandbox.close()
        return document

    def attack(self) -> bool:
        """Start attacking every sandbox; False if that is running already."""
        with self._lock:
            if self.report is not None and not self.report.ended:
                return False
            self.report = AttackReport({})
        threading.Thread(target=self._attack, name="skillbelt-attacks", daemon=True).start()
        return True

    def _attack(self) -> None:
        matrix: Matrix = {}
        try:
            for state in probe_all(self._belt.settings):
                if state.attackable:
                    found = matrix[state.sandbox.name] = []
                    for result in attack_sandbox(state.sandbox, PROBES):
                        found.append(result)
                        self.report = AttackReport(matrix, done=sum(map(len, matrix.values())))
                state.sandbox.close()
        except Exception:
            log_warning("the attacks on the sandboxes broke off", trace=True)
        self.report = AttackReport(matrix, time.time(), sum(map(len, matrix.values())))


def examiner_of(parts: ConsoleParts) -> Examiner:
    """Return the examiner of this console."""
    with parts.lock:
        if parts.examiner is None:
            parts.examiner = Examiner(parts.belt)
    assert isinstance(parts.examiner, Examiner)
    return parts.examiner


def health_document(parts: ConsoleParts) -> dict[str, object]:
    """Return the document of `doctor --json`, with the results of the last attacks."""
    examiner = examiner_of(parts)
    report = examiner.report
    return {
        **examiner.examine(),
        "matrix": [
            {"sandbox": name, **result._asdict()}
            for name, results in (dict(report.matrix) if report else {}).items()
            for result in list(results)
        ],
        "attacking": report is not None and not report.ended,
    }


def show(visit: Visit) -> ShownPage:
    """Show the findings of `doctor`."""
    examiner = examiner_of(visit.parts)
    report = examiner.report
    rows: dict[str, dict[str, str]] = {}
    for name, results in (report.matrix if report else {}).items():
        for one in results:
            rows.setdefault(one.attack, {})[name] = one.outcome
    bad = (
        {name: len(list_not_stopped(found)) for name, found in report.matrix.items()}
        if report
        else {}
    )
    return ShownPage(
        "health.html",
        {
            "found": examiner.examine(),
            "report": report,
            "attacks": rows,
            "bad": bad,
            "settings": visit.parts.belt.settings,
        },
    )


def attack(visit: Visit) -> Response:
    """Start attacking every sandbox of this machine."""
    examiner_of(visit.parts).attack()
    return visit.go_to("/doctor")
