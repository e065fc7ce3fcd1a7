"""The command line in this process, for commands that need none of their own.

A fork costs twenty milliseconds: most of a command that only looks at files. Here a command has its
own streams, folder and exit code, as a process has. What a process alone can show (signals, its
end, a terminal, what another process sees) is tested with one, see `tests/warm.py`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from skillbelt.cli import main

# They read and write files and end. Others run programs, wait, or serve.
COMMANDS = """
list show where search check prompt load read config permissions trust sessions artifacts init pack
new-version export import diff enable disable verify completion log mcp secrets store scan add
remove sync update outdated link refresh help -h --help -V --version
"""
_ENDLESS = "--follow"
_PATIENCE = 60.0  # seconds; only a thread that never ends takes them


def is_enough(arguments: Sequence[str]) -> bool:
    """Whether the command, or its help, needs no process of its own."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return False
    if _ENDLESS in arguments or "://" in os.environ.get("SKILLBELT_STORE", ""):
        return False  # it has threads, which end with the process
    return not arguments or arguments[0] in COMMANDS.split() or arguments[-1] in ("--help", "-h")


def run(arguments: Sequence[str], folder: str | os.PathLike[str]) -> tuple[int, bytes, bytes]:
    """Run a command in a folder; return its exit code and what it wrote to both streams."""
    before = _list_threads()
    with _file() as out, _file() as err:
        with _in_folder(folder), _streams(out, err), _no_log_handlers():
            try:
                code = main(list(arguments))
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            except Exception:
                traceback.print_exc()
                code = 1
        for thread in (left := _list_threads() - before):
            thread.join(_PATIENCE)  # one may be told to end, and not have come to it yet
        left = {thread for thread in left if thread.is_alive()}
        assert not left, f"the command left a thread behind: {left}"
        return code & 0xFF, _read(out), _read(err)


def _list_threads() -> set[threading.Thread]:
    """Return the threads, but for those in which a server of the test answers a connection."""
    return {one for one in threading.enumerate() if "(process_request_thread)" not in one.name}


@contextmanager
def _file() -> Iterator[int]:
    handle = os.memfd_create("stream")
    yield handle
    os.close(handle)


def _read(handle: int) -> bytes:
    return os.pread(handle, os.fstat(handle).st_size, 0)


@contextmanager
def _in_folder(folder: str | os.PathLike[str]) -> Iterator[None]:
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def _no_log_handlers() -> Iterator[None]:
    """Let warnings of the log go where they go in a program that has set nothing: to stderr."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = before


@contextmanager
def _streams(out: int, err: int) -> Iterator[None]:
    """Let both the streams of Python and the handles that programs inherit be others."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    before = sys.stdin, sys.stdout, sys.stderr
    handles = [os.dup(number) for number in range(3)]
    for stream in before[1:]:
        stream.flush()
    for number, handle in enumerate((nothing, out, err)):
        os.dup2(handle, number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, lines, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        for number, mode, lines, errors in (
            (0, "r", -1, "surrogateescape"),
            (1, "w", -1, "surrogateescape"),
            (2, "w", 1, "backslashreplace"),
        )
    )
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdin, sys.stdout, sys.stderr = before
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
            os.close(handle)
        os.close(nothing)
