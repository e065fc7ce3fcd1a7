"""Write a report: JSON, Markdown for a pull request, JUnit for CI, and one HTML page with plots.

Every text in a report may come from a skill or a model, and is escaped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from html import escape
from types import MappingProxyType
from typing import Any

from skillbelt.errors import ConfigError
from skillbelt.evals.outcome import CaseOutcome, EvalReport, MeasuredSkill, count_of
from skillbelt.evals.statistics import Rate
from skillbelt.text import exact, one_line, shorten, xml

_TITLES = {
    "route": "Routing: is each skill found among its neighbours?",
    "script": "Scripts: does each one do what is expected?",
    "trigger": "Triggering: does the model load the skill?",
    "run": "Tasks: does the skill help?",
    "diff": "What changed between two versions of the skill",
}
_MARKS = {
    "passed": "✅", "failed": "❌", "error": "⚠️", "timeout": "⏱", "ungraded": "❔", "not-run": "–",
}  # fmt: skip
_OUTCOMES = {
    "passed": "cases passed", "failed": "cases failed", "error": "ended with an error",
    "timeout": "took too long", "ungraded": "not graded", "not-run": "not run",
}  # fmt: skip
# The sides that others are compared with.
_COMPARED = ("without_skill", "old_skill")
# A comment on GitHub takes 65,536 characters: tables are cut until the report fits.
_MAX_MARKDOWN_CHARS = 60_000
_ROWS = (200, 100, 50, 25, 10, 5, 2)
_MAX_NOTE_CHARS = 500
_MOST_FILES = 20  # of the changed files between two versions
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&])")
# Plain text that sites turn into links: mentions, references, addresses, hosts.
_LINKED = re.compile(r"(?i)(?<![\w/])[@#](?=\w)|:(?=//)|\bwww(?=\.)|\w@(?=[\w-]+\.)")
_BASELINES = ("without_skill", "old_skill")  # groups that the skill is compared with
_LINE = re.compile(r"[^\n\t]+")
_NEW_TEXT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_FORBIDDEN = re.compile("[\ufffe\uffff]")  # XML cannot express them


def require_report_path(path: str) -> None:
    """ConfigError for a path that no report can be written to, before anything is paid for."""
    if _find_ending(path) not in FORMS:
        raise ConfigError(
            f"--report {one_line(path)}: ends in none of {', '.join(FORMS)}, which say what is "
            "written"
        )
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder) or os.path.isdir(path):
        raise ConfigError(f"--report {one_line(path)}: give a file in a folder that exists")
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        # A checkout may contain it; through a link the report would overwrite any file of the user.
        raise ConfigError(f"--report {one_line(path)}: is a link or not a plain file; give another")


def _find_ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def write_report(report: EvalReport, path: str) -> None:
    """Write the report in the form that the ending of the path says; ConfigError otherwise."""
    require_report_path(path)
    text = FORMS[_find_ending(path)](report)
    try:
        handle = os.open(path, _NEW_TEXT, 0o666)
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"--report {one_line(path)}: {error.strerror}") from None


def render_json(report: EvalReport) -> str:
    """Return the report as a JSON document."""
    return json.dumps(report.document(), indent=2) + "\n"


# Markdown


def _escape(text: str) -> str:
    """Return a message for Markdown. Names in it cannot mention a user or become a link."""
    split = _LINKED.sub(lambda found: f"{found[0]}\u200b", one_line(text))
    return _MARKDOWN.sub(r"\\\1", split)


def _quote(text: str) -> str:
    """Return untrusted text as code for Markdown: links, mentions and markup have no effect."""
    plain = one_line(text).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain.strip() else ""


def _make_table(head: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows[:most])
    yield from ("", *_count_more(rows, most))


def _count_more(items: Sized, most: int) -> Iterator[str]:
    if len(items) > most:
        yield from (f"and {len(items) - most:,} more", "")


def render_markdown(report: EvalReport) -> str:
    """Return the report for a comment on a pull request, short enough for one."""
    for most in _ROWS:
        text = _render_markdown(report, most)
        if len(text) <= _MAX_MARKDOWN_CHARS:
            break
    return text


def _render_markdown(report: EvalReport, most: int) -> str:
    """Return the report with at most that many rows in each table."""
    lines = [f"## {_TITLES[report.kind]}", ""]
    mark = "❌" if not report.passed else "✅" if report.bars else "📏"
    lines += [f"{mark} {_escape(summarise(report))}", ""]
    lines += _markdown_measures(report, most)
    lines += _markdown_bars(report, most)
    lines += _markdown_facts(report.facts, most)
    for text in report.warnings[:most]:
        lines += [f"> **Note:** {_escape(shorten(text, _MAX_NOTE_CHARS))}", ""]
    lines += _count_more(report.warnings, most)
    if report.confusions:
        rows = [
            (_quote(one.meant or "none"), _quote(one.found), _quote(", ".join(one.words)),
             _quote(one.query))
            for one in report.confusions
        ]  # fmt: skip
        lines += ["### Requests that went elsewhere", ""]
        lines += _make_table(("meant", "went to", "words that led there", "request"), rows, most)
    lines += _markdown_cases(report.cases, most)
    return "\n".join(lines)


def _markdown_measures(report: EvalReport, most: int) -> Iterator[str]:
    names = measure_names(report)
    skills = list(report.skills)
    if len(skills) > most:  # the worst are worth reading
        skills.sort(key=lambda one: _first_rate(one, names))
    rows = [
        (_quote(label_of(one)), *(_escape(str(one.measures[name])) if name in one.measures else "-"
                                  for name in names))
        for one in skills
    ]  # fmt: skip
    if rows:
        yield from _make_table(("skill", *map(_escape, names)), rows, most)


def _first_rate(skill: MeasuredSkill, names: Sequence[str]) -> float:
    """Return the rate of the first measure; 1 if there is none."""
    rate = skill.measures[names[0]].rate if names and names[0] in skill.measures else None
    return 1.0 if rate is None else rate


def _markdown_bars(report: EvalReport, most: int) -> Iterator[str]:
    low = [bar for bar in report.bars if not bar.passed]
    for bar in low[:most]:
        yield (
            f"- ❌ {_quote(bar.label)}: {_escape(bar.measure)} is {bar.rate:.2f}, and must be at "
            f"least {bar.least:.2f}"
        )
    if low:
        yield from ("", *_count_more(low, most))


def _markdown_facts(facts: Mapping[str, Any], most: int) -> Iterator[str]:
    """Show differences between sides, what was spent, and what changed between versions."""
    for one in _as_list(facts.get("differences")):
        yield f"- {_escape(describe_difference(one))}"
    if "tokens" in facts and isinstance(facts["tokens"], int):
        yield f"- {describe_spending(facts)}"
    yield ""
    old_new = facts.get("tokens")
    if isinstance(old_new, Mapping):
        rows = [(key, str(old_new["old"][key]), str(old_new["new"][key])) for key in old_new["new"]]
        yield from _make_table(("tokens", "old", "new"), rows, len(rows))
    for line in describe_files(facts):
        yield from (f"- {_quote(line)}", "")
    for label, text in version_diffs(facts):
        yield f"<details><summary>{label}</summary>"
        yield from ("", *_fence_diff(text, most), "", "</details>", "")


def version_diffs(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each text that changed between two versions, with its diff."""
    for key, label in (("description", "description"), ("body", "SKILL.md")):
        given = facts.get(key)
        text = given.get("diff", "") if isinstance(given, Mapping) else given
        if isinstance(text, str) and text:
            yield label, text


def describe_files(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each kind of change of files between two versions."""
    changes = facts.get("files")
    for kind, paths in changes.items() if isinstance(changes, Mapping) else ():
        if paths:
            more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
            yield f"files {kind}: {', '.join(map(one_line, paths[:_MOST_FILES]))}{more}"


def _fence_diff(text: str, most: int) -> Iterator[str]:
    longest = max((len(one) for one in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}diff"
    yield from (exact(line) for line in text.splitlines()[:most])
    yield from (fence, "", *_count_more(text.splitlines(), most))


def describe_difference(one: Mapping[str, Any]) -> str:
    """Return a difference between two sides in words."""
    interval = f"95 %: {one['low']:+.2f} to {one['high']:+.2f}"
    if one["tasks"] == 1:
        interval = "one task has no interval"
    return (
        f"with {one_line(str(one['name']))} over {count_of(one['tasks'], 'task')}: difference of "
        f"the pass rate {one['mean']:+.2f} ({interval})"
    )


def describe_spending(facts: Mapping[str, Any]) -> str:
    """Return what an evaluation took, in words."""
    cost = facts.get("cost_usd")
    dollars = f", {cost:.4f} dollars" if isinstance(cost, float) and cost else ""
    tokens = f"{facts['tokens']:,} tokens{dollars}"
    if facts.get("estimated"):
        tokens = f"about {tokens}, since the server did not count them"
    cached = facts.get("cached")
    known = f"; from the cache: {count_of(cached, 'case')}" if isinstance(cached, int) else ""
    end = "; the budget is spent" if facts.get("spent") else ""
    return f"{tokens}{known if cached else ''}{end}"


def _markdown_cases(cases: Sequence[CaseOutcome], most: int) -> Iterator[str]:
    wrong = [one for one in cases if one.outcome != "passed"]
    if not wrong:
        return
    yield f"<details><summary>{len(wrong)} of {len(cases)} cases did not pass</summary>"
    yield ""
    rows = [
        (_MARKS[one.outcome], _quote(name_case(one)), _escape(one.group.replace("_", " ")),
         _quote(shorten(one_line(text_of(one)), 160)), _quote(shorten(one_line(one.detail), 300)))
        for one in wrong
    ]  # fmt: skip
    yield from _make_table(("", "skill", "kind", "case", "what happened"), rows, most)
    yield "</details>"
    yield ""


def name_case(one: CaseOutcome) -> str:
    """Return the skill of a case, with the model and the number of the repeat where it has them."""
    more = [one.model, f"run {one.data['run']}" if one.data.get("run") else ""]
    return " ".join(filter(None, (one.skill, *more)))


def text_of(one: CaseOutcome) -> str:
    """Return what a case asks, with the id of a script's case: others may differ in input only."""
    known = one.group != "script" or not one.id or one.id in one.text
    return one.text if known else f"{one.id}: {one.text}"


def measure_names(report: EvalReport) -> list[str]:
    """Return the names of all measures, in order."""
    return list(dict.fromkeys(name for one in report.skills for name in one.measures))


def label_of(one: MeasuredSkill) -> str:
    """Return the skill, with the model where there is one, and what it is compared with."""
    more = ", ".join(filter(None, (one.model, one.baseline.replace("_", " "))))
    return f"{one.name} ({more})" if more else one.name


def summarise(report: EvalReport) -> str:
    """Return the result in one sentence."""
    cases = count_of(len(report.cases), "case")
    first = next(iter(report.overall.items()), None)
    result = f"{first[0]} {first[1]}" if first else "nothing was measured"
    low = sum(not bar.passed for bar in report.bars)
    bars = f"; {low} of {len(report.bars)} under the bar" if report.bars else ""
    rest = "" if report.complete else "; not all cases were run"
    return f"{cases}: {result}{bars}{_summarise_failures(report)}{rest}"


def _summarise_failures(report: EvalReport) -> str:
    """Return how many conversations are not counted, because they have no result."""
    if report.kind not in ("trigger", "run"):
        return ""
    words = {"error": "error", "timeout": "timeout"}
    counts = {word: sum(one.outcome == key for one in report.cases) for key, word in words.items()}
    parts = [count_of(number, word) for word, number in counts.items() if number]
    for_bars = " (missed, for a bar)" if report.bars else ""
    return f"; not counted: {' and '.join(parts)}{for_bars}" if parts else ""


# JUnit


def render_junit(report: EvalReport) -> str:
    """Return the report as JUnit XML; a case that nothing decided is skipped.

    A case without the skill, or with an old one, is what others are compared with: it may fail.
    """
    by_skill: dict[str, list[CaseOutcome]] = {}
    for one in report.cases:
        by_skill.setdefault(one.skill, []).append(one)
    suites = [_render_suite(f"{report.kind}.{name}", cases) for name, cases in by_skill.items()]
    suites += [_bar_suite(report)] if report.bars else []
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites,
                      "</testsuites>", ""])  # fmt: skip


def _make_visible(text: str) -> str:
    """Return untrusted text with escapes for characters that hide or reverse what follows."""
    return _FORBIDDEN.sub("?", _LINE.sub(lambda found: exact(found[0]), text))


def _escape_attribute(text: str) -> str:
    return xml(_make_visible(text)).replace('"', "&quot;")


def _render_suite(name: str, cases: Sequence[CaseOutcome]) -> str:
    count = {key: sum(one.outcome == key for one in cases) for key in _MARKS}
    count["failed"] -= sum(_may_fail(one) for one in cases)
    head = (
        f'<testsuite name="{_escape_attribute(name)}" tests="{len(cases)}" '
        f'failures="{count["failed"]}" errors="{count["error"] + count["timeout"]}" '
        f'skipped="{count["ungraded"] + count["not-run"]}" '
        f'time="{sum(one.seconds for one in cases):.3f}">'
    )
    return "\n".join([head, *(_render_case(one, name) for one in cases), "</testsuite>"])


def _may_fail(one: CaseOutcome) -> bool:
    return one.outcome == "failed" and one.group in _COMPARED


def _render_case(one: CaseOutcome, suite: str) -> str:
    run = f"run {one.data['run']}" if one.data.get("run") else ""
    label = " ".join(filter(None, (one.id, one.group, one.model, run)))
    head = (
        f'<testcase name="{_escape_attribute(f"{label}: {shorten(one_line(one.text), 120)}")}" '
        f'classname="{_escape_attribute(suite)}" time="{one.seconds:.3f}"'
    )
    tags = {"failed": "failure", "error": "error", "timeout": "error"}
    if one.outcome == "passed":
        return f"{head}/>"
    if _may_fail(one):
        return f"{head}><system-out>{escape(_make_visible(one.detail))}</system-out></testcase>"
    message = _escape_attribute(shorten(one_line(one.detail), 500))
    tag = tags.get(one.outcome, "skipped")
    body = f"{escape(_make_visible(one.detail))}</{tag}>" if tag != "skipped" else f"</{tag}>"
    return f'{head}><{tag} message="{message}">{body}</testcase>'


def _bar_suite(report: EvalReport) -> str:
    cases = [
        CaseOutcome(
            id=f"{bar.measure} >= {bar.least:g}",
            skill=bar.name,
            group="bar",
            text=" ".join(filter(None, (bar.name, bar.model))),
            outcome="passed" if bar.passed else "failed",
            detail=f"{bar.measure} of {bar.name} is {bar.rate:.4f}, under {bar.least:g}",
        )
        for bar in report.bars
    ]
    return _render_suite(f"{report.kind}.bars", cases)


# HTML


_STYLE = """
:root{color-scheme:light dark;--paper:#fbfcfb;--sheet:#fff;--sunk:#f1f4f2;--line:#e1e6e3;
--edge:#87918c;--ink:#131816;--soft:#3b4540;--faint:#5a655f;--accent:#0e5a4b;--good:#1a6639;--good-wash:#e4f3e8;
--bad:#a52c15;--bad-wash:#fbe9e4;--warn:#774600;--warn-wash:#fcf1da;--focus:#1463d8}
@media(prefers-color-scheme:dark){:root{--paper:#111514;--sheet:#171c1a;--sunk:#1d2321;
--line:#29312d;--edge:#6f7c75;--ink:#e7ece9;--soft:#c0cac5;--faint:#97a39d;--accent:#82d2bd;
--good:#88d69e;--good-wash:#17311f;--bad:#f7a28d;--bad-wash:#3a201a;--warn:#efc475;
--warn-wash:#332810;--focus:#7ab4ff}}
*{box-sizing:border-box}
body{font:.9375rem/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);
background:var(--paper);margin:0}
main{max-width:68rem;margin:0 auto;padding:2.5rem 1.5rem 4rem;overflow-wrap:anywhere}
h1{font:500 2rem/1.2 Georgia,"Times New Roman",serif;letter-spacing:-.02em;margin:0 0 .75rem}
h2{font-size:1.05rem;margin:2.5rem 0 .75rem}h3{font-size:.875rem;margin:1.25rem 0 .5rem}
.badge{display:inline-block;padding:.1rem .6rem;border-radius:1rem;font-weight:600;
font-size:.8rem;background:var(--sunk);color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}.badge.good{background:var(--good-wash)}
.badge.bad{background:var(--bad-wash)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10rem,1fr));gap:.75rem;
margin:1.25rem 0;padding:0;list-style:none}
.tiles li,.sheet{background:var(--sheet);border:1px solid var(--line);border-radius:8px;
padding:.8rem 1rem}
.tiles strong{display:block;font:500 1.7rem/1.2 Georgia,serif}.tiles span,.range{color:var(--faint);
font-size:.8rem}
.note{background:var(--warn-wash);color:var(--warn);border-radius:8px;padding:.5rem .9rem;
margin:.5rem 0}
.row{display:grid;grid-template-columns:minmax(0,19rem) minmax(0,1fr) 12rem;gap:0 1.25rem;
align-items:center;padding:.3rem 0}
.track{position:relative;height:1.25rem;
background:linear-gradient(var(--line),var(--line)) 0 50%/100% 1px no-repeat}
.track i,.track b{position:absolute;top:50%;transform:translateY(-50%)}
.track i{height:4px;border-radius:2px;background:currentColor;opacity:.4}
.track b{width:12px;height:12px;margin-left:-6px;border-radius:50%;background:currentColor;
border:2px solid currentColor}.track b.from{background:var(--sheet);color:var(--edge)}
.track.mark{color:var(--accent)}.axis{color:var(--faint);font-size:.75rem;padding:0}
.axis .track{background:none}.axis .track span{position:absolute;transform:translateX(-50%)}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;
padding:.5rem 1rem .5rem 0;border-bottom:1px solid var(--line)}td{min-width:5.5rem}
tr:last-child td{border-bottom:0}
th{font-weight:600;font-size:.8rem;color:var(--faint)}
.scroll{overflow-x:auto}pre,code{font-family:ui-monospace,"SF Mono",Menlo,Consolas,monospace}
pre{white-space:pre-wrap;margin:0;font-size:.8rem;line-height:1.6}
.add{color:var(--good)}.gone{color:var(--bad)}
details{margin:.5rem 0}summary{cursor:pointer;padding:.4rem 0;font-weight:550}
:focus-visible{outline:2px solid var(--focus);outline-offset:2px;border-radius:4px}
@media(max-width:44rem){main{padding:1.5rem 1rem 3rem}h1{font-size:1.6rem}
.row{grid-template-columns:1fr;padding:.5rem 0;margin:0 .4rem}
.axis :first-child:empty,.axis :last-child:empty{display:none}
table,tbody,tr,td{display:block}thead{position:absolute;clip-path:inset(50%)}
tr{padding:.6rem 0;border-bottom:1px solid var(--line)}tr:last-child{border-bottom:0}
td{border:0;padding:.1rem 0}td[data-head]:not(:empty)::before{content:attr(data-head);display:block;
color:var(--faint);font-size:.75rem}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render_html(report: EvalReport) -> str:
    """Return one page that needs no network and no script."""
    title = _TITLES[report.kind]
    mark = ("good", "passed") if report.bars else ("soft", "measured, without a bar")
    if not report.passed:
        mark = ("bad", "not passed")
    parts = [
        f'<p><span class="badge {mark[0]}">{mark[1]}</span> {_html(summarise(report))}</p>',
        *_html_tiles(report),
        *(f'<p class="note">{_html(text)}</p>' for text in report.warnings),
        *_html_measures(report),
        *_html_pairs(report),
        *_html_bars(report),
        *_html_versions(report.facts),
        *_html_confusions(report),
        *_html_cases(report.cases),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_html(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{_html(title)}</h1>\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )


def _html(text: str) -> str:
    return escape(_make_visible(text))


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield '<div class="scroll sheet" tabindex="0"><table><thead><tr>'
    yield "".join(f'<th scope="col">{_html(one)}</th>' for one in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = zip(head, row, strict=True)
        row_cells = (f'<td data-head="{_html(name)}">{cell}</td>' for name, cell in cells)
        yield f"<tr>{''.join(row_cells)}</tr>"
    yield "</tbody></table></div>"


def _html_tiles(report: EvalReport) -> Iterator[str]:
    """Show the measures of all skills together, and how many cases had each outcome."""
    yield '<ul class="tiles">'
    for name, rate in report.overall.items():
        if rate.rate is not None:
            caption = f"{name}: {rate.low:.2f} to {rate.high:.2f}, {rate.hits} of {rate.total}"
            yield f"<li><strong>{rate.rate:.2f}</strong><span>{_html(caption)}</span></li>"
    mine = [one for one in report.cases if one.group not in _BASELINES]
    side = " with the skill" if len(mine) < len(report.cases) else ""
    for key in _MARKS:
        if found := sum(one.outcome == key for one in mine):
            yield f"<li><strong>{found:,}</strong><span>{_OUTCOMES[key]}{side}</span></li>"
    yield "</ul>"


def _html_measures(report: EvalReport) -> Iterator[str]:
    names = measure_names(report)
    if not names:
        return
    yield "<h2>Measures</h2>"
    for name in names:
        rows = [
            (label_of(one), rate)
            for one in report.skills
            if (rate := one.measures.get(name)) is not None and rate.rate is not None
        ]
        if rows:
            yield f"<h3>{_html(name)}</h3>"
            yield _plot_rates(name, rows)
    yield "<details><summary>The same as a table</summary>"
    yield from _html_table(
        ("skill", *names),
        [
            (
                _html(label_of(one)),
                *(
                    _html(str(one.measures[name])) if name in one.measures else "-"
                    for name in names
                ),
            )
            for one in report.skills
        ],
    )
    yield "</details>"


def _plot_rates(name: str, rows: Sequence[tuple[str, Rate]]) -> str:
    """Return a plot: a dot for each rate, a line for its interval."""
    parts = [
        _plot_row(label, "mark", (rate.low, rate.high), _plot_dot(rate.rate or 0.0), str(rate))
        for label, rate in rows
    ]
    described = "; ".join(f"{label} {rate}" for label, rate in rows[:20])
    return _plot(f"{name} with intervals of 95 %: {described}", parts)


def _plot_dot(at: float, kind: str = "at") -> str:
    return f'<b class="{kind}" style="left:{100 * at:.2f}%"></b>'


def _plot_row(label: str, colour: str, line: tuple[float, float], dots: str, figure: str) -> str:
    left, right = (100 * one for one in line)
    return (
        f'<div class="row"><span>{_html(one_line(label))}</span><span class="track {colour}">'
        f'<i style="left:{left:.2f}%;width:{right - left:.2f}%"></i>{dots}</span>'
        f'<span class="range">{_html(figure)}</span></div>'
    )


def _plot(label: str, rows: Iterable[str]) -> str:
    """Return rows above an axis from 0 to 1."""
    marks = (f'<span style="left:{25 * one}%">{one / 4:g}</span>' for one in range(5))
    axis = f'<div class="row axis"><span></span><span class="track">{"".join(marks)}</span>'
    return (
        f'<div class="sheet" role="img" aria-label="{_html(label)}">{"".join(rows)}{axis}'
        "<span></span></div></div>"
    )


def _html_pairs(report: EvalReport) -> Iterator[str]:
    """Show each task with and without the skill, where both were run."""
    pairs: Any = report.facts.get("pairs")
    if not pairs:
        return
    old = any(one.group == "old_skill" for one in report.cases)
    yield f"<h2>With the skill and {'with the old version' if old else 'without'}</h2>"
    rows = [(str(one["case"]), float(one["with"]), float(one["without"])) for one in pairs]
    yield _plot_pairs(rows)
    for difference in _as_list(report.facts.get("differences")):
        yield f"<p>{_html(describe_difference(difference))}</p>"
    yield f"<p>{_html(describe_spending(report.facts))}</p>" if "tokens" in report.facts else ""


def _as_list(value: object) -> list[Mapping[str, Any]]:
    return value if isinstance(value, list) else []


def _plot_pairs(rows: Sequence[tuple[str, float, float]]) -> str:
    """Return a plot: for each task an arrow from without to with."""
    parts = []
    for label, with_skill, without in rows:
        colour = "good" if with_skill >= without else "bad"
        line = (min(with_skill, without), max(with_skill, without))
        dots = _plot_dot(without, "from") + _plot_dot(with_skill)
        figure = f"from {without:.2f} to {with_skill:.2f}"
        parts.append(_plot_row(label, colour, line, dots, figure))
    described = "; ".join(f"{one[0]} {one[2]:.2f} to {one[1]:.2f}" for one in rows[:20])
    return _plot(f"pass rate without and with the skill: {described}", parts)


def _html_bars(report: EvalReport) -> Iterator[str]:
    if not report.bars:
        return
    yield "<h2>Bars</h2>"
    yield from _html_table(
        ("skill", "measure", "at least", "reached", "result"),
        [
            (
                _html(bar.label),
                _html(bar.measure),
                f"{bar.least:.2f}",
                f"{bar.rate:.2f}",
                '<span class="good">passed</span>'
                if bar.passed
                else '<span class="bad">under the bar</span>',
            )
            for bar in report.bars
        ],
    )


def _html_versions(facts: Mapping[str, Any]) -> Iterator[str]:
    """Show what changed between two versions."""
    tokens = facts.get("tokens")
    if not isinstance(tokens, Mapping):
        return
    yield "<h2>Tokens</h2>"
    rows = [(_html(key), str(tokens["old"][key]), str(tokens["new"][key])) for key in tokens["new"]]
    yield from _html_table(("part", "old", "new"), rows)
    yield from (f"<p>{_html(line)}</p>" for line in describe_files(facts))
    for label, text in version_diffs(facts):
        yield f'<h2>Changes: {label}</h2><pre class="sheet">{_html_diff(text)}</pre>'


def _html_diff(text: str) -> str:
    """Return a diff with its lines in colour."""
    kinds = {"+": "add", "-": "gone"}
    return "\n".join(
        f'<span class="{kinds[line[0]]}">{_html(line)}</span>' if line[:1] in kinds else _html(line)
        for line in text.splitlines()
    )


def _html_confusions(report: EvalReport) -> Iterator[str]:
    if not report.confusions:
        return
    yield "<h2>Requests that went elsewhere</h2>"
    yield from _html_table(
        ("meant", "went to", "words that led there", "request"),
        [
            tuple(map(_html, (one.meant or "none", one.found, ", ".join(one.words), one.query)))
            for one in report.confusions
        ],
    )


def _html_cases(cases: Sequence[CaseOutcome]) -> Iterator[str]:
    yield "<h2>Cases</h2>"
    for key in _MARKS:
        found = [one for one in cases if one.outcome == key]
        if not found:
            continue
        shown = " open" if key != "passed" else ""
        yield f"<details{shown}><summary>{_OUTCOMES[key]}: {len(found):,}</summary>"
        yield from _html_table(
            ("skill", "kind", "case", "what happened"),
            [
                (
                    _html(name_case(one)),
                    _html(one.group.replace("_", " ")),
                    _html(shorten(text_of(one), 500)),
                    f"<pre>{_html(shorten(one.detail, 4_000))}</pre>",
                )
                for one in found
            ],
        )
        yield "</details>"


FORMS: Mapping[str, Callable[[EvalReport], str]] = MappingProxyType(
    {
        ".json": render_json,
        ".md": render_markdown,
        ".xml": render_junit,
        ".html": render_html,
    }
)
