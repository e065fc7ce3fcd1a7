"""Cache the result of each case by a digest of everything it depends on."""

from __future__ import annotations

import json
from hashlib import sha256

from skillbelt.files.result_cache import ResultCache
from skillbelt.format.skill import Skill

# Part of every key, so that results of an older form are not read.
_FORM = 1
_EVAL_FOLDERS = ("evals/", "eval/")


def key_of(**parts: object) -> str:
    """Return the digest of everything that a result depends on."""
    text = json.dumps({"form": _FORM, **parts}, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def skill_key(skill: Skill) -> str:
    """Return a digest of the skill without its evaluations, so that new cases do not change it."""
    found = skill.files.manifest()
    kept = [(one.path, one.sha256) for one in found.files if not one.path.startswith(_EVAL_FOLDERS)]
    return key_of(files=kept)


class EvalCache(ResultCache):
    """The cache of evaluation results."""
