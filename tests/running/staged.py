"""Stage the inputs of a run in one step, without the questions of an executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skillbelt.running.inputs import HostInput, Inputs, StagedInput
from skillbelt.running.workspace import Workspace


def stage_inputs(
    workspace: Workspace,
    inputs: Sequence[Mapping[str, object]],
    *,
    permit_host: Callable[[HostInput], None] | None = None,
    **options: Any,
) -> list[StagedInput]:
    """Copy each input, then move it to its destination; `options` are those of `Inputs`."""
    with Inputs(workspace, inputs, **options) as job:
        return job.place(permit_host)
