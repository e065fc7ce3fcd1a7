"""The protocol of builders, with the values they take and return.

Other packages add builders by the entry point group `skillbelt.builders`: a name, and a callable
without arguments that returns an object like `Builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from skillbelt.settings import Settings

Progress = Callable[[str], None]
ENTRY_POINTS = "skillbelt.builders"
_NO_FILES: Mapping[str, bytes] = MappingProxyType({})
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Source(NamedTuple):
    """The input of a build: the program's main file, and all files of the skill by path.

    `packages` is a folder of the host with the `node_modules` that the skill declares, if any.
    """

    entry: str
    files: Mapping[str, bytes]
    packages: str = ""


class BuildCommand(NamedTuple):
    """One program to run in the sandbox.

    In `argv`, in `env` and in those of `files` that end in `.json`, the placeholders `{skill}`,
    `{out}` and `{work}` stand for the folders of the source, of the outputs and of `files`; `{0}`,
    `{1}` and so on for the read-only `folders`. `outputs` are the names of the files it creates in
    `{out}`.
    """

    argv: tuple[str, ...]
    outputs: tuple[str, ...]
    folders: tuple[str, ...] = ()
    files: Mapping[str, bytes] = _NO_FILES
    env: Mapping[str, str] = _NO_NAMES


class Builder(Protocol):
    """Builds a WASM component or module from a source.

    With `steady`, builds are reproducible: the same source gives the same bytes.
    """

    name: str
    endings: tuple[str, ...]
    steady: bool

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> BuildCommand:
        """Install the tools and return the build command; raises RunRefused with the remedy."""

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        """Return the module, made from the outputs of the command."""

    def recipe(self) -> bytes:
        """Return everything else that determines the result: versions of tools, flags."""
