"""Match a pattern that a skill wrote. It may take exponential time, so a child process runs it."""

from __future__ import annotations

import subprocess
import sys

MAX_PATTERN_CHARS = 10_000
MAX_MATCHED_CHARS = 2**20
_CPU_SECONDS = 1
_GUARD_SECONDS = 120.0  # of the clock, on a machine that is busy
_PROGRAM = """
import re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1]) + 1))
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
given = sys.stdin.buffer.read().decode('utf-8', 'surrogatepass')
size = int(sys.argv[2])
try:
    found = re.search(given[:size], given[size:], re.MULTILINE)
    print('no' if found is None else 'yes')
except (re.error, OverflowError, RecursionError) as error:
    print('fault', ascii(str(error)))
"""


class BadPattern(Exception):
    """The pattern cannot be used; the text says why."""


def search_pattern(pattern: str, text: str) -> bool:
    """Return whether the pattern is found in the text; BadPattern if that cannot be decided."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"the pattern is longer than {MAX_PATTERN_CHARS:,} characters")
    if _is_plain(pattern):
        return pattern in text
    given = (pattern + text[:MAX_MATCHED_CHARS]).encode("utf-8", "surrogatepass")
    limits = (str(_CPU_SECONDS), str(len(pattern)))
    command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _PROGRAM, *limits]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=_GUARD_SECONDS, check=False
        )
        answer = done.stdout.decode("ascii", "replace").strip()
    except subprocess.TimeoutExpired:
        answer = ""
    if answer in ("yes", "no"):
        return answer == "yes"
    if answer.startswith("fault "):
        raise BadPattern(f"the pattern is not valid: {answer.removeprefix('fault ')}")
    raise BadPattern(f"the pattern took more than {_CPU_SECONDS} s, or more memory than it may")


def _is_plain(pattern: str) -> bool:
    return not set(pattern) & set(r".^$*+?{}[]\|()")
