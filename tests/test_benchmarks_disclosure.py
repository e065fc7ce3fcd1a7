"""The reports on prompts measure what they say, and give the same figures every time."""

from __future__ import annotations

import json
import re
import statistics
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benchmarks import prefix, tokens, turns
from benchmarks.conversation import OUTPUT, Belt, Step, injected, progressive, read, serialised

from skillbelt.conversation.messages import Material, materialize
from skillbelt.conversation.vendors.shapes import MESSAGE_FORMATS, MessageFormat

BELT = Belt(
    "Skills: a, b, c",
    "[]",
    tuple(Material(name, f"Body of {name}.", (("x.md", f"Text of {name}."),)) for name in "abc"),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_every_step_is_followed_by_a_request() -> None:
    script = [Step("user"), Step("load", 1), Step("docs", 1), Step("work"), Step("user")]
    requests = progressive(script, BELT)
    assert [request.step for request in requests] == script
    assert [request.turn for request in requests] == [1, 1, 1, 1, 2]
    assert ["Body of b." in request.text for request in requests] == [False, *[True] * 3, False]
    assert ["Text of b." in request.text for request in requests] == [False] * 2 + [True] * 2 + [
        False
    ]
    assert "Body of a." not in requests[-2].text
    assert json.dumps(OUTPUT) in requests[-1].text


def test_full_injection_has_everything_and_loads_nothing() -> None:
    script = [Step("user"), Step("load", 1), Step("docs", 1), Step("work")]
    [first, second] = injected(script, BELT, documents=True)
    for name in "abc":
        assert f"Body of {name}." in first.text
        assert f"Text of {name}." in first.text
    assert "skill_load" not in second.text
    [bodies, _] = injected(script, BELT, documents=False)
    assert "Body of a." in bodies.text
    assert "Text of a." not in bodies.text


@pytest.mark.parametrize(("one", "two", "same"), [("", "a", 0), ("ab", "ac", 1), ("ab", "abc", 2)])
def test_the_common_prefix_is_exact(one: str, two: str, same: int) -> None:
    assert prefix.common(one, two) == prefix.common(two, one) == same


def test_the_bars_of_the_prefix_hold_for_tool_placement() -> None:
    for mode in prefix.MODES:
        row = prefix.measured(BELT, "tool", mode)
        assert row.passed
        assert row.system_texts == 1
    assert prefix.measured(BELT, "tool", "turn").least(same_turn=True) == 1.0
    system = prefix.measured(BELT, "system", "turn")
    assert system.system_texts > 1
    assert system.least(same_turn=True) < 1.0


@pytest.mark.parametrize("format", MESSAGE_FORMATS)
def test_a_vendor_gets_each_request_with_the_whole_of_the_one_before(
    format: MessageFormat,
) -> None:
    for mode in prefix.STEADY_MODES:
        row = prefix.measured(BELT, "tool", mode, format)
        assert (row.system_texts, row.least(same_turn=True), row.passed) == (1, 1.0, True)
    sent = progressive(prefix.SCRIPT, BELT, format=format)[1].text
    assert "[Loaded] " in sent and '"tools"' in sent


def test_a_row_that_moves_text_misses_the_bar() -> None:
    row = prefix.measured(BELT, "tool", "turn")
    moved = row.pairs[0]._replace(shared=row.pairs[0].before - 1, same_turn=True)
    assert not row._replace(pairs=(moved, *row.pairs[1:])).passed
    assert not row._replace(system_texts=2).passed


@pytest.mark.long
def test_the_timed_request_is_the_one_described() -> None:
    messages, loaded, landed = prefix.long_request()
    sent = serialised(materialize(messages, loaded, landed=landed))
    assert sent.count("[Loaded] skill-") == sent.count("[Doc] notes.md") == prefix.SKILLS
    assert len(messages) == prefix.MESSAGES
    assert 880 <= statistics.median(len(message["content"]) for message in messages) <= 920
    assert all(5_000 <= len(one.body) <= 5_240 and one.docs for one in loaded)
    assert prefix.time_ratio(rounds=1, repeats=1) > 0


@pytest.mark.long
def test_the_prefix_report_of_the_examples(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix, "time_ratio", lambda **_: 1.0)
    assert prefix.main([]) == 0
    shown = capsys.readouterr().out
    for format in ("messages", "openai", "responses", "anthropic", "gemini"):
        line = rf"^{format} +tool +session +16 +1 +100\.0% +100\.0%"
        assert re.search(line, shown, re.MULTILINE)
    assert prefix.main(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 6 + 2 * len(MESSAGE_FORMATS)
    assert all(len(row["pairs"]) == row["requests"] - 1 for row in rows)
    monkeypatch.setattr(prefix, "time_ratio", lambda **_: prefix.TIME_BAR + 0.1)
    assert prefix.main([]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_the_token_report_of_the_examples(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "out.svg"
    assert tokens.main(["--plot", str(plot)]) == 0
    first = capsys.readouterr().out
    assert first.startswith("7 skills, 5 documents\n")
    assert tokens.main(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    bars = ElementTree.fromstring(plot.read_text("utf-8")).iter("{http://www.w3.org/2000/svg}rect")
    assert len(list(bars)) == 1 + 2 * len(rows)
    assert tokens.main([]) == 0
    assert capsys.readouterr().out == first


def test_savings_are_counted_over_all_requests() -> None:
    large = Belt(
        BELT.overview,
        "tools " * 10,
        tuple(Material(f"s{number}", "Do it. " * 500) for number in range(50)),
    )
    row = tokens.compared("one skill", large, documents=False)
    assert (row.progressive.requests, row.full.requests) == (4, 3)
    assert 0.8 < row.saved < 1
    assert row.full.largest * 2 < row.full.tokens <= row.full.largest * 3


def test_a_folder_without_skills_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for main in (tokens.main, prefix.main):
        assert main([str(tmp_path)]) == 2
        assert "no skills in" in capsys.readouterr().err


def test_a_plot_that_can_not_be_written_says_what_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(SystemExit, match=r"only \.svg"):
        tokens.plot(tokens.rows(BELT), str(tmp_path / "out.png"))


def test_a_folder_is_read_as_a_host_would(tmp_path: Path) -> None:
    head = "---\nname: {0}\ndescription: Does {0}. Use when asked.\n{1}---\n\nDo {0}.\n"
    for name, more in (("one", ""), ("two", "disable-model-invocation: true\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(head.format(name, more))
    (tmp_path / "one" / "notes.md").write_text("Note.\n")
    belt = read(str(tmp_path))
    [material] = belt.materials
    assert (material.name, material.body.strip()) == ("one", "Do one.")
    assert [path for path, _ in material.docs] == ["notes.md"]
    assert "Does one." in belt.overview
    assert str(tmp_path) not in belt.overview
    assert "skill_load" in belt.definitions
    assert "two" not in belt.overview + belt.definitions


def test_a_turn_is_measured_for_every_catalogue(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("benchmarks.tree.SETTLE_SECONDS", 0.0)
    row = turns.measured(3, turns=1, rescanned=1)
    assert row.skills == 3
    assert min(row[1:]) > 0
    shown = {1.0: 0, turns.BAR + 0.1: 1}
    for factor, code in shown.items():
        monkeypatch.setattr(turns, "measured", lambda count, _, f=factor: _row(count, f))
        assert turns.main(["10", "20"]) == code
        assert ("MISSED" in capsys.readouterr().out) == bool(code)
    assert turns.main(["10", "20", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ratio"] == turns.BAR + 0.1


def _row(count: int, factor: float) -> turns.Row:
    return turns.Row(count, 1.0, 1.0 if count == 10 else factor, 2.0)
