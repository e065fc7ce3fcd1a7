"""Keep the result of each case by a digest of all that it depends on."""

from __future__ import annotations

import json
from hashlib import sha256

from skillbelt.files.result_cache import ResultCache

# A part of every key: results of another form are not read.
_FORM = 1


def key_of(**parts: object) -> str:
    """Return the digest of everything that a result depends on."""
    text = json.dumps({"form": _FORM, **parts}, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class EvalCache(ResultCache):
    """The results of evaluations."""
