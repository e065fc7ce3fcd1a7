"""Count the scripts of real skills that start: `python -m benchmarks.real_skills FOLDER`.

FOLDER is any folder of skills, such as a checkout of a public collection, or several of them side
by side. Every script of each skill, or of `--sample` N skills drawn by `--seed`, is tried as
`skillbelt try` does, with the packages it needs. `--outside` also starts each outside the sandbox
with the same packages, and counts only those that can start on this machine at all. Python and
JavaScript count; the shell and TypeScript stand beside them. Two kinds are not measured, on neither
side: skills that need a package as large as PyTorch ("heavy"), and scripts that were not begun
when their skill had taken `--seconds` ("late"). What is done is kept in `--out`, so that an
interrupted measurement goes on where it ended. Exit code 1 when `--bar` is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.outside import HEAVY, start_outside, why_not
from skillbelt import Answer, RunRefused, Runtime
from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.running.call import Asker
from skillbelt.running.trial.scripts import LANGUAGES, Script, scripts_of
from skillbelt.running.trial.trial import TrialBounds, try_skill
from skillbelt.store import SessionKey

COUNTED = ("python", "javascript")
AT_ONCE = 2
SECONDS = 20.0
SKILL_SECONDS = 240.0
CACHE_BYTES = 12 * 2**30
_NAMES = "|".join(sorted(HEAVY)).replace("_", "[-_]")
_HEAVY = re.compile(rf"(?m)^\s*(?:import|from)\s+({_NAMES})\b|^({_NAMES})\s*(?:[<>=~\[]|$)")
WHO = Asker(SessionKey("skillbelt", "", "real-skills"), "user")

Row = dict[str, object]


def skills_below(folder: str) -> Iterator[str]:
    """Yield the folder of each skill; what lies inside a skill belongs to it."""
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in (".git", "node_modules"))
        if "SKILL.md" in files:
            folders.clear()
            yield path


def has_scripts(path: str, languages: Sequence[str] = LANGUAGES) -> bool:
    """Whether a skill has a script in one of the languages."""
    try:
        return any(one.language in languages for one in scripts_of(Skill.from_folder(path)))
    except (SkillbeltError, OSError):
        return False


def draw(folder: str, sample: int, seed: int, most: int) -> list[str]:
    """Draw skills with scripts, at most so many below one entry of the folder; all for 0."""
    by_collection: dict[str, list[str]] = {}
    for path in skills_below(folder):
        collection = os.path.relpath(path, folder).partition(os.sep)[0]
        by_collection.setdefault(collection, []).append(path)
    if not sample:
        return [one for paths in by_collection.values() for one in paths if has_scripts(one)]
    chance, pool = random.Random(seed), []
    for _, paths in sorted(by_collection.items()):
        chance.shuffle(paths)
        chosen = (one for one in paths if has_scripts(one, COUNTED))
        pool += [one for _, one in zip(range(most), chosen, strict=False)]
    chance.shuffle(pool)
    return pool[:sample]  # in this order: the first of them are a sample, too


def heavy_import(path: str) -> str:
    """Return a package that is too large to be installed here and that the skill needs; ""."""
    for file in (*Path(path).rglob("*.py"), *Path(path).rglob("requirements*.txt")):
        found = _HEAVY.search(file.read_text("utf-8", "replace")) if file.is_file() else None
        if found:
            return found[1] or found[2]
    return ""


class Measurement:
    """Tries skills, some at a time, and keeps the rows of each in a file."""

    def __init__(
        self,
        out: str,
        cache: str,
        outside: bool,
        at_once: int = AT_ONCE,
        *,
        seconds: float = SKILL_SECONDS,
    ) -> None:
        self.out, self.cache, self.outside = Path(out), cache, outside
        self._at_once, self._seconds = at_once, seconds
        self.rows: dict[str, list[Row]] = {}
        self._lock = threading.Lock()
        if self.out.exists():
            for line in self.out.read_text().splitlines():
                kept = json.loads(line)
                self.rows[kept["skill"]] = kept["scripts"]
        self._runtime = Runtime(
            cache,
            ask=lambda _: Answer("once", by="benchmark"),
            project_roots=False,
            user_roots=False,
            state_dir=f"{cache}/state",
            cache_dir=f"{cache}/cache",
            max_packages_bytes=CACHE_BYTES,
        )

    def run(self, skills: Sequence[str]) -> list[Row]:
        """Try what is not done yet; return the rows of all of them."""
        left = [one for one in skills if one not in self.rows]
        with self._runtime, ThreadPoolExecutor(self._at_once) as pool:
            for number, _ in enumerate(pool.map(self._try, left), 1):
                self._show(f"{number}/{len(left)} skills")
        return [row for one in skills for row in self.rows[one]]

    def _try(self, path: str) -> None:
        began = time.monotonic()
        rows = list(self._measure(path))
        kept = {"skill": path, "seconds": round(time.monotonic() - began, 1), "scripts": rows}
        with self._lock, self.out.open("a") as file:
            self.rows[path] = rows
            file.write(json.dumps(kept) + "\n")

    def _measure(self, path: str) -> Iterator[Row]:
        skill = Skill.from_folder(path)
        name, end = heavy_import(path), time.monotonic() + self._seconds
        for script in scripts_of(skill):
            blank: Row = {"skill": path, "path": script.path, "language": script.language,
                          "started": False, "line": "", "lacked": []}  # fmt: skip
            if name:
                yield {**blank, "how": "heavy", "lacked": [{"kind": "module", "name": name}]}
            elif time.monotonic() > end:
                yield {**blank, "how": "late"}
            else:
                yield self._start(skill, script, blank)

    def _start(self, skill: Skill, script: Script, blank: Row) -> Row:
        bounds, only = TrialBounds(seconds=SECONDS, at_once=1), (script.path,)
        bench = self._runtime.workbench
        try:
            trial = try_skill(bench, skill, WHO, only=only, bounds=bounds, one_question=False)
        except (RunRefused, SkillbeltError, OSError) as error:
            return {**blank, "how": "refused", "line": str(error)}
        except Exception as error:  # a fault of ours counts against us, and the rest goes on
            return {**blank, "how": "fault", "line": repr(error)}
        [one] = trial.scripts
        row: Row = {**blank, **one.document()}
        if self.outside and not one.started:  # the others can start, as they did
            verdict = start_outside(skill, script, one, self.cache)
            row["outside"] = {**verdict._asdict(), "started": verdict.started}
        return row

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def heavy(row: Row) -> bool:
    """Whether a script failed on a package that is too large to be measured here."""
    lacked = row["lacked"]
    names = [str(one["name"]) for one in lacked] if isinstance(lacked, list) else []
    said = str(row.get("line", "")).lower()
    return not row["started"] and (
        any(name.partition(".")[0] in HEAVY for name in names)
        or (row["how"] == "package" and any(f" {one}" in said for one in HEAVY))
    )


def able(row: Row) -> bool:
    """Whether the script can start on this machine; True where that was not measured."""
    outside = row.get("outside")
    return bool(row["started"]) or not isinstance(outside, dict) or bool(outside["started"])


def summarize(rows: Sequence[Row]) -> dict[str, object]:
    """Return the figures of a measurement: shares, and failures by cause."""
    figures: dict[str, object] = {}
    for name in (*COUNTED, "typescript", "shell", "counted"):
        chosen = [
            row for row in rows
            if row["language"] == name or (name == "counted" and row["language"] in COUNTED)
        ]  # fmt: skip
        light = [row for row in chosen if row["how"] != "late" and not heavy(row)]
        can = [row for row in light if able(row)]
        started = [row for row in can if row["started"]]
        figures[name] = {
            "scripts": len(chosen),
            "too_heavy": sum(map(heavy, chosen)),
            "late": sum(row["how"] == "late" for row in chosen),
            "can_start": len(can),
            "started": len(started),
            "share": round(len(started) / len(can), 4) if can else None,
            "share_of_all": round(len(started) / len(light), 4) if light else None,
            "started_by": dict(Counter(str(row["how"]) for row in started).most_common()),
            "failed_by": dict(
                Counter(str(row["how"]) for row in can if not row["started"]).most_common()
            ),
            "outside_too": dict(
                Counter(str(row["how"]) for row in light if not able(row)).most_common()
            ),
        }
    return figures


def print_table(figures: dict[str, object], seconds: float) -> None:
    """Print the shares, and below them the causes."""
    print(f"{'':12} {'scripts':>8} {'heavy':>6} {'late':>6} {'can':>6} {'start':>6} {'share':>7}")
    for name, one in figures.items():
        assert isinstance(one, dict)
        share = "" if one["share"] is None else f"{one['share']:.1%}"
        print(
            f"{name:12} {one['scripts']:>8} {one['too_heavy']:>6} {one['late']:>6} "
            f"{one['can_start']:>6} {one['started']:>6} {share:>7}"
        )
    counted = figures["counted"]
    assert isinstance(counted, dict)
    for title in ("started_by", "failed_by", "outside_too"):
        causes = ", ".join(f"{how} {number}" for how, number in counted[title].items())
        print(f"{title.replace('_', ' ')}: {causes or 'none'}")
    print(f"{seconds:.0f} s")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--sample", type=int, default=0, help="so many skills, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=60, help="skills of one collection in a sample")
    parser.add_argument("--outside", action="store_true", help="also start each outside")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="skills side by side")
    parser.add_argument(
        "--seconds", type=float, default=SKILL_SECONDS, help="after which no script is begun"
    )
    parser.add_argument("--out", default="real-skills.jsonl", help="the rows, kept as they come")
    parser.add_argument("--json", default="", help="a file for the figures")
    parser.add_argument("--cache", default="", help="a folder for packages and state")
    parser.add_argument(
        "--bar", type=float, default=0.0, help="the least share that counts as good"
    )
    args = parser.parse_args(argv)
    if args.outside and (reason := why_not()):
        parser.error(f"--outside: {reason}")
    began = time.monotonic()
    skills = draw(args.folder, args.sample, args.seed, args.most)
    cache = os.path.abspath(args.cache or f"{args.out}.cache")
    os.makedirs(cache, exist_ok=True)
    measurement = Measurement(args.out, cache, args.outside, args.at_once, seconds=args.seconds)
    rows = measurement.run(skills)
    figures = summarize(rows)
    print(f"{len(skills)} skills")
    print_table(figures, time.monotonic() - began)
    if args.json:
        Path(args.json).write_text(json.dumps({"figures": figures, "rows": rows}, indent=1))
    counted = figures["counted"]
    assert isinstance(counted, dict)
    return 0 if (counted["share"] or 0) >= args.bar else 1


if __name__ == "__main__":
    sys.exit(main())
