"""Run each script and module of a skill with its example input, and check the results.

Needs no model. Each case runs in the sandbox, in an empty workspace, without secrets.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from skillbelt.errors import PermissionDenied, RunRefused, SandboxUnavailable, SkillbeltError
from skillbelt.evals.cache import EvalCache, key_of
from skillbelt.evals.cases import EvalCheck, ScriptCase
from skillbelt.evals.checks import EvalEvidence, Grade, decide
from skillbelt.evals.outcome import (
    CaseOutcome,
    EvalReport,
    MeasuredSkill,
    OnProgress,
    Outcome,
    suspect,
)
from skillbelt.evals.statistics import count_rate
from skillbelt.files.manifest import PARTIAL
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Gate
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.following import Follower
from skillbelt.running.json_call import execute, plain_call
from skillbelt.running.outputs import OutputFile
from skillbelt.running.trial.scripts import Script, scripts_of
from skillbelt.running.trial.trial import ASKED_TYPES, TrialPlan, ask_once
from skillbelt.running.workbench import Workbench
from skillbelt.scan.values import ObservedUse
from skillbelt.text import one_line, shell_word, shorten

PASS = "passed"
CASE_SECONDS = 60.0
MOST_CASE_SECONDS = 600.0  # that a set may ask for
STREAM_BYTES = 2**20  # of the output, which checks read as a whole
CASES_AT_ONCE = 2
_USUAL = (EvalCheck("exit-code", 0),)
_ALWAYS = EvalCheck("no-surprises")
_KEPT = ("passed", "failed", "ungraded")  # outcomes that the cache holds
_SHOWN_CHARS = 200  # of the input of a JSON call
_CUT = "stdout truncated"  # the warning of a run


class ScriptBounds(NamedTuple):
    """The time limit of a case, how many run at once, and the sandbox, which is part of the key.

    A case may ask for another time limit, of at most `most_seconds`: a set is untrusted.
    """

    seconds: float = CASE_SECONDS
    most_seconds: float = MOST_CASE_SECONDS
    at_once: int = CASES_AT_ONCE
    sandbox: str = ""


def evaluate_scripts(
    bench: Workbench,
    skill: Skill,
    cases: Sequence[ScriptCase],
    who: Asker,
    *,
    cache: EvalCache,
    bounds: ScriptBounds,
    one_question: bool = True,
    on_progress: OnProgress | None = None,
) -> EvalReport:
    """Run the cases that are not in the cache, and return the outcome of each.

    PermissionDenied when nothing may run.
    """
    scripts = {one.path: one for one in scripts_of(skill)}
    runner = _CaseRunner(bench, skill, who, bounds=bounds, scripts=scripts)
    keys = [runner.key(one) for one in cases]
    known = [_read_result(cache.get(key)) if key else None for key in keys]
    open_cases = [one for one, found in zip(cases, known, strict=True) if found is None]
    gate = runner.open_gate(open_cases, one_question)
    done = runner.run_all(open_cases, gate, on_progress, len(cases))
    if open_cases and len(runner.denied) == len(open_cases):
        raise runner.denied[0]
    fresh = iter(done)
    results = []
    for case, key, found in zip(cases, keys, known, strict=True):
        result = next(fresh) if found is None else found
        if found is None and key and result["outcome"] in _KEPT:
            cache.put(key, result)
        results.append(_make_outcome(case, result, cached=found is not None))
    return _make_report(skill, results, scripts)


def _read_result(kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a result from the cache; None if there is none or it is damaged."""
    if kept is None or kept.get("outcome") not in _KEPT:
        return None
    lists = all(isinstance(kept.get(key), list) for key in ("grades", "reported"))
    seconds = kept.get("seconds")
    return dict(kept) if lists and isinstance(seconds, int | float) else None


def _make_report(
    skill: Skill, results: Sequence[CaseOutcome], scripts: Mapping[str, Script]
) -> EvalReport:
    # A case that nothing could decide is not passed: its file is wrong, or it asks too much.
    rate = count_rate(one.outcome == "passed" for one in results)
    called = {str(one.data.get("script")) for one in results}
    without = [path for path, one in scripts.items() if path not in called and not one.library]
    warnings = suspect(
        skill.name, rate, cause=f"at what `skillbelt try {shell_word(skill.name)}` says"
    )
    if without:
        shown = ", ".join(without[:5]) + (" ..." if len(without) > 5 else "")
        warnings.append(f"{skill.name}: without a case: {one_line(shown)}")
    reported = dict.fromkeys(text for one in results for text in _texts_in(one.data["reported"]))
    if reported:
        shown = ", ".join([*reported][:5]) + (" ..." if len(reported) > 5 else "")
        warnings.append(
            f"{skill.name}: scripts report missing things that the skill does not declare: "
            f"{one_line(shown)}"
        )
    return EvalReport(
        kind="script",
        skills=(MeasuredSkill(skill.name, {PASS: rate}),),
        overall={PASS: rate},
        cases=tuple(results),
        warnings=tuple(warnings),
    )


def _texts_in(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


class _CaseRunner:
    """Runs the cases of one skill."""

    def __init__(
        self,
        bench: Workbench,
        skill: Skill,
        who: Asker,
        bounds: ScriptBounds,
        scripts: Mapping[str, Script],
    ) -> None:
        self._bench, self._skill, self._who, self._bounds = bench, skill, who, bounds
        self._scripts = scripts
        self._digest = skill.files.digest()
        self.denied: list[PermissionDenied] = []

    def key(self, case: ScriptCase) -> str:
        """Return the key of a case; "" where not every file of the skill is covered."""
        if self._digest.endswith(PARTIAL):
            return ""
        plain = case._asdict()
        plain["checks"] = [one.document() for one in case.checks]
        plain["files"] = dict(case.files)
        return key_of(
            kind="script", skill=self._digest, case=plain, sandbox=self._bounds.sandbox,
            seconds=self._limit_seconds(case),
        )  # fmt: skip

    def _limit_seconds(self, case: ScriptCase) -> float:
        return min(case.seconds or self._bounds.seconds, self._bounds.most_seconds)

    def open_gate(self, cases: Sequence[ScriptCase], one_question: bool) -> Gate:
        """Return the gate for all cases; with one question it has been asked."""
        gate = self._who.gate or self._bench.gate
        if not one_question:
            return gate.asking_for(*ASKED_TYPES)
        calls = []
        for case in cases:
            try:
                calls.append(self._call(case))
            except SkillbeltError:
                continue  # reported when it runs
        if not calls:
            return gate
        plan = TrialPlan(self._bench, self._skill, self._who, tuple(calls), what="case")
        return ask_once(plan, gate)

    def _call(self, case: ScriptCase) -> RunCall:
        if case.calls_json:
            call = plain_call(self._skill, case.json, script=case.script)
        else:
            script = self._scripts.get(case.script)
            if script is None:
                known = ", ".join(self._scripts) or "none"
                raise RunRefused(
                    f"{self._skill.name} has no script {one_line(case.script)!r}; its scripts: "
                    f"{one_line(known)}"
                )
            command = (*script.command, *case.arguments)
            call = RunCall(command=command, cwd=script.cwd, stdin=case.stdin.encode())
        return call._replace(
            timeout_seconds=self._limit_seconds(case),
            inputs=self._read_inputs(case),
            all_outputs=True,
        )

    def _read_inputs(self, case: ScriptCase) -> list[Mapping[str, object]]:
        return [
            {"from": f"skill://{self._skill.name}/{path}", "to": f"inputs/{name}"}
            for name, path in case.files.items()
        ]

    def run_all(
        self,
        cases: Sequence[ScriptCase],
        gate: Gate,
        on_progress: OnProgress | None,
        total: int,
    ) -> list[dict[str, Any]]:
        """Run the cases, some at a time; an exception or Ctrl-C ends those that run."""
        follower, lock = Follower(), threading.Lock()
        done = cached = total - len(cases)
        if on_progress is not None:
            on_progress(done, total, cached)

        def run_one(case: ScriptCase) -> dict[str, Any]:
            nonlocal done
            result = self._run(case, gate, follower)
            with lock:
                done += 1
                if on_progress is not None:
                    on_progress(done, total, cached)
            return result

        with ThreadPoolExecutor(self._bounds.at_once, "skillbelt-eval") as pool:
            waiting = [pool.submit(run_one, one) for one in cases]
            try:
                return [one.result() for one in waiting]
            except BaseException:
                for one in waiting:
                    one.cancel()
                follower.kill()
                raise

    def _run(self, case: ScriptCase, gate: Gate, follower: Follower) -> dict[str, Any]:
        try:
            seen, timed_out = (self._execute if case.calls_json else self._start)(
                case, gate, follower
            )
        except SandboxUnavailable:
            raise
        except PermissionDenied as error:
            self.denied.append(error)
            return {"outcome": "error", "detail": one_line(str(error)), "grades": []}
        except SkillbeltError as error:
            return {"outcome": "error", "detail": one_line(str(error)), "grades": []}
        if timed_out:
            detail = f"took longer than {self._limit_seconds(case):g} s"
            if case.seconds > self._bounds.most_seconds:
                detail += f", the most (it asks for {case.seconds:g}; --timeout sets both)"
            return {"outcome": "timeout", "detail": detail, "seconds": seen.seconds, "grades": []}
        return grade_case(case, seen, self._skill)

    def _make_asker(self, gate: Gate) -> Asker:
        return self._who._replace(gate=gate, once="whole")

    def _start(self, case: ScriptCase, gate: Gate, follower: Follower) -> tuple[EvalEvidence, bool]:
        call, who = self._call(case), self._make_asker(gate)
        with self._bench.prepare(self._skill, call, who, observed=True, secrets=False) as run:
            self._bench.carry_out(run, follower.watch)
            result = self._bench.finish(run)
            run.workspace.wanted = False
        seen = EvalEvidence(
            text=result.stdout,
            error_text=result.stderr,
            cut=_CUT in result.warnings,
            files=_list_texts(result.output_files),
            exit_code=result.exit_code,
            surprises=_list_undeclared(result.observed),
            reported=_list_reported(result.observed),
            seconds=result.duration_ms / 1000,
        )
        return seen, result.timed_out

    def _execute(
        self, case: ScriptCase, gate: Gate, follower: Follower
    ) -> tuple[EvalEvidence, bool]:
        done = execute(
            self._bench,
            self._skill,
            case.json,
            who=self._make_asker(gate),
            script=case.script,
            timeout_ms=int(self._limit_seconds(case) * 1000),
            inputs=self._read_inputs(case),
            all_outputs=True,
            observed=True,
            watch=follower.watch,
        )
        seen = EvalEvidence(
            text=done.stdout,
            error_text=done.stderr,
            cut=_CUT in done.warnings,
            files=_list_texts(done.output_files),
            exit_code=done.exit_status.code,
            surprises=_list_undeclared(done.observed),
            reported=_list_reported(done.observed),
            seconds=done.duration_ms / 1000,
        )
        return seen, done.exit_status.kind == "timeout"


def _list_undeclared(observed: Iterable[ObservedUse]) -> tuple[str, ...]:
    """Return what a script tried to use, and neither its skill declares nor the user allows."""
    return tuple(
        str(one)
        for one in observed
        if one.is_surprise or (one.stated == "contained" and one.outcome == "refused")
    )


def _list_reported(observed: Iterable[ObservedUse]) -> tuple[str, ...]:
    """Return what a script reports as missing, and its skill does not declare; no proof of use."""
    return tuple(
        f"{one.kind} {one.value}"
        for one in observed
        if one.stated == "nowhere" and one.outcome == "reported"
    )


def _list_texts(files: Iterable[OutputFile]) -> dict[str, str]:
    return {one.name: one.content for one in files}


def grade_case(case: ScriptCase, seen: EvalEvidence, skill: Skill) -> dict[str, Any]:
    """Decide all checks of a case; without a check of the exit code, it must be 0."""
    checks = case.checks
    if not any(one.kind == "exit-code" for one in checks):
        checks = (*_USUAL, *checks)
    if not any(one.kind == "no-surprises" for one in checks):
        checks = (*checks, _ALWAYS)
    grades = [decide(one, seen, skill.files) for one in checks]
    return {
        "outcome": overall_outcome(grades),
        "detail": describe_grades(grades, seen),
        "seconds": seen.seconds,
        "grades": [one.document() for one in grades],
        "exit_code": seen.exit_code,
        "reported": list(seen.reported),
    }


def overall_outcome(grades: Iterable[Grade]) -> Outcome:
    """Return the outcome of the grades: a failed one decides, then an undecided one."""
    found = [one.passed for one in grades]
    if False in found:
        return "failed"
    return "ungraded" if None in found or not found else "passed"


def describe_grades(grades: Sequence[Grade], seen: EvalEvidence) -> str:
    """Describe what failed or was not decided, with the evidence."""
    lines = [
        f"{'not decided' if one.passed is None else 'failed'}: {one.text}:"
        + ("\n" if "\n" in one.evidence else " ")
        + one.evidence
        for one in grades
        if not one.passed
    ]
    if any(one.passed is False for one in grades) and seen.error_text.strip():
        lines.append(f"stderr: {seen.error_text.strip()[-1000:]}")
    return "\n".join(lines)


def _make_outcome(case: ScriptCase, result: Mapping[str, Any], *, cached: bool) -> CaseOutcome:
    given = (
        (shorten(json.dumps(case.json, ensure_ascii=False), _SHOWN_CHARS),)
        if case.calls_json
        else case.arguments
    )
    words = " ".join((case.script, *given))
    return CaseOutcome(
        id=case.id,
        skill=case.skill,
        group="script",
        text=words,
        outcome=result["outcome"],
        detail=str(result.get("detail", "")),
        seconds=float(result.get("seconds", 0.0)),
        data={
            "script": case.script,
            "grades": result.get("grades", []),
            "exit_code": result.get("exit_code"),
            "reported": result.get("reported", []),
            "cached": cached,
            "source": case.source,
        },
    )
