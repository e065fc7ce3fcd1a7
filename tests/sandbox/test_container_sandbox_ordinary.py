"""Containers that an ordinary user starts, who may use the socket of the engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.testing.probes import PROBES
from tests.sandbox.engines import any_engine as any_engine
from tests.sandbox.ordinary import USER

# The interpreter may lie where only root can read, so everything is imported before root is left.
_CHILD = f"""
import contextlib, encodings.ascii, encodings.idna, importlib, inspect, json, os, pkgutil, random
import shutil, sys, tempfile, traceback
import concurrent.futures.thread, email.parser, http.client, queue, uuid
import charset_normalizer, docker, requests, urllib3
from skillbelt.sandbox.container import sandbox as container
from skillbelt.sandbox.inside.source import source_of
from skillbelt.sandbox.linux import identity
from skillbelt.testing import attacks, sandbox_suite as conformance
from skillbelt.settings import Settings
for package in (charset_normalizer, docker, requests, urllib3):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if "contrib" not in module.name and "__main__" not in module.name:
            with contextlib.suppress(Exception):
                importlib.import_module(module.name)
source_of("container")
try:
    raise ValueError
except ValueError:
    traceback.format_exc()
os.chdir("/")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({USER})
    os.setuid({USER})
sandbox = container.ContainerSandbox(Settings(container_engine=sys.argv[1]))
"""


@pytest.fixture
def allowed(any_engine: str) -> Iterator[str]:
    """The engine, whose socket the user may use for as long as the test lasts."""
    path = any_engine.removeprefix("unix://")
    before = os.stat(path)
    os.chown(path, 0, USER)
    os.chmod(path, 0o660)
    yield any_engine
    os.chmod(path, before.st_mode & 0o777)
    os.chown(path, before.st_uid, before.st_gid)


def as_user(code: str, url: str) -> object:
    """The value that the code passes to `json.dump(..., sys.stdout)`."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD + code, url],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONUTF8": "1", "HOME": "/"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_every_promise_holds(allowed: str) -> None:
    code = """
place = conformance.Place(tempfile.mkdtemp(prefix="skillbelt-"), identity.current_identity())
results = {}
for name in dir(conformance.SandboxConformance):
    if name.startswith("test_"):
        test = getattr(conformance.SandboxConformance(), name)
        given = {"sandbox": sandbox, "place": place}
        try:
            test(**{key: given[key] for key in inspect.signature(test).parameters})
            results[name] = ""
        except BaseException:
            results[name] = traceback.format_exc()
shutil.rmtree(os.path.dirname(place.folder))
json.dump(results, sys.stdout)
"""
    found = as_user(code, allowed)
    assert isinstance(found, dict)
    assert len(found) > 20
    assert {name: trace for name, trace in found.items() if trace} == {}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_no_attack_on_files_or_processes_succeeds(allowed: str, step: int) -> None:
    """The others do not depend on whose the container is."""
    claims = ("files", "other processes", "user")
    chosen = [probe.name for probe in PROBES if probe.claim in claims][::step]
    code = f"""
chosen = [probe for probe in attacks.PROBES if probe.name in {chosen!r}]
json.dump(attacks.run_attacks(sandbox, chosen), sys.stdout)
"""
    found = as_user(code, allowed)
    assert isinstance(found, list)
    assert {result[0] for result in found} == set(chosen)
    assert len(chosen) > 15 // step
    assert [result for result in found if result[2] != "stopped"] == []
