"""Archives made by hand, the hostile ones included."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

SKILL = b"---\nname: pdf\ndescription: Reads PDF files.\n---\nBody.\n"


def zipped(files: Mapping[str, bytes] | Iterable[tuple[str, bytes]], mode: int = 0o100644) -> bytes:
    pairs = files.items() if isinstance(files, Mapping) else files
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in pairs:
            info = zipfile.ZipInfo(name)
            info.filename = info.orig_filename = name  # ZipInfo corrects names; attackers do not
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **facts: object
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind
    for key, value in facts.items():
        setattr(info, key, value)
    return info


def tarred(
    members: Iterable[tuple[tarfile.TarInfo, bytes]], *, format: int = tarfile.PAX_FORMAT
) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def tar_of(files: Mapping[str, bytes]) -> bytes:
    return tarred((member(name, data), data) for name, data in files.items())


def tgz_of(files: Mapping[str, bytes]) -> bytes:
    return gzip.compress(tar_of(files))


def tree_of(folder: Path | str) -> dict[str, bytes]:
    """Return every file below the folder by its relative path; links as their targets."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            data = os.readlink(path).encode() if os.path.islink(path) else Path(path).read_bytes()
            found[os.path.relpath(path, folder)] = data
    return found
