from __future__ import annotations

import os
import sys

from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.process.supervised import launcher_python, supervised_plan
from skillbelt.sandbox.protocol import run
from skillbelt.testing.sandbox_suite import Place
from tests import needs
from tests.sandbox.ordinary import as_user


def test_the_task_is_not_on_a_command_line(place: Place) -> None:
    """Everybody on the machine can read those."""
    plan = supervised_plan(place.job("true", env={"TOKEN": "secret"}), {"files": "x"})
    try:
        assert not any("secret" in word for word in plan.argv)
        assert plan.supervised
        assert plan.enforced["files"] == "x"
        assert plan.enforced["temporary files"].startswith("not enforced")
    finally:
        plan.watch.finish(0, 0.0)
        for fd in plan.fds:
            os.close(fd)


def test_the_launcher_runs_in_our_own_python() -> None:
    assert launcher_python() == sys.executable


@needs.root
def test_a_python_that_can_not_be_read_is_not_taken() -> None:
    found = as_user("json.dump(supervised.launcher_python(), sys.stdout)")
    assert isinstance(found, str)
    assert os.access(found, os.X_OK)


def test_the_user_has_all_processes_of_the_limit_beside_others(place: Place) -> None:
    outcome = run(NoSandbox(), place.shell("for n in 1 2 3 4 5; do sleep 0.1 & done; wait"))
    assert outcome.exit_code == 0


def test_that_a_command_can_end_its_launcher_is_told() -> None:
    """One of the same user can, unless its signals are kept in: by Landlock from Linux 6.12."""
    code = """
folder = tempfile.mkdtemp(prefix="skillbelt-")
place = Place(folder, identity.current_identity())
without = {"handled": (1, 0, 0), "size": 24, "paths": []}
made = [supervised.supervised_plan(place.job("true"), {}, rules)
        for rules in (None, without, {**without, "handled": (1, 0, 3)})]
shutil.rmtree(folder)
json.dump([plan.enforced["time"].startswith("not enforced") for plan in made], sys.stdout)
"""
    assert as_user(code) == [True, True, False]
