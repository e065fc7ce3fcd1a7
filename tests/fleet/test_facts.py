from __future__ import annotations

import json

import pytest

from skillbelt import __version__
from skillbelt.fleet import facts as facts_module
from skillbelt.fleet.facts import (
    SHARE,
    UNITS,
    NodeFacts,
    SandboxFact,
    differing,
    find_facts,
    needs_of,
    read_facts,
    settings_digests,
)
from tests.tree import Tree

FACTS = NodeFacts(
    version="1.2.3+local",
    python="3.11.7",
    system="Linux",
    processors=4.0,
    memory_bytes=2**34,
    gpus=0,
    sandboxes=(
        SandboxFact(name="bubblewrap", level=2, reason="no user namespaces"),
        SandboxFact(name="landlock", level=1),
        SandboxFact(name="none", level=0),
    ),
    auto="landlock",
    memory_limited=False,
    interpreters={"python": "3.11.2", "node": "20.20.2"},
    settings={"sandbox": "aa", "offline": "bb"},
)


def test_only_sandboxes_that_work_and_enforce_are_announced() -> None:
    named = [one for one in FACTS.resources() if "sandbox" in one]
    assert named == ["skillbelt_sandbox_landlock", "skillbelt_sandbox_auto"]


def test_interpreters_are_announced_with_and_without_their_version() -> None:
    resources = FACTS.resources()
    for name in ("python", "python3.11", "node", "node20"):
        assert resources[f"skillbelt_{name}"] == UNITS


def test_what_a_run_asks_for_is_a_share_of_what_a_node_announces() -> None:
    needs = needs_of("landlock", ["python3.11", "node"])
    assert set(needs) <= set(FACTS.resources())
    assert set(needs.values()) == {SHARE}
    assert not set(needs_of("bubblewrap")) <= set(FACTS.resources())


def test_a_version_becomes_a_label_that_ray_accepts() -> None:
    assert FACTS.labels()["skillbelt-version"] == "1.2.3-local"


def test_facts_travel_as_json() -> None:
    assert read_facts(json.dumps(FACTS.to_json())) == FACTS


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sandboxes": 1}', "nonsense"])
def test_what_is_no_document_of_facts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no facts of a node"):
        read_facts(text)


def test_this_machine_is_looked_at(tree: Tree) -> None:
    facts = find_facts(tree.settings())
    assert facts.version == __version__
    assert facts.processors > 0
    assert facts.memory_bytes > 2**20
    assert {one.name for one in facts.sandboxes} >= {"bubblewrap", "landlock", "wasm", "none"}
    assert [one.reason for one in facts.sandboxes if one.name == facts.auto] in ([""], [])
    assert facts.interpreters["bash"][:1].isdigit()


def test_wasm_is_announced_once_its_python_is_built(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def works() -> SandboxFact:
        [found] = [one for one in find_facts(tree.settings()).sandboxes if one.name == "wasm"]
        return found

    assert "`skillbelt doctor --sandbox` builds and attacks it" in works().reason
    monkeypatch.setattr(facts_module, "is_python_built", lambda settings: True)
    assert works().works


def test_a_setting_of_a_node_that_differs_is_named_without_its_value() -> None:
    other = FACTS._replace(settings={"sandbox": "cc", "offline": "bb"})
    assert differing({"a": FACTS, "b": other}) == ["the setting sandbox differs: a / b"]
    assert differing({"a": FACTS, "b": FACTS}) == []


def test_stores_are_compared_where_they_are_set(tree: Tree) -> None:
    def facts(**settings: str) -> NodeFacts:
        return FACTS._replace(settings=settings_digests(tree.settings(**settings)))

    head = facts()
    node = facts(objects="s3://bucket/one")
    server = facts(objects="s3://bucket/one", store="postgresql://user@host/one")
    assert differing({"head": head, "node": node, "server": server}) == []
    assert head.settings_digest == server.settings_digest
    other = facts(objects="s3://bucket/one", store="postgresql://user@host/two")
    found = differing({"node": node, "server": server, "other": other})
    assert found == ["the setting store differs: server / other"]


def test_a_version_that_differs_is_named_with_its_nodes() -> None:
    (found,) = differing({"a": FACTS, "b": FACTS._replace(version="2"), "c": FACTS})
    assert found == "the versions of skillbelt differ: 1.2.3+local on a, c; 2 on b"


def test_settings_of_one_machine_need_not_agree(tree: Tree) -> None:
    here = settings_digests(tree.settings(state_dir="/a", cache_dir="/b"))
    there = settings_digests(tree.settings(state_dir="/c", cache_dir="/d"))
    assert here == there
    assert here != settings_digests(tree.settings(sandbox="landlock"))
    assert here != settings_digests(tree.settings(max_memory_bytes=1000))


def test_a_password_in_a_url_does_not_count(tree: Tree) -> None:
    one, two, other = (
        settings_digests(tree.settings(artifacts_url=url))["artifacts_url"]
        for url in ("s3://a:secret@host/x", "s3://b:hidden@host/x", "s3://a:secret@host/y")
    )
    assert one == two != other
