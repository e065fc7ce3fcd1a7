"""The attacks of every sandbox, carried out by Python that runs in a WASM component."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox.protocol import Outcome, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.attacks import AttackResult, run_attacks
from skillbelt.testing.probes import FILES, NETWORK, PROBES, RESULTS
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.sandbox import guests


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WasmSandbox]:
    made = WasmSandbox(guests.hosts(), install=install_tools)
    yield made
    made.close()


def python(sandbox: WasmSandbox, place: Place, code: str, **fields: object) -> Outcome:
    return run(sandbox, place.python(code, **fields))


# What most attacks are on does not exist inside; one of six is tried here.
@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.long)])
def test_every_attack_is_stopped(sandbox: WasmSandbox, step: int) -> None:
    """Also those on what does not exist inside: there is no way to try them."""
    tried = PROBES[::step]
    results = run_attacks(sandbox, tried)
    assert {result.attack for result in results} == {probe.name for probe in tried}
    assert [result for result in results if result.outcome != "stopped"] == []


def test_an_attack_that_works_is_seen(sandbox: WasmSandbox, place: Place) -> None:
    """The targets of the probes exist, and work."""
    code = """
import os
open('made', 'w').write('x'); os.link('made', 'second'); os.symlink('made', 'alias')
assert open('alias').read() == open('second').read() == 'x'
os.rename('made', 'moved'); os.mkdir('folder'); os.unlink('alias')
print(sorted(os.listdir('.')))
"""
    outcome = python(sandbox, place, code)
    assert outcome.stdout.data == b"['folder', 'moved', 'second']\n", outcome
    assert sorted(os.listdir(place.folder)) == ["folder", "moved", "second"]


_AS_USER = """
import ctypes, encodings.ascii, encodings.idna, hashlib, json, os, random, shutil, subprocess, sys
import tempfile, traceback
import _posixsubprocess, skillbelt.sandbox.wasm.interpreters
from skillbelt.sandbox.wasm import sandbox as wasm
from skillbelt.testing import attacks, probes
from skillbelt.settings import Settings
try:
    raise ValueError
except ValueError:
    traceback.format_exc()
os.chdir("/")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(61999)
    os.setuid(61999)
sandbox = wasm.WasmSandbox(Settings(cache_dir=sys.argv[1]))
wanted = probes.FILES + probes.NETWORK + probes.RESULTS
json.dump(attacks.run_attacks(sandbox, wanted), sys.stdout)
sandbox.close()
"""


@pytest.mark.long
def test_an_ordinary_user_is_as_safe(sandbox: WasmSandbox, place: Place) -> None:
    """Though a worker is the user then, who could read all of that."""
    python(sandbox, place, "pass")  # the component is there and compiled
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        cache = os.path.join(folder, "cache")
        guests.copy_hosts(cache)
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "61999:61999", folder], check=True)
        done = subprocess.run(
            [sys.executable, "-c", _AS_USER, cache],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    results = [AttackResult(*each) for each in json.loads(done.stdout)]
    assert {each.attack for each in results} == {each.name for each in FILES + NETWORK + RESULTS}
    assert [result for result in results if result.outcome != "stopped"] == []


def test_a_script_is_not_told_of_the_host(
    sandbox: WasmSandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attacks 61 and 66: neither variables nor names, users, processes."""
    monkeypatch.setenv("A_TOKEN", "secret")
    code = """
import os
print(sorted(os.environ), os.listdir('/'))
for path in ('/etc', '/proc', '/dev', '/usr', '/root', '/home', '/var', '/sys'):
    assert not os.path.exists(path), path
"""
    outcome = python(sandbox, place, code, env={"MINE": "1"})
    assert outcome.exit_code == 0, outcome
    top = place.folder.split("/")[1]
    assert outcome.stdout.data.decode() == f"['MINE', 'PWD'] {sorted({top, 'tmp'})}\n"


def test_open_files_are_bounded(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 58."""
    code = """
kept = []
open('one', 'w').close()
try:
    while len(kept) < 5000:
        kept.append(open('one'))
except OSError:
    print(len(kept))
"""
    limits = bounds(max_open_files=100)
    outcome = python(sandbox, place, code, limits=limits)
    assert outcome.exit_code == 0, outcome
    assert 20 < int(outcome.stdout.data) < 100


def test_a_deep_recursion_is_an_error_of_the_script(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 59: Python says so itself; the worker goes on."""
    code = "import sys\ndef f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError: print('deep')"
    outcome = python(sandbox, place, code)
    assert (outcome.exit_code, outcome.stdout.data) == (0, b"deep\n"), outcome


def test_a_memory_bomb_is_named(sandbox: WasmSandbox, place: Place) -> None:
    code = "kept = []\nwhile True: kept.append(bytearray(b'x') * 2**20)"
    limits = Limits(max_memory_bytes=128 * 2**20)
    outcome = python(sandbox, place, code, limits=limits)
    assert outcome.exit_code == 1
    assert outcome.limits_hit == ("max_memory_bytes",)
