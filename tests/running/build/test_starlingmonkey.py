from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from skillbelt.errors import RunRefused
from skillbelt.format.skill import Skill
from skillbelt.running.build import toolset
from skillbelt.running.build.make import Built, build, check
from skillbelt.running.build.registry import builder_for, named_builder
from skillbelt.running.build.starlingmonkey import TOOLS
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.running.build.skills import skill, started
from tests.sandbox.guests import hosts

pytestmark = pytest.mark.timeout(600)  # the tools are installed first

NAME = "starlingmonkey"
MAIN = """
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename } from "path";
import { twice } from "./lib";

interface Input { n: number; then?: string }
const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

async function main(): Promise<void> {
  const input = JSON.parse(process.env.SKILL_INPUT ?? readFileSync(0, "utf8")) as Input;
  const order: string[] = [];
  setTimeout(() => order.push("timer"), 1);
  setImmediate(() => order.push("immediate"));
  process.nextTick(() => order.push("tick"));
  Promise.resolve().then(() => order.push("promise")).then(() => order.push("its promise"));
  await sleep(20);
  if (input.then === "throw") throw new TypeError("no such thing");
  if (input.then === "exit") process.exit(42);
  if (input.then === "microtask") queueMicrotask(() => { throw new RangeError("too late"); });
  if (input.then === "microtask") await sleep(1000);
  console.log(order, { a: [1, { b: new Map([["x", 1]]) }], f: main, big: 10n, nothing: null });
  console.log("%s is %d", "that", 5, process.argv.slice(2), Buffer.from("h\u00e9"), "\\u{1F600}");
  mkdirSync("made/deep", { recursive: true });
  writeFileSync("made/deep/x.txt", "text".repeat(3000));
  const size = statSync("made/deep/x.txt").size;
  console.log(readdirSync("made", { recursive: true }), size, basename("a/b.c"));
  rmSync("made", { recursive: true });
  try { readFileSync("/nowhere/x"); } catch (error: any) { console.error(error.message); }
  await fetch("http://host.invalid").catch((error) => console.error(error.cause.message));
  console.error(Math.random() < 1, crypto.randomUUID().length, Date.now() > 1.7e12);
  console.log(JSON.stringify({ n: twice(input.n) }));
  process.exitCode = 3;
}

main();
"""
FILES = {"src/main.ts": MAIN, "src/lib.ts": "export const twice = (n: number): number => n * 2;\n"}


class Pair(NamedTuple):
    """One source, built with each of the two engines."""

    starling: Built
    usual: Built


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("built")
    starling = build(skill(folder / "one", FILES), hosts(), plugin=NAME)
    return Pair(starling, build(skill(folder / "other", FILES), hosts()))


@pytest.mark.long
def test_an_ordinary_program_does_the_same_as_with_the_usual_engine(
    made: Pair, sandbox: WasmSandbox, place: Place
) -> None:
    one, other = (started(sandbox, place, each, b'{"n": 21}', "a", "b c") for each in made)
    assert json.loads(one.stdout.data.splitlines()[-1]) == {"n": 42}
    assert (one.exit_code, one.stdout.data, one.stderr.data) == (
        3,
        other.stdout.data,
        other.stderr.data,
    )


@pytest.mark.long
def test_the_exit_status_is_exact(made: Pair, sandbox: WasmSandbox, place: Place) -> None:
    outcome = started(sandbox, place, made.starling, b'{"n": 1, "then": "exit"}')
    assert (outcome.exit_code, outcome.stdout.data, outcome.stderr.data) == (42, b"", b"")


@pytest.mark.long
def test_a_promise_that_fails_is_an_error(made: Pair, sandbox: WasmSandbox, place: Place) -> None:
    outcome = started(sandbox, place, made.starling, b'{"n": 1, "then": "throw"}')
    assert outcome.exit_code == 1
    assert outcome.stderr.data.startswith(b"Uncaught TypeError: no such thing\n    at main (skill:")


@pytest.mark.long
def test_what_a_microtask_throws_ends_the_program(
    made: Pair, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = started(sandbox, place, made.starling, b'{"n": 1, "then": "microtask"}')
    assert (outcome.exit_code, outcome.stdout.data) == (1, b"")
    assert outcome.stderr.data.startswith(b"Uncaught RangeError: too late\n")


@pytest.mark.long
def test_it_is_current_until_its_source_changes(made: Pair) -> None:
    folder = Path(made.starling.output).parents[1]
    assert check(Skill.from_folder(folder), hosts(), plugin=NAME).current
    assert not check(Skill.from_folder(folder), hosts(), plugin="python").current
    (folder / "src" / "lib.ts").write_text("export const twice = (n: number): number => n + n;\n")
    assert not check(Skill.from_folder(folder), hosts(), plugin=NAME).current


@pytest.mark.long
def test_nothing_tells_where_it_was_built(made: Pair) -> None:
    data = Path(made.starling.output).read_bytes()
    assert hosts().cache_dir.encode() not in data
    assert b"/registry/src/" not in data


def test_only_its_name_chooses_it(tmp_path: Path) -> None:
    head = "metadata:\n  skillbelt:\n    build:\n      source: src/main.ts\n      plugin: {}\n"
    declared = skill(tmp_path / "one", FILES, head.format(NAME))
    assert check(declared, hosts()).plugin == named_builder(NAME).name == NAME
    assert check(skill(tmp_path / "two", FILES), hosts(), plugin=NAME).plugin == NAME
    assert check(skill(tmp_path / "two", FILES), hosts()).plugin == "javascript"
    assert builder_for("src/main.ts").name == "javascript"


@pytest.mark.long
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    wrong = skill(tmp_path / "one", {"src/main.ts": "const a = 1;\nconst b = ;\n"})
    with pytest.raises(RunRefused, match=r"cannot be built: src/main\.ts:2: Unexpected"):
        build(wrong, hosts(), plugin=NAME)


def test_offline_without_its_tools_it_is_said_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    settings = hosts()._replace(cache_dir=str(tmp_path / "cache"), offline=True)
    usual = toolset.node_tools(hosts(), print)
    kept = os.path.join(toolset.tool_folder(settings, "build-tools"), os.path.basename(usual))
    os.symlink(usual, kept)  # those of the usual engine are there
    with pytest.raises(RunRefused, match=r"cannot be installed: offline.*go online once"):
        build(skill(tmp_path / "one", FILES), settings, plugin=NAME)


def test_the_lock_names_packages_by_their_hashes_alone() -> None:
    with open(os.path.join(TOOLS, "package-lock.json"), encoding="utf-8") as file:
        packages = json.load(file)["packages"]
    packages.pop("")
    assert packages and all("integrity" in about for about in packages.values())
    assert not [path for path, about in packages.items() if "resolved" in about]
