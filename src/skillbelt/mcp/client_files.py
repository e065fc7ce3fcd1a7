"""The settings file of an MCP client on disk: read within limits, replaced whole or not at all.

A file of a project is hostile input: no link may lead out of the project, nor to a file of another
name. In the user's own folders a link is followed, and the caller reports its target.
"""

from __future__ import annotations

import difflib
import os
import stat
from contextlib import suppress
from typing import NamedTuple

from skillbelt.errors import ConfigError, PathEscape
from skillbelt.files.contain import NEW_FILE, below, open_dir, open_file, read_handle
from skillbelt.mcp.client_edits import MAX_CLIENT_FILE_BYTES

_BOM = "\ufeff"


class ClientFile(NamedTuple):
    """A file as it was read.

    `real` is the target of its links; `stamp` shows whether it changed.
    """

    path: str
    real: str
    text: str
    bom: str
    stamp: tuple[int, ...]  # empty: there is none yet
    mode: int

    @property
    def exists(self) -> bool:
        """Whether there was a file."""
        return bool(self.stamp)


def read_client_file(path: str, fence: str = "") -> ClientFile:
    """Read the file, or note that it is missing; ConfigError or PathEscape if it is not usable.

    With a `fence` nothing outside that folder is read.
    """
    real = os.path.realpath(path)
    if fence and not below(real, os.path.realpath(fence)):
        raise PathEscape(path, fence, "is or lies behind a link that leads out of the project")
    try:
        handle = open_file(path, fence)
    except FileNotFoundError:
        if os.path.islink(path):
            raise ConfigError(f"{path}: is a link to a file that is not there; remove it") from None
        mode = 0o644 if fence else 0o600
        return ClientFile(path=path, real=real, text="", bom="", stamp=(), mode=mode)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    info = os.fstat(handle)
    data = read_handle(handle, MAX_CLIENT_FILE_BYTES + 1)
    if len(data) > MAX_CLIENT_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_CLIENT_FILE_BYTES} bytes; edit it yourself")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8; fix it, it was left as it is") from error
    bom = _BOM if text.startswith(_BOM) else ""
    return ClientFile(
        path=path,
        real=real,
        text=text.removeprefix(_BOM),
        bom=bom,
        stamp=_stamp(info),
        mode=stat.S_IMODE(info.st_mode),
    )


def _stamp(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_uid, info.st_gid


def write_client_file(file: ClientFile, text: str, fence: str = "") -> None:
    """Replace the file by the text, with its mode and owner; links stay.

    ConfigError when the file changed since it was read, or cannot be written.
    """
    folder, name = os.path.split(file.real)
    try:
        os.makedirs(folder, mode=0o755 if fence else 0o700, exist_ok=True)
        here = open_dir(os.path.realpath(folder), os.path.realpath(fence) if fence else "")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made or opened: {error.strerror}") from error
    try:
        _replace(here, name, file, (file.bom + text).encode())
    except OSError as error:
        reason = f"cannot be written: {error.strerror}; it is as it was"
        raise ConfigError(f"{file.real}: {reason}") from error
    finally:
        os.close(here)


def _replace(here: int, name: str, file: ClientFile, data: bytes) -> None:
    part = f".{name}.{os.urandom(6).hex()}"
    handle = os.open(part, NEW_FILE, 0o600, dir_fd=here)
    try:
        with open(handle, "wb") as opened:
            opened.write(data)
            opened.flush()
            if file.exists:
                with suppress(PermissionError):  # only root may change the owner
                    os.fchown(handle, file.stamp[4], file.stamp[5])
            os.fchmod(handle, file.mode)
            os.fsync(handle)
        if _read_stamp(here, name) != file.stamp:
            raise ConfigError(f"{file.real}: changed meanwhile; run the command again")
        os.rename(part, name, src_dir_fd=here, dst_dir_fd=here)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=here)
        raise


def _read_stamp(here: int, name: str) -> tuple[int, ...]:
    try:
        return _stamp(os.stat(name, dir_fd=here, follow_symlinks=False))
    except FileNotFoundError:
        return ()


def show_changes(file: ClientFile, text: str) -> str:
    """Return the difference as a unified diff."""
    lines = difflib.unified_diff(
        file.text.splitlines(),
        text.splitlines(),
        file.path if file.exists else "/dev/null",
        file.path,
        n=2,
        lineterm="",
    )
    return "\n".join(lines)
