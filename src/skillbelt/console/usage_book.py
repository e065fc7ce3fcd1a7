"""Usage figures of skills: how often, with what success, how long, and when last.

They come from the audit log, which a thread reads once and then follows.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime

from skillbelt.errors import log_warning
from skillbelt.permission.audit_events import AuditEvent, AuditStore


class SkillUse:
    """The figures of one skill."""

    __slots__ = ("decisions", "denied", "duration_ms", "failed", "last", "loads", "name", "runs")

    def __init__(self, name: str) -> None:
        self.name = name
        self.loads = self.runs = self.failed = self.decisions = self.denied = 0
        self.duration_ms, self.last = 0.0, 0.0

    def document(self) -> dict[str, object]:
        """Return them as a JSON document."""
        mean = self.duration_ms / self.runs if self.runs else 0.0
        return {
            "skill": self.name,
            "loads": self.loads,
            "runs": self.runs,
            "failed": self.failed,
            "mean_ms": round(mean, 1),
            "decisions": self.decisions,
            "denied": self.denied,
            "last": self.last,
        }


class UsageBook:
    """The figures of all skills. Thread-safe; `start` may be called any number of times."""

    def __init__(self, audit: AuditStore) -> None:
        self._audit = audit
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._skills: dict[str, SkillUse] = {}
        self._days: Counter[tuple[str, str]] = Counter()
        self._ready = threading.Event()

    def start(self) -> None:
        """Start reading the log, unless that was started before."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._read, name="skillbelt-usage", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._over.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most that long for the log to be read; return whether it was."""
        return self._ready.wait(seconds)

    def skills(self) -> list[SkillUse]:
        """Return the figures, most used skill first."""
        with self._lock:
            found = list(self._skills.values())
        return sorted(found, key=lambda one: (-(one.loads + one.runs), one.name))

    def find(self, name: str) -> SkillUse | None:
        """Return the figures of one skill."""
        return self._skills.get(name)

    def day(self, day: str) -> tuple[int, int, int]:
        """Return the loads, runs and failed runs of a day such as 2026-03-01."""
        return self._days[day, "load"], self._days[day, "run"], self._days[day, "failed"]

    def read_once(self) -> None:
        """Read the log as it is now, in this thread."""
        for event in self._audit.read():
            self._count(event)
            if self._over.is_set():
                return
        self._ready.set()

    def _read(self) -> None:
        try:
            self.read_once()
            for event in self._audit.follow(limit=0, stop=self._over):
                self._count(event)
        except Exception:
            log_warning("the console cannot read the audit log", trace=True)
            self._ready.set()

    def _count(self, event: AuditEvent) -> None:
        if event.type not in ("load", "run", "decision") or not event.skill:
            return
        with self._lock:
            use = self._skills.setdefault(event.skill, SkillUse(event.skill))
            if event.type == "decision":
                use.decisions += 1
                use.denied += event.data.get("allowed") is False
                return
            use.last = max(use.last, event.time)
            day = _day_of(event.time)
            self._days[day, event.type] += 1
            if event.type == "load":
                use.loads += 1
                return
            use.runs += 1
            took = event.data.get("duration_ms")
            use.duration_ms += took if isinstance(took, int | float) else 0
            if event.data.get("exit_code"):
                use.failed += 1
                self._days[day, "failed"] += 1


def _day_of(then: float) -> str:
    try:
        return datetime.fromtimestamp(then).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return ""
