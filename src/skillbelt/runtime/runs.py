"""The part of a runtime that runs commands of skills; imported when a first one is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skillbelt.artifacts import ArtifactStore
from skillbelt.discovery.catalog import Snapshot
from skillbelt.fleet.choose import make_workbench
from skillbelt.format.skill import Skill
from skillbelt.late import made_once
from skillbelt.permission.gate import Gate
from skillbelt.running.background import Background, Elsewhere
from skillbelt.running.json_call import Execution, execute
from skillbelt.running.trial.trial import TRIAL_SECONDS, Trial, TrialBounds, try_skill
from skillbelt.running.workbench import Workbench
from skillbelt.runtime.required import check_required
from skillbelt.settings import Settings
from skillbelt.store import SessionKey


class RuntimeRuns:
    """The workbench of a runtime and its background runs; each is created on first use."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        gate: Gate,
        find: Callable[[str], Skill],
        *,
        skills: Callable[[], Mapping[str, Skill]],
        artifacts: ArtifactStore | None,
        progress: Callable[[str], None] | None,
        elsewhere: Callable[[], Elsewhere | None],
    ) -> None:
        self._settings, self._gate, self._find, self._skills = settings, gate, find, skills
        self._artifacts, self._progress, self._elsewhere = artifacts, progress, elsewhere

    @made_once
    def workbench(self) -> Workbench:
        """The workbench, which runs the commands of skills."""
        return make_workbench(
            self._settings,
            self._gate,
            self._find,
            skills=self._skills,
            artifacts=self._artifacts,
            progress=self._progress,
        )

    @made_once
    def background(self) -> Background:
        """The runs in the background."""
        return Background(self.workbench, self._elsewhere())

    @property
    def has_background(self) -> bool:
        """Whether background runs were used."""
        return "background" in self.__dict__

    def execute(self, skill: Skill, input: object, **options: Any) -> Execution:
        """Run a script or module of the skill on JSON; see `running.json_call`."""
        return execute(self.workbench, skill, input, **options)

    def try_skill(self, skill: Skill, *, seconds: float, **options: Any) -> Trial:
        """Start each script of the skill once; 0 seconds mean the default."""
        bounds = TrialBounds(seconds=seconds or TRIAL_SECONDS)
        return try_skill(self.workbench, skill, bounds=bounds, **options)

    def check_required(self, found: Snapshot, gate: Gate, agent: str | None) -> None:
        """Raise RequiredSkillUnusable if a required skill cannot be used by this agent."""
        check_required(found, self._settings(), gate, agent)

    def close(self, key: SessionKey | None) -> None:
        """End the background runs; remove the workspace of the conversation with that key."""
        if self.has_background:
            self.background.close()
        if "workbench" in self.__dict__:
            self.workbench.close()
            if key is not None:
                self.workbench.forget(key)
