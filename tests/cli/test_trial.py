"""`skillbelt try`."""

from __future__ import annotations

import pytest

from tests import needs
from tests.benches import FOLDER, SKILL, Bench
from tests.terminal import CHOICE, on_terminal
from tests.tree import Tree

pytestmark = needs.linux


@pytest.fixture
def kit(bench: Bench) -> Tree:
    """A skill with a script that starts and one that does not."""
    good = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    bench.tree.write(f"{FOLDER}/scripts/good.py", good)
    bench.tree.write(f"{FOLDER}/scripts/lacks.py", "import no_such_module_anywhere as x\nx.run()\n")
    return bench.tree


def test_the_table_says_which_start_and_what_others_lacked(kit: Tree) -> None:
    done = kit.run("try", SKILL, "--yes")
    assert done.exit_code == 1
    good, lacks = (line.split("\t") for line in done.stdout.splitlines())
    assert good == ["scripts/good.py", "yes", "answers --help"]
    assert lacks[:2] == ["scripts/lacks.py", "no"]
    assert "lacked module no_such_module_anywhere" in lacks[2]
    assert "1 of 2 scripts started" in done.stderr


def test_all_that_start_are_a_yes(kit: Tree) -> None:
    assert kit.run("try", SKILL, "scripts/good.py", "--yes").exit_code == 0


def test_json_has_every_script(kit: Tree) -> None:
    document = kit.run("try", SKILL, "--yes", "--json").document
    assert list(document) == ["skill", "started", "scripts", "left_out", "sandbox"]
    good, lacks = document["scripts"]
    assert (good["path"], good["started"], good["lacked"], good["reached"]) == (
        "scripts/good.py", True, [], []
    )  # fmt: skip
    assert lacks["lacked"] == [{"kind": "module", "name": "no_such_module_anywhere"}]
    assert "environment" not in good


def test_a_skill_is_tried_by_its_folder(kit: Tree) -> None:
    done = kit.run("try", f"./.agents/skills/{SKILL}", "scripts/good.py", "--yes", "--json")
    assert (done.exit_code, done.document["started"]) == (0, 1)


def test_without_anyone_to_ask_nothing_runs(kit: Tree) -> None:
    done = kit.run("try", SKILL, "--json")
    assert done.exit_code == 4
    assert done.document["error"]["kind"] == "permission_denied"


def test_one_question_at_a_terminal_of_80_columns(kit: Tree) -> None:
    screen = on_terminal(kit, "try", SKILL, columns=80, answers=[(CHOICE, "o\n")])
    assert screen.exit_code == 1
    assert screen.written.count("Permission needed") == 1
    table = [line for line in screen.lines if line.startswith("scripts/")]
    assert len(table) == 2 and all(len(line) <= 80 for line in table)


def test_a_timeout_that_is_none_is_wrong_usage(kit: Tree) -> None:
    assert kit.run("try", SKILL, "--timeout", "0", "--yes").exit_code == 2
