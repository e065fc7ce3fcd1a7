"""C: the system's clang and wasi-libc build a module for WASI preview 1."""

from __future__ import annotations

import os

from skillbelt.errors import RunRefused
from skillbelt.running.build.protocol import BuildCommand, Progress, Source
from skillbelt.sandbox.linux.identity import trusted_program
from skillbelt.settings import Settings

_LIBRARIES = "/usr/lib/wasm32-wasi"
_PACKAGES = "clang, lld, wasi-libc and libclang-rt-14-dev-wasm32 (Debian's names)"
_FLAGS = ("--target=wasm32-wasi", "--sysroot=/usr", "-O2", "-Wall", "-fno-ident",
          "-ffile-prefix-map={skill}=.", "-Wl,--strip-all")  # fmt: skip


class CBuilder:
    """Builds all C files of the entry's folder into one module."""

    name = "c"
    endings: tuple[str, ...] = (".c",)
    steady = True

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> BuildCommand:
        """Return the build command; raises RunRefused without a compiler."""
        clang = trusted_program("clang")
        if clang is None or not os.path.isfile(os.path.join(_LIBRARIES, "libc.a")):
            raise RunRefused(f"C is built with clang and wasi-libc: install {_PACKAGES}")
        folder = os.path.dirname(source.entry)
        units = sorted(
            path for path in source.files if path.endswith(".c") and os.path.dirname(path) == folder
        )
        named = [f"{{skill}}/{path}" for path in units]
        return BuildCommand((clang, *_FLAGS, *named, "-o", "{out}/skill.wasm"), ("skill.wasm",))

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        """Return the module unchanged."""
        return made[0]

    def recipe(self) -> bytes:
        """Return the flags; the compiler's version shows in its output."""
        return " ".join(_FLAGS).encode()
