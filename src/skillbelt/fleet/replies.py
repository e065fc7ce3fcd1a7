"""Parse the answer of a node to an order as untrusted data from another machine.

A node of another version, or a compromised one, may answer anything. An answer of a wrong form is
one error, and nothing of it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from skillbelt.errors import (
    DiskFull,
    PermissionDenied,
    RunLost,
    RunRefused,
    SandboxUnavailable,
    SkillbeltError,
)
from skillbelt.running.mirrors import Carried, EntryFact
from skillbelt.sandbox.network.connection import Connection
from skillbelt.sandbox.protocol import Captured, Outcome

_Row = TypeVar("_Row", Captured, Connection, EntryFact)
_CONNECTION = Connection("", 0, "", False)
ENDED = "actor_ended"  # the kind of the error of an actor that takes no more runs
_FAILED = (
    "the node failed while it carried out the run, and what the command did is not known: "
    "{reason}; `skillbelt fleet nodes` says whether versions differ"
)


class NodeReply(NamedTuple):
    """The answer of a node to an order. Nothing ran if it `lacks` something."""

    outcome: Outcome
    carried: Carried
    lacks: Mapping[str, tuple[str, ...]]
    connections: tuple[Connection, ...]
    limits_hit: tuple[str, ...]

    @property
    def ran(self) -> bool:
        """Whether the command was run."""
        return not any(self.lacks.values())


def lost_run(reason: str) -> RunLost:
    """Return the error for a node that failed in the middle of a run."""
    return RunLost(_FAILED.format(reason=reason))


def error_of(skill: str, reply: object) -> SkillbeltError | None:
    """Return why the node did not carry out the order; None when it says that it did."""
    match reply:
        case {"error": {"kind": str(kind), "message": str(message)}}:
            if kind == PermissionDenied.kind:
                return PermissionDenied(skill, message)
            if kind == SandboxUnavailable.kind:
                return SandboxUnavailable(message)
            if kind == RunLost.kind:
                return lost_run(message)
            if kind == ENDED:
                return ActorEnded(message)
            return DiskFull(message) if kind == DiskFull.kind else RunRefused(message)
    return None


class ActorEnded(RunRefused):
    """The actor takes no more runs; the caller tries another one."""

    kind = ENDED


def read_reply(reply: object) -> NodeReply:
    """Return the answer of a node that carried out an order; RunLost when it has a wrong form."""
    with _check_form():
        plain = _mapping(reply)
        return NodeReply(
            outcome=_outcome(_mapping(plain["outcome"])),
            carried=_parse_carried(plain),
            lacks={name: _texts(_mapping(plain["lacks"])[name]) for name in ("contents", "skills")},
            connections=tuple(_row(one, _CONNECTION) for one in plain["connections"]),
            limits_hit=_texts(plain["limits_hit"]),
        )


def read_carried(reply: object) -> Carried:
    """Return the files that a node sends back of a workspace.

    RunLost when they have a wrong form.
    """
    with _check_form():
        return _parse_carried(_mapping(reply))


@contextmanager
def _check_form() -> Iterator[None]:
    """Raise RunLost for an answer of a wrong form."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise lost_run(f"its answer does not fit this version ({reason})") from error


def _parse_carried(plain: Mapping[str, Any]) -> Carried:
    return Carried(
        changed={
            _is(path, str): _row(fact, EntryFact(""))
            for path, fact in _mapping(plain["changed"]).items()
        },
        removed=_texts(plain["removed"]),
        contents={_is(k, str): _is(v, bytes) for k, v in _mapping(plain["contents"]).items()},
        left=_texts(plain["left"]),
        later=_texts(plain["later"]),
    )


def _outcome(plain: Mapping[str, Any]) -> Outcome:
    made = Outcome(
        **{
            **plain,
            "stdout": _row(plain["stdout"], Captured()),
            "stderr": _row(plain["stderr"], Captured()),
            "limits_hit": _texts(plain["limits_hit"]),
            "enforced": {_is(k, str): _is(v, str) for k, v in plain["enforced"].items()},
        }
    )
    _is(made.exit_code, int)
    _is(made.duration_seconds, (int, float))
    for flag in (made.timed_out, made.cancelled, made.left):
        _is(flag, bool)
    return made


def _row(plain: Any, example: _Row) -> _Row:
    """Return the values as a row like the example, each of the same kind."""
    made = type(example)(*plain)
    for value, like in zip(made, example, strict=True):
        _is(value, type(like))
    return made


def _mapping(value: object) -> Mapping[str, Any]:
    made: Mapping[str, Any] = _is(value, Mapping)
    return made


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_is(one, str) for one in _is(value, (list, tuple)))


def _is(value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where {kind} belongs")
    return value
