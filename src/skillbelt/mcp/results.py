"""The documents that tools answer with, as JSON Schema: those whose text is JSON.

So a document says no more and no less than the text, and a client may show either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillbelt.tools.schema import DIALECT

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_FILES: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
_RUN_ID: dict[str, Any] = {"type": "string", "description": "For skill_poll."}

_ENDED: dict[str, Any] = {
    "stdout": _TEXT,
    "stderr": _TEXT,
    "exit_code": _NUMBER,
    "timed_out": _FLAG,
    "cancelled": _FLAG,
    "duration_ms": _NUMBER,
    "output_files": _FILES,
    "primary_output": {"type": "object"},
    "artifact_files": _FILES,
    "warnings": _TEXTS,
    "errors": _TEXTS,
    "limits_hit": _TEXTS,
    "hosts": _TEXTS,
    "sandbox": _TEXT,
    "enforced": {"type": "object", "additionalProperties": _TEXT},
}
_POLLED: dict[str, Any] = {
    **dict.fromkeys(("stdout", "stderr", "error"), _TEXT),
    **{
        f"{stream}_{what}": _NUMBER
        for stream in ("stdout", "stderr")
        for what in ("offset", "dropped")
    },
    "more": _FLAG,
    "running": _FLAG,
    "result": {"type": ["object", "null"], "properties": _ENDED},
}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": properties,
        "required": list(required),
    }


# A run either has ended, or goes on in the background and has an id.
_RUN = {
    **_object({**_ENDED, "run_id": _RUN_ID, "running": _FLAG}),
    "anyOf": [{"required": ["exit_code", "stdout", "stderr"]}, {"required": ["run_id", "running"]}],
}
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "skill_list_docs": _object({"docs": _TEXTS}, "docs"),
    "skill_run": _RUN,
    "skill_poll": _object(_POLLED, "running"),
}
