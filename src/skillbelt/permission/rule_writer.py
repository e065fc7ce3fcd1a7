"""The file of rules that commands write: one block a rule, in order, so that the last one wins.

Whatever else a person writes into the file stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from skillbelt.errors import ConfigError
from skillbelt.files.contain import LOCK_FILE, REPLACE_FILE
from skillbelt.files.private import make_folder
from skillbelt.permission.rules import Rule
from skillbelt.settings import Settings

HEAD = "[[permission.rules]]"
_ABOUT = "# Rules that `skillbelt permissions` added. The last one that matches decides.\n"
_WRITTEN = ("type", "pattern", "action", "agent", "initiator")


def rulebook_file(settings: Settings) -> str:
    """Where the user's added rules lie."""
    return os.path.join(settings.config_home, "skillbelt", "permissions.toml")


def add_rule(path: str, rule: Rule) -> None:
    """Write the rule last. One that says the same with another action is taken out."""
    with _locked(path):
        kept = [text for text in _blocks(path) if not _same(text, rule, path)]
        _write(path, "".join([*(kept or [_ABOUT]), _block(rule)]))


def remove_rules(path: str, type: str, pattern: str) -> int:
    """Take out the rules of that type and pattern; how many there were."""
    with _locked(path):
        blocks = _blocks(path)
        kept = [text for text in blocks if _told(text, path)[:2] != (type, pattern)]
        if len(kept) < len(blocks):
            _write(path, "".join(kept))
        return len(blocks) - len(kept)


def _blocks(path: str) -> list[str]:
    """What stands before the first rule, and each rule with all that follows it."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = file.readlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can not be read: {error}; mend or remove it") from error
    blocks = [""]
    for line in lines:
        if line.strip() == HEAD:
            blocks.append("")
        blocks[-1] += line
    return blocks


def _told(block: str, path: str) -> tuple[object, ...]:
    """The fields of a rule's block; empty for what is none."""
    import tomllib

    if not block.lstrip().startswith(HEAD):
        return ("", "")
    try:
        [rule] = tomllib.loads(block)["permission"]["rules"]
    except (tomllib.TOMLDecodeError, KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: a rule in it is not valid TOML: {error}; mend it") from error
    return tuple(rule.get(key, "") for key in _WRITTEN)


def _same(block: str, rule: Rule, path: str) -> bool:
    kind, pattern, _, agent, initiator, *_ = (*_told(block, path), "", "", "")
    return (kind, pattern, agent, initiator) == (
        rule.type,
        rule.pattern,
        rule.agent,
        rule.initiator,
    )


def _block(rule: Rule) -> str:
    fields = ((key, str(getattr(rule, key))) for key in _WRITTEN)
    lines = [f"{key} = {_quoted(value)}\n" for key, value in fields if value]
    return "".join(["\n", HEAD, "\n", *lines])


def _quoted(text: str) -> str:
    """The text as TOML writes it, which is how JSON does, but for one character."""
    import json

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r} is not valid Unicode; a rule can not hold it") from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: str, text: str) -> None:
    part = f"{path}.part"
    try:
        handle = os.open(part, REPLACE_FILE, 0o600)
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text.lstrip("\n"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"{path}: can not be written: {error.strerror}") from error


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """One writer at a time, in any process."""
    try:
        make_folder(os.path.dirname(path))
        handle = os.open(f"{path}.lock", LOCK_FILE, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: can not be written: {error.strerror}") from error
    try:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
