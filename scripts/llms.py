"""Write docs/llms.txt, the list of all pages for language models, or say that it drifted."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "llms.txt"


def pages(navigation: list[dict[str, Any]], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield section, title and path of each page of the navigation."""
    for entry in navigation:
        for title, value in entry.items():
            if isinstance(value, str):
                yield section, title, value
            else:
                yield from pages(value, title)


def first_sentence(page: str) -> str:
    """Return the first sentence of a page, as plain text."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", page)
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    body = next(part for part in paragraphs if not part.startswith(("#", "|", "```", "<", "-")))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(body.split())).replace("**", "")
    return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":")


def make() -> str:
    """Return the text of the file."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}", ""]
    shown = None
    for section, title, path in pages(site["nav"]):
        if section != shown:
            lines += ["", f"## {section or 'Pages'}", ""] if shown is not None or section else []
            shown = section
        about = first_sentence((ROOT / "docs" / path).read_text("utf-8"))
        link = path.removesuffix(".md").removesuffix("index")
        lines.append(f"- [{title}]({link + '/' if link else './'}): {about}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Return 0 when the file is current (or is now), 1 when it drifted."""
    made = make()
    if FILE.exists() and FILE.read_text("utf-8") == made:
        return 0
    if "--write" in sys.argv[1:]:
        FILE.write_text(made, "utf-8")
        return 0
    print("docs/llms.txt differs from the pages; run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
