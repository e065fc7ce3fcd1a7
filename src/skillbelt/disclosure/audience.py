"""Which skills a model may see: those the rules permit its agent, within the host's filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from skillbelt.disclosure.overview import visible
from skillbelt.format.skill import Skill
from skillbelt.format.skills import Skills
from skillbelt.permission.gate import Gate

# Whether a skill exists at all for the model and its user.
Visible = Callable[[Skill], bool]


class Audience(NamedTuple):
    """Who looks at the catalogue: an agent, the gate that decides for it, the host's filters.

    With `files`, the paths in play, a skill made for some files is there only with one of them.
    """

    gate: Gate
    agent: str | None = None
    filters: tuple[Visible, ...] = ()
    files: Sequence[str] | None = None

    def admits(self, skill: Skill) -> bool:
        """Return whether the host's filters let the skill exist."""
        return all(keep(skill) for keep in self.filters)

    def view(self, skills: Skills) -> Skills:
        """Return what the model may see; without filters the same object for the same skills."""
        seen = skills.derive("visible", lambda: Skills.of(visible(skills.values())))
        if self.gate.hides_skills:
            seen = seen.derive(("permitted", self.gate, self.agent), lambda: self._permitted(seen))
        if not self.filters and self.files is None:
            return seen
        # A filter of the host may answer differently next time, so nothing is kept.
        kept = [skill for skill in seen.values() if self.admits(skill)]
        return Skills.of(kept if self.files is None else visible(kept, files=self.files))

    def _permitted(self, skills: Skills) -> Skills:
        return Skills.of(one for one in skills.values() if self.gate.permit(self.agent, one))
