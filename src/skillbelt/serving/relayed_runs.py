"""Background runs that another server holds: requests about them are forwarded there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from skillbelt.errors import RunRefused
from skillbelt.running.background import Polled
from skillbelt.running.call import RunResult
from skillbelt.running.outputs import OutputFile, Saved, Written
from skillbelt.running.programs.hint import Hint
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpRefusal
from skillbelt.serving.relay import SERVING, Relay
from skillbelt.store import SessionKey

KIND = "run"
_AT_ONCE = 16
# The fields of a result that are one of our values, or tuples of them.
_PARTS: Mapping[str, Callable[..., Any]] = {
    "output_files": OutputFile, "artifact_files": Saved, "written_files": Written, "hints": Hint,
}  # fmt: skip


class RelayedRuns:
    """The runs of other servers, for the `Background` of this one; answers the others too."""

    def __init__(self, belt: Runtime, relay: Relay) -> None:
        self._belt, self._relay = belt, relay
        relay.handle(KIND, self._do)
        belt.elsewhere = self

    def mark(self, text: str, key: SessionKey) -> str:
        """Return an id of this server, and accept requests about it from now on."""
        self._relay.listen()
        self._belt.store.append(_record_key(key), [], {self._relay.id: "1"})
        return self._relay.mark(text)

    def forget(self, key: SessionKey) -> bool:
        """Let every server that held runs of a conversation end and forget them."""
        store, place = self._belt.store, _record_key(key)
        others = [one for one in store.state(place) if one != self._relay.id]
        if others:
            # In parallel: it takes seconds to notice that a server has ended.
            with ThreadPoolExecutor(min(len(others), _AT_ONCE)) as pool:
                gone = list(pool.map(lambda one: self._send_forget(one, key), others))
        store.delete(place)
        return bool(others) and any(gone)

    def _send_forget(self, server: str, key: SessionKey) -> bool:
        try:
            data = {"operation": "forget", "key": list(key)}
            return bool(self._relay.call(server, KIND, data)["forgotten"])
        except HttpRefusal as error:
            if error.kind != "gone":
                raise RunRefused(str(error)) from error
            return False  # its runs ended with it

    def holds(self, id: str) -> bool:
        """Whether another server holds the run."""
        return bool(self._relay.holder_of(id))

    def ask(self, operation: str, key: SessionKey, id: str, **arguments: object) -> Polled | None:
        """Let that server do the operation; RunRefused with its reason, or when it has ended."""
        data = {"operation": operation, "key": list(key), "id": id, "arguments": arguments}
        try:
            answer = self._relay.call(self._relay.holder_of(id), KIND, data)
        except HttpRefusal as error:
            raise RunRefused(str(error)) from error
        return decode_polled(answer["polled"]) if "polled" in answer else None

    def _do(self, data: Mapping[str, Any], _is_over: Callable[[], bool]) -> Mapping[str, Any]:
        background, key = self._belt.background, SessionKey(*data["key"])
        if data["operation"] == "poll":
            return {"polled": encode(background.poll(key, data["id"], **data["arguments"]))}
        if data["operation"] == "forget":
            gone = [background.forget(key, everywhere=False), self._belt.workbench.forget(key)]
            return {"forgotten": any(gone)}
        operations = {"write": background.write, "kill": background.kill}
        operations[data["operation"]](key, data["id"], **data["arguments"])
        return {}


def _record_key(key: SessionKey) -> SessionKey:
    """Return the key of the record of servers that hold runs of a conversation."""
    digest = hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()
    return SessionKey(SERVING, "", f"runs:{digest[:32]}")


def encode(value: Any) -> Any:
    """Return a named tuple with all its parts as JSON."""
    if hasattr(value, "_asdict"):
        return {name: encode(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [encode(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value


def decode_polled(data: Mapping[str, Any]) -> Polled:
    """Return the value that `encode` was given."""
    result = data["result"]
    return Polled(**{**data, "result": None if result is None else decode_result(result)})


def decode_result(data: Mapping[str, Any]) -> RunResult:
    """Return the result of a run that `encode` was given."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    for name, make in _PARTS.items():
        fields[name] = tuple(_build(make, one) for one in data[name])
    if data["primary_output"] is not None:
        fields["primary_output"] = OutputFile(**data["primary_output"])
    return RunResult(**fields)


def _build(make: Callable[..., Any], data: Mapping[str, Any]) -> Any:
    return make(**{name: tuple(v) if isinstance(v, list) else v for name, v in data.items()})
