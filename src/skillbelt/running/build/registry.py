"""Find the builder for a source: ours, or one of another package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from skillbelt.errors import ConfigError, RunRefused
from skillbelt.running.build.c import CBuilder
from skillbelt.running.build.javascript import JavaScriptBuilder
from skillbelt.running.build.protocol import ENTRY_POINTS, Builder
from skillbelt.running.build.python import PythonBuilder
from skillbelt.running.build.starlingmonkey import StarlingMonkeyBuilder
from skillbelt.running.build.wat import WatBuilder
from skillbelt.text import one_line


def builders() -> dict[str, Builder]:
    """Return our builders by name, the one for JavaScript first."""
    ours: tuple[Builder, ...] = (
        JavaScriptBuilder(), PythonBuilder(), CBuilder(), WatBuilder(), StarlingMonkeyBuilder(),
    )  # fmt: skip
    return {builder.name: builder for builder in ours}


def named_builder(name: str) -> Builder:
    """Return the builder of that name; raises ConfigError."""
    ours, others = builders(), _entry_points()
    if name in ours:
        return ours[name]
    if name not in others:
        known = ", ".join([*ours, *others])
        raise ConfigError(f"no builder named {one_line(name)[:80]!r}; there are: {known}")
    return _load(others[name])


def builder_for(path: str) -> Builder:
    """Return the builder for a source file, by its ending; raises RunRefused."""
    ending = f".{path.rpartition('.')[2]}"
    for builder in builders().values():
        if ending in builder.endings:
            return builder
    for point in _entry_points().values():
        builder = _load(point)
        if ending in builder.endings:
            return builder
    known = ", ".join(one for builder in builders().values() for one in builder.endings)
    raise RunRefused(f"{one_line(path)}: no builder for this file type; supported: {known}")


def _entry_points() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _load(point: EntryPoint) -> Builder:
    try:
        return cast(Builder, point.load()())
    except Exception as error:
        raise ConfigError(
            f"the builder {point.name!r} of {point.value} cannot be loaded: "
            f"{one_line(repr(error))}; fix or remove the package"
        ) from error
