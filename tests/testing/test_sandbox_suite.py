"""The suite finds the faults of a sandbox."""

from __future__ import annotations

import pytest

from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Job, Listener, Running
from skillbelt.testing.sandbox_suite import Place, SandboxConformance

SUITE = SandboxConformance()


class Leaky(NoSandbox):
    """Claims to be a sandbox, and passes on the environment of the host."""

    level = 1

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        leak = {**job.env, "HOME": "/root"}
        return super().start(job._replace(env=leak, timeout_seconds=50), listener)


def test_it_sees_a_variable_that_was_not_given(place: Place) -> None:
    with pytest.raises(AssertionError):
        SUITE.test_the_environment_is_the_one_given(Leaky(), place)


def test_it_sees_that_a_read_only_folder_was_written(place: Place) -> None:
    with pytest.raises(AssertionError):
        SUITE.test_a_read_only_mount_can_not_be_written(Leaky(), place)


def test_a_workspace_belongs_to_who_runs_commands(place: Place) -> None:
    assert place.job("true").workspace == place.folder
    assert place.beside("more") != place.folder
