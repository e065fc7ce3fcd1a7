"""The tables: on a terminal, as JSON, and between the markers of a Markdown page."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Pair, Series


class Bar(NamedTuple):
    """A figure and the most it may be."""

    what: str
    figure: float
    at_most: float
    unit: str

    @property
    def passed(self) -> bool:
        return self.figure <= self.at_most


class SizeRow(NamedTuple):
    """Discovery of one tree, without an index and with one."""

    size: int
    kind: str
    cold: Series
    warm: Series

    @property
    def cold_ratio(self) -> float:
        return self.cold.median(_cpu)

    @property
    def warm_ratio(self) -> float:
        return self.warm.median(_cpu)


class PeerRow(NamedTuple):
    """Another reader: what it was measured on, or why it was not."""

    label: str
    version: str
    measured: tuple[tuple[int, Series], ...]
    kind: str
    note: str


class Report(NamedTuple):
    """Everything one run measured."""

    bars: tuple[Bar, ...] = ()
    sizes: tuple[SizeRow, ...] = ()
    peers: tuple[PeerRow, ...] = ()
    rounds: int = 5


Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def _cpu(pair: Pair) -> float:
    return pair.cpu_ratio


def _wall(pair: Pair) -> float:
    return pair.wall_ratio


def _run_cpu(pair: Pair) -> float:
    return pair.run.cpu


def _floor_cpu(pair: Pair) -> float:
    return pair.floor.cpu


def bars_table(report: Report) -> Table:
    rows = [
        (bar.what, _number(bar.at_most, bar.unit), _number(bar.figure, bar.unit),
         "pass" if bar.passed else "FAIL")
        for bar in report.bars
    ]  # fmt: skip
    return ("what", "at most", "measured", ""), rows


def _number(value: float, unit: str) -> str:
    text = f"{value:.0f}" if unit in ("MB", "") else f"{value:.2f}"
    return f"{text} {unit}".strip()


def sizes_table(report: Report) -> Table:
    head = ("skills", "tree", "floor CPU s", "cold x floor", "wall x", "CPU s", "peak MB",
            "warm x floor", "wall x", "CPU s", "peak MB")  # fmt: skip
    rows = [
        (f"{row.size:,}", row.kind, f"{row.cold.median(_floor_cpu):.3f}",
         *_series_cells(row.cold), *_series_cells(row.warm))
        for row in report.sizes
    ]  # fmt: skip
    return head, rows


def _series_cells(series: Series) -> tuple[str, ...]:
    return (
        f"{series.median(_cpu):.2f}",
        f"{series.median(_wall):.2f}",
        f"{series.median(_run_cpu):.3f}",
        f"{series.peak_mb:.0f}",
    )


def peers_table(report: Report, *, largest: bool = False) -> Table:
    sizes = sorted({size for peer in report.peers for size, _ in peer.measured})
    sizes = sizes[-1:] if largest else sizes
    head = ["reader"]
    for size in sizes:
        head += [f"{size:,}: x floor", "wall x", "CPU s", "found", "peak MB"]
    rows = [_peer_cells(peer, sizes) for peer in sorted(report.peers, key=_speed)]
    own = [_own_cells(report, sizes, "cold"), _own_cells(report, sizes, "warm")]
    return [*head, "import CPU s", "note"], [row for row in own if row] + rows


def _speed(peer: PeerRow) -> float:
    return peer.measured[-1][1].median(_cpu) if peer.measured else float("inf")


def _own_cells(report: Report, sizes: Sequence[int], name: str) -> list[str]:
    series: dict[int, Series] = {
        row.size: row.cold if name == "cold" else row.warm
        for row in report.sizes
        if row.kind == "full"
    }
    if not any(size in series for size in sizes):
        return []
    return _cells(f"skillbelt, {name}", series, sizes, "")


def _peer_cells(peer: PeerRow, sizes: Sequence[int]) -> list[str]:
    name, _, way = peer.label.partition(", ")
    label = f"{name} {peer.version}" + (f", {way}" if way else "")
    tree = " (strict tree)" if peer.kind == "strict" else ""
    return _cells(label + tree, dict(peer.measured), sizes, peer.note)


def _cells(label: str, series: dict[int, Series], sizes: Sequence[int], note: str) -> list[str]:
    cells = [label]
    for size in sizes:
        taken = series.get(size)
        if taken is None:
            cells += ["–"] * 5
        else:
            ratio, wall, cpu, peak = _series_cells(taken)
            cells += [ratio, wall, cpu, f"{taken.found:,}", peak]
    imports = [taken.median(lambda pair: pair.run.import_cpu) for taken in series.values()]
    return [*cells, f"{min(imports):.2f}" if imports else "–", note]


def machine() -> str:
    """Describe the machine and the versions."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB; "
        f"{platform.system()} {platform.release()}; "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2] for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0].strip() if names else platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def text(report: Report, *, only_peers: bool = False) -> str:
    """The tables for a terminal; `only_peers`: the one that follows the others."""
    own = () if only_peers else (bars_table(report), sizes_table(report))
    parts = [] if only_peers else [machine()]
    for table in (*own, peers_table(report)):
        if table[1]:
            parts.append(_aligned(table))
    return "\n\n".join(parts)


def _aligned(table: Table) -> str:
    lines = [table[0], *table[1]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown(table: Table) -> str:
    """The table as Markdown; all columns but the first and the last hold numbers."""
    head, rows = table
    rule = ["---", *["---:"] * (len(head) - 2), "---"]
    return "\n".join("| " + " | ".join(_escaped(line)) + " |" for line in (head, rule, *rows))


def _escaped(cells: Iterable[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]


_START, _END = "<!-- bench:{} -->", "<!-- /bench:{} -->"
LEFT_OUT = ("floor CPU s", "wall x", "CPU s", "import CPU s", "note")


def write_markdown(report: Report, *paths: str) -> None:
    """Renew what this run measured between the markers of the pages; the rest stays as it is."""
    tables = {"sizes": _brief(sizes_table(report))}
    if report.peers:
        tables["peers"] = _brief(peers_table(report, largest=True))
    texts = {name: markdown(table) for name, table in tables.items() if table[1]}
    if report.bars:
        texts["bars"] = _page_bars(report)
    texts["machine"] = f"{machine()}. {_rounds(report)}"
    pages = {path: Path(path).read_text("utf-8") for path in paths}
    for name, text in sorted(texts.items()):
        pages = {path: _between(page, name, text) for path, page in pages.items()}
        if not any(_START.format(name) in page for page in pages.values()):
            raise SystemExit(f"no {_START.format(name)} … {_END.format(name)} in the page")
    for path, page in pages.items():
        Path(path).write_text(page, "utf-8")


def _page_bars(report: Report) -> str:
    """Return the bars as a list, with a verdict only where one was missed."""
    lines = [""]
    for what, most, measured, verdict in bars_table(report)[1]:
        missed = "" if verdict == "pass" else f", {verdict}"
        lines.append(f"- {what}: {measured} (at most {most.split()[0]}){missed}")
    return "\n".join([*lines, ""])


def _brief(table: Table) -> Table:
    """Leave out the columns that only a terminal and the JSON need."""
    head, rows = table
    kept = [at for at, name in enumerate(head) if name not in LEFT_OUT]
    return [head[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _rounds(report: Report) -> str:
    rounds = f"Median of {report.rounds} rounds" if report.rounds > 1 else "One round"
    fewer = [row for row in report.sizes if len(row.cold.pairs) < report.rounds]
    if fewer:
        rounds += f" ({len(fewer[0].cold.pairs)} with {fewer[0].size:,} skills"
        rounds += ", and with 10,000 of others)" if report.peers else ")"
    return f"{rounds} after a warm-up, every run with a floor of its own."


def _between(page: str, name: str, content: str) -> str:
    start, end = _START.format(name), _END.format(name)
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{start}\n{content}\n{end}", page)


def write_json(report: Report, path: str) -> None:
    """Every figure, for a machine."""
    content = {
        "machine": machine(),
        "python": sys.version,
        "rounds": report.rounds,
        "bars": [{**bar._asdict(), "passed": bar.passed} for bar in report.bars],
        "sizes": [
            {
                "size": row.size,
                "tree": row.kind,
                "cold": row.cold.summary(),
                "warm": row.warm.summary(),
            }
            for row in report.sizes
        ],
        "peers": [
            {
                "label": peer.label,
                "version": peer.version,
                "tree": peer.kind,
                "note": peer.note,
                "measured": {str(size): series.summary() for size, series in peer.measured},
            }
            for peer in report.peers
        ],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
