"""The packages of a run: resolved, then asked for, then installed; always in that order.

A run is refused unless it gets all declared packages that its scripts import. A guessed package
that cannot be provided, or that is not allowed, is left out, and so is a declared one that cannot
be provided and that no source of the run imports: the run goes on without it, with a warning.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.permission.gate import Gate
from skillbelt.permission.packages import Environment, Package, normal
from skillbelt.permission.rules import Request
from skillbelt.running.cleanup import held_environment
from skillbelt.running.packages.declared import Needs, describe, name_of, names_of
from skillbelt.running.packages.environments import key_of, plan, provide
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.running.packages.installation import (
    INSTALL_TIMEOUT_SECONDS,
    EnvironmentPlan,
    SourceBuilds,
    write_json,
)
from skillbelt.running.questions import install_request
from skillbelt.settings import Settings, process_environment
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

# A failed resolution is retried after a day; until then a run does not wait for it.
_TRIED_SECONDS = 24 * 3600.0
_TRIED = "tried"
_BUILT = "built"
# A package without a wheel may have one by now.
_BUILT_SECONDS = 7 * _TRIED_SECONDS
_MAX_BUILT = 20
_WITHOUT_WHEEL = re.compile(r"Wheels are required for `([a-z0-9][a-z0-9-]*)`")
NO_SUCH_PACKAGE = "no such package in the index"
_FAULT = "the index answered"
_REASON_CHARS = 300
# Messages of installers about packages that do not exist, do not fit or contradict each other.
_UNSOLVABLE = re.compile(
    r"no solution found|is not installed:|not found in the|no (?:matching )?version|"
    r"\bE404\b|\bETARGET\b|\bERESOLVE\b|\bEBADPLATFORM\b|more than \d+ \(max_packages_bytes\)",
    re.IGNORECASE,
)


class ProvidedPackages(NamedTuple):
    """The environment of a run, None without one; the warnings about it; and the packages built."""

    environment: Environment | None
    warnings: tuple[str, ...] = ()
    planned: EnvironmentPlan | None = None


class _Remaining(NamedTuple):
    """The remaining needs, all that were wanted, and why each other was left out."""

    needs: Needs
    reasons: Mapping[str, str]
    wanted: Needs

    def less(self, reasons: Mapping[str, str]) -> _Remaining:
        """Return the remaining needs without some packages, each with the reason."""
        return _Remaining(self.needs.without(reasons), {**self.reasons, **reasons}, self.wanted)


class PackageProvider(NamedTuple):
    """Provides the packages of runs for one gate, with one cache."""

    gate: Gate
    settings: Settings
    cache_dir: str
    progress: Callable[[str], None] | None = None

    @contextmanager
    def provide(self, request: Request, needs: Needs) -> Iterator[ProvidedPackages]:
        """Yield the environment with the packages, held for the block.

        `request` is that of the run that needs them. PermissionDenied when declared packages are
        not allowed, RunRefused when they cannot be installed.
        """
        left = self._leave_out_denied(request, needs)
        left, planned = self._resolve(left)
        if planned is not None:
            left, planned = self._ask(request, left, planned)
        if planned is None:
            yield ProvidedPackages(None, _warn(left))
            return
        left, made = self._install(left, planned)
        if made is None:
            yield ProvidedPackages(None, _warn(left))
            return
        with held_environment(partial(provide, made)) as environment:
            yield ProvidedPackages(environment, _warn(left), made)

    def plan(
        self, needs: Needs, builds: SourceBuilds | None = None, *, portable: bool = False
    ) -> EnvironmentPlan:
        """Resolve the needs: versions and hashes, without asking or installing anything.

        `builds` are the packages to build, where the settings do not allow all builds. With
        `portable` the packages have the hashes of all platforms.
        """
        settings = self.settings
        builds = builds or SourceBuilds()
        return plan(
            needs,
            self.cache_dir,
            sandboxes=self._sandboxes(),
            environ=process_environment(),
            offline=settings.offline,
            allow_builds=settings.allow_builds or builds,
            hosts=settings.package_hosts,
            timeout_seconds=INSTALL_TIMEOUT_SECONDS,
            max_bytes=settings.limits.max_packages_bytes,
            progress=self.progress,
            objects=settings.objects,
            portable=portable,
        )

    def resolve(self, needs: Needs) -> tuple[Package, ...]:
        """Return every package that the needs resolve to, with version and hashes.

        Leaves out what cannot be resolved and is only a guess, or is declared and not imported.
        RunRefused for another declared package.
        """
        _, planned = self._resolve(_Remaining(needs, {}, needs))
        return planned.lock.packages if planned else ()

    def _sandboxes(self) -> NativeSandboxes:
        return NativeSandboxes(self.settings.limits, self.settings.sandbox)

    # Its steps

    def _leave_out_denied(self, request: Request, needs: Needs) -> _Remaining:
        """Leave out guesses that a rule denies, and those that no rule names; none is looked up."""
        reasons: dict[str, str] = {}
        for text in needs.guessed:
            name = name_of(text, needs.kind)
            one = named_request(request, needs)._replace(patterns=(name,))
            action, rule = self.gate.rules.decide(one)
            if action == "deny":
                reasons[text] = f"the rule {one_line(rule.pattern)!r} denies it"
            elif action == "allow" and text in needs.unknown and rule.pattern != name:
                reasons[text] = (
                    f"it is not a known package, and the rule {one_line(rule.pattern)!r} is too "
                    f"general for a guess; allow {name} itself, or run with --with {name}"
                )
        kept = needs.without(reasons)
        if kept.requirements:
            named = named_request(request, kept)
            if self.gate.rules.decide(named)[0] == "deny":
                self.gate.require(named)  # a package that is denied is not even looked up
        return _Remaining(kept, reasons, needs)

    def _resolve(self, left: _Remaining) -> tuple[_Remaining, EnvironmentPlan | None]:
        """Resolve all, else without the optional packages that fail; no plan if none remains."""
        left = self._without_tried(left)
        needs = left.needs
        if not needs.requirements:
            return left, None
        if not needs.optional:
            return left, self._with_builds(needs)
        try:
            return left, self.plan(needs, self._known_builds(needs))
        except RunRefused as refused:
            absent = _find_absent(needs, _full_message(refused))
            if absent:
                lasting = {one: why for one, why in absent.items() if not why.startswith(_FAULT)}
                self._remember(needs, lasting)
                return self._resolve(left.less(absent))
            if _UNSOLVABLE.search(str(refused)):
                return self._divide(left, _reason(refused))
            # Not the fault of the packages: no network, no installer. Trying each would not help.
            if not needs.guessed:
                raise
            rest = left.less(dict.fromkeys(needs.guessed, _reason(refused)))
            return rest, self.plan(rest.needs) if rest.needs.requirements else None

    def _divide(self, left: _Remaining, why: str) -> tuple[_Remaining, EnvironmentPlan | None]:
        """Find by bisection the optional packages that cannot be resolved; keep the others."""
        needs, optional = left.needs, left.needs.optional
        wanted = needs.without(optional)
        best = self._with_builds(wanted) if wanted.requirements else None
        builds = best.builds if best else None
        kept: tuple[str, ...] = ()
        reasons: dict[str, str] = {}
        waiting = [optional]
        first = why if len(optional) == 1 else ""
        while waiting:
            part = waiting.pop()
            wanted = needs.without(set(optional) - {*kept, *part})
            try:
                if first:
                    raise RunRefused(first)
                best, kept = self.plan(wanted, builds), (*kept, *part)
            except RunRefused as refused:
                if len(part) == 1:
                    reasons[part[0]] = _reason(refused)
                else:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
        self._remember(needs, reasons)
        return left.less(reasons), best

    def _with_builds(self, needs: Needs) -> EnvironmentPlan:
        """Resolve the required packages.

        Those without a wheel are marked to be built, not built yet.
        """
        names = self._known_builds(needs).names
        while True:
            try:
                return self.plan(needs, SourceBuilds(names, sketch=bool(names)))
            except RunRefused as refused:
                new = set(_WITHOUT_WHEEL.findall(" ".join(_full_message(refused).split()))) - set(
                    names
                )
                if needs.kind != "python" or not new or len(names) >= _MAX_BUILT:
                    raise
                names = tuple(sorted({*names, *new}))

    def _ask(
        self, request: Request, left: _Remaining, planned: EnvironmentPlan
    ) -> tuple[_Remaining, EnvironmentPlan | None]:
        """Ask for all packages; where that is refused, ask for the declared ones alone."""
        needs = left.needs
        asked = self._question(request, needs, planned)
        if not needs.guessed:
            self.gate.require(asked)
            return left, self._resolve_builds(request, needs, planned)
        decision = self.gate.check(asked)
        if decision.allowed:
            return left, self._resolve_builds(request, needs, planned)
        reasons = dict.fromkeys(needs.guessed, f"it is not allowed: {decision.reason}")
        rest = left.less(reasons)
        if not rest.needs.requirements:
            return rest, None
        return self._ask(request, rest, self._with_builds(rest.needs))

    def _question(self, request: Request, needs: Needs, planned: EnvironmentPlan) -> Request:
        """Return the question.

        RunRefused where a rule would allow a build that it does not name.
        """
        packages = tuple(one.text for one in planned.lock.packages)
        built = tuple(one for one in planned.lock.packages if one.name in planned.builds.names)
        texts = tuple(one.text for one in built)
        asked = install_request(request, needs, packages, texts, size=planned.size)
        for one in built:
            action, rule = self.gate.rules.decide(asked._replace(patterns=(one.text,)))
            named = re.split(r"[=@\s]", rule.pattern, maxsplit=1)[0]
            if action == "allow" and normal("python", named) != one.name:
                raise RunRefused(
                    f"{one.name}=={one.version} has no wheel and would be built from source, and "
                    f"the rule {one_line(rule.pattern)!r} is too general for that; allow "
                    f"{one.name} itself, or run without packages (--no-install)"
                )
        return asked

    def _resolve_builds(
        self, request: Request, needs: Needs, planned: EnvironmentPlan
    ) -> EnvironmentPlan:
        """Resolve with the requirements of the packages to build, and ask if there are more."""
        if not planned.builds.sketch:
            return planned
        whole = self.plan(needs, planned.builds._replace(sketch=False))
        self._remember(needs, dict.fromkeys(planned.builds.names, ""), _BUILT)
        if whole.lock.packages != planned.lock.packages:
            self.gate.require(self._question(request, needs, whole))
        return whole

    def _install(
        self, left: _Remaining, planned: EnvironmentPlan
    ) -> tuple[_Remaining, EnvironmentPlan | None]:
        """Install; where all packages are guesses, leave them out on a failure."""
        try:
            provide(planned)
        except RunRefused as refused:
            needs = left.needs
            if len(needs.guessed) < len(needs.requirements):
                raise
            reasons = dict.fromkeys(needs.guessed, _reason(refused))
            return left.less(reasons), None
        return left, planned

    # What was tried

    def _known_builds(self, needs: Needs) -> SourceBuilds:
        """Return the packages that were recently built for the same needs."""
        path = self._record(needs, _BUILT)
        try:
            age = time.time() - os.stat(path).st_mtime
            if age >= _BUILT_SECONDS and not self.settings.offline:
                return SourceBuilds()
            with open(path, encoding="utf-8") as file:
                found = read_json(file.read())
        except (OSError, ValueError):
            return SourceBuilds()
        names = tuple(sorted(found)) if isinstance(found, dict) else ()
        return SourceBuilds(names, sketch=bool(names))

    def _record(self, needs: Needs, folder: str = _TRIED) -> str:
        try:
            key = key_of(
                needs,
                self.cache_dir,
                sandboxes=self._sandboxes(),
                environ=process_environment(),
            )
        except RunRefused:
            return ""
        return os.path.join(self.cache_dir, folder, f"{key}.json")

    def _without_tried(self, left: _Remaining) -> _Remaining:
        """Leave out packages that could not be resolved a short while ago."""
        path = self._record(left.needs) if left.needs.optional else ""
        if not path:
            return left
        try:
            age = time.time() - os.stat(path).st_mtime
            if age >= _TRIED_SECONDS and not self.settings.offline:
                return left
            with open(path, encoding="utf-8") as file:
                tried = read_json(file.read())
        except (OSError, ValueError):
            return left
        known = tried if isinstance(tried, dict) else {}
        reasons = {one: str(known[one]) for one in left.needs.optional if one in known}
        # The remaining needs may have been tried as well.
        return self._without_tried(left.less(reasons)) if reasons else left

    def _remember(self, needs: Needs, reasons: Mapping[str, str], folder: str = _TRIED) -> None:
        path = self._record(needs, folder)
        with suppress(OSError):
            if path and reasons:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                write_json(path, dict(reasons))


@contextmanager
def packages_for(
    gate: Gate,
    request: Request,
    needs: Needs,
    settings: Settings,
    *,
    cache_dir: str,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Environment]:
    """Yield the environment with packages that are all declared, held for the block.

    PermissionDenied when they are not allowed, RunRefused when they cannot be installed.
    """
    provider = PackageProvider(gate, settings, cache_dir, progress)
    with provider.provide(request, needs) as provided:
        if provided.environment is None:
            raise RunRefused(f"{describe(needs)} cannot be provided")
        yield provided.environment


def named_request(request: Request, needs: Needs) -> Request:
    """Return the request for the packages, by their names alone."""
    about = f"install {describe(needs)} for the skill {request.skill}"
    return request._replace(type="install", patterns=names_of(needs), always=(), summary=about)


def _find_absent(needs: Needs, said: str) -> dict[str, str]:
    """Return the optional packages that the index does not have, by the installer's message."""
    words = " ".join(said.lower().split())
    found = {}
    for text in needs.optional:
        name = re.escape(name_of(text, needs.kind))
        said_so = (
            rf"(?<![\w.-]){name} was not found in|'{name}@[^']*' (?:is not in this registry"
            r"|could not be found)"
        )
        path = name.replace("/", "(?:/|%2f)")
        answered = re.search(rf"/{path}/? answered (\d{{3}})\b", words)
        if re.search(said_so, words):
            found[text] = NO_SUCH_PACKAGE
        elif answered:
            found[text] = f"{_FAULT} {answered[1]} for it"
        elif re.search(rf"wheels are required for `{name}`", words):
            found[text] = (
                "it has no wheel for this machine, and would have to be built; --with "
                f"{name_of(text)} asks for that"
            )
    return found


def _full_message(refused: RunRefused) -> str:
    """Return the full message of an installer, which the refusal shortens."""
    return f"{refused} {refused.__cause__ or ''}"


def _reason(refused: RunRefused) -> str:
    """Return the reason, without the list of all requirements."""
    said = one_line(str(refused)).partition("; correct what is declared")[0]
    return shorten(said.partition(" failed: ")[2] or said, _REASON_CHARS)


def _warn(left: _Remaining) -> tuple[str, ...]:
    """Return warnings about the packages that were left out, grouped by reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    unlocked = left.wanted.unlocked
    warnings = (f"{unlocked}; they are resolved again: see `skillbelt verify`",) if unlocked else ()
    for text, why in left.reasons.items():
        about = "not declared"
        if text in left.wanted.unused:
            about = "declared, but not imported by what runs"
        elif text in left.wanted.guarded:
            about = "declared, but imported only where the script can go on without it"
        by_reason.setdefault((about, why), []).append(one_line(text.partition(" --hash")[0]))
    return warnings + tuple(
        f"not provided: {', '.join(names)} ({about}): {why}"
        for (about, why), names in by_reason.items()
    )
