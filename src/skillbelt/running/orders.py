"""A run as data for a node: the command, and the grant that allows exactly that.

The server decides; a node carries out the order. It checks the seal of the order, hashes all data
again, and compares everything that the run gets with the grant: the command and the skill with its
hash, each package, each host, each secret. Nothing else is opened.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from skillbelt.errors import PermissionDenied, RunRefused
from skillbelt.permission.normal_forms import host_text
from skillbelt.permission.packages import Lock, Package
from skillbelt.running.mirrors import EntryFact, Facts
from skillbelt.running.packages.declared import Needs
from skillbelt.running.questions import asked_for
from skillbelt.running.run import Run
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

_FORMAT = 1


class GrantedRequest(NamedTuple):
    """One request that was allowed: its type and patterns, for which version of which skill."""

    type: str
    skill: str
    hash: str
    patterns: tuple[str, ...]


class OrderedPackages(NamedTuple):
    """The packages of a run: the requirements, and the exact versions with their hashes."""

    needs: Needs
    lock: Lock
    builds: tuple[str, ...] = ()


class RunOrder(NamedTuple):
    """One allowed run. Files and the values of variables are sent beside it; their hashes are here.

    `tenant` and `workspace` are hashes: a node knows no names of users. An empty `workspace` is a
    run outside any conversation. `root` is the path of the workspace on the server, `files` the
    hash of the facts about its entries, `private` the seal of the values.
    """

    id: str
    tenant: str
    workspace: str
    skill: str
    hash: str
    sandbox: str
    argv: tuple[str, ...]
    own_shell: bool
    command: str | tuple[str, ...]
    cwd: str
    folder: str
    root: str
    stdin: str | None
    terminal: bool
    policy: bool
    limits: Limits
    timeout_seconds: float
    processes: bool
    hosts: tuple[str, ...]
    observed: bool
    secrets: tuple[str, ...]
    packages: OrderedPackages | None
    others: Mapping[str, tuple[str, str]]
    files: str
    private: str
    grant: tuple[GrantedRequest, ...]
    trace: Mapping[str, str]
    job: str = ""

    @property
    def hashes(self) -> dict[str, str]:
        """Return the hash of each skill that the run sees, by name."""
        return {**{name: hash for name, (hash, _) in self.others.items()}, self.skill: self.hash}


class PrivateValues(NamedTuple):
    """Values that no log, task name or file of the cluster may show.

    `env` is the environment of the call, `variables` are those that the product adds for the kind
    of call, `secrets` the stored ones that the run was given.
    """

    env: Mapping[str, str]
    variables: Mapping[str, str]
    secrets: Mapping[str, str]


def granted(run: Run, hashes: Mapping[str, str]) -> tuple[GrantedRequest, ...]:
    """Return the requests of an allowed run, as the questions were asked."""
    request = run.request
    found = [GrantedRequest("run", request.skill, request.hash, request.patterns)]
    for host in run.capabilities.hosts:
        found.append(GrantedRequest("network", request.skill, request.hash, (host_text(host),)))
    for name in run.secrets:
        text = f"{request.skill}/{name}"
        found.append(GrantedRequest("secret", request.skill, request.hash, (text,)))
    if run.planned is not None and run.planned.lock.packages:
        texts = tuple(one.text for one in run.planned.lock.packages)
        found.append(GrantedRequest("install", request.skill, request.hash, texts))
    for name, hash in hashes.items():
        found.append(GrantedRequest("skill", name, hash, (name,)))
    return tuple(found)


def check_grant(order: RunOrder, run: Run) -> None:
    """Raise PermissionDenied for anything in the order that the grant does not contain."""
    ours = (order.skill, order.hash)
    wanted = [GrantedRequest("run", *ours, asked_for(run.call, run.line, run.ground))]
    wanted += [GrantedRequest("network", *ours, (host_text(host),)) for host in order.hosts]
    wanted += [
        GrantedRequest("secret", *ours, (f"{order.skill}/{name}",)) for name in order.secrets
    ]
    if order.packages is not None and order.packages.lock.packages:
        texts = tuple(one.text for one in order.packages.lock.packages)
        wanted.append(GrantedRequest("install", *ours, texts))
    wanted += [GrantedRequest("skill", name, hash, (name,)) for name, hash in order.hashes.items()]
    for one in wanted:
        if one not in order.grant:
            raise PermissionDenied(
                order.skill, f"{one.type} {', '.join(one.patterns)[:200]} is not in the grant"
            )


# As text


def write_order(order: RunOrder) -> bytes:
    """Return the order as JSON."""
    plain: dict[str, object] = order._asdict()
    plain["limits"] = order.limits._asdict()
    plain["format"] = _FORMAT
    if order.packages is not None:
        plain["packages"] = {
            "needs": order.packages.needs._replace(locked=None)._asdict(),
            "lock": [list(one) for one in order.packages.lock.packages],
            "text": order.packages.lock.text,
            "builds": order.packages.builds,
        }
    return json.dumps(plain, sort_keys=True).encode()


def read_order(data: bytes) -> RunOrder:
    """Return the order of this text; RunRefused when another version wrote it."""
    plain: Any = read_json(data)
    if not isinstance(plain, dict) or plain.pop("format", None) != _FORMAT:
        raise RunRefused("the order of the run is not one that this node understands; install the "
                         "same version of skillbelt on servers and nodes")  # fmt: skip
    packages, command = plain["packages"], plain["command"]
    return RunOrder(
        **{
            **plain,
            "argv": tuple(plain["argv"]),
            "command": command if isinstance(command, str) else tuple(command),
            "hosts": tuple(plain["hosts"]),
            "limits": Limits(**plain["limits"]),
            "packages": _read_packages(packages) if packages else None,
            "others": {name: (hash, home) for name, (hash, home) in plain["others"].items()},
            "secrets": tuple(plain["secrets"]),
            "grant": tuple(
                GrantedRequest(type, skill, hash, tuple(patterns))
                for type, skill, hash, patterns in plain["grant"]
            ),
        }
    )


def _read_packages(plain: Mapping[str, Any]) -> OrderedPackages:
    needs: Any = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in plain["needs"].items()
    }
    packages = tuple(
        Package(kind, name, version, tuple(hashes)) for kind, name, version, hashes in plain["lock"]
    )
    kind: Any = needs["kind"]
    lock = Lock(kind, packages, plain["text"])
    return OrderedPackages(Needs(**needs), lock, tuple(plain["builds"]))


def seal(key: bytes, data: bytes) -> str:
    """Return the seal of some data by a key that servers and nodes share."""
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def check_seal(key: bytes, data: bytes, given: str) -> None:
    """Raise PermissionDenied for an order that was changed in transit, or not made by a server."""
    if not hmac.compare_digest(seal(key, data), given):
        raise PermissionDenied("run", "the order was changed on its way, or no server made it")


def write_facts(facts: Facts) -> bytes:
    """Return the facts about the files of a workspace as JSON."""
    return json.dumps(facts).encode()


def read_facts(data: bytes, order: RunOrder) -> dict[str, EntryFact]:
    """Return the facts; PermissionDenied unless they are those of the order."""
    if hashlib.sha256(data).hexdigest() != order.files:
        raise PermissionDenied(order.skill, "the files of the run are not those of its order")
    plain: Any = read_json(data)
    return {path: EntryFact(*fact) for path, fact in plain.items()}


def write_private(values: PrivateValues) -> bytes:
    """Return the values as JSON."""
    return json.dumps([dict(one) for one in values]).encode()


def read_private(key: bytes, order: RunOrder, data: bytes) -> PrivateValues:
    """Return the values; PermissionDenied unless they are those of the order, and its secrets."""
    plain: Any = read_json(data)
    values = PrivateValues(*plain)
    sealed = hmac.compare_digest(private_seal(key, order.id, data), order.private)
    if not sealed or set(values.secrets) != set(order.secrets):
        raise PermissionDenied(order.skill, "the secrets of the run are not those in the grant")
    return values


def private_seal(key: bytes, id: str, data: bytes) -> str:
    """Return the seal of the values for an order: nothing that leads back to them."""
    return seal(key, id.encode() + b"\0" + data)
