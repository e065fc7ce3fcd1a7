"""The verdict on the end of a script: whether it started, and what it lacked."""

from __future__ import annotations

import pytest

from skillbelt.running.trial.scripts import Script
from skillbelt.running.trial.verdict import Ended, Lack, Verdict, judge

SCRIPT = Script("a.py", "python", ("python3", "a.py"))
TRACE = 'Traceback (most recent call last):\n  File "/skill/a.py", line 1, in <module>\n'


def judged(text: str, code: int = 1, timed_out: bool = False) -> Verdict:
    return judge(SCRIPT, Ended(code, "", text, timed_out))


@pytest.mark.parametrize(
    ("text", "code", "how"),
    [
        ("usage: a.py [-h] FILE", 0, "help"),
        ("all is well", 0, "ran"),
        (
            "usage: a.py FILE\na.py: error: the following arguments are required: FILE",
            2,
            "arguments",
        ),
        ("Usage: a.py IN OUT", 1, "arguments"),
        ("Unknown option: --help", 1, "arguments"),
        ("TypeError [ERR_PARSE_ARGS]: Unknown option '--help'\n    at x", 1, "arguments"),
        ("Error: --help not found", 1, "input"),
        ("File not found: --help", 1, "input"),
        ("Error: Script not found: --help.py", 1, "input"),
        (f"{TRACE}FileNotFoundError: [Errno 2] No such file or directory: '--help'", 1, "input"),
        (f"{TRACE}json.decoder.JSONDecodeError: Expecting value: line 1 column 1", 1, "input"),
        (f"{TRACE}KeyError: 'ACME_API_KEY'", 1, "secret"),
        ("Error: ACME_TOKEN is not set", 1, "secret"),
        (f"{TRACE}urllib.error.URLError: <urlopen error [Errno -2] Name or service>", 1, "host"),
    ],
)
def test_a_script_that_gets_to_its_own_checks_has_started(text: str, code: int, how: str) -> None:
    verdict = judged(text, code)
    assert (verdict.how, verdict.started) == (how, True)


@pytest.mark.parametrize(
    ("text", "code", "how", "lack"),
    [
        (f"{TRACE}ModuleNotFoundError: No module named 'pypdf'", 1, "module", ("module", "pypdf")),
        ("Error: Cannot find module 'sharp'\n    at x", 1, "module", ("module", "sharp")),
        ("Error: Cannot find module './own.js'\n    at x", 1, "module", ("file", "./own.js")),
        ("Missing package. Install it: pip install openpyxl", 1, "module", ("module", "openpyxl")),
        ("a.sh: line 3: ffmpeg: command not found", 127, "program", ("program", "ffmpeg")),
        ("Error: jq is not installed", 1, "program", ("program", "jq")),
        ("/usr/bin/env: 'deno': No such file or directory", 127, "program", ("program", "deno")),
        (
            "x.Error: BrowserType.launch: Executable doesn't exist at /x",
            1,
            "program",
            ("program", "browser"),
        ),
        ("Error: spawn pandoc ENOENT\n    at x", 1, "program", ("program", "pandoc")),
        (
            f"{TRACE}PermissionError: [Errno 13] Permission denied: '/etc/x'",
            1,
            "permission",
            ("permission", "/etc/x"),
        ),
        (
            f"{TRACE}OSError: [Errno 30] Read-only file system: '/skill/log'",
            1,
            "permission",
            ("permission", "/skill/log"),
        ),
    ],
)
def test_what_is_missing_is_named(text: str, code: int, how: str, lack: tuple[str, str]) -> None:
    verdict = judged(text, code)
    assert (verdict.how, verdict.started) == (how, False)
    assert verdict.lacked == (Lack(*lack),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('  File "a.py", line 1\n    x =\nSyntaxError: invalid syntax', 1),
        (f"{TRACE}NameError: name 'x' is not defined", 1),
        (f"{TRACE}ImportError: cannot import name 'gone' from 'lib'", 1),
        ("a.js:1\nReferenceError: document is not defined\n    at a.js:1:1", 1),
        ("", 139),
    ],
)
def test_a_script_that_crashes_has_not_started(text: str, code: int) -> None:
    verdict = judged(text, code)
    assert (verdict.how, verdict.started, verdict.lacked) == ("crash", False, ())


def test_a_program_that_a_python_script_starts_is_named() -> None:
    inner = '  File "/usr/lib/python3.11/subprocess.py", line 1, in _execute_child\n'
    fault = "FileNotFoundError: [Errno 2] No such file or directory: 'soffice'"
    verdict = judged(f"{TRACE}{inner}{fault}")
    assert verdict.lacked == (Lack("program", "soffice"),)


def test_a_script_that_keeps_running_has_started() -> None:
    assert judged("Serving on port 8000", -9, timed_out=True).how == "waits"


def test_a_script_that_hangs_after_it_lacked_something_has_not() -> None:
    verdict = judged(f"{TRACE}ModuleNotFoundError: No module named 'x'", -9, timed_out=True)
    assert (verdict.how, verdict.lacked) == ("module", (Lack("module", "x"),))


def test_what_the_run_found_missing_counts_before_a_fault_of_the_input() -> None:
    ended = Ended(1, "", "could not do it", missing=(Lack("program", "pandoc"),))
    verdict = judge(SCRIPT, ended)
    assert (verdict.how, verdict.lacked) == ("program", (Lack("program", "pandoc"),))
    usage = ended._replace(stderr="usage: a.py FILE")
    assert judge(SCRIPT, usage).how == "arguments"


def test_the_line_of_an_exception_is_its_last() -> None:
    verdict = judged(f"{TRACE}    raise RuntimeError('no')\nRuntimeError: no")
    assert (verdict.how, verdict.line) == ("input", "RuntimeError: no")


def test_a_folder_that_node_may_not_make_is_a_permission() -> None:
    verdict = judged("Error: ENOENT: no such file or directory, mkdir '/skill/data'\n    at x")
    assert (verdict.how, verdict.lacked) == ("permission", (Lack("permission", "/skill/data"),))


def test_a_library_that_ends_well_was_imported() -> None:
    verdict = judge(SCRIPT._replace(library=True), Ended(0))
    assert (verdict.how, verdict.started) == ("imports", True)


def test_help_counts_whatever_else_is_said() -> None:
    verdict = judged("warning: No module named 'fast'; going on\nusage: a.py FILE", 0)
    assert (verdict.how, verdict.lacked) == ("help", ())


@pytest.mark.parametrize("text", ["\n" * 16_384, "cannot " * 2_340, "-" * 16_384, "'" * 16_384])
def test_no_output_makes_the_judge_slow(text: str) -> None:
    """A pattern that backtracks would take minutes here."""
    assert judged(text).started
