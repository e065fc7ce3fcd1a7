"""The head of a SKILL.md: read it, and say on one card what a catalogue needs of it."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from skillbelt.errors import PathEscape
from skillbelt.files.contain import Fence, read_handle
from skillbelt.format import yaml
from skillbelt.format.fields import skill_name
from skillbelt.format.frontmatter import (
    FIRST_READ_BYTES,
    MAX_FRONTMATTER_BYTES,
    State,
    needs_more,
    parse,
)
from skillbelt.values import DERIVED, INTERNAL, MODEL, SKIPPED, USER, Diagnostic, Limits

LIMITS = Limits()
OPEN = Fence()
_SLACK = 64  # room for both delimiter lines
_NOT_FOR_MODEL = ("disable-model-invocation", "disable_model_invocation")
_FOR_USER = ("user-invocable", "user_invocable", "user-invokable", "user_invokable")
_TELLING = frozenset((*_NOT_FOR_MODEL, *_FOR_USER, "metadata"))


class Card(NamedTuple):
    """What the head of one SKILL.md says, wherever it lies."""

    name: str
    title: str
    description: str
    when_to_use: str
    flags: int
    body_offset: int
    diagnostics: tuple[Diagnostic, ...]


def read_head(location: str, limits: Limits = LIMITS, fence: Fence = OPEN) -> bytes:
    """The head of a file, as far as its frontmatter goes.

    Raises OSError if it can not be read, PathEscape if it leads out of the fence.
    """
    handle = fence.open_file(location)
    try:
        data = os.read(handle, FIRST_READ_BYTES)
        if len(data) == FIRST_READ_BYTES and needs_more(data, limits):
            # A little more than is allowed, so that the parser can tell that it is too much.
            data += os.read(handle, max(MAX_FRONTMATTER_BYTES + _SLACK - len(data), 0))
        return data
    finally:
        os.close(handle)


def read_card(
    data: bytes, location: str, folder: str, limits: Limits = LIMITS, *, derive: bool = True
) -> Card:
    """What the head of a SKILL.md says. Never raises, whatever the bytes."""
    parsed = parse(data, path=location, folder=folder, limits=limits, derive=derive)
    fields = parsed.fields
    name = skill_name(fields, folder, location)
    return Card(
        name=name.id,
        title=name.title,
        description=_text(fields, "description"),
        when_to_use=_text(fields, "when_to_use") or _text(fields, "when-to-use"),
        flags=_flags(fields, parsed.state),
        body_offset=parsed.body_offset,
        diagnostics=(*parsed.diagnostics, *name.diagnostics),
    )


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    return value.strip() if isinstance(value, str) else ""


def _flags(fields: Mapping[str, object], state: State) -> int:
    flags = USER | MODEL
    for key in _TELLING & fields.keys():
        if key == "metadata":
            flags |= _internal(fields[key])
        elif key in _NOT_FOR_MODEL and fields[key] is True:
            flags &= ~MODEL
        elif key in _FOR_USER and fields[key] is False:
            flags &= ~USER
    if state == "derived":
        flags |= DERIVED
    return flags | SKIPPED if state == "skipped" else flags


def _internal(metadata: object) -> int:
    marked = isinstance(metadata, dict) and metadata.get("internal") in (True, "true")
    return INTERNAL if marked else 0


def with_policy(
    card: Card, location: str, path: str, limits: Limits = LIMITS, fence: Fence = OPEN
) -> Card:
    """The card with what the Codex file beside the skill says: it may keep the model away.

    A file that can not be read keeps it away too: it was put there to do so.
    """
    policy = _read_policy(path, limits, fence)
    if policy is None:
        message = f"{path} can not be read as YAML, so no model is told of this skill"
        note = Diagnostic(
            code="policy-unreadable",
            severity="error",
            path=location,
            line=None,
            message=message,
            remedy="mend that file",
        )
        return card._replace(flags=card.flags & ~MODEL, diagnostics=(*card.diagnostics, note))
    rule = policy.get("policy")
    implicit = rule.get("allow_implicit_invocation") if isinstance(rule, dict) else None
    return card._replace(flags=card.flags & ~MODEL) if implicit is False else card


def _read_policy(path: str, limits: Limits, fence: Fence) -> dict[str, object] | None:
    try:
        data = read_handle(fence.open_file(path), MAX_FRONTMATTER_BYTES + 1)
        text = data.decode("utf-8") if len(data) <= MAX_FRONTMATTER_BYTES else None
    except (OSError, PathEscape, UnicodeDecodeError):
        return None
    loaded = yaml.full(text.replace("\r\n", "\n"), limits) if text is not None else None
    return loaded.fields if isinstance(loaded, yaml.Loaded) else None
