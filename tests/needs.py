"""What a test needs of the machine, and how to get it.

With REQUIRE_ENGINES, as in CI, a test that needs something which can be installed is not skipped:
it runs, and fails without it.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from typing import NoReturn

import pytest

REQUIRED = "REQUIRE_ENGINES" in os.environ


def needs(available: bool, reason: str) -> pytest.MarkDecorator:
    """Mark tests that need what can be installed; the reason says what, and how."""
    return pytest.mark.skipif(not (available or REQUIRED), reason=reason)


def not_run(reason: str) -> NoReturn:
    """Skip the test that needs what can be installed; fail where that must be there."""
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


linux = pytest.mark.skipif(
    sys.platform != "linux", reason="needs Linux; elsewhere, run the tests in a virtual machine"
)
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: sudo make test")
x86_64 = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="needs an x86-64 processor: make machine ARCH=amd64"
)
full_device = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs /dev/full, which only Linux has"
)
npm = needs(shutil.which("npm") is not None, "needs npm: apt install npm")
docker_registry = needs(
    shutil.which("docker-registry") is not None,
    "needs a registry: apt install docker-registry",
)
sshd = needs(os.path.exists("/usr/sbin/sshd"), "needs an ssh server: apt install openssh-server")
node = needs(
    shutil.which("node", path="/usr/bin:/bin") is not None, "needs Node.js: apt install nodejs"
)
libreoffice = needs(
    shutil.which("soffice") is not None,
    "needs LibreOffice: apt install libreoffice-writer-nogui",
)
llvm_mc = needs(shutil.which("llvm-mc") is not None, "needs llvm-mc: apt install llvm")
keyring = needs(find_spec("keyring") is not None, "needs keyring: pip install 'skillbelt[secrets]'")
atheris = needs(find_spec("atheris") is not None, "needs atheris: pip install atheris")
chromium = needs(
    shutil.which("chromium") is not None and find_spec("playwright") is not None,
    "needs a browser: apt install chromium, pip install playwright",
)
