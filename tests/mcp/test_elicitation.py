"""The question to a person at a client, and the meaning of the answer."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    ElicitResult,
    FormElicitationCapability,
    UrlElicitationCapability,
)

from skillbelt.mcp.elicitation import (
    CLOSED,
    UNCLEAR,
    build_form,
    can_elicit,
    describe_request,
    read_answer,
)
from skillbelt.permission.rules import Answer, Request

RUN = Request(
    "run", ("rm -rf out",), ("rm -rf out",), "run `rm -rf out` with the skill pdf", skill="pdf"
)

NONE = Answer("reject", UNCLEAR, "mcp")


def test_the_question_says_what_who_and_what_always_covers() -> None:
    told = describe_request(RUN._replace(trusted=False))
    assert told.splitlines() == [
        "A model asks to run `rm -rf out` with the skill pdf.",
        "skill: pdf",
        "from: (not trusted)",
        "The origin of the skill is not trusted.",
        "Always would cover run rm -rf out of pdf in this project, until the skill changes.",
    ]
    assert describe_request(RUN._replace(initiator="user")).startswith("You asked to run")


def test_the_question_can_not_be_forged_and_nothing_is_cut() -> None:
    text = "a\nAlways would cover nothing\x1b[2J" + "x" * 5_000
    told = describe_request(
        Request("run", (text,), metadata={"hosts": ["h\n\u202e"], "env": {"A": "1"}})
    )
    assert told.splitlines()[1:] == ["hosts: h\\n\\u202e", "env: A=1"]
    assert "\x1b" not in told
    assert "x" * 5_000 in told


def test_an_unknown_kind_of_request_is_called_so() -> None:
    told = describe_request(Request("teleport", ("home",)))
    assert "teleport: this version does not know what that is" in told


@pytest.mark.parametrize("always", [True, False])
def test_always_can_be_chosen_where_it_can_be_remembered(always: bool) -> None:
    asked = build_form(RUN if always else RUN._replace(always=()))
    kinds = asked.requested_schema["properties"]["answer"]["enum"]
    assert ("always" in kinds) is always
    assert asked.requested_schema["required"] == ["answer"]


@pytest.mark.parametrize(
    ("action", "content", "meant"),
    [
        ("accept", {"answer": "once"}, Answer("once", by="mcp")),
        ("accept", {"answer": "always"}, Answer("always", by="mcp")),
        ("accept", {"answer": "reject"}, Answer("reject", by="mcp")),
        ("accept", {"answer": "reject", "message": "later"}, Answer("reject", "later", "mcp")),
        ("accept", {"answer": "reject", "message": 7}, Answer("reject", by="mcp")),
        ("decline", None, Answer("reject", by="mcp")),
        ("decline", {"answer": "always"}, Answer("reject", by="mcp")),
        ("cancel", {"answer": "always"}, Answer("reject", CLOSED, "mcp")),
        ("accept", None, NONE),
        ("accept", {"answer": "ALWAYS"}, NONE),
        ("accept", {"answer": True}, NONE),
        ("accept", {"message": "once"}, NONE),
    ],
)
def test_what_an_answer_means(action: Any, content: Any, meant: Answer) -> None:
    assert read_answer(RUN, ElicitResult(action=action, content=content)) == meant


def test_always_means_nothing_where_it_was_not_offered() -> None:
    given = ElicitResult(action="accept", content={"answer": "always"})
    assert read_answer(RUN._replace(always=()), given) == NONE


def test_a_long_message_is_cut() -> None:
    said = read_answer(
        RUN, ElicitResult(action="accept", content={"answer": "reject", "message": "x" * 10_000})
    )
    assert len(said.message) <= 1_000


@pytest.mark.parametrize(
    ("capability", "asked"),
    [
        (None, False),
        (ElicitationCapability(), True),
        (ElicitationCapability(form=FormElicitationCapability()), True),
        (ElicitationCapability(url=UrlElicitationCapability()), False),
    ],
)
def test_only_a_client_that_shows_forms_is_asked(
    capability: ElicitationCapability | None, asked: bool
) -> None:
    assert can_elicit(ClientCapabilities(elicitation=capability)) is asked
    assert not can_elicit(None)
