from __future__ import annotations

import pytest

from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.sandbox.wasm_guests.running import said, script


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_is_not_granted_is_an_error_of_the_network(
    scheme: str, sandbox: WasmSandbox, place: Place
) -> None:
    code = f"""
import urllib.error, urllib.request
try:
    urllib.request.urlopen("{scheme}://example.org/")
except urllib.error.URLError as error:
    print(type(error.reason).__name__, error.reason.strerror)
"""
    printed = said(script(sandbox, place, {}, "python3", "-c", code))
    assert printed == "PermissionError network access is not granted\n"


def test_a_proxy_of_the_environment_is_not_asked(sandbox: WasmSandbox, place: Place) -> None:
    code = """
import os, urllib.request
os.environ["https_proxy"] = "http://127.0.0.1:1"
print(urllib.request.getproxies())
"""
    assert said(script(sandbox, place, {}, "python3", "-c", code)) == "{}\n"


def test_a_connection_of_its_own_is_refused_too(sandbox: WasmSandbox, place: Place) -> None:
    code = """
import http.client
connection = http.client.HTTPSConnection("example.org")
try:
    connection.request("POST", "/a", body=iter([b"one", b"two"]))
    connection.getresponse()
except PermissionError as error:
    print(error.strerror)
"""
    printed = said(script(sandbox, place, {}, "python3", "-c", code))
    assert printed == "network access is not granted\n"
