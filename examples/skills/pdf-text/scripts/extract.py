# /// script
# requires-python = ">=3.11"
# dependencies = ["pypdf==7.0.1"]
# ///
"""Take the text out of a PDF: a path as argument gives plain text, JSON on standard input JSON."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import Any

from pypdf import PdfReader
from pypdf.errors import PyPdfError

MAX_CHARS = 100_000


class Wrong(Exception):
    """What the caller must put right."""


def open_pdf(path: str, password: str) -> PdfReader:
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(password):
            raise Wrong(f"{path} is encrypted: give its password")
    except (OSError, PyPdfError, ValueError) as error:
        raise Wrong(f"{path} cannot be read: {error}") from error
    return reader


def chosen(text: str, count: int) -> list[int]:
    """`1-3,7` as page numbers; all of them for an empty text."""
    if not text.strip():
        return list(range(1, count + 1))
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise Wrong(f"pages: {text!r} is not like 1-3,7")
        found += range(int(first), int(last or first) + 1)
    beyond = [page for page in found if not 1 <= page <= count]
    if beyond:
        raise Wrong(f"pages: there is no page {beyond[0]}, there are {count}")
    return found


def text_of(reader: PdfReader, page: int) -> str:
    try:
        return str(reader.pages[page - 1].extract_text()).strip()
    except (PyPdfError, ValueError, KeyError, AttributeError) as error:
        raise Wrong(f"page {page} cannot be read: {error}") from error


def extract(path: str, pages: str = "", password: str = "", max_chars: int = MAX_CHARS) -> Any:
    reader = open_pdf(path, password)
    wanted = chosen(pages, len(reader.pages))
    facts: dict[str, Any] = dict(reader.metadata or {})
    found: list[dict[str, Any]] = []
    result: dict[str, Any] = {
        "title": str(facts.get("/Title") or ""),
        "author": str(facts.get("/Author") or ""),
        "page_count": len(reader.pages),
        "pages": found,
    }
    left = max_chars
    for page in wanted:
        text = text_of(reader, page)
        if len(text) > left:
            return {**result, "truncated": True, "next_page": page}
        left -= len(text)
        found.append({"page": page, "text": text})
    return result


def from_json() -> None:
    try:
        given = json.load(sys.stdin)
        fields = {key: given[key] for key in ("pages", "password", "max_chars") if key in given}
        fields["pages"] = str(fields.get("pages", ""))
        path = given["path"] if "path" in given else given["file"]
        print(json.dumps(extract(path, **fields), ensure_ascii=False))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        wanted = 'give an object with a "path" or "file"'
        raise Wrong(f"{wanted}: {type(error).__name__}: {error}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?")
    parser.add_argument("--pages", default="")
    parser.add_argument("--password", default="")
    args = parser.parse_args()
    # What is odd in a file is no news for who only wants its text.
    logging.disable(logging.WARNING)
    try:
        if args.path is None:
            from_json()
        else:
            found = extract(args.path, args.pages, args.password, sys.maxsize)
            print("\n\f\n".join(page["text"] for page in found["pages"]))
    except Wrong as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
