"""What sandlock needs around the launcher. Any Python from 3.9 on runs it as a text, twice.

Outside, as `python3 -I -S -c TEXT FD LAUNCHER POLICY`, it is the launcher, but its child becomes
the supervisor of sandlock, which starts the same text once more. Inside, as `python3 -I -S -c TEXT`
with the task in its environment, it gives up what is not granted and becomes the command.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import resource
import signal
import sys
import termios
from typing import Any, NoReturn

_FAILED = 125
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_NO_NEW_PRIVILEGES = 1, 4, 38
_RESTRICT_SELF = 446
_PIECE = 2**16  # the system takes no variable of more than twice this
_VARIABLE = "SKILLBELT_"


def outside(fd: int, launcher_text: str, policy: dict[str, Any]) -> int:
    """Run the command below the supervisor; gives its exit code."""
    launcher = _launcher(launcher_text)
    launcher["_become"] = lambda task: _supervise(task, policy, launcher, launcher_text)
    return int(launcher["main"](fd))


def _launcher(text: str) -> dict[str, Any]:
    """The functions of the launcher, each of which can be replaced for the others."""
    functions: dict[str, Any] = {"__name__": "launcher"}
    exec(text, functions)
    return functions


def _supervise(
    task: dict[str, Any], policy: dict[str, Any], launcher: dict[str, Any], text: str
) -> NoReturn:
    """Start the command in sandlock, let go of its streams and wait for it."""
    code = _FAILED
    try:
        package = _load(policy)
        _step_down(task, launcher)
        process = _start(package, policy, json.dumps([task, text]))
        launcher["_let_go"]()
        code = exit_code(process.wait())
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code if 0 <= code < 256 else _FAILED)


def exit_code(result: Any) -> int:
    """That of the command as a shell gives it. Of one that was killed sandlock may know no more."""
    if result.signal > 0:
        return 128 + int(result.signal)
    killed = result.reason is not None and result.exit_code < 0
    return 128 + signal.SIGKILL if killed else int(result.exit_code)


def _load(policy: dict[str, Any]) -> Any:
    """The package, while whoever we are can still read it: the user of the run may not."""
    os.environ["HOME"] = "/"  # it asks for one when it is loaded, and reads nothing there
    sys.path.insert(0, policy["packages"])
    return importlib.import_module("sandlock")


def _step_down(task: dict[str, Any], launcher: dict[str, Any]) -> None:
    """Be the user of the run, in a session of its own; end with the launcher."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGCHLD))
    os.setsid()
    if task["identity"] is not None:
        uid, gid = task["identity"]
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        # The supervisor looks into the command; that of somebody who was root is closed to it.
        launcher["_call"]("prctl", _SET_DUMPABLE, 1, 0, 0, 0)
    launcher["_call"]("prctl", _SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if task["terminal"]:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)


def _start(package: Any, policy: dict[str, Any], words: str) -> Any:
    # The task is not among the arguments, which everybody on the machine can read.
    pieces = range(0, len(words), _PIECE)
    box = package.Sandbox(
        name=policy["name"],
        fs_readable=policy["readable"],
        fs_writable=policy["writable"],
        clean_env=True,
        env={f"{_VARIABLE}{at:08}": words[at : at + _PIECE] for at in pieces},
    )
    return box.popen(policy["command"])


def inside() -> NoReturn:
    """Be the command, with nothing that is not granted."""
    names = sorted(name for name in os.environ if name.startswith(_VARIABLE))
    task, text = json.loads("".join(os.environ[name] for name in names))
    launcher = _launcher(text)
    launcher["_prepare"] = lambda task: _prepare(task, launcher)
    launcher["_become"](task)
    os._exit(_FAILED)


def _prepare(task: dict[str, Any], launcher: dict[str, Any]) -> None:
    """As the launcher does, but for the user and the session, which the supervisor has changed."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(task["cwd"])
    rules = launcher["_ruleset"](task["rules"])
    launcher["_answered"]()
    if task["terminal"]:
        _take_terminal()
    launcher["_call"]("prctl", _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for kind, values in task["limits"]:
        resource.setrlimit(kind, tuple(values))
    launcher["_system_call"](_RESTRICT_SELF, rules, 0)
    launcher["_load_filter"](bytes.fromhex(task["filter"]))


def _take_terminal() -> None:
    """The supervisor leads the session; the command is to be what its terminal talks to."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(2, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.dup2(2, 0)
    os.dup2(2, 1)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        inside()
    sys.exit(outside(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
