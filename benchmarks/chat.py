"""Measure how long a person waits for `skillbelt chat`: `python -m benchmarks.chat`.

On a pseudo-terminal, beside a model that never answers: the time until the prompt is there, and the
time from Enter to the first sign of life, for a message that is typed at once, while the packages
of the model are being imported. Both are divided by what Python alone takes to start, in turns; the
least of each is taken, as whatever else the machine does only ever adds. Exit code 1 when a bar is
missed.
"""

from __future__ import annotations

import argparse
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from benchmarks.sandbox import Row, as_json, table

ROUNDS = 7
PROMPT, SIGN = b"@file", b"waiting for the model"


def start_python() -> float:
    """The floor: how long Python takes to start and to end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


def chat(folder: str, model: str) -> tuple[float, float]:
    """The seconds until the prompt is there, and from Enter to the first sign of life."""
    began = time.perf_counter()
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        env = {"HOME": folder, "PATH": os.environ["PATH"], "TERM": "xterm", "PYTHONUTF8": "1"}
        program = [sys.executable, "-m", "skillbelt", "chat", "--model", model]
        os.execve(sys.executable, program, env)
    try:
        read_until(terminal, PROMPT)
        shown = time.perf_counter()
        os.write(terminal, b"hello\r")
        read_until(terminal, SIGN)
        return shown - began, time.perf_counter() - shown
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def read_until(terminal: int, text: bytes) -> None:
    """Read until the text is on the screen."""
    found = b""
    while text not in found:
        found += os.read(terminal, 2**16)


def measure(rounds: int) -> list[Row]:
    """The bars of this page."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        model = f"none@http://127.0.0.1:{server.getsockname()[1]}/v1"
        chat(folder, model)  # compiles the modules
        taken = [(start_python(), *chat(folder, model)) for _ in range(rounds)]
    floor, prompt, sign = (min(column) for column in zip(*taken, strict=True))
    detail = f"Python alone {floor * 1000:.0f} ms"
    return [
        Row("prompt", prompt / floor, 40, "times Python", f"{prompt * 1000:.0f} ms, {detail}"),
        Row("sign", sign / floor, 5, "times Python", f"{sign * 1000:.0f} ms, {detail}"),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chat", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    rows = measure(options.rounds)
    print(as_json(rows) if options.json else table(rows))
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
