"""What a builder promises, and the values that go in and come out.

A builder of others is found by the entry point group `skillbelt.builders`: a name, and a callable
without arguments that gives an object like `Builder`.
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
    """What is built: the program's own file, and every file of the skill beside it, by path."""

    entry: str
    files: Mapping[str, bytes]


class Command(NamedTuple):
    """One program to run in the sandbox.

    In `argv`, in `env` and in those of `files` that end in `.json`, the words `{skill}`, `{out}`
    and `{work}` stand for the folders of the source, of what is made and of `files`; `{0}`, `{1}`
    and so on for those of `folders`, which are there to be read. `outputs` are the names of the
    files it makes in `{out}`.
    """

    argv: tuple[str, ...]
    outputs: tuple[str, ...]
    folders: tuple[str, ...] = ()
    files: Mapping[str, bytes] = _NO_FILES
    env: Mapping[str, str] = _NO_NAMES


class Builder(Protocol):
    """Makes a WASM component or module of a source.

    With `steady`, the same source gives the same bytes each time.
    """

    name: str
    endings: tuple[str, ...]
    steady: bool

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> Command:
        """The command that builds it, once the tools are there; RunRefused with the remedy."""

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        """The module, made of the outputs of the command."""

    def recipe(self) -> bytes:
        """What besides the source decides what comes out: versions of tools, ways of doing it."""
