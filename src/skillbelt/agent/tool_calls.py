"""Calls carried out at the same time, in threads, and ended together."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress

from skillbelt.agent.events import PermissionRequest, RunOutput
from skillbelt.agent.models import Called, is_deep
from skillbelt.agent.stream import Listening, begun, settled
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Desk, Pending
from skillbelt.running.following import Follower, Watch
from skillbelt.running.secrets import redacted, secrets_of
from skillbelt.sandbox.protocol import Stream
from skillbelt.tools.definitions import Schema
from skillbelt.untrusted_json import BadJson, read_json

_FAULTS, _CHOICES = 5, 20  # that are told
_DEEP = (
    "the arguments are nested too deeply, so nothing was done. Make the call again, more plainly"
)


class Outlet:
    """Where calls tell of what goes on, from any thread, and where all of them can be ended."""

    def __init__(
        self,
        told: Listening,
        desk: Callable[[], Desk],
        session: str,
        answered: bool,
        end_seconds: float,
    ) -> None:
        """Requests of the `session` are told; they wait for an answer if one is to come.

        Whoever ends all waits at most `end_seconds` for it.
        """
        self._end_seconds = end_seconds
        self.told, self._desk, self._session, self._answered = told, desk, session, answered
        self._lock = threading.Lock()
        self._follower = Follower()
        self._asked: list[str] = []
        self._enders: list[Callable[[], object]] = []
        self.stopped = False

    def watch(self, call_id: str, env: object = None) -> Watch:
        """What follows the command of a call, which may be given secrets in its variables."""
        given = env.items() if isinstance(env, Mapping) else ()
        secrets = secrets_of({str(name): str(value) for name, value in given})

        def listener(stream: Stream, data: bytes) -> None:
            if secrets:
                data = redacted(data.decode("utf-8", "replace"), secrets).encode()
            self.told.emit(RunOutput(call_id, stream, data))

        return self._follower.watch._replace(listener=listener)

    def on_stop(self, end: Callable[[], object]) -> None:
        """Have this called when all is to end."""
        self._enders.append(end)

    def _heard(self, pending: Pending) -> None:
        """A listener of the desk; one that raises has not taken the request."""
        if pending.request.session != self._session:
            raise LookupError("of another conversation")
        with self._lock:
            self._asked.append(pending.id)
        self.told.emit(PermissionRequest(pending))
        if self.stopped:
            self._refuse(pending.id)
        elif not self._answered:
            raise LookupError("not answered here")

    def _refuse(self, id: str) -> None:
        with suppress(Exception):
            self._desk().answer(id, Answer("reject", "cancelled", "runner"))

    def stop(self) -> None:
        """End every command, and refuse whatever waits for permission, now and later."""
        with self._lock:
            self.stopped = True
            asked = list(self._asked)
        for id in asked:
            self._refuse(id)
        self._follower.kill()
        for end in self._enders:
            end()

    async def all(self, works: Sequence[Coroutine[object, object, None]]) -> None:
        """Do all of it at the same time; whoever cancels this ends all of it."""
        leave = self._desk().listen(self._heard, elsewhere=False)
        tasks = [begun(work) for work in works]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except BaseException:
            self.stop()
            await settled(tasks, self._end_seconds)
            for task in tasks:
                task.cancel()
            raise
        finally:
            leave()
        for task in tasks:
            task.result()


class Arguments:
    """The arguments of a call, read as far as they can be; `fault` is for the model."""

    def __init__(self, call: Called, finished: bool) -> None:
        self.given: dict[str, object] = {}
        self.fault = ""
        given = call.arguments
        if isinstance(given, str) and not given.strip():
            given = None
        if not given and not finished:
            self.fault = "the call broke off before its arguments; make it again"
        elif isinstance(given, str):
            given, self.fault = _read(given)
        if not self.fault and not isinstance(given, Mapping | None):
            self.fault = "the arguments must be an object; nothing was done"
        if not self.fault and isinstance(given, Mapping):
            self.given = {str(key): value for key, value in given.items()}

    @property
    def key(self) -> str:
        """The same text for the same arguments."""
        return json.dumps(self.given, sort_keys=True, default=str)


def _read(text: str) -> tuple[object, str]:
    """What the text of arguments says, and what is wrong with it."""
    try:
        found = read_json(text)
        return ({}, _DEEP) if is_deep(found) else (found, "")
    except BadJson as error:
        if error.deep:
            return {}, _DEEP
        whole = "the arguments are not whole JSON, so nothing was done"
        return {}, f"{whole}. Make the call again, with one whole object"


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def unfit(given: Mapping[str, object], schema: Schema) -> str:
    """What of the arguments does not fit the schema of a tool of the host's; "" when all does.

    What is missing, what is unknown where nothing else may be there, and what is of another type
    or none of the choices; what a schema says beyond that is the function's own to look at.
    """
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, Mapping) else {}
    names = required if isinstance(required, list | tuple) else ()
    faults = [f"argument {name!r} is missing" for name in names if name not in given]
    if schema.get("additionalProperties") is False:
        faults += [f"unknown argument {name[:80]!r}" for name in given if name not in known]
    for name, wanted in known.items():
        if name in given and isinstance(wanted, Mapping):
            fault = _unfit(given[name], wanted)
            faults += [f"argument {name!r} must be {fault}"] if fault else []
    return "; ".join(faults[:_FAULTS])


def _unfit(value: object, schema: Mapping[str, object]) -> str:
    """What the value must be and is not."""
    named, choices = schema.get("type"), schema.get("enum")
    types = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if types and not any(_is(value, str(name)) for name in types):
        return " or ".join(map(str, types))
    if isinstance(choices, list) and value not in choices:
        return f"one of {', '.join(map(str, choices[:_CHOICES]))}"
    return ""


def _is(value: object, name: str) -> bool:
    """Whether the value is of a type; a type that is not known takes everything."""
    if isinstance(value, bool):
        return name == "boolean" or name not in _KINDS
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(name, (object,)))
