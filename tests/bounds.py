"""Bounds that are constants of the product, set for one test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skillbelt.values import Limits

# Where each constant stands. Modules that import it by name have a copy, which is set too.
_HOMES = {
    "BUILD_TIMEOUT_SECONDS": "sandbox.wasm.interpreters",
    "CANCEL_TIMEOUT_SECONDS": "agent.loop",
    "COMPACT_KEPT_SHARE": "agent.compaction",
    "COMPILE_TIMEOUT_SECONDS": "sandbox.wasm.modules",
    "CONTAINER_IDLE_SECONDS": "sandbox.container.sandbox",
    "DERIVED_DESCRIPTION_CHARS": "format.bounds",
    "EXEC_TIMEOUT_SECONDS": "running.json_call",
    "FIRST_READ_BYTES": "format.bounds",
    "INSTALL_TIMEOUT_SECONDS": "running.packages.environments",
    "MAX_ANSWER_CALLS": "agent.tool_calls",
    "MAX_ANSWER_CHARS": "agent.provider",
    "MAX_ARCHIVE_FILES": "discovery.sources.bounds",
    "MAX_AUDIT_BYTES": "permission.audit",
    "MAX_AUDIT_FILES": "permission.audit",
    "MAX_BACKGROUND_BYTES": "running.background",
    "MAX_BACKGROUND_RUNS": "running.background",
    "MAX_CHECKED_BYTES": "format.frontmatter",
    "MAX_CODE_BLOCKS": "agent.loop",
    "MAX_CONTAINERS": "sandbox.container.sandbox",
    "MAX_DOWNLOAD_BYTES": "discovery.sources.bounds",
    "MAX_ENDED": "running.background",
    "MAX_ENTRY_DEPTH": "files.tree",
    "MAX_ENUM_SKILLS": "tools.handlers",
    "MAX_EXTRACTED_BYTES": "discovery.sources.bounds",
    "MAX_EXTRACTED_FILE_BYTES": "discovery.sources.bounds",
    "MAX_FETCHED_BYTES": "sandbox.wasm.run",
    "MAX_FRONTMATTER_BYTES": "format.bounds",
    "MAX_INDEXED_FILES": "search.text",
    "MAX_INDEXED_SCRIPTS": "search.text",
    "MAX_INPUT_BYTES": "running.inputs",
    "MAX_KEPT_MESSAGES": "agent.compaction",
    "MAX_LINKED_BYTES": "check.check",
    "MAX_LINKED_DOCUMENTS": "check.check",
    "MAX_MANIFEST_BYTES": "files.manifest",
    "MAX_MANIFEST_FILES": "files.tree",
    "MAX_NETWORK_CONNECTIONS": "sandbox.network.proxy",
    "MAX_NETWORK_HEADER_BYTES": "sandbox.network.connection",
    "MAX_OPEN_FILES": "sandbox.process.limits",
    "MAX_OUTPUT_BYTES": "running.outputs",
    "MAX_OUTPUT_FILES": "running.outputs",
    "MAX_PARALLEL_CALLS": "runtime.threads",
    "MAX_PRIMARY_BYTES": "running.outputs",
    "MAX_PRIMARY_FILES": "running.outputs",
    "MAX_QUERY_CHARS": "search.query",
    "MAX_QUERY_WORDS": "search.query",
    "MAX_REDIRECTS": "discovery.sources.http",
    "MAX_REFERENCES": "format.links",
    "MAX_REMOTE_INDEX_BYTES": "discovery.sources.bounds",
    "MAX_REMOTE_SKILLS": "discovery.sources.bounds",
    "MAX_REQUEST_BYTES": "mcp.stdio",
    "MAX_RESOURCE_FILE_BYTES": "format.bounds",
    "MAX_ROOT_ENTRIES": "discovery.sources.folder",
    "MAX_RUN_STEPS": "agent.loop",
    "MAX_SAMPLED_FILES": "disclosure.body",
    "MAX_SCAN_SHARE": "discovery.catalog",
    "MAX_SEARCH_RESULTS": "search.engine",
    "MAX_SERVED_SESSIONS": "integrations.common",
    "MAX_SESSION_RUNS": "running.background",
    "MAX_STAGED_BYTES": "running.staging",
    "MAX_STDIN_BYTES": "sandbox.protocol",
    "MAX_UNREAD_BYTES": "agent.stream",
    "MAX_UNREAD_EVENTS": "agent.stream",
    "MAX_WASM_BYTES": "sandbox.wasm.modules",
    "MAX_WASM_CACHE_BYTES": "sandbox.wasm.modules",
    "MAX_WASM_ELEMENTS": "sandbox.wasm.run",
    "MAX_WASM_INSTANCES": "sandbox.wasm.run",
    "MAX_WASM_WORKERS": "sandbox.wasm.pool",
    "MAX_WORKSPACES_BYTES": "running.workbench",
    "MAX_YAML_ALIASES": "format.bounds",
    "MAX_YAML_DEPTH": "format.bounds",
    "MODEL_IDLE_SECONDS": "agent.provider",
    "NETWORK_CONNECT_SECONDS": "sandbox.network.connection",
    "NETWORK_HEADER_SECONDS": "sandbox.network.connection",
    "NETWORK_IDLE_SECONDS": "sandbox.network.connection",
    "OVERVIEW_SHARE": "disclosure.overview",
    "REMOTE_REFRESH_SECONDS": "discovery.sources.bounds",
    "REQUEST_TIMEOUT_SECONDS": "serving.listening",
    "RETRY_WAIT_SECONDS": "agent.loop",
    "SCAN_TIMEOUT_SECONDS": "discovery.scan",
    "SEARCH_WAIT_SECONDS": "tools.caller",
    "SERVED_IDLE_SECONDS": "mcp.http",
    "SOURCE_TIMEOUT_SECONDS": "discovery.sources.bounds",
    "WASM_IDLE_SECONDS": "sandbox.wasm.pool",
    "WORKSPACE_IDLE_SECONDS": "running.workbench",
}
_before: dict[str, Any] = {}


def bounds(limits: Limits | None = None, /, **values: Any) -> Limits:
    """Set bounds until the test ends. Those that are settings are returned as limits instead."""
    given = {name: value for name, value in values.items() if name in Limits._fields}
    for name in values.keys() - given.keys():
        constant = name.upper()
        home = importlib.import_module(f"skillbelt.{_HOMES[constant]}")
        _before.setdefault(constant, getattr(home, constant))
        _set(constant, values[name])
    return (limits or Limits())._replace(**given)


@contextmanager
def restored() -> Iterator[None]:
    """Give every constant its own value again at the end."""
    try:
        yield
    finally:
        for constant, value in _before.items():
            _set(constant, value)
        _before.clear()


def _set(constant: str, value: object) -> None:
    """Also in modules that were imported since and copied the value for the test."""
    for name, module in list(sys.modules.items()):
        if name.startswith("skillbelt.") and constant in vars(module):
            setattr(module, constant, value)
