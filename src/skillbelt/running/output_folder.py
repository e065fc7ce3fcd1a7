"""A folder of the host for the output files of a run.

The names come from the run, so they are hostile: no existing file is replaced, no link is followed,
and no hidden file is created, nor one with settings. Tools of the user act on hidden files unasked,
and so do we on settings: in a trusted project they hold rules.
"""

from __future__ import annotations

import errno
import os

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.files.contain import create_beneath, open_folder
from skillbelt.running.workspace import OUT
from skillbelt.settings import is_settings_file
from skillbelt.text import exact, one_line


def check_folder(path: str) -> None:
    """Raise RunRefused for a path that cannot be written to; a missing folder is fine."""
    if not path:
        return
    if "\0" in path or not os.path.isabs(path):
        raise RunRefused(f"output_dir: {one_line(path)[:200]!r} is not an absolute path")
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise RunRefused(f"output_dir: {one_line(there)[:200]!r} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunRefused(f"output_dir: {one_line(there)[:200]!r} cannot be written")


class OutputFolder:
    """Writes files below one folder, which is created for the first of them."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, name: str, data: bytes) -> str:
        """Write a new file and return its path; `out/` at the start of the name is left out."""
        relative = name.removeprefix(f"{OUT}/")
        if any(part.startswith(".") for part in relative.split("/")):
            raise OSError(errno.EPERM, "its name begins with a dot")
        if exact(relative) != relative:  # hidden characters can make it look like another file
            raise OSError(errno.EPERM, "its name has characters that cannot be seen")
        if is_settings_file(relative, data):
            raise OSError(errno.EPERM, "it would be read as settings and rules of a project")
        os.makedirs(self._path, exist_ok=True)
        top = open_folder(self._path)
        try:
            handle = create_beneath(top, relative)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
            except OSError:  # mostly a full disk: no partial file is left
                os.unlink(relative, dir_fd=top)
                raise
        except FileExistsError as error:
            raise OSError(error.errno, "there is such a file already") from error
        except PathEscape as error:
            raise OSError(errno.ELOOP, "a link is in the way, or its name is unsafe") from error
        finally:
            os.close(top)
        return os.path.join(self._path, relative)
