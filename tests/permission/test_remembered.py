from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.permission.remembered import RememberedAnswers
from skillbelt.permission.rules import Request
from skillbelt.store.memory import MemoryStore
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.store.sqlite import SqliteStore
from tests import warm

PLACE = SessionKey("skillbelt:permission", "/p", "ledger")
PDF = Request("skill", ("pdf",), ("pdf",), skill="pdf", hash="h1", origin="local")
PROCESSES = 4
EACH = 25


@pytest.fixture
def ledger(store: Store) -> RememberedAnswers:
    return RememberedAnswers(store, "/p")


def run(*always: str) -> Request:
    return PDF._replace(type="run", patterns=("git add x.txt",), always=always)


def test_what_is_remembered_says_what_it_is_bound_to(ledger: RememberedAnswers) -> None:
    before = time.time()
    [entry] = ledger.remember(PDF, by="ada")
    assert entry[1:7] == ("skill", "pdf", "pdf", "h1", "local", "/p")
    assert entry.by == "ada"
    assert before <= entry.time <= time.time()


def test_a_remembered_request_is_covered(ledger: RememberedAnswers) -> None:
    [entry] = ledger.remember(PDF)
    assert ledger.covering(PDF) == entry


def test_nothing_is_covered_at_first(ledger: RememberedAnswers) -> None:
    assert ledger.covering(PDF) is None
    assert ledger.all() == []


def test_who_asked_and_in_which_session_does_not_matter(ledger: RememberedAnswers) -> None:
    ledger.remember(PDF._replace(session="s1", agent="a", initiator="user"))
    assert ledger.covering(PDF._replace(session="s2"))


@pytest.mark.parametrize(
    "change",
    [
        {"type": "run"},
        {"patterns": ("other",), "always": ("other",)},
        {"skill": "other"},
        {"hash": "h2"},
        {"origin": "url:https://example.test"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_entry_covers_only_what_it_is_bound_to(
    ledger: RememberedAnswers, change: dict[str, object]
) -> None:
    ledger.remember(PDF)
    assert ledger.covering(PDF._replace(**change)) is None  # type: ignore[arg-type]


def test_another_project_is_not_covered(ledger: RememberedAnswers, store: Store) -> None:
    ledger.remember(PDF)
    assert RememberedAnswers(store, "/q").covering(PDF) is None


def test_a_skill_named_like_a_wildcard_approves_only_itself(ledger: RememberedAnswers) -> None:
    """Case 88."""
    star = PDF._replace(patterns=("*",), always=("*",), skill="*")
    ledger.remember(star)
    assert ledger.covering(star)
    assert ledger.covering(PDF) is None
    assert ledger.covering(PDF._replace(skill="*")) is None


@given(st.text(), st.text())
def test_a_text_covers_itself_and_no_other(kept: str, other: str) -> None:
    ledger = RememberedAnswers(MemoryStore(), "/p")
    ledger.remember(run(kept))
    assert (ledger.covering(run(other)) is not None) == (kept == other)


def test_each_text_is_an_entry(ledger: RememberedAnswers) -> None:
    made = ledger.remember(run("git add", "git rm", "git add"))
    assert [entry.pattern for entry in made] == ["git add", "git rm"]
    assert {entry.id for entry in ledger.all()} == {entry.id for entry in made}


def test_a_request_is_covered_only_as_a_whole(ledger: RememberedAnswers) -> None:
    [entry] = ledger.remember(run("git add"))
    assert ledger.covering(run("git add", "git rm")) is None
    ledger.remember(run("git rm"))
    assert ledger.covering(run("git add", "git rm")) == entry


def test_the_text_to_remember_may_be_coarser_than_the_pattern(ledger: RememberedAnswers) -> None:
    ledger.remember(run("git add"))
    assert ledger.covering(run("git add")._replace(patterns=("git add y.txt",)))


def test_without_texts_nothing_is_remembered(ledger: RememberedAnswers) -> None:
    assert ledger.remember(run()) == []
    assert ledger.all() == []


def test_without_texts_the_patterns_must_be_remembered(ledger: RememberedAnswers) -> None:
    ledger.remember(run("git add x.txt"))
    assert ledger.covering(run())
    assert ledger.covering(run()._replace(patterns=("git add y.txt",))) is None


def test_a_request_for_nothing_is_not_covered(ledger: RememberedAnswers) -> None:
    ledger.remember(PDF)
    assert ledger.covering(PDF._replace(patterns=(), always=())) is None


def test_a_skill_of_unknown_content_is_never_covered(ledger: RememberedAnswers) -> None:
    unknown = PDF._replace(hash="")
    assert ledger.remember(unknown) == []
    assert ledger.covering(unknown) is None


def test_what_is_about_no_skill_needs_no_hash(ledger: RememberedAnswers) -> None:
    trust = Request("trust", ("/p",), ("/p",))
    ledger.remember(trust)
    assert ledger.covering(trust)


def test_a_skill_that_changed_and_changed_back_is_asked_for_again(
    ledger: RememberedAnswers,
) -> None:
    ledger.remember(PDF)
    ledger.remember(run("git add"))
    assert ledger.covering(PDF._replace(hash="h2")) is None
    assert ledger.all() == []
    assert ledger.covering(PDF) is None


def test_approving_a_new_content_revokes_the_old(ledger: RememberedAnswers) -> None:
    ledger.remember(PDF)
    [new] = ledger.remember(PDF._replace(hash="h2"))
    assert ledger.all() == [new]


def test_a_skill_of_that_name_from_elsewhere_revokes_nothing(ledger: RememberedAnswers) -> None:
    [entry] = ledger.remember(PDF)
    assert ledger.covering(PDF._replace(hash="h2", origin="url:https://example.test")) is None
    assert ledger.all() == [entry]


def test_an_unknown_content_revokes_nothing(ledger: RememberedAnswers) -> None:
    [entry] = ledger.remember(PDF)
    ledger.covering(PDF._replace(hash=""))
    assert ledger.all() == [entry]


def test_the_id_is_short_and_follows_from_what_the_entry_is_bound_to(
    ledger: RememberedAnswers,
) -> None:
    [one] = ledger.remember(PDF, by="ada")
    [again] = ledger.remember(PDF, by="bob")
    assert one.id == again.id
    assert len(one.id) == 12 and int(one.id, 16) >= 0
    assert [entry.by for entry in ledger.all()] == ["bob"]


def test_two_ways_to_cut_the_same_letters_have_two_ids(ledger: RememberedAnswers) -> None:
    [one] = ledger.remember(PDF._replace(always=("ab",), skill="c"))
    [two] = ledger.remember(PDF._replace(always=("a",), skill="bc"))
    assert one.id != two.id


def test_entries_come_in_order_of_time(ledger: RememberedAnswers) -> None:
    for name in ("c", "a", "b"):
        ledger.remember(run(name))
        time.sleep(0.002)
    assert [entry.pattern for entry in ledger.all()] == ["c", "a", "b"]


def test_another_project_may_be_listed(ledger: RememberedAnswers, store: Store) -> None:
    made = RememberedAnswers(store, "/q").remember(PDF)
    assert ledger.all("/q") == made
    assert ledger.all() == []


def test_a_revoked_entry_covers_nothing(ledger: RememberedAnswers) -> None:
    [entry] = ledger.remember(PDF)
    assert ledger.revoke(entry.id) == entry
    assert ledger.covering(PDF) is None
    assert ledger.revoke(entry.id) is None


def test_a_skill_is_revoked_with_all_its_entries(ledger: RememberedAnswers) -> None:
    gone = [*ledger.remember(PDF), *ledger.remember(run("git add"))]
    kept = ledger.remember(PDF._replace(skill="docx"))
    assert {entry.id for entry in ledger.revoke_skill("pdf")} == {entry.id for entry in gone}
    assert ledger.all() == kept
    assert ledger.revoke_skill("pdf") == []


def test_deleting_and_expiring_sessions_leaves_what_was_remembered(
    ledger: RememberedAnswers, store: Store
) -> None:
    made = ledger.remember(PDF)
    store.delete(PLACE)
    store.expire(time.time() + 1)
    assert ledger.all() == made


@pytest.mark.parametrize(
    "value",
    [
        "",
        "not json",
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        json.dumps({"time": "soon"}),
        json.dumps({**PDF._asdict(), "metadata": {}, "time": 1}),
        '{"id":"x","type":"skill","pattern":"pdf","skill":"pdf","hash":"h1","origin":"local",'
        '"project":"/p","time":NaN,"by":""}',
        '{"id":"x","type":"skill","pattern":["pdf"],"skill":"pdf","hash":"h1","origin":"local",'
        '"project":"/p","time":1,"by":""}',
        '{"id":"x","type":"skill","pattern":"pdf","skill":"pdf","hash":"h1","origin":"local",'
        '"project":"/q","time":1,"by":""}',
    ],
    ids=str.__len__,
)
def test_what_is_no_entry_of_the_project_is_ignored(
    ledger: RememberedAnswers, store: Store, value: str
) -> None:
    store.append(PLACE, [], {"user:remembered:0123456789ab": value, "user:other": value})
    made = ledger.remember(PDF._replace(skill="docx"))
    assert ledger.all() == made
    assert ledger.covering(PDF) is None


def test_texts_of_any_letters_are_kept(ledger: RememberedAnswers) -> None:
    odd = run('é\n"\\', "\ud800", "")
    assert [entry.pattern for entry in ledger.remember(odd)] == list(odd.always)
    assert ledger.covering(odd)


def test_processes_that_remember_at_once_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "state.sqlite3")
    code = (
        "import sys\n"
        "from skillbelt.permission.remembered import RememberedAnswers\n"
        "from skillbelt.permission.rules import Request\n"
        "from skillbelt.store.sqlite import SqliteStore\n"
        "ledger = RememberedAnswers(SqliteStore(sys.argv[1]), '/p')\n"
        f"for number in range({EACH}):\n"
        "    text = f'{sys.argv[2]}-{number}'\n"
        "    ledger.remember(Request('run', (text,), (text,), skill='a', hash='h'))\n"
    )
    children = [
        warm.Popen[bytes]([sys.executable, "-W", "error", "-c", code, path, str(number)])
        for number in range(PROCESSES)
    ]
    assert [child.wait(150) for child in children] == [0] * PROCESSES
    with closing(SqliteStore(path)) as store:
        kept = {entry.pattern for entry in RememberedAnswers(store, "/p").all()}
    assert kept == {f"{one}-{number}" for one in range(PROCESSES) for number in range(EACH)}
