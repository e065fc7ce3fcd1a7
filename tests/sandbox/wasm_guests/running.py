"""Scripts run by the host components."""

from __future__ import annotations

from pathlib import Path

from skillbelt.sandbox.protocol import Outcome, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place


def script(
    sandbox: WasmSandbox, place: Place, files: dict[str, str], *argv: str, stdin: bytes = b""
) -> Outcome:
    """The outcome of a command in a folder with these files."""
    for name, text in files.items():
        path = Path(place.folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return run(sandbox, place.job(*argv, stdin=stdin))


def said(outcome: Outcome) -> str:
    """The output of a program that succeeded."""
    assert (outcome.exit_code, outcome.stderr.data) == (0, b""), outcome
    return outcome.stdout.data.decode()
