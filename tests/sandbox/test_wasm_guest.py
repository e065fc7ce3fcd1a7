"""Hostile guests can do no harm, and one line reports each attempt."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import Mount, Outcome, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.examples import examples
from tests.sandbox import guests

SECRET = b"what only the user may read"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WasmSandbox]:
    made = WasmSandbox()
    yield made
    made.close()


def outcome_of(sandbox: WasmSandbox, place: Place, data: bytes, **fields: object) -> Outcome:
    return run(sandbox, guests.job(place, data, **fields))


# --- traps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("unreachable", "unreachable"),
        ("(drop (i32.div_s (i32.const 1) (i32.const 0)))", "integer divide by zero"),
        ("(drop (i32.load (i32.const -1)))", "out of bounds memory access"),
        ("(call $deeper)", "call stack exhausted"),
        ("(call_indirect (i32.const 0))", "uninitialized element"),
    ],
)
def test_a_trap_is_one_line_and_134(
    sandbox: WasmSandbox, place: Place, body: str, reason: str
) -> None:
    """No trace of the engine's own; what was said before is kept."""
    text = guests.text_at(1024, "said\n")
    more = "(table 1 funcref) (func $deeper (call $deeper))"
    data = guests.module(guests.saying("said\n") + body, text, more)
    outcome = outcome_of(sandbox, place, data)
    assert (outcome.exit_code, outcome.stdout.data) == (134, b"said\n")
    assert outcome.stderr.data == f"the module trapped: {reason}\n".encode()


def test_a_component_traps_alike(sandbox: WasmSandbox, place: Place) -> None:
    outcome = outcome_of(sandbox, place, guests.component("unreachable"))
    assert outcome.exit_code == 134
    assert outcome.stderr.data == b"the module trapped: unreachable\n"


# --- what can not be run -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not a WASM module"),
        (b"#!/bin/sh\n", "is not a WASM module"),
        (b"(module)", "is not a WASM module"),
        (b"\0asm\1\0\0\0garbage", "is not a valid WASM module: "),
        (b"\0asm\x0d\0\1\0\xff\xff", "is not a valid WASM module: "),
        (b"\0asm\xff\0\0\0", "is not a valid WASM module: "),
        (guests.wat("(module)"), "is not a command: it exports no function '_start'"),
        (guests.wat('(module (memory (export "_start") 1))'), "is not a command"),
        (guests.wat('(module (func (export "_start") (param i32)))'), "is not a command"),
        (guests.wat('(module (import "env" "f" (func)))'), "needs 'env.f', which no sandbox"),
        (guests.wat("(component)"), "is not a command: it exports no 'wasi:cli/run@0.2'"),
        (
            guests.wat('(component (import "wasi:cli/stdout@0.3.0" (instance)))'),
            "is built for WASI 0.3 (wasi:cli/stdout@0.3.0), which the engine cannot run yet",
        ),
        (
            guests.component("(i32.const 0)", version="0.3.0"),
            "is built for WASI 0.3 (wasi:cli/run@0.3.0)",
        ),
        (
            guests.wat('(component (import "their:own/thing" (instance)))'),
            "needs 'their:own/thing', which no sandbox provides",
        ),
    ],
)
def test_what_is_no_command_for_us_is_told(
    sandbox: WasmSandbox, place: Place, data: bytes, reason: str
) -> None:
    outcome = outcome_of(sandbox, place, data)
    assert outcome.exit_code == 126
    said = outcome.stderr.data.decode()
    assert said.startswith("/guests/guest.wasm ") and said.count("\n") == 1
    assert reason in said


def test_a_component_that_only_mentions_http_runs(sandbox: WasmSandbox, place: Place) -> None:
    """Some tools have all of them do so."""
    data = guests.wat("""(component
      (import "wasi:http/types@0.2.3" (instance (export "http-error-code" (func (result u32)))))
      (core module $m (func (export "run") (result i32) (i32.const 0)))
      (core instance $i (instantiate $m))
      (func $run (result (result)) (canon lift (core func $i "run")))
      (instance $r (export "run" (func $run)))
      (export "wasi:cli/run@0.2.3" (instance $r)))""")
    assert outcome_of(sandbox, place, data).exit_code == 0


# --- attack 59 and the like ----------------------------------------------------------------------

_GROW = """
(local $at i32)
(loop $more
  (local.set $at (memory.grow (i32.const 16)))
  (if (i32.ne (local.get $at) (i32.const -1)) (then
    (memory.fill (i32.shl (local.get $at) (i32.const 16)) (i32.const 1) (i32.const 1048576))
    (br $more))))
(call $proc_exit (i32.const 9))
"""


def test_memory_is_bounded(sandbox: WasmSandbox, place: Place) -> None:
    """The guest sees the failure, and the limit is named."""
    limits = Limits(max_memory_bytes=64 * 2**20)
    outcome = outcome_of(sandbox, place, guests.module(_GROW), limits=limits)
    assert outcome.exit_code == 9
    assert outcome.limits_hit == ("max_memory_bytes",)


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ("(memory 2000)", "max_memory_bytes"),
        ("(table 2000000 funcref)", "max_wasm_elements"),
        ("(table 10 funcref)" * 30, "max_wasm_instances"),
        ("(memory 1)" * 30, "max_wasm_instances"),
    ],
)
def test_what_a_module_begins_with_is_bounded(
    sandbox: WasmSandbox, place: Place, more: str, limit: str
) -> None:
    limits = bounds(max_memory_bytes=64 * 2**20, max_wasm_instances=20)
    data = guests.wat(f'(module {more} (func (export "_start")))')
    outcome = outcome_of(sandbox, place, data, limits=limits)
    assert outcome.exit_code == 126
    assert outcome.limits_hit == (limit,)
    assert outcome.stderr.data.startswith(b"the module cannot be started: ")


def test_tables_do_not_grow_beyond_their_bound(sandbox: WasmSandbox, place: Place) -> None:
    """Asking for a billion is answered with -1."""
    body = """(if (i32.ne (table.grow (ref.null func) (i32.const 1000000000)) (i32.const -1))
                (then (call $proc_exit (i32.const 9))))"""
    assert outcome_of(sandbox, place, guests.module(body, "(table 1 funcref)")).exit_code == 0


def test_instances_are_counted(sandbox: WasmSandbox, place: Place) -> None:
    more = "".join(f"(core instance $i{n} (instantiate $n))" for n in range(100))
    data = guests.wat(f"""(component
      (core module $n (memory 1)) {more}
      (core module $m (func (export "run") (result i32) (i32.const 0)))
      (core instance $i (instantiate $m))
      (func $run (result (result)) (canon lift (core func $i "run")))
      (instance $r (export "run" (func $run)))
      (export "wasi:cli/run@0.2.0" (instance $r)))""")
    assert outcome_of(sandbox, place, data).exit_code == 0
    few = outcome_of(sandbox, place, data, limits=bounds(max_wasm_instances=50))
    assert (few.exit_code, few.limits_hit) == (126, ("max_wasm_instances",))


@pytest.mark.parametrize(("count", "code"), [(5, 137), (20, 126)])
def test_many_memories_together_are_bounded(
    sandbox: WasmSandbox, place: Place, count: int, code: int
) -> None:
    """Each is within the limit that the engine keeps; all together are not."""
    fill = "".join(
        f"(memory.fill {n} (i32.const 0) (i32.const 1) (i32.const 67108864))" for n in range(count)
    )
    memories = "(memory 1024)" * count
    data = guests.wat(f'(module {memories} (func (export "_start") {fill} (loop (br 0))))')
    limits = Limits(max_memory_bytes=128 * 2**20)
    outcome = outcome_of(sandbox, place, data, limits=limits)
    assert (outcome.exit_code, outcome.limits_hit) == (code, ("max_memory_bytes",))


def test_fuel_is_counted_when_it_is_set(sandbox: WasmSandbox, place: Place) -> None:
    outcome = outcome_of(
        sandbox, place, guests.module(guests.SPIN), limits=Limits(max_wasm_fuel=10**6)
    )
    assert (outcome.exit_code, outcome.limits_hit) == (134, ("max_wasm_fuel",))
    assert outcome.stderr.data == b"the module trapped: all fuel consumed by WebAssembly\n"
    assert outcome.enforced["cpu"].endswith("fuel")
    again = outcome_of(sandbox, place, guests.hello(), limits=Limits(max_wasm_fuel=10**6))
    assert again.exit_code == 0


def test_processor_time_is_bounded(sandbox: WasmSandbox, place: Place) -> None:
    outcome = outcome_of(
        sandbox, place, guests.module(guests.SPIN), limits=Limits(max_cpu_seconds=1)
    )
    assert outcome.limits_hit == ("max_cpu_seconds",)
    assert outcome.exit_code > 128


def test_a_module_that_is_too_long_is_not_read(sandbox: WasmSandbox, place: Place) -> None:
    outcome = outcome_of(sandbox, place, guests.hello(), limits=bounds(max_wasm_bytes=100))
    assert (outcome.exit_code, outcome.limits_hit) == (126, ("max_wasm_bytes",))
    assert b"more than 100 (max_wasm_bytes)" in outcome.stderr.data


def _bomb(functions: int = 800) -> bytes:
    """A module that the compiler needs long for, and much memory."""
    deep = "(i32.add (local.get 0) (i32.mul (local.get 0) " * 400 + "(i32.const 1)" + "))" * 400
    one = f"(func (param i32) (result i32) {deep})"
    return guests.wat(f'(module {one * functions} (func (export "_start")))')


def test_compiling_has_a_time_of_its_own(sandbox: WasmSandbox, place: Place) -> None:
    """And the next call does not wait for it."""
    limits = bounds(compile_timeout_seconds=0.2)
    outcome = outcome_of(sandbox, place, _bomb(), limits=limits)
    assert (outcome.exit_code, outcome.limits_hit) == (126, ("compile_timeout_seconds",))
    assert outcome.stderr.data.startswith(b"/guests/guest.wasm could not be compiled: ")
    assert not outcome.timed_out
    assert outcome_of(sandbox, place, guests.hello()).exit_code == 0


def test_compiling_can_be_stopped(sandbox: WasmSandbox, place: Place) -> None:
    running = sandbox.start(guests.job(place, _bomb()))
    assert running.wait(0.2) is None
    running.kill()
    outcome = running.wait(150)
    assert outcome is not None and outcome.cancelled


@pytest.mark.long
def test_the_memory_of_the_compiler_is_bounded(sandbox: WasmSandbox, place: Place) -> None:
    limits = Limits(max_memory_bytes=40 * 2**20)
    outcome = outcome_of(sandbox, place, _bomb(2400), limits=limits)
    assert (outcome.exit_code, outcome.limits_hit) == (126, ("max_memory_bytes",))


def test_endless_output_ends_with_the_time(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 55: the runtime keeps the head alone."""
    body = "(loop (call $say (i32.const 1) (i32.const 65536) (i32.const 65536)) (br 0))"
    outcome = outcome_of(sandbox, place, guests.module(body), timeout_seconds=0.5)
    assert outcome.timed_out
    assert len(outcome.stdout.data) == Limits().max_stream_bytes < outcome.stdout.total_bytes
    assert outcome.limits_hit == ("max_stream_bytes", "run_timeout_seconds")


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture
def scene(place: Place) -> Place:
    """A secret beside the workspace, and links to it in there."""
    outside = place.beside("outside")
    secret = os.path.join(outside, "secret")
    with open(secret, "wb") as file:
        file.write(SECRET)
    os.chown(secret, *current_identity())
    for name, target in (
        ("absolute", secret),
        ("relative", "../outside/secret"),
        ("folder", outside),
        ("up", ".."),
        ("root", "/"),
        ("self", "/proc/self/root"),
        ("chain", "up"),
    ):
        os.symlink(target, os.path.join(place.folder, name))
    return place


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "./../outside/secret",
        "x/../../outside/secret",
        "absolute",
        "relative",
        "folder/secret",
        "up/outside/secret",
        "chain/outside/secret",
        "self/{outside}/secret",
        "root/{outside}/secret",
        "{outside}/secret",
        "/{outside}/secret",
        "/proc/self/root{outside}/secret",
        "proc/self/environ",
        "/etc/passwd",
        "../../../../../../../../etc/passwd",
        "..",
        "up",
    ],
)
def test_no_path_leads_out(sandbox: WasmSandbox, scene: Place, path: str) -> None:
    """Attacks 1, 2, 5, 8 and 10, from every folder that the guest has."""
    outside = os.path.join(os.path.dirname(scene.folder), "outside")
    data = guests.opening(path.format(outside=outside))
    outcome = outcome_of(sandbox, scene, data)
    assert outcome.exit_code == 0
    assert SECRET not in outcome.stdout.data and b"root:" not in outcome.stdout.data
    # Every attempt is an error, also one that would give a handle of a folder.
    assert b"00" not in outcome.stdout.data.split(b"\n")


def test_paths_that_stay_inside_work(sandbox: WasmSandbox, scene: Place) -> None:
    """So that a closed door means something."""
    inner = os.path.join(scene.folder, "inner")
    with open(inner, "wb") as file:
        file.write(b"inner")
    os.symlink("inner", os.path.join(scene.folder, "alias"))
    for name in ("inner", "alias", "./inner"):
        assert b"inner" in outcome_of(sandbox, scene, guests.opening(name)).stdout.data


@pytest.mark.parametrize("path", ["../made", "up/made", "folder/made", "root/tmp/made", "/made"])
def test_nothing_is_made_outside(sandbox: WasmSandbox, scene: Place, path: str) -> None:
    """Attacks 3 and 7."""
    outcome_of(sandbox, scene, guests.opening(path, write=True))
    parent = os.path.dirname(scene.folder)
    found = [name for _, names, files in os.walk(parent) for name in (*names, *files)]
    assert "made" not in found
    assert not os.path.exists("/tmp/made") and not os.path.exists("/made")


def test_what_is_read_only_stays_so(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 4: one file is made, in the workspace; none in the folder of the guests."""
    outcome = outcome_of(sandbox, place, guests.opening("made", write=True))
    assert outcome.exit_code == 0
    assert os.listdir(place.folder) == ["made"]
    assert os.listdir(os.path.join(os.path.dirname(place.folder), "guests")) == ["guest.wasm"]


def test_a_secret_can_not_be_linked_in(sandbox: WasmSandbox, scene: Place) -> None:
    """Attack 6: neither a hard link, nor moving the file, nor a link with an absolute target."""
    path = "../outside/secret"
    size = len(path)
    calls = "".join(
        f"""(drop (call $path_link (i32.const {fd}) (i32.const 1) (i32.const 1024)
              (i32.const {size}) (i32.const {fd}) (i32.const 2048) (i32.const 4)))
            (drop (call $path_rename (i32.const {fd}) (i32.const 1024) (i32.const {size})
              (i32.const {fd}) (i32.const 2048) (i32.const 4)))
            (drop (call $path_symlink (i32.const 3072) (i32.const 1) (i32.const {fd})
              (i32.const 2048) (i32.const 4)))"""
        for fd in range(3, 12)
    )
    texts = guests.text_at(1024, path), guests.text_at(2048, "loot"), guests.text_at(3072, "/")
    before = set(os.listdir(scene.folder))
    assert outcome_of(sandbox, scene, guests.module(calls, *texts)).exit_code == 0
    assert set(os.listdir(scene.folder)) == before
    assert os.listdir(os.path.join(os.path.dirname(scene.folder), "outside")) == ["secret"]


def _filling(target: int, megabytes: int) -> bytes:
    """Writes so much to a new file in one of its folders, and says the error it ends with."""
    return guests.module(
        f"""(local $left i32) (local $error i32)
        (drop (call $path_open (i32.const {target}) (i32.const 0) (i32.const 1024) (i32.const 4)
          (i32.const 1) (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 36)))
        (memory.fill (i32.const 65536) (i32.const 7) (i32.const 131072))
        (local.set $left (i32.const {megabytes * 8}))
        (loop $more
          (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 131072))
          (local.set $error (call $fd_write (i32.load (i32.const 36)) (i32.const 0) (i32.const 1)
            (i32.const 8)))
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br_if $more (i32.and (i32.eqz (local.get $error))
            (i32.gt_s (local.get $left) (i32.const 0)))))
        (call $number (local.get $error)) (loop (br 0))""",
        guests.text_at(1024, "fill"),
    )


# Its folders in order: all that lies above, the guests, the temporary one, the workspace.
_TEMPORARY, _WORKSPACE = 5, 6


def test_one_file_is_bounded(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 54: the guest gets an error and goes on."""
    limits = Limits(max_written_file_bytes=2**20)
    outcome = outcome_of(
        sandbox, place, _filling(_WORKSPACE, 64), limits=limits, timeout_seconds=2.0
    )
    assert outcome.stdout.data == b"22\n"  # too large
    assert os.path.getsize(os.path.join(place.folder, "fill")) == 2**20
    assert set(outcome.limits_hit) == {"max_written_file_bytes", "run_timeout_seconds"}


@pytest.mark.parametrize(
    ("target", "limit"),
    [(_WORKSPACE, "max_workspace_bytes"), (_TEMPORARY, "max_temporary_bytes")],
)
def test_disk_is_bounded(sandbox: WasmSandbox, place: Place, target: int, limit: str) -> None:
    """Attack 54, in the workspace and in /tmp; the latter leaves nothing behind."""
    limits = Limits()._replace(**{limit: 8 * 2**20})
    outcome = outcome_of(sandbox, place, _filling(target, 400), limits=limits)
    assert (outcome.exit_code, outcome.limits_hit) == (137, (limit,))
    assert os.listdir(place.folder) == (["fill"] if target == _WORKSPACE else [])


def test_there_is_no_network(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 44: a module has not even a call for it, but on a handle it was given."""
    body = "".join(
        f"""(if (i32.eqz (call $sock_accept (i32.const {fd}) (i32.const 0) (i32.const 36)))
              (then (call $proc_exit (i32.const 9))))"""
        for fd in range(12)
    )
    assert outcome_of(sandbox, place, guests.module(body)).exit_code == 0


def test_a_mount_may_be_at_another_place(sandbox: WasmSandbox, place: Place) -> None:
    job = guests.job(place, guests.opening("made", write=True))
    mounts = (Mount(place.folder, "/elsewhere", True), job.mounts[1])
    assert run(sandbox, job._replace(mounts=mounts, cwd="/elsewhere")).exit_code == 0
    assert os.listdir(place.folder) == ["made"]


def test_it_holds_without_landlock_too(
    sandbox: WasmSandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then only the engine confines the guest to its folders, and the result says so."""
    for module in ("sandbox", "run", "modules"):
        monkeypatch.setattr(f"skillbelt.sandbox.wasm.{module}.version", lambda: 0)
    outcome = outcome_of(sandbox, place, guests.opening("../../../../../../../etc/passwd"))
    assert outcome.enforced["files"] == "WASI folders"
    assert b"root:" not in outcome.stdout.data and b"00" not in outcome.stdout.data.split(b"\n")


@pytest.mark.property
def test_damaged_modules_end_as_outcomes(sandbox: WasmSandbox, place: Place) -> None:
    """For any bytes: one line, no trace, and the engine is still the same."""
    import random

    chance = random.Random(7)
    sources = [guests.hello(), guests.component("(i32.const 0)"), guests.controlled(3)]
    run(sandbox, guests.job(place, guests.hello()))
    before = sandbox._pool.engine().pid
    for number in range(examples(240)):
        data = bytearray(sources[number % 3])
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(8, len(data))] = chance.randrange(256)
        cut = data[: chance.randrange(9, len(data))] if number % 4 == 0 else data
        outcome = outcome_of(sandbox, place, bytes(cut), timeout_seconds=2.0)
        assert outcome.exit_code in (0, 1, 3, 124, 126, 134) or not outcome.stderr.data, outcome
        said = outcome.stderr.data.replace(b"hello\n", b"")
        assert said.count(b"\n") <= 1 and b"panic" not in said and b"backtrace" not in said
    assert sandbox._pool.engine().pid == before
