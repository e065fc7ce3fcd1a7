from __future__ import annotations

from xml.etree import ElementTree

from skillbelt.search.evaluate import Labelled, evaluate
from skillbelt.search.plot import svg


def test_the_picture_is_xml_with_every_measure() -> None:
    labelled = [Labelled(str(n), frozenset("a")) for n in range(4)]
    report = evaluate(labelled, lambda q: [frozenset("a" if q != "3" else "b")])
    drawn = svg(report, "<search> & more")
    text = "".join(ElementTree.fromstring(drawn).itertext())
    for said in ("Hit@1", "nDCG@10", "0.75", "<search> & more", "4 requests"):
        assert said in text
