"""Contents by digest in an object store, so that every machine can have them."""

from __future__ import annotations

from skillbelt.objects.space import Objects, ObjectSpace
from skillbelt.objects.tree import TreeLimits

__all__ = ["ObjectSpace", "Objects", "TreeLimits"]
