"""The sandboxes that need more than the system has: a container engine, or a WASM runtime."""

from __future__ import annotations

from collections.abc import Callable

from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.protocol import Sandbox
from skillbelt.sandbox.wasm.interpreters import InstallTools
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings


def optional_sandboxes(
    settings: Settings | None,
    progress: Callable[[str], None] | None,
    install: InstallTools | None,
) -> tuple[Sandbox, Sandbox]:
    """Return the sandbox for containers and the one for WASM, whether usable here or not."""
    return ContainerSandbox(settings, progress), WasmSandbox(settings, progress, install)
