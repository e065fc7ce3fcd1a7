"""The facade: `Runtime` and its sessions."""

from skillbelt.runtime.runtime import Runtime
from skillbelt.runtime.session import RuntimeSession

__all__ = ["Runtime", "RuntimeSession"]
