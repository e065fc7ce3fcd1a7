from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillbelt.errors import PermissionDenied, RunRefused
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Answer, Rule
from skillbelt.permission.waiting import Pending
from skillbelt.running.build.make import Built, build, check
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings
from skillbelt.store import open_store
from skillbelt.testing.sandbox_suite import Place
from tests import needs
from tests.discovery.sources.server import running
from tests.registries import publish
from tests.running.build.skills import built, skill, started
from tests.sandbox.guests import hosts

MAIN = """
import { readFileSync } from "node:fs";
import { basename } from "path";
import { twice, Kind } from "./lib";

interface Input { n: number; wrong?: boolean }
const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

async function main(): Promise<void> {
  const input = JSON.parse(readFileSync(0, "utf8")) as Input;
  await sleep(5);
  if (input.wrong) throw new TypeError("no such thing");
  console.log(JSON.stringify({ n: twice(input.n), kind: Kind.Last, base: basename("a/b.c") }));
  process.exitCode = 3;
}

main();
"""
FILES = {
    "src/main.ts": MAIN,
    "src/lib.ts": (
        "export enum Kind { First, Last }\n"
        "const table = new Map([[1, 2]]);\n"
        "export const twice = (n: number): number => n * (table.get(1) as number);\n"
    ),
    "package.json": '{"scripts": {"preinstall": "touch /tmp/run", "build": "false"}}',
    "tsconfig.json": '{"extends": "/etc/tsconfig.json"}',
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built(tmp_path_factory.mktemp("built") / "one", FILES)


@pytest.mark.long
def test_timers_and_promises_are_waited_for(
    made: Built, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = started(sandbox, place, made, b'{"n": 21}')
    assert json.loads(outcome.stdout.data) == {"n": 42, "kind": 1, "base": "b.c"}
    assert (outcome.exit_code, outcome.stderr.data) == (3, b"")


@pytest.mark.long
def test_a_promise_that_fails_is_an_error(made: Built, sandbox: WasmSandbox, place: Place) -> None:
    outcome = started(sandbox, place, made, b'{"n": 1, "wrong": true}')
    assert outcome.exit_code == 1
    assert outcome.stderr.data.startswith(b"Uncaught TypeError: no such thing\n    at main (skill")


@pytest.mark.long
def test_the_same_source_gives_the_same_component(made: Built) -> None:
    skill = Skill.from_folder(Path(made.output).parents[1])
    assert check(skill, hosts()).current


def test_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match=r"cannot be built: src/main\.ts:2: Unexpected"):
        built(tmp_path / "one", {"src/main.ts": "const a = 1;\nconst b = ;\n"})


@pytest.mark.parametrize("how", ["{}", "../../../../../../../..{}"])
def test_no_file_of_the_host_can_be_imported(how: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"secret": 1}')
    text = f'import secret from "{how.format(secret)}";\nconsole.log(secret);\n'
    with pytest.raises(RunRefused, match="Could not resolve"):
        built(tmp_path / "one", {"src/main.ts": text})


def test_a_module_that_does_not_exist_inside_is_named(tmp_path: Path) -> None:
    text = 'import { spawn } from "node:child_process";\nspawn("ls");\n'
    with pytest.raises(RunRefused, match=r"built: src/main\.js:1: node:child_process is not there"):
        built(tmp_path / "one", {"src/main.js": text})


FAILING = """
import { setTimeout as sleep } from "node:timers/promises";

class Odd<T> extends Promise<T> {
  static get [Symbol.species]() {
    return function (take: any) { take(() => { throw new Error("x"); }, () => {}); } as any;
  }
}
const fail = (): never => { throw new RangeError("x"); };
const kept = new FinalizationRegistry(fail);
const ways: Record<string, () => void> = {
  microtask: () => queueMicrotask(fail),
  tick: () => process.nextTick(fail),
  timer: () => setTimeout(async () => fail(), 1),
  registry: () => kept.register({}, 1),
  engine: () => void new Odd((done) => done(1)).then(() => 2),
};

(async (words: string[]) => {
  console.error("before");
  ways[words[0]]?.();
  await sleep(50);
  console.log("never");
  fail();
})(process.argv.slice(2));
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built(tmp_path_factory.mktemp("built") / "two", {"src/main.ts": FAILING})


@pytest.mark.long
@pytest.mark.parametrize("way", ["microtask", "tick", "timer", "registry"])
def test_an_error_thrown_later_ends_the_program(
    way: str, failing: Built, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = started(sandbox, place, failing, b"", way)
    assert (outcome.exit_code, outcome.stdout.data) == (1, b"")
    assert outcome.stderr.data.startswith(b"before\nUncaught RangeError: x\n    at fail (skill:")


@pytest.mark.long
def test_what_its_last_statement_gives_is_waited_for(
    failing: Built, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = started(sandbox, place, failing)
    assert (outcome.exit_code, outcome.stdout.data) == (1, b"never\n")
    assert outcome.stderr.data.startswith(b"before\nUncaught RangeError: x\n")


@pytest.mark.long
def test_an_engine_that_fails_says_nothing_of_itself(
    failing: Built, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = started(sandbox, place, failing, b"", "engine")
    assert (outcome.exit_code, outcome.stdout.data) == (134, b"")
    assert outcome.stderr.data == b"before\nthe module trapped: unreachable\n"


@pytest.mark.long
def test_a_script_that_is_no_module_stays_one(
    sandbox: WasmSandbox, place: Place, tmp_path: Path
) -> None:
    text = 'const said = require("node:path").basename("a/b");\nmodule.exports = { said };\n'
    made = built(tmp_path / "one", {"src/main.js": f"{text}console.log(module.exports.said);\n"})
    outcome = started(sandbox, place, made)
    assert (outcome.exit_code, outcome.stdout.data, outcome.stderr.data) == (0, b"b\n", b"")


PACKAGED = {
    "src/main.ts": "import greet from 'greet';\nconsole.log(greet());\n",
    "package.json": '{"dependencies": {"greet": "1.3.0"}}',
}


def open_gate(settings: Settings, **options: Any) -> Gate:
    return Gate(settings, lambda: open_store(settings), **options)


@needs.npm
def test_packages_that_the_skill_declares_are_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: WasmSandbox, place: Place
) -> None:
    asked: list[Pending] = []

    def yes(pending: Pending) -> Answer:
        asked.append(pending)
        return Answer("once")

    settings = hosts()._replace(state_dir=str(tmp_path / "state"), project=str(tmp_path))
    with running() as server:
        monkeypatch.setenv("npm_config_registry", server.url)
        publish(server, "greet", "exit 1")
        made = build(skill(tmp_path / "one", PACKAGED), settings, gate=open_gate(settings, ask=yes))
    assert [one.request.type for one in asked] == ["install"]
    assert "greet@1.3.0" in asked[0].request.patterns[0]
    assert started(sandbox, place, made).stdout.data == b"hello\n"


def test_packages_are_installed_only_if_they_are_allowed(tmp_path: Path) -> None:
    settings = hosts()._replace(state_dir=str(tmp_path / "state"), project=str(tmp_path))
    gate = open_gate(settings, rules=[Rule("install", "*", "deny")])
    with pytest.raises(PermissionDenied):
        build(skill(tmp_path / "one", PACKAGED), settings, gate=gate)
    with pytest.raises(RunRefused, match=r"needs 1 Node\.js package: greet@1\.3\.0 .*no gate"):
        built(tmp_path / "one", PACKAGED)


def test_a_package_that_is_not_declared_is_told_with_the_remedy(tmp_path: Path) -> None:
    said = r'src/main\.ts:1: Could not resolve "greet"; declare it under "dependencies"'
    with pytest.raises(RunRefused, match=said):
        built(tmp_path / "one", {"src/main.ts": PACKAGED["src/main.ts"]})


def test_a_file_that_is_missing_is_told_without_that(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match=r'Could not resolve "\./lib"$'):
        built(tmp_path / "one", {"src/main.ts": "import './lib';\n"})
