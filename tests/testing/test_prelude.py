"""The functions that attacks use report for each attempt whether it was stopped."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from skillbelt.testing.prelude import NOT_THERE, PRELUDE

# Makes an ordinary Python look like one in a WASM module.
_WASI = """
import os, sys
sys.platform = "wasi"
del os.fork
"""


def said(script: str, before: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", before + PRELUDE + script, json.dumps({"x": 1})],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("attempt(lambda: open('/no/such'))", "held FileNotFoundError"),
        ("attempt(lambda: open('/no/such'), lambda: read(sys.executable)[:0])", "broke b''"),
        ("attempt(lambda: None)", "broke <lambda>"),
        ("held()", "held stopped"),
        ("broke('x')", "broke x"),
        ("attempt(lambda: syscall(-1, -1))", "held OSError"),
        ("assert scene == {'x': 1}; held()", "held stopped"),
    ],
)
def test_what_an_attempt_comes_to(script: str, answer: str) -> None:
    assert said(script) == answer


@pytest.mark.parametrize("script", ["nonsense()", "import no_such_module", "os.no_such_call()"])
def test_a_mistake_is_no_success_and_no_stop(script: str) -> None:
    """It is reported as unclear."""
    assert said(script).split(":")[0] in ("NameError", "ModuleNotFoundError", "AttributeError")


@pytest.mark.parametrize(
    "script",
    [
        "os.fork()",
        "import no_such_module; no_such_module.call()",
        "read('/proc/no/such')",
        "import select; select.no_such_call()",
    ],
)
def test_what_does_not_exist_in_a_wasm_module_is_told(script: str) -> None:
    assert said(script, _WASI).startswith(f"held {NOT_THERE}")


def test_there_too_a_mistake_stays_one() -> None:
    assert said("nonsense()", _WASI).startswith("NameError")
    assert said("read('/no/such')", _WASI).startswith("FileNotFoundError")


def test_modes_are_left_to_the_host_to_look_at(tmp_path: object) -> None:
    """A guest has no modes: a call without effect is not a successful attack."""
    path = f"{tmp_path}/file"
    assert said(f"write({path!r}); attempt(lambda: os.chmod({path!r}, 0o600))", _WASI).startswith(
        "held NotThere"
    )
