"""The sandbox of the optional package `sandlock`, around our own Landlock rules and filter.

What Landlock alone holds back is held back here by the same rules and the same filter, so a run
does not depend on sandlock for that. Sandlock adds a supervisor which answers for the kernel: other
processes are not shown, nor can their files in `/proc` be read, and the host's name is not told. It
costs more than Landlock alone, since each file that is opened is a question to the supervisor.
"""

import json
import os
import tempfile
from functools import lru_cache
from importlib.machinery import PathFinder

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox import landlock, seccomp
from skillbelt.sandbox.identity import Python, current_identity, interpreter
from skillbelt.sandbox.process import Plan, Run
from skillbelt.sandbox.protocol import Job, Keepless, Listener, Running, refusal
from skillbelt.sandbox.supervised import check_places, supervised_plan
from skillbelt.values import Limits

MIN_VERSION = 6  # of Landlock; sandlock itself asks for it
_TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandlock_launch.py")
_WRITE_FILE = 2
_OWN_TASKS = 2  # those of the supervisor, which is the same user
_PACKAGE = "sandlock"
_MAX_TASK_CHARS = 2**20  # it goes inside as an environment, of which the system takes twice this


class SandlockSandbox(Keepless):
    """Runs commands below a supervisor of sandlock, in a Landlock domain."""

    name = "sandlock"
    level = 1
    remaps = False

    def unavailable(self) -> str | None:
        """Why it can not be used here, with the remedy; None when it can."""
        return refusal(_preflight)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself can not be brought up."""
        _preflight()
        return _start(job, listener)


def _start(job: Job, listener: Listener | None) -> Running:
    _check(job)
    return Run(_plan(job), job, listener)


def _check(job: Job) -> None:
    if job.bridge:
        raise SandboxUnavailable(
            "sandlock has no network of its own that could be led through the proxy: "
            "named hosts need the sandbox 'bubblewrap'"
        )
    check_places(job, "sandlock")
    if len(json.dumps((job.argv, dict(job.env)))) > _MAX_TASK_CHARS:
        raise RunRefused("the command and its environment are too long for sandlock")


def _plan(job: Job) -> Plan:
    """The plan of Landlock alone, with the supervisor between the launcher and the command."""
    more = job.limits._replace(max_processes=job.limits.max_processes + _OWN_TASKS)
    rules = landlock.rules(job)
    program = landlock.filter_program(job)
    plan = supervised_plan(job._replace(limits=more), _enforced(job), rules, program)
    *python, launcher, fd = plan.argv
    policy = json.dumps(_policy(rules))
    return plan._replace(argv=(*python, _text(), fd, launcher, policy))


def _policy(rules: dict[str, object]) -> dict[str, object]:
    """What sandlock is told. The inner rules are stricter: here a device can be made, for one."""
    python = _python()
    paths: list[tuple[str, int]] = rules["paths"]  # type: ignore[assignment]
    return {
        "name": f"sandbox-{os.urandom(8).hex()}",
        "command": (python.path, "-I", "-S", "-c", _text()),
        "packages": _packages(),
        "readable": [path for path, access in paths if not access & _WRITE_FILE]
        + list(python.folders),
        "writable": [path for path, access in paths if access & _WRITE_FILE],
    }


def _enforced(job: Job) -> dict[str, str]:
    return {
        **landlock.enforced(job),
        "network": "none: seccomp and sandlock",
        "other processes": "Landlock: no tracing, no signals; sandlock: they are not shown",
    }


def _missing() -> str | None:
    if landlock.version() < MIN_VERSION:
        return (
            f"the kernel has no Landlock of version {MIN_VERSION} or newer (Linux 6.12), or it is "
            "not among the security modules that the kernel was started with (lsm=landlock,...)"
        )
    if not seccomp.supported():
        return f"there is no filter for system calls for this processor ({os.uname().machine})"
    if not _packages():
        return "the package 'sandlock' is not installed: pip install 'skillbelt[sandlock]'"
    if interpreter() is None:
        return "there is no Python that commands could run: install the package 'python3'"
    return None


@lru_cache(maxsize=1)
def _preflight() -> None:
    """Run `true` with everything a real run has; once it has worked, it is not tried again."""
    reason = _missing()
    if reason is not None:
        raise SandboxUnavailable(reason)
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        os.chown(folder, *current_identity())
        limits = Limits(max_workspace_bytes=2**62, max_workspace_files=2**62)
        job = Job(("true",), {"PATH": "/usr/bin:/bin"}, folder, (), folder, limits=limits)
        outcome = _start(job, None).wait()
    assert outcome is not None
    if outcome.exit_code:
        said = outcome.stderr.data.decode("utf-8", "replace").strip()
        raise SandboxUnavailable(f"a program in it ends with {outcome.exit_code}: {said}")


def _packages() -> str:
    """The folder that holds the package; empty when there is none. Nothing of it is loaded."""
    spec = PathFinder.find_spec(_PACKAGE)
    return os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else ""


def _python() -> Python:
    python = interpreter()
    assert python is not None, "the preflight has seen it"
    return python


@lru_cache(maxsize=1)
def _text() -> str:
    with open(_TEXT, encoding="utf-8") as file:
        return file.read()
