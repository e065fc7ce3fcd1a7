"""The first process of a bubblewrap sandbox: it waits, sets the limits and starts the command.

It stays above the command. No process inside can read, trace or kill it; it has the limits and the
filter of the command; and everything inside ends with it. It is machine code, since no program that
every system has can load the filter that keeps a command from starting another program: see
design/running.md. `assembler` has the instructions; each program is built for one run.
"""

import os
import struct
from functools import lru_cache

from skillbelt.sandbox.inside.assembler import ASSEMBLERS, Assembler, Stack, Value
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.process.limits import Bounds
from skillbelt.sandbox.process.run import ANSWER, READY
from skillbelt.sandbox.protocol import Job

# Named like a shell, since it becomes one for a command that it cannot start itself.
PLACE = "/.sandbox/sh"
# The program between the bridge and the command: it only locks out other programs.
LAST_PLACE = "/.sandbox/last"
# The words before the command, for that shell.
WORDS = (PLACE, "-c", 'exec "$@"', "sandbox")
# A shell that cannot start a program either: it only explains the error.
LOCKED_WORDS = (
    PLACE,
    "-c",
    '[ -e "$1" ] && { echo "$0: $1: Permission denied" >&2; exit 126; }; '
    'echo "$0: $1: not found" >&2; exit 127',
    "sandbox",
)
_WORD = 8
_FAILED = 125
_SET_DUMPABLE, _LOAD_FILTER, _SIGCHLD, _TAKE_TERMINAL = 4, 1, 17, 0x540E
_NOT_THERE, _NOT_ALLOWED, _NOT_IN_A_FOLDER = -2, -13, -20
_SIGNALLED = 128  # added to the number of the signal that ended the command


@lru_cache(maxsize=16)
def program(
    paths: tuple[str, ...],
    limits: Bounds = (),
    processor: str = "",
    *,
    waits: bool = True,
    stays: bool = False,
    terminal: bool = False,
    lock: bytes = b"",
) -> bytes:
    """Build a program that starts the first of the paths that exists, as an ELF file.

    With `waits` it writes READY and exits with 125 if ANSWER does not come. It also exits with 125
    if anything here fails. If it cannot start the command, a shell tries once more and explains the
    error. With `stays` the command is its child; it reaps every process that ends below it, and
    exits with the exit code of the command. With `terminal` its stderr becomes the command's
    terminal. With the filter of `seccomp.lock` or `seccomp.alone` neither it nor the command can
    start another program.
    """
    code = ASSEMBLERS[processor or os.uname().machine]()
    child, number, environment = (code.data(bytes(_WORD)) for _ in range(3))
    code.load_environment()
    code.store(environment)
    if waits:
        _wait_for_answer(code)
    for kind, bounds in limits:
        code.call("prlimit64", 0, kind, code.data(struct.pack("<QQ", *bounds)), 0)
        code.require(0)
    if stays:
        _start_child(code, child)
    if terminal:
        _take_terminal(code)
    code.label("lock")
    if lock:
        _load_lock(code, lock, number)
    if stays:
        code.load_word(child)
        code.compare(0)
        code.jump("above", "not equal")
    _become_command(code, paths, number, environment)
    code.label("fail")
    code.call("exit_group", _FAILED)
    if stays:
        _wait_for_child(code, child)
    return code.executable()


def _wait_for_answer(code: Assembler) -> None:
    code.call("write", 1, code.data(READY), len(READY))
    code.require(len(READY))
    code.call("read", 0, code.data(bytes(len(ANSWER))), len(ANSWER))
    code.require(len(ANSWER))


def _start_child(code: Assembler, child: int) -> None:
    """Fork, and continue as the child; the parent jumps to `lock`."""
    code.call("prctl", _SET_DUMPABLE, 0)  # no file of it in /proc can be opened; exec resets this
    code.require(0)
    code.call("clone", _SIGCHLD, 0, 0, 0, 0)
    code.store(child)
    code.compare(0)
    code.jump("fail", "negative")
    code.jump("lock", "not equal")


def _take_terminal(code: Assembler) -> None:
    """Make the terminal, which came as stderr, the child's own and all its streams."""
    code.call("setsid")
    code.compare(0)
    code.jump("fail", "negative")
    code.call("ioctl", 2, _TAKE_TERMINAL, 0)
    code.require(0)
    for stream in (0, 1):
        code.call("dup3", 2, stream, 0)
        code.require(stream)


def _load_lock(code: Assembler, lock: bytes, number: int) -> None:
    """Load the lock with a random number in it; only exec with that number works from here on."""
    rules = code.data(lock)
    code.call("getrandom", number, _WORD, 0)
    code.require(_WORD)
    for half, place in enumerate(seccomp.LOCK_AT):
        code.load_word(number + 4 * half)
        code.store_word(rules + place)
    code.call("seccomp", _LOAD_FILTER, 0, code.data(struct.pack("<QQ", len(lock) // 8, rules)))
    code.require(0)


def _become_command(code: Assembler, paths: tuple[str, ...], number: int, environment: int) -> None:
    """Try each path, then the shell. The stack has the count of the words, then the words."""
    words, command = Stack(_WORD), Stack(_WORD * (1 + len(WORDS)))
    for place, path in enumerate(paths):
        code.label(f"path {place}")
        text = code.data(os.fsencode(path) + b"\0")
        code.call("execve", text, command, Value(environment), Value(number))
        for error in (_NOT_THERE, _NOT_ALLOWED, _NOT_IN_A_FOLDER):
            code.compare(error)
            code.jump(f"path {place + 1}", "equal")
        code.jump("shell")
    code.label(f"path {len(paths)}")
    code.label("shell")
    code.call("execve", code.data(b"/bin/sh\0"), words, Value(environment), Value(number))


def _wait_for_child(code: Assembler, child: int) -> None:
    """Close the streams, reap until the child ends, and exit with its exit code."""
    status = code.data(bytes(_WORD))
    code.label("above")
    for stream in (0, 1, 2):
        code.call("close", stream)
    code.label("wait")
    code.call("wait4", -1, status, 0, 0)
    code.compare(0)
    code.jump("fail", "negative")
    code.compare(Value(child))
    code.jump("wait", "not equal")
    # The first byte is the signal that killed it, with a bit for a core file; the second one its
    # exit code.
    code.load_byte(status)
    code.compare(0)
    code.jump("exited", "equal")
    code.set_bits(_SIGNALLED)
    code.store(status)
    code.call("exit_group", Value(status))
    code.label("exited")
    code.load_byte(status + 1)
    code.store(status)
    code.call("exit_group", Value(status))


def last(job: Job) -> bytes:
    """Build the program that becomes the command when the command may start no other program."""
    paths = paths_of(job.argv[0], job.env.get("PATH", ""))
    return program(paths, waits=False, lock=seccomp.alone())


def paths_of(word: str, path: str) -> tuple[str, ...]:
    """Return the paths to try for a command; none when the shell is to report the error."""
    if "/" in word:
        return (word,)
    folders = path.split(":") if word and path else ()
    return tuple(f"{folder}/{word}" if folder else word for folder in folders)
