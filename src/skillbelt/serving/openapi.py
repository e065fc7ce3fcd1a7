"""The OpenAPI document of `serve http`, built from the table of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skillbelt import __version__
from skillbelt.serving.endpoints import ENDPOINTS, Endpoint

USER_HEADER = "Skillbelt-User"
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
            "required": ["kind", "message"],
        }
    },
    "required": ["error"],
}


def describe_api(endpoints: Sequence[Endpoint] = ENDPOINTS) -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(one.path.replace("...}", "}"), {})[one.method.lower()] = _describe(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "skillbelt", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _describe(one: Endpoint) -> dict[str, Any]:
    answers: dict[str, Any] = {"default": _content({"$ref": "#/components/schemas/Error"}, "error")}
    if one.answer is None:
        answers["200"] = {"description": "the bytes", "content": {"*/*": {}}}
    else:
        answers["200"] = _content(one.answer, "done")
    if one.streams:
        answers["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    found: dict[str, Any] = {
        "operationId": one.handle.__name__,
        "summary": (one.handle.__doc__ or "").strip(),
        "parameters": _parameters(one),
        "responses": answers,
    }
    if one.body is not None:
        found["requestBody"] = {"required": True, "content": _json(one.body)}
    elif one.uploads:
        found["requestBody"] = {"required": True, "content": {"*/*": {}}}
    return found


def _parameters(one: Endpoint) -> list[dict[str, Any]]:
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in one.pattern.groupindex
    ]
    asked = [{"name": name, "in": "query", "schema": schema} for name, schema in one.query.items()]
    return [*named, *asked, {"name": USER_HEADER, "in": "header", "schema": {"type": "string"}}]


def _content(schema: Any, description: str) -> dict[str, Any]:
    return {"description": description, "content": _json(schema)}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
