"""The man page: what roff makes of it, and that nothing of it is lost."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from skillbelt.cli import COMMANDS
from tests.needs import not_run

PAGE = Path(__file__).parents[1] / "man" / "skillbelt.1"


def mandoc(*options: str) -> str:
    program = shutil.which("mandoc")
    if program is None:
        not_run("needs mandoc, which scripts/setup.sh installs")
    done = subprocess.run([program, *options, str(PAGE)], capture_output=True, text=True)
    return done.stdout + done.stderr


def test_it_is_clean() -> None:
    assert mandoc("-T", "lint", "-W", "style") == ""


def test_hyphens_and_quotes_are_printed_as_a_person_types_them() -> None:
    text = re.sub(r".\x08", "", mandoc("-T", "utf8", "-O", "width=200"))
    for name in COMMANDS:
        assert f"\n   skillbelt {name}\n" in text
    assert "--output-dir DIR" in text
    assert 'eval "$(skillbelt completion bash)"' in text
    assert "such as 'out/*'" in text
    status = text.partition("EXIT STATUS")[2].partition("FILES")[0]
    codes = re.findall(r"^ +(\d+) ", status, re.MULTILINE)
    assert " ".join(codes) == "0 1 2 3 4 5 124 130"


def test_no_line_is_a_request_by_accident() -> None:
    known = {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".RS", ".RE", ".nf", ".fi", '.\\"'}
    begun = {line.split(" ")[0] for line in PAGE.read_text().splitlines() if line[0] in ".'"}
    assert begun == known
