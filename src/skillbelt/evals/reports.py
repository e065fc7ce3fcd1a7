"""Write a report: JSON, Markdown for a pull request, JUnit for CI, and one HTML page with plots.

Every text in a report may come from a skill or a model, and is escaped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

from skillbelt.errors import ConfigError
from skillbelt.evals.outcome import CaseOutcome, EvalReport, MeasuredSkill
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
_MOST_ROWS = 200  # of the cases and confusions in Markdown, which sites cut
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&])")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_report(report: EvalReport, path: str) -> None:
    """Write the report in the form that the ending of the path says; ConfigError otherwise."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in FORMS:
        raise ConfigError(
            f"--report {one_line(path)}: ends in none of {', '.join(FORMS)}, which say what is "
            "written"
        )
    text = FORMS[ending](report)
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"--report {one_line(path)}: {error.strerror}") from None


def render_json(report: EvalReport) -> str:
    """Return the report as a JSON document."""
    return json.dumps(report.document(), indent=2) + "\n"


# Markdown


def _plain(text: str) -> str:
    """Return words of ours, with names in them, for Markdown."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def _code(text: str) -> str:
    """Return text of others for Markdown: in code there are no links, mentions or markup."""
    plain = one_line(text).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain.strip() else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def render_markdown(report: EvalReport) -> str:
    """Return the report for a comment on a pull request."""
    lines = [f"## {_TITLES[report.kind]}", ""]
    mark = "❌" if not report.passed else "✅" if report.bars else "📏"
    lines += [f"{mark} {_plain(summarise(report))}", ""]
    lines += _markdown_measures(report)
    lines += _markdown_bars(report)
    lines += _markdown_facts(report.facts)
    for text in report.warnings:
        lines += [f"> **Note:** {_plain(text)}", ""]
    if report.confusions:
        rows = [
            (_code(one.meant or "none"), _code(one.found), _code(", ".join(one.words)),
             _code(one.query))
            for one in report.confusions[:_MOST_ROWS]
        ]  # fmt: skip
        lines += ["### Requests that went elsewhere", ""]
        lines += _table(("meant", "went to", "words that led there", "request"), rows)
    lines += _markdown_cases(report.cases)
    return "\n".join(lines)


def _markdown_measures(report: EvalReport) -> Iterator[str]:
    names = measure_names(report)
    rows = [
        (_plain(label_of(one)), *(_plain(str(one.measures[name])) if name in one.measures else "-"
                                  for name in names))
        for one in report.skills
    ]  # fmt: skip
    if rows:
        yield from _table(("skill", *map(_plain, names)), rows)


def _markdown_bars(report: EvalReport) -> Iterator[str]:
    low = [bar for bar in report.bars if not bar.passed]
    for bar in low:
        yield (
            f"- ❌ {_plain(bar.name)}: {_plain(bar.measure)} is {bar.rate:.2f}, and must be at "
            f"least {bar.least:.2f}"
        )
    if low:
        yield ""


def _markdown_facts(facts: Mapping[str, Any]) -> Iterator[str]:
    """Show differences between sides, what was spent, and what changed between versions."""
    for one in _listed(facts.get("differences")):
        yield f"- {describe_difference(one)}"
    if "tokens" in facts and isinstance(facts["tokens"], int):
        yield f"- {describe_spending(facts)}"
    yield ""
    old_new = facts.get("tokens")
    if isinstance(old_new, Mapping):
        rows = [(key, str(old_new["old"][key]), str(old_new["new"][key])) for key in old_new["new"]]
        yield from _table(("tokens", "old", "new"), rows)
    for key in ("description", "body"):
        told = facts.get(key)
        text = told.get("diff", "") if isinstance(told, Mapping) else told
        if isinstance(text, str) and text:
            yield f"<details><summary>{key}</summary>"
            yield from ("", *_fenced(text), "", "</details>", "")


def _fenced(text: str) -> Iterator[str]:
    longest = max((len(one) for one in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}diff"
    yield from (exact(line) for line in text.splitlines())
    yield fence


def describe_difference(one: Mapping[str, Any]) -> str:
    """Return a difference between two sides in words."""
    return (
        f"with {_plain(str(one['name']))} over {one['tasks']} tasks: difference of the pass rate "
        f"{one['mean']:+.2f} (95 %: {one['low']:+.2f} to {one['high']:+.2f})"
    )


def describe_spending(facts: Mapping[str, Any]) -> str:
    """Return what an evaluation took, in words."""
    cost = facts.get("cost_usd")
    dollars = f", {cost:.4f} dollars" if isinstance(cost, float) and cost else ""
    end = "; the budget is spent" if facts.get("spent") else ""
    return f"{facts['tokens']:,} tokens{dollars}{end}"


def _markdown_cases(cases: Sequence[CaseOutcome]) -> Iterator[str]:
    wrong = [one for one in cases if one.outcome != "passed"]
    if not wrong:
        return
    yield f"<details><summary>{len(wrong)} of {len(cases)} cases are not right</summary>"
    yield ""
    rows = [
        (_MARKS[one.outcome], _code(one.skill), _plain(one.group),
         _code(shorten(one_line(one.text), 160)), _code(shorten(one_line(one.detail), 300)))
        for one in wrong[:_MOST_ROWS]
    ]  # fmt: skip
    yield from _table(("", "skill", "kind", "case", "what happened"), rows)
    if len(wrong) > _MOST_ROWS:
        yield f"and {len(wrong) - _MOST_ROWS} more"
    yield "</details>"
    yield ""


def measure_names(report: EvalReport) -> list[str]:
    """Return the names of all measures, in order."""
    return list(dict.fromkeys(name for one in report.skills for name in one.measures))


def label_of(one: MeasuredSkill) -> str:
    """Return the skill, with the model where there is one, and what it is compared with."""
    told = ", ".join(filter(None, (one.model, one.baseline.replace("_", " "))))
    return f"{one.name} ({told})" if told else one.name


def summarise(report: EvalReport) -> str:
    """Return the result in one sentence."""
    cases = f"{len(report.cases)} case{'s' if len(report.cases) != 1 else ''}"
    first = next(iter(report.overall.items()), None)
    told = f"{first[0]} {first[1]}" if first else "nothing was measured"
    low = sum(not bar.passed for bar in report.bars)
    bars = f"; {low} of {len(report.bars)} under the bar" if report.bars else ""
    rest = "" if report.complete else "; not all cases were run"
    return f"{cases}: {told}{bars}{rest}"


# JUnit


def render_junit(report: EvalReport) -> str:
    """Return the report as JUnit XML; a case that nothing decided is skipped."""
    by_skill: dict[str, list[CaseOutcome]] = {}
    for one in report.cases:
        by_skill.setdefault(one.skill, []).append(one)
    suites = [_suite(f"{report.kind}.{name}", cases) for name, cases in by_skill.items()]
    suites += [_bar_suite(report)] if report.bars else []
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites,
                      "</testsuites>", ""])  # fmt: skip


def _attribute(text: str) -> str:
    return xml(_CONTROL.sub("?", text)).replace('"', "&quot;")


def _suite(name: str, cases: Sequence[CaseOutcome]) -> str:
    count = {key: sum(one.outcome == key for one in cases) for key in _MARKS}
    head = (
        f'<testsuite name="{_attribute(name)}" tests="{len(cases)}" failures="{count["failed"]}" '
        f'errors="{count["error"] + count["timeout"]}" '
        f'skipped="{count["ungraded"] + count["not-run"]}" '
        f'time="{sum(one.seconds for one in cases):.3f}">'
    )
    return "\n".join([head, *(_case(one, name) for one in cases), "</testsuite>"])


def _case(one: CaseOutcome, suite: str) -> str:
    label = " ".join(filter(None, (one.id, one.group, one.model)))
    head = (
        f'<testcase name="{_attribute(f"{label}: {shorten(one_line(one.text), 120)}")}" '
        f'classname="{_attribute(suite)}" time="{one.seconds:.3f}"'
    )
    tags = {"failed": "failure", "error": "error", "timeout": "error"}
    if one.outcome == "passed":
        return f"{head}/>"
    message = _attribute(shorten(one_line(one.detail), 500))
    tag = tags.get(one.outcome, "skipped")
    body = f"{escape(_CONTROL.sub('?', one.detail))}</{tag}>" if tag != "skipped" else f"</{tag}>"
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
    return _suite(f"{report.kind}.bars", cases)


# HTML


_STYLE = """
:root{color-scheme:light dark;--ink:#1c2024;--soft:#60646c;--line:#d9d9e0;--page:#fff;
--good:#18794e;--bad:#b42318;--mark:#3451b2;--pale:#eef1fd}
@media(prefers-color-scheme:dark){:root{--ink:#edeef0;--soft:#b0b4ba;--line:#43484e;--page:#111113;
--good:#3dd68c;--bad:#ff9592;--mark:#9eb1ff;--pale:#1d2545}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0 auto;
max-width:70rem;padding:1.5rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;
padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
th{font-weight:600}.scroll{overflow-x:auto}.good{color:var(--good)}.bad{color:var(--bad)}
.soft{color:var(--soft)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0;font-size:.85rem}
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font-size:13px}
summary{cursor:pointer}.note{background:var(--pale);padding:.5rem .8rem;margin:.5rem 0}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render_html(report: EvalReport) -> str:
    """Return one page that needs no network and no script."""
    title = _TITLES[report.kind]
    mark = ("good", "passed") if report.bars else ("soft", "measured, without a bar")
    if not report.passed:
        mark = ("bad", "not passed")
    parts = [
        f'<p><strong class="{mark[0]}">{mark[1]}</strong> · {_html(summarise(report))}</p>',
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
    return escape(_CONTROL.sub("?", text))


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield '<div class="scroll" tabindex="0"><table><thead><tr>'
    yield "".join(f'<th scope="col">{_html(one)}</th>' for one in head)
    yield "</tr></thead><tbody>"
    yield from (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    yield "</tbody></table></div>"


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


_LEFT, _WIDE, _ROW = 300, 440, 26
_LABEL_CHARS = 40


def _plot_rates(name: str, rows: Sequence[tuple[str, Rate]]) -> str:
    """Return a plot: a dot for each rate, a line for its interval."""
    height = _ROW * len(rows) + 30
    parts = list(_axis(height, ("0", "0.25", "0.5", "0.75", "1")))
    for number, (label, rate) in enumerate(rows):
        y = _ROW * number + 16
        low, high, at = (_LEFT + _WIDE * one for one in (rate.low, rate.high, rate.rate or 0.0))
        parts.append(
            f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{_html(_cut_middle(label))}'
            f'</text><line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="var(--mark)" '
            f'stroke-width="3" opacity=".45"/><circle cx="{at:.1f}" cy="{y}" r="6" '
            f'fill="var(--mark)"><title>{_html(f"{label}: {rate}")}</title></circle>'
            f'<text x="{_LEFT + _WIDE + 12}" y="{y + 4}">{rate.rate or 0.0:.2f}</text>'
        )
    told = "; ".join(f"{label} {rate}" for label, rate in rows[:20])
    return _svg(height, f"{name} with intervals of 95 %: {told}", parts)


def _cut_middle(label: str) -> str:
    """Return a label that fits; its end tells as much as its beginning."""
    text = one_line(label)
    return text if len(text) <= _LABEL_CHARS else f"{text[:14]}…{text[15 - _LABEL_CHARS :]}"


def _axis(height: int, marks: Sequence[str]) -> Iterator[str]:
    for number, mark in enumerate(marks):
        x = _LEFT + _WIDE * number / (len(marks) - 1)
        yield f'<line x1="{x}" x2="{x}" y1="4" y2="{height - 22}" stroke="var(--line)"/>'
        yield f'<text x="{x}" y="{height - 6}" text-anchor="middle">{mark}</text>'


def _svg(height: int, label: str, parts: Iterable[str]) -> str:
    width = _LEFT + _WIDE + 60
    return (
        f'<svg role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'aria-label="{_html(label)}">{"".join(parts)}</svg>'
    )


def _html_pairs(report: EvalReport) -> Iterator[str]:
    """Show each task with and without the skill, where both were run."""
    pairs: Any = report.facts.get("pairs")
    if not pairs:
        return
    yield "<h2>With the skill and without</h2>"
    rows = [(str(one["case"]), float(one["with"]), float(one["without"])) for one in pairs]
    yield _plot_pairs(rows)
    for difference in _listed(report.facts.get("differences")):
        yield f"<p>{_html(describe_difference(difference))}</p>"


def _listed(value: object) -> list[Mapping[str, Any]]:
    return value if isinstance(value, list) else []


def _plot_pairs(rows: Sequence[tuple[str, float, float]]) -> str:
    """Return a plot: for each task an arrow from without to with."""
    height = _ROW * len(rows) + 30
    parts = list(_axis(height, ("0", "0.25", "0.5", "0.75", "1")))
    for number, (label, with_skill, without) in enumerate(rows):
        y = _ROW * number + 16
        start, end = _LEFT + _WIDE * without, _LEFT + _WIDE * with_skill
        colour = "good" if with_skill >= without else "bad"
        parts.append(
            f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{_html(_cut_middle(label))}'
            f'</text><line x1="{start:.1f}" x2="{end:.1f}" y1="{y}" y2="{y}" '
            f'stroke="var(--{colour})" stroke-width="3"/>'
            f'<circle cx="{start:.1f}" cy="{y}" r="5" fill="var(--page)" stroke="var(--soft)" '
            f'stroke-width="2"/><circle cx="{end:.1f}" cy="{y}" r="6" fill="var(--{colour})">'
            f"<title>{_html(f'{label}: {without:.2f} without, {with_skill:.2f} with')}</title>"
            "</circle>"
        )
    told = "; ".join(f"{one[0]} {one[2]:.2f} to {one[1]:.2f}" for one in rows[:20])
    return _svg(height, f"pass rate without and with the skill: {told}", parts)


def _html_bars(report: EvalReport) -> Iterator[str]:
    if not report.bars:
        return
    yield "<h2>Bars</h2>"
    yield from _html_table(
        ("skill", "measure", "at least", "reached", ""),
        [
            (
                _html(bar.name),
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
    told = facts.get("tokens")
    if not isinstance(told, Mapping):
        return
    yield "<h2>Tokens</h2>"
    rows = [(_html(key), str(told["old"][key]), str(told["new"][key])) for key in told["new"]]
    yield from _html_table(("", "old", "new"), rows)
    for key in ("description", "body"):
        given = facts.get(key)
        text = given.get("diff", "") if isinstance(given, Mapping) else given
        if isinstance(text, str) and text:
            yield f"<h2>Changes of the {key}</h2><pre>{_html(text)}</pre>"


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
        yield f"<details{shown}><summary>{key}: {len(found)}</summary>"
        yield from _html_table(
            ("skill", "kind", "case", "what happened"),
            [
                (
                    _html(" ".join(filter(None, (one.skill, one.model)))),
                    _html(one.group),
                    _html(shorten(one.text, 500)),
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
