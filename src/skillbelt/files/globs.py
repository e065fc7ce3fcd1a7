"""Glob patterns for files below a folder, matched name by name while the folder is walked.

`*`, `?` and `[...]` stay within one name, `**` as a whole name means any number of folders, and
`{a,b}` gives alternatives. As in a shell, a name that begins with a dot needs a pattern that does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import NamedTuple

MAX_GLOBS = 100
MAX_GLOB_CHARS = 1024
MAX_ALTERNATIVES = 1000
# The bound on comparisons in one walk: pattern characters times name characters.
MAX_WORK = 10**9
_ALTERNATIVES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_WILD = re.compile(r"[*?\[]")

# The progress of each pattern: its number and the position in it, sorted.
State = tuple[tuple[int, int], ...]


class _Part(NamedTuple):
    """One name of a pattern. `wild` is None for plain text, `any_depth` true for `**`."""

    text: str
    wild: re.Pattern[str] | None = None
    any_depth: bool = False

    def matches(self, name: str) -> bool:
        if name.startswith(".") and not self.text.startswith("."):
            return False
        if self.any_depth:
            return True
        return self.text == name if self.wild is None else self.wild.match(name) is not None


class Globs:
    """Several glob patterns matched at once. Each is a relative path with `/`.

    ValueError otherwise. Begin with `start`, `step` with each name on the way down. An empty state
    means that nothing below can match; `accepted` returns the patterns that match the path walked
    so far.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        self._patterns: list[tuple[_Part, ...]] = []
        self._number: list[int] = []
        self._left = MAX_WORK
        if len(globs) > MAX_GLOBS:
            raise ValueError(f"there are more than {MAX_GLOBS} patterns")
        for number, glob in enumerate(globs):
            for text in alternatives(glob):
                self._patterns.append(_parse_glob(text))
                self._number.append(number)
        if len(self._patterns) > MAX_ALTERNATIVES:
            raise ValueError(f"the patterns have more than {MAX_ALTERNATIVES} alternatives")
        self.start = self._epsilon_closure({(pattern, 0) for pattern in range(len(self._patterns))})

    @property
    def exhausted(self) -> bool:
        """Whether matching has used up its bound on comparisons."""
        return self._left < 0

    def step(self, state: State, name: str) -> State:
        """Return the state one name further down."""
        reached = set()
        for pattern, at in state:
            parts = self._patterns[pattern]
            if at < len(parts) and self._matches(parts[at], name):
                reached.add((pattern, at if parts[at].any_depth else at + 1))
        return self._epsilon_closure(reached) if reached else ()

    def accepted(self, state: State) -> set[int]:
        """Return the numbers of the patterns that match here."""
        return {self._number[one] for one, at in state if at == len(self._patterns[one])}

    def goes_on(self, state: State) -> bool:
        """Whether anything further down can match."""
        return any(at < len(self._patterns[pattern]) for pattern, at in state)

    def _matches(self, part: _Part, name: str) -> bool:
        self._left -= len(part.text) * len(name) if part.wild else 1
        return not self.exhausted and part.matches(name)

    def _epsilon_closure(self, reached: set[tuple[int, int]]) -> State:
        """Add the states after each `**` that matches no folder."""
        for pattern, at in list(reached):
            parts = self._patterns[pattern]
            while at < len(parts) and parts[at].any_depth:
                at += 1
                reached.add((pattern, at))
        return tuple(sorted(reached))


def alternatives(glob: str) -> list[str]:
    """Expand `{a,b}` into its alternatives; ValueError when there are too many."""
    if len(glob) > MAX_GLOB_CHARS:
        raise ValueError(f"it has more than {MAX_GLOB_CHARS} characters")
    done: dict[str, None] = {}
    pending = [glob]
    while pending:
        text = pending.pop()
        found = _ALTERNATIVES.search(text)
        if found is None:
            done[text] = None
        else:
            head, tail = text[: found.start()], text[found.end() :]
            pending += [head + choice + tail for choice in reversed(found[1].split(","))]
        if len(done) + len(pending) > MAX_ALTERNATIVES:
            raise ValueError(f"it has more than {MAX_ALTERNATIVES} alternatives")
    return list(done)


def _parse_glob(glob: str) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    for text in glob.split("/"):
        if text in ("", "."):
            continue
        if text == "..":
            raise ValueError("it leads out of the folder")
        # Two in a row mean the same as one, and cost more.
        if text != "**" or not parts or not parts[-1].any_depth:
            parts.append(_part(text))
    return tuple(parts)


def _part(text: str) -> _Part:
    if text == "**":
        return _Part(text, None, any_depth=True)
    # `[^a]` is what people write; the translation knows `[!a]` only.
    return _Part(
        text, re.compile(translate(text.replace("[^", "[!"))) if _WILD.search(text) else None
    )
