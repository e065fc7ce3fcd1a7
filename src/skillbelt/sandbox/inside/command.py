"""Drop the rights of a process and turn it into a command: shared by the programs above one.

Any Python from 3.9 on runs this text, followed by that of `launch`, `portable_launch`, `bridge` or
`container`: see `source_of`. The worker for WASM loads it as a module.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

FAILED, UNUSABLE, MISSING = 125, 126, 127  # the exit codes of `env` and of a shell
KILLED = 128 + signal.SIGKILL
SET_DEATH_SIGNAL, SET_DUMPABLE, SET_SECCOMP = 1, 4, 22
SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 36, 38
_FILTER_MODE = 2
_CREATE_RULESET, _ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_PATH_BENEATH = 1
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
Execute = Callable[[str, list[str], dict[str, str]], None]


def _ctypes() -> ModuleType:
    import ctypes  # cost: 5 ms, which a bridge without a filter saves

    return ctypes


def call(name: str, *arguments: int | bytes) -> int:
    """Call a function of the C library; OSError when it returns a negative number."""
    ctypes = _ctypes()
    libc = ctypes.CDLL(None, use_errno=True)
    converted = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    done = int(getattr(libc, name)(*converted))
    if done < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return done


def prctl(option: int, value: int | bytes, pointer: bytes | int = 0) -> None:
    """Set an attribute of this process."""
    call("prctl", option, value, pointer, 0, 0)


def load_filter(program: bytes) -> None:
    """Load a seccomp filter: the kernel checks every system call from here on."""
    ctypes = _ctypes()
    text = ctypes.create_string_buffer(program, len(program))
    # The number of its instructions, and their address.
    header = (len(program) // 8).to_bytes(8, sys.byteorder)
    header += ctypes.addressof(text).to_bytes(8, sys.byteorder)
    prctl(SET_SECCOMP, _FILTER_MODE, header)


def load_lock(rules: str, places: Sequence[int], number: int) -> Execute:
    """Load a filter that allows exec only with a random fourth argument; return such an exec.

    The command does not know the argument, so it cannot exec another program. `rules` is the filter
    in hexadecimal, `places` are those of the argument's halves, `number` is execve's.
    """
    ctypes = _ctypes()
    key, program = os.urandom(8), bytearray.fromhex(rules)
    for half, at in enumerate(places):
        program[at : at + 4] = key[4 * half : 4 * half + 4]
    load_filter(bytes(program))
    libc = ctypes.CDLL(None, use_errno=True)

    def execute(path: str, argv: list[str], env: dict[str, str]) -> None:
        variables = [f"{name}={value}" for name, value in env.items()]
        lists = [[os.fsencode(each) for each in one] for one in (argv, variables)]
        given = [(ctypes.c_char_p * (len(one) + 1))(*one, None) for one in lists]
        wide = ctypes.c_ulong(int.from_bytes(key, sys.byteorder))
        libc.syscall(ctypes.c_long(number), os.fsencode(path), *given, wide)
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return execute


def make_ruleset(handled: Sequence[int], size: int, paths: Iterable[tuple[str, int]]) -> int:
    """Create a Landlock rule set; return its handle."""
    attributes = b"".join(each.to_bytes(8, sys.byteorder) for each in handled)[:size]
    handle = call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
    for path, access in paths:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = access.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
        call("syscall", _ADD_RULE, handle, _PATH_BENEATH, rule, 0)
        os.close(place)
    return handle


def reset_signals() -> None:
    """Restore the signal handlers that Python changes."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def change_user(identity: Sequence[int] | None) -> None:
    """Change from root to the user of the command."""
    if identity is not None:
        uid, gid = identity
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def close_streams() -> None:
    """Close the command's streams here, so that their readers see EOF when the command ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def exit_code(status: int) -> int:
    """Return the exit code of a process as a shell does: 128 + n after signal n."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def become(
    argv: list[str], env: dict[str, str], execute: Execute = os.execve, prefix: str = ""
) -> int:
    """Become the command; on failure return the exit code that a shell would give.

    `prefix` begins the message. os.execvpe would import a module that can no longer be read.
    """
    reason, code = "not found", MISSING
    for path in _candidates(argv[0], env.get("PATH", _DEFAULT_PATH)):
        # A shell runs a script without a `#!` line itself.
        for program, words in ((path, argv), ("/bin/sh", ["/bin/sh", path, *argv[1:]])):
            try:
                execute(program, words, env)
            except (OSError, ValueError) as error:
                number = getattr(error, "errno", None)
                if number == errno.ENOEXEC:
                    continue
                if number not in (errno.ENOENT, errno.ENOTDIR):
                    reason, code = getattr(error, "strerror", None) or str(error), UNUSABLE
            break
    os.write(2, f"{prefix}{argv[0]}: {reason}\n".encode("utf-8", "surrogateescape"))
    return code


def _candidates(name: str, path: str) -> list[str]:
    if "/" in name:
        return [name]
    return [f"{folder or '.'}/{name}" for folder in path.split(":")] if name else []
