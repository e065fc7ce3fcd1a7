from __future__ import annotations

from skillbelt.search.document import Parts, document
from skillbelt.search.lexical import Candidate, compare, hits
from skillbelt.search.query import Query, query
from skillbelt.search.statistics import facts
from skillbelt.search.words import number


def candidate(name: str, description: str = "", body: str = "", id: int = 1) -> Candidate:
    made = document(Parts(name, description, "", body))
    return Candidate(
        id=id,
        terms=made.terms,
        codes=made.codes,
        described=made.described,
        length=made.length,
        facts=facts(made),
    )


def score(asked: Query, made: Candidate, name: str = "") -> float:
    return compare(asked, made, name)[0]


PDF = candidate("pdf-merge", "Merges PDF files into one.", "Use qpdf to merge the pages.")
CSV = candidate("csv-report", "Makes charts of CSV files.", "Reads the table and draws it.")


def test_the_skill_that_speaks_of_the_request_is_better() -> None:
    for text, good, bad in (
        ("merge pdf", PDF, CSV),
        ("charts from a csv table", CSV, PDF),
        ("Please put these three PDF documents together into a single file", PDF, CSV),
    ):
        asked = query(text)
        assert score(asked, good) > score(asked, bad)


def test_a_skill_that_the_request_covers_is_better_than_one_that_has_everything() -> None:
    """Of a page about a task a long text has most words; a short one that is meant has all its."""
    task = "The drone's controller overshoots. Tune the PID controller gains. " * 3
    everything = " ".join(f"topic{n} controller tune gains drone" for n in range(400))
    meant = candidate("pid-tuning", "Tunes the gains of a PID controller.", "Tune the gains.")
    asked = query(task)
    assert score(asked, meant) > score(asked, candidate("handbook", "Many topics.", everything))


def test_what_is_not_shared_gives_nothing() -> None:
    assert score(query("seismology"), PDF) == 0.0


def test_hits_are_the_words_they_share() -> None:
    found = hits(query("merge seismic pages"), PDF)
    assert {term for term, _ in found} == {number("merg"), number("page")}


def test_a_short_and_a_long_request_find_the_same_words_of_a_document() -> None:
    """A few words are looked up in the document, many are found by reading all of it."""
    handbook = candidate("handbook", "Many topics.", " ".join(f"topic{n}" for n in range(900)))
    sought = [f"topic{n}" for n in range(0, 1800, 90)]
    few, many = query(" ".join(sought)), query(" ".join([*sought, *(f"x{n}" for n in range(900))]))
    shared = {number(word) for word in (*sought[:10], "topic")}
    assert {term for term, _ in hits(few, handbook)} == shared
    assert hits(many, handbook) == hits(few, handbook)


def test_a_document_without_a_word_of_the_request_has_no_hits() -> None:
    assert hits(query("seismology"), candidate("empty")) == []


def test_a_file_that_the_request_names_speaks_for_the_skill_of_that_kind() -> None:
    xlsx = candidate("xlsx", "Reads and writes workbooks.", "Use openpyxl.")
    sales = query("Sum the shocks of demand by year. Save them as /root/result.xlsx.")
    word = query("Sum the shocks of demand by year. Save them as xlsx.")
    assert score(sales, xlsx) > score(word, xlsx)


def test_what_a_request_begins_with_counts_most() -> None:
    rest = " ".join(f"word{n}" for n in range(60))
    first, last = query(f"charts {rest} merge"), query(f"merge {rest} charts")
    assert score(first, CSV) > score(last, CSV)
    assert score(last, PDF) > score(first, PDF)


def test_the_words_of_a_name_count_more_together() -> None:
    merge = candidate("log-triage", "Reads logs.", "Look at the first error.")
    together, apart = query("do log triage of errors"), query("triage of errors in this log")
    assert score(together, merge, "log-triage") > score(together, merge)
    assert score(apart, merge, "log-triage") == score(apart, merge)


def test_a_text_of_a_few_words_is_not_covered_by_every_request() -> None:
    """Otherwise a skill with hardly any text would come first for every long request."""
    asked = query("Merge the quarterly PDF statements and file the pages by customer. " * 3)
    assert score(asked, PDF) > score(asked, candidate("stub", "Helps.", "customer file"))


def test_a_long_description_is_worth_little_to_a_long_request() -> None:
    short = candidate("pdf-short", "Merges PDF files.", "Use qpdf.")
    long = candidate("pdf-long", "Merges PDF files. " + "Also of other kinds. " * 12, "Use qpdf.")
    page = "merge the pdf files " + " ".join(f"topic{n}" for n in range(100))
    gains = [score(query(text), long) - score(query(text), short) for text in ("merge pdf", page)]
    assert gains[0] > 0 > gains[1]
