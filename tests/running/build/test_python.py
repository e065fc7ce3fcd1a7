from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillbelt.format.skill import Skill
from skillbelt.running.build.make import Built, check
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.running.build.skills import built, started
from tests.sandbox.guests import hosts

# The tools are installed first; to build and to compile such a component takes half a minute.
pytestmark = [pytest.mark.long]

MAIN = """
import datetime
import json
import sys

import calendar
from parts import words

data = json.load(sys.stdin)
when = datetime.datetime.strptime("2020-01-02", "%Y-%m-%d")
print(json.dumps({"n": words.twice(data["n"]), "name": __name__, "day": when.day,
                  "own": calendar.OWN, "argument": sys.argv[1:], "braces": "{skill}"}))
sys.exit(data.get("code", 0))
"""
FILES = {
    "src/main.py": MAIN,
    "src/calendar.py": "OWN = True\n",
    "src/parts/__init__.py": "",
    "src/parts/words.py": "def twice(n):\n    return n * 2\n",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built(tmp_path_factory.mktemp("built") / "one", FILES)


def test_the_skill_s_own_modules_come_along(
    made: Built, sandbox: WasmSandbox, place: Place
) -> None:
    """Also one that has the name of the library's; and what the library imports late."""
    outcome = started(sandbox, place, made, b'{"n": 21, "code": 7}', "word")
    assert outcome.exit_code == 7, outcome
    assert json.loads(outcome.stdout.data) == {
        "n": 42, "name": "__main__", "day": 2, "own": True, "argument": ["word"],
        "braces": "{skill}",
    }  # fmt: skip


def test_errors_name_the_place_in_the_source(
    made: Built, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = started(sandbox, place, made, b"{}")
    assert outcome.exit_code == 1
    assert outcome.stderr.data == (
        b"Traceback (most recent call last):\n"
        b'  File "/skill/src/main.py", line 11, in <module>\n'
        b"KeyError: 'n'\n"
    )


def test_it_is_current_until_the_source_changes(made: Built) -> None:
    folder = Path(made.output).parents[1]
    assert check(Skill.from_folder(folder), hosts()).current
    (folder / "src" / "parts" / "words.py").write_text("def twice(n):\n    return n + n\n")
    assert not check(Skill.from_folder(folder), hosts()).current
    (folder / "src" / "parts" / "words.py").write_text(FILES["src/parts/words.py"])


def test_a_component_that_was_changed_is_not_current(made: Built) -> None:
    path = Path(made.output)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"<module>", b"<nodule>", 1))
    assert not check(Skill.from_folder(path.parents[1]), hosts()).current
    path.write_bytes(whole)
