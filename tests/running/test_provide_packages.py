"""The questions before packages are installed."""

from __future__ import annotations

from skillbelt.permission.rules import Request
from skillbelt.running.packages.declared import Needs
from skillbelt.running.provide_packages import named_request
from skillbelt.running.questions import install_request

RUN = Request("run", ("true",), skill="echo", metadata={"call": "1"})
NEEDS = Needs("python", ("Foo_Bar>=1", "x==1 --hash=sha256:00"), "requirements.txt")


def test_the_names_are_asked_about_first() -> None:
    asked = named_request(RUN, NEEDS)
    assert (asked.type, asked.patterns, asked.always) == ("install", ("foo-bar", "x"), ())
    node = Needs("node", ("@A/b@^1",), "package.json")
    assert named_request(RUN, node).patterns == ("@a/b",)


def test_everything_that_will_come_is_asked_for_as_one() -> None:
    texts = ("foo-bar==1 sha256:00", "x==1 sha256:00", "y==1 sha256:00")
    asked = install_request(RUN, NEEDS, texts)
    assert (asked.type, asked.patterns, asked.always) == ("install", texts, texts)
    assert asked.summary.endswith("for the skill echo; in all 3: foo-bar==1, x==1, y==1")
    assert asked.metadata == {"call": "1", "packages": list(texts)}
    fewer = install_request(RUN, NEEDS, texts[:2])
    assert asked.exact and asked.exact != fewer.exact


def test_how_much_is_fetched_is_told_and_no_answer_is_bound_to_it() -> None:
    bare, told = (
        install_request(RUN, NEEDS, ("greet==1.0 sha256:00",), size=size)
        for size in ("", "1.3 MB to fetch")
    )
    assert told.summary == f"{bare.summary}; 1.3 MB to fetch"
    assert told._replace(summary=bare.summary) == bare
