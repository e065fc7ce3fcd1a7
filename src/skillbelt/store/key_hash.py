"""Hash the parts of a key, for paths that can hold no other text."""

import hashlib

_ESCAPES = str.maketrans({"\0": "\x01\x01", "\x01": "\x01\x02"})


def hash_texts(*parts: str) -> str:
    """Return 32 hex digits for the texts.

    Different texts give different digits, even with a NUL.
    """
    whole = "\0".join(part.translate(_ESCAPES) for part in parts)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]
