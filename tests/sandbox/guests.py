"""Small guests for the WASM sandbox, written in the text form of WASM."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from functools import lru_cache
from typing import Any

from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import Place

_IMPORTS = {
    "args_get": "(param i32 i32) (result i32)",
    "args_sizes_get": "(param i32 i32) (result i32)",
    "environ_get": "(param i32 i32) (result i32)",
    "environ_sizes_get": "(param i32 i32) (result i32)",
    "fd_close": "(param i32) (result i32)",
    "fd_read": "(param i32 i32 i32 i32) (result i32)",
    "fd_write": "(param i32 i32 i32 i32) (result i32)",
    "path_link": "(param i32 i32 i32 i32 i32 i32 i32) (result i32)",
    "path_open": "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)",
    "path_rename": "(param i32 i32 i32 i32 i32 i32) (result i32)",
    "path_symlink": "(param i32 i32 i32 i32 i32) (result i32)",
    "path_unlink_file": "(param i32 i32 i32) (result i32)",
    "poll_oneoff": "(param i32 i32 i32 i32) (result i32)",
    "proc_exit": "(param i32)",
    "sock_accept": "(param i32 i32 i32) (result i32)",
}
# `$say stream from length`, `$number n` (one byte, as two decimal digits and a newline).
_LIBRARY = """
(memory (export "memory") 4)
(func $say (param $to i32) (param $from i32) (param $size i32)
  (i32.store (i32.const 0) (local.get $from)) (i32.store (i32.const 4) (local.get $size))
  (drop (call $fd_write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 8))))
(func $number (param $n i32)
  (i32.store8 (i32.const 16) (i32.add (i32.const 48) (i32.div_u (local.get $n) (i32.const 10))))
  (i32.store8 (i32.const 17) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
  (i32.store8 (i32.const 18) (i32.const 10))
  (call $say (i32.const 1) (i32.const 16) (i32.const 3)))
"""
# What `$take stream` reads is written to stdout, to the end.
_TAKE = """
(func $take (param $from i32)
  (loop $more
    (i32.store (i32.const 24) (i32.const 65536)) (i32.store (i32.const 28) (i32.const 65536))
    (if (i32.eqz (call $fd_read (local.get $from) (i32.const 24) (i32.const 1) (i32.const 32)))
      (then (if (i32.load (i32.const 32)) (then
        (call $say (i32.const 1) (i32.const 65536) (i32.load (i32.const 32)))
        (br $more)))))))
"""


@lru_cache(maxsize=64)
def wat(text: str) -> bytes:
    """The module that the text means."""
    from wasmtime import wat2wasm

    return bytes(wat2wasm(text))


def module(start: str, *more: str) -> bytes:
    """A module for WASI preview 1 that does this when it is started."""
    imports = "\n".join(
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} {kind}))'
        for name, kind in _IMPORTS.items()
    )
    rest = "\n".join((_LIBRARY, _TAKE, *more))
    return wat(f'(module {imports} {rest} (func $start (export "_start") {start}))')


def component(run: str, *more: str, version: str = "0.2.0") -> bytes:
    """A component for WASI 0.2 whose `run` gives this number: 0 is well, 1 is not."""
    return wat(f"""(component
      (core module $m (memory (export "memory") 1) {" ".join(more)}
        (func (export "run") (result i32) {run}))
      (core instance $i (instantiate $m))
      (func $run (result (result)) (canon lift (core func $i "run")))
      (instance $r (export "run" (func $run)))
      (export "wasi:cli/run@{version}" (instance $r)))""")


def controlled(code: int) -> bytes:
    """A component that says its exit code by `skillbelt:host/control`."""
    return wat(f"""(component
      (import "skillbelt:host/control@0.1.0"
        (instance $c (export "exit" (func (param "code" s32)))))
      (core func $exit (canon lower (func $c "exit")))
      (core module $m
        (import "c" "exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "run") (result i32) (call $exit (i32.const {code})) (i32.const 0)))
      (core instance $ci (export "exit" (func $exit)))
      (core instance $i (instantiate $m (with "c" (instance $ci))))
      (func $run (result (result)) (canon lift (core func $i "run")))
      (instance $r (export "run" (func $run)))
      (export "wasi:cli/run@0.2.6" (instance $r)))""")


def text_at(place: int, text: str) -> str:
    """A text in the memory of a module."""
    escaped = "".join(f"\\{byte:02x}" for byte in text.encode())
    return f'(data (i32.const {place}) "{escaped}")'


def saying(text: str, stream: int = 1) -> str:
    """The call that says the text which lies at 1024."""
    return f"(call $say (i32.const {stream}) (i32.const 1024) (i32.const {len(text.encode())}))"


def hello(text: str = "hello\n", code: int = 0) -> bytes:
    """Says something on both streams and ends with the code."""
    end = f"(call $proc_exit (i32.const {code}))"
    return module(saying(text) + saying(text, 2) + end, text_at(1024, text))


ECHO = "(call $take (i32.const 0))"
SPIN = "(loop (br 0))"
SLEEP = """
(i64.store (i32.const 64) (i64.const 0)) (i32.store8 (i32.const 72) (i32.const 0))
(i32.store (i32.const 80) (i32.const 1)) (i64.store (i32.const 88) (i64.const 1000000000000))
(drop (call $poll_oneoff (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 32)))
"""
# Arguments and variables, each ended by a NUL, with a line between.
WORDS = """
(drop (call $args_sizes_get (i32.const 40) (i32.const 44)))
(drop (call $args_get (i32.const 4096) (i32.const 65536)))
(call $say (i32.const 1) (i32.const 65536) (i32.load (i32.const 44)))
(i32.store8 (i32.const 16) (i32.const 10)) (call $say (i32.const 1) (i32.const 16) (i32.const 1))
(drop (call $environ_sizes_get (i32.const 40) (i32.const 44)))
(drop (call $environ_get (i32.const 4096) (i32.const 65536)))
(call $say (i32.const 1) (i32.const 65536) (i32.load (i32.const 44)))
"""


def opening(path: str, *, write: bool = False) -> bytes:
    """Tries the path from each of its folders; what it gets is on stdout, errors as numbers.

    To write means to make a file of that name.
    """
    flags, rights = (1, 64) if write else (0, 2)
    size = len(path.encode())
    done = "" if write else "(call $take (i32.load (i32.const 36)))"
    return module(
        f"""(local $fd i32) (local $error i32)
        (local.set $fd (i32.const 3))
        (loop $next
          (local.set $error (call $path_open (local.get $fd) (i32.const 1) (i32.const 1024)
            (i32.const {size}) (i32.const {flags}) (i64.const {rights}) (i64.const {rights})
            (i32.const 0) (i32.const 36)))
          (if (i32.eqz (local.get $error)) (then {done}))
          (call $number (local.get $error))
          (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $fd) (i32.const 12))))""",
        text_at(1024, path),
    )


def put(place: Place, name: str, data: bytes) -> str:
    """A file beside the workspace, in a folder that is mounted at `/guests`; its path inside."""
    folder = os.path.join(os.path.dirname(place.folder), "guests")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
    return f"/guests/{name}"


def job(place: Place, data: bytes, *argv: str, **fields: Any) -> Job:
    """A job that runs this guest, with the workspace at its own place."""
    path = put(place, fields.pop("name", "guest.wasm"), data)
    folder = os.path.join(os.path.dirname(place.folder), "guests")
    mounts = (Mount(place.folder, place.target, True), Mount(folder, "/guests"))
    given = {"mounts": mounts, "env": {}, **fields}
    return place.job(path, *argv, **given)


def fetching(url: str, method: str = "GET", body: str = "") -> bytes:
    """A component that asks for something; its exit code is the first byte of what it gets.

    200 is an error of the request, and 201 an answer that is empty.
    """
    sizes = [len(each) for each in (method, url, body)]
    return wat(f"""(component
      (import "skillbelt:host/control@0.1.0"
        (instance $c (export "exit" (func (param "code" s32)))))
      (import "skillbelt:host/http@0.1.0" (instance $h
        (type $ask (record (field "method" string) (field "url" string)
          (field "headers" (list (tuple string string))) (field "body" (list u8))))
        (export "request" (type $request (eq $ask)))
        (type $got (record (field "status" u16) (field "headers" (list (tuple string string)))
          (field "body" (list u8))))
        (export "response" (type $response (eq $got)))
        (export "fetch" (func (param "request" $request)
          (result (result $response (error string)))))))
      (core module $memory
        (memory (export "memory") 64)
        (global $next (mut i32) (i32.const 65536))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
          (local $at i32)
          (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
          (global.set $next (i32.add (local.get $at) (local.get 3)))
          (local.get $at)))
      (core instance $mem (instantiate $memory))
      (core func $exit (canon lower (func $c "exit")))
      (core func $fetch (canon lower (func $h "fetch")
        (memory (core memory $mem "memory")) (realloc (core func $mem "realloc"))))
      (core module $m
        (import "m" "memory" (memory 64))
        (import "h" "exit" (func $exit (param i32)))
        (import "h" "fetch" (func $fetch
          (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))
        (data (i32.const 1024) "{method}") (data (i32.const 2048) "{url}")
        (data (i32.const 4096) "{body}")
        (func (export "run") (result i32)
          (call $fetch (i32.const 1024) (i32.const {sizes[0]}) (i32.const 2048)
            (i32.const {sizes[1]}) (i32.const 0) (i32.const 0) (i32.const 4096)
            (i32.const {sizes[2]}) (i32.const 512))
          (call $exit (if (result i32) (i32.load8_u (i32.const 512)) (then (i32.const 200))
            (else (if (result i32) (i32.load (i32.const 532))
              (then (i32.load8_u (i32.load (i32.const 528)))) (else (i32.const 201))))))
          (i32.const 0)))
      (core instance $given (export "exit" (func $exit)) (export "fetch" (func $fetch)))
      (core instance $i (instantiate $m (with "m" (instance $mem)) (with "h" (instance $given))))
      (func $run (result (result)) (canon lift (core func $i "run")))
      (instance $r (export "run" (func $run)))
      (export "wasi:cli/run@0.2.0" (instance $r)))""")


def hosts() -> Settings:
    """Settings with a cache of host components, which take long to make: one for all tests."""
    folder = os.path.join(tempfile.gettempdir(), f"skillbelt-test-hosts-{os.getuid()}")
    os.makedirs(folder, 0o700, exist_ok=True)
    return Settings(cache_dir=folder)


def copy_hosts(target: str) -> None:
    """Copy the host components into another cache folder while other tests add theirs."""
    for kind in ("wasm", "wasm-hosts"):
        folder = os.path.join(hosts().cache_dir, kind)
        os.makedirs(folder, 0o700, exist_ok=True)
        os.makedirs(os.path.join(target, kind), 0o700)
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):  # a part that got its final name
                shutil.copy2(os.path.join(folder, name), os.path.join(target, kind, name))
