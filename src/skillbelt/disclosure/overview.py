"""Tier 1: the overview of the skills for a model, within a budget and in four formats.

Pure: the same skills give the same bytes, in any order. All text of a skill is escaped: it cannot
begin a line, close a tag, or look like a part of the text around it.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Literal, NamedTuple, assert_never

from skillbelt.errors import SkillNotFound
from skillbelt.format.skill import Skill
from skillbelt.settings import Settings
from skillbelt.text import bytes_of_tokens, json_string, one_line, shorten, tokens, xml
from skillbelt.values import Diagnostic

# The overview is in every request: 2 % of the context window at most.
OVERVIEW_SHARE = 0.02

Format = Literal["xml", "markdown", "plain", "json"]

_INTRO = "Skills provide specialized instructions and workflows for specific tasks."
_LOADER = "\nUse the {} tool to load a skill when a task matches its description."
MARKDOWN_HEADER = "## Available Skills"
PLAIN_HEADER = "Available skills:"
GUIDANCE_HEADER = "Tooling and workspace guidance:"
# Names no tool, so it is right for any set of tools.
GUIDANCE = (
    f"{GUIDANCE_HEADER}\n"
    "- When a task matches a skill's description, load the skill before you start: its line above "
    "is not its instructions.\n"
    "- Of a skill's documents load only those the task needs.\n"
    "- Relative paths in a skill are relative to the skill's folder."
)
CHANGES_HEADER = "Note from the skill catalogue, not from the user: the available skills changed."
# The start of a tag of the host's prompt or of a model's own markup; not that of `a < b`.
_TAG = re.compile(r"<(?=[/!?|A-Za-z])")
_MAGIC = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{([^{}]*)\}")
# The most of a description when space is short: one skill must not crowd out all others.
_LONG_DESCRIPTION_CHARS = 1536
_MAX_GLOBS = 64  # globs of one skill, braces expanded
_MAX_GLOB_CHARS = 4096


class Overview(NamedTuple):
    """The text for the system message, its cost, and how many skills it shows in which way.

    `shown` have their descriptions, `names_only` their names, `omitted` are only counted.
    """

    text: str
    tokens: int
    shown: int
    names_only: int
    omitted: int


def overview(
    skills: Iterable[Skill],
    *,
    format: Format = "xml",
    budget_tokens: int = 10_000,
    most_full: int | None = None,
    guidance: str | None = None,
    search: str = "",
    loader: str = "skill",
    suggested: Collection[str] = (),
) -> Overview:
    """Return the overview of the skills in name order, within the budget; empty without skills.

    All with their descriptions if that fits (but at most `most_full`); else the first ones, very
    long descriptions cut, and the names of the others; else the names that fit and a count of the
    others, with a pointer to the tool `search` names. Where not all descriptions fit, those of
    pinned skills come first, even if they alone exceed the budget, then those of the `suggested`
    ones. A skill that the settings show by name never has its description. `guidance` is for
    `plain`: None the usual text, "" none, else verbatim. `loader` is the tool that loads a skill,
    which `xml` names; "" names none.
    """
    ordered = sorted(skills, key=_order)
    if not ordered:
        return Overview(text="", tokens=0, shown=0, names_only=0, omitted=0)
    described = sum(map(has_line, ordered))
    pins = sum(skill.pinned for skill in ordered)
    most = described if most_full is None else max(min(most_full, described), pins)
    guidance = GUIDANCE if guidance is None else guidance
    around = _Around(guidance=guidance, search=search, loader=loader)
    for longest in (sys.maxsize, _LONG_DESCRIPTION_CHARS):
        page = _page(ordered, format, budget_tokens, longest, around)
        full, names = _count_fitting(page, most, budget_tokens)
        if full == most:
            break
    if full < most and (suggested or pins):
        ordered.sort(key=lambda skill: _rank(skill, suggested))
        first = sum(_rank(skill, suggested) < _OTHERS for skill in ordered)
        page = _page(ordered, format, budget_tokens, _LONG_DESCRIPTION_CHARS, around)
        full, names = _count_fitting(page, most, budget_tokens, min(first, most), least=pins)
    text = page.text(full, names)
    if not names and not full and tokens(text) > budget_tokens:
        text = page.least()
    return Overview(
        text=text,
        tokens=tokens(text),
        shown=full,
        names_only=names,
        omitted=page.total - full - names,
    )


def has_line(skill: Skill) -> bool:
    """Return whether an overview without a budget has a line for the skill, not just its name."""
    return skill.pinned or skill.visible != "name"


_PINNED, _SUGGESTED, _OTHERS, _BY_NAME = range(4)


def _rank(skill: Skill, suggested: Collection[str]) -> int:
    """Return the rank of the skill when not all fit, lowest first."""
    if skill.pinned or not has_line(skill):
        return _PINNED if skill.pinned else _BY_NAME
    return _SUGGESTED if skill.name in suggested else _OTHERS


def compact(skills: Iterable[Skill], *, budget_tokens: int = 10_000, search: str = "") -> str:
    """Return the list for a tool's description; empty when there are no skills."""
    return overview(skills, format="markdown", budget_tokens=budget_tokens, search=search).text


def diagnose_pins(skills: Iterable[Skill], made: Overview, budget_tokens: int) -> list[Diagnostic]:
    """Return the warning that pinned skills alone exceed the overview's budget, if they do."""
    pins = sum(skill.pinned for skill in skills)
    if not pins or made.tokens <= budget_tokens:
        return []
    number = f"the pinned skills ({pins})" if pins > 1 else "the pinned skill"
    return [
        Diagnostic(
            code="pins-over-budget",
            severity="warning",
            path="max_overview_tokens",
            line=None,
            message=f"{number} need {made.tokens} tokens in the overview, more than its "
            f"{budget_tokens}; no other skill is in it",
            remedy="unpin some, or raise max_overview_tokens or context_window_tokens",
        )
    ]


def default_budget(settings: Settings) -> int:
    """Return the token budget of an overview: a share of the context window in the settings."""
    share = OVERVIEW_SHARE * settings.context_window_tokens
    return min(settings.limits.max_overview_tokens, int(share))


def merge(system: str, overview: Overview) -> str:
    """Append the overview to the host's system text; only once, even if merged again.

    It counts as present only as a whole, on its own lines: a host may mention the header.
    """
    text = overview.text.strip("\n")
    if not text or f"\n{text}\n" in f"\n{system}\n":
        return system
    if not system:
        return overview.text
    ends = len(system) - len(system.rstrip("\n"))
    return system + "\n" * max(2 - ends, 0) + overview.text


def visible(
    skills: Iterable[Skill],
    *,
    files: Iterable[str] | None = None,
    keep: Callable[[Skill], bool] | None = None,
) -> list[Skill]:
    """Return the skills that a model may see, in the order given.

    `keep` is the caller's own filter. With `files`, the paths in play relative to the project, a
    skill whose frontmatter has `paths` is included only if one of those globs matches one of them.
    """
    shown = [skill for skill in skills if skill.model_visible and skill.description]
    if keep is not None:
        shown = [skill for skill in shown if keep(skill)]
    if files is None:
        return shown
    in_play = [file.removeprefix("./").split("/") for file in files]
    return [skill for skill in shown if _touches(skill, in_play)]


def changes_note(
    before: Mapping[str, Skill],
    after: Mapping[str, Skill],
    *,
    budget_tokens: int = 1_000,
    search: str = "",
) -> str:
    """Return the note for the next user message; empty when the model sees no change.

    The mappings hold what the model may use, by name. Only what an overview shows counts: a changed
    body does not.
    """
    lines = list(_changes(_visible_by_name(before), _visible_by_name(after)))
    if not lines:
        return ""

    def over(count: int) -> bool:
        return tokens(_note(lines, count, search)) > budget_tokens

    if not over(len(lines)):
        return _note(lines, len(lines), search)
    return _note(lines, bisect_right(range(1, len(lines)), False, key=over), search)


# The page: everything that might be shown, before it is known how much fits


class _Around(NamedTuple):
    """The text around the skills: the guidance, and the tools that find and load."""

    guidance: str
    search: str
    loader: str


class _Page(NamedTuple):
    """Rendered lines and names of `total` skills, as many as the budget could hold at most."""

    format: Format
    lines: Sequence[str]
    names: Sequence[str]
    total: int
    around: _Around

    def text(self, full: int, names: int) -> str:
        """Return `full` skills with descriptions, the next `names` by name, and a note."""
        lines, named = self.lines[:full], self.names[full : full + names]
        complete = full == self.total
        match self.format:
            case "xml":
                note = [] if complete else [f"  <note>{xml(self._note(full, named))}</note>"]
                tags = ("<available_skills>", *lines, *note, "</available_skills>")
                loader = _line(self.around.loader)
                return "\n".join((_INTRO + (_LOADER.format(loader) if loader else ""), *tags))
            case "markdown" | "plain":
                header = MARKDOWN_HEADER if self.format == "markdown" else PLAIN_HEADER
                note = [] if complete else [f"({self._note(full, named)})"]
                block = "\n".join((header, *lines, *note))
                guided = self.format == "plain" and self.around.guidance
                return f"{block}\n\n{self.around.guidance}" if guided else block
            case "json":
                return self._json(full, named)
        assert_never(self.format)

    def least(self) -> str:
        """Return the shortest text."""
        return self._json(0, ()) if self.format == "json" else self._note(0, ())

    def _json(self, full: int, named: Sequence[str]) -> str:
        skills = ",\n".join(self.lines[:full])
        text = f'{{"skills": [\n{skills}\n]' if full else '{"skills": []'
        if named:
            text += f',\n"names": [{", ".join(named)}]'
        if full < self.total:
            text += f',\n"note": {json_string(self._note(full, named, listed=False))}'
        return text + "}"

    def _note(self, full: int, named: Sequence[str], *, listed: bool = True) -> str:
        left = self.total - full - len(named)
        names = ": " + ", ".join(named) if listed and named else ""
        where = _pointer(self.around.search)
        if full:
            shown = f"showing {full} of {self.total} with descriptions"
            if not left:
                return f"{shown}; the others by name{names}"
            by_name = f", {len(named)} by name{names}" if named else ""
            return f"{shown}{by_name}; {left} more: {where}"
        if not named:
            return f"{left} skill{'s' * (left > 1)}: {where}"
        shown = f"showing {len(named)} of {self.total}, by name only{names}"
        return f"{shown}; {left} more: {where}" if left else shown


def _page(
    skills: Sequence[Skill],
    format: Format,
    budget_tokens: int,
    longest: int,
    around: _Around,
) -> _Page:
    room = bytes_of_tokens(budget_tokens)
    # Names in XML are escaped together with the note around them.
    clean: dict[Format, Callable[[str], str]] = {"xml": str, "json": json_string}
    names = _take_fitting(map(clean.get(format, _line), (skill.name for skill in skills)), room)
    # Pinned skills come first, and have their lines even beyond the budget.
    pins = [_render_full(one, format, longest) for one in takewhile(lambda one: one.pinned, skills)]
    others = (_render_full(one, format, longest) for one in skills[len(pins) :])
    lines = [*pins, *_take_fitting(others, max(room - sum(map(len, pins)), 0))]
    return _Page(format=format, lines=lines, names=names, total=len(skills), around=around)


def _take_fitting(parts: Iterator[str], size: int) -> list[str]:
    """Return the parts up to the one that exceeds the size; later ones cannot be used."""
    taken: list[str] = []
    for part in parts:
        taken.append(part)
        size -= len(part)
        if size < 0:
            break
    return taken


def _count_fitting(
    page: _Page, most: int, budget_tokens: int, first: int = 0, *, least: int = 0
) -> tuple[int, int]:
    """Return how many skills fit with their descriptions, and how many by name.

    The `first` ones get their descriptions before others get their names, the `least` of them even
    beyond the budget.
    """

    def over(full: int, names: int) -> bool:
        return tokens(page.text(full, names)) > budget_tokens

    # If a page could not take all, its last line and its last name are beyond the budget, so a text
    # of more than the page holds is over it too.
    total = page.total
    if not over(most, total - most):
        return most, total - most
    if not over(0, total):
        tried = range(1, min(most, len(page.lines)))
        full = bisect_right(tried, False, key=lambda count: over(count, total - count))
        if full >= least:
            return full, total - full
    full = max(bisect_right(range(1, first + 1), False, key=lambda count: over(count, 0)), least)
    others = range(1, max(len(page.names) - full, 1))
    return full, bisect_right(others, False, key=lambda count: over(full, count))


def _render_full(skill: Skill, format: Format, longest: int) -> str:
    about, described = shorten(_description_of(skill), longest), skill.visible != "name"
    match format:
        case "xml":
            what = f"    <description>{xml(about)}</description>\n" if described else ""
            return (
                f"  <skill>\n    <name>{xml(skill.name)}</name>\n{what}"
                f"    <location>{xml(skill.location)}</location>\n  </skill>"
            )
        case "markdown":
            return f"- **{_line(skill.name)}**" + (f": {_line(about)}" if described else "")
        case "plain":
            return f"- {_line(skill.name)}" + (f": {_line(about)}" if described else "")
        case "json":
            what = f'"description": {json_string(about)}, ' if described else ""
            name, where = map(json_string, (skill.name, skill.location))
            return f'{{"name": {name}, {what}"location": {where}}}'
    assert_never(format)


def _order(skill: Skill) -> tuple[str, ...]:
    at_end = "" if has_line(skill) else "by name"
    return at_end, skill.name, skill.location, skill.description, skill.when_to_use


def _description_of(skill: Skill) -> str:
    """Return the overview's text about the skill, without its name."""
    if skill.visible == "name":
        return ""
    return " ".join(filter(None, (skill.description, skill.when_to_use)))


def _line(text: str) -> str:
    return _TAG.sub("&lt;", one_line(text))


def _pointer(search: str) -> str:
    tool = _line(search)
    return f"find them with the {tool} tool" if tool else "`skillbelt list` shows them"


# What changed


def _visible_by_name(skills: Mapping[str, Skill]) -> dict[str, Skill]:
    return {skill.name: skill for skill in visible(skills.values())}


def _changes(before: Mapping[str, Skill], after: Mapping[str, Skill]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield f"- removed {_line(name)}"
        elif old is None:
            yield f"- added {_describe(new)}"
        else:
            if _description_of(old) != _description_of(new):
                yield f"- changed {_describe(new)}"
            if old.location != new.location:
                yield f"- moved {_line(name)}: {_line(new.location)}"


def _describe(skill: Skill) -> str:
    return _render_full(skill, "plain", _LONG_DESCRIPTION_CHARS).removeprefix("- ")


def _note(lines: Sequence[str], count: int, search: str) -> str:
    left = len(lines) - count
    more = [f"- {left} more: {_pointer(search)}"] if left else []
    return "\n".join((CHANGES_HEADER, *lines[:count], *more))


# Which files a skill is for


def _touches(skill: Skill, files: Sequence[Sequence[str]]) -> bool:
    try:
        globs = skill.frontmatter.paths
    except SkillNotFound:  # deleted since the scan; the next scan reports it
        return True
    if not globs:
        return True
    return any(_matches(glob, file) for glob in _expand_braces(globs) for file in files)


def _expand_braces(globs: Sequence[str]) -> list[list[str]]:
    """Return the parts of each glob, one for each choice in braces, up to a limit."""
    done: list[str] = []
    waiting = [glob for glob in _rejoin(globs[:_MAX_GLOBS]) if len(glob) <= _MAX_GLOB_CHARS]
    while waiting:
        glob = waiting.pop()
        found = _BRACES.search(glob)
        if not found or found[1].count(",") + len(waiting) + len(done) >= _MAX_GLOBS:
            done.append(glob)
            continue
        before, after = glob[: found.start()], glob[found.end() :]
        waiting += (before + choice + after for choice in found[1].split(","))
    return [_split_glob(glob) for glob in done]


def _rejoin(globs: Iterable[str]) -> list[str]:
    """Rejoin globs that were split at commas inside braces, when all were on one line."""
    whole: list[str] = []
    for glob in globs:
        if whole and whole[-1].count("{") > whole[-1].count("}"):
            whole[-1] += f",{glob}"
        else:
            whole.append(glob)
    return whole


def _split_glob(glob: str) -> list[str]:
    """Split a glob; without a slash it matches in any folder, with a plain end everything below."""
    parts = [part for part in glob.split("/") if part not in ("", ".")]
    if "/" not in glob:
        parts.insert(0, "**")
    return parts if parts and _MAGIC.search(parts[-1]) else [*parts, "**"]


def _matches(glob: Sequence[str], file: Sequence[str]) -> bool:
    """Return whether the parts match, `**` for any number of them.

    Advances all states at once, so that the time is bounded by the product of the two lengths.
    """
    places = {0}
    for part in glob:
        if part == "**":
            places = set(range(min(places), len(file) + 1))
        else:
            places = {at + 1 for at in places if at < len(file) and fnmatchcase(file[at], part)}
        if not places:
            return False
    return len(file) in places
