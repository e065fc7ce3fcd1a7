"""The benchmark measures what it says: real-shaped trees, the same ones each time, and a floor."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import pytest
import yaml
from benchmarks import documents, peers, report, tree
from benchmarks.floor import floor
from benchmarks.measure import FLOOR, Pair, Run, Series, Stopped, Subject, once, series

COUNT = 30


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BENCH_CACHE", str(folder))
    monkeypatch.setattr(tree, "SETTLE_SECONDS", 0.0)
    return folder


def _strictly(data: bytes) -> object:
    """What a strict reader makes of a SKILL.md; None if it has no frontmatter block."""
    lines = data.decode().replace("\r\n", "\n").removeprefix("\ufeff").split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        return None
    return yaml.safe_load("\n".join(lines[1 : lines.index("---", 1)]))


def _files(root: str) -> dict[str, bytes]:
    found = {}
    for path in Path(root).rglob("*"):
        if path.is_file():
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


@pytest.mark.parametrize("kind", tree.KINDS)
def test_a_tree_has_one_skill_a_folder_and_the_floor_counts_them(kind: tree.Kind) -> None:
    root = tree.ensure(kind, COUNT)
    names = os.listdir(root)
    assert len(names) == COUNT
    assert all(os.path.isfile(os.path.join(root, name, "SKILL.md")) for name in names)
    assert floor(root) == COUNT
    assert (len(_files(root)) == COUNT) == (kind == "bare")


def test_the_same_tree_is_written_every_time(tmp_path: Path) -> None:
    tree.write(str(tmp_path / "one"), COUNT, "full")
    written = tree.write(str(tmp_path / "two"), COUNT, "full")
    assert _files(str(tmp_path / "one")) == _files(str(tmp_path / "two"))
    assert written == len(_files(str(tmp_path / "two")))


def test_a_finished_tree_is_kept_and_an_unfinished_one_written_again() -> None:
    root = tree.ensure("bare", COUNT)
    kept = os.path.join(root, sorted(os.listdir(root))[0], "SKILL.md")
    os.remove(kept)
    assert tree.ensure("bare", COUNT) == root
    assert not os.path.exists(kept)
    os.remove(os.path.join(os.path.dirname(root), "complete"))
    tree.ensure("bare", COUNT)
    assert os.path.exists(kept)


def test_documents_have_the_sizes_of_real_ones() -> None:
    made = [documents.document(number) for number in range(2_000)]
    blocks = sorted(each.frontmatter_bytes for each in made if not each.mistake)
    assert 370 < statistics.median(blocks) < 460
    assert blocks[int(len(blocks) * 0.95)] < 1_100
    assert blocks[int(len(blocks) * 0.99)] < 1_900
    assert 120 < statistics.median(len(each.description) for each in made) < 160
    assert 4_500 < statistics.median(len(each.data) for each in made) < 5_800
    assert 0.003 < sum(b"\r\n" in each.data for each in made) / len(made) < 0.012
    assert 0.01 < sum(bool(each.mistake) for each in made) / len(made) < 0.035
    files = sum(1 + len(documents.bundled(number)) for number in range(2_000)) / 2_000
    assert 4.0 < files < 5.0


@pytest.mark.long
def test_only_the_documents_with_a_mistake_are_unreadable() -> None:
    for each in map(documents.document, range(600)):
        try:
            value = _strictly(each.data)
        except yaml.YAMLError:
            value = None
        readable = isinstance(value, dict) and {"name", "description"} <= value.keys()
        assert readable is not bool(each.mistake), each


@pytest.mark.parametrize("mistake", documents.MISTAKES)
def test_every_mistake_defeats_a_strict_reader(
    mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "UNREADABLE_SHARE", 1.0)
    monkeypatch.setattr(documents, "MISTAKES", {mistake: 1})
    each = documents.document(7)
    assert each.mistake == mistake
    try:
        value = _strictly(each.data)
    except yaml.YAMLError:
        return
    assert not isinstance(value, dict) or not {"name", "description"} <= value.keys()


def test_strict_documents_keep_to_the_specification() -> None:
    allowed = {"name", "description", "license", "compatibility", "allowed-tools", "metadata"}
    for number in range(300):
        each = documents.document(number, strict=True)
        value = _strictly(each.data)
        assert isinstance(value, dict)
        assert value.keys() <= allowed
        assert value["name"] == each.name
        assert len(value["description"]) <= 1_024
        assert all(isinstance(held, str) for held in value.get("metadata", {}).values())


def test_the_floor_is_measured_in_a_fresh_process() -> None:
    root = tree.ensure("bare", COUNT)
    run = once(Subject("floor", *FLOOR), root)
    assert run.found == COUNT
    assert run.cpu > 0
    assert run.peak_mb > 1


def test_every_measurement_has_its_own_floor_and_preparation() -> None:
    root = tree.ensure("bare", COUNT)
    prepared: list[None] = []
    taken = series(
        Subject("count", "", "found = len(os.listdir(root))"),
        root,
        2,
        before=lambda: prepared.append(None),
    )
    assert len(taken.pairs) == 2
    assert len(prepared) == 3
    assert taken.found == COUNT


def test_a_process_that_fails_says_why() -> None:
    root = tree.ensure("bare", 1)
    with pytest.raises(Stopped, match="ValueError: no such luck"):
        once(Subject("broken", "", "raise ValueError('no such luck')"), root)
    with pytest.raises(Stopped, match="over 1 s"):
        once(Subject("slow", "", "time.sleep(30); found = 0"), root, timeout=1)


def test_a_subject_that_takes_too_long_is_not_measured() -> None:
    root = tree.ensure("bare", 1)
    with pytest.raises(Stopped, match="of CPU"):
        series(Subject("busy", "", "found = sum(range(10_000))"), root, 1, cpu_seconds=0.0)


def _series(cpu: float) -> Series:
    below = Run(COUNT, 1.0, 1.0, 20.0, 0.0, 15.0)
    return Series((Pair(below, Run(COUNT, cpu, cpu, 50.0, 0.1, 15.0)),))


def test_the_page_keeps_what_was_not_measured_and_renews_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    names = ("machine", "bars", "sizes", "peers")
    blocks = (f"<!-- bench:{name} -->\nold {name}\n<!-- /bench:{name} -->" for name in names)
    page.write_text("\n\n".join(("Before", *blocks, "After")), encoding="utf-8")
    bar = report.Bar("cold discovery", 2.5, 2.0, "x floor")
    row = report.SizeRow(COUNT, "full", _series(1.5), _series(0.5))
    report.write_markdown(report.Report((bar,), (row,)), str(page))
    text = page.read_text(encoding="utf-8")
    assert "- cold discovery: 2.50 x floor (at most 2.00), FAIL" in text
    assert "| 30 | full | 1.50 |" in text
    assert "old peers" in text
    assert "old bars" not in text
    assert text.startswith("Before")
    assert text.endswith("After")


def test_a_page_without_the_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(SystemExit, match="bench:machine"):
        report.write_markdown(report.Report(), str(page))


def test_the_published_pages_have_every_marker() -> None:
    root = Path(__file__).parents[1]
    pages = (root / "docs" / "performance.md", root / "benchmarks" / "figures.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name in ("machine", "bars", "sizes", "peers"):
        assert f"<!-- bench:{name} -->" in text
        assert f"<!-- /bench:{name} -->" in text


def test_every_peer_is_pinned_and_its_adapter_compiles() -> None:
    assert len({peer.label for peer in peers.PEERS}) == len(peers.PEERS)
    for peer in peers.PEERS:
        assert peer.version
        compile(f"{peer.setup}\n{peer.call}", peer.label, "exec")
        assert "found" in peer.call


def test_a_peer_that_does_not_install_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Stopped, match="does not install"):
        peers.install(peers.PEERS[0])
