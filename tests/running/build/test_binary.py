from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasmtime import (
    Engine,
    Func,
    FuncType,
    Instance,
    Memory,
    Module,
    Store,
    Trap,
    ValType,
    wat2wasm,
)

from skillbelt.running.build import binary
from skillbelt.running.build.binary import BinaryFault

LOOP = """
(module
  (import "env" "spare" (func))
  (global $count (mut i32) (i32.const 0))
  (func $add (param i32)
    (global.set $count (i32.add (i32.mul (global.get $count) (i32.const 10)) (local.get 0))))
  (func (export "begin") (call $add (i32.const 1)))
  (func (export "cabi_post_begin") (call $add (i32.const 5)))
  (func (export "cabi_post_turn") (param i32) (call $add (i32.add (i32.const 6) (local.get 0))))
  (func (export "pump") (result i32) (call $add (i32.const 2)) (i32.const 77))
  (func (export "turn") (result i32)
    (call $add (i32.const 3)) (i32.lt_u (global.get $count) (i32.const 10000)))
  (func (export "run") (result i32) (local i64 i32)
    (call $add (i32.const 4)) (global.get $count)))
"""
DATA = '(module (memory 1) (data (i32.const {at}) "{text}"))'


def nested(text: str) -> bytes:
    inner = text.strip().removeprefix("(module").removesuffix(")")
    return bytes(wat2wasm(f"(component (component (core module {inner})))"))


def result(module: bytes, name: str = "run") -> object:
    store = Store(Engine())
    made = Module(store.engine, module)
    spare = [Func(store, FuncType([], []), lambda: None)] if made.imports else []
    function = Instance(store, made, spare).exports(store)[name]
    assert isinstance(function, Func)
    return function(store)


def test_run_calls_the_others_while_there_is_something_to_do() -> None:
    """Start, then promises and a turn, twice, each tidied up after; then what it did before."""
    changed = binary.with_event_loop(nested(LOOP), "run", "begin", "turn", "pump")
    (module,) = binary.modules(changed)
    assert result(module) == 152372364


def test_without_the_export_there_is_no_event_loop() -> None:
    with pytest.raises(BinaryFault, match="nothing is exported as 'absent'"):
        binary.with_event_loop(nested(LOOP), "run", "absent", "turn", "pump")


def test_two_modules_that_export_run_are_refused() -> None:
    inner = LOOP.strip().removeprefix("(module").removesuffix(")")
    both = bytes(wat2wasm(f"(component (core module {inner}) (core module {inner}))"))
    with pytest.raises(BinaryFault, match="2 modules export run"):
        binary.with_event_loop(both, "run", "begin", "turn", "pump")


def test_exports_are_told_with_their_numbers() -> None:
    found = binary.exports(bytes(wat2wasm(LOOP)))
    assert found == {
        "begin": 2, "cabi_post_begin": 3, "cabi_post_turn": 4, "pump": 5, "turn": 6, "run": 7
    }  # fmt: skip


def test_imports_of_every_kind_are_counted() -> None:
    text = """(module (import "a" "t" (table 1 2 funcref)) (import "a" "m" (memory 1))
      (import "a" "g" (global i32)) (import "a" "f" (func)))"""
    assert binary.imported_functions(bytes(wat2wasm(text))) == 1


def test_an_import_gets_another_name() -> None:
    module = bytes(wat2wasm(LOOP))
    renamed = binary.rename_import(module, ("env", "spare"), ("elsewhere", "longer-name"))
    (found,) = Module(Engine(), renamed).imports
    assert (found.module, found.name) == ("elsewhere", "longer-name")


def test_an_import_that_is_not_there_is_not_renamed() -> None:
    with pytest.raises(BinaryFault, match="imported 0 times"):
        binary.rename_import(bytes(wat2wasm(LOOP)), ("env", "none"), ("a", "b"))


def test_modules_are_found_in_a_file_of_something_else() -> None:
    one, other = bytes(wat2wasm(LOOP)), bytes(wat2wasm("(module (memory 3))"))
    found = list(binary.embedded_modules(b"\x7fELF" + one + bytes(40) + other + b"\xff rest"))
    assert found == [one, other]


def test_what_differs_between_two_builds_becomes_zero() -> None:
    one, other = (nested(DATA.format(at=64, text=f"kept{n * 4}{'x' * 60}")) for n in ("a", "b"))
    steady = binary.steady(one, other)
    assert steady == binary.steady(other, one)
    assert b"aaaa" not in steady and b"bbbb" not in steady and b"x" * 56 in steady


def test_the_rest_of_memory_stays_as_it_was() -> None:
    text = f"one{chr(92)}00{'y' * 40}"
    one = nested(f'(module (memory (export "m") 1) (data (i32.const 5) "{text}")'
                 f'(data (i32.const 300) "two"))')  # fmt: skip
    (module,) = binary.modules(binary.steady(one, one))
    store = Store(Engine())
    memory = Instance(store, Module(store.engine, module), []).exports(store)["m"]
    assert isinstance(memory, Memory)
    assert memory.read(store, 5, 49) == b"one\0" + b"y" * 40
    assert memory.read(store, 300, 303) == b"two"


def test_builds_that_differ_in_much_are_not_the_same() -> None:
    one, other = (nested(DATA.format(at=0, text=letter * 400)) for letter in "ab")
    with pytest.raises(BinaryFault, match="differ in 50 words"):
        binary.steady(one, other)


def test_memory_in_far_away_pieces_is_refused() -> None:
    text = '(module (memory 65536) (data (i32.const 0) "a") (data (i32.const 2000000000) "b"))'
    other = '(module (memory 65536) (data (i32.const 0) "c") (data (i32.const 2000000000) "b"))'
    with pytest.raises(BinaryFault, match="too far apart"):
        binary.steady(nested(text), nested(other))


def test_a_record_is_found_again() -> None:
    data = binary.with_custom(nested(LOOP), "mark", b"said")
    assert binary.custom(data, "mark") == b"said"


def test_a_record_of_something_that_was_changed_does_not_count() -> None:
    data = binary.with_custom(nested(DATA.format(at=0, text="before")), "mark", b"said")
    with pytest.raises(BinaryFault, match="there is no mark"):
        binary.custom(data.replace(b"before", b"after!"), "mark")


def test_a_module_without_sections_holds_no_record() -> None:
    with pytest.raises(BinaryFault, match="there is no mark"):
        binary.custom(b"\0asm\x01\0\0\0", "mark")


@pytest.mark.parametrize("data", [b"", b"text", b"\0asm\x02\0\0\0", b"\0asm\x01\0\0\0\x01"])
def test_what_is_no_wasm_is_refused(data: bytes) -> None:
    with pytest.raises(BinaryFault):
        binary.check(data)


@given(st.binary(max_size=60), st.integers(8, 400), st.integers(0, 40))
def test_nothing_but_a_fault_comes_of_broken_binaries(piece: bytes, at: int, cut: int) -> None:
    good = nested(LOOP)
    bad = good[:at] + piece + good[at + cut :]
    for attempt in (
        lambda: binary.with_event_loop(bad, "run", "begin", "turn", "pump"),
        lambda: binary.steady(bad, good),
        lambda: binary.steady(good, bad),
        lambda: binary.custom(bad, "mark"),
        lambda: list(binary.embedded_modules(bad)),
    ):
        with contextlib.suppress(BinaryFault):
            attempt()


CALLS = """
(module
  (import "env" "other" (func))
  (import "env" "spare" (func $spare (result i32)))
  (func (export "run") (param i32) (result i32)
    (if (result i32) (local.get 0) (then (call $spare)) (else (i32.const 7))){again}))
"""
SPARE = ("env", "spare")


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_call_that_is_left_out_traps(wanted: int) -> None:
    store = Store(Engine())
    module = binary.without_call(bytes(wat2wasm(CALLS.format(again=""))), SPARE)
    given = [
        Func(store, FuncType([], []), lambda: None),
        Func(store, FuncType([], [ValType.i32()]), lambda: 5),
    ]
    run = Instance(store, Module(store.engine, module), given).exports(store)["run"]
    assert isinstance(run, Func)
    if wanted:
        with pytest.raises(Trap, match="unreachable"):
            run(store, wanted)
    else:
        assert run(store, wanted) == 7


@pytest.mark.parametrize(
    "again,name,said",
    [
        ("(drop (call $spare))", SPARE, "env:spare may be called in 2 places"),
        ("", ("env", "other"), "env:other may be called in 0 places"),
        ("", ("env", "none"), "env:none is not imported"),
    ],
)
def test_a_call_that_can_not_be_told_is_not_left_out(
    again: str, name: tuple[str, str], said: str
) -> None:
    with pytest.raises(BinaryFault, match=said):
        binary.without_call(bytes(wat2wasm(CALLS.format(again=again))), name)
