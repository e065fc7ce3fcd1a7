"""Write the results of tasks as skill-creator has them, so that its viewer opens them.

`NAME-workspace/iteration-N/eval-K/CONFIGURATION/run-R/` holds `outputs/`, `grading.json`,
`timing.json` and `transcript.md`; the iteration holds `benchmark.json` and `benchmark.md`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from skillbelt.errors import ConfigError
from skillbelt.evals.outcome import EvalReport
from skillbelt.evals.reports import render_html, render_junit, render_markdown
from skillbelt.evals.statistics import Spread, spread_of
from skillbelt.evals.task import TaskRun
from skillbelt.files.contain import name_fault
from skillbelt.format.skill import Skill
from skillbelt.text import one_line

_ITERATION = re.compile(r"iteration-(\d{1,6})")
_BENCHMARK = "benchmark.json"
_UNSAFE = re.compile(r"[^\w.-]+")
_MAX_NAME_BYTES = 200  # a file system takes 255; a number may follow
_ORDER = ("with_skill", "without_skill", "old_skill")


def iteration_folder(root: str) -> str:
    """Return the path of the next iteration; ConfigError if nothing can be written there."""
    try:
        if os.path.islink(root):
            # A checkout may contain it; a link would lead the files out of it.
            raise ConfigError(f"--output {one_line(root)}: is a link; name the folder itself")
        os.makedirs(root, exist_ok=True)
        if not os.access(root, os.W_OK | os.X_OK):
            raise ConfigError(f"--output {one_line(root)}: cannot be written to")
        return os.path.join(root, f"iteration-{_last_number(root) + 1}")
    except OSError as error:
        raise ConfigError(f"--output {one_line(root)}: {error.strerror}") from None


def _last_number(root: str) -> int:
    found = (_ITERATION.fullmatch(one) for one in os.listdir(root))
    return max((int(one[1]) for one in found if one), default=0)


def write_workspace(
    folder: str, skill: Skill, runs: Sequence[TaskRun], report: EvalReport, judged_by: str = ""
) -> str:
    """Write the iteration, and return its folder: the next number if the wanted one is taken.

    It is complete when it appears: the files are written to a new folder, which is then renamed.
    """
    root, number = os.path.dirname(folder), int(folder.rpartition("-")[2])
    part = os.path.join(root, f".iteration-{os.urandom(8).hex()}")
    os.mkdir(part)
    try:
        _write_iteration(part, skill, runs, report, judged_by)
        while True:
            try:
                os.rename(part, folder)
                return folder
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                number += 1
                folder = os.path.join(root, f"iteration-{number}")
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write_iteration(
    folder: str, skill: Skill, runs: Sequence[TaskRun], report: EvalReport, judged_by: str
) -> None:
    """Write every run and the summary. With several models, each has its own folder."""
    models = list(dict.fromkeys(one.model for one in runs))
    names = _folder_names(models) if len(models) > 1 else {}
    for model in models:
        mine = [one for one in runs if one.model == model]
        place = os.path.join(folder, names[model]) if names else folder
        os.makedirs(place, exist_ok=True)
        for run in mine:
            _write_run(place, run)
        benchmark = benchmark_of(skill, mine, model, judged_by)
        _write(os.path.join(place, "benchmark.md"), render_markdown(report))
        _write_json(os.path.join(place, _BENCHMARK), benchmark)
    for name, text in (
        ("report.html", render_html(report)),
        ("junit.xml", render_junit(report)),
        ("report.md", render_markdown(report)),
    ):
        _write(os.path.join(folder, name), text)
    _write_json(os.path.join(folder, "report.json"), report.document())


def _folder_names(models: Sequence[str]) -> dict[str, str]:
    """Return a folder name for each model; no two models share one."""
    found: dict[str, str] = {}
    for model in models:
        name, number = _make_safe_name(model), 1
        while name in found.values():
            number += 1
            name = f"{_make_safe_name(model)}-{number}"
        found[model] = name
    return found


def _make_safe_name(text: str) -> str:
    plain = _UNSAFE.sub("-", text).strip(".-").encode("utf-8", "replace")
    return plain[:_MAX_NAME_BYTES].decode("utf-8", "ignore") or "x"


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _write_json(path: str, value: object) -> None:
    _write(path, json.dumps(value, indent=2, default=str) + "\n")


def _write_run(folder: str, run: TaskRun) -> None:
    place = os.path.join(folder, f"eval-{run.eval_id}")
    inside = os.path.join(place, run.configuration, f"run-{run.number}")
    outputs = os.path.join(inside, "outputs")
    os.makedirs(outputs, exist_ok=True)
    about = {
        "eval_id": run.eval_id,
        "eval_name": run.case.name or run.case.id,
        "prompt": run.case.prompt,
        "assertions": [one.text for one in run.grades],
    }
    _write_json(os.path.join(place, "eval_metadata.json"), about)
    _write(os.path.join(outputs, "answer.md"), run.talk.answer)
    for name, text in run.talk.files.items():
        _write_output(outputs, name, text)
    # The tools of skill-creator count a run with a grading.json as 0 % where nothing was graded.
    graded = "grading.json" if run.pass_rate is not None else "not-graded.json"
    _write_json(os.path.join(inside, graded), grading_of(run))
    _write_json(os.path.join(inside, "timing.json"), timing_of(run))
    _write(os.path.join(inside, "transcript.md"), _render_transcript(run))


def _write_output(outputs: str, name: str, text: str) -> None:
    """Write a file that a run left; its name is untrusted, and its folders become part of it."""
    plain = name.removeprefix("out/").replace("/", "__")
    too_long = len(plain.encode("utf-8", "replace")) > _MAX_NAME_BYTES
    if too_long or name_fault(plain) or plain.startswith("."):
        plain = _make_safe_name(plain)
    if plain == "answer.md":
        plain = "out-answer.md"
    path, number = os.path.join(outputs, plain), 1
    while os.path.lexists(path):
        number += 1
        path = os.path.join(outputs, f"{number}-{plain}")
    _write(path, text)


def grading_of(run: TaskRun) -> dict[str, object]:
    """Return `grading.json`. Undecided expectations are listed separately."""
    decided = [one for one in run.grades if one.passed is not None]
    open_ones = [one for one in run.grades if one.passed is None]
    passed = sum(one.passed is True for one in decided)
    calls = Counter(run.talk.tools)
    chars = sum(len(str(one)) for one in run.talk.transcript)
    return {
        "expectations": [
            {"text": one.text, "passed": one.passed, "evidence": one.evidence} for one in decided
        ],
        "summary": {
            "passed": passed,
            "failed": len(decided) - passed,
            "total": len(decided),
            "pass_rate": round(passed / len(decided), 4) if decided else 0.0,
        },
        "not_graded": [{"text": one.text, "evidence": one.evidence} for one in open_ones],
        "outcome": run.outcome,
        "execution_metrics": {
            "tool_calls": dict(calls),
            "total_tool_calls": sum(calls.values()),
            "total_steps": run.talk.requests,
            "errors_encountered": run.talk.failed_calls + (run.talk.ended != "answer"),
            "output_chars": len(run.talk.answer) + sum(map(len, run.talk.files.values())),
            "transcript_chars": chars,
        },
        # Without a total, `aggregate_benchmark.py` reads timing.json, which has the tokens too.
        "timing": {"executor_duration_seconds": round(run.talk.seconds, 3)},
        "claims": [],
        "user_notes_summary": {
            "uncertainties": [],
            "needs_review": [f"{one.text}: {one.evidence}" for one in open_ones],
            "workarounds": [],
        },
        "eval_feedback": {},
    }


def timing_of(run: TaskRun) -> dict[str, object]:
    """Return `timing.json`."""
    return {
        "total_tokens": run.talk.tokens,
        "input_tokens": run.talk.input_tokens,
        "output_tokens": run.talk.output_tokens,
        "duration_ms": int(run.talk.seconds * 1000),
        "total_duration_seconds": round(run.talk.seconds, 3),
    }


def _render_transcript(run: TaskRun) -> str:
    lines = [f"## Eval Prompt\n\n{run.case.prompt}\n", "## Transcript\n"]
    for event in run.talk.transcript:
        shown = json.dumps(event, indent=2, ensure_ascii=False, default=str)
        fence = "`" * max(3, _longest_fence(shown) + 1)
        lines.append(f"{fence}json\n{shown}\n{fence}\n")
    return "\n".join((*lines, f"## Answer\n\n{run.talk.answer}\n"))


def _longest_fence(text: str) -> int:
    return max((len(one) for one in re.findall("`+", text)), default=0)


def benchmark_of(
    skill: Skill, runs: Sequence[TaskRun], model: str, judged_by: str
) -> dict[str, object]:
    """Return `benchmark.json` for one model."""
    summary: dict[str, object] = {}
    spreads: dict[str, Mapping[str, Spread]] = {}
    for configuration in _ORDER:
        mine = [one for one in runs if one.configuration == configuration]
        if mine:
            spreads[configuration] = _measure_spreads(mine)
            summary[configuration] = {
                key: one._asdict() for key, one in spreads[configuration].items()
            }
    summary["delta"] = _format_delta(list(spreads.values()))
    graded = [one for one in runs if one.pass_rate is not None]
    return {
        "metadata": {
            "skill_name": skill.name,
            "skill_path": skill.dir,
            "executor_model": model,
            "analyzer_model": judged_by or "none",
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "evals_run": sorted({one.eval_id for one in runs}),
            "runs_per_configuration": max((one.number for one in runs), default=0),
        },
        "runs": [_benchmark_run(one) for one in graded],
        "run_summary": summary,
        "notes": [_note(one) for one in runs if one.pass_rate is None],
    }


def _note(run: TaskRun) -> str:
    """Say that a run is not counted, and why."""
    about = f"eval {run.eval_id}, {run.configuration}, run {run.number}"
    ended = "nothing graded it" if run.talk.ended == "answer" else run.talk.ended
    cause = run.talk.error or ended
    return f"{about} is not counted: {one_line(cause)}"


def _measure_spreads(runs: Sequence[TaskRun]) -> dict[str, Spread]:
    """Return the figures of the runs that were graded; without one, times and tokens of all."""
    rates = [rate for one in runs if (rate := one.pass_rate) is not None]
    counted = [one for one in runs if one.pass_rate is not None] or runs
    return {
        **({"pass_rate": spread_of(rates)} if rates else {}),
        "time_seconds": spread_of([one.talk.seconds for one in counted]),
        "tokens": spread_of([float(one.talk.tokens) for one in counted]),
    }


def _format_delta(sides: Sequence[Mapping[str, Spread]]) -> dict[str, str]:
    """Return the differences as text with a sign, as the viewer expects them."""
    if len(sides) < 2:
        return {}
    first, second = sides[:2]
    forms = {"pass_rate": "+.2f", "time_seconds": "+.1f", "tokens": "+.0f"}
    return {
        key: format(first[key].mean - second[key].mean, form)
        for key, form in forms.items()
        if key in first and key in second
    }


def _benchmark_run(run: TaskRun) -> dict[str, object]:
    grading = grading_of(run)
    summary, metrics = grading["summary"], grading["execution_metrics"]
    assert isinstance(summary, dict) and isinstance(metrics, dict)
    return {
        "eval_id": run.eval_id,
        "eval_name": run.case.name or run.case.id,
        "configuration": run.configuration,
        "run_number": run.number,
        "result": {
            **{key: summary[key] for key in ("pass_rate", "passed", "failed", "total")},
            "time_seconds": round(run.talk.seconds, 3),
            "tokens": run.talk.tokens,
            "tool_calls": metrics["total_tool_calls"],
            "errors": metrics["errors_encountered"],
        },
        "expectations": grading["expectations"],
        "notes": [f"not graded: {one.text}" for one in run.grades if one.passed is None],
    }
