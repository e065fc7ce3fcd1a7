"""Write the generated parts of docs/reference and design/limits.md, or say which drifted.

The code knows names, defaults, signatures, exit codes and rules; scripts/reference.toml has the
words beside them. A page keeps what stands outside its markers.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

import skillbelt
from skillbelt import errors
from skillbelt.check.rules import RULES, CheckRule
from skillbelt.settings import DEFAULTS, REMOVED, USER_ONLY
from skillbelt.values import Limits

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
TEXTS = tomllib.loads((ROOT / "scripts" / "reference.toml").read_text("utf-8"))
OUTSIDE = {"limits.md": ROOT / "design" / "limits.md"}  # not for users
BEGIN, END = "<!--generated:{}-->\n", "<!--/generated:{}-->\n"
# A bound whose constant has another name.
CONSTANTS = {"head_bytes": "FIRST_READ_BYTES", "max_entry_depth": "MAX_PATH_PARTS"}
API = {
    "find": "Catalog Changes discover_skills Filters Result Ranker Ranked Settings SkillSettings"
    " load_settings Limits",
    "converse": "Runtime RuntimeSession ReadableSkill join_stream LoadRequest Command Tool"
    " ToolResult overview Overview load_skill_body load_resource Loaded Report list_docs"
    " sample_files injection_block Storage Page Section Session LoadedSkill Store open_store"
    " SessionKey SessionInfo Event NewEvent",
    "permit": "Gate Rule Request Decision Pending Answer Trust AuditLog AuditEvent",
    "run": "RunResult Execution ExitStatus Trial ScriptTrial Lack Reached RunCall Capabilities"
    " ArtifactStore Artifact open_artifacts",
    "agents": "Runner Agent HostTool TextDelta ThinkingDelta SkillCalled ToolCall ToolResponse"
    " PermissionRequest RunOutput Usage Retry Compaction Final Model Prompt Reply Called"
    " ModelFailure",
    "values": "Skill Frontmatter Requirements Origin Diagnostic Manifest FileEntry build_manifest"
    " check_file check_all scan_skill ScannedSkill Finding Capability CapabilityStatement"
    " ObservedUse",
}
# A value with more fields shows its first ones; help() has them all.
MAX_FIELDS = 5
# Values that a program makes itself or reads most; help() describes the others.
SHOWN = {"Filters", "Rule", "Answer", "LoadRequest", "Agent", "HostTool", "NewEvent", "SessionKey",
        "Called", "Reply", "Result", "Decision", "Pending", "RunResult", "ToolCall", "ToolResponse",
        "Final"}  # fmt: skip
# What a runtime does too, for a program that has none; help() describes them.
SINGLE = {"overview", "load_skill_body", "load_resource", "list_docs", "sample_files",
        "injection_block", "Storage", "Session", "discover_skills"}  # fmt: skip
# Calls that the product makes itself, or that have another name.
INTERNAL = {"index_for_search", "take_over_settings", "findable", "search_in", "discover", "check",
        "look", "load_skill_body"}  # fmt: skip
METHODS = ("Runtime", "RuntimeSession", "Catalog", "Runner")


def show(value: object) -> str:
    """Return a default as a skillbelt.toml writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:_}"


def entries(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and what they are; on a phone a table of them breaks every name."""
    return "".join(f"- {name}: {text}\n" for name, text in rows)


def settings(names: Iterable[str]) -> str:
    """Return the list of some settings. A star marks those that no project's file can set."""
    return entries(
        (
            f"`{name} = {show(DEFAULTS[name])}`" + ("\\*" if name in USER_ONLY else ""),
            TEXTS["settings"][name],
        )
        for name in names
    )


def plain_settings() -> str:
    """Return the settings that are no limits."""
    return settings(name for name in DEFAULTS if name not in Limits._fields)


def limits() -> str:
    """Return the limits."""
    return settings(name for name in DEFAULTS if name in Limits._fields)


@cache
def constants() -> dict[str, str]:
    """Return each bound that was a setting once and is a constant now, with its value."""
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    known = dict(re.findall(r"^([A-Z][A-Z_]+) = (\d[\d_.* ]*)$", code, re.MULTILINE))
    found = {name: known.get(CONSTANTS.get(name, name.upper())) for name in sorted(REMOVED)}
    return {name: f"{eval(text):_}" for name, text in found.items() if text}


def fixed() -> str:
    """Return the constants in one paragraph, and the settings that are gone without one."""
    known = constants()
    lines = ", ".join(f"`{name}` {value}" for name, value in known.items())
    gone = ", ".join(f"`{name}`" for name in sorted(REMOVED) if name not in known)
    return f"{lines}.\n\nAlso ignored: {gone}.\n"


def rules() -> str:
    """Return the list of the rules of `check`, which itself prints the fix of each."""
    return entries((f"`{code}` ({_levels(rule)})", rule.what) for code, rule in RULES.items())


def _levels(rule: CheckRule) -> str:
    """Return the level of a rule, and that of strict mode where it differs."""
    return "/".join(dict.fromkeys((rule.severity, rule.strict)))


def kinds() -> str:
    """Return the list of the exceptions with cause and remedy."""
    found = {
        one.kind: one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.SkillbeltError)
    }
    return entries(
        (f"`{kind}` (`{one.__name__}`, {one.exit_code})", "; ".join(TEXTS["errors"][kind]))
        for kind, one in found.items()
    )


def signature(thing: object, name: str) -> str:
    """Return a call without types, as short as it is read."""
    try:
        found = inspect.signature(thing)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    parts: list[str] = []
    keyword = False
    given = list(found.parameters.values())
    rest: list[str] = []
    if hasattr(thing, "_fields") and len(given) > MAX_FIELDS:
        given, rest = given[:MAX_FIELDS], ["..."]
    for one in given:
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        if one.kind is one.KEYWORD_ONLY and not keyword:
            keyword = True
            parts.append("*")
        if one.kind is one.VAR_KEYWORD:
            parts.append(f"**{one.name}")
        elif one.kind is one.VAR_POSITIONAL:
            keyword = True
            parts.append(f"*{one.name}")
        elif one.default is one.empty:
            parts.append(one.name)
        else:
            parts.append(f"{one.name}={_short(one.default)}")
    return f"{name}({', '.join(parts + rest)})"


def _short(value: object) -> str:
    text = repr(value).replace("mappingproxy({})", "{}")
    return text if len(text) <= 16 and " at 0x" not in text and "<" not in text else "..."


def _first(thing: object) -> str:
    """Return the first sentence of a docstring in one line, without its "Return"."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.;])\s", text)[0].rstrip(".;").removeprefix("Return ")


def names(group: str) -> str:
    """Return the list of the public names of a group, the values that one only gets by name."""
    every = API[group].split()
    got = [name for name in every if _is_got(name)]
    single = [name for name in every if name in SINGLE]
    listed = entries(
        (f"`{_described(name)}`", _first(getattr(skillbelt, name)))
        for name in every
        if name not in got and name not in single
    )
    listed += _names("Without a runtime", single) + _names("Values that you get", got)
    return listed


def _names(title: str, names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names)
    return f"\n{title}: {shown}.\n" if names else ""


def _is_got(name: str) -> bool:
    return hasattr(getattr(skillbelt, name), "_fields") and name not in SHOWN


def _described(name: str) -> str:
    thing = getattr(skillbelt, name)
    return name if getattr(thing, "_is_protocol", False) else signature(thing, name)


def methods(name: str) -> str:
    """Return the list of the calls of a class; the coroutine of a call is not listed again."""
    cls = getattr(skillbelt, name)
    found = {
        key: value
        for key, value in inspect.getmembers(cls)
        if not key.startswith("_")
        and key not in INTERNAL
        and getattr(value, "__module__", "").startswith("skillbelt")
        and inspect.getdoc(value)
    }
    return entries(
        (f"`{signature(value, key)}`", _first(value))
        for key, value in found.items()
        if not key.endswith(("_async", "_sync"))
    )


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("settings.md", "settings"): plain_settings,
    ("settings.md", "limits"): limits,
    ("limits.md", "fixed"): fixed,
    ("check-rules.md", "rules"): rules,
    ("errors.md", "kinds"): kinds,
    **{("api.md", group): partial(names, group) for group in API},
    **{("api.md", name): partial(methods, name) for name in METHODS},
}


def renew(text: str, part: str, made: str) -> str:
    """Return a page with one generated part replaced."""
    before, begin, rest = text.partition(BEGIN.format(part))
    _, end, after = rest.partition(END.format(part))
    if not begin or not end:
        raise SystemExit(f"the page has no markers for {part!r}")
    return f"{before}{begin}\n{made}\n{end}{after}"


def main() -> int:
    """Return 0 when every page is current (or is now), 1 when one drifted."""
    drifted = 0
    for page in sorted({page for page, _ in PARTS}):
        path = OUTSIDE.get(page) or PAGES / page
        text = old = path.read_text("utf-8")
        for (where, part), make in PARTS.items():
            if where == page:
                text = renew(text, part, make())
        if text != old and "--write" in sys.argv[1:]:
            path.write_text(text, "utf-8")
        elif text != old:
            print(
                f"{path.parent.name}/{page} differs from the code; run `make docs`", file=sys.stderr
            )
            drifted = 1
    return drifted


if __name__ == "__main__":
    sys.exit(main())
