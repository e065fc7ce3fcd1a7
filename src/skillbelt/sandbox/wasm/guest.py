"""Compile a module, or load and run it, in a worker of the WASM sandbox.

`worker.py` loads this file by its path, in its own process. It imports `wasmtime` and no other
module of skillbelt; the runtime itself never loads it.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import component as parts

MODULE, COMPONENT = "module", "component"
TRAPPED, REFUSED, FAILED = 134, 126, 1
# Increase it when the same module compiles to other machine code.
LAYOUT = 1
_PREVIEW_1 = "wasi_snapshot_preview1"
_RUN = "wasi:cli/run@0.2.0"  # the engine accepts every 0.2.N for it
_PROVIDED = re.compile(
    r"wasi:(cli|io|clocks|filesystem|random|sockets|http)/[a-z0-9-]+@0\.2\.\d+"
    r"|skillbelt:host/(control|http)@0\.1\.\d+"
)
_LATER = re.compile(r"wasi:[a-z-]+/[a-z0-9-]+@0\.3\.")
_SHOWN = 200
_NEAR = 7 / 8
_PAGE = os.sysconf("SC_PAGE_SIZE")
# A text in an error of the engine, and the limit it stands for.
_LIMITS = (
    ("all fuel consumed", "max_wasm_fuel"),
    ("exceeds memory limits", "max_memory_bytes"),
    ("Cannot allocate memory", "max_memory_bytes"),
    ("exceeds table limits", "max_wasm_elements"),
    ("count too high", "max_wasm_instances"),
)

Ask = Callable[[Mapping[str, object], bytes], "tuple[dict[str, Any], bytes]"]


class InvalidModule(Exception):
    """The module cannot be run here; the text says why."""


class _Exit(Exception):
    """The guest exits."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"exit {code}")


class LoadedModule(NamedTuple):
    """A compiled module, ready to run. `http`: it imports `wasi:http`, which is not provided."""

    kind: str
    item: Any
    http: bool = False


class WasmEngine:
    """The engine and the functions it provides to modules, created before any module is loaded."""

    def __init__(self, fuel: bool = False) -> None:
        config = wasmtime.Config()
        config.consume_fuel = fuel
        config.wasm_threads = False
        config.wasm_memory64 = False
        self.fuel = fuel
        self.engine = wasmtime.Engine(config)
        self.code: int | None = None
        self.ask: Ask | None = None
        self.modules = self._module_linker()
        self.components = self._component_linker()

    def _module_linker(self) -> wasmtime.Linker:
        linker = wasmtime.Linker(self.engine)
        linker.define_wasi()
        # The engine's own version refuses exit codes from 126 on.
        linker.allow_shadowing = True
        kind = wasmtime.FuncType([wasmtime.ValType.i32()], [])
        linker.define_func(_PREVIEW_1, "proc_exit", kind, _exit)
        return linker

    def _component_linker(self) -> parts.Linker:
        linker = parts.Linker(self.engine)
        linker.add_wasip2()
        with linker.root() as root:
            with root.add_instance("skillbelt:host/control@0.1.0") as control:
                control.add_func("exit", self._set_exit_code)
            with root.add_instance("skillbelt:host/http@0.1.0") as http:
                http.add_func("fetch", self._fetch)
        return linker

    def _set_exit_code(self, _: object, code: int) -> None:
        self.code = code

    def _fetch(self, _: object, request: Any) -> Any:
        """Return a response, or the text of an error: the component model tells them by type."""
        if self.ask is None:
            return "network access is not granted"
        asked = {"method": request.method, "url": request.url, "headers": request.headers}
        answer, body = self.ask(asked, request.body)
        if "error" in answer:
            return str(answer["error"])
        response: Any = parts.Record()
        response.status = int(answer["status"])
        response.headers = [(str(name), str(value)) for name, value in answer["headers"]]
        response.body = body
        return response


def _exit(code: int) -> None:
    raise _Exit(code)


# --- compiling -----------------------------------------------------------------------------------


def compile_module(wasm: WasmEngine, data: bytes) -> tuple[str, bytes]:
    """Return the kind of module and its machine code; raises InvalidModule."""
    try:
        if data[4:8] == b"\x01\0\0\0":
            module = wasmtime.Module(wasm.engine, data)
            _check_module(module)
            return MODULE, bytes(module.serialize())
        component = parts.Component(wasm.engine, data)
        _check_component(wasm, component)
        return COMPONENT, bytes(component.serialize())
    except wasmtime.WasmtimeError as error:
        raise InvalidModule(f"is not a valid WASM module: {cause(str(error))}") from error


def _check_module(module: wasmtime.Module) -> None:
    for each in module.imports:
        if each.module != _PREVIEW_1:
            name = f"{each.module}.{each.name}"
            raise InvalidModule(f"needs {name[:_SHOWN]!r}, which no sandbox provides to a module")
    kinds = {each.name: each.type for each in module.exports}
    start = kinds.get("_start")
    if not isinstance(start, wasmtime.FuncType) or start.params or start.results:
        raise InvalidModule("is not a command: it exports no function '_start'")


def _check_component(wasm: WasmEngine, component: parts.Component) -> None:
    found = component.type
    wanted = [name for name in found.imports(wasm.engine) if not _PROVIDED.fullmatch(name)]
    offered = list(found.exports(wasm.engine))
    later = [name for name in (*wanted, *offered) if _LATER.match(name)]
    if later:
        raise InvalidModule(
            f"is built for WASI 0.3 ({later[0][:_SHOWN]}), which the engine cannot run yet; "
            "build it for WASI 0.2"
        )
    if wanted:
        raise InvalidModule(
            f"needs {wanted[0][:_SHOWN]!r}, which no sandbox provides to a component"
        )
    if not any(re.fullmatch(r"wasi:cli/run@0\.2\.\d+", name) for name in offered):
        raise InvalidModule("is not a command: it exports no 'wasi:cli/run@0.2'")


# --- loading and running -------------------------------------------------------------------------


def load(wasm: WasmEngine, kind: str, handle: int) -> LoadedModule:
    """Load machine code from the handle; the file is mapped, not read."""
    path = f"/proc/self/fd/{handle}"
    if kind == MODULE:
        return LoadedModule(kind, wasmtime.Module.deserialize_file(wasm.engine, path))
    component = parts.Component.deserialize_file(wasm.engine, path)
    imports = component.type.imports(wasm.engine)
    return LoadedModule(kind, component, any(name.startswith("wasi:http/") for name in imports))


def warm_up(wasm: WasmEngine) -> None:
    """Do the first steps of every run once in advance, to start a run faster."""
    store, wasi = wasmtime.Store(wasm.engine), wasmtime.WasiConfig()
    wasi.argv, wasi.env = ["a"], [("a", "b")]
    store.set_wasi(wasi)
    store.close()


def wasi_for(
    task: Mapping[str, Any], streams: tuple[int, int, int], folders: list[tuple[int, str, bool]]
) -> wasmtime.WasiConfig:
    """Return the guest's arguments, environment, output streams and folders.

    Without its input, for which the engine starts threads; see `give_input`.
    """
    wasi = wasmtime.WasiConfig()
    wasi.argv = task["argv"]
    wasi.env = list(task["env"].items())
    if task["terminal"]:
        # Only inherited streams are a terminal for the guest. stderr of the process stays
        # /dev/null, for messages of the engine itself.
        for place, handle in enumerate(streams[:2]):
            os.dup2(handle, place)
        wasi.inherit_stdout()
    else:
        wasi.stdout_file = f"/proc/self/fd/{streams[1]}"
    wasi.stderr_file = f"/proc/self/fd/{streams[2]}"
    for handle, path, writable in folders:
        wasi.preopen_dir(f"/proc/self/fd/{handle}", path, writable)
    return wasi


def give_input(wasi: wasmtime.WasiConfig, task: Mapping[str, Any], handle: int) -> None:
    """Connect the guest's stdin to the handle."""
    if task["terminal"]:
        wasi.inherit_stdin()
    else:
        wasi.stdin_file = f"/proc/self/fd/{handle}"


def run(
    wasm: WasmEngine,
    loaded: LoadedModule,
    task: Mapping[str, Any],
    wasi: wasmtime.WasiConfig,
    memory: int,
) -> dict[str, object]:
    """Run the guest to its end; return the exit code, a message and the limits it hit.

    `memory` is a handle of `/proc/self/statm`.
    """
    store = wasmtime.Store(wasm.engine)
    most = task["limits"]
    count = most["max_wasm_instances"]
    store.set_limits(most["max_memory_bytes"], most["max_wasm_elements"], count, count, count)
    if wasm.fuel:
        store.set_fuel(most["max_wasm_fuel"])
    store.set_wasi(wasi)
    too_long: list[int] = []
    # With a handler the guest's write fails with an error; without one the process is killed.
    signal.signal(signal.SIGXFSZ, lambda number, _: too_long.append(number))
    before = _data_bytes(memory)
    code, said, limits = _call(wasm, loaded, store)
    if too_long:
        limits.append("max_written_file_bytes")
    if code and _data_bytes(memory) - before >= most["max_memory_bytes"] * _NEAR:
        # Only the guest sees that an allocation failed.
        limits.append("max_memory_bytes")
    return {"code": code & 0xFF, "said": said, "limits": limits}


def _call(
    wasm: WasmEngine, loaded: LoadedModule, store: wasmtime.Store
) -> tuple[int, str, list[str]]:
    try:
        if loaded.kind == MODULE:
            return _call_module(wasm, loaded.item, store), "", []
        if loaded.http:
            # Some tools make every component import it; one that does not use it can run.
            wasm.components.define_unknown_imports_as_traps(loaded.item)
        return _call_component(wasm, loaded.item, store), "", []
    except _Exit as error:
        return error.code, "", []
    except wasmtime.ExitTrap as error:
        return error.code if wasm.code is None else wasm.code, "", []
    except (wasmtime.WasmtimeError, wasmtime.Trap) as error:
        return _failure(str(error))


def _call_module(wasm: WasmEngine, module: wasmtime.Module, store: wasmtime.Store) -> int:
    instance = wasm.modules.instantiate(store, module)
    start = instance.exports(store)["_start"]
    assert isinstance(start, wasmtime.Func)
    start(store)
    return 0


def _call_component(wasm: WasmEngine, component: parts.Component, store: wasmtime.Store) -> int:
    instance = wasm.components.instantiate(store, component)
    found = component.get_export_index("run", component.get_export_index(_RUN))
    call = instance.get_func(store, found) if found is not None else None
    if call is None:
        raise wasmtime.WasmtimeError("'wasi:cli/run' has no function 'run'")
    result = call(store)
    if wasm.code is not None:
        return wasm.code
    return 0 if getattr(result, "tag", "ok") == "ok" else FAILED


def _failure(text: str) -> tuple[int, str, list[str]]:
    limits = [limit for mark, limit in _LIMITS if mark in text]
    reason = cause(text)
    if "executing at wasm backtrace" not in text and "wasm trap" not in text:
        return REFUSED, f"the module cannot be started: {reason}", limits
    return TRAPPED, f"the module trapped: {reason}", limits


def cause(text: str) -> str:
    """Return the last cause in an error of the engine, on one line."""
    lines = [line.strip() for line in text.split("Caused by:")[-1].splitlines() if line.strip()]
    last = re.sub(r"^\d+: ", "", lines[-1]) if lines else "no reason given"
    last = last.removeprefix("wasm trap: ").replace("wasm `unreachable` instruction executed",
                                                    "unreachable")  # fmt: skip
    return "".join(char if char.isprintable() else "?" for char in last)[:_SHOWN]


def _data_bytes(memory: int) -> int:
    """Return the size of the process's writable private memory."""
    return int(os.pread(memory, 200, 0).split()[5]) * _PAGE


# --- bytes ---------------------------------------------------------------------------------------
# wasmtime-py converts lists one value at a time, which takes a second per megabyte of bytes.


def _bytes_to_c(kind: Any, store: Any, value: Any, target: Any) -> None:
    if not (kind._is_bytes() and isinstance(value, bytes)):
        _list_to_c(kind, store, value, target)
        return
    raw = ffi.wasmtime_component_vallist_t()
    ffi.wasmtime_component_vallist_new_uninit(raw, len(value))
    ctypes.memmove(raw.data, b"".join(map(_encoded_byte, value)), len(value) * _VALUE_BYTES)
    target.contents.kind = ffi.WASMTIME_COMPONENT_LIST
    target.contents.of.list = raw


def _bytes_from_c(kind: Any, value: Any) -> Any:
    if not kind._is_bytes():
        return _list_from_c(kind, value)
    found = value.of.list
    try:
        whole = ctypes.string_at(found.data, found.size * _VALUE_BYTES) if found.size else b""
        return whole[_BYTE_AT::_VALUE_BYTES]
    finally:
        ffi.wasmtime_component_vallist_delete(ctypes.byref(found))


def _encode_bytes() -> list[bytes]:
    values = []
    for number in range(256):
        value = ffi.wasmtime_component_val_t()
        value.kind = ffi.WASMTIME_COMPONENT_U8
        value.of.u8 = number
        values.append(bytes(value))
    return values


_list_to_c, _list_from_c = parts.ListType.convert_to_c, parts.ListType.convert_from_c
_VALUE_BYTES = ctypes.sizeof(ffi.wasmtime_component_val_t)
_BYTE_AT = ffi.wasmtime_component_val_t.of.offset
_encoded_byte = _encode_bytes().__getitem__
setattr(parts.ListType, "convert_to_c", _bytes_to_c)  # noqa: B010
setattr(parts.ListType, "convert_from_c", _bytes_from_c)  # noqa: B010
