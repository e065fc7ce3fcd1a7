"""Open the inspector on first use, so that readers and rules are imported only when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillbelt.scan.inspector import SkillInspector
    from skillbelt.settings import Settings
    from skillbelt.store.protocol import Store

# The facts of a skill in a question, by their names in its metadata.
SKILL_FACTS = ("undeclared", "new_since_approval", "runs_tried", "scan")


def open_inspector(
    settings: Settings, store: Callable[[], Store] | None = None, project: str = ""
) -> SkillInspector:
    """Return the inspector; `project` is whose approvals count."""
    # cost: 20 ms, only for a question, a scan, or a run with undeclared behaviour
    from skillbelt.scan.inspector import SkillInspector

    return SkillInspector(settings, store, project)
