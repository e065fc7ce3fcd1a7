"""Fix SKILL.md files on disk, and show the changes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from skillbelt.check.fix import fix_bytes
from skillbelt.check.rules import finding
from skillbelt.errors import PathEscape
from skillbelt.files.contain import READ_FILE, create_beneath, open_beneath, open_dir, read_handle
from skillbelt.format.frontmatter import MAX_CHECKED_BYTES
from skillbelt.values import SKILL_FILE, Diagnostic, Limits

_LIMITS = Limits()


class Fixed(NamedTuple):
    """The result for one file on disk. `path` is its path now, `was` its path before."""

    path: str
    was: str
    before: bytes
    after: bytes
    done: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def fix_file(
    path: str, *, dry_run: bool = False, limits: Limits = _LIMITS, fence: str = ""
) -> Fixed:
    """Fix one SKILL.md in place, and correct its name. Never raises.

    The file is replaced atomically, in a folder that was opened inside the fence, if there is one.
    A link, anything but a regular file, and a file that changes meanwhile are left alone.
    """
    path = os.path.abspath(path)
    try:
        folder = open_dir(os.path.dirname(path), fence)
    except (OSError, PathEscape):
        return Fixed(path, path, b"", b"")
    try:
        return _fix(folder, path, dry_run, limits)
    finally:
        os.close(folder)


def _fix(folder: int, path: str, dry_run: bool, limits: Limits) -> Fixed:
    name = os.path.basename(path)
    try:
        data = _read(folder, name, MAX_CHECKED_BYTES + 1)
    except PathEscape:
        said = _dropped(path, "not fixed: the file is a link; fix the file it leads to")
        return Fixed(path=path, was=path, before=b"", after=b"", done=(), diagnostics=(said,))
    except OSError:
        return Fixed(path, path, b"", b"")
    if len(data) > MAX_CHECKED_BYTES:
        data = data[:MAX_CHECKED_BYTES]
        said = _dropped(path, f"not fixed: the file has more than {len(data):,} bytes")
        return Fixed(path=path, was=path, before=data, after=data, done=(), diagnostics=(said,))
    result = fix_bytes(data, folder=os.path.basename(os.path.dirname(path)), limits=limits)
    dropped = [
        _dropped(path, f"not done, as it would change the meaning: {t}") for t in result.dropped
    ]
    fixed = Fixed(
        path=path,
        was=path,
        before=data,
        after=result.data,
        done=result.done,
        diagnostics=tuple(dropped),
    )
    fixed = _correct_name(folder, fixed)
    return fixed if dry_run else _write(folder, fixed)


def _read(folder: int, name: str, most: int) -> bytes:
    """Read the start of a regular file; PathEscape for a link, OSError for anything else."""
    handle = open_beneath(folder, name, READ_FILE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return read_handle(handle, most)


def _dropped(path: str, reason: str) -> Diagnostic:
    return finding("fix-dropped", path, None, reason)


def _correct_name(folder: int, fixed: Fixed) -> Fixed:
    """Set the right name if the present one differs only in case and the right one is free."""
    above, name = os.path.split(fixed.path)
    if name == SKILL_FILE or name.lower() != SKILL_FILE.lower():
        return fixed
    if not _is_free(folder, name):
        said = _dropped(fixed.path, f"not renamed: there is a {SKILL_FILE} beside it")
        return fixed._replace(diagnostics=(*fixed.diagnostics, said))
    right = os.path.join(above, SKILL_FILE)
    return fixed._replace(path=right, done=(*fixed.done, f"renamed {name} to {SKILL_FILE}"))


def _is_free(folder: int, name: str) -> bool:
    """Whether the right name is free, or is this file on a disk that ignores case."""
    try:
        there = os.stat(SKILL_FILE, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return os.path.samestat(there, os.stat(name, dir_fd=folder, follow_symlinks=False))


def _write(folder: int, fixed: Fixed) -> Fixed:
    name, right = os.path.basename(fixed.was), os.path.basename(fixed.path)
    try:
        if fixed.after != fixed.before:
            _replace(folder, name, fixed.before, fixed.after)
        if right != name:
            os.rename(name, right, src_dir_fd=folder, dst_dir_fd=folder)
    except (OSError, PathEscape) as error:
        said = (*fixed.diagnostics, _dropped(fixed.was, f"not fixed: {error}"))
        return Fixed(
            path=fixed.was,
            was=fixed.was,
            before=fixed.before,
            after=fixed.before,
            done=(),
            diagnostics=said,
        )
    return fixed


def _replace(folder: int, name: str, before: bytes, after: bytes) -> None:
    """Replace the file atomically by one with the new bytes and the same mode and owner."""
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    part = f".skillbelt-{os.urandom(8).hex()}"
    try:
        with open(create_beneath(folder, part), "wb") as file:
            file.write(after)
            file.flush()
            with suppress(OSError):
                os.fchown(file.fileno(), info.st_uid, info.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(info.st_mode))
            os.fsync(file.fileno())
        if _read(folder, name, len(before) + 1) != before:
            raise OSError(errno.EBUSY, "the file was changed meanwhile")
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


def diff(fixed: Fixed, root: str) -> Iterator[str]:
    """Yield the change as the lines of a unified diff, with paths relative to the root."""
    from difflib import unified_diff  # cost: 3 ms, only for --fix

    old, new = (os.path.relpath(path, root) for path in (fixed.was, fixed.path))
    before, after = (_lines(data) for data in (fixed.before, fixed.after))
    changed = list(unified_diff(before, after, f"a/{old}", f"b/{new}", n=2, lineterm=""))
    if old != new:
        yield from (f"rename from {old}", f"rename to {new}")
    yield from changed


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n")
