"""Files that come with a message: told of in its text, and open to the runs that it leads to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError
from skillbelt.files.contain import FOLLOW_FILE
from skillbelt.permission.rules import Rule
from skillbelt.text import one_line, xml
from skillbelt.values import Limits

_WILD = "*?"  # what is no letter in a rule


class Attached(NamedTuple):
    """A file of the host's that somebody gave. `text` is its beginning, "" when it is no text."""

    path: str
    size: int
    text: str = ""
    whole: bool = False


def attached(paths: Iterable[str | os.PathLike[str]], limits: Limits) -> list[Attached]:
    """The files, in their order; ConfigError for what is not there or is no file."""
    return [_attached(os.path.abspath(path), limits.max_resource_excerpt_chars) for path in paths]


def _attached(path: str, most: int) -> Attached:
    try:
        # Not waiting for what is no file: a pipe that nobody writes to would never open.
        handle = os.open(path, FOLLOW_FILE)
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{one_line(path)} is not a file that can be given")
            data = file.read(4 * most)
    except OSError as error:
        raise ConfigError(f"{one_line(path)} can not be read: {error.strerror}") from error
    text = "" if b"\0" in data else data.decode("utf-8", "ignore")
    if len(text.encode()) < len(data) - 3:  # more than a character that was cut
        text = ""
    return Attached(path, found.st_size, text[:most], bool(text) and len(data) == found.st_size)


def message_with(text: str, files: Sequence[Attached]) -> Message:
    """The user's message, with what a model has to know of the files."""
    if not files:
        return {"role": "user", "content": text}
    blocks = "\n".join(map(_block, files))
    return {
        "role": "user",
        "content": f"{text}\n\n{blocks}",
        "said": text,
        "files": [one.path for one in files],
    }


def _block(file: Attached) -> str:
    # A file that closes the block would speak as the user from there on.
    shown = file.text.replace("</attached_file", "<\\/attached_file")
    if not shown:
        shown = "(not text; a run can have it as an input)"
    elif not file.whole:
        shown = f"{shown}\n(cut; a run can have all of it as an input)"
    name, place = xml(os.path.basename(file.path)), xml(f"host://{file.path}")
    head = f'<attached_file name="{name}" input="{place}" bytes="{file.size}">'
    return f"{head}\n{shown}\n</attached_file>"


def rules_for(files: Iterable[Attached]) -> tuple[Rule, ...]:
    """Whoever gives a file lets runs of that conversation have it."""
    paths = [os.path.realpath(one.path) for one in files]
    return tuple(
        Rule("host_file", path, "allow") for path in paths if not set(_WILD).intersection(path)
    )
