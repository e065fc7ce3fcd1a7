"""A second look by meaning: vectors of words from a wheel, offline; the extra `semantic`.

It helps where a request and a skill say the same in other words. It is fused with the ranking by
words and never decides alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from skillbelt.search.protocol import Ranked, Ranker
from skillbelt.search.query import Query

_TEXT_CHARS = 400
_REQUEST_CHARS = 4_000
_MOST_KEPT = 20_000  # vectors of skills, of 1 KiB each


class SemanticRanker:
    """How near a skill's name and description are to a request.

    The request's sentences by themselves found nothing more, see docs/search.md.
    """

    weight = 2.0
    most = 30

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._lock = Lock()  # the model's tokeniser is one for all threads

    def scores(self, asked: Query, ranked: Sequence[Ranked]) -> Sequence[float]:
        """The likeness of each candidate."""
        with self._lock:
            vectors = self._vectors([_about(one) for one in ranked])
            request = _embed([asked.text[:_REQUEST_CHARS]])[0]
        given: list[float] = (vectors @ request).tolist()
        return given

    def _vectors(self, texts: Sequence[str]) -> Any:
        import numpy

        missing = [text for text in dict.fromkeys(texts) if text not in self._kept]
        if missing:
            if len(self._kept) + len(missing) > _MOST_KEPT:
                self._kept.clear()
                missing = list(dict.fromkeys(texts))
            self._kept.update(zip(missing, _embed(missing), strict=True))
        return numpy.stack([self._kept[text] for text in texts])


def rankers() -> tuple[Ranker, ...]:
    """The second looks that can be had here: none without the extra."""
    from importlib.util import find_spec

    return (SemanticRanker(),) if find_spec("wordllama") else ()


def _about(one: Ranked) -> str:
    skill = one.skill
    name = skill.name.replace("-", " ").replace("_", " ")
    return f"{name}. {skill.description} {skill.when_to_use}"[:_TEXT_CHARS]


def _embed(texts: list[str]) -> Any:
    """The mean of the words' vectors, of length 1.

    As the model's own `embed` makes it, which fills all texts up to the longest one and takes
    three times as long.
    """
    import numpy

    model = _model()
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    found = model.tokenizer.encode_batch_fast(clean, add_special_tokens=False)
    last = len(model.embedding) - 1
    rows = [numpy.minimum(numpy.array(one.ids, dtype=numpy.intp), last) for one in found]
    sums = numpy.array([model.embedding[row].sum(axis=0) for row in rows])
    lengths = numpy.linalg.norm(sums, axis=1, keepdims=True)
    return sums / numpy.where(lengths, lengths, 1)


@cache
def _model() -> Any:
    """The model that its wheel carries; nothing is ever fetched."""
    with _quiet():
        wordllama: Any = import_module("wordllama")
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    model.tokenizer.no_padding()
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Undo what an import does to the logging of the whole program."""
    import logging

    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
