"""The hash that stands for a key where a path holds no other text."""

import hashlib

_ESCAPES = str.maketrans({"\0": "\x01\x01", "\x01": "\x01\x02"})


def hash_texts(*parts: str) -> str:
    """Return 32 digits for the texts; other texts have others, also where NUL is in one."""
    whole = "\0".join(part.translate(_ESCAPES) for part in parts)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]
