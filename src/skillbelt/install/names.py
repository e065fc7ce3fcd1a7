"""Names of skills in a lock and on the disk, as `skills` 1.7.4 makes them.

The lock has the name as its author wrote it, also `Cat Fact`; the folder has what is left of it in
lower case, `cat-fact`. A name that people cannot read or type is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import normalize

from skillbelt.files.contain import is_device
from skillbelt.files.tree import LEFT_OUT
from skillbelt.text import Lazy, one_line

MAX_NAME_CHARS = 128
# What JavaScript's `trim` takes away beside what Python's `strip` does.
_BYTE_ORDER_MARK = "\ufeff"
_PLAIN = Lazy(r"[^\W_][\w.-]*\Z")


def lock_name(written: str) -> str:
    """Return the name that the lock has for a skill, by the name in its frontmatter."""
    return written.strip().strip(_BYTE_ORDER_MARK).strip()


@lru_cache(4_096)  # a change of a long lock compares those of all its entries
def folder_name(name: str) -> str:
    """Return the folder that `skills` puts a skill of that name into."""
    made = re.sub(r"[^a-z0-9._]+", "-", name.lower())
    return re.sub(r"^[.\-]+|[.\-]+$", "", made)[:255] or "unnamed-skill"


def typed_name(name: str) -> str:
    """Return what to type for a skill: its name, or its folder where a shell reads it otherwise."""
    return name if _PLAIN.match(name) else folder_name(name)


def name_fault(name: str) -> str:
    """Say why a lock cannot have a name; "" for a valid one."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_CHARS:
        return f"has more than {MAX_NAME_CHARS} characters"
    if not name[0].isalnum() or "/" in name or "\\" in name:
        return "does not begin with a letter or a digit, or holds a slash"
    if one_line(name) != name:
        return "holds a character that does not show, or two blanks in a row"
    if (folder := folder_name(name)) in LEFT_OUT:
        return f"would be installed in a folder {folder}, which is not searched for skills"
    if is_device(folder):
        return f"would be installed in a folder {folder}, which Windows reads as a device"
    if normalize("NFC", name) != name:
        return "holds a letter whose accent is a separate character (it is not in NFC)"
    return ""
