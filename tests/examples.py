"""How many examples a property or a test with parameters is tried with."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# `make test-all` tries every property with many examples.
MANY = "MANY_EXAMPLES" in os.environ


def examples(many: int) -> int:
    """Return the number of examples for a property that deserves `many`."""
    return many if MANY else max(8, many // 10)


def first_one(*values: Any) -> list[Any]:
    """Return parameters of which `make test` tries the first, and `make test-all` the others."""
    return [values[0], *(pytest.param(one, marks=pytest.mark.long) for one in values[1:])]


def load_profile() -> None:
    """Set what every property has in common."""
    settings.register_profile(
        "tests",
        # How long an example takes says how busy the machine is.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=examples(100),
        # With FIXED_EXAMPLES they are the same each time; otherwise each run looks for new ones.
        derandomize="FIXED_EXAMPLES" in os.environ,
    )
    settings.load_profile("tests")
