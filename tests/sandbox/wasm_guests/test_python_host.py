"""Python scripts behave as they do where an interpreter runs them."""

from __future__ import annotations

import pytest

from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.sandbox.wasm_guests.running import said, script


def test_a_script_knows_where_it_is(sandbox: WasmSandbox, place: Place) -> None:
    code = "import os, sys\nprint(sys.argv, sys.path[0], __name__, __file__, os.getcwd())\n"
    here = place.target
    assert said(script(sandbox, place, {"sub/a.py": code}, "python3", "sub/a.py", "x")) == (
        f"['sub/a.py', 'x'] {here}/sub __main__ {here}/sub/a.py {here}\n"
    )


def test_the_script_s_own_modules_come_before_the_library_s(
    sandbox: WasmSandbox, place: Place
) -> None:
    files = {
        "a.py": "import calendar, helper, json\nprint(calendar.OWN, helper.N, json.dumps(1))\n",
        "calendar.py": "OWN = 'mine'\n",
        "helper/__init__.py": "from helper.inner import N\n",
        "helper/inner.py": "N = 5\n",
        "json/data.txt": "not a module",
    }
    assert said(script(sandbox, place, files, "python3", "a.py")) == "mine 5 1\n"


@pytest.mark.parametrize(
    "code,status,stderr",
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit(True)", 1, ""),
        ("raise SystemExit(-1)", 255, ""),
        ("raise SystemExit(256)", 0, ""),
        ("raise SystemExit('said')", 1, "said\n"),
        ("import os; print(1); os._exit(9)", 9, ""),
    ],
)
def test_exit_codes_are_exact(
    code: str, status: int, stderr: str, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = script(sandbox, place, {}, "python3", "-c", code)
    assert (outcome.exit_code, outcome.stderr.data.decode()) == (status, stderr)


def test_a_trace_names_the_script_and_nothing_of_the_host(
    sandbox: WasmSandbox, place: Place
) -> None:
    code = "def fail():\n    raise ValueError('x')\n\nfail()\n"
    outcome = script(sandbox, place, {"a.py": code}, "python3", "a.py")
    path = f"{place.target}/a.py"
    assert outcome.exit_code == 1
    lines = outcome.stderr.data.decode().splitlines()
    assert [line for line in lines if set(line) - set(" ~^")] == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 4, in <module>',
        "    fail()",
        f'  File "{path}", line 2, in fail',
        "    raise ValueError('x')",
        "ValueError: x",
    ]


def test_what_can_not_be_read_is_a_syntax_error(sandbox: WasmSandbox, place: Place) -> None:
    outcome = script(sandbox, place, {"a.py": "x = (\n"}, "python3", "a.py")
    assert outcome.exit_code == 1
    text = outcome.stderr.data.decode()
    assert text.startswith(f'  File "{place.target}/a.py", line 1\n')
    assert text.endswith("SyntaxError: '(' was never closed\n")


def test_input_and_output_are_bytes(sandbox: WasmSandbox, place: Place) -> None:
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    outcome = script(sandbox, place, {}, "python3", "-c", code, stdin=bytes(range(256)))
    assert outcome.stdout.data == bytes(range(256))[::-1]


def test_everything_is_written_before_the_end(sandbox: WasmSandbox, place: Place) -> None:
    code = "import atexit, sys\natexit.register(print, 'last')\nprint('first', end=' ')\n"
    outcome = script(sandbox, place, {}, "python3", "-c", code + "raise KeyError(1)")
    assert outcome.stdout.data == b"first last\n"
    assert outcome.stderr.data.endswith(b"KeyError: 1\n")


@pytest.mark.parametrize(
    "argv,stdin,stdout",
    [
        (("-I", "-c", "import sys; print(sys.argv)", "a"), b"", "['-c', 'a']\n"),
        (("-Buc", "print(1)"), b"", "1\n"),
        (("-X", "utf8", "-W", "ignore", "-c", "print(2)"), b"", "2\n"),
        (("-", "a"), b"import sys; print(sys.argv)", "['-', 'a']\n"),
        ((), b"print(__name__)", "__main__\n"),
        (("-m", "json.tool", "--compact"), b'{"a": 1}', '{"a":1}\n'),
        (("-m", "own", "a"), b"", "__main__ ['a']\n"),
        (("folder",), b"", "folder's own\n"),
    ],
)
def test_arguments_are_those_of_the_interpreter(
    argv: tuple[str, ...], stdin: bytes, stdout: str, sandbox: WasmSandbox, place: Place
) -> None:
    files = {
        "own.py": "import sys\nprint(__name__, sys.argv[1:])\n",
        "folder/__main__.py": 'print("folder\'s own")\n',
    }
    assert said(script(sandbox, place, files, "python3", *argv, stdin=stdin)) == stdout


def test_a_script_that_is_not_there_is_said(sandbox: WasmSandbox, place: Place) -> None:
    outcome = script(sandbox, place, {}, "python3", "absent.py")
    assert outcome.exit_code == 2
    path = f"{place.target}/absent.py"
    wanted = f"can't open file '{path}': [Errno 2] No such file or directory\n"
    assert outcome.stderr.data.decode().endswith(wanted)


def test_no_two_runs_draw_the_same_numbers(sandbox: WasmSandbox, place: Place) -> None:
    code = "import random, uuid; print(random.random(), uuid.uuid4())"
    one, other = (said(script(sandbox, place, {}, "python3", "-c", code)) for _ in range(2))
    assert one != other


def test_a_run_leaves_nothing_to_the_next(sandbox: WasmSandbox, place: Place) -> None:
    code = "import json; print(getattr(json, 'left', 'none')); json.left = 'something'"
    texts = [said(script(sandbox, place, {}, "python3", "-c", code)) for _ in range(2)]
    assert texts == ["none\n", "none\n"]
