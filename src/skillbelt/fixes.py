"""Files on disk that are mended where they lie, and what was changed in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from skillbelt.entries import Content, Unusable, read
from skillbelt.mend import mend
from skillbelt.paths import inside
from skillbelt.rules import finding
from skillbelt.values import SKILL_FILE, Diagnostic, Limits

_LIMITS = Limits()


class Fixed(NamedTuple):
    """What became of one file on disk. `path` is where it lies now."""

    path: str
    was: str
    before: bytes
    after: bytes
    done: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def fix_file(path: str, *, dry_run: bool = False, limits: Limits = _LIMITS) -> Fixed:
    """Mend one SKILL.md where it lies, and give it its right name. Never raises.

    The new bytes are put in place in one step. A link that leads out of the skill, anything but a
    regular file, and a file that changes meanwhile are left alone.
    """
    path = os.path.abspath(path)
    try:
        content = read(path, limits.max_checked_bytes)
    except Unusable:
        return Fixed(path, path, b"", b"")
    if reason := _refusal(path, content):
        return Fixed(path, path, content.data, content.data, (), (_dropped(path, reason),))
    folder = os.path.basename(os.path.dirname(path))
    mended = mend(content.data, folder=folder, limits=limits)
    said = [
        _dropped(path, f"not done, as it would change the meaning: {t}") for t in mended.dropped
    ]
    fixed = Fixed(path, path, content.data, mended.data, mended.done, tuple(said))
    fixed = _renamed(fixed)
    return fixed if dry_run else _put(fixed)


def _dropped(path: str, reason: str) -> Diagnostic:
    return finding("fix-dropped", path, None, reason)


def _refusal(path: str, content: Content) -> str:
    if content.size > len(content.data):
        return f"not mended: the file has more than {len(content.data):,} bytes"
    if not inside(path, os.path.dirname(path)):
        return "not mended: the file is a link that leads out of the skill"
    return ""


def _renamed(fixed: Fixed) -> Fixed:
    """With the right name, when the present one differs in case alone and the right one is free."""
    folder, name = os.path.split(fixed.path)
    right = os.path.join(folder, SKILL_FILE)
    if name == SKILL_FILE or name.lower() != SKILL_FILE.lower():
        return fixed
    if os.path.lexists(right) and not os.path.samefile(right, fixed.path):
        said = _dropped(fixed.path, f"not renamed: there is a {SKILL_FILE} beside it")
        return fixed._replace(diagnostics=(*fixed.diagnostics, said))
    return fixed._replace(path=right, done=(*fixed.done, f"renamed {name} to {SKILL_FILE}"))


def _put(fixed: Fixed) -> Fixed:
    try:
        if fixed.after != fixed.before:
            _replace(os.path.realpath(fixed.was), fixed.before, fixed.after)
        if fixed.path != fixed.was:
            os.rename(fixed.was, fixed.path)
    except (OSError, Unusable) as error:
        said = (*fixed.diagnostics, _dropped(fixed.was, f"not mended: {error}"))
        return Fixed(fixed.was, fixed.was, fixed.before, fixed.before, (), said)
    return fixed


def _replace(path: str, before: bytes, after: bytes) -> None:
    """Swap the file for one with the new bytes and the same mode and owner, in one step."""
    import tempfile

    info = os.stat(path)
    handle, name = tempfile.mkstemp(prefix=".skillbelt-", dir=os.path.dirname(path))
    try:
        with open(handle, "wb") as file:
            file.write(after)
            file.flush()
            with suppress(OSError):
                os.chown(name, info.st_uid, info.st_gid)
            os.chmod(name, stat.S_IMODE(info.st_mode))
            os.fsync(handle)
        if read(path, len(before) + 1).data != before:
            raise Unusable("unreadable", "the file was changed meanwhile")
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def diff(fixed: Fixed, root: str) -> Iterator[str]:
    """The change as a unified diff, line by line, with paths relative to the root."""
    from difflib import unified_diff

    old, new = (os.path.relpath(path, root) for path in (fixed.was, fixed.path))
    before, after = (_lines(data) for data in (fixed.before, fixed.after))
    changed = list(unified_diff(before, after, f"a/{old}", f"b/{new}", n=2, lineterm=""))
    if old != new:
        yield from (f"rename from {old}", f"rename to {new}")
    yield from changed


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n")
