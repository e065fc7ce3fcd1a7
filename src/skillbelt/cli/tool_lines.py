"""Tool calls for a reader: one line for a call, its outcome, and the files it changed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from skillbelt.agent.events import ToolCall, ToolResponse
from skillbelt.cli.output import count
from skillbelt.running.outputs import OutputFile
from skillbelt.text import describe_seconds, exact, one_line, shorten
from skillbelt.untrusted_json import read_json

# The verb for each kind of tool, with the argument that is its object.
_VERBS: Mapping[str, tuple[str, str]] = {
    "skill": ("load", "name"),
    "skill_load": ("load", "skill"),
    "claude_skill": ("load", "skill"),
    "skill_list_docs": ("list the documents of", "skill"),
    "skill_select_docs": ("select documents of", "skill"),
    "skill_unload": ("unload", "skill"),
    "load_resource": ("read", "relative_path"),
    "read_file": ("read", "file_name"),
    "claude_read": ("read", "file_path"),
    "skill_run": ("run", "command"),
    "claude_bash": ("run", "command"),
    "execute_skill": ("call", "skill"),
    "skill_search": ("search for", "query"),
    "skill_list": ("list the skills", ""),
    "skill_poll": ("look at the run", "run_id"),
}
RUNS = ("skill_run", "claude_bash", "execute_skill")
_MAX_CALL_CHARS = 400
_MAX_REASON_CHARS = 300
_MAX_DIFF_LINES = 30
# Longer files are only named: comparing them would take too long.
_MAX_COMPARED_LINES = 1_000
_MAX_COMPARED_CHARS = 100_000
_MAX_LINE_CHARS = 200


def kinds_by_name(names: Mapping[str, str]) -> dict[str, str]:
    """Return the kind of each tool by the name under which it is offered."""
    return {name: kind for kind, name in names.items()}


def read_arguments(call: ToolCall) -> Mapping[str, object]:
    """Return the arguments of a call; none when the model did not write an object."""
    try:
        found = read_json(call.arguments) if isinstance(call.arguments, str) else call.arguments
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def describe_call(call: ToolCall, kind: str = "") -> str:
    """Return a call in one line: what it does if the kind of tool is known."""
    given = read_arguments(call)
    verb, argument = _VERBS.get(kind, ("", ""))
    if not verb or (argument and not isinstance(given.get(argument), str)):
        text = json.dumps(call.arguments, ensure_ascii=False, default=str)
        arguments = call.arguments if isinstance(call.arguments, str) else text
        return shorten(one_line(f"{call.name} {arguments}"), _MAX_CALL_CHARS)
    what = exact(str(given[argument])) if argument else ""
    skill = given.get("skill")
    of = f" ({one_line(skill)})" if isinstance(skill, str) and argument != "skill" else ""
    return f"{shorten(f'{verb} {what}'.strip(), _MAX_CALL_CHARS)}{of}"


def describe_outcome(response: ToolResponse) -> str:
    """Return how a call ended, in a few words; "" when there is nothing to say."""
    if response.error:
        return shorten(one_line(response.error), _MAX_REASON_CHARS)
    data, parts = response.data, []
    if data.get("timed_out"):
        parts.append("timed out")
    elif data.get("cancelled"):
        parts.append("cancelled")
    elif isinstance(code := data.get("exit_code"), int):
        parts.append(f"exit {code}" if code else "")
    names = data.get("names")
    if isinstance(names, list):
        parts.append(count(len(names), "skill"))
    parts.append(_duration(data.get("duration_ms")))
    return ", ".join(filter(None, parts))


def succeeded(response: ToolResponse) -> bool:
    """Whether the call succeeded."""
    data = response.data
    bad = data.get("exit_code") or data.get("timed_out") or data.get("cancelled")
    return not (response.error or bad)


def _duration(milliseconds: object) -> str:
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return ""
    return describe_seconds(milliseconds / 1000)


# Files


class FileChange(NamedTuple):
    """A file that was written; `before` is None if it is new, a text is None if it is binary."""

    name: str
    before: OutputFile | None
    after: OutputFile


class WrittenFiles:
    """The files of a conversation's workspace, and which of them changed since the last check."""

    def __init__(self, look: Callable[[], Iterable[OutputFile]]) -> None:
        self._look = look
        self._known: dict[str, OutputFile] = {}

    def mark(self) -> None:
        """Record the current files."""
        self._known = {one.name: one for one in self._look()}

    def changes(self) -> list[FileChange]:
        """Return the changes since the last record, and record the current files."""
        before = self._known
        self.mark()
        return [
            FileChange(name, before.get(name), one)
            for name, one in sorted(self._known.items())
            if before.get(name) != one
        ]


def describe_change(change: FileChange) -> str:
    """Return a change in one line."""
    name, after = one_line(change.name), change.after
    if change.before is None:
        lines = after.content.count("\n") + (not after.content.endswith("\n"))
        much = count(lines, "line") if after.content and not after.truncated else ""
        return f"wrote {name} ({much or f'{after.size_bytes:,} bytes'})"
    return f"changed {name} ({change.before.size_bytes:,} to {after.size_bytes:,} bytes)"


def diff(change: FileChange) -> Iterator[tuple[str, str]]:
    """Yield the lines of a diff with their marks, `+`, `-`, `@` or a blank; none for data."""
    before = change.before.content.splitlines() if change.before else []
    after = change.after.content.splitlines()
    if not _is_comparable(change):
        return
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]  # without its head
    for line in lines[:_MAX_DIFF_LINES]:
        if line.startswith("@@"):
            if before:
                yield "@", line
        else:
            yield line[:1], shorten(line[1:].expandtabs(4), _MAX_LINE_CHARS)
    if len(lines) > _MAX_DIFF_LINES:
        yield "@", f"({count(len(lines) - _MAX_DIFF_LINES, 'more line')})"


def _is_comparable(change: FileChange) -> bool:
    parts = [one for one in (change.before, change.after) if one is not None]
    return all(
        one.content
        and not one.truncated
        and len(one.content) <= _MAX_COMPARED_CHARS
        and one.content.count("\n") <= _MAX_COMPARED_LINES
        for one in parts
    )
