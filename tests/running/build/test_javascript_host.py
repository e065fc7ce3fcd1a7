from __future__ import annotations

import pytest

from skillbelt.running.build.javascript_host import javascript_host
from skillbelt.sandbox.wasm.interpreters import JAVASCRIPT_HOST
from tests.sandbox.guests import hosts


@pytest.mark.long
def test_what_comes_with_the_package_is_what_its_sources_give() -> None:
    """`python -m skillbelt.running.build.javascript_host` renews it."""
    with open(JAVASCRIPT_HOST, "rb") as file:
        assert javascript_host(hosts(), print) == file.read()
