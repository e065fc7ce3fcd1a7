"""The rules of `skillbelt check`: one row each, with the severity in both modes.

`severity` says what a broken rule means for loading: an error makes the skill unusable, a warning
loads anyway, an info is worth knowing. `strict` follows the specification to the letter: everything
it forbids is an error. docs/reference/check-rules.md has the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from skillbelt.records import NamedTuple
from skillbelt.values import Diagnostic, Severity

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


class CheckRule(NamedTuple):
    """One rule: its severities, what is wrong, why that matters and how to fix it."""

    code: str
    severity: Severity
    strict: Severity
    what: str
    why: str
    fix: str


def finding(code: str, path: str, line: int | None, message: str, remedy: str = "") -> Diagnostic:
    """Return a diagnostic of that rule; its remedy is the rule's own unless another is given."""
    rule = RULES[code]
    return Diagnostic(
        code=code,
        severity=rule.severity,
        path=path,
        line=line,
        message=message,
        remedy=remedy or rule.fix,
    )


def harden(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the findings with the severities of strict mode, which never lowers one."""
    return tuple(
        found._replace(severity=max(found.severity, rule.strict, key=SEVERITIES.index))
        if (rule := RULES.get(found.code))
        else found
        for found in diagnostics
    )


_ROWS = (
    # The file itself
    CheckRule(
        code="file-name",
        severity="error",
        strict="error",
        what="the file is not named exactly SKILL.md",
        why="Skills are found by that exact name; other spellings are not loaded.",
        fix="rename the file to SKILL.md (--fix does)",
    ),
    CheckRule(
        code="not-a-file",
        severity="error",
        strict="error",
        what="SKILL.md is a folder, a pipe, a device or a socket",
        why="Only a regular file can be read; anything else is never opened.",
        fix="make it a regular file",
    ),
    CheckRule(
        code="unreadable",
        severity="error",
        strict="error",
        what="SKILL.md, or a folder above it, cannot be read",
        why="The skill is not found, or found and not loaded.",
        fix="fix its permissions",
    ),
    CheckRule(
        code="broken-link",
        severity="warning",
        strict="warning",
        what="a symbolic link leads nowhere",
        why="Nothing can be read through it; as SKILL.md it is an error.",
        fix="point the link at something that exists, or remove it",
    ),
    CheckRule(
        code="file-cut",
        severity="warning",
        strict="warning",
        what="SKILL.md is larger than what is checked",
        why="Only the first 2 MiB are read, so rules about the body saw a part of it.",
        fix="move long material into files below references/",
    ),
    CheckRule(
        code="no-skill",
        severity="warning",
        strict="error",
        what="a checked folder holds no SKILL.md",
        why="A skill is a folder with a SKILL.md; a check of nothing passes by mistake.",
        fix="name a folder that holds skills, or add a SKILL.md",
    ),
    CheckRule(
        code="max-depth",
        severity="warning",
        strict="warning",
        what="folders are nested deeper than the search goes",
        why="Skills in them are not found.",
        fix="raise `max_depth`, or move the skills up",
    ),
    CheckRule(
        code="max-directories",
        severity="warning",
        strict="warning",
        what="the search for skills stopped at its limit of folders",
        why="Skills in the rest are not found.",
        fix="raise `max_directories`, or name a smaller folder",
    ),
    CheckRule(
        code="max-root-entries",
        severity="warning",
        strict="warning",
        what="the search for skills stopped at its limit of entries",
        why="Skills in the rest are not found.",
        fix="name a smaller folder",
    ),
    CheckRule(
        code="link-cycle",
        severity="warning",
        strict="warning",
        what="a link leads back to a folder above it",
        why="It is visited once; other tools may go round in it.",
        fix="remove the link",
    ),
    CheckRule(
        code="same-folder",
        severity="info",
        strict="info",
        what="a link leads to a folder that was visited",
        why="Its skills are checked once.",
        fix="nothing needs to be done",
    ),
    CheckRule(
        code="byte-order-mark",
        severity="info",
        strict="info",
        what="the file begins with a byte-order mark",
        why="Some readers do not see the opening `---` behind it.",
        fix="save as UTF-8 without a byte-order mark (--fix does)",
    ),
    CheckRule(
        code="line-endings",
        severity="info",
        strict="info",
        what="lines end with CR LF",
        why="Harmless here; some readers keep the CR as a part of values.",
        fix="save with LF endings; --fix keeps endings as they are",
    ),
    # The block between the `---` lines, as the parser reports it
    CheckRule(
        code="frontmatter-missing",
        severity="warning",
        strict="error",
        what="there is no frontmatter, or it is empty",
        why="Name and description are guessed from the folder and the first paragraph.",
        fix="begin the file with `---`, `name: …`, `description: …`, `---`",
    ),
    CheckRule(
        code="frontmatter-unclosed",
        severity="warning",
        strict="error",
        what="the frontmatter is opened and never closed",
        why="There is no way to tell where the fields end, so the whole file is read as text.",
        fix="end the fields with a line `---`",
    ),
    CheckRule(
        code="frontmatter-too-large",
        severity="error",
        strict="error",
        what="the frontmatter is larger than 64 KiB",
        why="It is read for every skill at every start; the file is skipped.",
        fix="move text to the body",
    ),
    CheckRule(
        code="yaml-repaired",
        severity="warning",
        strict="error",
        what="the frontmatter is not YAML, or is in the wrong place",
        why="It was repaired and read; other clients drop the skill without a message.",
        fix="put the value in quotes (--fix does)",
    ),
    CheckRule(
        code="yaml-unreadable",
        severity="warning",
        strict="error",
        what="the frontmatter cannot be read at all",
        why="The whole file is read as text.",
        fix="write `key: value` lines between two `---` lines",
    ),
    CheckRule(
        code="yaml-depth",
        severity="error",
        strict="error",
        what="the frontmatter nests too deep",
        why="Deep nesting is an attack on readers; the file is skipped.",
        fix="flatten it",
    ),
    CheckRule(
        code="yaml-aliases",
        severity="error",
        strict="error",
        what="the frontmatter uses too many YAML aliases",
        why="Aliases can grow without bound; the file is skipped.",
        fix="write the values out",
    ),
    CheckRule(
        code="yaml-tag",
        severity="warning",
        strict="warning",
        what="a value has a YAML tag",
        why="Nothing is built from tags; the plain value is used.",
        fix="remove the tag",
    ),
    CheckRule(
        code="duplicate-key",
        severity="warning",
        strict="error",
        what="a key occurs twice",
        why="YAML forbids it; the last one counts here, the first elsewhere.",
        fix="remove one of them",
    ),
    CheckRule(
        code="comment-cut",
        severity="warning",
        strict="warning",
        what="YAML reads the end of a name or description as a comment",
        why="Everything after ` #` in a value without quotes is lost.",
        fix="put the value in quotes",
    ),
    CheckRule(
        code="control-characters",
        severity="warning",
        strict="error",
        what="the frontmatter holds control characters",
        why="YAML forbids them; they are left out.",
        fix="remove them (--fix does)",
    ),
    CheckRule(
        code="field-type",
        severity="warning",
        strict="error",
        what="a field has a value of the wrong type",
        why="It was turned into text, or is ignored.",
        fix="write the type the message names",
    ),
    CheckRule(
        code="description-missing",
        severity="error",
        strict="error",
        what="there is no description",
        why="It is required: a skill without one is never shown to a model.",
        fix="add `description: what it does and when to use it`",
    ),
    CheckRule(
        code="not-utf8",
        severity="error",
        strict="error",
        what="the file is not UTF-8",
        why="It is skipped.",
        fix="save it as UTF-8",
    ),
    CheckRule(
        code="body-encoding",
        severity="warning",
        strict="error",
        what="the body is not UTF-8",
        why="The wrong bytes are shown as replacement characters.",
        fix="save the file as UTF-8",
    ),
    CheckRule(
        code="file-empty",
        severity="warning",
        strict="error",
        what="the file is empty",
        why="There is nothing to load.",
        fix="write a name, a description and a body",
    ),
    # Name
    CheckRule(
        code="name-missing",
        severity="warning",
        strict="error",
        what="there is no `name`",
        why="It is required; without it the folder's name is used.",
        fix="add `name` with the folder's name (--fix does)",
    ),
    CheckRule(
        code="name-length",
        severity="warning",
        strict="error",
        what="the name is longer than 64 characters",
        why="The specification allows 1 to 64; other clients reject the skill.",
        fix="choose a shorter name",
    ),
    CheckRule(
        code="name-characters",
        severity="warning",
        strict="error",
        what="the name has characters other than lowercase letters, digits and hyphens",
        why="Names become paths, commands and tags; strict mode allows ASCII only.",
        fix="use a-z, 0-9 and single hyphens",
    ),
    CheckRule(
        code="name-hyphens",
        severity="warning",
        strict="error",
        what="the name begins or ends with a hyphen, or has two in a row",
        why="The specification forbids it.",
        fix="use single hyphens between words",
    ),
    CheckRule(
        code="name-folder",
        severity="warning",
        strict="error",
        what="the name differs from the folder's name",
        why="The specification wants them equal; clients that go by folder see another skill.",
        fix="rename the folder or change `name` (--fix --unsafe-fixes does)",
    ),
    CheckRule(
        code="name-reserved",
        severity="warning",
        strict="warning",
        what="the name is a reserved word or holds one",
        why="`anthropic` and `claude` are refused by a large client, device names by Windows.",
        fix="choose another name",
    ),
    CheckRule(
        code="name-duplicate",
        severity="warning",
        strict="warning",
        what="two of the checked skills have the same name",
        why="Where both are found only the first is used.",
        fix="rename one of them",
    ),
    # Description
    CheckRule(
        code="description-length",
        severity="warning",
        strict="error",
        what="the description is longer than 1,024 characters",
        why="The specification allows 1 to 1,024; listings cut it.",
        fix="keep what the skill does and when to use it; move the rest into the body",
    ),
    CheckRule(
        code="description-tags",
        severity="warning",
        strict="warning",
        what="the description holds `<` or `>`",
        why="The specification allows them, but some clients refuse such a skill: descriptions are "
        "part of prompts, where tags can be mistaken for structure.",
        fix="write it without angle brackets",
    ),
    CheckRule(
        code="description-placeholder",
        severity="warning",
        strict="error",
        what="the description is that of a template",
        why="A model chooses a skill by its description; this one says nothing about the skill.",
        fix="say what the skill does and when to use it",
    ),
    CheckRule(
        code="hidden-text",
        severity="warning",
        strict="warning",
        what="name or description holds control, invisible or direction-changing characters",
        why="Such text looks different to a person than to a model.",
        fix="remove these characters (--fix removes control characters)",
    ),
    # Other fields
    CheckRule(
        code="compatibility-length",
        severity="warning",
        strict="error",
        what="`compatibility` is empty or longer than 500 characters",
        why="The specification allows 1 to 500.",
        fix="shorten it, or remove the field",
    ),
    CheckRule(
        code="metadata-values",
        severity="info",
        strict="error",
        what="`metadata` holds values that are not strings",
        why="The specification wants a map from string to string.",
        fix="quote the values, or flatten the map",
    ),
    CheckRule(
        code="allowed-tools-form",
        severity="info",
        strict="error",
        what="`allowed-tools` is not a space-separated string",
        why="Lists and commas are read here, but not by every client.",
        fix="write the tools in one string with spaces between (--fix does)",
    ),
    CheckRule(
        code="field-unknown",
        severity="info",
        strict="error",
        what="a field is not part of the specification",
        why="It is kept as it is; strict clients reject the file.",
        fix="move it below `metadata`, or remove it",
    ),
    CheckRule(
        code="field-misspelled",
        severity="warning",
        strict="error",
        what="a field looks like a known one spelled wrongly",
        why="A field of another name has no effect.",
        fix="use the known name (--fix corrects case, `_` for `-` and known variants; "
        "--unsafe-fixes all)",
    ),
    # Body
    CheckRule(
        code="body-empty",
        severity="warning",
        strict="warning",
        what="there is no text after the frontmatter",
        why="A skill without instructions gives a model nothing to do.",
        fix="write what to do, step by step",
    ),
    CheckRule(
        code="body-long",
        severity="warning",
        strict="warning",
        what="the body is over 500 lines or about 5,000 tokens",
        why="All of it is read on activation; the specification advises less.",
        fix="move detail into files below references/ and link to them",
    ),
    CheckRule(
        code="reference-missing",
        severity="warning",
        strict="warning",
        what="a link leads to a file that is not there",
        why="A model follows the link and finds nothing.",
        fix="add the file or correct the link; links are relative to the skill's folder",
    ),
    CheckRule(
        code="mention-missing",
        severity="info",
        strict="info",
        what="a path written as code names a file that is not there",
        why="It may be created later; if not, a model looks for it in vain.",
        fix="add the file or correct the path",
    ),
    CheckRule(
        code="reference-outside",
        severity="warning",
        strict="warning",
        what="a link leads out of the skill",
        why="Only the skill's own folder is installed and readable.",
        fix="copy the file into the skill",
    ),
    CheckRule(
        code="reference-chain",
        severity="warning",
        strict="warning",
        what="a linked document leads on to one that SKILL.md does not name",
        why="The specification advises references one level deep; further ones are overlooked.",
        fix="link to the document from SKILL.md too",
    ),
    # What no skill should hold
    CheckRule(
        code="secret-in-text",
        severity="warning",
        strict="error",
        what="a file holds what looks like an API key, a token or a private key",
        why="Everyone with the skill has the secret, models and their providers too.",
        fix="revoke it, remove it, and let the skill ask for it: `skillbelt secrets`",
    ),
    CheckRule(
        code="fetch-and-run",
        severity="warning",
        strict="warning",
        what="a program is fetched and run at once, as by `curl … | sh`",
        why="No reviewer sees what runs, and it may be something else tomorrow.",
        fix="put the program into the skill, or fetch a fixed version and compare its hash",
    ),
    # The folder
    CheckRule(
        code="nested-skill",
        severity="info",
        strict="info",
        what="a SKILL.md is inside a skill",
        why="The search ends at the outer skill: the inner one is only a file of it.",
        fix="move it next to the outer skill, or check its folder by name",
    ),
    CheckRule(
        code="link-outside",
        severity="warning",
        strict="warning",
        what="a symbolic link leads out of the skill",
        why="Only a SKILL.md is read through it, and in a project only another SKILL.md of the "
        "project.",
        fix="replace the link with a copy",
    ),
    CheckRule(
        code="entry-unusable",
        severity="warning",
        strict="warning",
        what="an entry of the skill cannot be used",
        why="It is not a regular file, cannot be opened, or has a name that cannot be asked for.",
        fix="make it readable, rename it, or remove it",
    ),
    CheckRule(
        code="entry-hidden",
        severity="warning",
        strict="warning",
        what="an entry of the skill is named `out`, `work` or `inputs`",
        why="A run has its own folders with these names, so scripts do not see those of the skill.",
        fix="give it another name",
    ),
    CheckRule(
        code="entry-large",
        severity="info",
        strict="info",
        what="a file of the skill is larger than 2,000,000 bytes",
        why="Files of that size are not given to a model.",
        fix="split it, or let a script read it",
    ),
    CheckRule(
        code="folder-large",
        severity="info",
        strict="info",
        what="the skill has more than 512 files or 16 MiB",
        why="Hosts that get skills over MCP may refuse more than that.",
        fix="move data that is not always needed out of the skill",
    ),
    CheckRule(
        code="folder-cut",
        severity="info",
        strict="info",
        what="the skill's folder has more entries than are checked",
        why="Rules about files saw only a part of them.",
        fix="keep build output and dependencies out of the skill",
    ),
    CheckRule(
        code="script-mode",
        severity="info",
        strict="info",
        what="a script has a `#!` line but is not executable",
        why="It cannot be run by its path.",
        fix="chmod +x the script",
    ),
    CheckRule(
        code="script-shebang",
        severity="info",
        strict="info",
        what="a script has no `#!` line",
        why="Run by its path, it is run by the default shell.",
        fix="begin it with a line such as `#!/usr/bin/env bash`",
    ),
    # --fix
    CheckRule(
        code="fix-dropped",
        severity="warning",
        strict="warning",
        what="--fix would have changed what the file says, or could not write it",
        why="A fixed file must have the same meaning as before; otherwise it is left alone.",
        fix="fix it by hand",
    ),
)

RULES: Mapping[str, CheckRule] = MappingProxyType({rule.code: rule for rule in _ROWS})
