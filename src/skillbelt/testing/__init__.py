"""Conformance suites for your own back ends, and the attacks on sandboxes."""

from skillbelt.testing.suites import (
    ArtifactStoreConformance,
    AuditConformance,
    ExecutorConformance,
    SandboxConformance,
    StoreConformance,
)

__all__ = [
    "ArtifactStoreConformance",
    "AuditConformance",
    "ExecutorConformance",
    "SandboxConformance",
    "StoreConformance",
]
