"""An uncaught error ends a JavaScript program as it does in node, wherever it is thrown."""

from __future__ import annotations

import pytest

from skillbelt.sandbox.protocol import Outcome, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits
from tests.sandbox.wasm_guests.conftest import place as place
from tests.sandbox.wasm_guests.conftest import sandbox as sandbox
from tests.sandbox.wasm_guests.running import said, script

# What comes last is no call, so that nothing is waited for.
NEVER = "setTimeout(() => console.log('never'), 50);\nconst last = 1;\n"


def ended(sandbox: WasmSandbox, place: Place, code: str, name: str = "a.js") -> Outcome:
    return script(sandbox, place, {name: code}, "node", name)


@pytest.mark.parametrize(
    "code",
    [
        "queueMicrotask(() => { throw new RangeError('x') });",
        "queueMicrotask(async () => { throw new RangeError('x') });",
        "Promise.resolve().then(() => queueMicrotask(() => { throw new RangeError('x') }));",
        "process.nextTick((what) => { throw new RangeError(what) }, 'x');",
        "process.nextTick(async () => { throw new RangeError('x') });",
        "process.stdout.write('', () => { throw new RangeError('x') });",
        "setTimeout(async () => { await 1; throw new RangeError('x') }, 1);",
        "setImmediate(async () => { throw new RangeError('x') });",
        "process.on('one', async () => { throw new RangeError('x') }); process.emit('one');",
        "process.once('one', async () => { throw new RangeError('x') }); process.emit('one');",
        "const kept = new FinalizationRegistry(() => { throw new RangeError('x') });"
        " kept.register({}, 1);",
    ],
)
def test_an_error_thrown_later_ends_the_program(
    code: str, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = ended(sandbox, place, f"{code}\n{NEVER}")
    lines = outcome.stderr.data.decode().splitlines()
    assert (outcome.exit_code, outcome.stdout.data, lines[0]) == (1, b"", "Uncaught RangeError: x")
    assert all(line.startswith("    at ") and f"{place.target}/a.js:" in line for line in lines[1:])


@pytest.mark.parametrize(
    "code",
    [
        "async function main(words) { await 1; throw new RangeError('x') }\n"
        "main(process.argv.slice(2));\n// the end\n",
        "(async () => {\n  await 1;\n\n  throw new RangeError('x');\n})();\n",
        "const later = Promise.resolve();\nlater.then(() => {\n  throw new RangeError('x');\n});\n",
        "Promise.resolve({ get then() { throw new RangeError('x') } }).then(() => 1);\n",
        "Promise.resolve({ then() { throw new RangeError('x') } }).then(() => 1);\n",
        "async function* all() {\n  yield 1;\n  throw new RangeError('x');\n}\n"
        "(async () => {\n  for await (const one of all()) if (!one) break;\n})();\n",
        "Promise.reject(new RangeError('x'))\n  .finally(() => 1)\n  .then(() => 2);\n",
    ],
)
@pytest.mark.parametrize("name", ["a.js", "a.ts", "a.mjs"])
def test_a_promise_that_fails_last_ends_the_program(
    name: str, code: str, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = ended(sandbox, place, code, name)
    assert (outcome.exit_code, outcome.stdout.data) == (1, b""), outcome
    assert outcome.stderr.data.startswith(b"Uncaught RangeError: x\n"), outcome


@pytest.mark.parametrize(
    "code,printed",
    [
        ("const f = (n) => n;\nf\n(async () => 1)\nconsole.log('one');\n", "one\n"),
        ("console.log('one'); console.log('two');\n", "one\ntwo\n"),
        ("if (true) console.log(\n  'one');\n", "one\n"),
        ("const await = 'one';\nconsole.log(`${await}`);\n", "one\n"),
        ("const text = `\nmain(1)\n`;\nconsole.log(text.trim());\n", "main(1)\n"),
        ("const text = `\nprint('x')`;\nconsole.log(text)\n//`)\n", "\nprint('x')\n"),
        ("Promise.resolve(1) && console.log('one')\n", "one\n"),
        ("console.log('one') || console.log('two')\n", "one\ntwo\n"),
    ],
)
def test_what_is_waited_for_means_what_it_meant(
    code: str, printed: str, sandbox: WasmSandbox, place: Place
) -> None:
    assert said(ended(sandbox, place, code)) == printed


def test_nothing_that_waits_is_done_after_an_error(sandbox: WasmSandbox, place: Place) -> None:
    code = "queueMicrotask(() => { throw 1 });\nqueueMicrotask(() => console.log('never'));\n"
    outcome = ended(sandbox, place, code + NEVER)
    assert (outcome.exit_code, outcome.stdout.data) == (1, b"")
    assert outcome.stderr.data == b"Uncaught 1\n"


@pytest.mark.parametrize(
    "code,status,stdout",
    [
        ("on('uncaughtException', (error) => console.log(error.message))", 0, "x\nnever\n"),
        ("on('uncaughtException', () => { throw new Error('again') })", 7, ""),
        ("on('exit', (code) => console.log(code))", 1, "1\n"),
        ("on('exit', () => { process.exitCode = 9 })", 9, ""),
        ("on('exit', () => process.exit(5))", 5, ""),
        ("on('exit', () => { throw new Error('late') })", 1, ""),
    ],
)
def test_what_listens_is_told_of_the_error(
    code: str, status: int, stdout: str, sandbox: WasmSandbox, place: Place
) -> None:
    failing = "queueMicrotask(() => { throw new Error('x') });\n"
    outcome = ended(sandbox, place, f"process.{code};\n{failing}{NEVER}")
    assert (outcome.exit_code, outcome.stdout.data.decode()) == (status, stdout), outcome


@pytest.mark.parametrize(
    "thrown",
    [
        "new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } })",
        "Object.defineProperty(new Error('x'), 'stack', { get() { throw 1 } })",
        "Object.assign(new Error('x'), { cause: { get [Symbol.toStringTag]() { throw 1 } } })",
    ],
)
def test_an_error_that_can_not_be_shown_is_one_all_the_same(
    thrown: str, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = ended(sandbox, place, f"queueMicrotask(() => {{ throw {thrown} }});\n{NEVER}")
    assert (outcome.exit_code, outcome.stdout.data) == (1, b"")
    assert outcome.stderr.data.startswith(b"Uncaught ") and outcome.stderr.data.count(b"\n") == 1


def test_too_long_a_text_in_a_microtask_is_an_error(sandbox: WasmSandbox, place: Place) -> None:
    code = "queueMicrotask(() => { let text = 'x'; for (;;) text += text });\n"
    outcome = ended(sandbox, place, code + NEVER)
    assert (outcome.exit_code, outcome.stdout.data) == (1, b"")
    assert outcome.stderr.data.startswith(b"Uncaught InternalError: string too long\n")


@pytest.mark.parametrize(
    "code",
    [
        "for (;;) kept.push(new Uint8Array(1e6).fill(1));",
        "for (;;) kept.push('x'.repeat(1e6) + kept.length);",
        "for (;;) kept.push({ kept });",
    ],
)
def test_too_little_memory_in_a_microtask_says_nothing_of_the_engine(
    code: str, sandbox: WasmSandbox, place: Place
) -> None:
    """The guest is always told of the limit before the worker is ended from outside."""
    code = f"const kept = [];\nqueueMicrotask(() => {{ {code} }});\n{NEVER}"
    limits = Limits(max_memory_bytes=64 * 2**20)
    outcome = run(sandbox, place.job("node", "-e", code, limits=limits))
    assert (outcome.stdout.data, outcome.limits_hit) == (b"", ("max_memory_bytes",))
    errors = outcome.stderr.data
    assert outcome.exit_code == 1 and errors.startswith(b"Uncaught "), outcome
    assert b"panicked" not in errors


OWN = "thread '<unnamed>' panicked at own.rs:1:1:\nof the script"
PROMISE = """
class Odd extends Promise {
  static get [Symbol.species]() {
    return function (take) { take(() => { throw new Error("x") }, () => { throw new Error("y") }) };
  }
}
new Odd((done) => done(1)).then(() => 2);
"""


@pytest.mark.parametrize(
    "code,reason",
    [
        (PROMISE, "unreachable"),
        ("function deep() { deep() }\nqueueMicrotask(deep);\n", "call stack exhausted"),
        ("function deep() { deep() }\nPromise.resolve().then(deep);\n", "call stack exhausted"),
    ],
)
def test_where_the_engine_itself_fails_one_line_says_so(
    code: str, reason: str, sandbox: WasmSandbox, place: Place
) -> None:
    """The output of the script is kept, whatever it looks like."""
    outcome = ended(sandbox, place, f"console.error({OWN!r});\n{code}{NEVER}")
    assert (outcome.exit_code, outcome.stdout.data) == (134, b"")
    assert outcome.stderr.data.decode() == f"{OWN}\nthe module trapped: {reason}\n"


def test_what_is_no_function_is_refused_at_once(sandbox: WasmSandbox, place: Place) -> None:
    code = """
for (const later of [queueMicrotask, process.nextTick, setTimeout, setImmediate]) {
  try { later(5); } catch (error) { console.log(error.name); }
}
try { new FinalizationRegistry(5); } catch (error) { console.log(error.name); }
const last = 1;
"""
    assert said(ended(sandbox, place, code)) == "TypeError\n" * 5


def test_a_registry_is_told_what_is_gone(sandbox: WasmSandbox, place: Place) -> None:
    code = """
class Own extends FinalizationRegistry {}
const kept = new Own((what) => console.log(what, kept instanceof FinalizationRegistry));
kept.register({}, "gone");
const last = 1;
"""
    assert said(ended(sandbox, place, code)) == "gone true\n"
