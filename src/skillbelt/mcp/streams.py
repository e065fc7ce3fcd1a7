"""Standard input and output, taken away from everything else in the process.

Light, so that it is done before anything else is imported that might write there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from skillbelt.errors import ConfigError


class Wire(NamedTuple):
    """Handles that carry messages."""

    read: int
    write: int


@contextmanager
def taken() -> Iterator[Wire]:
    """The process's own input and output. Others read nothing meanwhile, and write to stderr."""
    try:
        wire = Wire(os.dup(0), os.dup(1))
    except OSError as error:
        raise ConfigError(
            "standard input or output is closed: start this from an MCP client, or give --http"
        ) from error
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield wire
    finally:
        os.dup2(wire.read, 0)
        os.dup2(wire.write, 1)
        # The reader may still wait in the one, so it is left to the end of the process.
        os.close(wire.write)
