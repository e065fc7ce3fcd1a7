"""Turn a run that the server allowed into the order for a node."""

from __future__ import annotations

import hashlib

from skillbelt.errors import ObjectError
from skillbelt.fleet.sent_skills import pack_skill
from skillbelt.objects.space import Objects
from skillbelt.running.job import environment
from skillbelt.running.orders import (
    OrderedPackages,
    PrivateValues,
    RunOrder,
    granted,
    private_seal,
    seal,
    write_order,
    write_private,
)
from skillbelt.running.run import Run
from skillbelt.sandbox.protocol import Job
from skillbelt.store.protocol import hash_texts
from skillbelt.tracing import inject


def seal_order(key: bytes, order: RunOrder, values: PrivateValues) -> tuple[bytes, str, bytes]:
    """Return the order as text, its seal and its private values."""
    private = write_private(values)
    data = write_order(order._replace(private=private_seal(key, order.id, private)))
    return data, seal(key, data), private


def tenant_of(run: Run) -> str:
    """Return the tenant of a run, for fair shares: a hash of the application and the user."""
    return hash_texts(*run.who.key[:2])


def order_of(
    run: Run, job: Job, id: str, facts: bytes
) -> tuple[RunOrder, PrivateValues, dict[str, str]]:
    """Return the order of an allowed run, its values, and the hash of each skill that it sees."""
    usual = environment(run)
    variables = {name: value for name, value in job.env.items() if usual.get(name) != value}
    staged = run.workspace.metadata().staged
    others = {
        name: (staged[name].hash, home) for name, home in run.others.items() if name in staged
    }
    hashes = {**{name: hash for name, (hash, _) in others.items()}, run.skill.name: run.staged.hash}
    planned, call, stdin = run.planned, run.call, job.stdin
    packages = None
    if planned is not None and run.packages is not None:
        packages = OrderedPackages(planned.needs, planned.lock, planned.builds.names)
    order = RunOrder(
        id=id,
        tenant=tenant_of(run),
        workspace="" if run.who.once else hash_texts(*run.who.key, run.workspace.name),
        skill=run.skill.name,
        hash=run.staged.hash,
        sandbox=run.sandbox.name,
        argv=run.argv,
        own_shell=isinstance(call.command, str) and not run.policy,
        command=call.command,
        cwd=call.cwd,
        folder=run.folder,
        root=run.root,
        stdin=None if stdin is None else hashlib.sha256(stdin).hexdigest() if stdin else "",
        terminal=job.terminal,
        policy=run.policy,
        limits=job.limits,
        timeout_seconds=job.timeout_seconds,
        processes=run.capabilities.processes,
        hosts=run.capabilities.hosts,
        observed=run.observed,
        secrets=tuple(run.secrets),
        packages=packages,
        others=others,
        files=hashlib.sha256(facts).hexdigest(),
        private="",
        grant=granted(run, hashes),
        trace=inject(),
    )
    return order, PrivateValues(dict(call.env), variables, dict(run.secrets)), hashes


def pack_of(run: Run, name: str) -> dict[str, tuple[str, bool, bytes]]:
    """Return the files of a skill that the run sees, as plain data."""
    return pack_skill(*_source_of(run, name))


def is_kept(objects: Objects | None, run: Run, name: str, hash: str) -> bool:
    """Put a skill that the run sees into the object store; return whether a node finds it there."""
    if objects is None:
        return False
    try:
        objects.keep_folder(hash, lambda: _source_of(run, name), what=f"skill {name!r}")
    except ObjectError:
        return False  # it is sent with the order
    return True


def _source_of(run: Run, name: str) -> tuple[str, str]:
    if name == run.skill.name:
        return run.staged.source, run.staged.fence
    return run.workspace.metadata().staged[name].source, ""
