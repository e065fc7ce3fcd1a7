"""The JSON document of a failed command: one, and only if it printed no other."""

from __future__ import annotations

import json

from skillbelt.errors import SkillbeltError
from skillbelt.text import one_line

INTERRUPTED = 130  # the exit code after Ctrl-C


class Printed:
    """Whether the command printed its document already: an error must not add a second one."""

    document = False


def print_error(error: dict[str, object]) -> None:
    """Print the document of an error on one line, since a stream of lines may precede it."""
    if not Printed.document:
        Printed.document = True
        print(json.dumps({"error": error}), flush=True)


def describe(kind: str, message: str, remedy: str, exit_code: int) -> dict[str, object]:
    """Return an error in the form of every document."""
    return {"kind": kind, "message": one_line(message), "remedy": remedy, "exit_code": exit_code}


def describe_error(error: SkillbeltError) -> dict[str, object]:
    """Return one of our errors in the form of every document, with its facts."""
    about = describe(error.kind, str(error), error.remedy, error.exit_code)
    return {**about, **error.fields()}
