"""Conformance suites for your own back ends, and the attacks on sandboxes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def __getattr__(name: str) -> object:
    """Import the suites only when one is used: the attacks do not need them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from skillbelt.testing import suites  # cost: 30 ms, not for the attacks

    return getattr(suites, name)
