"""Try a skill: start each of its scripts once in the sandbox, and report the results.

Each run has its own empty workspace, a time limit and no network. All of them together need one
answer: what will run and what will be installed is determined first, without running any of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from skillbelt.errors import PermissionDenied, RunRefused, SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Gate, session_id
from skillbelt.permission.rules import Answer, Request, digest
from skillbelt.permission.waiting import Pending
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.following import UNWATCHED, Follower, Watch
from skillbelt.running.packages.declared import Needs, needs_of
from skillbelt.running.trial.scripts import Script, scripts_of
from skillbelt.running.trial.verdict import Ended, How, Lack, Verdict, judge
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.network.connection import Connection
from skillbelt.sandbox.protocol import Running
from skillbelt.scan.values import ObservedUse
from skillbelt.text import one_line

# The timeout of one script; only its output distinguishes a server from a script that hangs.
TRIAL_SECONDS = 20.0
# Scripts that run in parallel, and the most scripts of one skill.
TRIALS_AT_ONCE = 2
MAX_TRIALS = 200
_HELP = "--help"
_HINTS: dict[str, Literal["program", "module", "permission"]] = {
    "missing_program": "program", "missing_module": "module", "write_refused": "permission",
}  # fmt: skip
# What is asked for, in the order of the fields of `_Wanted`.
ASKED_TYPES = ("skill", "run", "install")


class Reached(NamedTuple):
    """A host that a script tried to reach, with its port, and whether it was allowed."""

    host: str
    allowed: bool


class ScriptTrial(NamedTuple):
    """The result of one script. `how` says how it started, or why it did not.

    `lacked` names what it needed and did not have, `reached` the hosts that it asked for, and
    `line` is the most informative line of its output; `remedy` says what provides the missing
    thing. `packages` were provided for it. `observed` is what it tried, and whether the skill
    declares it.
    """

    path: str
    language: str
    started: bool
    how: How
    lacked: tuple[Lack, ...] = ()
    reached: tuple[Reached, ...] = ()
    line: str = ""
    remedy: str = ""
    command: str = ""
    library: bool = False
    exit_code: int | None = None
    duration_ms: int = 0
    packages: tuple[str, ...] = ()
    environment: str = ""
    observed: tuple[ObservedUse, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        plain = self._asdict()
        del plain["environment"]
        return {
            **plain,
            "lacked": [one._asdict() for one in self.lacked],
            "reached": [one._asdict() for one in self.reached],
            "packages": list(self.packages),
            "observed": [one._asdict() for one in self.observed],
        }


class Trial(NamedTuple):
    """The results of all scripts of a skill; `left_out` are those beyond the number of trials."""

    skill: str
    scripts: tuple[ScriptTrial, ...]
    left_out: tuple[str, ...] = ()
    sandbox: str = ""

    @property
    def started(self) -> bool:
        """Whether every script started."""
        return not self.left_out and all(one.started for one in self.scripts)

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        return {
            "skill": self.skill,
            "started": sum(one.started for one in self.scripts),
            "scripts": [one.document() for one in self.scripts],
            "left_out": list(self.left_out),
            "sandbox": self.sandbox,
        }


class TrialBounds(NamedTuple):
    """The timeout of each script, how many run in parallel, and how many are tried at most."""

    seconds: float = TRIAL_SECONDS
    at_once: int = TRIALS_AT_ONCE
    scripts: int = MAX_TRIALS


_BOUNDS = TrialBounds()


def try_skill(
    bench: Workbench,
    skill: Skill,
    who: Asker,
    *,
    only: Iterable[str] = (),
    bounds: TrialBounds = _BOUNDS,
    one_question: bool = True,
    told: Callable[[ScriptTrial], None] | None = None,
    watch: Watch = UNWATCHED,
) -> Trial:
    """Start every script of the skill, or `only` those at these paths; return the result of each.

    With `one_question` the gate is asked once for all scripts and packages; otherwise it is asked
    for each, as a gate that answers by itself can be. `told` gets each result as it arrives,
    `watch` each command as it starts. PermissionDenied when nothing may run, RunRefused for a path
    that is not a script.
    """
    chosen = _choose(skill, tuple(only))
    tried, left = chosen[: bounds.scripts], chosen[bounds.scripts :]
    if not tried:
        return Trial(skill.name, ())
    gate = who.gate or bench.gate
    trier = _Trier(bench, skill, who, bounds)
    trier.started, trier.is_over = watch.started, watch.is_over
    # Neither hosts nor secrets: a trial gives a script nothing that it could leak.
    plan = TrialPlan(bench, skill, who, tuple(trier.call(one) for one in tried))
    gate = ask_once(plan, gate) if one_question else gate.asking_for(*ASKED_TYPES)
    results = trier.run_all(tried, gate, told)
    if len(trier.denied) == len(tried):
        raise trier.denied[0]
    return Trial(
        skill=skill.name,
        scripts=results,
        left_out=tuple(one.path for one in left),
        sandbox=trier.sandbox,
    )


def _choose(skill: Skill, only: tuple[str, ...]) -> tuple[Script, ...]:
    found = scripts_of(skill)
    if not only:
        return found
    by_path = {one.path: one for one in found}
    for path in only:
        if path not in by_path:
            known = ", ".join(by_path) or "none"
            raise RunRefused(
                f"{skill.name} has no script {one_line(path)!r}; its scripts: {one_line(known)}"
            )
    return tuple(by_path[path] for path in dict.fromkeys(only))


class _Trier:
    """Tries the scripts of one skill."""

    def __init__(self, bench: Workbench, skill: Skill, who: Asker, bounds: TrialBounds) -> None:
        self.bench, self.skill, self.who, self.bounds = bench, skill, who, bounds
        self.sandbox = ""
        self.started: Callable[[Running], None] | None = None
        self.is_over: Callable[[], bool] | None = None
        self.denied: list[PermissionDenied] = []
        # Packages that cannot be provided are looked up once, not for each script.
        self._failed: dict[Needs, RunRefused] = {}

    def run_all(
        self,
        scripts: tuple[Script, ...],
        gate: Gate,
        told: Callable[[ScriptTrial], None] | None,
    ) -> tuple[ScriptTrial, ...]:
        """Run the scripts, some in parallel; an exception or Ctrl-C kills those that run."""
        follower, telling = Follower(), threading.Lock()

        def run_one(script: Script) -> ScriptTrial:
            done = self._try(script, gate, follower)
            with telling:
                if told is not None:
                    told(done)
            return done

        with ThreadPoolExecutor(self.bounds.at_once, "skillbelt-trial") as pool:
            waiting = [pool.submit(run_one, one) for one in scripts]
            try:
                return tuple(one.result() for one in waiting)
            except BaseException:
                for one in waiting:
                    one.cancel()
                follower.kill()
                raise

    def _watch(self, follower: Follower) -> Watch:
        def note(running: Running) -> None:
            for started in (follower.watch.started, self.started):
                if started is not None:
                    started(running)

        def is_over() -> bool:
            return follower.killed or (self.is_over is not None and self.is_over())

        return Watch(None, note, is_over)

    def call(self, script: Script) -> RunCall:
        """Return the call that starts a script."""
        arguments = () if script.library else (_HELP,)
        example = script.example
        return RunCall(
            command=(*script.command, *(example.arguments if example else arguments)),
            cwd=script.cwd,
            timeout_seconds=self.bounds.seconds,
            stdin=example.stdin.encode() if example else b"",
        )

    def asker(self, gate: Gate) -> Asker:
        """Return the initiator: no conversation, so that each run has its own workspace."""
        return self.who._replace(gate=gate, once="whole")

    def _try(self, script: Script, gate: Gate, follower: Follower) -> ScriptTrial:
        call = self.call(script)
        blank = ScriptTrial(
            path=script.path,
            language=script.language,
            started=False,
            how="refused",
            command=call.text,
            library=script.library,
        )
        if script.example and script.example.fault:
            return blank._replace(line=one_line(script.example.fault))
        needs = _find_declared(self.skill, script)
        if needs in self._failed:
            return _make_refused(blank, "package", self._failed[needs])
        try:
            who = self.asker(gate)
            with self.bench.prepare(self.skill, call, who, observed=True, secrets=False) as run:
                self.bench.carry_out(run, self._watch(follower))
                result = self.bench.finish(run)
                run.workspace.wanted = False  # the files that a trial writes are not needed
                self.sandbox = result.sandbox
                reached = _to_reached(run.egress.connections if run.egress else ())
                packages = run.packages
        except RunRefused as error:
            if needs is not None:
                self._failed[needs] = error
            return _make_refused(blank, "package", error)
        except PermissionDenied as error:
            self.denied.append(error)
            return _make_refused(blank, "refused", error)
        verdict = judge(script, _to_ended(result))
        return blank._replace(
            started=verdict.started,
            how=verdict.how,
            lacked=_with_hosts(verdict, reached),
            reached=reached,
            line=one_line(verdict.line),
            remedy="" if verdict.started or not result.hints else result.hints[0].message,
            exit_code=result.exit_code,
            duration_ms=result.duration_ms,
            packages=tuple("==".join(one) for one in packages.installed) if packages else (),
            environment=packages.path if packages else "",
            observed=result.observed,
        )


def _find_declared(skill: Skill, script: Script) -> Needs | None:
    """Return the packages that the skill declares for a script, None for none or invalid ones."""
    try:
        return needs_of(skill.dir, script.path)
    except (SkillbeltError, OSError):
        return None


def _to_ended(result: RunResult) -> Ended:
    hit = tuple(one for one in result.limits_hit if one.endswith(("bytes", "processes", "files")))
    return Ended(
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        timed_out=result.timed_out,
        limits_hit=hit if result.exit_code else (),
        missing=tuple(
            Lack(_HINTS[one.kind], one.name) for one in result.hints if one.kind in _HINTS
        ),
    )


def _to_reached(connections: Iterable[Connection]) -> tuple[Reached, ...]:
    found = (Reached(f"{one_line(one.host)}:{one.port}", one.allowed) for one in connections)
    return tuple(dict.fromkeys(found))


def _with_hosts(verdict: Verdict, reached: tuple[Reached, ...]) -> tuple[Lack, ...]:
    refused = (Lack("host", one.host.rpartition(":")[0]) for one in reached if not one.allowed)
    return tuple(dict.fromkeys((*verdict.lacked, *refused)))


def _make_refused(blank: ScriptTrial, how: How, error: SkillbeltError) -> ScriptTrial:
    lack = Lack("package" if how == "package" else "permission")
    return blank._replace(how=how, lacked=(lack,), line=one_line(str(error)))


# One question for all


class TrialPlan(NamedTuple):
    """Calls of one skill that share one question; `what` names one of them."""

    bench: Workbench
    skill: Skill
    who: Asker
    calls: tuple[RunCall, ...]
    what: str = "script"

    def asker(self, gate: Gate) -> Asker:
        """Return the initiator: no conversation, so that each run has its own workspace."""
        return self.who._replace(gate=gate, once="whole")


def ask_once(plan: TrialPlan, gate: Gate) -> Gate:
    """Ask for everything that the calls need; return a gate that answers their requests from that.

    PermissionDenied when the answer is no.
    """
    wanted = _collect(plan, gate)
    asked = [*wanted.uses[:1], *wanted.questions(plan)]
    for request in asked:
        gate.require(request)
    hashes = frozenset(one.hash for one in asked)
    covered = {
        kind: frozenset(text for one in requests for text in one.patterns)
        for kind, requests in zip(ASKED_TYPES, wanted, strict=True)
    }

    def answer(pending: Pending) -> Answer | None:
        request = pending.request
        known = covered.get(request.type, frozenset())
        # The hash binds the answer to what was shown: a changed skill is asked for again.
        if request.hash in hashes and known.issuperset(request.patterns):
            return Answer("once", by="try")
        return Answer("reject", "a try asks for scripts and packages only", "try")

    return gate.with_ask(answer)


class _Wanted(NamedTuple):
    """The requests that the scripts will make and that no rule decides."""

    uses: tuple[Request, ...]
    runs: tuple[Request, ...]
    installs: tuple[Request, ...]

    def questions(self, plan: TrialPlan) -> list[Request]:
        """Return the one question about all of it; none when rules allow everything."""
        if not (self.runs or self.installs):
            return []
        like = (self.runs or self.installs)[0]
        packages = tuple(dict.fromkeys(text for one in self.installs for text in one.patterns))
        commands = tuple(dict.fromkeys(text for one in self.runs for text in one.patterns))
        count = f"{len(plan.calls)} {plan.what}{'s' if len(plan.calls) != 1 else ''}"
        also = f", and install {len(packages)} packages for them" if packages else ""
        facts: dict[str, object] = {
            "command": [one.text for one in plan.calls],
            "packages": list(packages),
            "timeout_seconds": max(one.timeout_seconds for one in plan.calls),
        }
        return [
            like._replace(
                type="run" if commands else "install",
                patterns=commands or packages,
                always=(),
                summary=f"start {count} of the skill {plan.skill.name}, each by itself{also}",
                metadata={"call": {key: value for key, value in facts.items() if value}},
                exact=digest(facts),
                session=session_id(plan.who.key),
            )
        ]


def _collect(plan: TrialPlan, gate: Gate) -> _Wanted:
    """Determine what the calls will ask for. Nothing is run, installed or recorded."""
    uses: list[Request] = []
    runs: list[Request] = []
    installs: list[Request] = []
    seen: set[tuple[object, ...]] = set()

    def note(pending: Pending) -> Answer:
        request = pending.request
        if request.type == "skill":
            uses.append(request)
            return Answer("once")
        if request.type == "install":
            installs.append(request)
        if request.type != "run":
            return Answer("reject")
        runs.append(request)
        facts = request.metadata.get("call")
        packages = facts.get("packages", ()) if isinstance(facts, dict) else ()
        # One script of those with the same packages is enough to learn what is installed.
        key = tuple(packages) if isinstance(packages, list) else ()
        known = key in seen or not key
        seen.add(key)
        return Answer("reject" if known else "once")

    silent = gate.with_ask(note, recorded=False)
    for call in plan.calls:
        try:
            with plan.bench.prepare(plan.skill, call, plan.asker(silent), secrets=False):
                pass
        except (PermissionDenied, RunRefused):
            continue
    return _Wanted(tuple(uses), tuple(runs), tuple(installs))
