"""Files attached to a message: shown in its text, and readable by the runs it causes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError, PathEscape
from skillbelt.files.contain import FOLLOW_FILE, open_file
from skillbelt.permission.rules import Rule
from skillbelt.text import one_line, xml
from skillbelt.values import Limits

_WILDCARDS = "*?"


class AttachedFile(NamedTuple):
    """A file of the host. `text` is its beginning, "" when it is not text."""

    path: str
    size: int
    text: str = ""
    whole: bool = False


def attach_files(
    paths: Iterable[str | os.PathLike[str]], limits: Limits, fence: str = ""
) -> list[AttachedFile]:
    """Read the files in order; ConfigError for a missing path or one that is not a file.

    With a `fence`, every file must lie in that folder, and no link may lead out of it.
    """
    most = limits.max_resource_excerpt_chars
    return [_attach(os.path.abspath(path), most, fence) for path in paths]


def _attach(path: str, most: int, fence: str) -> AttachedFile:
    try:
        # Without blocking: opening a named pipe would wait for a writer.
        handle = open_file(path, fence) if fence else os.open(path, FOLLOW_FILE)
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{one_line(path)} is not a regular file")
            data = file.read(4 * most)
    except PathEscape as error:
        raise ConfigError(f"{one_line(path)} is not attached: {error}") from error
    except OSError as error:
        raise ConfigError(f"{one_line(path)} cannot be read: {error.strerror}") from error
    text = "" if b"\0" in data else data.decode("utf-8", "ignore")
    if len(text.encode()) < len(data) - 3:  # more than a character cut at the end
        text = ""
    return AttachedFile(path, found.st_size, text[:most], bool(text) and len(data) == found.st_size)


def message_with(text: str, files: Sequence[AttachedFile]) -> Message:
    """Return the user message with the files in it."""
    if not files:
        return {"role": "user", "content": text}
    blocks = "\n".join(map(_format_file, files))
    return {
        "role": "user",
        "content": f"{text}\n\n{blocks}",
        "said": text,
        "files": [one.path for one in files],
    }


def _format_file(file: AttachedFile) -> str:
    # A file must not close the block: the rest of it would look like the user's words.
    shown = file.text.replace("</attached_file", "<\\/attached_file")
    if not shown:
        shown = "(not text; a run can take it as an input)"
    elif not file.whole:
        shown = f"{shown}\n(truncated; a run can take the whole file as an input)"
    name, uri = xml(os.path.basename(file.path)), xml(f"host://{file.path}")
    head = f'<attached_file name="{name}" input="{uri}" bytes="{file.size}">'
    return f"{head}\n{shown}\n</attached_file>"


def rules_for(files: Iterable[AttachedFile]) -> tuple[Rule, ...]:
    """Return rules that let runs of the conversation read the attached files."""
    paths = [os.path.realpath(one.path) for one in files]
    return tuple(
        Rule("host_file", path, "allow") for path in paths if not set(_WILDCARDS).intersection(path)
    )
