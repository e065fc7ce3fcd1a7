"""Runs by a user who is not root, even where root runs the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests import warm

# Not the number that commands get when root starts them, so that the two cannot be mixed up.
USER = 61_999
# The interpreter may lie where only root can read: the code runs where all is imported already.
_CHILD = f"""
import gc, inspect, json, os, shutil, signal, sys, tempfile, traceback
from skillbelt.sandbox import none, registry
from skillbelt.sandbox.linux import bubblewrap as linux
from skillbelt.sandbox.linux import cgroups, identity, landlock, seccomp
from skillbelt.sandbox.network import proxy as egress
from skillbelt.sandbox.process import limits, run as process, spawn, supervised, usage, watch
from skillbelt.testing import attacks, probes, sandbox_suite as conformance
from skillbelt.testing.sandbox_suite import Place
from skillbelt.sandbox.protocol import Job, Mount, run
from skillbelt.values import Capabilities, Limits
os.chdir("/")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({USER})
    os.setuid({USER})
"""


def as_user(code: str, timeout: float = 500) -> object:
    """The value that the code passes to `json.dump(..., sys.stdout)`."""
    done = warm.run(
        [sys.executable, "-c", _CHILD + code],
        cwd="/",
        env={**os.environ, "HOME": "/"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


_CONFORMANCE = """
results = {{}}
sandbox = {make}
for name in dir(conformance.SandboxConformance):
    if not name.startswith("test_"):
        continue
    test = getattr(conformance.SandboxConformance(), name)
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    given = {{"sandbox": sandbox, "place": Place(folder, identity.current_identity())}}
    try:
        test(**{{key: given[key] for key in inspect.signature(test).parameters}})
        results[name] = ""
    except BaseException:
        results[name] = traceback.format_exc()
    shutil.rmtree(folder)
json.dump(results, sys.stdout)
"""


def conformance_as_user(make: str) -> dict[str, str]:
    """The trace of each test of the suite that failed, empty for one that passed."""
    found = as_user(_CONFORMANCE.format(make=make))
    assert isinstance(found, dict)
    return found
