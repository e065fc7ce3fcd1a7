"""The launcher and its task, shared by the sandboxes without namespaces."""

import json
import os
import sys
from collections.abc import Mapping

from skillbelt.errors import SandboxUnavailable
from skillbelt.files.handles import closed_on_error
from skillbelt.sandbox.inside.source import source_of
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.linux.cgroups import Hierarchy, hierarchy
from skillbelt.sandbox.linux.identity import Identity, current_identity, interpreter, run_identity
from skillbelt.sandbox.process.hidden_usage import can_copy, can_see
from skillbelt.sandbox.process.limits import counted_enforced, process_limits
from skillbelt.sandbox.process.run import LaunchPlan, check_job
from skillbelt.sandbox.process.watch import Guard
from skillbelt.sandbox.protocol import Job

_FIRST_NAMESPACE = "pid:[4026531836]"  # the initial namespace, where all processes are visible


def supervised_plan(
    job: Job,
    enforced: Mapping[str, str],
    rules: Mapping[str, object] | None = None,
    filter_program: bytes = b"",
) -> LaunchPlan:
    """Return the plan of a run below the launcher, confined by the rules and the filter."""
    check_job(job)
    guard = Guard(job.limits, job.workspace)
    identity = run_identity()
    tasks = _user_tasks(current_identity())
    task = {
        "argv": job.argv,
        "env": dict(job.env),
        "cwd": job.cwd,
        "parent": os.getpid(),
        "identity": identity,
        "terminal": job.terminal,
        "rules": rules,
        "filter": filter_program.hex(),
        "lock": None if job.capabilities.processes or not filter_program else seccomp.lock_task(),
        "limits": process_limits(job.limits, tasks),
        # In a container, tasks of the same user in other containers count too, and are not visible.
        "tasks": None if _sees_all_processes() else tasks,
    }
    with closed_on_error() as handles:
        fd = handles.add(os.memfd_create("skillbelt", os.MFD_CLOEXEC))
        os.pwrite(fd, json.dumps(task).encode(), 0)
        return LaunchPlan(
            argv=(launcher_python(), "-I", "-S", "-c", source_of("launch"), str(fd)),
            enforced={
                **enforced,
                **_limits_enforced(identity, hierarchy(), _is_out_of_reach(identity, rules)),
            },
            watch=guard,
            explain=_explain,
            fds=handles.all,
            supervised=True,
            terminal_owner=identity,
        )


def launcher_python() -> str:
    """Return a Python that this process can start; the command need not be able to."""
    if sys.executable and os.access(os.path.realpath(sys.executable), os.X_OK):
        return sys.executable
    found = interpreter()
    return found.path if found is not None else "/usr/bin/python3"


def _user_tasks(identity: Identity) -> int:
    """Count the user's tasks: without a user namespace the limit covers them too."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == identity.uid:
                    count += os.stat(f"/proc/{name}/task").st_nlink - 2
            except OSError:
                continue
    return count


def _sees_all_processes() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return True


def _explain(said: str) -> str:
    return f"the launcher cannot start: {said or 'no message'}"


def _is_out_of_reach(identity: Identity | None, rules: Mapping[str, object] | None) -> bool:
    """Whether the command cannot signal the launcher.

    It has another user, or the rules forbid it.
    """
    handled = rules["handled"] if rules is not None else ()
    return identity is not None or (isinstance(handled, tuple) and any(handled[2:]))


def _limits_enforced(
    identity: Identity | None, found: Hierarchy | None, out_of_reach: bool
) -> dict[str, str]:
    uid = current_identity().uid
    return {
        "time": "everything is ended at the deadline"
        if out_of_reach
        else "not enforced: a command can end what would end it",
        "user": f"uid {uid}" + (", changed from root" if identity else ""),
        **counted_enforced(found.label if found else "", can_see(), can_copy()),
        "process count": "rlimit, counted with the user's others",
        "cpu": "rlimit for each process, watched for all",
        "file size": "rlimit",
        "open files": "rlimit",
        "disk": "watched, the workspace alone",
        "temporary files": "not enforced: there is no private /tmp",
    }


def check_places(job: Job, sandbox: str) -> None:
    """Raise SandboxUnavailable for a mount at another path, which needs a mount namespace."""
    for mount in job.mounts:
        if os.path.normpath(mount.source) != os.path.normpath(mount.target):
            raise SandboxUnavailable(
                f"{sandbox} cannot show a folder at another place than its own"
            )
