"""The findings of `doctor`: folders, problems, sandboxes, and the attacks they stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skillbelt.disclosure.overview import default_budget, diagnose_pins, overview, visible
from skillbelt.discovery.catalog import Catalog
from skillbelt.discovery.describe import diagnostics_json
from skillbelt.discovery.scan import Scan
from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox import registry
from skillbelt.sandbox.protocol import Sandbox
from skillbelt.settings import Settings
from skillbelt.testing.attacks import AttackResult
from skillbelt.testing.node_attacks import BAD
from skillbelt.values import Diagnostic


class SandboxState(NamedTuple):
    """A sandbox, and why it cannot be used here; None when it can."""

    sandbox: Sandbox
    reason: str | None

    @property
    def attackable(self) -> bool:
        """Whether the sandbox works and enforces something."""
        return self.reason is None and self.sandbox.level > 0


Matrix = dict[str, list[AttackResult]]


def examine_document(
    catalog: Catalog,
    states: Sequence[SandboxState],
    matrix: Matrix,
    unserved: Sequence[Diagnostic],
) -> dict[str, object]:
    """Return the document of `doctor --json`."""
    return {
        "files": [{"source": source, "path": path} for source, path in catalog.settings.files],
        "disabled": [
            {"name": name, "by": where} for name, (_, where) in catalog.snapshot.disabled.items()
        ],
        "roots": [_root_json(scan, list_shadowed(scan, catalog)) for scan in catalog.scans],
        "sandboxes": [_sandbox_json(state) for state in states],
        "matrix": [
            {"sandbox": name, **result._asdict()}
            for name, results in matrix.items()
            for result in results
        ],
        "diagnostics": diagnostics_json([*catalog.diagnostics, *unserved]),
    }


def list_shadowed(scan: Scan, catalog: Catalog) -> list[str]:
    """Return the locations of the root's shadowed skills."""
    shadowed = {skill.location for skill in catalog.shadowed}
    return [skill.location for skill in scan.skills if skill.location in shadowed]


def _root_json(scan: Scan, shadowed: list[str]) -> dict[str, object]:
    root = scan.root
    return {
        "path": root.path,
        "scope": root.scope,
        "client": root.client,
        "origin": str(root.origin),
        "exists": scan.exists,
        "skills": len(scan.skills),
        "shadowed": shadowed,
        "files_read": scan.files_read,
        "diagnostics": diagnostics_json(scan.diagnostics),
    }


def _sandbox_json(state: SandboxState) -> dict[str, object]:
    sandbox = state.sandbox
    return {
        "name": sandbox.name,
        "level": sandbox.level,
        "available": state.reason is None,
        "reason": state.reason,
    }


def probe_all(settings: Settings) -> list[SandboxState]:
    """Test every sandbox, strongest first."""
    return [
        SandboxState(sandbox, sandbox.unavailable())
        for sandbox in registry.sandboxes(settings, install=install_tools)
    ]


def find_over_budget(catalog: Catalog) -> list[Diagnostic]:
    """Return the diagnostics about pinned skills that exceed the budget."""
    skills, budget = visible(catalog.values()), default_budget(catalog.settings)
    if not any(skill.pinned for skill in skills):
        return []
    made = overview(skills, format=catalog.settings.overview_format, budget_tokens=budget)
    return diagnose_pins(skills, made, budget)


def list_not_stopped(results: Sequence[AttackResult]) -> list[AttackResult]:
    """Return the attacks that a sandbox did not stop."""
    return [result for result in results if result.outcome in BAD]
