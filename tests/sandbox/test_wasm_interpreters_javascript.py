"""Scripts in JavaScript and TypeScript behave as they do where node runs them."""

from __future__ import annotations

import subprocess

import pytest

from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests import needs
from tests.sandbox.wasm_guests.conftest import place as place
from tests.sandbox.wasm_guests.conftest import sandbox as sandbox
from tests.sandbox.wasm_guests.running import said, script


def test_a_script_knows_where_it_is(sandbox: WasmSandbox, place: Place) -> None:
    code = "console.log(process.argv.slice(1), process.cwd(), __filename, require.main);"
    here = place.target
    printed = said(script(sandbox, place, {"sub/a.js": code}, "node", "sub/a.js", "x"))
    assert printed.startswith(f"[ '{here}/sub/a.js', 'x' ] {here} {here}/sub/a.js")


def test_modules_of_both_kinds_are_imported(sandbox: WasmSandbox, place: Place) -> None:
    files = {
        "main.mjs": (
            'import fs, { existsSync } from "node:fs";\nimport both, { one } from "./lib.mjs";\n'
            'import data from "./data.json";\nimport old from "./old.cjs";\n'
            'import pack from "pack";\nconst late = await import("./lib.mjs");\n'
            "console.log(existsSync('main.mjs'), typeof fs.readFileSync, both, one, data.n, old.x,"
            " pack, late.one, import.meta.url);\n"
        ),
        "lib.mjs": "export const one = 1;\nexport default 'both';\n",
        "data.json": '{"n": 2}',
        "old.cjs": "exports.x = require('./data').n + 1;\n",
        "node_modules/pack/package.json": '{"main": "lib/entry.js"}',
        "node_modules/pack/lib/entry.js": "module.exports = 'packed';\n",
    }
    printed = said(script(sandbox, place, files, "node", "main.mjs"))
    assert printed == f"true function both 1 2 3 packed 1 file://{place.target}/main.mjs\n"


def test_types_are_left_out(sandbox: WasmSandbox, place: Place) -> None:
    files = {
        "main.ts": (
            'import type { Missing } from "./nowhere";\nimport { Kind, first } from "./lib";\n'
            "interface Shape { side: number }\n"
            "class Box<T> { constructor(private readonly value: T) {} get(): T { return this.value"
            " } }\nconst shape = { side: 2 } satisfies Shape;\n"
            "const made: Missing | number = first<number>([shape.side as number]) ?? 0;\n"
            "console.log(made, Kind.Last, new Box('x').get(), await Promise.resolve(1!));\n"
        ),
        "lib.ts": (
            "export enum Kind { First, Last = 5 }\n"
            "export function first<T>(list: T[]): T | undefined { return list[0]; }\n"
        ),
    }
    assert said(script(sandbox, place, files, "node", "main.ts")) == "2 5 x 1\n"


@pytest.mark.parametrize(
    "code,status,stdout",
    [
        ("process.exit(5); console.log(1)", 5, ""),
        ("try { process.exit(6) } finally { console.log(1) }", 6, ""),
        ("process.exitCode = 7; process.on('exit', (code) => console.log(code))", 7, "7\n"),
        ("process.exit(-1)", 255, ""),
        ("throw new Error('x')", 1, ""),
        ("async function main() { await 1; throw new Error('x') }\nmain();", 1, ""),
        ("setTimeout(() => { throw new Error('x') }, 1)", 1, ""),
    ],
)
def test_exit_codes_are_exact(
    code: str, status: int, stdout: str, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = script(sandbox, place, {"a.js": code}, "node", "a.js")
    assert (outcome.exit_code, outcome.stdout.data.decode()) == (status, stdout), outcome


def test_an_error_names_the_script_and_nothing_of_the_host(
    sandbox: WasmSandbox, place: Place
) -> None:
    code = "function fail() {\n  throw new TypeError('x');\n}\nfail();\n"
    outcome = script(sandbox, place, {"a.js": code}, "node", "a.js")
    lines = outcome.stderr.data.decode().splitlines()
    assert lines[0] == "Uncaught TypeError: x"
    assert lines[1].startswith(f"    at fail ({place.target}/a.js:2:")
    assert all(place.target in line for line in lines[1:])


def test_what_waits_is_done_in_its_order(sandbox: WasmSandbox, place: Place) -> None:
    code = """
setTimeout(() => console.log("late"), 20);
setTimeout(() => console.log("soon"), 1);
const timer = setInterval(() => { console.log("again"); clearInterval(timer); }, 5);
setImmediate(() => console.log("immediate"));
Promise.resolve().then(() => console.log("promise"));
console.log("first");
"""
    printed = said(script(sandbox, place, {}, "node", "-e", code))
    assert printed.split() == ["first", "promise", "immediate", "soon", "again", "late"]


def test_files_are_read_and_written(sandbox: WasmSandbox, place: Place) -> None:
    code = """
const fs = require("fs");
fs.mkdirSync("a/b", { recursive: true });
fs.writeFileSync("a/b/c.txt", "héllo");
fs.appendFileSync("a/b/c.txt", Buffer.from([33]));
fs.renameSync("a/b/c.txt", "a/d.txt");
console.log(fs.readFileSync("a/d.txt", "utf8"), fs.statSync("a/d.txt").size);
console.log(fs.readdirSync("a"), fs.readdirSync(".", { recursive: true }));
fs.rmSync("a", { recursive: true });
console.log(fs.existsSync("a"));
try { fs.readFileSync("none"); } catch (error) { console.log(error.code, error.message); }
"""
    assert said(script(sandbox, place, {}, "node", "-e", code)).splitlines() == [
        "héllo! 7",
        "[ 'b', 'd.txt' ] [ 'a', 'a/b', 'a/d.txt' ]",
        "false",
        "ENOENT ENOENT: no such file or directory, open 'none'",
    ]


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/passwd", "/proc/self/environ"])
def test_nothing_of_the_host_can_be_read(path: str, sandbox: WasmSandbox, place: Place) -> None:
    code = "try { require('fs').readFileSync(process.argv[1]); console.log('read') } catch (e) {"
    outcome = script(sandbox, place, {}, "node", "-e", code + " console.log(e.code) }", path)
    assert outcome.stdout.data in (b"ENOENT\n", b"EPERM\n"), outcome


@pytest.mark.parametrize(
    "code",
    [
        "console.log(JSON.parse(require('fs').readFileSync(0, 'utf8')).n)",
        "let t = ''; process.stdin.setEncoding('utf8'); process.stdin.on('data', (d) => t += d)"
        ".on('end', () => console.log(JSON.parse(t).n))",
        "(async () => { const all = []; for await (const d of process.stdin) all.push(d);"
        " console.log(JSON.parse(Buffer.concat(all)).n) })()",
    ],
)
def test_input_can_be_read_in_every_way(code: str, sandbox: WasmSandbox, place: Place) -> None:
    outcome = script(sandbox, place, {}, "node", "-e", code, stdin=b'{"n": "\xc3\xa9"}')
    assert said(outcome) == "é\n"


def test_bytes_pass_as_they_are(sandbox: WasmSandbox, place: Place) -> None:
    code = "process.stdout.write(require('fs').readFileSync(0).reverse())"
    outcome = script(sandbox, place, {}, "node", "-e", code, stdin=bytes(range(256)) * 40)
    assert outcome.stdout.data == (bytes(range(256)) * 40)[::-1]


def test_without_a_grant_fetch_fails(sandbox: WasmSandbox, place: Place) -> None:
    code = "fetch('https://example.org').catch((e) => console.log(e.message, e.cause.message))"
    printed = said(script(sandbox, place, {}, "node", "-e", code))
    assert printed == "fetch failed network access is not granted\n"


def test_other_programs_can_not_be_started(sandbox: WasmSandbox, place: Place) -> None:
    code = "require('node:child_process').execSync('ls')"
    outcome = script(sandbox, place, {}, "node", "-e", code)
    assert outcome.exit_code == 1
    assert b"No such built-in module in this sandbox: node:child_process" in outcome.stderr.data


def test_no_two_runs_draw_the_same_numbers(sandbox: WasmSandbox, place: Place) -> None:
    code = "console.log(Math.random(), crypto.randomUUID())"
    one, other = (said(script(sandbox, place, {}, "node", "-e", code)) for _ in range(2))
    assert one != other


SHOWN = """
class Point { constructor() { this.x = 1 } }
const loop = { name: "loop" }; loop.self = loop;
console.log({ a: 1, "b-c": [1, "two", { deep: { deeper: { deepest: 1 } } }] }, [undefined, null]);
console.log([...Array(120).keys()], Array.from({ length: 30 }, (_, i) => `item${i * i}`));
console.log(new Map([["k", { v: 1 }]]), new Set([[1, 2]]), [new Date(0)], /x/g, 10n, -0, [-0]);
console.log(new Point(), class A extends Map {}, function f() {}, () => 1, Symbol("s"), loop);
console.log(["it's", 'say "x"', "line\\nbreak", ""], Object.create(null), [, 1], new Uint8Array(3));
console.log("%s is %d, %i, %f, %j %o %O %%", "Ada", 36, 36.9, 1.5, { a: 1 }, [1], { b: 2 }, "more");
console.log({ text: "x".repeat(70), list: Array(50).fill(7) });
console.log(Buffer.from("hi"), [true, [[[[1]]]]]);
console.table([{ a: 1, b: "x" }, { a: 2 }]); console.group("in"); console.log("side\\nby side");
"""


@needs.node
def test_values_are_shown_as_node_shows_them(sandbox: WasmSandbox, place: Place) -> None:
    node = subprocess.run(
        ["node", "-e", SHOWN], capture_output=True, text=True, timeout=500, check=True
    )
    assert said(script(sandbox, place, {}, "node", "-e", SHOWN)) == node.stdout
