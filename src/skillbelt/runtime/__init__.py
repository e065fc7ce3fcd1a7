"""The facade: `Runtime` and its sessions."""

from skillbelt.runtime.runtime import Command, Runtime, RuntimeSession

__all__ = ["Command", "Runtime", "RuntimeSession"]
