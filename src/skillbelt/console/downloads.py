"""Downloads: files are sent as attachments, and never shown as pages of this server."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

_CHUNK = 2**16


def attach(file: BinaryIO, name: str, size: int | None = None) -> Response:
    """Return a response that makes the browser save a file, not show it."""
    base = posixpath.basename(name) or "file"
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", base)
    shown = quote(base, safe="", errors="replace")
    headers = {
        "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{shown}",
        "content-security-policy": "sandbox; default-src 'none'",
    }
    if size is not None:
        headers["content-length"] = str(size)
    return StreamingResponse(
        _read_chunks(file), media_type="application/octet-stream", headers=headers
    )


def _read_chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while data := file.read(_CHUNK):
            yield data


def is_text(data: bytes) -> bool:
    """Whether a file can be shown as text."""
    try:
        data[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < min(len(data), 4096) - 4:
            return False
    return b"\0" not in data


def attach_text(text: str, name: str) -> Response:
    """Return a response that makes the browser save a text as a file."""
    data = text.encode("utf-8", "replace")
    return attach(io.BytesIO(data), name, len(data))
