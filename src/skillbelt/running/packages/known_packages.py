"""Map modules to packages: by a shipped table, else by the module's own name.

A name that is not in the table is a guess: anyone can publish a package under it. A question that
names it must show that.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from skillbelt.permission.packages import Kind, normal

_PYTHON_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(?:\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,15}")
_NODE_NAME = re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*")
_NODE_SCHEMES = re.compile(r"[a-z][a-z0-9+.-]*:")
_MAX_NODE_NAME = 214
_NONE = "-"
_NODE_NAMES = """
assert async_hooks buffer child_process cluster console constants crypto dgram
diagnostics_channel dns domain events fs http http2 https inspector module net os path
perf_hooks process punycode querystring readline repl stream string_decoder sys timers tls
trace_events tty url util v8 vm wasi worker_threads zlib
"""
_NODE_MODULES = frozenset(_NODE_NAMES.split())
# Downloads of hundreds of megabytes. An optional one is not proposed.
_HEAVY_NAMES = """
torch torchvision torchaudio tensorflow tensorflow-cpu jax jaxlib keras transformers diffusers
accelerate sentence-transformers vllm ultralytics paddlepaddle paddleocr easyocr openai-whisper
whisperx faster-whisper pyspark mxnet deepspeed bitsandbytes xformers flash-attn unsloth
torch-geometric pytorch-lightning lightning docling unstructured
puppeteer electron @tensorflow/tfjs-node
"""
_HEAVY = frozenset(_HEAVY_NAMES.split())


class PackageName(NamedTuple):
    """The package of a module. `known` says that the table has it; else it is a guess.

    `others` are further packages with the same module.
    """

    name: str
    known: bool
    others: tuple[str, ...] = ()

    @property
    def is_heavy(self) -> bool:
        """Whether it is known to take hundreds of megabytes."""
        return self.name in _HEAVY


def package_for(module: str, kind: Kind = "python") -> PackageName | None:
    """Return the package of a module, by its name in the source.

    None for a module without a package: one of the standard library or of Node.js, a relative one,
    one that is known to be part of something else, and a text that is not a name.
    """
    return _python_package(module) if kind == "python" else _node_package(module)


def is_known(package: str, kind: Kind = "python") -> bool:
    """Whether the table has a package of that name."""
    return package in (_python_packages() if kind == "python" else _node_table())


def is_standard(module: str) -> bool:
    """Whether a Python module, or its parent package, belongs to the standard library."""
    return module.partition(".")[0] in sys.stdlib_module_names


def _python_package(module: str) -> PackageName | None:
    if not _PYTHON_NAME.fullmatch(module) or is_standard(module):
        return None
    table, at = _python_table(), module
    while at:
        found = table.get(at)
        if found is not None:
            name, *others = found
            return None if name == _NONE else PackageName(name, True, tuple(others))
        at = at.rpartition(".")[0]
    top = normal("python", module.partition(".")[0]).strip("-")
    if not top or module.startswith("_") or table.get(top) == (_NONE,):
        return None
    return PackageName(top, False)


def _node_package(module: str) -> PackageName | None:
    if module.startswith("npm:"):  # as Deno writes them
        module = re.sub(r"(?<=.)@[^/]*", "", module.removeprefix("npm:"), count=1)
    if _NODE_SCHEMES.match(module) or module.startswith((".", "/", "#", "~", "@/")):
        return None
    parts = module.split("/")
    name = "/".join(parts[: 2 if module.startswith("@") else 1])
    if len(name) > _MAX_NODE_NAME or not _NODE_NAME.fullmatch(name) or name in _NODE_MODULES:
        return None
    found = _node_table().get(name)
    return None if found == (_NONE,) else PackageName(name, found is not None)


@cache
def _python_table() -> Mapping[str, tuple[str, ...]]:
    return _read_table("python_modules.txt")


@cache
def _python_packages() -> frozenset[str]:
    return frozenset(name for names in _python_table().values() for name in names) - {_NONE}


@cache
def _node_table() -> Mapping[str, tuple[str, ...]]:
    return _read_table("node_packages.txt")


def _read_table(name: str) -> Mapping[str, tuple[str, ...]]:
    """Read lines of a module and its packages; one word means both, `-` means no package."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        text = file.read()
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not line.startswith("#"):
            found[words[0]] = tuple(words[1:] or words)
    return found
