"""Find out what a run tried after it has ended: its connections, and what it lacked.

The proxy saw the connections. The rest comes from the output of the command, compared with what the
run had.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from skillbelt.files.contain import below
from skillbelt.running.call import RunResult
from skillbelt.running.programs.hint import Hint, HintKind
from skillbelt.running.run import Run
from skillbelt.running.secrets import redacted
from skillbelt.sandbox.linux.identity import in_system
from skillbelt.scan.observed import bound_observed, find_declared, note_observed
from skillbelt.scan.on_demand import open_inspector
from skillbelt.scan.values import Capability, CapabilityKind, ObservedOutcome, ObservedUse
from skillbelt.text import one_line

_USUAL_PORTS = (80, 443)
_HINTED: dict[HintKind, CapabilityKind] = {
    "missing_program": "program",
    "missing_secret": "variable",
    "network_refused": "host",
    "write_refused": "write",
    "file_refused": "write",
}
# A missing file, in the words of Python, Node.js and most programs.
_NO_FILE = (
    re.compile(r"\[Errno (?:2|13)\] [A-Z][a-z ]{5,40}: '(/[^'\n]{1,200})'"),
    re.compile(r"\b(?:ENOENT|EACCES): [a-z ,]{1,60} '(/[^'\n]{1,200})'"),
    re.compile(
        r"(?m)(?:^|: )(/[^:\n]{1,200}): (?:No such file or directory|Permission denied)$"
    ),
)  # fmt: skip
_MAX_FILES = 20
_OWN = ("/tmp", "/dev", "/proc", "/sys", "/run")


def observe(run: Run, result: RunResult) -> tuple[Capability, ...]:
    """Return what a run tried. For most runs that is nothing, and costs nothing."""
    connections = run.egress.connections if run.egress else ()
    if not connections and not result.hints and not result.stderr:
        return ()
    found = [
        _capability("host", _host(one.host, one.port), "allowed" if one.allowed else "refused")
        for one in connections
        if one.host
    ]
    if run.sandbox.level:  # without a sandbox nothing is refused
        found += _read_hints(result.hints)
        found += [_capability("read", path, "reported") for path in _absent_files(run, result)]
    return bound_observed(_redact(run, found))


def _capability(kind: CapabilityKind, value: str, outcome: ObservedOutcome) -> Capability:
    return Capability(kind=kind, value=value, origin="observed", outcome=outcome)


def _host(host: str, port: int) -> str:
    return host if port in _USUAL_PORTS or ":" in host else f"{host}:{port}"


def _read_hints(hints: Iterable[Hint]) -> Iterator[Capability]:
    for one in hints:
        kind = _HINTED.get(one.kind)
        if kind and one.name:
            yield _capability(kind, one.name, "reported")


def _absent_files(run: Run, result: RunResult) -> Iterator[str]:
    """Yield the files outside the run's own folders that it did not find."""
    found: dict[str, None] = {}
    for pattern in _NO_FILE:
        for one in pattern.finditer(result.stderr):
            path = posixpath.normpath(one[1])
            own = below(path, run.root) or any(below(path, folder) for folder in _OWN)
            if not own and path != run.root and not in_system(path) and len(found) < _MAX_FILES:
                found[path] = None
    yield from found


def _redact(run: Run, found: Iterable[Capability]) -> Iterator[Capability]:
    secrets = run.redacts
    if not secrets:
        yield from found
        return
    # A host is kept in lower case.
    small = {name: value.lower() for name, value in secrets.items()}
    for one in found:
        yield one._replace(value=redacted(redacted(one.value, secrets), small))


def add_observed(run: Run, result: RunResult) -> RunResult:
    """Add what the run tried to its result and to the record of this content.

    Anything that the skill does not declare is a warning.
    """
    found = observe(run, result)
    if not found or run.skill.scope == "builtin":
        return result
    if run.gate.is_recorded:
        note_observed(run.gate.store, run.staged.hash, found)
    uses = find_declared(run.skill, found)
    if uses is None:
        uses = open_inspector(run.gate.settings).state_uses(run.skill, found)
    return result._replace(observed=uses, warnings=(*result.warnings, *_warn(run.skill.name, uses)))


def _warn(name: str, uses: Iterable[ObservedUse]) -> Iterator[str]:
    surprises = [
        f"{one.kind} {one_line(one.value)}, {one.outcome}" for one in uses if one.is_surprise
    ]
    if surprises:
        more = f" and {len(surprises) - 3} more" if len(surprises) > 3 else ""
        yield (
            f"{name} tried what it neither declares nor contains: {'; '.join(surprises[:3])}{more} "
            f"(`skillbelt show {name} --capabilities`)"
        )
